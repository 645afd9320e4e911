"""Builders of tiny sources with round numbers."""
