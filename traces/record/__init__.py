"""Run a model pair and record it. The only part of `traces` that needs torch."""

from traces.openmp import wait_passively

wait_passively()  # before torch is loaded
