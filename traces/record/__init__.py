"""Run a model pair and record it. The only part of `traces` that needs torch."""
