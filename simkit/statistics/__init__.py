"""Intervals over prompts, and how many prompts are enough: numpy in, numbers out.

It lies below the simulator, which puts intervals on replays, and below `analysis`, whose statistics
all have them. It knows no trace, no policy and no cost.
"""
