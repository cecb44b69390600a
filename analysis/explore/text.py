"""A text's tokens as HTML: what became of each is told by colour and by form."""

from __future__ import annotations

import math
from collections.abc import Callable
from html import escape

from analysis.explore.tokens import ShownToken, TokenText

COLOURS = {"accepted": "#b9e3c0", "rejected": "#f4c9bd", "own": "#bcd7f2"}
WORDS = {
    "accepted": "accepted: drafted, and the target's token too",
    "rejected": "rejected: drafted and thrown away",
    "own": "the target's own: bonus, correction, or no draft",
}
SIGNS = ("H", "q", "β")
HOVER = (
    "Hover: position; of a drafted token its depth d, the draft's entropy H in nats and probability"
    " q of it, and the overlap β of draft and target."
)
STYLE = (
    ".tokens { font: 13px/1.75 ui-monospace, monospace; white-space: pre-wrap; color: #111;"
    " overflow-wrap: anywhere; max-height: 340px; overflow-y: auto; background: #fff;"
    " border: 1px solid #bbb; padding: 6px }"
    " .tokens div { content-visibility: auto; contain-intrinsic-size: auto 90px }"
    " .tokens span { border-radius: 2px } .tokens .first { margin-left: 3px }"
    " .r { text-decoration: line-through; font-size: 11px }"
    " .o { box-shadow: inset 0 -2px #2b6cb0 }"
    " .legend span { padding: 0 4px; margin-right: 8px; color: #111 }"
) + "".join(f" .{kind[0]} {{ background: {colour} }}" for kind, colour in COLOURS.items())

_BLOCK = 8  # tokens

Spell = Callable[[int], str]


def legend() -> str:
    """What the colours mean."""
    parts = (f'<span class="{kind[0]}">{escape(says)}</span>' for kind, says in WORDS.items())
    return f'<div class="legend">{"".join(parts)} {HOVER}</div>'


def html(text: TokenText, spell: Spell) -> str:
    """A text; a gap parts steps, and hovering over a token says what is known of it.

    Some lines are a block, of which the browser lays out only those that are in sight.
    """
    parts: list[str] = ["<div>"]
    step = began = 0
    for token in text.tokens:
        opens = token.step != step
        lost = text.thrown[step - 1] if opens and step else 0
        parts += [_lost(lost)] if lost else []
        step = token.step
        parts.append(_span(token, spell, opens))
        if len(parts) > began + _BLOCK and parts[-1].endswith("\n</span>"):
            began = len(parts)
            parts.append("</div><div>")
    rest = text.thrown[step - 1] if step else 0
    parts += [_lost(rest)] if rest else []
    return f'<div class="tokens" tabindex="0">{"".join(parts)}</div></div>'


def spelled(token: ShownToken, spell: Spell) -> str:
    """A token as it is written; ends of lines are marked, an unknown one is a dot."""
    if token.token is None:
        return "·"
    return spell(token.token)


def _span(token: ShownToken, spell: Spell, opens: bool) -> str:
    """Short, as hundreds of them are sent whenever a slider moves."""
    shown = escape(spelled(token, spell)).replace("\n", "↵" if token.kind == "rejected" else "↵\n")
    name = f'"{token.kind[0]} first"' if opens else token.kind[0]
    return f'<span class={name} title="{_said(token)}">{shown}</span>'


def _lost(count: int) -> str:
    return f'<span class=r title="{count} more drafted in this step">×{count}</span>'


def _said(token: ShownToken) -> str:
    words = [f"{token.position}"] + ([f"d {token.depth}"] if token.depth else [])
    for sign, value in zip(SIGNS, token.signals, strict=True):
        words += [] if math.isnan(value) else [f"{sign} {value:.3g}"]
    return ", ".join(words)
