"""Migrations of the catalog, which `traceq.catalog` runs by itself when it opens one."""
