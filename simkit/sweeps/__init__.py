"""Many settings of policies on one trace: side by side, or the best by held-out speed."""

from simkit.sweeps.grid import Sweep, sweep
from simkit.sweeps.tuning import Tuned, tune

__all__ = ["Sweep", "Tuned", "sweep", "tune"]
