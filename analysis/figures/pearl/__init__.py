"""PEARL: drafting and verifying at the same time, its window, strategies and runs."""
