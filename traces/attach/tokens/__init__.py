"""Drafters from tokens alone: no model, no torch; a proposal costs CPU time and no pass."""

from __future__ import annotations

from traces.attach.tokens.ngram import NGram
from traces.attach.tokens.ngram_simple import NGramSimple
from traces.attach.tokens.prompt_lookup import PromptLookup
from traces.attach.tokens.proposals import Proposals
from traces.attach.tokens.suffix import Suffix

__all__ = ["NGram", "NGramSimple", "PromptLookup", "Proposals", "Suffix"]
