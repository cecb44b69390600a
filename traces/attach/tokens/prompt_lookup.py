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
    """transformers' prompt lookup: continue the first earlier occurrence of the last tokens.

    For n from `ngram` down to 1 it looks in prompt and output for the leftmost place where the last
    n tokens occur with at least one token behind them. The draft is the tokens behind that place,
    as far as they are known. It ends *before* an EOS token. If no token is left then, there is no
    draft, and no smaller n is tried.

    transformers cuts only at the whole length of the text. So its draft may reach beyond T_max - i
    tokens, of which the verification keeps T_max - i and the target's own token. Here a draft ends
    there; steps and accepted tokens are the same.

    Source: transformers 5, `PromptLookupCandidateGenerator` in `generation/candidate_generator.py`.
    Its defaults are these (`generate` takes `length` as `prompt_lookup_num_tokens`).

    Attributes:
        length: largest number of tokens in a draft.
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
