"""The statistics of `traces.record.statistics` from one Triton kernel, for logits on a GPU.

The functions have the names, arguments and columns of their plain counterparts, and call them for
rows that do not ask for the kernel (`Rows.kernel`) or that it cannot run on; the recorder and the
live decoders reduce all their rows here. The kernel reads a row's logits in their own dtype and
accumulates in float32, lane by lane, so its columns differ from the plain ones in the last bits of
a float32: a recorder and a live decoder that are to agree must use the same of the two, which the
manifest names (`statistics`). A row's columns do not depend on the other rows. Where a sampler
cuts or heats the distribution, the columns of the processed distributions still come from the plain
code. Logits must be finite or -inf; a cross entropy that is infinite comes out as a huge number.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor

from traces.errors import RecordError
from traces.record import statistics
from traces.record.pair import Pair
from traces.record.statistics import LogitRows
from traces.schema import DRAFT_STATISTICS

FLOATS = (
    "draft_log_norm",
    "draft_entropy",
    "draft_top1_prob",
    "draft_top2_prob",
    "draft_top10_mass",
    "draft_prob_raw",
    "target_log_norm",
    "target_entropy",
    "cross_entropy",
    "overlap",
    "target_top1_prob",
    "target_prob_raw",
)
LEAST_VOCABULARY = 1024  # shorter rows are left to the plain code


class Raw(NamedTuple):
    """What the kernel gives of N rows.

    Attributes:
        floats: by name, each float32 (N,).
        draft_best: the likeliest token of q (N,), the lowest id of several.
        target_best: the same of p; meaningless without p.
    """

    floats: dict[str, Tensor]
    draft_best: Tensor
    target_best: Tensor


def can_run(device: torch.device, dtype: torch.dtype, vocab_size: int) -> bool:
    """Whether the kernel can reduce such logits: Triton is here, and they lie on a GPU."""
    return (
        device.type == "cuda"
        and dtype != torch.float64
        and vocab_size >= LEAST_VOCABULARY
        and importlib.util.find_spec("triton") is not None
    )


def can_run_for(pair: Pair) -> bool:
    """Whether the kernel can reduce what these models say; see `can_run`."""
    return can_run(pair.target.device, pair.target.dtype, pair.vocab_size)


def chosen(pair: Pair, wanted: bool | None) -> bool:
    """Whether to use the kernel: as is wanted, or (None) wherever it can run.

    Raises:
        RecordError: it is wanted where it cannot run.
    """
    can = can_run_for(pair)
    if wanted and not can:
        raise RecordError(
            "--kernel: the Triton kernel needs Triton, a CUDA device, a dtype of at most 32 bits"
            f" and a vocabulary of at least {LEAST_VOCABULARY}"
        )
    return can if wanted is None else wanted


def usable(rows: LogitRows) -> bool:
    """Whether these rows ask for the kernel, and it can run on them."""
    logits = rows.given
    return rows.kernel and can_run(logits.device, logits.dtype, logits.shape[-1])


def raw_statistics(
    p_logits: Tensor | None,
    q_logits: Tensor,
    token: Tensor,
    *,
    block: int = 1024,
    warps: int = 8,
    stages: int = 4,
) -> Raw:
    """All statistics of raw (p, q) pairs, read twice from memory or cache in one kernel.

    Args:
        p_logits: the target's (N, V), float32, bfloat16 or float16; None leaves its part out.
        q_logits: the draft's (N, V).
        token: draft tokens (N,).
        block: tokens that a program handles at once.
        warps: of a program.
        stages: blocks whose loads are in flight at once.

    Returns:
        The columns, in nats and probabilities; the log-normalisers too.
    """
    from traces.record.statistics_kernel import row_kernel

    rows, size = q_logits.shape
    q = _rows_apart(q_logits)
    p = q if p_logits is None else _rows_apart(p_logits)
    floats = torch.empty(rows, len(FLOATS), dtype=torch.float32, device=q.device)
    ids = torch.empty(rows, 2, dtype=torch.int32, device=q.device)
    launch: Any = row_kernel
    # Triton launches on the current device, which may be another GPU than the one of the logits.
    with torch.cuda.device(q.device) if q.is_cuda else nullcontext():
        if rows:
            launch[(rows,)](
                *(p, q, token.contiguous(), floats, ids, p.stride(0), q.stride(0), size),
                HAS_P=p_logits is not None,
                WIDTH=len(FLOATS),
                BLOCK=block,
                STAGES=stages,
                num_warps=warps,
            )
    kept = FLOATS if p_logits is not None else FLOATS[:6]
    columns = {name: floats[:, i] for i, name in enumerate(kept)}
    return Raw(columns, ids[:, 0].long(), ids[:, 1].long())


def draft_statistics(
    q: LogitRows, token: Tensor, names: Iterable[str] = DRAFT_STATISTICS
) -> dict[str, Tensor]:
    """As `traces.record.statistics.draft_statistics`."""
    if not usable(q):
        return statistics.draft_statistics(q, token, names)
    return _draft_columns(raw_statistics(None, q.given, token), q, token, names)


def target_statistics(p: LogitRows, q: LogitRows, token: Tensor) -> dict[str, Tensor]:
    """As `traces.record.statistics.target_statistics`."""
    if not (usable(p) and usable(q)):
        return statistics.target_statistics(p, q, token)
    return _target_columns(raw_statistics(p.given, q.given, token), p, q, token)


def pair_statistics(p: LogitRows, q: LogitRows, token: Tensor) -> dict[str, Tensor]:
    """The columns of both functions from one launch."""
    if not (usable(p) and usable(q)):
        return draft_statistics(q, token) | target_statistics(p, q, token)
    raw = raw_statistics(p.given, q.given, token)
    return _draft_columns(raw, q, token) | _target_columns(raw, p, q, token)


def _draft_columns(
    raw: Raw, q: LogitRows, token: Tensor, names: Iterable[str] = DRAFT_STATISTICS
) -> dict[str, Tensor]:
    def column(name: str) -> Tensor:
        if name == "draft_prob":
            return _processed(q, token, raw.draft_best, raw.floats["draft_prob_raw"])
        return raw.floats[name]

    return _bounded({name: column(name) for name in names})


def _target_columns(raw: Raw, p: LogitRows, q: LogitRows, token: Tensor) -> dict[str, Tensor]:
    names = ("target_prob_raw", "target_entropy", "cross_entropy", "overlap", "target_top1_prob")
    columns = {name: raw.floats[name] for name in names}
    p_token = _processed(p, token, raw.target_best, raw.floats["target_prob_raw"])
    q_token = _processed(q, token, raw.draft_best, raw.floats["draft_prob_raw"])
    columns["target_prob"] = p_token
    columns["accept_prob"] = (p_token.double() / q_token.double()).clamp_max(1)
    columns["overlap_processed"] = _overlap_processed(raw, p, q)
    return _bounded(columns)


def _processed(rows: LogitRows, token: Tensor, best: Tensor, raw_prob: Tensor) -> Tensor:
    if rows.temperature == 0:
        return (best == token).float()
    return raw_prob if rows.is_raw else rows.processed_at(token)


def _overlap_processed(raw: Raw, p: LogitRows, q: LogitRows) -> Tensor:
    if q.temperature == 0 and p.temperature == 0:
        return (raw.draft_best == raw.target_best).float()
    if p.is_raw and q.is_raw:
        return raw.floats["overlap"]
    return statistics._overlap_processed(p, q)


def _bounded(columns: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: statistics._column(value, name) for name, value in columns.items()}


def _rows_apart(logits: Tensor) -> Tensor:
    """The logits with each row in one piece."""
    return logits if logits.stride(-1) == 1 else logits.contiguous()
