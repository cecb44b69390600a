"""What every training here shares: the optimiser and its rate, checkpoints."""
