"""Drafters that are attached to a recording, against decoders that know nothing of recordings."""

import filecmp
import json
import os
import re
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from commands import refused
from handed import Handed, Remembering, logits_of, output_of, remembering
from pair_folders import model, pair, pair_folder, simkit
from test_import import records, written
from trace_files import edit, hashes

import simkit as toolkit
from benchmarks.recorded import replayed
from simkit import policies
from simkit.costs.measured import times_of
from simkit.costs.price import StepWork
from simkit.errors import PolicyError, ReplayError
from traces import load
from traces.attach import registry, run
from traces.attach.drafter import Means
from traces.errors import DrafterError, TraceError
from traces.manifest import read_manifest
from traces.outputs import hold_folder
from traces.samples import with_own
from traces.schema import LATENCY

T_MAX = 14
SAMPLED = ["--temperature", 0.4, "--dtype", "float64"]
SPECS = ("svip(h=0.9)", "confidence(threshold=0.4)", "heuristic(initial=2)")
RULES = ("prompt_lookup(ngram=1)", "ngram(length=4, least=1, most=2)", "suffix(min_prob=0.2)")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = pair_folder(tmp_path_factory.mktemp("pair"))
    rows = [{"prompt_tokens": [k + 1, 7, (3 * k) % 39 + 1, 5]} for k in range(16)]
    (folder / "prompts.jsonl").write_text("\n".join(map(json.dumps, rows)))
    record(folder, "greedy")
    record(folder, "sampled", *SAMPLED)
    return folder


def record(root, name, *options, draft=None):
    common = ["--prompts", root / "prompts.jsonl", "--out", root / name, "--batch-size", 6]
    models = pair(root, draft) if draft else ["--target", root / "target", "--device", "cpu"]
    lengths = ["--max-new-tokens", T_MAX, "--max-draft", T_MAX]
    assert simkit(["record", *models, *common, *lengths, *options]) == 0


def attach(root, trace, spec, *options):
    models = ["--target", root / "target", "--device", "cpu", "--max-draft", T_MAX]
    models = models if spec.startswith("model") else []  # rules make no use of them
    return simkit(["attach", root / trace, "--drafter", spec, *models, *options])


def fresh(root, tmp_path, name="greedy"):
    ignored = shutil.ignore_patterns("drafters")
    return Path(shutil.copytree(root / name, tmp_path / name, ignore=ignored))


def test_a_path_has_the_rows_of_a_recording(root):
    """Greedy, byte for byte."""
    record(root, "both", draft="draft")
    assert attach(root, "greedy", f'model("{root}/draft")', "--name", "same") == 0
    for table in ("positions", "branches"):
        for shard in range(3):
            name = f"{table}/{shard:05d}.parquet"
            assert filecmp.cmp(root / "both" / name, root / "greedy/drafters/same" / name, False)


def test_a_drafts_temperature_is_the_recordings_unless_another_is_given(root):
    options = *SAMPLED, "--draft-temperature", 0.2, "--coupling", "target"
    record(root, "cooler", *options, draft="draft")
    for name, given in (("same", ()), ("warm", ("--draft-temperature", 0.6))):
        assert attach(root, "cooler", f'model("{root}/draft")', "--name", name, *given) == 0
    own, same, warm = (load(root / "cooler", name) for name in (None, "same", "warm"))
    assert own.sampler == same.sampler and warm.sampler.draft_temperature == 0.6
    for name in ("draft_token", "accepted", "draft_prob"):
        np.testing.assert_array_equal(own.positions(name), same.positions(name))
    assert (own.positions("draft_prob") != warm.positions("draft_prob")).mean() > 0.9


def test_a_dtype_that_there_is_not_is_refused(root):
    means = Means(str(root / "target"), "cpu", "bf16")
    with pytest.raises(DrafterError, match="unknown dtype 'bf16'"):
        run.attach(load(root / "greedy"), registry.parse(f'model("{root}/draft")'), "x", means)


