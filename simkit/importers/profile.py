"""A synthetic trace of an acceptance profile: independent steps of given rates.

A profile is NVIDIA's `speculation_profile.json` (which `simkit export --profile` writes), or the
Prometheus text of a vLLM or llama.cpp server, whose counters `spec_decode_num_drafts`,
`_num_draft_tokens`, `_num_accepted_tokens` and `_num_accepted_tokens_per_pos` have P(a >= j).

Nothing of the requests is in either. So the steps that drafts of K tokens take have exactly the
rates, up to the rounding of counts, in a drawn order; what other starts would accept is drawn from
the rates. Requests do not differ as real ones do, and tails are too short.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from simkit.errors import ImporterError
from simkit.importers import jsonl, laws
from simkit.importers.specdecode_bench import lattice_rows
from simkit.importers.steps import Imported
from traces import reading
from traces.manifest import SourceInfo
from traces.memory import from_drafts
from traces.messages import how_many
from traces.trace import Trace

_MOST = 10_000_000  # positions
_COUNTER = re.compile(
    r"^(?:vllm|llamacpp):spec_decode_num_(?P<name>drafts|draft_tokens|accepted_tokens"
    r"|accepted_tokens_per_pos)(?:_total)?(?:\{(?P<labels>[^}]*)\})?\s+(?P<value>\S+)"
)
_POSITION = re.compile(r'position="(\d+)"')


class AcceptanceRates(NamedTuple):
    """What a profile gives: P(a >= j), and what it says of itself, in words."""

    marginal: list[float]
    words: str


def load(file: str | Path, n_requests: int = 200, n_tokens: int = 256, seed: int = 42) -> Imported:
    """A synthetic trace.

    Args:
        file: the profile.
        n_requests: outputs, of equally many steps.
        n_tokens: of an output, in the mean.
        seed: of the draws.

    Raises:
        ImporterError: the file is no profile, contradicts itself, or was not measured; or there
            would be no step, or too many positions; or seed is below 0.
    """
    if seed < 0:
        raise ImporterError(f"seed must be at least 0, not {seed}")
    rates = read(file)
    mean = 1 + sum(rates.marginal)
    n_steps = round(n_tokens / mean)
    if min(n_requests, n_steps) < 1 or n_requests * n_tokens > _MOST:
        raise ImporterError(
            f"{n_requests:,} requests of {n_tokens:,} tokens: each request needs a step, and all"
            f" together at most {_MOST:,} tokens"
        )
    rng = np.random.default_rng(seed)
    taken = _deck(rates.marginal, n_requests * n_steps, rng).reshape(n_requests, n_steps)
    note = (
        f"synthetic: independent draws of the rates in {Path(file).name} ({rates.words}); no"
        " request was recorded, and requests do not differ as real ones do"
    )
    source = SourceInfo(
        Path(file).name,
        reading.file_hash(file, ImporterError),
        sample=f"{how_many(n_requests, 'synthetic request')}, seed {seed}",
        notes=(note,),
    )
    return Imported(_trace(taken, rates.marginal, source, rng), [note])


def read(file: str | Path) -> AcceptanceRates:
    """The marginal rates of a profile.

    Raises:
        ImporterError: see `load`.
    """
    lines = [line for _, line in reading.lines(file, 2**24, ImporterError)]
    text = "\n".join(lines)
    if text.lstrip().startswith("{"):
        fields = reading.parse_json(text, str(file), ImporterError, any_number=True)
        return _of_json(jsonl.Record(str(file), fields if isinstance(fields, dict) else {}))
    return _of_counters(str(file), lines)


def _of_json(record: jsonl.Record) -> AcceptanceRates:
    if record.fields.get("measured", True) is not True:
        raise record.error("measured is not true: an unmeasured profile has no rates")
    marginal = _rates(record, "marginal_accept_rates")
    given = _rates(record, "conditional_accept_rates")
    if marginal is None and given is None:
        raise record.error("it has neither marginal_accept_rates nor conditional_accept_rates")
    if given is not None:
        found = np.cumprod(given).tolist()
        if marginal is None:
            marginal = found
        pairs = zip(marginal, found, strict=False)
        if len(marginal) != len(found) or any(abs(a - b) > 1e-4 for a, b in pairs):
            raise record.error("conditional_accept_rates contradict marginal_accept_rates")
    assert marginal is not None
    if any(b > a for a, b in zip(marginal, marginal[1:], strict=False)):
        raise record.error("marginal_accept_rates must not rise")
    length = record.fields.get("num_speculative_tokens")
    if length is not None and length != len(marginal):
        raise record.error(
            f"num_speculative_tokens is {length!r:.40}, its rates are {len(marginal)}"
        )
    if record.fields.get("verification_method", "longest_prefix") != "longest_prefix":
        raise record.error("verification_method must be longest_prefix: others have no such rates")
    if record.fields.get("mean_accept_length") is not None:
        mean = laws.number(record, "mean_accept_length")
        if abs(mean - 1 - sum(marginal)) > 0.02:  # the schema's own tolerance
            said = f"its rates give {1 + sum(marginal):.4g}"
            raise record.error(f"mean_accept_length is {mean:g}, but {said}")
    method = record.fields.get("method")
    return AcceptanceRates(marginal, f"{method}, {len(marginal)} tokens" if method else "a profile")


def _rates(record: jsonl.Record, name: str) -> list[float] | None:
    given = record.fields.get(name)
    if given is None:
        return None
    if not isinstance(given, list) or not 1 <= len(given) <= jsonl.LONGEST_DRAFT:
        raise record.error(f"{name} must be a list of 1 to {jsonl.LONGEST_DRAFT} rates")
    for k, rate in enumerate(given):
        number = isinstance(rate, int | float) and not isinstance(rate, bool)
        if not number or not 0 <= rate <= 1:
            raise record.error(f"{name}[{k}] must be from 0 to 1, not {rate!r:.40}")
    return [float(rate) for rate in given]


def _of_counters(where: str, lines: Sequence[str]) -> AcceptanceRates:
    sums: dict[str, float] = {}
    depths: dict[int, float] = {}
    for name, labels, value in _counters(where, lines):
        if name == "accepted_tokens_per_pos":
            at = _POSITION.search(labels)
            if at is None:
                raise ImporterError(f"{where}: a counter by position has no position")
            depths[int(at[1])] = depths.get(int(at[1]), 0.0) + value
        else:
            sums[name] = sums.get(name, 0.0) + value
    n = sums.get("drafts", 0.0)
    if not n or sorted(depths) != [*range(len(depths))] or not depths:
        raise ImporterError(
            f"{where}: no profile: neither JSON nor spec_decode_num_drafts and"
            " spec_decode_num_accepted_tokens_per_pos of a server"
        )
    counts = [depths[k] for k in range(len(depths))]
    if any(b > a for a, b in zip([n, *counts], counts, strict=False)):
        raise ImporterError(f"{where}: accepted tokens must not rise with the position")
    total = sums.get("accepted_tokens", sum(counts))
    if total != sum(counts):
        raise ImporterError(
            f"{where}: {total:,.0f} tokens were accepted, but those by position are"
            f" {sum(counts):,.0f}"
        )
    return AcceptanceRates([m / n for m in counts], f"{n:,.0f} steps of a server")


def _counters(where: str, lines: Sequence[str]) -> Iterator[tuple[str, str, float]]:
    for line in lines:
        if not (found := _COUNTER.match(line.strip())):
            continue
        try:
            value = float(found["value"])
        except ValueError:
            value = -1.0
        if not 0 <= value < 2**53:
            raise ImporterError(f"{where}: {found['value']:.40} is no count")
        yield found["name"], found["labels"] or "", value


def _deck(marginal: Sequence[float], n: int, rng: np.random.Generator) -> np.ndarray:
    """What n steps accept, with these shares up to rounding, in a drawn order."""
    reached = np.round(np.array([1.0, *marginal, 0.0]) * n).astype(np.int64)
    accepted = np.repeat(np.arange(len(reached) - 1), reached[:-1] - reached[1:])
    return rng.permutation(accepted)


def _trace(
    taken: np.ndarray, marginal: Sequence[float], source: SourceInfo, rng: np.random.Generator
) -> Trace:
    """Steps from position 1 on, and drafts of all other starts."""
    n_output = (taken + 1).sum(1)
    accepted = (rng.random((int(n_output.sum()), 1)) < np.array(marginal)).sum(1)
    begins = np.cumsum(n_output) - n_output
    at = begins[:, None] + np.cumsum(taken + 1, axis=1) - (taken + 1)
    accepted[at.reshape(-1)] = taken.reshape(-1)
    length = len(marginal)
    return from_drafts(
        {
            "n_output": n_output,
            "output_tokens": [[]] * len(n_output),
            "finish_reason": ["unknown"] * len(n_output),
        },
        lattice_rows(np.minimum(accepted + 1, length), accepted, n_output),
        max_draft=length,
        max_new_tokens=int(n_output.max()) + jsonl.ROOM,
        source=source,
    )
