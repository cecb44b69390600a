"""Measurements of the project itself; nothing here is installed."""
