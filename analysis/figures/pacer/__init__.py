"""PACER: optimal draft lengths, dynamic policies, passes, and its settings."""
