"""What the heads see of a trace: the draft model's states, row by row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simkit.errors import HeadError
from traces.trace import Trace


@dataclass(frozen=True)
class States:
    """The states from which each q was computed, float16, H numbers each.

    Attributes:
        prompt: (sum of n_prompt - 1, H); a prompt's first token was drawn from nothing.
        path: (n_positions, H), in the order of the trace's positions.
        branches: (n_branch_rows, H), in the order of its branches.
        prompt_offsets: (S + 1,) int64, where each sequence's rows of `prompt` begin.
        path_offsets: (S + 1,) int64, where each sequence's rows of `path` begin.
    """

    prompt: np.ndarray
    path: np.ndarray
    branches: np.ndarray
    prompt_offsets: np.ndarray
    path_offsets: np.ndarray

    @property
    def width(self) -> int:
        """H."""
        return self.path.shape[1]

    def text(self, sequence: int) -> np.ndarray:
        """States of a sequence's prompt and output, (n_prompt - 1 + n_output, H)."""
        prompt = slice(*self.prompt_offsets[sequence : sequence + 2])
        path = slice(*self.path_offsets[sequence : sequence + 2])
        return np.concatenate([self.prompt[prompt], self.path[path]])


def read(trace: Trace, recording: Trace | None = None) -> States:
    """The states of a trace.

    Args:
        trace: whose rows they belong to.
        recording: where they are, if not in the trace: the same recording made with --hidden.

    Raises:
        HeadError: there are no states, or `recording` is another one.
    """
    source = trace
    if recording is not None:
        _check_same(trace, recording)
        source = recording
    if not source.has("hidden", "state"):
        raise HeadError(
            f"{source.path or 'the trace'}: has no hidden states: record it with --hidden"
        )
    depth, position = (source.column("hidden", name) for name in ("depth", "position"))
    state = source.column("hidden", "state")
    off = depth > 0
    before = position <= 0
    n_prompt = np.maximum(trace.sequences["n_prompt"].to_numpy().astype(np.int64) - 1, 0)
    states = States(
        prompt=state[before & ~off],
        path=state[~before & ~off],
        branches=state[off],
        prompt_offsets=np.concatenate([[0], np.cumsum(n_prompt)]),
        path_offsets=trace.position_offsets,
    )
    wanted = (n_prompt.sum(), trace.n_positions, trace.n_branch_rows)
    found = tuple(map(len, (states.prompt, states.path, states.branches)))
    if found != wanted:
        raise HeadError(
            f"{source.path or 'the trace'}: {found} hidden states of prompts, positions and"
            f" branches, not {wanted}"
        )
    return states


def _check_same(trace: Trace, recording: Trace) -> None:
    """Refuse states of another recording than the trace's."""
    if trace.manifest.prompts_sha256 != recording.manifest.prompts_sha256:
        _refuse(trace, recording, "prompts")
    if not trace.sequences["output_tokens"].equals(recording.sequences["output_tokens"]):
        _refuse(trace, recording, "outputs")
    for table, names in (
        ("positions", ("draft_token",)),
        ("branches", ("position", "depth", "draft_token")),
    ):
        for name in names if trace.has(table, names[0]) else ():
            mine, theirs = trace.column(table, name), recording.column(table, name)
            if table == "branches" and name == "draft_token" and trace.manifest.tokens == "ends":
                mine, theirs = (np.isin(tokens, trace.eos_token_ids) for tokens in (mine, theirs))
            if not np.array_equal(mine, theirs):
                _refuse(trace, recording, f"{table}.{name}")


def _refuse(trace: Trace, recording: Trace, what: str) -> None:
    raise HeadError(
        f"{recording.path}: its {what} are not those of {trace.path}: its states do not belong to"
        " that trace; record the same prompts again with the same settings"
    )
