"""What README and changelog count is what is there."""

import re
import tomllib
from pathlib import Path

import yaml

from analysis.claims import claims
from analysis.figures import FIGURES
from simkit.policies.registry import names

ROOT = Path(__file__).parents[1]
PAGES = ("policies.md", "trees.md")


def counted(page, pattern):
    """All numbers that a page gives where the pattern's group stands."""
    found = re.findall(pattern, (ROOT / page).read_text(encoding="utf-8"))
    assert found, f"{page} says nothing like {pattern}"
    return {int(number) for number in found}


def test_claims_are_counted():
    n_claims = len(claims())
    assert counted("README.md", r"(\d+) claims made by five papers") == {n_claims}
    assert counted("docs/papers.md", r"(\d+) claims of the five papers") == {n_claims}
    assert counted("CHANGELOG.md", r"`simkit claims`: (\d+) ") == {n_claims}


def test_figures_are_counted():
    assert counted("CHANGELOG.md", r"`simkit figures`: (\d+) figures") == {len(FIGURES)}
    (over,) = counted("README.md", r"over (\d+) figures")
    assert over <= len(FIGURES) < over + 10


def test_policies_are_counted_and_described():
    assert counted("README.md", r"(\d+) policies") == {len(names())}
    pages = [(ROOT / "docs" / page).read_text(encoding="utf-8") for page in PAGES]
    assert not [name for name in names() if not any(f"`{name}(" in page for page in pages)]


def test_notebooks_are_counted():
    n_notebooks = len(list(ROOT.glob("notebooks/*.ipynb")))
    assert counted("README.md", r"(\d+) \[notebooks\]") == {n_notebooks}
    assert counted("CHANGELOG.md", r"(\d+) notebooks, from") == {n_notebooks}


def test_the_citation_is_of_this_version():
    """The keys that CFF 1.2 asks for, and the project's own facts."""
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert cited["cff-version"] == "1.2.0" and cited["type"] == "software"
    assert cited["message"] and cited["title"] and cited["authors"]
    assert all(set(author) == {"name"} for author in cited["authors"])  # an entity
    assert str(cited["version"]) == project["version"]
    assert cited["license"] == project["license"] and cited["keywords"] == project["keywords"]


def test_files_that_pages_name_are_there():
    """NAME and other words in capitals stand for any name."""
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), ROOT / "benchmarks/README.md"]
    rooms = "simkit|traces|analysis|benchmarks|tests|notebooks"
    named = {
        (page.name, path)
        for page in pages
        for path in re.findall(rf"(?<![\w/.-])(?:{rooms})/[\w./-]*\w", page.read_text("utf-8"))
    }
    assert len(named) > 100
    missing = [at for at in named if not any(ROOT.glob(re.sub(r"\b[A-Z]+\b", "*", at[1])))]
    assert not [(page, path) for page, path in missing if not any(ROOT.glob(f"{path}.*"))]


def test_people_wrote_few_pages_and_words():
    """What a program prints is left out: its parts are made when the site is built."""
    made = {"tables.md", "smollm2-answers.md"}
    written = [page for page in (ROOT / "docs").glob("*.md") if page.name not in made]
    pages = [ROOT / "README.md", *written]
    words = [
        word for page in pages for word in page.read_text("utf-8").split() if re.search(r"\w", word)
    ]
    assert len(pages) <= 35
    assert len(words) <= 45_000
