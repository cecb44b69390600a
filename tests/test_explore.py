"""The explorer: what it shows is the replay, and a browser shows it."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path

import numpy as np
import pytest
from commands import refused
from replay_traces import with_scores
from test_lattice import spelled_out

import simkit
from analysis import explore as package
from analysis.explore.arguments import arguments
from analysis.explore.model import ExploreModel, point
from analysis.explore.text import html
from analysis.study import Study
from benchmarks.browser import CHROMIUM, DRIVER, chromium, explorer, opened, until
from simkit.policies import get, names, parse
from traces.errors import UserError
from traces.synthetic import iid
from traces.trace import load

COST = "linear(draft_s=1, target_s=6, overhead_s=1)"
SPECS = ("fixed(3)", "fixed(0)", "svip(h=0.8)", "heuristic", "llamacpp(p_min=0.5)", "oracle")


@pytest.fixture(scope="module")
def reference():
    return ExploreModel(Study("reference"))


def eagle():
    from traces import load

    return ExploreModel(Study(load("reference", "eagle")))


def made():
    return ExploreModel(Study(iid(6, 30, 0.6, max_draft=40, seed=3)), COST)


MODELS = {
    "reference": lambda: ExploreModel(Study("reference")),
    "eagle": eagle,
    "made up": made,
    "lattice": lambda: ExploreModel(
        Study(spelled_out(with_scores(iid(4, 20, 0.6, max_draft=20, seed=3)))), COST
    ),
    "smollm2": lambda: ExploreModel(Study("smollm2")),
}


@pytest.mark.parametrize("kind", MODELS)
def test_colours_are_the_steps(kind):
    """Of every prompt: accepted and own tokens are the output, rejected is drafted - accepted."""
    model = MODELS[kind]()
    for spec in ("fixed(3)", "heuristic(initial=5, max_draft=6)", "oracle"):
        run = model.replay(parse(spec))
        for index in range(min(5, model.study.trace.n_sequences)):
            text = model.text(run, index)
            drafted, accepted = (int(run.counts[x][index]) for x in ("drafted", "accepted"))
            made = [token for token in text.tokens if token.kind != "rejected"]
            assert [token.position for token in made] == list(range(1, len(made) + 1))
            assert len(made) == model.study.layout.n_output[index]
            assert [token.token for token in made] == (model.output(index) or [None] * len(made))
            assert text.count("accepted") == accepted
            assert text.count("rejected") == drafted - accepted
            assert len(text.thrown) == run.counts["steps"][index]


@pytest.mark.parametrize("spec", SPECS)
def test_points_are_the_replay(reference, spec):
    (record,) = simkit.replay("reference", spec).records()
    found = point(reference.replay(parse(spec)))
    assert found.speedup == pytest.approx(record["speedup"])
    assert found.tokens_per_step == pytest.approx(record["tokens_per_step"])
    assert (found.steps, found.drafted, found.accepted) == tuple(
        record[name] for name in ("steps", "drafted", "accepted")
    )


def test_rejected_tokens_are_the_recorded_ones(reference):
    """The first rejected token of a step is the draft's at that position."""
    run = reference.replay(parse("fixed(4)"))
    text = reference.text(run, 3)
    trace = reference.study.trace
    origin = trace.position_offsets[3]
    own = {token.step: token for token in text.tokens if token.kind == "own"}
    for token in text.tokens:
        if token.kind == "rejected" and token.position == own[token.step].position:
            assert token.token == trace.positions("draft_token")[origin + token.position - 1]
            entropy = trace.positions("draft_entropy")[origin + token.position - 1]
            assert token.signals[0] == pytest.approx(float(entropy))


def test_a_moved_cost():
    """With c and no overhead the speedup of fixed(k) is (drafted / c + steps) to the baseline."""
    model = made()
    model.price(4.0, 0.0)
    fast = point(model.replay(parse("fixed(2)"))).speedup
    model.price(4.0, 0.5)
    slow = point(model.replay(parse("fixed(2)"))).speedup
    model.price_own()
    own = point(model.replay(parse("fixed(2)"))).speedup
    (record,) = simkit.replay(model.study.trace, "fixed(2)", COST).records()
    assert fast > slow and own == pytest.approx(record["speedup"])
    line = model.line()
    assert [one.policy for one in line][:3] == ["fixed(0)", "fixed(1)", "fixed(2)"]
    assert line[2].speedup == pytest.approx(own)


