"""How two manifests differ: why a recording does not go on."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from traces import reading
from traces.decoding import in_json
from traces.errors import TraceError
from traces.manifest import Manifest

_SETTINGS = ("config.json", "drafter.json")  # of a model's folder
_MOST_BYTES = 16 * reading.MEBIBYTE
_LONG = 60  # characters of a value; of a longer one the hash is kept


def settings_of(*places: object) -> dict[str, str]:
    """What models' folders say beside weights, by file and name; a hub id's is in its revision.

    Raises:
        TraceError: a file cannot be read.
    """
    folders = [Path(place) for place in places if isinstance(place, str | Path)]
    found = {}
    for file in (folder / name for folder in folders for name in _SETTINGS):
        if not file.is_file():
            continue
        text = reading.read_text(file, _MOST_BYTES, TraceError)
        values = reading.parse_json(text, file, TraceError)
        whose = "/".join(file.resolve().parts[-2:])  # no more of a path of this machine
        for name, value in values.items() if isinstance(values, dict) else ():
            said = json.dumps(value, sort_keys=True)
            is_long = len(said) > _LONG
            known = hashlib.sha256(said.encode()).hexdigest() if is_long else said
            found[f"{whose}: {name}"] = known
    return found


def difference(there: Manifest, here: Manifest) -> str | None:
    """The first header field in which two manifests differ, in words; None if they agree."""
    old, new = asdict(there), asdict(here)
    for name in old:
        if name == "settings" and not there.settings:  # finished, or by an earlier version
            continue
        if name not in ("complete", "files", "warned", "near_ties"):
            found = _first_difference(name, old[name], new[name])
            if found:
                return found
    return None


def _first_difference(name: str, old: Any, new: Any) -> str | None:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            found = _first_difference(f"{name}.{key}", old.get(key), new.get(key))
            if found:
                return found
        return None
    return None if old == new else f"{name} is {in_json(old)} there, {in_json(new)} here"


def refusal(there: Manifest, here: Manifest) -> str | None:
    """Why the recording that is there does not go on here, and what to do; None if it does."""
    found = difference(there, here)
    if found is None:
        return None
    if found.startswith("prompts_sha256 ") and there.template_sha256 != here.template_sha256:
        return (
            "the recording was begun with another chat template, so its prompts are others: give"
            " the tokenizer of then, or begin anew"
        )
    if found.startswith("libraries."):
        names = sorted(there.libraries.keys() | here.libraries.keys())
        versions = [(name, there.libraries.get(name), here.libraries.get(name)) for name in names]
        changed = ", ".join(f"{name} {old} → {new}" for name, old, new in versions if old != new)
        return (
            f"the recording was begun with other library versions ({changed}), and sums differ in"
            " the last bits between them: go on with the old ones, or begin anew"
        )
    if found.startswith("device "):
        return (
            f"the recording was begun on another device ({found}), and sums differ in the last bits"
            " between them: go on there, or begin anew"
        )
    if found.startswith("prompts_sha256 "):
        return (
            "the recording was begun with other prompts (their token ids differ): give those, or"
            " begin anew"
        )
    if found.startswith("settings."):
        return (
            "the recording was begun with other settings of a model"
            f" ({found.removeprefix('settings.')}): change them back, or begin anew"
        )
    if found.startswith("outputs"):
        return "the recording was begun with another file of outputs: give that, or begin anew"
    return f"the output folder holds another trace: {found}"
