"""Figures and claims by span: a step counts where it starts, and spans add up to the whole."""

import json

import numpy as np
import polars as pl
import pytest
from commands import refused, run, status
from pair_folders import pair_folder
from test_spans import RULES, Words

import simkit
from analysis import figures
from analysis.claims import check_by_span, claims
from analysis.claims.by_span import CUT, OTHER, SERVED
from analysis.figures import FIGURES
from analysis.groups import Groups
from analysis.papers import svip as paper
from analysis.replays import ALONE, of
from analysis.speeds import speedup
from analysis.study import Study
from traces import spans, synthetic
from traces.errors import UserError
from traces.trace import load
from traces.writer import add_file, save

COST = "linear(draft_s=0.001, target_s=0.01)"
GROUPED = ("forward_passes", "optimal_gain", "pearl_runs", "drafters_by_task", "policies_by_task")
GROUPED += ("gap_decomposition", "regret_by_task")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = pair_folder(tmp_path_factory.mktemp("by_span"))
    counts = np.bincount(load(root / "trace").positions("target_token"))
    begin, end = np.argsort(-counts, kind="stable")[:2]
    (root / "rules.toml").write_text(RULES.format(begin=begin, end=end))
    words = ["spans", root / "trace", "--tokenizer", root / "target"]
    assert status(*words, "--rules", root / "rules.toml") == 0
    return root


@pytest.fixture(scope="module")
def study(folder):
    return Study(folder / "trace")


@pytest.mark.parametrize("spec", ["fixed(3)", "svip(h=0.5)", "pearl(2)", "fixed(0:4)", ALONE])
def test_spans_add_up_to_the_whole_and_are_those_of_a_replay(study, spec):
    at, groups = of(study, COST), Groups(study.trace, "span")
    one = at.tuned(spec) if ":" in spec else at.replay(spec)
    found = groups.alone(at) if spec == ALONE else groups.of(at, one)
    names = list(groups.masks)[:-1]
    assert len(names) > 1
    parts = [groups.part(found, name) for name in names]
    for name, whole in one.counts.items():
        assert sum(part.counts[name] for part in parts) == pytest.approx(whole, abs=1e-9)
    assert sum(part.total_s for part in parts) == pytest.approx(one.total_s, rel=1e-12)
    if ":" in spec or spec == ALONE:
        return
    frame = simkit.replay(study.trace, spec, cost=COST, by="span").frame
    for name, part in zip(names, parts, strict=True):
        (row,) = frame.filter(pl.col("span") == name).to_dicts()
        assert part.counts["steps"].sum() == row["steps"]
        assert part.counts["accepted"].sum() == row["accepted"]
        assert part.total_s.sum() == pytest.approx(row["total_s"], rel=1e-12)


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """A trace of which some outputs are one token: the prompt's pass emits all of them."""
    root = tmp_path_factory.mktemp("short") / "trace"
    save(synthetic.iid(40, 8, 0.6, max_draft=8, seed=0, eos_prob=0.3, vocab_size=9), root)
    made = load(root)
    rules = [spans.SpanRule("pair", pattern="w4.*w2")]
    add_file(root, spans.FILE, spans.find(made, Words(), rules))
    made = load(root)
    assert (made.sequences["n_output"].to_numpy() == 1).sum() > 5
    return made


@pytest.mark.parametrize("drafter", ["own", "route(prompt_lookup, own)"])
def test_outputs_without_a_step_are_in_the_span_of_their_only_token(short, drafter):
    if drafter != "own":
        assert status("attach", short.path, "--drafter", "prompt_lookup()") == 0
    trace = load(short.path)
    given = {"policies": {drafter: "fixed(3)"}, "cost": COST, "first_token": "prefill"}
    whole, parts = (simkit.replay(trace, **given, by=by).frame for by in ("trace", "span"))
    assert len(parts) > 1
    for name in ("steps", "accepted", "emitted", "prefill_s", "total_s", "baseline_s"):
        assert parts[name].sum() == pytest.approx(whole[name].item(), rel=1e-12), name
    if drafter == "own":
        at, groups = of(Study(trace, "prefill"), COST), Groups(trace, "span")
        one = at.replay("fixed(3)")
        found = groups.of(at, one)
        total = sum(groups.part(found, name).total_s for name in [*groups.masks][:-1])
        assert total == pytest.approx(one.total_s, rel=1e-12)


