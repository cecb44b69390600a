"""One look for each policy, controller and drafter, the same in every picture.

A look is a colour, a marker, a line and a hatch. Those of one kind differ in their markers and
hatches too, so that they are told apart in grey. What is not listed here (a policy of one's own)
gets a look that follows from its name alone: the same in every picture and on every machine, with
a marker that nothing listed has.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from traces.errors import UserError
from traces.trace import OWN, Trace

INK = "ink"
LINES = ("-", "--", "-.", ":")
HATCHES = ("", "////", "....", "\\\\\\\\", "xxxx", "----", "++++", "oooo")


class Look(NamedTuple):
    """How one series is drawn.

    Attributes:
        hue: in hexadecimal, or `INK`.
        marker: matplotlib's.
        linestyle: matplotlib's.
        hatch: matplotlib's.
    """

    hue: str
    marker: Any
    linestyle: str = "-"
    hatch: str = ""

    @property
    def color(self) -> str:
        """The hue; of ink that of the style's words, which is white on a dark page."""
        if self.hue != INK:
            return self.hue
        from matplotlib import rcParams

        return rcParams["text.color"]

    @property
    def line(self) -> dict[str, Any]:
        """For a line with marks."""
        return {"color": self.color, "marker": self.marker, "linestyle": self.linestyle}

    @property
    def dots(self) -> dict[str, Any]:
        """For marks without a line."""
        return self.line | {"linestyle": ""}

    @property
    def bar(self) -> dict[str, Any]:
        """For a bar or a patch."""
        return {"facecolor": self.color, "hatch": self.hatch}


# Colours of Okabe and Ito (2008) first, then of Tol's muted scheme and two browns.
POLICIES = {
    "fixed": Look("#0072B2", "o", "-", ""),
    "heuristic": Look("#D55E00", "s", "--", "////"),
    "confidence": Look("#009E73", "^", "-.", "...."),
    "svip": Look("#CC79A7", "D", ":", "\\\\\\\\"),
    "acceptance_head": Look("#56B4E9", "v", "-", "xxxx"),
    "pacer": Look("#E69F00", "P", "--", "----"),
    "rate_optimal": Look("#AA4499", "X", "-.", "++++"),
    "adaedl": Look("#332288", "<", ":", "oooo"),
    "specdecpp": Look("#882255", ">", "-", "////"),
    "cumulative_confidence": Look("#117733", "p", "--", "xxxx"),
    "confidence_adaptive": Look("#44AA99", "h", "-.", "----"),
    "draft_verify": Look("#8C564B", "d", ":", "...."),
    "llamacpp": Look("#999933", "8", "-", "++++"),
    "pearl": Look("#CC6677", "H", "--", "oooo"),
    "autoregressive": Look("#7F7F7F", (4, 0, 0), ":", ""),
    "oracle": Look("#7F7F7F", (3, 0, 180), "--", "\\\\\\\\"),
    "prophet": Look(INK, "*", "-", ""),
    "route": Look("#5D3A1A", (6, 1, 0), "--", "////"),
    # Of trees: the colour of the same rule on chains.
    "static": Look("#0072B2", (4, 1, 0), "--", "////"),
    "sequoia": Look("#117733", (4, 1, 45), "-", "////"),
    "eagle2": Look("#D55E00", (3, 1, 0), "-", ""),
    "tree_svip": Look("#CC79A7", (3, 1, 180), "--", "xxxx"),
    "tree_acceptance_head": Look("#56B4E9", (6, 1, 30), "-.", "...."),
    "best_rate": Look("#AA4499", (8, 1, 0), ":", "----"),
    "best_first": Look("#44AA99", (3, 1, 90), "-.", "\\\\\\\\"),
    "tree_prophet": Look(INK, (5, 1, 180), "-", "++++"),
}
"""By the names that specs have."""

CONTROLLERS = {
    "none": Look("#7F7F7F", (4, 0, 0), ":", ""),
    "ema": Look("#D55E00", "p", "--", "////"),
    "by_batch": Look("#009E73", "h", "-.", "...."),
    "budget": Look("#CC79A7", "s", ":", "\\\\\\\\"),
    "goodput": Look("#E69F00", "d", "--", "----"),
    "off_above": Look("#AA4499", "^", "-.", "++++"),
    "all_stopped": Look("#117733", "X", "--", "xxxx"),
    "batch_mean": Look("#44AA99", "P", "-.", "----"),
    "each": Look("#8C564B", "D", ":", "oooo"),
    "prophet": POLICIES["prophet"],
}
"""By the names of their specs; `static` is in `LENGTHS`."""

