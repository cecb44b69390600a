"""Parallel and feature drafters on a recording, against a decoder that reads every text anew."""

import json
import shutil

import numpy as np
import pytest
import torch
from commands import refused
from pair_folders import simkit, words_tokenizer
from safetensors.torch import save_file
from test_attach import SAMPLED, T_MAX, check
from test_borrowed_drafter import projection as borrowed_projection
from test_borrowed_drafter import write as write_borrowed
from test_borrowed_drafter import written_ids, written_out
from test_feature_drafter import (
    LAYERS,
    H,
    V,
    make_target,
    next_features,
    noisy_target,
    norm,
    tensors,
    write,
)
from torch.nn import functional as F

import simkit as toolkit
from traces import load
from traces.attach import run
from traces.record.drafters import running
from traces.record.drafters.target import TargetReader

MASK, READ = 60, (-1, 2)  # of the parallel drafters
DRAFTERS = {"independent": "parallel", "dependent": "parallel", "eagle1": "feature"}
DRAFTERS |= {"eagle3": "feature", "few": "feature", "borrowed": "parallel"}
NOISE = {"independent": 0.05, "dependent": 0.02}  # of drafts that are often of the target's mind


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("networks")
    tokenizer = words_tokenizer(V)
    make_target(torch.float32).save_pretrained(folder / "target")
    for name in ("target", "independent", "dependent"):
        tokenizer.save_pretrained(folder / name)
    for name in ("independent", "dependent"):
        noisy_target(NOISE[name]).save_pretrained(folder / name)
        settings = {"kind": "parallel", "mask_token_id": MASK, "block": 8, "mode": name}
        settings |= {"target_layers": list(READ), "feature_scale": 0.3}
        (folder / name / "drafter.json").write_text(json.dumps(settings))
    save_file({"projection": projection()}, folder / "dependent" / "projection.safetensors")
    for kind in ("eagle1", "eagle3", "few"):
        (folder / kind).mkdir()
        write(folder / kind, kind)
    write_borrowed(folder / "borrowed")
    rows = [{"prompt_tokens": [k + 1, 7, (3 * k) % 39 + 1, 5][: k % 4 + 1]} for k in range(16)]
    (folder / "prompts.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for name, options in (("greedy", []), ("sampled", SAMPLED)):
        common = ["--prompts", folder / "prompts.jsonl", "--out", folder / name]
        lengths = ["--batch-size", 6, "--max-new-tokens", T_MAX]
        models = ["--target", folder / "target", "--device", "cpu"]
        assert simkit(["record", *models, *common, *lengths, *options]) == 0
    return folder


def projection():
    return torch.randn(H, len(READ) * H, generator=torch.Generator().manual_seed(2))


def attach(root, trace, name, *options, length=T_MAX):
    spec = f'{DRAFTERS[name]}("{root / name}", length={length})'
    given = ["--target", root / "target", "--device", "cpu"]
    given += [] if "--name" in options else ["--name", name]
    return simkit(["attach", root / trace, "--drafter", spec, *given, *options])


def states_of(target, known, layers):
    with torch.inference_mode():
        found = target(torch.tensor([known]), output_hidden_states=True).hidden_states
    return torch.cat([found[layer][0] for layer in layers], -1)


def parallel_rows(name, target):
    """One plain pass over the known tokens and the masks up to the one that is asked for."""
    model = written_out(target) if name == "borrowed" else noisy_target(NOISE[name])
    model = model.to(target.dtype).eval()
    weight = (borrowed_projection() if name == "borrowed" else projection()).to(target.dtype)
    ids = written_ids() if name == "borrowed" else torch.arange(V)

    def propose(known, tokens):
        mask = V if name == "borrowed" else MASK
        text = torch.tensor([known + [mask] * len(tokens)])
        embedded = model.get_input_embeddings()(text).detach().clone()
        if name != "independent" and len(known) > 1:
            t = F.linear(states_of(target, known, READ) * 0.3, weight)
            for n in range(1, text.shape[1]):
                embedded[0, n] += t[min(n, len(known) - 1) - 1]
        with torch.inference_mode():
            logits = model(inputs_embeds=embedded).logits[:, -1]
        return torch.full((1, V), -1e30, dtype=logits.dtype).index_copy(1, ids, logits[:, ids])

    return propose


def feature_rows(kind, target):
    """The chain from its root on, on the tokens that were drafted."""
    w = {k: v.to(target.dtype) if v.is_floating_point() else v for k, v in tensors(kind).items()}
    layers = (2, LAYERS // 2, LAYERS - 3) if kind == "eagle3" else (-1,)
    table = w.get("embed_tokens.weight", target.get_input_embeddings().weight.detach())

    def propose(known, tokens):
        features = states_of(target, known, layers)
        features = (features @ w["fc.weight"].T if kind == "eagle3" else features)[:-1]
        text = known[1:]
        if len(known) == 1:
            text, features = known[:], torch.zeros(1, H, dtype=target.dtype)
        for token in [*tokens, None]:
            last = next_features(w, kind, table[torch.tensor(text)], features)[-1]
            features, text = torch.cat([features, last[None]]), [*text, token]
        logits = torch.full((1, V), -1e30, dtype=target.dtype)
        if kind == "eagle3":
            logits[0, w["t2d"]] = w["lm_head.weight"] @ norm(last, w["norm.weight"])
            return logits
        kept = w.get("t2d", torch.ones(V, dtype=torch.bool))
        logits[0, kept] = target.lm_head.weight.detach()[kept] @ last
        return logits

    return propose


@pytest.mark.parametrize("name", DRAFTERS)
@pytest.mark.parametrize("trace", ["greedy", "sampled"])
def test_it_replays_as_it_decodes(root, trace, name):
    assert attach(root, trace, name, "--resume") == 0  # another test may have attached it
    target = make_target(torch.float64 if trace == "sampled" else torch.float32)
    make = parallel_rows if DRAFTERS[name] == "parallel" else feature_rows
    found = load(root / trace, name)
    least = 10 if make is parallel_rows else 1  # a chain of random weights guesses
    check(found, target, make(name, target), ("fixed(3)", "svip(h=0.9)"), True, least)
    assert simkit(["validate", root / trace]) == 0


@pytest.mark.parametrize("trace", ["greedy", "sampled"])
def test_several_in_one_run_share_the_target(root, tmp_path, monkeypatch, trace):
    """The same rows as one by one; the target is loaded once and reads each text once."""
    folder = tmp_path / trace
    shutil.copytree(root / trace, folder, ignore=shutil.ignore_patterns("drafters"))
    names = ("independent", "dependent", "eagle3", "few")
    for name in names:
        assert attach(root, trace, name, "--resume") == 0
    loaded, read = [], []
    load_target, run = running.load_target, TargetReader._pass
    monkeypatch.setattr(running, "load_target", lambda *g: loaded.append(g) or load_target(*g))
    monkeypatch.setattr(TargetReader, "_pass", lambda self, *g: read.append(g) or run(self, *g))
    given = ["--target", root / "target", "--device", "cpu", "--drafter", "ngram(least=1)"]
    for name in names:
        given += ["--drafter", f'{DRAFTERS[name]}("{root / name}", length={T_MAX})']
    for name in ("ngram", *names):
        given += ["--name", name]
    assert simkit(["attach", folder, *given]) == 0
    assert len(loaded) == 1 and len(read) == 16
    assert set(load(folder).drafters) == {"ngram", *names}
    for name in names:
        one, many = load(root / trace, name), load(folder, name)
        assert one.hash == many.hash


def stopped_behind(monkeypatch, shards, *words):
    """A command whose run is stopped behind some shards."""
    with monkeypatch.context() as patch:
        write, written = run.TraceWriter.write_shard, []

        def stop(self, *args, **more):
            if len(written) == shards:
                raise KeyboardInterrupt
            written.append(write(self, *args, **more))

        patch.setattr(run.TraceWriter, "write_shard", stop)
        assert simkit(words) == 130


@pytest.mark.parametrize(
    "name, file, change, said",
    [
        ("independent", "drafter.json", {"mask_token_id": 5}, "mask_token_id is 60 there, 5 here"),
        ("dependent", "drafter.json", {"feature_scale": 0.4}, "feature_scale is 0.3 there, 0.4"),
        ("eagle3", "config.json", {"rms_norm_eps": 0.5}, "rms_norm_eps is "),
        ("target", "config.json", {"rms_norm_eps": 0.5}, "rms_norm_eps is "),
    ],
)
def test_settings_that_changed_are_no_resume(
    root, tmp_path, monkeypatch, capsys, name, file, change, said
):
    """What a folder says beside the weights is what drafts are made with, too."""
    folder, models = tmp_path / "greedy", tmp_path / "models"
    shutil.copytree(root / "greedy", folder, ignore=shutil.ignore_patterns("drafters"))
    for one in {name, "independent", "target"}:
        shutil.copytree(root / one, models / one)
    drafter = "independent" if name == "target" else name
    spec = f'{DRAFTERS[drafter]}("{models / drafter}", length={T_MAX})'
    given = ["--drafter", spec, "--target", models / "target", "--device", "cpu"]
    stopped_behind(monkeypatch, 1, "attach", folder, *given)
    text = (models / name / file).read_text()
    (models / name / file).write_text(json.dumps(json.loads(text) | change))
    for words in (["--resume"], [*given, "--resume"]):
        line = refused(capsys, "attach", folder, *words)
        assert f"was begun with other settings of a model ({name}/{file}: {said}" in line
    (models / name / file).write_text(text)
    assert simkit(["attach", folder, "--resume"]) == 0
    (whole,) = (folder / "drafters").glob("*/manifest.json")
    assert '"settings"' not in whole.read_text()


def test_resume_needs_the_trace_alone(root, tmp_path, monkeypatch, capsys):
    """A run of two drafters is stopped behind a shard; it goes on with what it was asked for."""
    folder = tmp_path / "greedy"
    shutil.copytree(root / "greedy", folder, ignore=shutil.ignore_patterns("drafters"))
    line = refused(capsys, "attach", folder, "--resume")
    assert "no unfinished attachment has its options there" in line
    assert "--drafter SPEC is missing" in refused(capsys, "attach", folder)
    names = ("independent", "eagle3")
    given = ["--target", root / "target", "--device", "cpu", "--columns", "draft_entropy"]
    for name in names:
        given += ["--drafter", f'{DRAFTERS[name]}("{root / name}", length={T_MAX})', "--name", name]
    stopped_behind(monkeypatch, 3, "attach", folder, *given)
    line = refused(capsys, "attach", folder, "--resume", "--max-draft", 3)
    assert "--max-draft belongs to a drafter: give --drafter, too" in line
    assert simkit(["attach", folder, "--resume"]) == 0
    assert not list(folder.rglob("*.tmp"))
    again = tmp_path / "again"
    shutil.copytree(root / "greedy", again, ignore=shutil.ignore_patterns("drafters"))
    assert simkit(["attach", again, *given]) == 0
    assert [load(folder, name).hash for name in names] == [load(again, name).hash for name in names]


def test_rows_and_prices_of_a_draft(root):
    """A parallel draft is one pass, a chain one a token; what no output has is not known."""
    attach(root, "greedy", "independent", "--resume")
    attach(root, "greedy", "eagle1", "--resume")
    for name, passes in (("independent", 1), ("eagle1", 3)):
        found = load(root / "greedy", name)
        steps = toolkit.replay(found, "fixed(3)", "linear(draft_s=1, target_s=4)", by="step").frame
        whole = steps.filter(steps["drafted"] == 3)
        assert len(whole) and set(whole["draft_passes"].to_list()) == {passes}
        known = ~np.isnan(found.lattice("target_prob"))
        reached = found.manifest.drafter.outcomes(found)[1]
        assert known.sum() > 100 and reached[known].all()


@pytest.mark.parametrize(
    "name, options, change, why",
    [
        ("independent", {"length": 0}, {}, "parallel: length must be a whole number >= 1, not 0"),
        ("independent", {"length": T_MAX + 1}, {}, "length must be at most the trace's T_max = 14"),
        ("independent", {"length": 10**11}, {}, f"T_max = 14 tokens, not {10**11}"),
        ("independent", {}, {"mask_token_id": 61}, "mask_token_id 61 is outside the vocabulary"),
        ("dependent", {}, {"target_layers": [-1, 12]}, "has no hidden layer 12"),
        ("dependent", {}, {"target_layers": [-1]}, "need 32 x 32"),
        ("independent", {}, {"kind": "feature"}, "kind"),
    ],
)
def test_bad_input(root, tmp_path, capsys, name, options, change, why):
    shutil.copytree(root / name, tmp_path / name)
    for other in ("target", "greedy"):
        (tmp_path / other).symlink_to(root / other)
    settings = json.loads((tmp_path / name / "drafter.json").read_text())
    (tmp_path / name / "drafter.json").write_text(json.dumps(settings | change))
    assert attach(tmp_path, "greedy", name, "--name", "bad", **options) == 2
    said = capsys.readouterr().err
    assert why in said and said.count("\n") == 1
    assert "bad" not in load(root / "greedy").drafters


@pytest.mark.parametrize("name", ["independent", "eagle1", "eagle3"])
def test_a_context_that_is_too_short(root, tmp_path, capsys, name):
    """A text of up to 4 + 14 tokens: its last drafts reach T_max, and no row lies behind it."""
    shutil.copytree(root / name, tmp_path / name)
    for other in ("target", "greedy"):
        (tmp_path / other).symlink_to(root / other)
    file = tmp_path / name / "config.json"
    lengths = load(root / "greedy").sequences.select(["n_prompt", "n_output"]).to_pydict()
    pairs = list(zip(*lengths.values(), strict=True))
    for length in (1, 3):
        need = max(n + min(t + length - 1, T_MAX) for n, t in pairs)
        for context, code in ((need - 1, 2), (need, 0)):
            known = json.loads(file.read_text())
            file.write_text(json.dumps(known | {"max_position_embeddings": context}))
            given = "--name", f"{name}-{length}-{context}"
            assert attach(tmp_path, "greedy", name, *given, length=length) == code
            said = capsys.readouterr().err
            assert code == 0 or f"reach {need} tokens, and its context holds {context}" in said


def test_longer_drafts_than_it_was_trained_for(root, capsys):
    """They are made, and it is said."""
    for length, said in ((8, False), (9, True)):
        assert attach(root, "greedy", "dependent", "--name", f"b{length}", length=length) == 0
        note = "trained for drafts of 8 tokens (block in drafter.json), and drafts 9 here"
        assert (note in capsys.readouterr().err) == said


@pytest.mark.parametrize("spec", ['parallel("{}")', 'feature("{}")', 'block("{}")'])
def test_the_drafter_is_looked_at_before_the_target(root, tmp_path, capsys, monkeypatch, spec):
    monkeypatch.setattr(running, "load_target", None)
    (tmp_path / "none").mkdir()
    given = ["--drafter", spec.format(tmp_path / "none").replace('")', '", length=3)')]
    given = given if "block" not in spec else ["--drafter", spec.format(tmp_path / "none")]
    line = refused(capsys, "attach", root / "greedy", *given, "--target", root / "target")
    assert f"{tmp_path / 'none'}: not a " in line


def test_a_depth_beyond_the_drafts_is_refused(root, capsys):
    attach(root, "greedy", "eagle3", "--resume")
    attach(root, "greedy", "independent", "--name", "short", length=2)
    given = [root / "greedy", "--drafter", "short"]
    line = refused(capsys, "replay", *given, "--policy", "fixed(3)")
    assert "at most max_draft (Γ) = 2 tokens" in line


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision(root, dtype):
    """Logits are reduced in float32, also those that stand for tokens which cannot come."""
    for name in ("independent", "eagle3"):
        assert attach(root, "greedy", name, "--dtype", dtype, "--name", f"{name}-{dtype}") == 0
        found = load(root / "greedy", f"{name}-{dtype}")
        assert found.manifest.dtype == dtype and np.isfinite(found.lattice("draft_entropy")).all()


def test_columns_are_chosen(root, capsys):
    """Those that are kept are the same to the bit; a rule that reads another one says so."""
    attach(root, "greedy", "independent", "--resume")
    assert attach(root, "greedy", "independent", "--name", "lean", "--columns", "overlap") == 0
    whole, few = load(root / "greedy", "independent"), load(root / "greedy", "lean")
    assert few.manifest.lattice_columns == ("overlap",)
    for name in ("overlap", "accepted"):
        assert np.array_equal(whole.lattice(name), few.lattice(name), equal_nan=name == "overlap")
    assert simkit(["validate", root / "greedy"]) == 0
    capsys.readouterr()
    given = [root / "greedy", "--drafter", "lean"]
    assert simkit(["replay", *given, "--policy", "fixed(3)"]) == 0
    assert "draft_entropy" in refused(capsys, "replay", *given, "--policy", "svip(h=0.9)")


@pytest.mark.parametrize(
    "drafter, columns, why",
    [
        ("independent", "overlaps", "there is no 'overlaps' (did you mean overlap?)"),
        ("suffix", "overlap", "suffix writes the columns that it has: leave out --columns"),
    ],
)
def test_columns_that_cannot_be_chosen(root, capsys, drafter, columns, why):
    if drafter == "suffix":
        code = simkit(["attach", root / "greedy", "--drafter", "suffix()", "--columns", columns])
    else:
        code = attach(root, "greedy", drafter, "--name", "none", "--columns", columns)
    said = capsys.readouterr().err
    assert code == 2 and why in said and said.count("\n") == 1
