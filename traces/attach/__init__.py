"""Drafters that are attached to a recording of the target."""
