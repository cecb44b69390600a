"""A text's tokens as HTML: what became of each is told by colour and by form."""

from __future__ import annotations

import math
from collections.abc import Callable
from html import escape

from analysis.explore.tokens import Text, Token

COLOURS = {"accepted": "#b9e3c0", "rejected": "#f4c9bd", "own": "#bcd7f2"}
WORDS = {
    "accepted": "accepted: drafted, and the target's token too",
    "rejected": "rejected: drafted and thrown away",
    "own": "the target's own: bonus, correction, or no draft",
}
STYLE = (
    ".tokens { font: 13px/1.75 ui-monospace, monospace; white-space: pre-wrap; color: #111;"
    " overflow-wrap: anywhere; max-height: 340px; overflow-y: auto; background: #fff;"
    " border: 1px solid #bbb; padding: 6px }"
    " .tokens span { border-radius: 2px } .tokens .first { margin-left: 3px }"
    " .rejected { text-decoration: line-through; font-size: 11px }"
    " .own { box-shadow: inset 0 -2px #2b6cb0 }"
    " .legend span { padding: 0 4px; margin-right: 8px; color: #111 }"
) + "".join(f" .{kind} {{ background: {colour} }}" for kind, colour in COLOURS.items())

Spell = Callable[[int], str]


def legend() -> str:
    """What the colours mean."""
    parts = (f'<span class="{kind}">{escape(says)}</span>' for kind, says in WORDS.items())
    return f'<div class="legend">{"".join(parts)}</div>'


def html(text: Text, spell: Spell) -> str:
    """A text; a gap parts steps, and hovering over a token says what is known of it."""
    parts: list[str] = []
    step = 0
    for token in text.tokens:
        opens = token.step != step
        lost = text.thrown[step - 1] if opens and step else 0
        parts += [_lost(lost)] if lost else []
        step = token.step
        parts.append(_span(token, spell, opens))
    rest = text.thrown[step - 1] if step else 0
    parts += [_lost(rest)] if rest else []
    return f'<div class="tokens" tabindex="0">{"".join(parts)}</div>'


def spelled(token: Token, spell: Spell) -> str:
    """A token as it is written; ends of lines are marked, an unknown one is a dot."""
    if token.token is None:
        return "·"
    return spell(token.token)


def _span(token: Token, spell: Spell, opens: bool) -> str:
    word = spelled(token, spell)
    shown = escape(word).replace("\n", "↵" if token.kind == "rejected" else "↵\n")
    names = f"{token.kind} first" if opens else token.kind
    return f'<span class="{names}" title="{escape(_said(token))}">{shown}</span>'


def _lost(count: int) -> str:
    says = f"{count} more drafted in this step and thrown away"
    return f'<span class="rejected" title="{says}">×{count}</span>'


def _said(token: Token) -> str:
    words = [
        f"position {token.position}",
        f"step {token.step}",
        WORDS[token.kind].partition(":")[0],
    ]
    words += [f"depth {token.depth}"] if token.depth else []
    names = ("draft entropy", "draft probability", "overlap")
    for name, value in zip(names, token.signals, strict=True):
        words += [] if math.isnan(value) else [f"{name} {value:.3g}"]
    return ", ".join(words)
