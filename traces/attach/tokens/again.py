"""Whether the rows of a drafter that proposes from tokens alone are what its rule proposes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from traces import files
from traces.attach import registry
from traces.attach.tokens.rule import TokenRule, arguments_of
from traces.errors import DrafterError
from traces.manifest import Manifest
from traces.thin import kept

Arrays = Mapping[str, np.ndarray]
_ROUNDING = 1e-5  # of a probability, on another machine


def check_proposals(
    folder: Path, manifest: Manifest, outputs: Callable[[range], pa.Table]
) -> Iterator[str]:
    """A line for each shard whose rows are not those that the rule proposes, with the first one.

    Other drafters' are not looked at: what a network says is not known without it.

    Args:
        folder: of the attached drafter.
        manifest: of the drafter.
        outputs: gives some of the recording's sequences, checked.

    Raises:
        TraceError: a file is not the one that is listed.
    """
    rule = rule_of(manifest)
    if rule is None:
        return
    memory, (table,) = rule.memory(), manifest.tables
    for shard, name in enumerate(manifest.shard_files(table)):
        first = shard * manifest.batch_size
        mine = outputs(range(first, min(first + manifest.batch_size, manifest.n_prompts)))
        known = mine["prompt_tokens"].combine_chunks().value_lengths()
        if not known.equals(mine["n_prompt"].combine_chunks()):
            return
        parts = [
            rule.found(*arguments_of(mine, k, manifest), memory).rows(first + k)
            for k in range(len(mine))
        ]
        proposed = {
            key: np.concatenate([np.asarray(part[key]) for part in parts]) for key in parts[0]
        }
        types = {field.name: field.type for field in manifest.tables[table]}
        files.bring(folder, manifest, [name])
        found = files.read_hashed(folder, name, manifest.files[name], types)
        there = {key: found[key].to_numpy() for key in types}
        made = {key: kept(proposed[key], table, key, manifest) for key in types}
        yield from _differences(folder / name, manifest, there, made)


def rule_of(manifest: Manifest) -> TokenRule | None:
    """The rule that a drafter was attached with; None if it is no rule, or not known here."""
    if manifest.draft_passes != "none":
        return None
    try:
        found = registry.parse(manifest.spec)
    except DrafterError:
        return None
    return found if isinstance(found, TokenRule) else None


def _differences(file: Path, manifest: Manifest, there: Arrays, proposed: Arrays) -> Iterator[str]:
    """The first row that is not the proposed one, if there is one."""
    n = min(len(there["sequence"]), len(proposed["sequence"]))
    wrong = np.full(n + 1, len(there["sequence"]) != len(proposed["sequence"]))
    wrong[:n] = False
    for name, values in there.items():
        other = proposed[name][:n]
        if values.dtype.kind == "f":
            apart = _ROUNDING + (2.0 ** (1 - manifest.bits) if manifest.bits else 0)
            wrong[:n] |= ~np.isclose(values[:n], other, rtol=apart, atol=apart, equal_nan=True)
        else:
            wrong[:n] |= values[:n] != other
    if not wrong.any():
        return
    row = int(np.argmax(wrong))
    at = there if row < len(there["sequence"]) else proposed
    where = ", ".join(f"{key} {at[key][row]}" for key in ("sequence", "start"))
    yield f"{file}: {where}: not what {manifest.spec} proposes there: attach it anew"
