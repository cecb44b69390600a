"""Where bundled data are found: in a checkout, in the data package, or not at all."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import simkit
import traces
from traces import bundle, finding, scores
from traces.errors import UserError

ROOT = Path(__file__).parents[1]
SAID = f"is in the package {bundle.PACKAGE}"


def copy_without(folder: Path, left_out: tuple[str, ...]) -> None:
    """The bundled data, linked to, as a wheel has them."""
    data = ROOT / "traces" / "data"
    for file in data.rglob("*"):
        path = file.relative_to(data).as_posix()
        if file.is_file() and not any(f"{path}/".startswith(f"{one}/") for one in left_out):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).symlink_to(file)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What the wheel of the code installs, linked to the checkout's files."""
    folder = tmp_path_factory.mktemp("site")
    for name in ("simkit", "analysis"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "traces").mkdir()
    for one in (ROOT / "traces").iterdir():
        if one.name not in ("data", "smollm2", "recipes"):
            (folder / "traces" / one.name).symlink_to(one)
    copy_without(folder / "traces" / "data", bundle.LEFT_OUT)
    return folder


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A search path with the data package on it."""
    folder = tmp_path_factory.mktemp("data-package")
    copy_without(folder / "draft_simkit_data" / "data", ())
    (folder / "draft_simkit_data" / "__init__.py").touch()
    return folder


def simkit_of(path, *words):
    """A command, run by the packages on a search path alone."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path))}
    command = [sys.executable, "-m", "simkit", *words]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=path[0], env=environment
    )


