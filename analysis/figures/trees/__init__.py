"""Draft trees: nodes, exits, gaps, one step."""
