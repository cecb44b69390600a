"""A real server against the simulator: the same schedule gives the same lengths, step for step."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from commands import refused
from models import EOS, tiny_pair, tiny_prompts
from pair_folders import pair, pair_folder, simkit

import traces
from benchmarks.live_serving_judge import read, runs_of
from benchmarks.plain_reader import Reader
from simkit import costs, serving
from simkit.errors import LiveError
from simkit.live import DecoderSettings, served
from simkit.live.decoder import Request
from simkit.live.decoders import LiveServer, TimedDecoder
from simkit.live.live_controllers import decider
from simkit.live.serving_arms import ServingArm, ServingBench, engine, run
from simkit.live.serving_summary import summary
from simkit.live.summary import Drift
from simkit.policies import PolicyError
from simkit.serving.controllers import Nothing
from simkit.serving.plans import plan
from simkit.simulator.arguments import setting
from traces import Sampler
from traces.record.pair import load_pair
from traces.record.reader import Reader as SlotReader
from traces.subset import select

pytestmark = pytest.mark.usefixtures("one_thread")

MODELS = Path(traces.__file__).parent / "reference" / "models"
COST = (
    "linear(draft_s=1e-3, target_s=8e-3, target_per_token_s=3e-4, target_per_kv_token_s=5e-6,"
    " overhead_s=2e-4)"
)
CONTROLLERS = (
    "none",
    "static(3)",
    "off_above(3, 8)",
    "by_batch([[1, 3, 5], [4, 8, 3], [9, 64, 1]])",
    "schedule({1: 5, 4: 4, 8: 2, 32: 1}, gate=1.5, window=2)",
    "ema(warmup=2, interval=2)",
    "goodput()",
    "budget(4)",
    "budget(4, calibrate=none, stale=0, search=global)",
    "all_stopped(svip(h=0.8))",
    "all_stopped(heuristic(initial=4))",
    "batch_mean(svip(h=0.8))",
    "svip(h=0.8)",
    "confidence",
)
PROMPTS, BUDGET = 20, 12


@pytest.fixture(scope="module")
def reference():
    """The pair, and some of the prompts of its trace."""
    whole = traces.load("reference")
    chosen = [k * whole.n_sequences // PROMPTS for k in range(PROMPTS)]
    both = load_pair(str(MODELS / "target"), str(MODELS / "draft"), "cpu", "float32", None)
    return both, select(whole, chosen, max_new_tokens=BUDGET)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return pair_folder(tmp_path_factory.mktemp("serving"))


def requests_of(trace, n=None):
    columns = [trace.sequences[name].to_pylist()[:n] for name in ("sequence", "prompt_tokens")]
    return [Request(*row) for row in zip(*columns, strict=True)]


def simulated(trace, controller, concurrency, first="draft"):
    found = serving.serve(
        trace,
        controller,
        COST,
        concurrency=concurrency,
        engine=engine(concurrency),
        requests=None,
        drawn=False,
        seeds=1,
        first_token=first,
        workers=1,
    )
    return next(iter(found))


@pytest.mark.parametrize("concurrency", [1, 4, 16])
def test_lengths_are_the_simulators_step_for_step(reference, concurrency):
    """In float32; every step of every request, and in which iteration it is taken."""
    both, trace = reference
    if concurrency == 1:
        trace = select(trace, range(4), max_new_tokens=BUDGET)
    bench = bench_of(both, trace, concurrency)
    wanted = [serving.parse(spec) for spec in CONTROLLERS]
    for controller in wanted:
        predicted = simulated(trace, controller, concurrency)
        arm = ServingArm(controller, tuple(requests_of(trace)))
        got = bench.server(arm).serve(arm.requests)
        assert got.outputs == trace.sequences["output_tokens"].to_pylist()
        assert steps_of(got) == predicted_steps(predicted), str(controller)
        rows = predicted.iterations
        assert [row.decoding for row in got.iterations] == rows["decoding"].tolist()
        assert [row.prefilling for row in got.iterations] == rows["prefilling"].tolist()
        assert [row.emitted for row in got.iterations] == rows["emitted"].tolist()


@pytest.mark.parametrize("spec", ["static(3)", "all_stopped(svip(h=0.8))", "budget(4)"])
def test_the_same_where_the_prompts_pass_emits_a_token(reference, spec):
    both, trace = reference
    controller = serving.parse(spec)
    bench = bench_of(both, trace, 4, "prefill")
    arm = ServingArm(controller, tuple(requests_of(trace)))
    got = bench.server(arm).serve(arm.requests)
    assert got.outputs == trace.sequences["output_tokens"].to_pylist()
    assert steps_of(got) == predicted_steps(simulated(trace, controller, 4, "prefill"))


def bench_of(both, trace, concurrency, first="draft"):
    settings = DecoderSettings.of(trace, first)
    return ServingBench(both, settings, concurrency, costs.parse(COST).times(trace))


def steps_of(got):
    return [
        (s.request, row.number, s.start, s.drafted, s.proposed, s.accepted, s.emitted)
        for row in got.iterations
        for s in row.steps
    ]


def predicted_steps(predicted):
    return [tuple(row) for row in np.stack(list(predicted.steps.values()), 1).tolist()]


def test_prices_are_those_of_the_simulation(reference):
    """Which controllers decide by: a longest prompt and T_max are all that they take of a trace."""
    both, trace = reference
    for spec in ("budget(4)", "goodput()"):
        controller = serving.parse(spec)
        arm = ServingArm(controller, tuple(requests_of(trace)))
        mine = bench_of(both, trace, 4).prices(arm)
        there = setting(trace, COST, "draft")
        theirs = plan(controller, there, engine(4), serving.Closed(4)).prices
        for a, b in zip(mine, theirs, strict=True):
            assert all(map(np.array_equal, a, b)) if isinstance(a, tuple) else np.array_equal(a, b)


@pytest.mark.parametrize("family", ["llama-gqa", "qwen3", "gpt-neox"])
@pytest.mark.parametrize("first", ["draft", "prefill"])
def test_outputs_are_those_of_each_request_alone(family, first):
    both = tiny_pair(family, noise=0.06)
    settings = DecoderSettings(max_new_tokens=16, eos_token_ids=(EOS, 1, 2), first_token=first)
    prompts = [prompt.tokens for prompt in tiny_prompts(7, seed=4)] + [[5]]
    alone = TimedDecoder(both.target, both.draft, None, settings, both.vocab_size)
    expected = [alone.decode(prompt, n).output for n, prompt in enumerate(prompts)]
    requests = [Request(n, prompt) for n, prompt in enumerate(prompts)]
    for spec in ("none", "static(3)", "svip(h=1.2)", "batch_mean(svip(h=1.2))"):
        for concurrency in (1, 3, 8):
            controller = serving.parse(spec)
            how = None if spec == "none" else decider(controller, settings)
            got = LiveServer(both, how, settings, concurrency).serve(requests)
            assert got.outputs == expected


def test_a_controller_of_ones_own(reference):
    seen = []

    class Own(serving.Plain):
        max_draft = 4

        def lengths(self, view):
            seen.append(("lengths", view.waiting, len(view.request), view.ahead.max()))
            return 2 + view.request % 2

        def chosen(self, view, drafted):
            seen.append(("chosen", view.waiting))
            return np.maximum(drafted - 1, 0)

        def observe(self, view, drafted, proposed, accepted, ended):
            seen.append(("observe", drafted.tolist(), proposed.tolist()))

        def __str__(self):
            return "own"

    both, trace = reference
    part = select(trace, range(5), max_new_tokens=BUDGET)
    predicted = predicted_steps(simulated(part, Own(), 4))
    seen.clear()
    arm = ServingArm(Own(), tuple(requests_of(part)))
    got = bench_of(both, part, 4).server(arm).serve(arm.requests)
    assert steps_of(got) == predicted
    assert {row[3] for row in seen if row[0] == "lengths"} == {-1}
    assert {row[1] for row in seen if row[0] == "chosen"} == {0}


def test_texts_that_come_and_go_are_read_as_alone():
    both = tiny_pair()
    reader, texts = SlotReader(both.target, 61), [[5, 6, 7, 8], [9, 10], [11, 12, 13]]
    reader.slots.begin(3, 20)
    for _ in texts:
        reader.slots.open()
    reader.read(texts)
    reader.slots.close(0)  # the last one takes its place
    reader.slots.cut([2, 2])
    reader.slots.open()
    reader.read([[30, 31, 32]], first=2)
    got = reader.read([[20, 21, 22], [23], [24, 25]], 3)
    assert reader.lengths == [5, 3, 5]
    for row, text in enumerate([[11, 12, 20, 21, 22], [9, 10, 23], [30, 31, 32, 24, 25]]):
        new = (3, 1, 2)[row]
        expected = Reader(both.target, 61).read(text, new)
        assert torch.allclose(got[row, :new], expected, atol=1e-12)


def test_arms_in_turns_and_what_they_come_to():
    both = tiny_pair()
    settings = DecoderSettings(max_new_tokens=16)
    requests = tuple(Request(n, p.tokens) for n, p in enumerate(tiny_prompts(6, seed=4)))
    specs = ("none", "static(2)", "static(2)")
    arms = [ServingArm(serving.parse(spec), requests) for spec in specs]
    runs = []
    found = run(ServingBench(both, settings, 3), arms, 2, runs)
    assert sorted((one.run, one.round) for one in runs) == [
        (a, r) for a in range(3) for r in (0, 1)
    ]
    assert found[0].outputs == found[1].outputs
    seen = summary(runs)
    assert seen.names == [str(serving.parse(spec)) for spec in specs]
    assert seen.tokens.sum(1).tolist() == [96.0] * 3
    one_round = summary([one for one in runs if one.round == 0])
    whole = [sum(row.seconds for row in one.iterations) for one in sorted(runs) if one.round == 0]
    assert np.allclose(one_round.seconds, whole)
    (drift,) = seen.drifts()
    assert drift.name == "static(2)" and drift.prompts == 6 and drift.lo <= drift.ratio <= drift.hi


def test_shares_and_times_per_token():
    def step(request, start, emitted):
        return served.ServedStep(request, request, start, 2, 2, emitted - 1, emitted)

    def row(number, seconds, prefilling, steps):
        zeros = [0] * 5 + [0.0] * 3
        return served.Iteration(
            number, len(steps), prefilling, *zeros, [], 0.0, 0.5, seconds, steps
        )

    rows = [
        row(0, 4.0, 2, []),
        row(1, 2.0, 0, [step(0, 1, 2), step(1, 1, 3)]),
        row(2, 3.0, 1, [step(1, 4, 2)]),
        row(3, 1.0, 0, [step(2, 1, 1)]),
    ]
    found = summary([served.ServedRun(0, 0, "static(2)", 2, rows)])
    assert found.share_s.tolist() == [[3.0, 4.5, 2.5]]
    assert found.tokens.tolist() == [[2.0, 5.0, 1.0]] and found.steps.tolist() == [[1, 2, 1]]
    assert found.token_s[0, 1] == 1.5 and np.isnan(found.token_s[0, [0, 2]]).all()
    assert found.policy_s.tolist() == [2.0] and found.tokens_s.tolist() == [0.8]


def test_the_command(folder, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(Drift, "agrees", property(lambda drift: True))
    out = tmp_path / "log.parquet"
    command = ["live", *pair(folder), "--prompts", folder / "prompts.jsonl", "--concurrency", 3]
    command += ["--controller", "static(2)", "--controller", "svip(h=1)", "--rounds", 2]
    command += ["--controller", "goodput(4)", "--cost", COST]
    assert simkit([*command, "--max-new-tokens", 12, "--n-prompts", 5, "-o", out]) == 0
    said = capsys.readouterr().out
    assert "control: static(2) twice" in said and "tokens/s" in said
    log = read(out)
    runs = runs_of(log)
    assert [(one.run, one.round) for one in sorted(runs)] == [
        (run, round_) for run in range(5) for round_ in range(2)
    ]
    assert served.table(sorted(runs), {}).num_rows == log.num_rows
    assert pq.read_schema(out).metadata[b"turns"] == b"step"


def test_the_token_of_the_prompt_s_pass_is_of_no_step(folder, monkeypatch, capsys):
    monkeypatch.setattr(Drift, "agrees", property(lambda drift: True))
    command = ["live", *pair(folder), "--prompts", folder / "prompts.jsonl", "--concurrency", 3]
    command += ["--controller", "static(2)", "--rounds", 1, "--first-token", "prefill"]
    assert simkit([*command, "--max-new-tokens", 6, "--n-prompts", 5]) == 0
    (none,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("none"))
    assert none.split()[6] == "1.000"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--concurrency", 2], "give both"),
        (["--controller", "static(2)"], "give both"),
        (["--concurrency", 0, "--controller", "static(2)"], "at least 1"),
        (["--concurrency", 2, "--controller", "none"], "no controller to run"),
        (["--concurrency", 2, "--controller", "prophet()"], "needs the future"),
        (["--concurrency", 2, "--controller", "budget(3)"], "needs times: give a cost"),
        (["--concurrency", 2, "--controller", "pacer"], "reads a head"),
        (["--concurrency", 2, "--controller", "static(2)", "--policy", "svip"], "--policy cannot"),
        (
            ["--concurrency", 2, "--controller", "static(2)", "--batch-size", 4],
            "--batch-size cannot",
        ),
        (["--concurrency", 2, "--controller", "static(2)", "--stop", "any"], "--stop cannot"),
        (
            ["--concurrency", 2, "--controller", "static(2)", "--clock", "processor"],
            "--clock cannot",
        ),
        (["--concurrency", 2, "--controller", "static(2)", "-o", "log.txt"], "a .parquet file"),
        (["--concurrency", 2, "--controller", "static(40)", "--max-new-tokens", 50], "positions"),
    ],
)
def test_what_is_refused(folder, options, complaint, capsys):
    command = ["live", *pair(folder), "--prompts", folder / "prompts.jsonl"]
    assert complaint in refused(capsys, *command, *options)


def test_what_cannot_be_served_is_refused():
    both, settings = tiny_pair(), DecoderSettings()
    with pytest.raises(LiveError, match="greedily"):
        LiveServer(both, None, DecoderSettings(Sampler(1.0)), 2)
    with pytest.raises(LiveError, match="at least 1"):
        LiveServer(both, None, settings, 0)
    with pytest.raises(PolicyError, match="not known while drafting"):
        decider(serving.parse("budget(3, column=overlap)"), settings)
    with pytest.raises(PolicyError, match="must give a whole number"):
        function = serving.controllers.controller_of(lambda view: -1)
        LiveServer(both, decider(function, settings), settings, 2).serve([Request(0, [1, 2])])
    assert isinstance(serving.parse("none"), Nothing)
