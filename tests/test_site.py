"""The built site: every link leads somewhere, nothing is fetched, and what is sought is near.

`make docs` builds it and runs these; they build it by themselves too, again only what has changed.
"""

from __future__ import annotations

import fcntl
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from inspect import isfunction
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PARTS = ("sphinx", "myst_nb", "furo", "sphinx_copybutton", "sphinx_design")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not all(map(find_spec, PARTS)), reason="pip install --group docs"),
]
sys.path.append(str(ROOT / "docs" / "_ext"))
import links  # noqa: E402

SOUGHT = {  # from the first page, by links of the texts alone
    "how to add a policy": "docs/extending.html#a-policy",
    "how to record on eight GPUs": "docs/record.html#on-eight-gpus",
    "how to read a claim": "docs/claims.html#how-a-verdict-comes-about",
    "the claims": "docs/claims.html#all-claims-on-reference",
    "how to resume a recording": "docs/newcomer.html#record",
    "the rule of a policy": "docs/policies.html",
    "an option of a command": "docs/command-line.html#simkit-record",
    "a figure": "docs/gallery.html",
    "what goes to an engine": "docs/engines.html",
}
DOORS = ("record", "choose", "papers", "serving", "extending")


@pytest.fixture(scope="module")
def site():
    """The folder of the site, up to date."""
    build = ROOT / "build" / "docs"
    build.mkdir(parents=True, exist_ok=True)
    strict = ["-q", "-W", "--keep-going", "-c", "docs", "-d", "build/docs/doctrees"]
    with open(build / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = [sys.executable, "-m", "sphinx", *strict, ".", "build/docs/html"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return build / "html"


@pytest.fixture(scope="module")
def pages(site):
    return links.read(site)


def test_every_link_leads_somewhere_and_nothing_is_fetched(site, pages):
    assert len(pages) > 50
    assert not list(links.broken(pages, site))


def test_a_broken_site_is_found_out(tmp_path):
    text = '<a id="here" href="no.html"></a><a href="#gone"></a><a href="#here"></a>'
    (tmp_path / "a.html").write_text(text + '<script src="https://cdn.example/x.js"></script>')
    wrong = list(links.broken(links.read(tmp_path), tmp_path))
    assert [line.split(": ")[1] for line in wrong] == [
        "would fetch https://cdn.example/x.js",
        "no page no.html",
        "no anchor #gone",
    ]


@pytest.mark.parametrize("sought", SOUGHT.values(), ids=SOUGHT)
def test_what_is_sought_is_three_clicks_away(site, pages, sought):
    name, _, anchor = sought.partition("#")
    path = site / name
    assert not anchor or anchor in pages[path].anchors
    assert links.clicks(pages, site / "docs/index.html")[path] <= 3


def test_the_first_page_opens_the_doors(site, pages):
    for name in ("index.html", "docs/index.html"):
        assert links.clicks(pages, site / name)
    away = links.clicks(pages, site / "docs/index.html")
    assert {away[site / f"docs/{door}.html"] for door in DOORS} == {1}


def test_every_page_can_be_reached(site, pages):
    away = links.clicks(pages, site / "docs/index.html")
    frame = ("index.html", "search.html", "genindex.html", "py-modindex.html")
    lost = {path.relative_to(site).as_posix() for path in pages} - set(frame)
    lost -= {path.relative_to(site).as_posix() for path in away}
    assert not lost


def test_every_notebook_is_a_page_with_its_pictures(site, pages):
    for notebook in sorted((ROOT / "notebooks").glob("*.ipynb")):
        page = pages[site / "notebooks" / f"{notebook.stem}.html"]
        assert any("_images" in link for link in page.loaded), notebook


@pytest.mark.parametrize(
    "module", ["traces", "simkit", "simkit.policies", "simkit.costs", "simkit.serving", "analysis"]
)
def test_public_names_are_in_the_reference(site, module):
    text = "".join(page.read_text(encoding="utf-8") for page in site.glob("docs/api/*.html"))
    public = import_module(module)
    found = {name: getattr(public, name) for name in public.__all__}
    for name, one in found.items():
        if isinstance(one, type) or isfunction(one):  # by any of its homes
            assert f'.{name}"' in text, name


def test_every_command_is_in_the_reference(site):
    from simkit.cli import _HELP

    text = (site / "docs/command-line.html").read_text(encoding="utf-8")
    assert not [name for name in _HELP if f'id="simkit-{name}"' not in text]


def test_search_finds_a_policy_and_a_claim(site):
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    assert "drafts_pay" in index or "drafts_pai" in index
    assert '"svip"' in index or "svip:" in index
