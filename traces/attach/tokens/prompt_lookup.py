"""Prompt lookup: what followed the last tokens where they stood first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from traces.attach.tokens.arguments import check_whole, plain
from traces.attach.tokens.matching import matched
from traces.attach.tokens.proposals import Proposals
from traces.attach.tokens.rule import TokenRule


@dataclass(frozen=True)
class PromptLookup(TokenRule):
    """The rule of transformers' `PromptLookupCandidateGenerator`.

    For n from `ngram` down to 1: the leftmost place in prompt and output, with at least one token
    behind it, where the last n tokens stand; the tokens behind it, cut at what is known. The draft
    ends *before* an EOS token. If nothing is left of it then, there is none: no smaller n is tried.

    transformers cuts at the whole length of the text alone: a draft may reach beyond T_max - i
    tokens, of which the loop that verifies keeps T_max - i and the target's own. Here it ends
    there: steps and accepted tokens are the same.

    Source: transformers 5, `generation/candidate_generator.py`. Its defaults are these (`generate`
    takes `length` as `prompt_lookup_num_tokens`).

    Attributes:
        length: tokens of a draft at most.
        ngram: the largest n.
    """

    name: ClassVar[str] = "prompt_lookup"
    length: int = 10
    ngram: int = 2

    def __post_init__(self) -> None:
        check_whole(self, "length", 1)
        check_whole(self, "ngram", 1)

    @property
    def longest(self) -> int:
        """See `TokenRule`."""
        return self.length

    def propose(
        self,
        text: np.ndarray,
        n_prompt: int,
        eos: np.ndarray,
        max_new_tokens: int,
        memory: None = None,
    ) -> Proposals:
        """Drafts from all starts of a sequence; from start i on text[: n_prompt + i - 1] is known.

        Args:
            text: prompt and output, (n_prompt + T,) int32.
            n_prompt: tokens of the prompt.
            eos: EOS tokens, int32.
            max_new_tokens: T_max; from start i a draft has at most T_max - i tokens.
            memory: not used.

        Raises:
            ValueError: the prompt is longer than the text.
        """
        given = plain(text, n_prompt, eos, max_new_tokens)
        return matched(given, (1, self.ngram), True, self.length, with_eos=False)
