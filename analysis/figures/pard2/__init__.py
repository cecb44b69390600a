"""PARD-2: the target's confidence, and parallel drafters."""