def test_an_own_draft_is_not_replaced(root, tmp_path, capsys):
    """Of a recording of a pair no attached draft model becomes the own."""
    record(root, "of_two", draft="draft")
    assert attach(root, "of_two", f'model("{root}/other")', "--draft-temperature", 0) == 0
    assert simkit(["thin", root / "of_two", "-o", tmp_path / "thin", "--own", "model"]) == 2
    said = capsys.readouterr().err
    assert "has a draft of its own already" in said and not (tmp_path / "thin").exists()


@pytest.mark.parametrize("at_once", [3, 100])
def test_many_tokens_at_once(root, at_once):
    """The same drafts as token by token, and the same numbers but for rounding."""
    if "hidden" not in load(root / "greedy").drafters:
        assert (
            attach(root, "greedy", f'model("{root}/draft", hidden=true)', "--name", "hidden") == 0
        )
    spec = f'model("{root}/draft", hidden=true, at_once={at_once})'
    assert attach(root, "greedy", spec, "--name", f"by{at_once}") == 0
    for table in ("positions", "branches", "hidden"):
        for shard in range(3):
            name = f"{table}/{shard:05d}.parquet"
            one, many = (
                pq.read_table(root / "greedy/drafters" / drafter / name)
                for drafter in ("hidden", f"by{at_once}")
            )
            assert one.schema == many.schema
            for column in one.column_names:
                a, b = (np.array(t[column].to_pylist(), float) for t in (one, many))
                exact = pa.types.is_integer(one[column].type) or pa.types.is_boolean(
                    one[column].type
                )
                np.testing.assert_allclose(b, a, rtol=0, atol=0 if exact else 1e-3)


@pytest.mark.parametrize("draft", ["draft", "other"])
@pytest.mark.parametrize("trace", ["greedy", "sampled"])
def test_a_path_replays_as_it_decodes(root, trace, draft):
    assert attach(root, trace, f'model("{root / draft}", at_once={T_MAX})', "--name", draft) == 0
    found = load(root / trace, draft)
    noise = {"draft": 0.1, "other": 0.2}[draft]
    dtype = torch.float64 if trace == "sampled" else torch.float32
    target, drafting = model().to(dtype), model(noise).to(dtype)

    def propose(known, tokens):
        return logits_of(drafting, known + tokens)

    check(found, target, propose)


def test_outputs_that_go_on_behind_eos(root):
    """--ignore-eos: to T_max, all of them, with a draft beside them; replays equal decoding."""
    record(root, "long", "--ignore-eos", *SAMPLED, "--coupling", "target", draft="other")
    found = load(root / "long")
    assert set(found.sequences["n_output"].to_pylist()) == {T_MAX}
    outputs = np.array(found.sequences["output_tokens"].to_pylist())
    assert (outputs[:, :-1] == 0).any()  # EOS
    target, drafting = model().double(), model(0.2).double()
    check(found, target, lambda known, tokens: logits_of(drafting, known + tokens))
    assert simkit(["validate", root / "long"]) == 0


@pytest.mark.parametrize("spec", RULES)
@pytest.mark.parametrize("trace", ["greedy", "sampled"])
def test_a_rule_replays_as_it_decodes(root, trace, spec):
    drafter = registry.parse(spec)
    assert attach(root, trace, spec) == 0
    found = load(root / trace, drafter.name)
    dtype = torch.float64 if trace == "sampled" else torch.float32

    def propose(known, tokens):
        """The rule is asked about the known text alone; the draft so far is its own."""
        text = np.array([*known, 1], np.int32)
        draft = drafter.propose(text, len(known), np.array([0], np.int32), 10**6).draft(1)
        if len(tokens) >= len(draft):
            return None
        sure = torch.zeros(1, 40, dtype=dtype)
        sure[0, int(draft[len(tokens)])] = 1e4
        return sure

    check(found, model().to(dtype), propose, specs=("fixed(1)", "fixed(4)", "heuristic(initial=2)"))


