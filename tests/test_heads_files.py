"""Heads and traces that do not fit: one line on stderr, exit status 2, nothing written."""

import copy
import hashlib
import json
import pickle
import shutil
from dataclasses import replace

import heads_traces
import numpy as np
import pytest
import safetensors.torch
import torch
from commands import refused, run

from simkit.errors import HeadError, SimkitWarning
from simkit.heads import files, registry
from simkit.heads.files import Head
from traces.trace import load


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A trace with states, one without, and a head for both."""
    folder = tmp_path_factory.mktemp("heads")
    heads_traces.revealing(folder / "trace", n=7)
    heads_traces.revealing(folder / "bare", n=7, hidden=False)
    files.save(made(), folder / "head.safetensors")
    return folder


def made(kind="acceptance", width=heads_traces.WIDTH, draft="0" * 64, target="0" * 64):
    torch.manual_seed(0)
    options = registry.get(kind).settle({})
    models = {"trained_on": {"draft_sha256": draft, "target_sha256": target}}
    return Head(kind, width, options, files.build(kind, width, options), models)


HEADS = {
    "draft width": (made(width=8), "takes states of 8 numbers, the draft model of"),
    "another draft": (made(draft="1" * 64), "trained for another draft model (weights 11111111)"),
    "another target": (made(target="2" * 64), "trained for another target model"),
}


@pytest.mark.parametrize("case", HEADS)
def test_heads_of_another_pair(case, folder, tmp_path, capsys):
    head, message = HEADS[case]
    files.save(head, tmp_path / "x.safetensors")
    line = refused(capsys, "score", folder / "trace", "--head", tmp_path / "x.safetensors")
    assert message in line
    assert not (folder / "trace" / "scores").exists()


def test_a_trace_without_states(folder, capsys):
    line = refused(capsys, "score", folder / "bare", "--head", folder / "head.safetensors")
    assert "has no hidden states: record it with --hidden" in line


def test_scores_that_are_no_numbers(folder, tmp_path, capsys):
    """Finite weights can still overflow."""
    head = made()
    with torch.no_grad():
        for weight in head.module.parameters():
            weight.fill_(1e38)
    head = Head("pacer", 16, registry.get("pacer").settle({}), made("pacer").module, head.facts)
    with torch.no_grad():
        head.module.up.weight.fill_(3e38)
        head.module.down.weight.fill_(3e38)
    files.save(head, tmp_path / "x.safetensors")
    line = refused(capsys, "score", folder / "trace", "--head", tmp_path / "x.safetensors")
    assert "gives scores that are NaN" in line


def damages():
    """Ways to spoil a head's two files; what the refusal says."""

    def with_sidecar(path, **changes):  # signed again: what is behind the signature is tested
        sidecar = path.with_suffix(".json")
        sidecar.write_text(files.sidecar_text(json.loads(sidecar.read_text()) | changes))

    def relist(path):
        with_sidecar(path, weights_sha256=hashlib.sha256(path.read_bytes()).hexdigest())

    def pickled(path):
        path.write_bytes(pickle.dumps({"weight": np.ones(3)}))
        relist(path)

    def nan(path):
        weights = safetensors.torch.load(path.read_bytes())
        weights["out.bias"][0] = torch.nan
        path.write_bytes(safetensors.torch.save(weights))
        relist(path)

    return {
        "pickle inside": (pickled, "not a safetensors file"),
        "cut short": (lambda path: path.write_bytes(path.read_bytes()[:-9]), "weights are not"),
        "no sidecar": (
            lambda path: path.with_suffix(".json").unlink(),
            "head.json: cannot be read: No such file",
        ),
        "no weights": (
            lambda path: path.unlink(),
            "head.safetensors: cannot be read",
        ),
        "sidecar no JSON": (
            lambda path: path.with_suffix(".json").write_text("{"),
            "head.json: not JSON",
        ),
        "another format": (lambda path: with_sidecar(path, format=2), "sidecar of format 1"),
        "another kind": (lambda path: with_sidecar(path, kind="medusa"), "unknown kind"),
        "other options": (lambda path: with_sidecar(path, options={}), "its options are not"),
        "other layers": (
            lambda path: with_sidecar(path, options={**made().options, "layers": 3}),
            "does not fit its sidecar",
        ),
        "far too many layers": (
            lambda path: with_sidecar(path, options={**made().options, "layers": 10**9}),
            "layers must be from 1 to 64, not 1000000000",
        ),
        "layers no number": (
            lambda path: with_sidecar(path, options={**made().options, "layers": "3"}),
            "layers must be from 1 to 64, not '3'",
        ),
        "NaN weights": (nan, "a weight is NaN or infinite"),
    }


