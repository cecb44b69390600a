"""Where the data are that come with simkit, and which of them the wheel of the code leaves out.

A checkout has all of them in `traces`. The wheel `draft-simkit` has a part; the wheel
`draft-simkit-data` has all that a replay can use, laid out alike in the module `draft_simkit_data`.
What pip installed from a checkout finds that checkout's, as long as it stays where it was.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from traces.manifest import Manifest

_HERE = Path(__file__).parent
_MODULE = "draft_simkit_data"
PACKAGE = "draft-simkit-data: pip install draft-simkit-data, or ./draft-simkit-data in a checkout"

LEFT_OUT = (
    "ladder",
    "ladder-sampled",
    "reference-sampled",
    "reference-target",
    "reference-trees",
    "reference-trees-sampled",
    "reference/drafters/pard",
    "reference/scores/pacer-local-block.parquet",
    "reference/scores/pacer-local-draft.parquet",
    "reference/scores/pacer-no-position.parquet",
    "reference/scores/pacer-no-rope.parquet",
    "smollm2",
    "smollm2-long",
    "smollm2-sampled",
)
"""Paths in `DATA` that are not in the wheel `draft-simkit`; pyproject.toml lists what is in it."""

LADDER_TARGET = "simkit/smollm2-135m-instruct"
LADDER_DRAFTS = {
    "rungs/exit8": "its first eight layers and a trained copy of its last",
    "rungs/pruned15": "15 of its 30 layers, trained on its answers",
    **{
        f"rungs/q{name}": f"its weights rounded to {name[0]} bits"
        for name in ("2-g16", "3-g16", "3-g32", "3-g64", "4-g64")
    },
}
"""What of their target drafts of the ladder are made of, by `ModelInfo.id` of the draft."""


def root(here: Path) -> Path:
    """The folder that holds data/, reference/ and smollm2/.

    Args:
        here: the folder of the package `traces`: taken if it is a checkout's, which has all, or if
            no other place has all.
    """
    if (here / "data" / LEFT_OUT[0]).is_dir():
        return here
    spec = find_spec(_MODULE)
    places = (spec.submodule_search_locations or ()) if spec is not None else ()
    return next((Path(place) for place in places if (Path(place) / "data").is_dir()), _whence(here))


def _whence(here: Path) -> Path:
    """The package `traces` of the checkout that pip installed this one from; else this one.

    pip writes down where it found what it installed (PEP 610). What cannot be read names no place.
    """
    place = here
    with suppress(PackageNotFoundError, ValueError, KeyError, TypeError):
        installed = distribution("draft-simkit")
        url = urlsplit(json.loads(installed.read_text("direct_url.json") or "")["url"])
        is_own = Path(str(installed.locate_file("traces"))).resolve() == here.resolve()
        if is_own and url.scheme == "file":
            place = Path(url2pathname(url.path), "traces")
    return place if (place / "data" / LEFT_OUT[0]).is_dir() else here


ROOT = root(_HERE)
DATA = ROOT / "data"  # the bundled traces
ABSENT = frozenset(one for one in LEFT_OUT if not (DATA / one).exists())  # here and now


def absent(path: Path | str | None, inside: str = "") -> str | None:
    """What to tell a user who asks for what only `draft-simkit-data` has; None of all else.

    Args:
        path: a bundled trace's folder, or its name; None is a trace in memory.
        inside: the path of a file or a folder in it; "" is the trace itself.
    """
    if path is None:
        return None
    folder = DATA / path  # an absolute path stays what it is
    if not folder.is_relative_to(DATA):
        return None
    parts = (folder / inside).relative_to(DATA).parts
    if not {"/".join(parts[:n]) for n in range(1, len(parts) + 1)} & ABSENT:
        return None
    return f"{'/'.join(parts)} is in the package {PACKAGE}"


def more_of(path: Path | None) -> list[str]:
    """A note for results over all that a bundled trace has, where a part of it is absent."""
    if path is None or path.parent != DATA:
        return []
    parts = [one.split("/", 1)[1] for one in sorted(ABSENT) if one.startswith(f"{path.name}/")]
    names = ", ".join(part.removesuffix(".parquet") for part in parts)
    return [f"{path.name}: more of it ({names}) is in the package {PACKAGE}"] if parts else []


def other_traces() -> list[str]:
    """A note for lists of bundled traces, where some are absent."""
    names = ", ".join(sorted(one for one in ABSENT if "/" not in one))
    return [f"more traces ({names}) are in the package {PACKAGE}"] if names else []


def present(folder: Path, manifest: Manifest) -> Manifest:
    """A bundled trace's manifest, without added files that are absent; any other as it is."""
    if not ABSENT or folder.parent != DATA:
        return manifest
    there = {n: info for n, info in manifest.files.items() if absent(folder, n) is None}
    return replace(manifest, files=there)
