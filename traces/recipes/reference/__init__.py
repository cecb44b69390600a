"""The reference pair: a small target and draft, trained from scratch, with held-out prompts."""
