"""How long the explorer takes to redraw: `python -m benchmarks.explore_speed`.

A slider of a policy's argument, or of c, is moved over its values, on a prompt of the longest
output. Python: from the value's change until all that changed was handed to Bokeh. Browser: from
the change of the slider's value in the page until a frame in which point and text have changed was
drawn, so with the way to the server and back; in a headless Chromium without a GPU, on the cores
that serve the page. A slider's first move stands by itself, since the page may have to compile what
it runs.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from analysis.explore.model import ExploreModel
from analysis.explore.page import TWO, Page
from analysis.study import Study
from benchmarks.browser import CHROMIUM, DRIVER, chromium, explorer, opened, until

TARGET_S = 0.1
SLIDERS = {"A: length": (2, 3, 4, 5), "B: h": (0.5, 0.6, 0.7, 0.8), "c": (5, 10, 15, 20)}
ORDER = {"A: length": 2, "B: h": 4, "c": 0}
"""Of a slider's handle in the page."""
# The point must move. The text must, too, but under another cost, which changes no step. What is
# looked at is found before, so that looking takes no time to speak of.
MOVE = """
const [k, value, done] = arguments;
const slider = window.models().filter(m => m.type == 'Slider')[k];
const sources = window.models().filter(
  m => m.type == 'ColumnDataSource' && window.column(m, 'now'));
const roots = window.everywhere('.tokens').map(one => one.getRootNode());
const points = () => '' + sources.map(one => [...window.column(one, 'y')]);
const texts = () => roots.map(one => one.querySelector('.tokens')?.textContent).join();
const before = [points(), texts()];
const changed = () => points() != before[0] && (k < 2 || texts() != before[1]);
const begin = performance.now();
slider.value = value;
const look = () => changed() ? requestAnimationFrame(() => done(performance.now() - begin))
  : performance.now() - begin > 5000 ? done(-1) : requestAnimationFrame(look);
requestAnimationFrame(look);
"""


def main() -> None:
    """Print the seconds of each slider."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("trace", nargs="?", default="reference")
    parser.add_argument("--rounds", type=int, default=10, help="over the values of each slider")
    given = parser.parse_args()
    if given.rounds < 1:
        parser.error("--rounds must be at least 1")
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores,", end=" ")
    print(f"load {os.getloadavg()[0]:.1f}, Python {platform.python_version()},", end=" ")
    print(f"panel {version('panel')}, bokeh {version('bokeh')}; target ≤ {1e3 * TARGET_S:g} ms")
    print(f"{'slider':12}{'where':10}{'first, ms':>12}{'median, ms':>12}{'worst, ms':>12}")
    for name, seconds in python_s(given.trace, given.rounds).items():
        _print(name, "Python", seconds)
    if not (CHROMIUM and DRIVER):
        print("no chromium with a chromedriver: not timed in a browser")
        return
    for name, seconds in browser_s(given.trace, given.rounds).items():
        _print(name, "browser", seconds)


def python_s(trace: str, rounds: int) -> dict[str, list[float]]:
    """Seconds of each move of each slider, without a browser."""
    page = Page(ExploreModel(Study(trace)))
    page.cost.value = TWO
    widgets: dict[str, Any] = {
        "A: length": page.sides["A"].widget("length"),
        "B: h": page.sides["B"].widget("h"),
        "c": page.ratio,
    }
    found: dict[str, list[float]] = {name: [] for name in SLIDERS}
    for _ in range(rounds):
        for name, values in SLIDERS.items():
            for value in values:
                began = time.perf_counter()
                widgets[name].value = value
                found[name].append(time.perf_counter() - began)
    return found


def browser_s(trace: str, rounds: int) -> dict[str, list[float]]:
    """Seconds of each move of each slider, in a page; of arguments, over a slider's places."""
    found: dict[str, list[float]] = {name: [] for name in SLIDERS}
    with (
        tempfile.TemporaryDirectory() as folder,
        explorer(trace) as (_, address),
        chromium(Path(folder), (1400, 1480)) as driver,
    ):
        opened(driver, address)
        buttons = driver.execute_script("return window.everywhere('button')")
        next(one for one in buttons if one.text == TWO).click()
        at = driver.execute_script("return window.points()")
        until(lambda: driver.execute_script("return window.points()") != at)
        for _ in range(rounds):
            for name, k in ORDER.items():
                for value in SLIDERS[name] if name == "c" else (3, 6, 9, 12):
                    ms = driver.execute_async_script(MOVE, k, value)
                    assert ms >= 0, f"{name} = {value}: nothing changed in 5 s"
                    found[name].append(ms / 1e3)
    return found


def _print(name: str, where: str, seconds: list[float]) -> None:
    first, *others = [1e3 * one for one in seconds]
    median, worst = statistics.median(others), max(others)
    print(f"{name:12}{where:10}{first:12.1f}{median:12.1f}{worst:12.1f}", flush=True)


if __name__ == "__main__":
    main()