def test_without_times():
    model = ExploreModel(Study(iid(3, 20, 0.5, max_draft=10, seed=0)))
    assert model.own is None and point(model.replay(parse("fixed(1)"))).speedup > 0


@pytest.mark.parametrize("name", names())
def test_arguments_hold(name):
    """Every value of every argument makes a policy by itself, and the defaults together do."""
    cls = get(name)
    found = arguments(cls, 40)
    cls(**{one.name: one.default for one in found})
    for one in found:
        assert one.default in one.values and len(set(one.values)) == len(one.values)
        for value in one.values:
            cls(**{one.name: value})


def test_fewer_than_the_default():
    (deepest,) = [one for one in arguments(get("svip"), 8) if one.name == "max_draft"]
    assert deepest.default == 8 and deepest.values == tuple(range(9))


def test_names_are_escaped(reference):
    text = reference.text(reference.replay(parse("fixed(3)")), 0)
    shown = html(text, lambda token: "<script>&")
    assert "<script>" not in shown and "&lt;script&gt;&amp;" in shown


def test_trees():
    model = ExploreModel(Study(load("reference-trees", "eagle-tree")))
    run = model.replay(parse("tree_svip(h=0.8)"))
    text = model.text(run, 0)
    assert text.count("rejected") == sum(text.thrown) > 0
    assert text.count("accepted") + text.count("own") == model.study.layout.n_output[0]
    assert "×" in html(text, model.spell)


def test_without_the_extra(capsys, monkeypatch):
    monkeypatch.setattr(package, "find_spec", lambda name: None)
    assert "pip install 'draft-simkit[explore]'" in refused(capsys, "explore", "reference")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["missing-trace"], "missing-trace: no such folder"),
        (["reference", "--drafter", "nobody"], "nobody"),
        (["reference", "--cost", "nothing(3)"], "nothing"),
        (["reference", "--port", "70000"], "65535"),
        (["reference-target"], "--drafter"),
        ([], "trace"),
    ],
)
def test_bad_input(words, said, capsys):
    pytest.importorskip("panel")
    assert said in refused(capsys, "explore", *words)


def test_ctrl_c_is_quiet():
    pytest.importorskip("panel")
    words = [sys.executable, "-m", "simkit", "explore", "reference", "--no-show", "--port", "0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, **pipes) as running:
        assert running.stdout.readline().startswith("http://127.0.0.1:")
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=30)
    assert running.returncode == 0 and err == ""


def test_the_panel_object():
    """What a cell shows; A moves alone when it is set, and what cannot be is said."""
    pytest.importorskip("panel")
    from analysis.explore.page import OWN, TWO, Page

    page = Page(made())
    assert page.cost.options == [OWN, TWO]
    before = {name: page.texts[name].object for name in "AB"}
    page.sides["A"].widget("length").value = 2
    assert page.texts["A"].object != before["A"] and page.texts["B"].object == before["B"]
    assert page.frontier.now["A"].data["policy"] == ["fixed(2)"]
    assert page.frontier.trail["A"].data["policy"] == ["fixed(5)"]
    after = dict(page.texts["A"].param.values())["object"]
    page.cost.value = TWO
    page.ratio.value = 20
    assert page.texts["A"].object is after and not page.frontier.trail["A"].data["x"]
    page.sides["A"].widget("max_draft").value = 5
    page.sides["A"].widget("length").value = 9
    assert "length" in page.error.object and page.error.visible
    page.sides["A"].widget("length").value = 1
    assert not page.error.visible


def test_explore_gives_what_a_cell_shows():
    panel = pytest.importorskip("panel")
    from analysis.explore import explore

    assert isinstance(explore(made().study, cost=COST), panel.Column)
    assert isinstance(explore("reference", drafter="eagle"), panel.Column)