@pytest.mark.parametrize("case", damages())
def test_damaged_files(case, folder, tmp_path, capsys):
    for suffix in (".safetensors", ".json"):
        shutil.copy(folder / f"head{suffix}", tmp_path)
    spoil, message = damages()[case]
    spoil(tmp_path / "head.safetensors")
    line = refused(capsys, "score", folder / "trace", "--head", tmp_path / "head.safetensors")
    assert message in line


ALTERED = {
    "weights": ("weights_sha256",),
    "lag": ("options", "lag"),
    "draft model": ("trained_on", "draft_sha256"),
    "metrics": ("metrics", "auc"),
    "signature": (files.SIGNATURE,),
    "added": ("note",),
}


@pytest.mark.parametrize("where", ALTERED)
def test_an_altered_sidecar_is_refused(where, folder, tmp_path, capsys):
    """Each of these would be read without a word, but for the signature."""
    head = replace(made(), facts={**made().facts, "metrics": {"auc": 0.7}})
    path = tmp_path / "head.safetensors"
    files.save(head, path)
    sound = path.with_suffix(".json").read_text()
    about = json.loads(sound)
    inside = about
    for name in ALTERED[where][:-1]:
        inside = inside[name]
    old, key = copy.deepcopy(about), ALTERED[where][-1]
    inside[key] = {"lag": 0, "auc": 0.9}.get(key, "1" * 64)
    assert about != old
    path.with_suffix(".json").write_text(json.dumps(about))
    with pytest.raises(HeadError, match="head.json: corrupt: its sidecar_sha256"):
        files.load(path)
    assert "corrupt" in refused(capsys, "score", folder / "trace", "--head", path)
    path.with_suffix(".json").write_text(json.dumps(old, sort_keys=True))  # the same in other words
    assert files.load(path).facts == head.facts


def test_a_sidecar_of_before_signatures_is_read_and_said(tmp_path):
    path = tmp_path / "head.safetensors"
    files.save(made(), path)
    about = json.loads(path.with_suffix(".json").read_text())
    del about[files.SIGNATURE]
    path.with_suffix(".json").write_text(json.dumps(about))
    with pytest.warns(SimkitWarning, match="head.json: is not signed"):
        head = files.load(path)
    files.save(head, path)  # signs it
    again = files.load(path)
    assert (again.hash, again.facts) == (head.hash, head.facts)


def test_facts_with_keys_that_are_no_text_can_be_read_back(tmp_path):
    path = tmp_path / "head.safetensors"
    files.save(replace(made(), facts={"metrics": {10: 1.0, 9: (1, 2)}}), path)
    assert files.load(path).facts == {"metrics": {"10": 1.0, "9": [1, 2]}}


def test_a_pickle_is_never_read(folder, tmp_path, capsys):
    torch.save(made().module.state_dict(), tmp_path / "head.pt")
    line = refused(capsys, "score", folder / "trace", "--head", tmp_path / "head.pt")
    assert "a pickle is never read" in line


@pytest.mark.parametrize(
    "options, message",
    [
        (["--name", "a/b"], "cannot be the name of scores"),
        (["--hidden", "nowhere"], "nowhere"),
    ],
)
def test_bad_options(options, message, folder, capsys):
    head = folder / "head.safetensors"
    assert message in refused(capsys, "score", folder / "bare", "--head", head, *options)


def test_the_commands(folder, tmp_path, capsys):
    """Train, score once, find it done; then the other trace by the first one's states."""
    out = tmp_path / "new.safetensors"
    ended, printed, _ = run(
        capsys, "train", "acceptance", folder / "trace", "-o", out, "--epochs", 1
    )
    assert ended == 0 and "auc" in printed and "entropy" in printed
    score = "score", folder / "trace", "--head", out
    for words in ("wrote scores/acceptance_head.parquet", "nothing to do"):
        ended, _, said = run(capsys, *score)
        assert ended == 0 and words in said
    assert run(capsys, "validate", folder / "trace")[0] == 0
    arguments = ["--head", out, "--hidden", folder / "trace", "--name", "mine"]
    assert run(capsys, "score", folder / "bare", *arguments)[0] == 0
    assert load(folder / "bare").extra("scores/mine.parquet") is not None
    line = refused(capsys, "train", "pacer", folder / "trace", "-o", tmp_path / "x.pt")
    assert "a pickle is never read" in line
