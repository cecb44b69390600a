"""Times that were taken badly, or of other models: every output that shows a speed says so."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pair_folders import pair, pair_folder
from pair_folders import simkit as command
from test_conditions import timed
from typer.testing import CliRunner

import simkit
from analysis.claims import beside, check
from analysis.claims.claim import claims
from analysis.compare import compare
from analysis.explore.model import ExploreModel
from analysis.figures import FIGURES
from analysis.figures.tables import tables
from analysis.gap import gap
from analysis.priced import Priced
from analysis.report import report
from analysis.study import Study
from simkit.cli import app
from simkit.costs import parse
from simkit.costs.passes import rounds_apart
from simkit.costs.timed_models import TimedModels
from simkit.engines import export
from simkit.errors import CostError
from simkit.serving import Engine, serve
from traces import schema
from traces.conditions import CONTROL, Conditions, TimedModel, conditions, worse
from traces.manifest import ModelInfo
from traces.samples import with_own
from traces.synthetic import iid
from traces.trace import Trace, load
from traces.writer import add_file, save

WEAK = Conditions(load=15.0, others=13.0, cores=2, prompts=2, rounds=1)
SAID = (
    "weak times: nothing was timed twice as a control, load 15.0 on 2 cores, others kept 13.0 cores"
    " busy, 2 prompts, 1 round"
)
QUIET = Conditions("it", 0.01, 0.4, 0.1, 2, 12, 3)


def info(name: str, weights: str, dtype: str = "float32", size: int = 10) -> ModelInfo:
    return ModelInfo(name, None, weights, dtype, 100, size, "Some", {"n_layers": 2})


TARGET, DRAFT = info("toys/target", "aa"), info("toys/draft", "bb")
OTHER = "acceptance and times are of different pairs: acceptance of toys/target"


def without_control(table: pa.Table) -> pa.Table:
    control = pc.starts_with(table["component"], CONTROL)  # pyright: ignore
    return table.filter(pc.invert(control))  # pyright: ignore


def samples(known: Conditions, rounds: int = 3) -> pa.Table:
    return known.kept_in(without_control(timed(rounds, 0.01)))


def named() -> Trace:
    trace = iid(12, 30, 0.7, max_draft=16, seed=1)
    manifest = replace(trace.manifest, target=TARGET, draft=DRAFT)
    return Trace(manifest, trace._source, trace.path)


@pytest.fixture(scope="module")
def weak(tmp_path_factory) -> str:
    """A recorded pair, timed once on a crowded machine while it decoded two prompts."""
    place = tmp_path_factory.mktemp("weak") / "toy"
    save(named(), place)
    add_file(place, "latency.parquet", samples(WEAK))
    return str(place)


@pytest.mark.parametrize(
    ("known", "said"),
    [
        (QUIET, ""),
        (replace(QUIET, apart=None), "nothing was timed twice as a control, load 0.4"),
        (replace(QUIET, apart=0.06), "6% apart"),
        (replace(QUIET, load=3.1), "weak times: load 3.1 on 2 cores"),
        (replace(QUIET, others=0.5), "others kept 0.5 cores busy"),
        (replace(QUIET, load=15.0, cores=64, others=2.0), ""),
        (replace(QUIET, prompts=2), "weak times: 2 prompts, 3 rounds"),
        (replace(QUIET, prompts=1), "weak times: 1 prompt, 3 rounds"),
        (replace(QUIET, rounds=1), "weak times: 12 prompts, 1 round"),
        (replace(QUIET, prompts=None, rounds=None), ""),
        (WEAK, SAID),
    ],
)
def test_what_makes_times_weak(known, said):
    assert said in known.warning and bool(known.warning) == bool(said)


def test_what_is_known_survives_a_table_and_what_cannot_be_known_does_not():
    known = replace(WEAK, target=TimedModel.of(TARGET), draft=TimedModel("d"))
    assert conditions(samples(known)) == known
    for text in (b'{"apart": "x", "load": true, "cores": -1}', b"[]", b'{"target": 3}', b"{"):
        table = samples(WEAK).replace_schema_metadata({b"conditions": text})
        assert conditions(table) == Conditions()
    mixed = b'{"prompts": 2, "target": ["a", "b", "c", 1], "draft": ["a"], "control": 5}'
    found = conditions(samples(WEAK).replace_schema_metadata({b"conditions": mixed}))
    whole = TimedModel("a", "b", "c", 1)
    assert found == Conditions(prompts=2, target=whole, draft=TimedModel("a"))


def test_of_several_controls_the_worst_counts():
    table = timed(3, 0.0, apart=0.5)
    names = [name.replace("target", "draft") for name in table["component"].to_pylist()]
    good = timed(3, 0.0).set_column(0, table.schema.field(0), pa.array(names, pa.string()))
    for both in (pa.concat_tables([good, table]), pa.concat_tables([table, good])):
        assert conditions(both).apart == pytest.approx(0.5)


def test_a_drafters_own_passes_without_control_weaken_those_of_the_recording():
    known, own = samples(QUIET), samples(WEAK)
    own = own.filter(pc.field("component") == "draft")
    assert SAID in conditions(with_own(known, own)).warning
    proposal = pa.array(["proposal"] * own.num_rows)
    proposals = own.set_column(0, own.schema.field(0), proposal)
    assert not conditions(with_own(known, proposals)).warning
    joined = worse(replace(QUIET, apart=0.2), WEAK)
    assert joined.apart is None and joined.prompts == 2 and joined.load == 15.0


def test_a_log_of_live_runs_knows_its_prompts_and_rounds():
    rows = [(0, r, "baseline", s, "sequence", 1.0) for r in range(3) for s in range(5)]
    names = ("run", "round", "policy", "sequence", "kind", "seconds")
    given = dict(zip(names, zip(*rows, strict=True), strict=True))
    empty = {f.name: ["" if f.type == pa.string() else 0] * len(rows) for f in schema.LIVE}
    log = pa.table({**empty, **given}, schema=schema.LIVE)
    found = rounds_apart(log, Conditions())
    assert (found.prompts, found.rounds) == (5, 3)
    assert rounds_apart(log.filter(pc.field("round") == 0), Conditions()).rounds == 1


def invoked(*words: str) -> str:
    found = CliRunner().invoke(app, list(words))
    assert found.exit_code == 0, found.output
    return " ".join((found.output + found.stderr).split())


FIXED = ("--policy", "fixed(1:3)")
COMMANDS = {
    **{
        f"{name} {form}": (name, *words, "--format", form)
        for form in ("table", "json", "csv")
        for name, *words in (
            ("replay", "TRACE", "--policy", "fixed(2)"),
            ("sweep", "TRACE", *FIXED),
            ("tune", "TRACE", *FIXED),
            ("compare", "TRACE", "TRACE2", "--policy", "fixed(2)"),
            ("serving", "TRACE", "--controller", "static(2)", "--rate", "5", "--max-batch", "1"),
        )
    },
    "claims": ("claims", "TRACE", "--format", "markdown"),
    "claims csv": ("claims", "TRACE", "--format", "csv"),
    "figures": ("figures", "TRACE", "--out", "OUT", "--only", "optimal_gain"),
    "export": ("export", "TRACE", "--engine", "vllm", "-o", "OUT.json"),
    "export tuned": ("export", "TRACE", "--engine", "vllm", *FIXED, "-o", "OUT.json"),
    "info": ("info", "TRACE"),
}


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_every_command_says_that_its_times_are_weak(words, weak, tmp_path):
    other = tmp_path / "other"
    save(load(weak), other)
    add_file(other, "latency.parquet", samples(WEAK))
    places = {"TRACE": weak, "TRACE2": str(other)}
    words = [places.get(word, word).replace("OUT", str(tmp_path / "out")) for word in words]
    assert SAID in invoked(*words)


ALONE = Engine(max_batch=1)
RESULTS = {
    "replay": lambda t, c: simkit.replay(t, "fixed(2)", cost=c),
    "drafters": lambda t, c: simkit.replay(t, {"own": "fixed(2)"}, cost=c),
    "comparison": lambda t, c: simkit.replay(t, ["fixed(1)", "fixed(2)"], cost=c).compare(
        "fixed(1)", "fixed(2)"
    ),
    "sweep": lambda t, c: simkit.sweep(t, "fixed(1:3)", cost=c),
    "tune": lambda t, c: simkit.tune(t, "fixed(1:3)", cost=c),
    "serve": lambda t, c: serve(t, "static(2)", c, rate=5, requests=9, engine=ALONE),
    "gap": lambda t, c: gap(t, "svip", c),
    "compare": lambda t, c: compare(
        t, iid(12, 30, 0.6, max_draft=16, seed=2), cost=c or str(t.path / "latency.parquet")
    ),
    "claims": lambda t, c: check(t, c, claims=list(claims())[:1], placebo=None),
    "beside": lambda t, c: beside([check(t, c, claims=list(claims())[:1], placebo=None)]),
}


@pytest.mark.parametrize("made", RESULTS.values(), ids=RESULTS)
def test_every_result_shows_it(made, weak):
    shown = made(load(weak), None)._repr_html_()
    assert SAID.removeprefix("w") in " ".join(shown.split())


def words_of(drawn) -> str:
    return " ".join(" ".join(t.get_text() for t in drawn.ax.texts).split())


@pytest.mark.parametrize("name", ["optimal_gain", "timeline"])
def test_every_figure_that_takes_a_cost_says_it_in_caption_and_notes(name, weak):
    """One decorator makes all of them: in full where the caption has room, else in short."""
    drawn = FIGURES[name].under(Study(weak), None)
    assert "eak times" in words_of(drawn)
    assert SAID.removeprefix("w") in drawn.notes[0]


@pytest.mark.parametrize("name", ["runtime_breakdown", "pearl_strategies"])
def test_figures_under_a_papers_times_say_so_by_themselves(name):
    drawn = FIGURES[name].draw(named())
    assert OTHER.partition(":")[0].removeprefix("a") in words_of(drawn)
    assert OTHER.removeprefix("a") in drawn.notes[0]


def test_tables_pages_and_the_explorer_say_it(weak):
    filled, _ = tables(weak)
    assert filled and all(SAID.removeprefix("w") in one.note for one in filled)
    assert any(SAID.removeprefix("w") in line for line in report(weak, figures=False).caveats)
    assert SAID in ExploreModel(Study(weak)).remarks
    pytest.importorskip("panel")
    from analysis.explore.page import Page

    assert SAID in Page(ExploreModel(Study(weak))).remarks.object
    assert SAID in export(load(weak), "vllm").notes


ELSEWHERE = {
    "atlas(target=qwen3-8b, draft=qwen3-0.6b)": "times of qwen3-8b with qwen3-0.6b (the latency",
    "pearl:llama2-7b-70b": "times of llama2-70b with llama2-7b (the preset pearl:llama2-7b-70b)",
    "pacer:deepseek-1.3b-33b": "times of deepseek-33b with deepseek-1.3b (the preset",
    "roofline(device=h100, target=llama2-70b, draft=llama2-7b)": "times of llama2-70b with",
}


@pytest.mark.parametrize("cost", ELSEWHERE)
def test_times_of_another_pair_are_said_to_be_that(cost):
    note = f"{OTHER}, {ELSEWHERE[cost]}"
    assert simkit.replay(named(), "fixed(2)", cost=cost).notes[0].startswith(note)


@pytest.mark.parametrize("made", RESULTS.values(), ids=RESULTS)
def test_every_result_says_that_times_are_of_another_pair(made):
    assert OTHER.removeprefix("a") in made(named(), "pearl:llama2-7b-70b")._repr_html_()


def test_times_of_the_same_models_are_not():
    trace = named()
    manifest = replace(
        trace.manifest, target=info("Qwen/Qwen3-8B", "cc"), draft=info("Qwen/Qwen3-0.6B", "dd")
    )
    same = Trace(manifest, trace._source, None)
    notes = simkit.replay(same, "fixed(2)", cost="atlas(target=qwen3-8b, draft=qwen3-0.6b)").notes
    assert not any("pair" in note for note in notes)
    notes = simkit.replay(same, "fixed(2)", cost="atlas(target=qwen3-8b, draft=qwen2.5-0.5b)").notes
    mine = "acceptance of Qwen/Qwen3-8B with Qwen/Qwen3-0.6B"  # the target is the same
    assert notes[0].startswith(f"acceptance and times are of different pairs: {mine}, times of")
    assert not simkit.replay(trace, "fixed(2)", cost="linear(draft_s=1, target_s=6)").notes


def test_a_file_of_samples_is_held_to_the_models_that_it_names(tmp_path):
    trace, file = named(), tmp_path / "cost.parquet"

    def notes(known: Conditions) -> list[str]:
        pq.write_table(samples(known), file)
        return [n for n in simkit.replay(trace, "fixed(2)", cost=str(file)).notes if "pair" in n]

    ours = QUIET.of_models(TARGET, DRAFT)
    assert notes(ours) == []
    assert notes(replace(ours, draft=None)) == []
    (said,) = notes(QUIET)
    assert said == f"times may be another pair's: {file} does not name its models"
    (said,) = notes(QUIET.of_models(TARGET, info("toys/draft", "other")))
    assert said.startswith(OTHER)
    half = info("toys/draft", "other", "bfloat16")
    assert notes(QUIET.of_models(TARGET, half)) == []  # the same model in another dtype
    assert notes(QUIET.of_models(TARGET, replace(half, n_parameters=11)))
    unnamed = iid(12, 30, 0.7, max_draft=16, seed=1)
    pq.write_table(samples(ours), file)
    (said,) = [n for n in simkit.replay(unnamed, "fixed(2)", cost=str(file)).notes if "pair" in n]
    assert said.startswith("times may be another pair's: the trace does not name its target")


def test_a_file_of_numbers_may_name_its_models(tmp_path):
    trace, file = named(), tmp_path / "cost.json"
    numbers = {"kind": "linear", "draft_s": 1, "target_s": 6}

    def notes(models: object) -> list[str]:
        file.write_text(json.dumps(numbers | {"models": models}))
        return simkit.replay(trace, "fixed(2)", cost=str(file)).notes

    ours = QUIET.of_models(TARGET, DRAFT)
    both = TimedModels(ours.target, ours.draft, "").written()
    assert notes(both) == [] and notes({"target": both["target"]}) == []
    (said,) = notes(both | {"draft": both["draft"] | {"weights_sha256": "other"}})
    assert said == f"{OTHER} with toys/draft, times of toys/target with toys/draft ({file})"
    one = both["target"]
    for wrong in ("x", None, {"target": "x"}, {"drafter": one}, {"target": one | {"id": 1}}):
        with pytest.raises(CostError, match=f"{file}: models: needs a target or a draft, each"):
            notes(wrong)
    with pytest.raises(CostError, match="only a cost's file can name the models"):
        parse("linear(draft_s=1, target_s=6, timed=3)")


@pytest.mark.parametrize("kind", ["pair", "trees", "server"])
def test_live_logs_name_their_models(tmp_path_factory, kind):
    root = pair_folder(tmp_path_factory.mktemp("live"))
    more = {
        "pair": ["--policy", "fixed(2)"],
        "trees": ["--policy", "eagle2(top_k=2, depth=2)", "--policy", "eagle2(top_k=2, depth=1)"],
        "server": ["--controller", "static(2)", "--concurrency", 2],
    }[kind]
    given = ["--prompts", root / "prompts.jsonl", "--max-new-tokens", 8, "--n-prompts", 3]
    words = ["live", *pair(root), *given, "--rounds", 1, *more, "-o", root / "log.parquet"]
    assert command(words) in (0, 1)
    known = conditions(pq.read_table(root / "log.parquet"))
    manifest = load(root / "trace").manifest
    assert known.target is not None and known.draft is not None
    assert known.target == TimedModel.of(manifest.target)
    assert known.draft == TimedModel.of(manifest.draft)
    if kind == "pair":
        file = str(root / "log.parquet")
        (said,) = [n for n in simkit.replay(named(), "fixed(2)", cost=file).notes if "pair" in n]
        ids = known.target.id, known.draft.id
        assert said == f"{OTHER}, times of {' with '.join(ids)} ({file})"


def test_the_samples_of_another_trace_are_those_of_its_models(tmp_path, weak):
    other = Trace(replace(named().manifest, draft=info("toys/draft", "zz")), named()._source, None)
    save(other, tmp_path / "other")
    add_file(tmp_path / "other", "latency.parquet", samples(QUIET))
    file = str(tmp_path / "other" / "latency.parquet")
    assert simkit.replay(weak, "fixed(2)", cost=file).notes[0].startswith(OTHER)
    assert not simkit.replay(str(tmp_path / "other"), "fixed(2)", cost=file).notes[1:]
    add_file(tmp_path / "other", "latency.parquet", samples(QUIET.of_models(TARGET, DRAFT)))
    (said,) = simkit.replay(str(tmp_path / "other"), "fixed(2)").notes
    assert said.startswith("acceptance and times are of different pairs")


def test_a_preset_keeps_its_name_with_other_numbers_too():
    found = parse("pearl:llama2-7b-70b(target_s=1)").times(named())
    assert found.models is not None and found.models.where == "the preset pearl:llama2-7b-70b"
    with pytest.raises(CostError, match="unknown preset 'pearl'"):
        parse("linear(draft_s=1, target_s=6, preset=pearl)")


def test_records_stay_as_they_were(weak):
    """Notes are beside the numbers; the numbers are those of the same times."""
    before = simkit.replay(weak, "fixed(2)").records()
    assert json.dumps(before) and np.isfinite(before[0]["speedup"])


def test_whose_times_they_are_is_said_by_drafter_and_recording():
    watched = Priced()
    for name, drafter in (("reference", None), ("reference", "pard2"), ("smollm2", None)):
        watched.add(load(name, drafter), lines=["slow"] if name == "reference" else [])
    assert watched.sentences() == ("For reference, pard2 of reference: slow.",)
    alone = Priced()
    for drafter in ("pard2", "suffix"):
        alone.add(load("reference", drafter), lines=["slow"] if drafter == "pard2" else [])
    assert alone.sentences() == ("For pard2: slow.",)