def check(found, target, propose, specs=SPECS, by_start=False, least=10):
    rows = found.sequences.to_pylist()
    sampler, eos = found.sampler, found.eos_token_ids
    target, propose = Remembering(target), remembering(propose)
    made = [
        output_of(target, row["prompt_tokens"], row["sequence"], sampler, T_MAX, eos)
        for row in rows
    ]
    assert [output for output, _ in made] == [row["output_tokens"] for row in rows]
    accepted = 0
    for spec in specs:
        policy = policies.parse(spec)
        for first_token in ("draft", "prefill"):
            decoder = Handed(target, propose, policy, sampler, T_MAX, eos, by_start)
            decode = partial(decoder.decode, first={"draft": 1, "prefill": 2}[first_token])
            steps = [
                decode(row["prompt_tokens"], row["sequence"], *y)
                for row, y in zip(rows, made, strict=True)
            ]
            assert replayed(found, policy, first_token) == steps
            accepted += sum(step[3] for run in steps for step in run)
    assert accepted > least


def test_a_run_that_was_stopped_goes_on(root, tmp_path, monkeypatch):
    """Whole shards are kept; in the end the bytes are those of a run that was not stopped."""
    for spec in ("suffix(shared=true)", f'model("{root}/draft")'):
        drafter = registry.parse(spec)
        folders = [fresh(root, tmp_path / f"{drafter.name}{k}") for k in range(2)]
        means = Means(str(root / "target"), "cpu", max_draft=T_MAX) if drafter.heeds else None
        run.attach(load(folders[0]), drafter, means=means)

        def stop(done):
            if done > 6:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run.attach(load(folders[1]), drafter, means=means, on_shard=stop)
        with pytest.raises(TraceError, match="is incomplete .* attach it again with --resume"):
            load(folders[1], drafter.name)
        with pytest.raises(DrafterError, match="is attached already in part: give --resume"):
            run.attach(load(folders[1]), drafter, means=means)
        held = hold_folder(folders[1] / "drafters" / drafter.name)
        with pytest.raises(DrafterError, match="another run attaches a drafter"):
            run.attach(load(folders[1]), drafter, means=means)
        os.close(held or 0)
        run.attach(load(folders[1]), drafter, means=means, resume=True)
        for file in sorted((folders[0] / "drafters").rglob("*/*/*.parquet")):
            again = folders[1] / file.relative_to(folders[0])
            assert filecmp.cmp(file, again, shallow=False)


def test_times_are_there_whenever_the_drafts_are(root, tmp_path, monkeypatch, capsys):
    """A run may be stopped behind its last shard; one of before may have lost its times."""
    for spec in ("ngram(least=1)", "suffix(shared=true)"):
        drafter = registry.parse(spec)
        folder = fresh(root, tmp_path / drafter.name)
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(run.TraceWriter, "write_latency", interrupt)
            run.attach(load(folder), drafter)
        done = run.attach(load(folder), drafter, resume=True)
        assert not done.was_there
        assert load(folder, drafter.name).own_latency().num_rows == 16
        assert run.attach(load(folder), drafter, resume=True) == done._replace(was_there=True)
        edit(done.folder, files=without(read_manifest(done.folder).files, "latency.parquet"))
        capsys.readouterr()
        assert simkit(["attach", folder, "--drafter", spec, "--resume"]) == 0
        said = " ".join(capsys.readouterr().err.split())
        assert "note: it had no times: they were taken now" in said
        assert f"{drafter.name} is completely attached to {folder} already; name it with" in said
        assert "starts" not in said
        assert load(folder, drafter.name).own_latency().num_rows == 16


def interrupt(*given):
    raise KeyboardInterrupt


def without(listed, name):
    return {other: info for other, info in listed.items() if other != name}


def test_the_recording_is_left_as_it_is(root, tmp_path):
    folder = fresh(root, tmp_path)
    shutil.rmtree(folder / "drafters", ignore_errors=True)
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    for rule in RULES:
        assert attach(tmp_path, "greedy", rule) == 0
    assert all(file.read_bytes() == data for file, data in before.items())
    assert simkit(["validate", folder]) == 0


