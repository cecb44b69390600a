"""The larger reference pair on a GPU, and what is measured on it: tiny, and on a CPU."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch

from benchmarks.gpu import corpus_pack, delivery, fidelity, recorder_cost, reference_large
from simkit.fidelity import logs
from simkit.policies import Fixed
from simkit.statistics.enough import FOR_AGREEMENT
from traces.recipes.reference import corpus
from traces.recipes.reference.pair import PROMPTS
from traces.trace import load
from traces.validate import validate

TEXT = {"code": "def f(x):\n    return x + 1\n", "prose": "A list holds values. ", "german": "Öl. "}


@pytest.fixture(scope="module")
def pack(tmp_path_factory):
    """A tiny corpus, packed; its arithmetic is not in it."""
    work = tmp_path_factory.mktemp("corpus")
    documents = [
        {"task": task, "held_out": held, "text": text * 60, "source": "s", "document": "d"}
        for task, text in TEXT.items()
        for held in (False, True)
    ] + [{"task": "math", "held_out": False, "text": "not packed"}]
    lines = [json.dumps(document, ensure_ascii=False) for document in documents]
    (work / "documents.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    file = work / "pack" / "corpus.xz"
    assert corpus_pack.build(work, file) == file.stat().st_size
    return file


@pytest.fixture(scope="module")
def large(pack, tmp_path_factory):
    """All that the first command makes, in one call that stops early and one that goes on."""
    root = tmp_path_factory.mktemp("large")
    work, outs = root / "work", [root / "outs" / name for name in "ab"]
    options = ["--pack", str(pack), "--work", str(work), "--device", "cpu", "--tiny"]
    reference_large.main([*options, "--out", str(outs[0]), "--budget-s", "0"])
    reference_large.main([*options, "--out", str(outs[1]), "--hidden"])
    return root


def manifest(folder):
    return json.loads((folder / "manifest.json").read_text())


def test_a_pack_gives_the_tokens_of_the_corpus(pack, tmp_path):
    from tokenizers import Tokenizer

    counts = corpus_pack.expand(pack, tmp_path / "tokens.npz", 50)
    arrays = np.load(tmp_path / "tokens.npz")
    assert counts == {k: len(v) for k, v in arrays.items() if not k.endswith("starts")}
    tokenizer = Tokenizer.from_file(str(corpus_pack.MODELS / "target" / "tokenizer.json"))
    assert tokenizer.decode(arrays["german_held"].tolist()) == TEXT["german"] * 60
    problems = [d for d in corpus.math_documents(50) if not d["held_out"]]
    assert len(arrays["math_train_starts"]) == len(problems)


def test_a_call_without_time_leaves_everything_to_the_next(large):
    first, second = (manifest(large / "outs" / name) for name in "ab")
    stages = ["tokens", "target", "draft", "evaluation", "large", "large-sampled"]
    assert first["left_to_do"] == stages and first["seconds"] == {}
    assert second["left_to_do"] == second["left_to_deliver"] == []
    assert list(second["seconds"]) == [*stages, "large-hidden"]


def test_what_came_back_is_what_was_made(large, tmp_path):
    reference_large.main(["--unpack", str(large / "outs"), "--work", str(tmp_path)])
    names = {folder.name for folder in tmp_path.iterdir()}
    assert names == {"pair-large", "large", "large-sampled", "large-hidden"}
    for name in names - {"pair-large"}:
        trace = load(tmp_path / name)
        assert validate(tmp_path / name) == []
        assert trace.n_sequences == 8 and trace.max_draft == 40
        assert set(trace.sequences["task"].to_pylist()) == {"code", "prose", "math", "german"}
    made = large / "work" / "pair-large" / "target" / "model.safetensors"
    back = tmp_path / "pair-large" / "target" / "model.safetensors"
    assert back.read_bytes() == made.read_bytes()
    trained = json.loads((tmp_path / "pair-large" / "training-draft.json").read_text())
    # 6e-3 at width 96: at width 16 it is six times as large
    assert trained["peak_learning_rate"] == pytest.approx(6e-3 * 96 / 16)
    found = json.loads((tmp_path / "pair-large" / "evaluation.json").read_text())
    assert found["held_out"].keys() == found["trained_on"].keys() == {*TEXT, "math"}


def test_training_that_runs_out_of_time_goes_on(large, tmp_path, monkeypatch):
    """Stopped at its deadline after every step, the target is what it is without stops."""
    work = tmp_path / "work"
    shutil.copytree(large / "work" / "pack", work / "pack")
    budget = delivery.Budget(-1)
    call = reference_large.Call(reference_large.TINY, work, tmp_path / "o", "cpu", budget, {})
    for _ in range(2):
        with pytest.raises(TimeoutError, match="target: stopped after"):
            reference_large.train_one(call, "target")
    reference_large.train_one(call, "target")
    file = "pair-large/target/model.safetensors"
    assert (work / file).read_bytes() == (large / "work" / file).read_bytes()


def test_a_recording_that_runs_out_of_time_goes_on(large, tmp_path):
    work = tmp_path / "work"
    shutil.copytree(large / "work" / "pair-large", work / "pair-large")
    budget = delivery.Budget(-1)
    call = reference_large.Call(reference_large.TINY, work, tmp_path / "o", "cpu", budget, {})
    plan = reference_large.Plan()
    for _ in range(2):
        with pytest.raises(TimeoutError):
            reference_large.record_trace(call, "large", plan)
    reference_large.record_trace(call, "large", plan)
    for file in ("sequences.parquet", "branches/00002.parquet"):
        assert (work / "large" / file).read_bytes() == (large / "work/large" / file).read_bytes()


def test_the_full_pair_fits_into_what_one_call_may_bring_back():
    sizes = {name: shape.parameters for name, shape in reference_large.FULL.shapes.items()}
    assert sizes == {"target": 28_717_440, "draft": 1_745_856}
    n_bytes = 2 * sum(sizes.values()) + 1_000_000  # tokenizers and JSON
    assert n_bytes < delivery.MAX_BYTES
    assert -(-n_bytes // delivery.MAX_FILE_BYTES) + 1 <= delivery.MAX_FILES
    prompts = [json.loads(line)["task"] for line in PROMPTS.read_text().splitlines()]
    assert min(prompts.count(task) for task in set(prompts)) >= reference_large.FULL.per_task >= 64


def test_folders_are_delivered_in_turns_and_put_together_again(tmp_path, monkeypatch):
    monkeypatch.setattr(delivery, "MAX_FILE_BYTES", 12_000)
    monkeypatch.setattr(delivery, "MAX_BYTES", 60_000)
    rng = np.random.default_rng(0)
    for name in ("one", "two", "three"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "data").write_bytes(rng.bytes(25_000))
    folders, left = [tmp_path / name for name in ("one", "two", "three")], []
    for n in range(3):
        out = tmp_path / "outs" / str(n)
        out.mkdir(parents=True)
        left.append(delivery.deliver(folders, out, tmp_path / "marks", 1))
        sizes = [file.stat().st_size for file in out.iterdir()]
        assert len(sizes) < 8 and sum(sizes) <= 60_000 and max(sizes) <= 12_000
    assert left == [["two", "three"], ["three"], []] or left == [["three"], [], []]
    assert set(delivery.unpack(tmp_path / "outs", tmp_path / "back")) == {"one", "two", "three"}
    for folder in folders:
        back = tmp_path / "back" / folder.name / "data"
        assert back.read_bytes() == (folder / "data").read_bytes()


@pytest.fixture(scope="module")
def live(large):
    out = large / "live"
    work = large / "work"
    command = ["--trace", str(work / "large"), "--pair", str(work / "pair-large")]
    fidelity.main([*command, "--device", "cpu", "--tiny", "--out", str(out)])
    return out, command


def test_at_least_eight_policies_run_live(live):
    out, _ = live
    found = manifest(out)
    assert len(found["policies"]) >= 8 and found["rounds"] == 1
    log = pq.read_table(out / "live.parquet")
    assert {b"sampler", b"max_new_tokens", b"dtype"} <= log.schema.metadata.keys()
    assert set(log["policy"].to_pylist()) >= {"baseline", *found["policies"]}


def test_predictions_are_held_against_what_was_measured(live, tmp_path):
    out, command = live
    status = fidelity.main(["--compare", str(out), *command, "--out", str(tmp_path)])
    assert status in (0, 1)  # whether equal arms agree depends on the machine
    rows = pq.read_table(tmp_path / "fidelity.parquet").to_pylist()
    assert [row["policy"] for row in rows] == manifest(out)["policies"]
    assert all(row["differing"] == 0 and row["sequences"] == 3 for row in rows)
    assert all(row["measured"] > 0 and row["predicted"] > 0 for row in rows)


def test_a_live_run_without_time_keeps_whole_prompts(live, large):
    """Stopped behind its first prompts, it still can be compared."""
    out, command = large / "short", live[1]
    trace = load(command[1])
    jobs = fidelity.run.jobs_of(trace, fidelity.run.LivePlan((Fixed(2),), (0, 2), (1,), 1))
    stop = fidelity.stopper(jobs, delivery.Budget(-1))
    for _ in range(len(jobs[0].arms) - 1):
        stop()
    with pytest.raises(TimeoutError):
        stop()
    fidelity.main([*command, "--device", "cpu", "--tiny", "--budget-s", "0", "--out", str(out)])
    assert len(set(pq.read_table(out / "live.parquet")["sequence"].to_pylist())) == 1


def test_as_many_prompts_as_fit(live):
    trace = load(live[1][1])
    bench = fidelity.load_bench(trace, Path(live[1][3]), "cpu")
    counts = [fidelity.n_prompts(trace, bench, seconds, 5, 12) for seconds in (0, 1e6)]
    assert counts == [fidelity.LEAST_PROMPTS, trace.n_sequences]


@pytest.mark.parametrize("total", range(fidelity.LEAST_PROMPTS, 40))
def test_enough_prompts_are_held_out_to_conclude(total):
    held_out, fitted = fidelity.sizes(total)
    assert held_out >= FOR_AGREEMENT and fitted >= 1 and held_out + fitted == total
    assert fidelity.sizes(fidelity.LEAST_PROMPTS - 1)[0] < FOR_AGREEMENT


def test_a_killed_run_leaves_its_parts(live, large, monkeypatch):
    """None of them waits for the end; those of a whole run are gone."""
    out, command = large / "killed", live[1]

    def break_off(*given):
        raise SystemExit(143)

    monkeypatch.setattr(fidelity, "PART_S", 0.0)
    monkeypatch.setattr(fidelity.LiveLog, "close", lambda *given, **known: None)
    monkeypatch.setattr(delivery.Budget, "check", break_off)
    with pytest.raises(SystemExit, match="143"):
        fidelity.main([*command, "--device", "cpu", "--tiny", "--out", str(out)])
    assert {file.name for file in out.iterdir()} == {"manifest.json", "live.parquet.parts"}
    assert pc.count_distinct(logs.read(out)["sequence"]).as_py() == 1
    assert not list(live[0].glob("*.parts"))


def test_recorder_cost_runs_on_a_cpu(large, tmp_path, capsys):
    pair = large / "work" / "pair-large"
    command = ["--pair", str(pair), "--device", "cpu", "--tiny", "--rounds", "2"]
    recorder_cost.main([*command, "--out", str(tmp_path)])
    rows = pq.read_table(tmp_path / "recorder-cost.parquet").to_pylist()
    assert len(rows) == 2 * 4 * 2 and manifest(tmp_path)["rounds"] == 2
    assert all(row["seconds"] > 0 and 2 <= row["tokens"] <= 12 for row in rows)
    assert all(row["same"] == 1 for row in rows if row["temperature"] == 0)
    assert "| 0 | 2 |" in capsys.readouterr().out
    recorder_cost.main([*command, "--out", str(tmp_path), "--budget-s", "0"])
    assert manifest(tmp_path)["rounds"] == 0


def test_outputs_end_with_their_eos():
    ids = torch.tensor([[7, 7, 5, 0, 0, 0], [7, 7, 5, 6, 7, 8]])
    plan = recorder_cost.Plan(eos_token_ids=(0,), max_new_tokens=9)
    assert recorder_cost.outputs(ids, 2, plan) == [[5, 0], [5, 6, 7, 8]]


def test_none_of_it_needs_what_that_machine_lacks(live):
    """The commands run where neither polars nor scikit-learn can be imported."""
    lines = ["import sys", "sys.modules['polars'] = sys.modules['sklearn'] = None"]
    for name in ("reference_large", "recorder_cost", "fidelity"):
        lines.append(f"import benchmarks.gpu.{name} as {name}")
    out = live[0].with_name("bare")
    options = [*live[1], "--device", "cpu", "--tiny", "--budget-s", "0", "--out", str(out)]
    lines.append(f"fidelity.main({options!r})")
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
