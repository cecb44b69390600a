"""SmolLM2-135M-Instruct: its prompts, its drafts, and how they are trained."""
