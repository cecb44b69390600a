"""The acceptance head, and whether heads' predictions come true."""
