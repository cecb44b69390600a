"""Outputs that an engine produced: read from its files, and by the target, as recordings."""

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
from commands import refused, run
from models import EOS, tiny_pair, tiny_prompts
from pair_folders import after_one_shard, pair, pair_folder
from scipy.optimize import minimize_scalar
from scipy.stats import kstest

import simkit
import traces
from analysis.stats.two_samples import Pairing, between
from traces import RecordError, Sampler
from traces.engine_outputs import EngineOutput, read
from traces.memory import from_arrays
from traces.record import agreement
from traces.record.agreement import Agreement, DisagreementError
from traces.record.engine_prompts import prompts_of
from traces.record.pair import Alone
from traces.record.path import target_columns
from traces.record.plan import Plan
from traces.record.shard import record_shard
from traces.record.statistics import LogitRows

SAMPLERS = {"greedy": Sampler(), "t1": Sampler(1.0), "cut": Sampler(0.7, top_k=20, top_p=0.9)}


def plan_of(sampler, **changes):
    settings = dict(seed=3, max_new_tokens=24, max_draft=6, eos_token_ids=(EOS,))
    return Plan(sampler, **{**settings, "coupling": "target", **changes})


def answered(prompts, shard):
    outputs = shard.sequences["output_tokens"]
    return [replace(p, output=y) for p, y in zip(prompts, outputs, strict=True)]


@pytest.mark.parametrize("at_once", [1, 5, 64])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_recordings_own_outputs_give_the_recording(sampler, at_once):
    """Also its verdicts: they are keyed by the tokens before them, whoever drew these."""
    both, prompts, plan = tiny_pair(), tiny_prompts(6), plan_of(SAMPLERS[sampler])
    first = record_shard(both, prompts, 0, plan)
    plan = replace(plan, by_engine=True, at_once=at_once)
    second = record_shard(both, answered(prompts, first), 0, plan)
    assert second.sequences == first.sequences
    for table in ("positions", "branches"):
        ours, theirs = first.tables[table], second.tables[table]
        assert ours.keys() == theirs.keys()
        for name, values in ours.items():
            np.testing.assert_allclose(theirs[name], values, rtol=1e-5, atol=1e-6, err_msg=name)
    assert second.agreement.other == 0
    assert second.agreement.tokens == sum(first.sequences["n_output"])


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_target_alone_reads_them_text_by_text(sampler):
    both, prompts, plan = tiny_pair(), tiny_prompts(6), plan_of(SAMPLERS[sampler])
    target = Alone(both.target, None, both.vocab_size, (EOS,))
    first = record_shard(target, prompts, 4, plan)
    second = record_shard(target, answered(prompts, first), 4, replace(plan, by_engine=True))
    assert second.sequences == first.sequences
    for name, values in first.tables["target"].items():
        np.testing.assert_allclose(second.tables["target"][name], values, rtol=1e-5, atol=1e-6)


def test_an_output_that_the_engine_stopped_has_no_known_end():
    both, prompts = tiny_pair(), tiny_prompts(2)
    given = [replace(p, output=[5, 7, 9]) for p in prompts]
    plan = plan_of(Sampler(1.0), by_engine=True)
    assert record_shard(both, given, 0, plan).sequences["finish_reason"] == ["unknown"] * 2