@pytest.mark.parametrize("name", ["smollm2", "reference/drafters/pard", "smollm2/drafters/feature"])
def test_what_is_not_there_is_named_with_its_package(alone, name):
    done = simkit_of([alone], "info", name)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"simkit: {name} {SAID}\n")


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--drafter", "pard", "--policy", "fixed(3)"), "drafters/pard"),
        (("--policy", "pacer(head=pacer-no-rope)"), "scores/pacer-no-rope.parquet"),
    ],
)
def test_a_part_that_is_not_there_is_named_with_its_package(alone, words, what):
    done = simkit_of([alone], "replay", "reference", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"simkit: reference/{what} {SAID}\n"


def test_what_is_there_alone(alone):
    done = simkit_of([alone], "info", "reference", "--format", "json")
    found = json.loads(done.stdout)
    assert done.returncode == 0 and found["hash"] == traces.load("reference").hash
    assert set(found["drafters"]) == {"eagle", "ngram", "pard2", "prompt_lookup", "suffix"}
    (note,) = done.stderr.splitlines()
    assert note.startswith("note: reference: more of it (drafters/pard, scores/pacer-local-block, ")
    assert note.endswith(SAID)
    done = simkit_of([alone], "validate", "reference")
    assert done.returncode == 0, done.stderr
    done = simkit_of([alone], "info", "smolm2")
    assert "did you mean smollm2?" in done.stderr and done.returncode == 2


def test_lists_name_what_is_not_there(alone, package):
    done = simkit_of([alone], "list", "traces")
    assert done.stdout.startswith("reference  ") and done.stdout.count("\n") == 1
    assert done.stderr.startswith("note: more traces (ladder, ladder-sampled, ")
    assert done.stderr.endswith(f", smollm2-sampled) {SAID.replace('is', 'are', 1)}\n")
    done = simkit_of([alone], "list", "traces", "smollm2")
    assert (done.returncode, done.stderr) == (2, f"simkit: smollm2 {SAID}\n")
    done = simkit_of([alone, package], "list", "traces")
    assert (done.stdout.count("\n"), done.stderr) == (10, "")


def test_the_data_package_is_found(alone, package):
    for name in ("smollm2", "reference/drafters/pard", "reference"):
        done = simkit_of([alone, package], "info", name, "--format", "json")
        assert (done.returncode, done.stderr) == (0, "")
        found = json.loads(done.stdout)["path"]
        assert Path(found) == package / "draft_simkit_data" / "data" / name


def test_a_checkout_goes_before_the_data_package(package, monkeypatch):
    monkeypatch.syspath_prepend(package)
    assert bundle.root(ROOT / "traces") == ROOT / "traces" == bundle.ROOT
    assert bundle.ABSENT == frozenset() and bundle.absent("smollm2") is None
    assert bundle.more_of(bundle.DATA / "reference") == []


def test_what_pip_installed_from_a_checkout_finds_its_data(alone, tmp_path):
    """As long as it is there; of the checkout of another installation nothing is taken: `alone`."""
    site, info = tmp_path / "site", tmp_path / "site" / "draft_simkit-0.1.0.dist-info"
    info.mkdir(parents=True)
    for name in ("simkit", "analysis", "traces"):
        (site / name).symlink_to(alone / name)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: draft-simkit\nVersion: 0.1.0\n")
    for text, there in (
        (json.dumps({"url": ROOT.as_uri(), "dir_info": {}}), True),
        (json.dumps({"url": (tmp_path / "moved").as_uri(), "dir_info": {}}), False),
        (json.dumps({"url": f"git+ssh://x.org{ROOT}", "vcs_info": {}}), False),
        (json.dumps({"url": ["x"]}), False),
        ("[", False),
        ("{}", False),
        ("", False),
    ):
        (info / "direct_url.json").write_text(text)
        done = simkit_of([site], "info", "smollm2", "--format", "json")
        assert (done.returncode == 0) == there
        if there:
            assert Path(json.loads(done.stdout)["path"]) == bundle.DATA / "smollm2"
        else:
            assert done.stderr == f"simkit: smollm2 {SAID}\n"


def test_a_data_package_without_data_is_none(alone, tmp_path, monkeypatch):
    (tmp_path / "draft_simkit_data").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert bundle.root(alone / "traces") == alone / "traces"


def test_heads_of_parts_that_are_not_there(alone, monkeypatch):
    """Figures and claims, which leave out what is missing, say the same."""
    for module in (bundle, finding):
        monkeypatch.setattr(module, "DATA", alone / "traces" / "data")
    monkeypatch.setattr(bundle, "ABSENT", frozenset(bundle.LEFT_OUT))
    trace = traces.load("reference")
    assert scores.facts(trace, "pacer") and scores.facts(trace, "pacer-no-rope") is None
    wanted = f"reference/scores/pacer-no-rope.parquet {SAID}"
    assert scores.lack(trace, "pacer-no-rope") == wanted
    assert scores.lack(trace, "mine") == "no scores of mine"
    with pytest.raises(UserError, match="write them with simkit score"):
        simkit.replay(trace, "specdecpp(head=mine)")


def test_all_that_is_bundled_is_listed():
    """The wheel's list of data and what it leaves out are two views of one tree."""
    data = ROOT / "traces" / "data"
    assert all((data / one).exists() for one in bundle.LEFT_OUT)
    inside = {name for name in finding.bundled() if name not in bundle.LEFT_OUT}
    assert inside == {"reference"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    listed = project["tool"]["setuptools"]["package-data"]["traces"]
    there = {data.parent / path for glob in listed for path in data.parent.glob(glob)}
    tops = {one.relative_to(data).parts[0] for one in there if one.is_relative_to(data)}
    whole = {one.name for one in data.iterdir()} - set(bundle.LEFT_OUT)
    assert tops == whole


def test_both_packages_are_of_one_version():
    code = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    data = tomllib.loads((ROOT / "draft-simkit-data" / "pyproject.toml").read_text())["project"]
    assert data["version"] == code["version"]
    assert data["dependencies"] == [f"{code['name']}=={code['version']}"]
    assert code["optional-dependencies"]["data"] == [f"{data['name']}=={data['version']}"]
    (every,) = map(Requirement, code["optional-dependencies"]["all"])
    assert "data" not in every.extras  # a checkout has the data, and asks no index for them


@pytest.mark.parametrize("name", ["numba", "polars", "transformers"])
def test_ceilings_are_what_is_tested(name):
    """The minor version that CI installs is the last one allowed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *project["optional-dependencies"]["record"]]
    (allowed,) = (one.specifier for one in map(Requirement, lines) if one.name == name)
    pinned = dict(
        line.split("==")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    )
    tested = Version(pinned[name])
    assert allowed.contains(tested)
    assert not allowed.contains(f"{tested.major}.{tested.minor + 1}.0")
