"""Servers that are simulated, and settings that are written for engines."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import simkit
from benchmarks.fuzz import alter, judge
from benchmarks.fuzz.borders import fixed
from benchmarks.fuzz.judge import ACCEPTED, BY_TOKEN, EQUAL, LINEAR, REFUSED, FaultError, Verdict
from traces.errors import UserError
from traces.schema import LATENCY

_CONTROLLERS = (
    "static(3)",
    "off_above(3, batch=2)",
    "by_batch([[1, 2, 4], [3, 9, 2]])",
    "schedule({2: 4, 8: 1})",
    "ema(3)",
    "none",
    "svip(h=0.4)",
    "all_stopped(svip(h=0.4))",
)
_NUMBERS = (
    "1",
    "2",
    "0",
    "-1",
    "1e300",
    "1e-300",
    "nan",
    "inf",
    "9" * 20,
    "0.5",
    "true",
    "1,2",
    "64",
)
_OPTIONS = ("max-batch", "kv-tokens", "prefill-tokens", "captured", "rates", "requests", "seeds")
_LIMITS = ("ttft_s", "tpot_s", "latency_s", "gap_s", "x")
_WRONG: dict[str, tuple[Any, ...]] = {
    "concurrency": (0, -1, 1.5, True, "2", float("nan"), 2**40),
    "seeds": (0, -1, 1.5, True, "2", None),
    "limits": tuple({"ttft_s": v} for v in (True, -1.0, 0.0, float("nan"), "1")) + ({"x": 1.0},),
    "requests": (0, -1, 1.5, True, "5"),
    "rates": ([], [2.0], [-0.1], [float("nan")]),
    "confidence": (0, 1, 2.0, float("nan"), True),
}


def check_sound(base: Path) -> None:
    """Serve with every controller, unaltered.

    Raises:
        FaultError: one is refused.
    """
    words = ("--seeds", "1", "--requests=6", "--concurrency=4", "--cost", BY_TOKEN)
    for spec in _CONTROLLERS:
        ended = judge.command("serving", base / "sampled", f"--controller={spec}", *words)
        if ended.status:
            raise FaultError("wrong exit", f"the sound {spec} is refused: {ended.err}")


def serving(rng: random.Random, base: Path, work: Path) -> Verdict:
    """A server of which one thing is altered; a sound one gives the counts of a replay."""
    if rng.random() < 0.4:
        return _served_alone(rng, base)
    spec, load, cost = rng.choice(_CONTROLLERS), "--concurrency=4", BY_TOKEN
    words = ["serving", base / "sampled", "--seeds", "1", "--requests=6", "--format", "json"]
    altered = rng.choice(("spec", "spec", "load", "option", "limit", "times"))
    if altered == "spec":
        spec = alter.alter_text(rng, spec)
    elif altered == "load":
        load = f"--{rng.choice(('rate', 'concurrency', 'copies'))}={rng.choice(_NUMBERS)}"
    elif altered == "option":
        words += [f"--{rng.choice(_OPTIONS)}={rng.choice(_NUMBERS)}"]
    elif altered == "limit":
        words += ["--limit", f"{rng.choice(_LIMITS)}={rng.choice(_NUMBERS)}"]
    else:
        cost = str(work / "cost.parquet")
        table = alter.alter_table(rng, batched_times()).replace_schema_metadata(None)
        pq.write_table(table, cost)
    return judge.numbers(judge.command(*words, f"--controller={spec}", load, "--cost", cost))


@cache
def batched_times() -> pa.Table:
    """Timing samples of batches of up to 8."""
    rows = []
    for name, batch, context in itertools.product(("draft", "target"), (1, 2, 4, 8), (0, 16, 256)):
        for tokens in (1, 2, 5) if context else (8, 64):
            seconds = (1e-3 if name == "draft" else 8e-3) + 1e-5 * batch * (tokens + context)
            row = {"component": name, "tokens_in": tokens, "context_len": context}
            row |= {
                "batch_size": batch,
                "seconds": seconds,
                "dtype": "float32",
                "device": "made up",
            }
            rows.append({**row, "engine": "eager", "repeat": 0})
    return pa.Table.from_pylist(rows, schema=LATENCY)


def _served_alone(rng: random.Random, base: Path) -> Verdict:
    """Requests one at a time, each sequence once: a replay's steps; wrong arguments are refused."""
    length, trace = rng.randint(1, 6), base / "sampled"
    how: dict[str, Any] = {"concurrency": 1, "requests": None, "seeds": 1, "drawn": False}
    name = rng.choice((None, None, *_WRONG))
    if name is not None:
        how[name] = rng.choice(_WRONG[name])
    try:
        served = simkit.serving.serve(str(trace), f"static({length})", LINEAR, **how)
    except UserError as problem:
        if name is None:
            raise FaultError("wrong exit", f"a sound server is refused: {problem}") from None
        return judge.refusal(problem)
    if name is not None:
        raise FaultError("wrong number", f"{name}={how[name]!r} is taken")
    frame = served.requests()
    found = [int(frame[column].sum()) for column in ("steps", "drafted", "proposed", "accepted")]
    if found != (expected := fixed(trace, length)[:4]):
        raise FaultError("wrong number", f"static({length}) alone: {found} instead of {expected}")
    return Verdict(EQUAL, "")


_ENGINES = ("vllm", "sglang", "tensorrt-llm", "llama.cpp", "transformers")


def exports(rng: random.Random, base: Path, work: Path) -> Verdict:
    """A setting for an engine: what is written holds the length that was asked for."""
    engine, length = rng.choice(_ENGINES), rng.randint(1, 9)
    out = work / "setting.txt"
    spec, is_sound = f"fixed({length})", rng.random() < 0.5
    if not is_sound:
        spec = alter.alter_text(rng, rng.choice((spec, "svip(h=0.4)", "llamacpp(p_min=0.5)")))
    words = ["export", base / rng.choice(("greedy", "sampled")), "--engine", engine, "-o", out]
    ended = judge.command(*words, f"--policy={spec}", "--draft", "some/draft", "--cost", LINEAR)
    if ended.status == 2 and not is_sound:
        return Verdict(REFUSED, ended.err.strip())
    if ended.status == 2 or str(length) not in out.read_text() and is_sound:
        raise FaultError("wrong number", f"{engine}: fixed({length}) is written without its length")
    if engine == "vllm":
        json.loads(out.read_text())
    return Verdict(EQUAL if is_sound else ACCEPTED, "")


FAMILIES: dict[str, Callable[[random.Random, Path, Path], Verdict]] = {
    "serving": serving,
    "exports": exports,
}
