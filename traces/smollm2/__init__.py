"""SmolLM2-135M-Instruct: fetched, its prompts, its drafts, and how they are trained."""

from traces.waiting import wait_passively

wait_passively()  # before torch is loaded