@pytest.mark.parametrize(
    "spec, options, why",
    [
        ("ngrams(2)", [], "unknown drafter 'ngrams' (did you mean ngram?)"),
        ("ngram(leats=2)", [], "ngram has no argument 'leats' (did you mean least?)"),
        ("ngram(length=1:4)", [], "is a range; give one value here"),
        ("ngram(length=0)", [], "ngram: length must be a whole number >= 1, not 0"),
        ("model()", [], "model: path is not given"),
        ("ngram()", ["--name", "../ngram"], "cannot be a drafter's name"),
        ("ngram()", ["--name", "4gram"], "cannot be a drafter's name: begin with a letter"),
        ("ngram()", ["--name", "taken"], "a drafter taken is attached already: give --name"),
        ('model("nowhere/at/all")', ["--target", "{target}"], "nowhere/at/all"),
        ("suffix()", ["--target", "x"], "suffix makes no use of --target: leave it out"),
        (
            "ngram()",
            ["--max-draft", 2, "--device", "cpu"],
            "no use of --device, --max-draft: leave",
        ),
        ("ngram()", ["--draft-temperature", 0], "no use of --draft-temperature"),
        ("ngram()", ["--dtype", "float64", "--revision", "x"], "no use of --dtype, --revision"),
        ('parallel("x")', ["--max-draft", 4], "parallel makes no use of --max-draft: leave it out"),
        ('model("{draft}", at_once=0)', ["--target", "{target}"], "at_once must be at least 1"),
        ("ngram()", ["--drafter", "ngram"], "two drafters would be called ngram: give each a --"),
        ("ngram()", ["--name", "a", "--name", "b"], "--drafter is given 1 times and --name 2"),
        ("ngram()", ["--drafter", "suffix", "--device", "cpu"], "ngram and suffix make no use of"),
        (
            "ngram()",
            ["--drafter", "prompt_lookup", "--name", "a", "--name", "taken"],
            "a drafter t",
        ),
    ],
)
def test_bad_input(root, tmp_path, capsys, spec, options, why):
    folder = fresh(root, tmp_path)
    run.attach(load(folder), registry.parse("prompt_lookup()"), "taken")
    before = sorted(file for file in folder.rglob("*"))
    options = [str(option).format(target=root / "target") for option in options]
    spec = spec.replace("{draft}", str(root / "draft"))
    assert why in refused(capsys, "attach", folder, "--drafter", spec, *options)
    assert sorted(folder.rglob("*")) == before


def test_another_target_is_refused(root, tmp_path, capsys):
    folder = fresh(root, tmp_path)
    there = ["attach", folder, "--drafter", f'model("{root}/draft")', "--device", "cpu"]
    assert "its weights are not those of" in refused(capsys, *there, "--target", root / "other")
    assert "model needs the target that was recorded: give --target" in refused(capsys, *there)


def test_a_draft_of_another_tokenizer_is_refused(root, tmp_path, capsys):
    folder = fresh(root, tmp_path)
    strange = shutil.copytree(root / "draft", tmp_path / "strange")
    words = (strange / "tokenizer.json").read_text().replace('"w1": 1,', '"v1": 1,')
    (strange / "tokenizer.json").write_text(words)
    before = hashes(folder)
    there = ["--drafter", f'model("{strange}")', "--target", root / "target", "--device", "cpu"]
    assert "tokenizers differ" in refused(capsys, "attach", folder, *there)
    assert hashes(folder) == before


def test_outcomes_without_tokens_have_no_text_to_follow(tmp_path, capsys):
    """A benchmark's acceptance lengths, say."""
    file, folder = written(tmp_path, records()), tmp_path / "trace"
    assert simkit(["import", "specdecode-bench", file, "--out", folder]) == 0
    before = hashes(folder)
    for rule in RULES:
        line = refused(capsys, "attach", folder, "--drafter", rule)
        assert "the outputs' tokens are not known" in line
    assert hashes(folder) == before


def test_what_samples_needs_the_second_coupling(root, tmp_path, capsys):
    """Outputs that hold another draft's tokens can be followed by proposals that are certain."""
    record(tmp_path_with_models(root, tmp_path), "first", *SAMPLED, draft="draft")
    spec = f'model("{root}/other")'
    assert attach(tmp_path, "first", spec) == 2
    assert "outputs of" in (said := capsys.readouterr().err) and "--coupling target" in said
    assert attach(tmp_path, "first", spec, "--draft-temperature", 0) == 0
    assert attach(tmp_path, "first", "prompt_lookup(ngram=1)") == 0
    certain = load(tmp_path / "first", "model")
    assert set(np.unique(certain.positions("draft_prob"))) == {np.float32(1)}
    tokens = certain.positions("draft_token") == certain.positions("target_token")
    np.testing.assert_array_equal(certain.positions("accepted"), tokens)


