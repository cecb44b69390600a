"""Pages in a headless Chromium, for tests and timings: shadow roots, Bokeh's models, keys."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
DRIVER = shutil.which("chromedriver")
_FLAGS = (
    "headless",
    "no-sandbox",
    "disable-gpu",
    "disable-quic",
    "disable-dev-shm-usage",
    "no-first-run",
    "disable-background-networking",
    "disable-component-update",
    "disable-sync",
)
LOOK = """
window.everywhere = (selector, root = document) => {
  const found = [...root.querySelectorAll(selector)];
  for (const one of root.querySelectorAll('*'))
    if (one.shadowRoot) found.push(...window.everywhere(selector, one.shadowRoot));
  return found;
};
window.models = () => [...Bokeh.documents[0]._all_models.values()];
window.handles = () => window.everywhere('.noUi-handle');  // c, overhead, those of A, of B
window.column = (source, name) => source.data instanceof Map ? source.data.get(name)
  : source.data[name];
window.points = () => window.models().filter(
  m => m.type == 'ColumnDataSource' && window.column(m, 'now')
  ).map(m => ['policy', 'x', 'y'].map(name => window.column(m, name)[0]));
window.texts = () => window.everywhere('.tokens').map(one => one.textContent);
"""


@contextmanager
def chromium(folder: Path, size: tuple[int, int] = (1280, 900)) -> Iterator[Any]:
    """A browser without a head, with a profile in a folder; its errors are kept."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    assert CHROMIUM and DRIVER
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*_FLAGS, f"user-data-dir={folder / 'profile'}", "window-size={},{}".format(*size)):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, Service(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


@contextmanager
def explorer(*words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`simkit explore`, and its address."""
    command = [sys.executable, "-m", "simkit", "explore", *words, "--no-show", "--port", "0"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert running.stdout is not None
        line = running.stdout.readline()
        assert line.startswith("http://"), line
        yield running, line.split()[0]
    finally:
        running.terminate()
        running.communicate(timeout=20)


def until(true: Callable[[], Any], seconds: float = 60) -> Any:
    """What a call gives once it gives something true.

    Raises:
        TimeoutError: it never does.
    """
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := true():
            return found
        time.sleep(0.05)
    raise TimeoutError


def opened(driver: Any, address: str) -> None:
    """Open the explorer, and wait until both texts are there."""
    driver.get(address)
    driver.execute_script(LOOK)
    until(lambda: driver.execute_script("return window.Bokeh?.documents?.length > 0"))
    until(lambda: len(driver.execute_script("return window.texts()")) == 2)
    until(lambda: len(driver.execute_script("return window.points()")) == 2)
