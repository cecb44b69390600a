"""SmolLM2-135M-Instruct: fetched, its prompts, its drafts, and how they are trained."""