def test_verdicts_have_the_law_of_a_recording():
    """Of an engine's outputs, drawn with numbers of its own: tokens a step, over 20,000 steps."""
    both, prompts, plan = tiny_pair(noise=0.8), tiny_prompts(700), plan_of(Sampler(1.0))
    plan = replace(plan, max_new_tokens=48)
    ours = record_shard(both, prompts, 0, plan)
    engine = record_shard(both, prompts, 0, replace(plan, seed=11, max_draft=1))
    theirs = record_shard(both, answered(prompts, engine), 0, replace(plan, by_engine=True))
    sums = []
    for shard in (ours, theirs):
        settings = dict(max_draft=6, max_new_tokens=48, sampler=plan.sampler, eos_token_ids=(EOS,))
        trace = from_arrays(shard.sequences, shard.positions, shard.branches, **settings)
        steps = simkit.replay(trace, ["fixed(3)"], by="step").frame.group_by("sequence")
        tokens = steps.agg(n=pl.len(), a=pl.col("accepted").sum()).sort("sequence")
        sums.append(tokens.select("n", "a").to_numpy().astype(float))
    assert min(len(s) for s in sums) == 700 and sum(s[:, 0].sum() for s in sums) > 20_000

    def more(ours, theirs):
        return (ours[..., 1] / ours[..., 0] - theirs[..., 1] / theirs[..., 0])[..., None]

    (accepted,) = between(*sums, more, Pairing(paired=False))
    low, high = accepted.lo, accepted.hi
    assert low <= 0 <= high and high - low < 0.1


def rows(n, temperature, seed, spread=2.0, top_p=1.0):
    logits = torch.randn(n, 50, generator=torch.Generator().manual_seed(seed)) * spread
    return LogitRows(logits, temperature, 0, top_p)


def seen(stated, drawn, n, seed, top_p=1.0):
    """The agreement of tokens that were drawn at one temperature with another that is stated."""
    randomness = np.random.default_rng(seed)
    draw = rows(n, drawn, seed).processed.double().numpy()
    tokens = (draw.cumsum(1) < randomness.random((n, 1)) * draw.sum(1, keepdims=True)).sum(1)
    found = Agreement()
    found.see(rows(n, stated, seed, top_p=top_p), torch.from_numpy(tokens), randomness)
    return found


def test_the_right_sampler_has_uniform_chances():
    found = [seen(0.7, 0.7, 500, seed) for seed in range(200)]
    assert kstest([one.p_of_score for one in found], "uniform").pvalue > 0.01
    assert kstest([one.p_of_transform for one in found], "uniform").pvalue > 0.01
    assert sum(one.chance < 1e-3 for one in found) <= 2


def test_looks_after_every_shard_refuse_no_right_sampler():
    """Many looks find what is unlikely in one: only the last one is taken at its face."""
    for seed in range(40):
        found = Agreement()
        for shard in range(60):
            found += seen(0.7, 0.7, 20, 1000 * seed + shard)
            agreement.check(found, Sampler(0.7), whole=False)


def test_a_bad_beginning_of_greedy_outputs_is_waited_for():
    """Two of sixty are 3%, and may be 1% of all; thirty of sixty are another model's."""
    agreement.check(Agreement(tokens=60, other=2, margin=0.1), Sampler(), whole=False)
    agreement.check(Agreement(tokens=200, other=2, margin=0.1), Sampler())
    for tokens, other, whole in ((60, 30, False), (60, 2, True)):
        with pytest.raises(DisagreementError, match="are not the target's likeliest"):
            agreement.check(Agreement(tokens=tokens, other=other), Sampler(), whole=whole)


@pytest.mark.parametrize("drawn", [0.6, 0.8])
def test_a_temperature_that_is_wrong_by_a_tenth_is_found(drawn):
    found = [seen(0.7, drawn, 2000, seed) for seed in range(100)]
    found_out = [one for one in found if one.chance < 1e-3]
    assert len(found_out) >= 95
    for one in found_out:
        with pytest.raises(DisagreementError, match="were not drawn at temperature 0.7"):
            agreement.check(one, Sampler(0.7))
    assert abs(np.mean([one.temperature(Sampler(0.7)) for one in found]) - drawn) < 0.03


