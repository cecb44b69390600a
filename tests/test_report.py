"""The page: what is on it, what is not and why, and that a browser shows it without the network."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from commands import refused, status
from replay_traces import bare_trace, with_scores
from test_lattice import spelled_out

import simkit
import traces
from analysis import gap
from analysis.figures import FIGURES
from analysis.report import report
from analysis.report.cells import MISSING, number
from simkit.simulator.display import Cell, grid
from traces.sampler import Sampler
from traces.synthetic import iid
from traces.writer import save

pytestmark = pytest.mark.usefixtures("few_requests")

COST = "linear(draft_s=1, target_s=6, target_per_token_s=0.1)"
EVIL = '"><script>alert(1)</script><img src=x onerror=alert(2)>'
TASKS = ("<script>1</script>", "prose")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
DRIVER = shutil.which("chromedriver")


def small(accept_prob=0.7, prompts=12, tasks=TASKS, **more):
    return with_scores(iid(prompts, 40, accept_prob, max_draft=40, seed=1, tasks=tasks, **more))


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """A trace in a folder, whose name and tasks are out for mischief."""
    folder = tmp_path_factory.mktemp("report") / EVIL.replace("/", "")
    save(iid(12, 40, 0.7, max_draft=40, seed=1, tasks=TASKS), folder)
    return folder


@pytest.fixture(scope="module")
def page(trace, tmp_path_factory):
    """The page about it, with all figures, written by the command."""
    out = tmp_path_factory.mktemp("page") / "report.html"
    words = [trace, "-o", out, "--cost", COST, "--policy", "fixed(3)"]
    assert status("report", *words, "--policy", "svip(h=0.3:0.5:0.1)") == 0
    return out


class Parsed(HTMLParser):
    """Tags with their attributes, the text outside style and script, and tables' rows."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text: list[str] = []
        self.rows: list[list[str]] = []
        self._in = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        self._in = tag
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data):
        if self._in in ("style", "script"):
            return
        self.text.append(data)
        if self._in in ("td", "th"):
            self.rows[-1][-1] += data

    def handle_endtag(self, tag):
        self._in = ""

    def all_text(self) -> str:
        return " ".join(" ".join(self.text).split())


def parsed(found) -> Parsed:
    """A page, without NaN, None or infinity in what it shows."""
    one = Parsed(found if isinstance(found, str) else found.html())
    assert not re.search(r"\b(nan|None|inf)\b", one.all_text())
    return one


def test_nothing_gets_in_or_out(page):
    """Names are escaped, there is one script, and pictures are in the file."""
    text = page.read_text()
    assert "<script>alert" not in text and "<script>1" not in text and "<img src=x" not in text
    one = parsed(text)
    assert EVIL.replace("/", "") in one.all_text() and TASKS[0] in one.all_text()
    assert [tag for tag, _ in one.tags].count("script") == 1
    for tag, attributes in one.tags:
        assert not any(name.startswith("on") for name in attributes), tag
        for name in ("src", "href", "srcset", "data", "action"):
            value = attributes.get(name) or "#"
            assert value.startswith(("data:", "#")), (tag, value)
    policy = next(a["content"] for t, a in one.tags if t == "meta" and "http-equiv" in a)
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert page.stat().st_size < 5e6


def test_every_figure_is_there_or_named(page):
    text = page.read_text()
    one = parsed(text)
    drawn = {a["id"].removeprefix("figure-") for tag, a in one.tags if tag == "figure"}
    said = one.all_text()
    for name in FIGURES:
        assert name in drawn or f"{name} : the trace" in said or name in said
    assert "acceptance_head" not in drawn  # there are no scores
    assert len(drawn) > 20
    for tag, attributes in one.tags:
        assert tag != "img" or attributes["alt"]


def test_numbers_are_the_replay(trace, page):
    result = simkit.replay(trace, "fixed(3)", COST)
    (record,) = result.records()
    rows = [row for row in parsed(page.read_text()).rows if row[0] == "fixed(3)"]
    value = f"{record['speedup']:.3f}"
    assert rows[0][1].startswith(value) and rows[1][-1].startswith(value)
    assert rows[0][5] == f"{record['tokens_per_step']:.3f}"
    assert rows[0][-1] == "fixed(3)"


def test_gap_adds_up(page):
    rows = {row[0]: row for row in parsed(page.read_text()).rows if len(row) == 5}
    share = {name: float(rows[name][3].split("%")[0]) for name in ("gap", *PARTS)}
    assert share["gap"] == pytest.approx(sum(share[name] for name in PARTS), abs=0.2)
    assert rows["fixed"][3] == rows["gap"][4] == "100%"