def tmp_path_with_models(root, tmp_path):
    for name in ("target", "draft", "prompts.jsonl"):
        (tmp_path / name).symlink_to(root / name)
    return tmp_path


def test_an_altered_recording_is_told(root, tmp_path):
    """A drafter belongs to one recording."""
    folder = fresh(root, tmp_path)
    run.attach(load(folder), registry.parse("ngram(least=1)"))
    other = fresh(root, tmp_path / "other", "sampled")
    shutil.copytree(folder / "drafters", other / "drafters", dirs_exist_ok=True)
    with pytest.raises(TraceError, match="was attached to another recording"):
        load(other, "ngram")


def test_detached(root, tmp_path, capsys):
    """It is gone, and so is what a killed run of it left; all else is as it was."""
    folder = fresh(root, tmp_path)
    before = hashes(folder)
    run.attach(load(folder), registry.parse("ngram(least=1)"))
    both = hashes(folder)
    run.attach(load(folder), registry.parse("suffix()"))
    shutil.copytree(folder / "drafters/suffix", folder / "drafters/.suffix.tmp")
    assert load(folder).drafters == ["ngram", "suffix"]
    line = refused(capsys, "detach", folder, "sufix")
    assert "no drafter 'sufix' is attached (did you mean suffix?)" in line
    held = hold_folder(folder / "drafters/suffix")
    assert "another process is writing to it" in refused(capsys, "detach", folder, "suffix")
    os.close(held or 0)
    assert simkit(["detach", folder, "suffix"]) == 0
    assert hashes(folder) == both and load(folder).drafters == ["ngram"]
    assert simkit(["detach", folder, "ngram"]) == 0
    assert hashes(folder) == before and not (folder / "drafters").exists()
    assert simkit(["detach", folder, "ngram"]) == 2
    capsys.readouterr()
    line = refused(capsys, "detach", "reference", "suffix")
    assert "comes with the package, which is not written to" in line


def test_rows_that_were_altered_are_refused(root, tmp_path):
    folder = fresh(root, tmp_path)
    done = run.attach(load(folder), registry.parse("ngram(least=1)"))
    file = done.folder / "lattice/00000.parquet"
    table = pq.read_table(file)
    at = table.schema.get_field_index("accepted")
    turned = table.set_column(at, table.schema.field(at), [[True] * table.num_rows])
    pq.write_table(turned, file)
    with pytest.raises(TraceError, match="lattice/00000.parquet"):
        load(folder, "ngram").lattice("accepted")