@pytest.mark.parametrize(("stated", "drawn"), [(1.0, 0.4), (0.5, 1.4), (1.0, 1.0), (0.7, 2.0)])
def test_the_temperature_that_would_fit_is_the_likeliest(stated, drawn):
    """Against a search over likelihoods of the drawn tokens, which knows all of p."""
    found, randomness = seen(stated, drawn, 2000, 1), np.random.default_rng(1)
    draw = rows(2000, drawn, 1).processed.double().numpy()
    tokens = (draw.cumsum(1) < randomness.random((2000, 1)) * draw.sum(1, keepdims=True)).sum(1)
    logits = rows(2000, stated, 1).given.double()

    def unlikely(temperature):
        logs = (logits / temperature).log_softmax(-1)
        return -float(logs[torch.arange(2000), torch.from_numpy(tokens)].sum())

    best = minimize_scalar(unlikely, bounds=(0.1, 5), method="bounded").x
    assert found.temperature(Sampler(stated)) == pytest.approx(best, rel=0.01)
    assert abs(best / drawn - 1) < 0.06


@pytest.mark.parametrize(
    ("stated", "drawn", "said"), [(2.0, 0.1, "0.50 or less"), (0.1, 2.0, "0.40 or more")]
)
def test_temperatures_far_off_are_bounded(stated, drawn, said):
    found = seen(stated, drawn, 500, 1)
    assert found.instead(Sampler(stated)) == f"temperature {said} would fit better"
    with pytest.raises(DisagreementError, match=f"temperature {said} would fit better"):
        agreement.check(found, Sampler(stated))


def test_a_nucleus_that_was_not_said_is_found():
    """And one that was not used: then some tokens cannot come out of it."""
    one = seen(1.0, 1.0, 2000, 0, top_p=0.8)
    assert one.other / one.tokens > 0.1
    with pytest.raises(DisagreementError, match="cannot come out of the target at temperature 1"):
        agreement.check(one, Sampler(1.0, top_p=0.8))
    cut = rows(2000, 1.0, 5, top_p=0.8).processed.numpy()
    tokens = np.array(
        [np.random.default_rng(k).choice(50, p=row / row.sum()) for k, row in enumerate(cut)]
    )
    found = Agreement()
    found.see(rows(2000, 1.0, 5), torch.from_numpy(tokens), np.random.default_rng(0))
    with pytest.raises(DisagreementError, match="were not drawn at temperature 1"):
        agreement.check(found, Sampler(1.0))


def test_a_tie_is_the_likeliest_token():
    logits = torch.tensor([[1.0, 3.0, 3.0 - 1e-7, 0.0]] * 3)
    p, output = LogitRows(logits, 0.0), torch.tensor([1, 2, 0])
    found = Agreement()
    found.see(p, output, np.random.default_rng(0))
    assert (found.other, found.ties) == (2, 1) and found.margin == pytest.approx(2.0)
    assert agreement.held_to(p, output).processed.argmax(1).tolist() == [1, 2, 0]
    kept = target_columns(p, output)
    likeliest = LogitRows(logits, 0.0).prob.amax(1)
    assert torch.equal(kept["target_top1_prob"], likeliest)
    assert (kept["target_token_prob_raw"] < likeliest).tolist() == [False, False, True]
    said = agreement.remark(found, Sampler())
    assert said.startswith(
        "2 of 3 output tokens (66.67%) are not the target's likeliest, 1 of them"
    )


def test_what_an_engines_rounding_may_do_is_said_and_not_refused():
    """A temperature that is off by 3% in a long log; one odd token, or few of them so far."""
    uniform, tilts = np.full(1000, 1000), np.array(agreement._TILTS)
    sums = dict(transform=uniform, tilted=1e6 * np.stack([tilts - 1, np.ones_like(tilts)]))
    near, far = (
        Agreement(10**6, score=-off * 1e6, information=1e6, **sums) for off in (0.03, 0.07)
    )
    assert near.chance < 1e-3
    agreement.check(near, Sampler(0.7))
    said = agreement.remark(near, Sampler(0.7))
    assert "hardly fits" in said and "temperature 0.72 would fit better" in said
    few = Agreement(10, other=5)
    agreement.check(few, Sampler(), whole=False)
    agreement.check(Agreement(10, other=1), Sampler())
    for found, whole in ((few, True), (Agreement(60, other=30), False)):
        with pytest.raises(DisagreementError, match="are not the target's likeliest"):
            agreement.check(found, Sampler(), whole)
    with pytest.raises(DisagreementError, match="temperature 0.75 would fit better"):
        agreement.check(far, Sampler(0.7))


