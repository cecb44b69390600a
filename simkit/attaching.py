"""What an attachment was asked for, kept beside its shards: `--resume` needs nothing else."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from simkit.recording import NOTE
from traces.errors import DrafterError

DRAFTERS = "drafters"


@dataclass(frozen=True)
class AttachRequest:
    """The options of `simkit attach` under their names; `name` has one for each drafter."""

    drafter: list[str]
    name: list[str]
    target: str | None = None
    max_draft: int = 40
    draft_temperature: float | None = None
    columns: str | None = None
    tree: list[str] | None = None
    device: str = "auto"
    dtype: str | None = None
    revision: str | None = None

    def note(self, folder: Path) -> None:
        """Keep it in a drafter's folder until all shards are there."""
        from traces.outputs import write_atomic

        target = self.target
        if target is not None and Path(target).exists():
            target = str(Path(target).resolve())
        known = asdict(replace(self, target=target))
        write_atomic(folder / NOTE, json.dumps(known, indent=1).encode())


def asked_before(trace: Path) -> AttachRequest:
    """What the unfinished attachment in a trace was asked for.

    Raises:
        DrafterError: there is none that says it, or there are several.
    """
    found: dict[str, AttachRequest] = {}
    for note in sorted((trace / DRAFTERS).glob(f"*/{NOTE}")):
        try:
            text = note.read_text(encoding="utf-8")
            found[text] = AttachRequest(**json.loads(text))
        except (OSError, ValueError, TypeError):
            continue
    if not found:
        raise DrafterError(
            f"{trace}: no unfinished attachment has its options there: give --drafter"
        )
    if len(found) > 1:
        names = " or ".join(", ".join(one.name) for one in found.values())
        raise DrafterError(f"{trace}: several attachments are unfinished ({names}): give --drafter")
    return next(iter(found.values()))
