"""Renderers: a report as text; each is one function `render(report) -> str`."""
