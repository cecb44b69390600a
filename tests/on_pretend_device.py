"""Run by test_pretend_device.py in a process of its own: what a GPU would do, on a pretended one.

Every command that runs models gives what it gives on the CPU, to the bit.
"""

from dataclasses import replace

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
import torch
from commands import run
from models import EOS, tiny_pair, tiny_prompts
from pair_folders import pair_folder
from pretend_device import NAME, Pretend, install

from traces import Sampler
from traces.record import shard
from traces.record.pair import Alone
from traces.record.plan import Plan
from traces.record.shard import record_shard

DEVICE = install()


def test_it_is_no_cpu():
    there = torch.arange(12.0).reshape(3, 4).to(DEVICE)
    assert isinstance(there, Pretend) and (there + there).device.type == NAME
    with pytest.raises(RuntimeError, match="on the same device"):
        there + torch.ones(3, 4)
    with pytest.raises((RuntimeError, TypeError), match="numpy"):
        there.numpy()
    assert (there + 1).cpu().numpy().tolist()[0] == [1, 2, 3, 4]
    assert torch.nn.Linear(4, 2).to(DEVICE)(there).device.type == NAME


def both(sampler):
    plan = Plan(sampler, seed=3, max_new_tokens=8, max_draft=4, eos_token_ids=(EOS,))
    pair = tiny_pair()
    there = tiny_pair()
    moved = replace(there, target=there.target.to(DEVICE), draft=there.draft.to(DEVICE))
    return plan, pair, moved


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_recordings_are_those_of_the_cpu(temperature):
    plan, pair, moved = both(Sampler(temperature))
    plan = replace(plan, branch_target=True, hidden=True, mix=0.5)
    here, there = (record_shard(p, tiny_prompts(4), 0, plan) for p in (pair, moved))
    for mine, other in (
        *((here.tables[k], there.tables[k]) for k in here.tables),
        (here.hidden, there.hidden),
        (here.mixed, there.mixed),
    ):
        assert all(np.array_equal(mine[name], other[name]) for name in mine)


def test_a_mix_of_devices_is_found(monkeypatch):
    """Planted: keys that stay on the host, and rows that are not brought there."""
    plan, _, moved = both(Sampler(1.0))
    first = shard.record_path.__globals__["draws"].first_key
    with monkeypatch.context() as planted:
        draws = shard.record_path.__globals__["draws"]
        planted.setattr(draws, "first_key", lambda seed, number: first(seed, number.cpu()))
        with pytest.raises(RuntimeError, match="on the same device|numpy"):
            record_shard(moved, tiny_prompts(2), 0, plan)
    monkeypatch.setattr(shard, "_numpy", lambda value: value.numpy())
    with pytest.raises((RuntimeError, TypeError), match="numpy"):
        record_shard(moved, tiny_prompts(2), 0, plan)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_engines_outputs_are_read_there(temperature):
    plan, pair, moved = both(Sampler(temperature))
    plan = replace(plan, coupling="target")
    outputs = record_shard(pair, tiny_prompts(4), 0, plan).sequences["output_tokens"]
    given = [replace(p, output=y) for p, y in zip(tiny_prompts(4), outputs, strict=True)]
    plan = replace(plan, by_engine=True)
    for kind in (lambda p: p, lambda p: Alone(p.target, None, p.vocab_size, (EOS,))):
        here, there = (record_shard(kind(p), given, 0, plan) for p in (pair, moved))
        for k, mine in here.tables.items():
            assert all(np.array_equal(mine[name], there.tables[k][name]) for name in mine)
        assert here.agreement.tokens == there.agreement.tokens


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return pair_folder(tmp_path_factory.mktemp("pretend"))


def written(trace):
    """What a trace's files hold, but for times."""
    return {
        str(file.relative_to(trace)): pq.read_table(file)
        for file in sorted(trace.rglob("*.parquet"))
        if file.name not in ("latency.parquet", "live.parquet")
    }


def models(folder, target="target", draft="draft"):
    return ["--target", folder / target, *(["--draft", folder / draft] if draft else [])]


def test_record_attach_train_and_score(folder, tmp_path, capsys):
    """From prompts to scores, by the commands of a GPU box."""
    prompts = ["--prompts", folder / "prompts.jsonl", "--max-new-tokens", 10, "--max-draft", 4]
    made = {}
    for device in ("cpu", NAME):
        trace, there = tmp_path / device, ["--device", device]
        hidden = ["--hidden", "--mix", 0.5, "--out", trace]
        status, _, said = run(capsys, "record", *models(folder), *prompts, *there, *hidden)
        assert status == 0, said
        attach = ["attach", trace, "--target", folder / "target", *there, "--drafter"]
        other = f'model("{folder / "other"}")'
        status, _, said = run(capsys, *attach, other)
        assert status == 0, said
        tree = ["--tree", "eagle2(top_k=2, depth=2)", "--name", "tree"]
        status, _, said = run(capsys, *attach, other, *tree)
        assert status == 0, said
        head = tmp_path / f"{device}.safetensors"
        small = ["--epochs", 1, "-o", head]
        status, _, said = run(capsys, "train", "acceptance", trace, *small, *there)
        assert status == 0, said
        assert run(capsys, "score", trace, "--head", head, *there)[0] == 0
        made[device] = written(trace)
    assert made["cpu"].keys() == made[NAME].keys()
    for name in made["cpu"]:
        if not name.startswith("scores/"):  # a head's training may round otherwise
            mine, other = (pl.DataFrame(made[device][name]) for device in ("cpu", NAME))
            assert mine.equals(other), name  # NaN equals NaN there


LIVE = {
    "chains": ["--policy", "fixed(3)", "--policy", "svip(h=1.0)"],
    "batch": ["--policy", "fixed(3)", "--batch-size", 2],
    "trees": ["--policy", "eagle2(top_k=2, depth=2)"],
    "server": ["--controller", "static(2)", "--concurrency", 2],
}


@pytest.mark.parametrize("what", LIVE)
def test_live_steps_are_those_of_the_cpu(folder, tmp_path, capsys, what):
    given = ["--prompts", folder / "prompts.jsonl", "--max-new-tokens", 10, "--n-prompts", 3]
    steps = {}
    for device in ("cpu", NAME):
        log = tmp_path / f"{device}.parquet"
        command = ["live", *models(folder), *given, "--rounds", 1, "--device", device]
        status, _, said = run(capsys, *command, *LIVE[what], "--out", log)
        assert status == 0 or "not conclusive" in said, said  # of times: three prompts are few
        table = pq.read_table(log)
        counts = [
            n for n in ("drafted", "accepted", "emitted", "tokens") if n in table.column_names
        ]
        steps[device] = table.select(counts)
    assert steps["cpu"].equals(steps[NAME]), what


@pytest.mark.parametrize("command", ["latency", "calibrate"])
def test_passes_are_timed(folder, tmp_path, capsys, command):
    out = tmp_path / "times.parquet"
    where = ["--device", NAME, "--out", out]
    if command == "latency":
        given = ["latency", *models(folder), "--repeats", 1, "--context", 16, "--max-draft", 2]
    else:
        given = ["calibrate", folder / "trace", *models(folder), "--n-prompts", 2, "--rounds", 1]
        given += ["--max-new-tokens", 6, "--policy", "svip(h=1.0)"]
    status, _, said = run(capsys, *given, *where)
    assert status == 0, said
    assert {"target", "draft"} <= set(pq.read_table(out)["component"].to_pylist())
