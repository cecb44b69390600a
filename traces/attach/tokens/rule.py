"""What all rules promise that propose from tokens alone, and how they are run over a recording."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from traces.attach.drafter import Attachable, Attachment, Means, header_of
from traces.attach.tokens.arguments import Given, plain
from traces.attach.tokens.proposals import Found, Proposals
from traces.columns import Columns
from traces.manifest import Manifest
from traces.schema import LATENCY
from traces.trace import Trace

_PROCESSOR = "the processor of the run"


class TokenRule(Attachable):
    """A rule that proposes tokens which it finds in prompt and output.

    Attributes:
        has_score: whether it gives each token a probability.
    """

    has_score: ClassVar[bool] = False

    @property
    @abstractmethod
    def longest(self) -> int:
        """Tokens of a draft at most."""

    def memory(self) -> Any:
        """What is carried from sequence to sequence; None if nothing is."""
        return None

    @abstractmethod
    def propose(
        self,
        text: np.ndarray,
        n_prompt: int,
        eos: np.ndarray,
        max_new_tokens: int,
        memory: Any = None,
    ) -> Proposals:
        """Drafts from all starts of a sequence; from start i on text[: n_prompt + i - 1] is known.

        Args:
            text: prompt and output, (n_prompt + T,) int32.
            n_prompt: tokens of the prompt.
            eos: EOS tokens, int32.
            max_new_tokens: T_max; from start i a draft has at most T_max - i tokens.
            memory: as `memory` gave it; this sequence is remembered.

        Raises:
            ValueError: the prompt is longer than the text.
        """

    def found(
        self,
        text: np.ndarray,
        n_prompt: int,
        eos: np.ndarray,
        max_new_tokens: int,
        memory: Any = None,
    ) -> Found:
        """What is recorded of a sequence; see `propose`."""
        return self.propose(text, n_prompt, eos, max_new_tokens, memory)

    def facts(self, recording: Trace) -> dict[str, Any]:
        """What a manifest says of what is recorded."""
        return {
            "kind": "lattice",
            "draft_ends": True,
            "lattice_columns": ("draft_token", *(("draft_prob_raw",) if self.has_score else ())),
            "max_draft": max(1, min(self.longest, recording.max_new_tokens)),
        }

    def open(self, recording: Trace, means: Means) -> Attachment:
        """See `Attachable`."""
        return _Proposing(recording, self)


class Lookup(TokenRule):
    """A rule that remembers nothing from sequence to sequence."""

    @abstractmethod
    def drafts(self, given: Given) -> Proposals:
        """Drafts from all starts of a sequence, see `propose`."""

    def propose(
        self,
        text: np.ndarray,
        n_prompt: int,
        eos: np.ndarray,
        max_new_tokens: int,
        memory: None = None,
    ) -> Proposals:
        """See `TokenRule`."""
        return self.drafts(plain(text, n_prompt, eos, max_new_tokens))


class _Proposing(Attachment):
    """See `Attachment`. A proposal is certain: it has no distribution, and takes no pass."""

    def __init__(self, recording: Trace, rule: TokenRule) -> None:
        self._rule, self._recording = rule, recording
        self._memory = rule.memory()
        self._remembered = 0  # sequences that the memory holds
        self._taken: dict[int, tuple[int, float]] = {}  # by sequence: context and seconds
        text, eos = np.zeros(4, np.int32), np.array(recording.eos_token_ids, np.int32)
        rule.found(text, 2, eos, 4, rule.memory())  # compiled before times are taken
        self.header = header_of(recording, rule, draft_passes="none", **rule.facts(recording))

    def shard(self, index: int) -> Mapping[str, Columns]:
        """See `Attachment`."""
        size = self.header.batch_size
        first, end = index * size, min((index + 1) * size, self.header.n_prompts)
        if self._memory is not None:
            for sequence in range(self._remembered, first):  # written before this run
                self._propose(sequence)
        found = [self._propose(sequence) for sequence in range(first, end)]
        parts = [one.rows(first + k) for k, one in enumerate(found)]
        self._remembered = end
        joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return {found[0].table: joined}

    def times(self) -> pa.Table | None:
        """See `Attachment`: seconds of a proposal, a mean over the starts of each output.

        Outputs whose drafts were written before this run are searched again.
        """
        for sequence in range(self.header.n_prompts):
            if sequence not in self._taken:
                self._propose(sequence)
        if not self._taken:
            return None
        context, seconds = zip(*(self._taken[k] for k in sorted(self._taken)), strict=True)
        n = len(seconds)
        facts = {"component": "proposal", "dtype": "int32", "device": _PROCESSOR, "engine": "eager"}
        columns: dict[str, Any] = {name: [value] * n for name, value in facts.items()}
        columns |= {"tokens_in": [0] * n, "context_len": context, "batch_size": [1] * n}
        columns |= {"seconds": seconds, "repeat": range(n)}
        return pa.table({f.name: pa.array(columns[f.name], f.type) for f in LATENCY}, LATENCY)

    def _propose(self, sequence: int) -> Found:
        """The proposals from all starts of a sequence, timed."""
        given = arguments_of(self._recording.sequences, sequence, self.header)
        begin = time.perf_counter()
        found = self._rule.found(*given, self._memory)
        seconds = time.perf_counter() - begin
        text, n_prompt, *_ = given
        n_output = len(text) - n_prompt
        self._taken[sequence] = n_prompt + n_output // 2, seconds / n_output
        return found


def arguments_of(
    sequences: pa.Table, row: int, header: Manifest
) -> tuple[np.ndarray, int, np.ndarray, int]:
    """What `TokenRule.propose` is given of a sequence, but for a memory."""
    one = sequences.slice(row, 1)
    prompt, output = (
        one[name].combine_chunks().flatten().to_numpy()
        for name in ("prompt_tokens", "output_tokens")
    )
    text = np.concatenate([prompt, output]).astype(np.int32)
    return text, len(prompt), np.array(header.eos_token_ids, np.int32), header.max_new_tokens
