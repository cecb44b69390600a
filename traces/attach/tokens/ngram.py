"""N-grams: what followed the longest run of last tokens that was seen before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from traces.attach.tokens.arguments import Given, check_whole, check_word
from traces.attach.tokens.matching import matched
from traces.attach.tokens.proposals import Proposals
from traces.attach.tokens.rule import Lookup
from traces.errors import DrafterError


@dataclass(frozen=True)
class NGram(Lookup):
    """The rule of vLLM's n-gram proposer; with "last" the latest match counts, not the earliest.

    For n from `most` down to `least`: the first (or the last) place in prompt and output, with at
    least one token behind it, where the last n tokens stand; up to `length` tokens behind it, cut
    at what is known. A draft ends *with* an EOS token: the engine goes on, but nothing behind it is
    ever emitted. From start i it has at most T_max - i tokens; vLLM cuts at the model's length.

    llama.cpp's rule is `ngram_simple`.

    Source: vLLM `v1/spec_decode/ngram_proposer.py`, whose `prompt_lookup_min` and `_max` are both 5
    unless they are given.

    Attributes:
        length: tokens of a draft at most.
        least: the smallest n.
        most: the largest n.
        which: the "first" match or the "last".
    """

    name: ClassVar[str] = "ngram"
    length: int = 5
    least: int = 5
    most: int = 5
    which: Literal["first", "last"] = "first"

    def __post_init__(self) -> None:
        check_whole(self, "length", 1)
        check_whole(self, "least", 1)
        check_whole(self, "most", 1)
        check_word(self, "which", ("first", "last"))
        if self.least > self.most:
            raise DrafterError(f"ngram: least is {self.least}, more than most, {self.most}")

    @property
    def longest(self) -> int:
        """See `TokenRule`."""
        return self.length

    def drafts(self, given: Given) -> Proposals:
        """See `Lookup`."""
        sizes, leftmost = (self.least, self.most), self.which == "first"
        return matched(given, sizes, leftmost, self.length, with_eos=True)
