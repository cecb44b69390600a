"""Which experts the target reads for each token that a verification may hold.

The target reads each text once more, when all tokens are known: the prompts, the outputs, and each
rejected token with the branch behind it. So no other column of a recording changes by a bit, and
branches are read whether or not `--branch-target` asks for the target's view of them.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from traces.record.branches import slots_for_branches
from traces.record.forward import (
    Forward,
    causal_mask,
    left_padded,
    right_padded,
    side_by_side,
    visible,
)
from traces.record.plan import Plan
from traces.record.routers import Routing

_AT_ONCE = 256  # tokens of an output in a pass, and of a prompt

Arrays = dict[str, np.ndarray]


def record_experts(
    model: Forward,
    routing: Routing,
    prompts: list[list[int]],
    first_sequence: int,
    tables: dict[str, Arrays],
    plan: Plan,
) -> Arrays:
    """The rows of experts of a shard, `traces.schema.with_state`, in order.

    Args:
        model: the target, its cache empty, with room for the texts and a group of branches.
        routing: of the target.
        prompts: token ids.
        first_sequence: number of the first of them.
        tables: the shard's positions and branches.
        plan: the recording's settings.
    """
    reader = _Reader(model, routing, prompts)
    numbers = np.arange(len(prompts)) + first_sequence
    rows = [_rows(numbers, 0, 0, reader.prompts), _rows(numbers, 1, 0, reader.last)]
    positions, branches = tables["positions"], tables["branches"]
    outputs = [positions["target_token"][positions["sequence"] == n] for n in numbers]
    for k, bits in enumerate(reader.outputs([y[: plan.max_new_tokens - 1] for y in outputs])):
        position = np.arange(len(bits)) + 2  # the row behind each token
        rows.append(_rows(np.full(len(bits), numbers[k]), position, 0, bits))
    rejected = ~positions["accepted"] & (positions["position"] < plan.max_new_tokens)
    found = [_rejected(positions, branches, rejected, int(n)) for n in numbers]
    for group in _groups(found, slots_for_branches(plan, len(prompts)) // plan.max_draft):
        for k, texts in enumerate(reader.branches(group)):
            for (position, _), bits in zip(group[k], texts, strict=True):
                depth = np.arange(len(bits)) + 1
                rows.append(_rows(np.full(len(bits), numbers[k]), position, depth, bits))
    whole = {name: np.concatenate([part[name] for part in rows]) for name in rows[0]}
    order = np.lexsort([whole[key] for key in ("depth", "position", "sequence")])
    return {name: values[order] for name, values in whole.items()}


Branch = tuple[int, list[int]]
"""The position of a rejected token, and it and the tokens behind it."""


def _rows(
    sequence: np.ndarray, position: np.ndarray | int, depth: np.ndarray | int, bits: np.ndarray
) -> Arrays:
    keys = {"sequence": sequence, "position": position, "depth": depth}
    whole = {name: np.broadcast_to(key, len(bits)) for name, key in keys.items()}
    return {name: key.astype(np.int32) for name, key in whole.items()} | {"experts": bits}


def _rejected(
    positions: Arrays, branches: Arrays, rejected: np.ndarray, number: int
) -> list[Branch]:
    """The branches of one sequence."""
    mine = rejected & (positions["sequence"] == number)
    off = branches["sequence"] == number
    place, token = branches["position"][off], branches["draft_token"][off]
    return [
        (int(m), [int(root), *token[place == m].tolist()])
        for m, root in zip(positions["position"][mine], positions["draft_token"][mine], strict=True)
    ]


def _groups(found: list[list[Branch]], size: int) -> list[list[list[Branch]]]:
    """The branches of all sequences, up to `size` of each at a time."""
    most = max(map(len, found), default=0)
    return [[mine[at : at + size] for mine in found] for at in range(0, most, size)]


class _Reader:
    """A target that reads prompts, then outputs, then branches.

    Attributes:
        prompts: (B, bytes) experts that any token of the prompt reads.
        last: (B, bytes) those of its last token.
    """

    def __init__(self, model: Forward, routing: Routing, prompts: list[list[int]]) -> None:
        self._model, self._routing = model, routing
        tokens, pads = left_padded(prompts)
        self._pads, self._width = pads.to(model.device), tokens.shape[1]
        bits = self._text(tokens)
        bits[np.arange(self._width) < pads.numpy()[:, None]] = 0
        self.prompts, self.last = np.bitwise_or.reduce(bits, 1), bits[:, -1]

    def outputs(self, outputs: list[np.ndarray]) -> list[np.ndarray]:
        """(n, bytes) of each output's tokens, which stay in the cache."""
        bits = self._text(right_padded(outputs))
        return [mine[: len(tokens)] for mine, tokens in zip(bits, outputs, strict=True)]

    def branches(self, group: list[list[Branch]]) -> list[list[np.ndarray]]:
        """(tokens, bytes) of each branch; the cache is left as it was."""
        base = self._model.cache.length
        size = max(map(len, group))
        deep = max(len(tokens) for mine in group for _, tokens in mine)
        fed = torch.zeros(len(group), size, deep, dtype=torch.int64)
        place = torch.zeros(len(group), size, dtype=torch.int64)
        for k, mine in enumerate(group):
            for r, (position, tokens) in enumerate(mine):
                fed[k, r, : len(tokens)] = torch.tensor(tokens)
                place[k, r] = position
        fed, place = fed.to(self._pads.device), place.to(self._pads.device)
        text = (self._width - self._pads)[:, None] + (place - 1).clamp_min(0)
        text = text[:, :, None] + torch.arange(deep, device=fed.device)
        before = visible(self._pads, self._width + place - 1, base)
        mask = side_by_side(before, deep)[:, None]
        found = self._pass(fed.flatten(1), text.flatten(1), mask)
        self._model.cache.cut(base)
        bits = found.reshape(len(group), size, deep, -1)
        return [
            [bits[k, r, : len(tokens)] for r, (_, tokens) in enumerate(mine)]
            for k, mine in enumerate(group)
        ]

    def _text(self, tokens: Tensor) -> np.ndarray:
        """(B, n, bytes) of tokens that all sequences go on with."""
        parts = [np.zeros((len(tokens), 0, self._routing.info.row_bytes), np.uint8)]
        for block in tokens.to(self._pads.device).split(_AT_ONCE, 1):
            if block.shape[1]:
                start = self._model.cache.length
                end = start + block.shape[1]
                places = torch.arange(start, end, device=block.device) - self._pads[:, None]
                mask = causal_mask(self._pads, start, end)
                parts.append(self._pass(block, places.clamp_min(0), mask))
        return np.concatenate(parts, 1)

    def _pass(self, tokens: Tensor, places: Tensor, mask: Tensor) -> np.ndarray:
        with self._routing:
            self._model.pass_(tokens, places, mask, keep=1)
            return self._routing.taken((tokens.shape[0], tokens.shape[1])).numpy()