def test_a_token_that_the_sampler_leaves_out_is_taken_in():
    p, whole = rows(3, 1.0, 0, top_p=0.5), rows(3, 1.0, 0)
    before = p.processed.clone()
    output = before.argmax(1)
    output[1] = whole.prob[1].argmin()
    found = agreement.held_to(p, output).processed
    assert torch.equal(found[[0, 2]], before[[0, 2]]) and float(found[1].sum()) == pytest.approx(1)
    kept = (before[1] > 0).nonzero()[:, 0].tolist() + [int(output[1])]
    assert torch.allclose(found[1, kept], whole.prob[1, kept] / whole.prob[1, kept].sum())


def test_one_text_in_ten_may_be_read_otherwise():
    class Words:
        def decode(self, tokens, **given):
            return " ".join(f"w{k}" for k in tokens)

    fits = [EngineOutput("a", None, None, [1], [2, 3], "w2") for _ in range(10)]
    other = EngineOutput("b", None, None, [1], [2, 3], "w9")
    assert len(prompts_of([*fits, other], Words(), 40, ())) == 11
    with pytest.raises(RecordError, match="b: the target's tokenizer .* in 2 of 12 outputs"):
        prompts_of([*fits, other, other], Words(), 40, ())


FORMS = {
    "record": {"id": 7, "prompt_tokens": [1, 2], "output_tokens": [3, 4], "task": "qa"},
    "vllm": {"request_id": "r", "prompt_token_ids": [1, 2], "outputs": [{"token_ids": [3, 4]}]},
    "vllm chat": {"prompt_token_ids": [1, 2], "choices": [{"token_ids": [3, 4], "index": 0}]},
    "vllm completion": {"choices": [{"prompt_token_ids": [1, 2], "token_ids": [3, 4]}]},
    "sglang": {"input_ids": [1, 2], "output_ids": [3, 4], "meta_info": {"id": "x"}},
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_engines(tmp_path, form):
    file = tmp_path / "outputs.jsonl"
    file.write_text(json.dumps(FORMS[form]))
    (one,) = read(file, RecordError)
    assert (one.prompt, one.output) == ([1, 2], [3, 4])


def test_several_outputs_of_a_prompt_are_several_records(tmp_path):
    file = tmp_path / "outputs.jsonl"
    outputs = [{"token_ids": [k]} for k in (3, 4)]
    file.write_text(json.dumps({"id": "a", "prompt_token_ids": [1], "outputs": outputs}))
    assert [(one.id, one.output) for one in read(file, RecordError)] == [("a/0", [3]), ("a/1", [4])]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return pair_folder(tmp_path_factory.mktemp("outputs"))


def written(folder, change=lambda row: row, name="outputs.jsonl"):
    """The outputs of the folder's trace as an engine's file."""
    lines = []
    for row in traces.load(folder / "trace").sequences.to_pylist():
        mine = {"id": row["id"], "prompt_token_ids": row["prompt_tokens"]}
        lines.append(json.dumps(change({**mine, "output_token_ids": row["output_tokens"]})))
    (folder / name).write_text("\n".join(lines))
    return folder / name


POLICIES = ["fixed(3)", "svip(h=1.0)", "confidence(threshold=0.5)", "heuristic()", "oracle()"]


def test_a_recording_of_its_outputs_replays_alike(folder, capsys):
    file = written(folder)
    out = folder / "again"
    command = [
        "record",
        *pair(folder),
        "--outputs",
        file,
        "--max-new-tokens",
        24,
        "--max-draft",
        24,
    ]
    assert run(capsys, *command, "--out", out)[0] == 0
    assert run(capsys, "validate", out)[0] == 0
    said = run(capsys, "info", out)[1]
    assert "all 240 output tokens are the target's likeliest" in " ".join(said.split())
    assert run(capsys, "thin", out, "--out", folder / "copy")[0] == 0
    assert traces.load(folder / "copy").manifest.outputs == traces.load(out).manifest.outputs
    first, second = (
        simkit.replay(traces.load(trace), POLICIES, by="step").frame
        for trace in (folder / "trace", out)
    )
    assert first.equals(second)


def test_a_stopped_recording_of_outputs_keeps_its_limit(folder, capsys, monkeypatch, tmp_path):
    """That is not the longest output's, if it was given."""
    file, part = written(folder), tmp_path / "part"
    outputs = map(json.loads, file.read_text().splitlines())
    longest = max(len(row["output_token_ids"]) for row in outputs)
    command = ["record", "--target", folder / "target", "--outputs", file, "--batch-size", 4]
    with after_one_shard(monkeypatch):
        limited = ["--max-new-tokens", longest + 2]
        assert run(capsys, *command, *limited, "--out", part)[0] == 130
    assert run(capsys, "record", "--out", part, "--resume")[0] == 0
    assert traces.load(part).max_new_tokens == longest + 2


@pytest.mark.parametrize("lost", [False, True])
def test_a_stopped_recording_of_outputs_goes_on(folder, capsys, monkeypatch, tmp_path, lost):
    """With what was seen of the shards that are there, unless that was lost."""
    file, whole, part = written(folder), tmp_path / "whole", tmp_path / "part"
    command = ["record", "--target", folder / "target", "--outputs", file, "--batch-size", 4]
    assert run(capsys, *command, "--out", whole)[0] == 0
    with after_one_shard(monkeypatch):
        assert run(capsys, *command, "--out", part)[0] == 130
    lines = file.read_text()
    file.write_text(lines + "\n")
    again = ["record", "--out", part, "--resume"]
    assert "begun with another file of outputs" in refused(capsys, *again)
    file.write_text(lines)
    (sums,) = part.glob(".agreement*")
    if lost:
        sums.unlink()
    assert run(capsys, *again)[0] == 0
    assert not sums.exists()
    said, all_of_it = (traces.load(trace).manifest.outputs.remark for trace in (part, whole))
    some = f"of the last {len(lines.splitlines()) - 4:,} of "
    assert said.startswith(some) and "all " in said if lost else said == all_of_it
    ours, theirs = (traces.load(trace) for trace in (whole, part))
    assert ours.sequences.equals(theirs.sequences)
    for name in ("target_entropy", "target_token_prob_raw"):
        assert np.array_equal(ours.column("target", name), theirs.column("target", name))


BAD = {
    "beyond": (lambda row: {**row, "output_token_ids": [1, 41]}, "token id 41 is outside"),
    "eos inside": (lambda row: {**row, "output_token_ids": [1, 0, 2]}, "an EOS token, but not the"),
    "empty": (lambda row: {**row, "output_token_ids": []}, "output_token_ids is empty"),
    "no prompt": (lambda row: {**row, "prompt_token_ids": []}, "the prompt has no tokens"),
    "text alone": (lambda row: {"prompt": "a", "text": "b"}, "output_token_ids is missing"),
    "two names": (lambda row: {**row, "output_ids": [1]}, "are the same: give one of them"),
    "other text": (lambda row: {**row, "text": "w1 w1 w1 else"}, "reads the output otherwise"),
    "other model": (
        lambda row: {**row, "output_token_ids": [t % 38 + 1 for t in row["output_token_ids"]]},
        "are not the target's likeliest: another was up to",
    ),
    "one id twice": (
        lambda row: {**row, "id": "a"},
        'bad.jsonl: line 2: id "a" is that of line 1 already',
    ),
    "no choice": (lambda row: {**row, "choices": []}, "choices is empty"),
    "no objects": (lambda row: {**row, "outputs": [3]}, "outputs must be a list of objects"),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
def test_bad_outputs_are_refused_and_nothing_is_written(folder, capsys, tmp_path, what):
    change, message = BAD[what]
    file, out = written(folder, change, "bad.jsonl"), tmp_path / "out"
    line = refused(capsys, "record", *pair(folder), "--outputs", file, "--out", out)
    assert message in line and not out.exists()


def test_outputs_that_go_wrong_late_leave_no_shard(folder, capsys, tmp_path):
    """Too few to tell in each shard, too many in all."""
    number = iter(range(12))

    def change(row):
        output = row["output_token_ids"]
        return (
            {**row, "output_token_ids": [*output[:-1], output[-1] % 38 + 1]}
            if next(number) > 5
            else row
        )

    file, out = written(folder, change, "late.jsonl"), tmp_path / "out"
    command = ["record", "--target", folder / "target", "--outputs", file, "--batch-size", 1]
    assert "are not the target's likeliest" in refused(capsys, *command, "--out", out)
    assert not out.exists()


def test_what_does_not_go_with_outputs(folder, capsys, tmp_path):
    file = written(folder)
    command = ["record", *pair(folder), "--outputs", file, "--out", tmp_path / "out"]
    prompts = ["--prompts", folder / "prompts.jsonl"]
    assert "leave out --prompts" in refused(capsys, *command, *prompts)
    assert "more than --max-new-tokens 5" in refused(capsys, *command, "--max-new-tokens", 5)
    sampled = ["--coupling", "draft", "--temperature", 1]
    assert "--coupling draft cannot be used with --outputs" in refused(capsys, *command, *sampled)
    for chat in (["--system", "w1"], ["--chat-template-kwargs", '{"a": 1}']):
        assert "--outputs has its own prompts" in refused(capsys, *command, *chat)


def test_drafters_are_attached_to_sampled_outputs_of_an_engine(folder, capsys, tmp_path):
    """A target would draw others with its own keys: that is no sign of another target."""
    record = ["record", "--target", folder / "target", "--prompts", folder / "prompts.jsonl"]
    drawn = ["--temperature", 1, "--max-new-tokens", 24]
    assert run(capsys, *record, *drawn, "--seed", 5, "--out", tmp_path / "engine")[0] == 0
    lines = [
        json.dumps({"prompt_tokens": row["prompt_tokens"], "output_tokens": row["output_tokens"]})
        for row in traces.load(tmp_path / "engine").sequences.to_pylist()
    ]
    (tmp_path / "outputs.jsonl").write_text("\n".join(lines))
    out, target = tmp_path / "read", ["--target", folder / "target"]
    read = ["record", *target, "--outputs", tmp_path / "outputs.jsonl", *drawn, "--out", out]
    assert run(capsys, *read)[0] == 0
    model = f'model("{folder / "draft"}")'
    attach = ["attach", out, *target, "--drafter", model, "--max-draft", 8]
    status, _, said = run(capsys, *attach, "--drafter", "prompt_lookup()")
    assert status == 0 and "otherwise than" not in said, said
    assert run(capsys, "validate", out)[0] == 0
    found = simkit.replay(traces.load(out, "model"), ["fixed(3)"])
    assert found.frame["accepted"].item() > 0.3 * found.frame["drafted"].item()


@pytest.mark.parametrize(
    "change", [{"tokens": "1"}, {"score": float("nan")}, {"transform": [1]}, {"tilted": [[1.0]]}]
)
def test_sums_that_are_none_are_forgotten(tmp_path, change):
    agreement.keep(tmp_path, seen(0.7, 0.7, 50, 0), {0, 1})
    (file,) = tmp_path.iterdir()
    assert agreement.kept(tmp_path).found.tokens == 50
    known = json.loads(file.read_text())
    file.write_text(json.dumps({**known, "found": {**known["found"], **change}}))
    assert agreement.kept(tmp_path).of({0, 1}) == agreement.Kept()