def test_messages_do_not_wait_for_each_other(monkeypatch):
    """The page's socket, of whatever class Panel has it, sends at once; served twice, once."""
    panel = pytest.importorskip("panel")
    from bokeh.server.urls import per_app_patterns
    from bokeh.server.views.ws import WSHandler

    from analysis.explore.serve import serve

    def taken(*_, **__):
        raise OSError("no port today")

    before = list(per_app_patterns)
    monkeypatch.setattr(panel, "serve", taken)
    try:
        for _ in range(2):
            with pytest.raises(UserError, match="no port today"):
                serve("reference", None, 1, False)
        (socket,) = (one[1] for one in per_app_patterns if issubclass(one[1], WSHandler))
    finally:
        per_app_patterns[:] = before
    seen = []

    class Opened(socket):
        def __init__(self):
            pass

        def set_nodelay(self, value):
            seen.append(value)

    with pytest.raises(AttributeError):  # it has no request
        Opened().open()
    assert seen == [True]


def test_other_hosts_are_refused():
    """A page of another site whose name was made to lead here (DNS rebinding) is answered 421."""
    pytest.importorskip("panel")
    with explorer("reference") as (_, address):
        port = int(address.rstrip("/").rpartition(":")[2])
        own = f"127.0.0.1:{port}", f"LocalHost:{port}"
        other = (
            f"evil.example:{port}",
            "127.0.0.1",
            "evil.example",
            f"127.0.0.1:{port}.evil.example",
        )
        for path in ("/static/js/bokeh.min.js", "/"):
            found = {host: status(port, path, host) for host in (*own, *other)}
            assert found == {**dict.fromkeys(own, 200), **dict.fromkeys(other, 421)}


def status(port, path, host):
    one = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        one.request("GET", path, headers={"Host": host})
        return one.getresponse().status
    finally:
        one.close()


@pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason="no chromium with a chromedriver")
def test_in_a_browser(tmp_path):
    """A key on a slider moves the point and the text; nothing is asked of the network."""
    pytest.importorskip("panel")
    from selenium.webdriver.common.keys import Keys

    with explorer("reference") as (_, address), chromium(tmp_path, (1400, 1480)) as driver:
        opened(driver, address)
        ask = driver.execute_script
        before, texts = ask("return window.points()"), ask("return window.texts()")
        assert [name for name, _, _ in before] == ["fixed(5)", "svip(h=0.4)"]
        (record,) = simkit.replay("reference", "fixed(5)").records()
        assert before[0][2] == pytest.approx(record["speedup"])
        saved(driver, "explore.png")

        ask("return window.handles()[2]").send_keys(Keys.ARROW_LEFT)
        until(lambda: ask("return window.points()")[0][0] == "fixed(4)")
        until(lambda: ask("return window.texts()")[0] != texts[0])
        assert ask("return window.texts()")[1] == texts[1]
        assert ask("return window.points()")[1] == before[1]

        (two,) = [
            one for one in ask("return window.everywhere('button')") if one.text == "c and overhead"
        ]
        two.click()
        until(lambda: ask("return window.points()")[1][2] != before[1][2])
        at = ask("return window.points()")
        ask("return window.handles()[0]").send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
        until(lambda: ask("return window.points()")[0][2] > at[0][2])
        for _ in range(8):
            ask("return window.handles()[4]").send_keys(Keys.ARROW_RIGHT)
        until(lambda: ask("return window.points()")[1][0] == "svip(h=0.8)")
        saved(driver, "explore-moved.png")
        pixels = np.frombuffer(driver.get_screenshot_as_png(), np.uint8)
        assert len(pixels) > 50_000
        errors = [one for one in driver.get_log("browser") if one["level"] == "SEVERE"]
        assert errors == []
        assert {url.split("/")[2] for url in requested(driver)} == {address.split("/")[2]}


def requested(driver) -> list[str]:
    """The http addresses that were asked for."""
    events = (json.loads(entry["message"])["message"] for entry in driver.get_log("performance"))
    found = [e["params"] for e in events if e["method"] == "Network.requestWillBeSent"]
    urls = [one["request"]["url"] for one in found]
    return [url for url in urls if url.startswith(("http:", "https:"))]


def saved(driver, name: str) -> None:
    """Keep a picture in the folder EXPLORE_PICTURES, in few colours; docs/ has those of a run."""
    if "EXPLORE_PICTURES" in os.environ:
        from PIL import Image

        shot = Image.open(io.BytesIO(driver.get_screenshot_as_png())).convert("RGB")
        shot.quantize(48).save(Path(os.environ["EXPLORE_PICTURES"]) / name, optimize=True)
