"""What every training here shares: the optimiser and its rate, checkpoints."""

from traces.waiting import wait_passively

wait_passively()  # before torch is loaded
