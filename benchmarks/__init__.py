"""Measurements of the project itself; nothing here is installed."""

from traces.openmp import wait_passively

wait_passively()  # before torch is loaded
