"""Drafters that are run over recorded outputs: networks whose drafts depend on where they start."""