PARTS = ("reachable", "overhead", "unreachable")


def test_says_what_it_is(page):
    said = parsed(page.read_text()).all_text()
    for words in (
        "Γ = 40",
        "12 (",
        "corrected (Holm) for the",
        "upper bounds",
        "--policy",
        "numba",
    ):
        assert words in said
    assert "Without PACER: no scores of pacer" in said


@pytest.mark.parametrize("accept_prob", [0.0, 1.0])
def test_all_one_way(accept_prob):
    """All tokens rejected, or all accepted: a step of fixed(3) gives 1 token, or 4."""
    parsed(report(small(accept_prob), COST, figures=False))
    one = parsed(report(small(accept_prob), COST, policies=["fixed(3)"], figures=False))
    (row,) = (row for row in one.rows if row[-1] == "fixed(3)" and len(row) > 6)
    assert row[5] == f"{1 + 3 * accept_prob:.3f}"
    assert "Without fixed" not in one.all_text()


def test_one_prompt():
    said = parsed(report(small(prompts=1, tasks=("code",)), COST, figures=False)).all_text()
    assert "one prompt: no interval" in said
    assert "One prompt only, so no interval: code." in said


def test_one_prompt_a_task():
    said = parsed(report(small(prompts=3, tasks=("a", "b", "b")), COST, figures=False)).all_text()
    assert "One prompt only, so no interval: a." in said
    assert "Two prompts only, so no usable interval: b." in said


def test_no_times():
    one = parsed(report(small(), policies=["fixed(1:2)"], figures=False))
    assert "No times, so no speeds: give a cost." in one.all_text()
    assert {"fixed(1)", "fixed(2)", "oracle()"} < {row[0] for row in one.rows}


def test_nothing_takes_time():
    said = parsed(report(small(), "linear(draft_s=0, target_s=0)", figures=False)).all_text()
    assert "Under this cost nothing takes time" in said


def test_lattice():
    found = report(spelled_out(small(prompts=6)), COST)
    said = parsed(found).all_text()
    assert "The trace is a lattice" in said
    assert found.pictures and found.pictures.of and found.pictures.skipped
    assert found.policies.tables[0].rows


def test_a_task_s_name_is_no_formula():
    """A $ in a name begins none; `test_figures` draws it."""
    task = "$\\frac{1"
    found = report(
        small(tasks=(task, "code"), prompts=6), COST, policies=["fixed(3)"], figures=False
    )
    assert task in parsed(found).all_text()


def test_bare_trace():
    """Nothing but acceptance: policies that read more are named."""
    said = parsed(report(bare_trace(), COST)).all_text()
    assert "Without SVIP" in said and "entropy_bound" in said


def test_empty_trace():
    empty = iid(0, 20, 0.5, max_draft=10, seed=0)
    assert "empty" in parsed(report(empty, COST)).all_text()


def test_sampled_trace():
    found = report(small(sampler=Sampler(temperature=1.0)), COST, figures=False)
    assert "not with a recording of another draft" in parsed(found).all_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["missing-trace", "-o", "{dir}/x.html"], "missing-trace: no such folder"),
        (["reference", "-o", "/dev/null"], "is no regular file"),
        (["reference", "-o", "{dir}/x.html", "--policy", "svip(<b>)"], "svip"),
        (["reference", "-o", "{dir}/x.html", "--policy", "nobody(1:2)"], "nobody"),
        (["reference", "-o", "{dir}/x.html", "--cost", "nothing(3)"], "nothing"),
        (["reference", "-o", "{dir}/x.html", "--sampled", "gone"], "gone"),
        (["reference"], "--out"),
    ],
)
def test_bad_input(words, said, tmp_path, capsys):
    assert said in refused(capsys, "report", *(word.format(dir=tmp_path) for word in words))
    assert not list(tmp_path.iterdir())


def test_cells():
    assert number(float("nan")) == number(None) == MISSING
    text = grid([EVIL], [[Cell(EVIL, EVIL, EVIL)], [EVIL]], EVIL)
    assert "<script" not in text and "<img" not in text
    assert Parsed(text).rows == [[EVIL], [EVIL], [EVIL]]


def test_results_show_themselves():
    one = small(tasks=("code",))
    specs = ["svip(h=0.1:0.9:0.1)", "confidence(threshold=0.1:0.5:0.1)"]
    shown = [
        simkit.replay(one, "fixed(3)", COST),
        simkit.sweep(one, specs, COST),
        simkit.sweep(one, "fixed(1:40)", COST),
        simkit.sweep(one, ["fixed(1:40)", *specs]),
        simkit.tune(one, specs, COST),
        gap(one, specs, COST),
    ]
    for result in shown:
        html = result._repr_html_()
        assert html.startswith("<table>") and "nan" not in html


