"""Tokens as text, where a tokenizer's file lies beside a trace."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from traces.bundle import DATA, ROOT
from traces.trace import Trace

FILE = "tokenizer.json"
_BUNDLED = ROOT / "reference"  # models of the bundled traces of the reference pair


def spelling(trace: Trace) -> Callable[[int], str]:
    """What a token is in text; its id in brackets where there is no tokenizer, or no such token.

    Looked for are tokenizer.json in the trace's folder and in its recording's, and in the target's,
    if the trace names it by its folder. Read are vocabulary and added tokens alone.
    """
    folders = [one.path for one in (trace, trace.recording) if one and one.path]
    recording = trace.recording or trace
    target = recording.manifest.target
    if target is not None:
        folders.append(Path(target.id))
        if recording.path and recording.path.is_relative_to(DATA):
            folders.append(_BUNDLED / target.id)
    file = next((one / FILE for one in folders if (one / FILE).is_file()), None)
    known = {} if file is None else _vocabulary(file)
    return lambda token: known.get(token, f"[{token}]")


def _vocabulary(file: Path) -> dict[int, str]:
    """Each token's text; pieces of letters that are no text by themselves are shown as a mark."""
    read = json.loads(file.read_text(encoding="utf-8"))
    vocabulary = read.get("model", {}).get("vocab", {})
    pairs = vocabulary.items() if isinstance(vocabulary, dict) else ()
    letters = _bytes() if "ByteLevel" in json.dumps(read.get("decoder")) else None
    found = {int(token): _text(piece, letters) for piece, token in pairs}
    return found | {one["id"]: one["content"] for one in read.get("added_tokens", [])}


def _text(piece: str, letters: dict[str, int] | None) -> str:
    if letters is None:
        return piece.replace("▁", " ")
    if not all(letter in letters for letter in piece):
        return piece
    return bytes(letters[letter] for letter in piece).decode("utf-8", "replace")


def _bytes() -> dict[str, int]:
    """The byte that each letter of a byte-level vocabulary stands for (GPT-2's encoder.py)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    found = {chr(byte): byte for byte in plain}
    others = [byte for byte in range(256) if byte not in plain]
    return found | {chr(256 + k): byte for k, byte in enumerate(others)}
