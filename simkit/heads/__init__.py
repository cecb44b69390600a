"""Learned heads: what they see, how they are trained, scored, kept in files and asked live.

Importing the package imports nothing; its modules need torch (`pip install 'draft-simkit[heads]'`).
"""

from traces.openmp import wait_passively

wait_passively()  # before torch is loaded