def test_it_is_named_where_traces_are(root, tmp_path, capsys):
    """info lists it; replay, sweep and tune take it; the recording alone has no draft."""
    folder = fresh(root, tmp_path)
    attach(root, "greedy", "ngram(least=1)", "--name", "found")
    folder = root / "greedy"
    assert simkit(["info", folder]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "found: ngram(least=1) (lattice, Γ = 5, 1 column, times, " in said
    assert re.search(r"size .*, drafters [\d.]+ kB\)", said)
    given = ["--drafter", "found", "--cost", "linear(draft_s=1, target_s=4)"]
    assert simkit(["replay", folder, "--policy", "fixed(3)", *given]) == 0
    assert simkit(["sweep", folder, "--policy", "fixed(1:3)", *given]) == 0
    assert simkit(["tune", folder, "--policy", "fixed(1:3)", *given]) == 0
    capsys.readouterr()
    assert simkit(["validate", folder]) == 0
    said = capsys.readouterr().out
    assert said.startswith("OK: ") and "found" in said.partition("; and what is attached: ")[2]
    assert simkit(["replay", folder, "--policy", "svip(h=0.5)", *given]) == 2
    said = "svip(h=0.5) reads the column draft_entropy, which drafts of ngram(least=1) do not have"
    assert f"{said}: take a policy that reads no column" in capsys.readouterr().err
    line = refused(capsys, "replay", folder, "--policy", "fixed(3)")
    assert (
        "name an attached drafter with --drafter" in line
        and "this trace has " in line
        and "found" in line
    )
    line = refused(capsys, "replay", folder, "--policy", "fixed(3)", "--drafter", "fond")
    assert "did you mean found?" in line


@pytest.mark.parametrize(
    "command",
    [
        ["sweep", "--policy", "fixed(1:3)"],
        ["tune", "--policy", "fixed(1:3)"],
        ["figures", "--out", "x"],
        ["claims"],
        ["report", "-o", "x"],
        ["train", "pacer", "-o", "x.safetensors"],
        ["score", "--head", "x.safetensors"],
        ["fidelity"],
    ],
    ids=lambda command: command[0],
)
def test_one_drafter_where_one_is_taken(command, capsys):
    """Which of two would be dropped nobody could know; replay takes both."""
    line = refused(capsys, *command, "reference", "--drafter", "suffix", "--drafter=ngram")
    assert f"--drafter is given twice: {command[0]} takes one" in line


def test_drafters_are_compared_prompt_by_prompt(root, capsys):
    """One table of several drafters; a comparison the other way round is the inverse."""
    for spec in ("ngram(least=1)", "suffix()"):
        attach(root, "greedy", spec, "--name", f"c-{spec[:3]}")
    cost = "linear(draft_s=1, target_s=4)"
    both = {"c-ngr": ["fixed(2)", "fixed(3)"], "c-suf": "fixed(3)"}
    found = toolkit.replay(root / "greedy", both, cost)
    assert found.frame["drafter"].to_list() == ["c-ngr", "c-ngr", "c-suf"]
    alone = toolkit.replay(load(root / "greedy", "c-suf"), "fixed(3)", cost)
    assert found.records()[2] == {"drafter": "c-suf", **alone.records()[0]}
    assert found["c-suf"] is found.results["c-suf"] and list(found) == ["c-ngr", "c-suf"]
    assert len(found) == 2
    with pytest.raises(ReplayError, match="ngram was not replayed; there is c-ngr, c-suf"):
        found["ngram"]
    with pytest.raises(ReplayError, match="route and best_of cannot be nested"):
        toolkit.replay(root / "greedy", {"best_of(route(c-ngr, c-suf), own)": "fixed(1)"})
    one = found.compare(("c-suf", "fixed(3)"), ("c-ngr", "fixed(3)"))
    other = found.compare(("c-ngr", "fixed(3)"), ("c-suf", "fixed(3)"))
    totals = {r["drafter"]: r["total_s"] for r in found.records() if r["policy"] == "fixed(3)"}
    assert one.speedup == pytest.approx(totals["c-ngr"] / totals["c-suf"])
    assert one.speedup * other.speedup == pytest.approx(1)
    assert one.speedup_lo is not None and one.speedup_lo <= one.speedup <= one.speedup_hi
    assert one.a == "c-suf: fixed(3)" and "c-suf: fixed(3)" in str(found)
    capsys.readouterr()
    given = ["--policy", "fixed(3)", "--cost", cost, "--format", "json"]
    names = ["--drafter", "c-ngr", "--drafter", "c-suf"]
    assert simkit(["replay", root / "greedy", *given, *names]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["drafter"] for row in rows] == ["c-ngr", "c-suf"]
    with pytest.raises(ReplayError, match="c-ngr was not replayed; there is c-suf"):
        toolkit.replay(root / "greedy", {"c-suf": "fixed(1)"}).compare(
            ("c-ngr", "fixed(1)"), ("c-suf", "fixed(1)")
        )


def test_a_proposal_is_paid_for(root):
    """Timed as it was attached; the target's times are the recording's, its draft's are not."""
    attach(root, "greedy", "ngram(least=1)", "--name", "paid")
    found = load(root / "greedy", "paid")
    own = found.extra("latency.parquet")
    assert found.latency() is None  # of the target nothing is known
    assert set(own["component"].to_pylist()) == {"proposal"} and own.num_rows == 16
    times = [("target", 1, 0.04), ("target", 4, 0.05), ("draft", 1, 0.01), ("overhead", 1, 0.001)]
    rows = [
        {"component": name, "tokens_in": n, "context_len": 8, "batch_size": 1, "seconds": s}
        | {"dtype": "float32", "device": "x", "engine": "eager", "repeat": 0}
        for name, n, s in times
    ]
    merged = with_own(pa.Table.from_pylist(rows, LATENCY), own)
    assert set(merged["component"].to_pylist()) == {"target", "overhead", "proposal"}
    price = times_of(merged).price(StepWork(8, 4, from_model=False))
    assert price.draft_s == pytest.approx(np.median(own["seconds"].to_numpy()))
    assert price.verify_s == pytest.approx(0.05) and price.overhead_s == pytest.approx(0.001)


def test_what_live_decoders_cannot_repeat_is_refused(root, tmp_path, capsys):
    """And so is the word for the recording's own drafter, as a name."""
    attach(root, "sampled", f'model("{root}/draft")', "--name", "live")
    given = [*pair(root), "--policy", "fixed(2)", "--drafter", "live"]
    line = refused(capsys, "fidelity", root / "sampled", *given, "-o", tmp_path / "out")
    assert "which a live decoder cannot repeat" in line
    live = ["live", *given, "--prompts", root / "prompts.jsonl", "--n-prompts", 2]
    line = refused(capsys, *live, "--trace", root / "sampled")
    assert "which a live decoder cannot repeat" in line
    assert attach(root, "greedy", "ngram()", "--name", "own") == 2
    assert "own is the word for the drafter of the recording" in capsys.readouterr().err
    found = toolkit.replay(load(root / "sampled", "live"), "fixed(2)")
    assert any("there are no times" in note for note in found.notes)
    both = toolkit.replay(root / "sampled", {"live": "fixed(2)"})
    with pytest.raises(ReplayError, match="compare \\(drafter, policy\\) with"):
        both.compare("fixed(2)", "fixed(2)")


def test_a_function_of_the_wrong_arguments(root):
    """It is told before a replay, where the function is named."""
    for function in (lambda depth: True, lambda depth, row, more: True, lambda: True):
        with pytest.raises(PolicyError, match="rule: .* takes two arguments, \\(depth, row\\)"):
            policies.from_function(function, name="rule")
    policies.from_function(lambda depth, row=None, *more: True)


def test_a_drafter_of_a_bundled_trace_has_a_path(capsys, monkeypatch):
    """As one in a folder has, also seen from inside of it."""
    assert load("reference/drafters/suffix").hash == load("reference", "suffix").hash
    assert simkit(["info", "reference/drafters/suffix"]) == 0
    assert "reference/drafters/sufix" in refused(capsys, "info", "reference/drafters/sufix")
    monkeypatch.chdir(load("reference/drafters/suffix").path)
    assert load(".").hash == load("reference", "suffix").hash


def test_from_python_it_is_that_of_the_command(root, tmp_path):
    """The same files, under any name; prompts are counted; what is wrong is said."""
    trace, told = fresh(root, tmp_path), []
    assert simkit(["attach", trace, "--drafter", "ngram(length=4)"]) == 0
    mine = toolkit.attach(trace, "ngram(length=4)", "mine", progress=lambda *n: told.append(n))
    assert told[-1] == (mine.n_sequences, mine.n_sequences)
    names = [file.name for file in (trace / "drafters" / "ngram").glob("*/*.parquet")]
    same = filecmp.dircmp(trace / "drafters" / "ngram", trace / "drafters" / "mine")
    assert names and not (same.left_only or same.right_only)
    theirs = toolkit.replay(load(trace, "ngram"), "fixed(3)").records()
    assert toolkit.replay(mine, "fixed(3)").records() == theirs
    with pytest.raises(DrafterError, match="did you mean ngram"):
        toolkit.attach(trace, "ngramm")
    with pytest.raises(TraceError, match="comes with the package"):
        toolkit.attach("reference", "ngram", "mine")
    assert simkit(["attach", "reference", "--drafter", "ngram", "--name", "mine"]) == 2