def test_fidelity_shows_itself():
    from simkit.fidelity import FidelityResult, PolicyRow

    def filled(kind, **known):
        return kind(**{field.name: 1.0 for field in dataclasses.fields(kind)} | known)

    row = filled(PolicyRow, policy=EVIL)
    found = filled(FidelityResult, rows=[row], pairs=[], drifts=[], notes=[])
    html = found._repr_html_()
    assert "median 100.0%" in html and "<script" not in html


def test_says_what_it_does():
    parts: list[str] = []
    report(
        small(), COST, figures=False, watch=lambda part: contextlib.nullcontext(parts.append(part))
    )
    assert parts == ["recorded", "policies", "claims"]


def test_heads_show_themselves():
    pytest.importorskip("torch")
    from simkit.heads import files

    folder = Path(traces.__file__).parent / "reference" / "heads"
    html = files.load(folder / "pacer.safetensors")._repr_html_()
    assert "auc reached" in html and "top-1 probability" in html


@pytest.fixture
def browser(tmp_path):
    """Chromium without a head, its logs kept."""
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("there is no chromium with a chromedriver")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (
        "headless",
        "no-sandbox",
        "disable-gpu",
        "disable-quic",
        "disable-dev-shm-usage",
        "no-first-run",
        "disable-background-networking",
        "disable-component-update",
        "disable-sync",
        f"user-data-dir={tmp_path / 'profile'}",
        "window-size=1280,900",
    ):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, Service(DRIVER))
    yield driver
    driver.quit()


def requested(driver, page: str) -> list[str]:
    """What the page asked for, by its address; the browser's own start page does not count."""
    events = (json.loads(entry["message"])["message"] for entry in driver.get_log("performance"))
    return [
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent" and event["params"]["documentURL"] == page
    ]


def column(driver, table: str, k: int) -> list[float]:
    """What the rows that show are sorted by; what is missing is NaN."""
    script = """return [...document.querySelectorAll(`#${arguments[0]} tbody tr`)]
        .filter(row => !row.hidden).map(row => row.cells[arguments[1]].dataset.value)"""
    return [float(value or "nan") for value in driver.execute_script(script, table, k)]


def test_in_a_browser(browser, page):
    """No error, no request, tables that sort by click and key, filters, a picture that shows."""
    from matplotlib.image import imread
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.select import Select

    browser.get(page.as_uri())
    assert browser.get_log("browser") == []
    assert {url.split(":")[0] for url in requested(browser, page.as_uri())} == {"file", "data"}
    broken = "return [...document.images].filter(i => !i.complete || !i.naturalWidth).length"
    assert browser.execute_script(broken) == 0
    browser.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
    wide = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert browser.execute_script(wide) == 0

    head = browser.find_elements(By.CSS_SELECTOR, "#policies thead th")[2]  # against best fixed
    button = head.find_element(By.TAG_NAME, "button")
    button.click()
    assert head.get_attribute("aria-sort") == "ascending"
    got = np.array(column(browser, "policies", 2))
    there = got[~np.isnan(got)]
    assert len(there) > 3 and list(there) == sorted(there)
    assert np.isnan(got[len(there) :]).all()  # what is missing comes last, either way
    button.send_keys(Keys.ENTER)
    assert head.get_attribute("aria-sort") == "descending"
    got = np.array(column(browser, "policies", 2))
    assert list(got[: len(there)]) == sorted(there, reverse=True)
    assert np.isnan(got[len(there) :]).all()

    verdict = Select(browser.find_element(By.CSS_SELECTOR, ".filters select[data-column='0']"))
    verdict.select_by_value("cannot be tested")
    shown = browser.find_elements(By.CSS_SELECTOR, "#claims-table tbody tr:not([hidden])")
    assert shown and all("cannot be tested" in row.text for row in shown)

    browser.execute_script("window.scrollTo(0, 0)")
    pixels = imread(io.BytesIO(browser.get_screenshot_as_png()))
    assert pixels.shape[:2] >= (600, 1200) and len(np.unique(pixels.reshape(-1, 4), axis=0)) > 50

    assert browser.get_log("browser") == []
    browser.execute_script("new Image().src = 'http://localhost:9/x.png'")
    (refused,) = browser.get_log("browser")
    assert "Content Security Policy" in refused["message"]
