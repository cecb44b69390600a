"""Arms that take turns by steps decode what they decode one after another."""

import pytest
from test_exactness import EOS_IDS, SAMPLERS, heads, sharp_pair

from simkit import policies
from simkit.live import DecoderSettings
from simkit.live.block_scorer import BlockScorer
from simkit.live.interleave import finished, in_turns
from simkit.live.log import LiveLog
from simkit.live.rotation import Arm, Bench, LiveJob, run

pytestmark = pytest.mark.usefixtures("one_thread")

SPECS = (
    "fixed(2)",
    "heuristic",
    "svip(h=1.2)",
    "pacer(block=2, threshold=0.6, max_draft=16)",
    "specdecpp",
)
PROMPTS = ([5, 9, 3], [7, 2, 11, 4], [6])


def counting(log, name, *emitted):
    """A decoding that says when its steps run."""
    for n in emitted:
        yield n
        log.append(name)
    return name


def test_the_decoding_with_the_fewest_tokens_is_next():
    ran = []
    begins = {
        3: lambda: counting(ran, "c", 0, 4, 5),
        1: lambda: counting(ran, "a", 0, 1, 2, 9),
    }
    done = list(in_turns(begins, "step"))
    assert "".join(ran) == "caaacca" and done == [(3, "c"), (1, "a")]


def test_one_after_another():
    ran = []
    begins = {3: lambda: counting(ran, "c", 0, 4), 1: lambda: counting(ran, "a", 0, 1)}
    assert list(in_turns(begins, "sequence")) == [(3, "c"), (1, "a")] and "".join(ran) == "ccaa"


def test_a_decoding_without_a_step():
    assert finished(counting([], "a")) == "a"
    assert list(in_turns({0: lambda: counting([], "a")}, "step")) == [(0, "a")]


def logged(turns, sampler, batch):
    pair, log = sharp_pair("llama-gqa"), LiveLog()
    given = SAMPLERS[sampler], 11, 24, EOS_IDS, "draft"
    specs = [spec for spec in SPECS if not (batch and policies.parse(spec).head)]
    arms = [Arm(), *(Arm(policies.parse(spec)) for spec in specs), Arm(policies.parse(specs[0]))]
    scorers = {name: BlockScorer(head) for name, head in heads("llama-gqa").items()}
    bench = Bench(pair, DecoderSettings(*given), scorers, turns=turns)
    every = tuple(range(len(arms)))
    jobs = [LiveJob(PROMPTS[:2], 0, every), LiveJob(PROMPTS[2:], 2, every)]
    if not batch:
        jobs = [LiveJob((prompt,), k, every) for k, prompt in enumerate(PROMPTS)]
    return run(bench, arms, jobs, 2, log), log.table().drop_columns("seconds")


@pytest.mark.parametrize(("sampler", "batch"), [("greedy", False), ("t1", False), ("greedy", True)])
def test_turns_by_steps_decode_the_same(sampler, batch):
    """Heads keep texts, policies keep state: no arm sees another's."""
    found, log = logged("sequence", sampler, batch)
    by_step, log_by_step = logged("step", sampler, batch)
    assert by_step == found and any(steps for steps, _ in found.values())
    keys = [(name, "ascending") for name in ("round", "sequence", "run")]

    def sorted_rows(table):
        index = range(table.num_rows)  # rows of a sequence stay in their order
        rows = list(zip(index, table.to_pylist(), strict=True))
        rows.sort(key=lambda item: (*(item[1][name] for name, _ in keys), item[0]))
        return [row for _, row in rows]

    assert sorted_rows(log_by_step) == sorted_rows(log)


def test_the_log_says_so_where_turns_are_by_steps():
    pair = sharp_pair("llama-gqa")
    settings = DecoderSettings(SAMPLERS["greedy"], 0, 24, EOS_IDS, "draft")
    assert "turns" not in Bench(pair, settings).facts
    assert Bench(pair, settings, turns="step").facts["turns"] == "step"
