"""How the bundled models, heads, recordings and times were made; not in the wheel."""

from traces.openmp import wait_passively

wait_passively()  # before torch is loaded
