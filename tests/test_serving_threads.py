"""Runs of one controller under several loads at once do not get in each other's way."""

from __future__ import annotations

from simkit import serving
from simkit.serving import Engine

COST = "atlas(target=qwen3-8b, draft=qwen3-0.6b)"


def test_threads_give_what_one_gives():
    given = dict(
        cost=COST,
        concurrency=[1, 3, 16, 64],
        requests=60,
        seeds=3,
        engine=Engine(64),
    )
    chosen = ["budget(5)", "ema(3)", "static(2)"]
    one, many = (serving.serve("reference", chosen, workers=n, **given) for n in (1, 4))
    for mine, theirs in zip(one.runs, many.runs, strict=True):
        assert mine.server.done_s.tolist() == theirs.server.done_s.tolist()