def test_masks_hold_the_prompts_that_have_a_span(study):
    groups, label = Groups(study.trace, "span"), spans.load(study.trace)
    offsets = study.trace.position_offsets
    for k, (name, mask) in enumerate(list(groups.masks.items())[:-1]):
        index = label.names.index(name)
        has = [
            (label.label[a:b] == index).any()
            for a, b in zip(offsets[:-1], offsets[1:], strict=True)
        ]
        n = study.trace.n_sequences
        assert np.array_equal(np.flatnonzero(mask), k * n + np.flatnonzero(has))


def test_figures_that_show_tasks_show_spans(study):
    assert {entry.name for entry in FIGURES.values() if entry.grouped} == set(GROUPED)
    found = figures.regret_by_task(study, cost=COST, by="span")
    assert found.name == "regret_by_span" and "task" not in found.frame.columns
    assert found.frame["span"].unique().sort().to_list() == sorted(
        Groups(study.trace, "span").masks
    )
    whole = figures.regret_by_task(study, cost=COST).frame
    for row in found.frame.filter(pl.col("span") == "all").to_dicts():
        (other,) = whole.filter(pl.col("policy") == row["policy"]).to_dicts()
        assert row["regret"] == other["regret"] and row["regret_lo"] == other["regret_lo"]
    with pytest.raises(UserError, match="does not compare tasks"):
        figures.draft_lengths(study, by="span")
    with pytest.raises(UserError, match="by must be one of task, span"):
        figures.regret_by_task(study, cost=COST, by="words")


def test_claims_are_asked_of_each_span(study):
    wanted = {claim.name: claim for claim in claims()}
    names = ["faster_than_constant", "entropy_ratio", "later_is_easier", "stronger_when_greedy"]
    names += [claim.name for claim in claims() if claim.paper == "vLLM"][:1]
    found = check_by_span(study, COST, [wanted[name] for name in names])
    groups, at = Groups(study.trace, "span"), of(study, COST)
    assert [one.trace for one in found.of] == [f"trace, {k}" for k in list(groups.masks)[:-1]]
    label = spans.load(study.trace)
    for span, one in zip(groups.masks, found.of, strict=False):
        speed, ratio, later, greedy, served = one.of
        mine = groups.part(groups.of(at, at.tuned(paper.CHOSEN)), span)
        other = groups.part(groups.of(at, at.replay(paper.CONSTANT)), span)
        value = other.total_s.sum() / mine.total_s.sum()
        assert speed.parts[0].found.value == pytest.approx(value, rel=1e-12)
        inside = label.label == label.names.index(span)
        h, cross = (study.trace.positions(c)[inside] for c in ("draft_entropy", "cross_entropy"))
        share = ((cross / h >= 1.0) & (cross / h <= 1.3))[h > 1e-6].mean()
        assert ratio.parts[0].found.value == pytest.approx(share, abs=1e-6)
        assert (later.why, greedy.why, served.why) == (CUT, OTHER, SERVED)


def test_the_command(folder, capsys, tmp_path):
    trace = folder / "trace"
    words = ["figures", trace, "--out", tmp_path / "figs", "--cost", COST, "--format", "svg"]
    ended, out, _ = run(capsys, *words, "--by", "span", "--only", "regret_by_task")
    assert ended == 0 and "regret_by_span" in out
    assert {file.name for file in (tmp_path / "figs").iterdir()} == {
        "regret_by_span.svg",
        "regret_by_span.parquet",
    }
    said = refused(capsys, *words, "--by", "span", "--only", "draft_lengths")
    assert "draft_lengths" in said
    said = refused(capsys, "claims", trace, "--by", "span", "--beside", "reference")
    assert "--beside cannot be used with --by span" in said
    for command in (["figures", "reference", "--out", tmp_path / "none"], ["claims", "reference"]):
        assert "spans are missing" in refused(capsys, *command, "--by", "span")
    assert not (tmp_path / "none").exists()


def test_claims_from_the_command_line_are_those_of_python(folder, capsys):
    words = ["claims", folder / "trace", "--cost", COST, "--by", "span", "--format", "json"]
    ended, out, _ = run(capsys, *words)
    assert ended == 0 and "entropy_ratio" in out and CUT in json.dumps(json.loads(out))


def test_the_target_alone_is_exactly_as_fast_as_itself():
    """Its times spread as the baseline's do, which pays nothing for steps of speculation."""
    at = of(Study("reference"), None)
    found = speedup(Groups(at.trace).alone(at))
    assert at.charge.drawn_anew and (found.lo, found.value, found.hi) == pytest.approx((1, 1, 1))
