"""The reference pair: a small target and draft, trained from scratch, with held-out prompts."""

from traces.waiting import wait_passively

wait_passively()  # before torch is loaded
