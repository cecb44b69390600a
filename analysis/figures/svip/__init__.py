"""SVIP: entropy and acceptance, draft lengths, positions in the text."""
