"""Prompt lookup: what followed the last tokens where they stood first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from traces.attach.tokens.arguments import Given, check_whole
from traces.attach.tokens.matching import matched
from traces.attach.tokens.proposals import Proposals
from traces.attach.tokens.rule import Lookup


@dataclass(frozen=True)
class PromptLookup(Lookup):
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

    def drafts(self, given: Given) -> Proposals:
        """See `Lookup`."""
        return matched(given, (1, self.ngram), True, self.length, with_eos=False)