LENGTHS = (
    Look("#9ECAE1", "v", ":", "...."),
    Look("#56B4E9", "<", "-.", "////"),
    Look("#0072B2", "o", "-", ""),
    Look("#08519C", ">", "--", "xxxx"),
    Look("#332288", "8", "-", "\\\\\\\\"),
    Look("#08306B", "H", "-.", "----"),
)
"""Fixed lengths under load: pale blue is short, dark blue is long."""

DRAFTERS = {
    "own": (Look("#0072B2", "o", "-", ""), Look("#332288", "8", "--", "////")),
    "model": (Look("#0072B2", "o", "-", ""), Look("#332288", "8", "--", "////")),
    "rounds": (Look("#56B4E9", "h", "-.", "...."),),
    "feature": (Look("#D55E00", "s", "--", "////"), Look("#882255", "d", "-.", "----")),
    "mtp": (Look("#8C564B", "p", "-.", "xxxx"),),
    "parallel": (Look("#E69F00", "P", "-.", "...."), Look("#CC79A7", "X", ":", "\\\\\\\\")),
    "block": (Look("#AA4499", "D", "--", "++++"),),
    "prompt_lookup": (Look("#999933", "<", "-", "----"),),
    "ngram": (Look("#009E73", "^", "--", "oooo"), Look("#117733", ">", ":", "++++")),
    "suffix": (Look("#7F7F7F", "v", ":", "xxxx"), Look(INK, "*", "-", "////")),
}
"""By kind, as their specs name it: of one recording the first of a kind, and the second."""

_HUES = tuple(dict.fromkeys(look.hue for look in POLICIES.values()))
_MARKS = ((5, 1, 0), (7, 1, 0), (8, 1, 22.5), (10, 1, 0), (12, 1, 0))  # stars that no other has


def of_name(name: str) -> Look:
    """A look that follows from a name alone, for what is not listed."""
    k = zlib.crc32(name.encode())
    k, hue = divmod(k, len(_HUES))
    k, mark = divmod(k, len(_MARKS))
    k, line = divmod(k, len(LINES))
    return Look(_HUES[hue], _MARKS[mark], LINES[line], HATCHES[k % len(HATCHES)])


def of_policy(spec: object) -> Look:
    """The look of a policy.

    Args:
        spec: a policy, or its spec, of which the name counts.
    """
    name = _name(spec)
    return POLICIES.get(name) or of_name(name)


def of_controller(spec: object) -> Look:
    """The look of a controller; of a policy that every request follows, the policy's.

    Args:
        spec: a controller, or its spec.
    """
    name = _name(spec)
    if name in ("static", "fixed"):
        length = re.search(r"\d+", str(spec))
        return LENGTHS[(int(length[0]) // 2 if length else 2) % len(LENGTHS)]
    return CONTROLLERS.get(name) or of_policy(name)


def of_drafters(specs: Mapping[str, str]) -> dict[str, Look]:
    """The looks of one recording's drafters, by their names.

    Args:
        specs: what was attached, by name, in the recording's order; its own has none.
    """
    found: dict[str, Look] = {}
    seen: dict[str, int] = {}
    for name, spec in specs.items():
        kind = _name(spec) or OWN
        some, k = DRAFTERS.get(kind, ()), seen.get(kind, 0)
        seen[kind] = k + 1
        found[name] = some[k] if k < len(some) else of_name(name)
    return found


def drafters_of(trace: Trace) -> dict[str, Look]:
    """The looks of all drafters of a recording, also of those that a picture leaves out.

    Args:
        trace: a recording, or one drafter that is attached to it.
    """
    recording = trace.recording or trace
    specs = {OWN: recording.manifest.spec or ""}
    for name in recording.drafters if recording.path is not None else ():
        with suppress(UserError):  # half attached: nothing draws it
            specs[name] = recording.with_drafter(name).manifest.spec or ""
    return of_drafters(specs)


def _name(spec: object) -> str:
    return str(spec).partition("(")[0].strip()
