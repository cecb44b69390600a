"""One look for each policy, controller and drafter, the same in every picture.

A look is a colour, a marker, a line and a hatch. Those of one kind differ in their markers and
hatches too, so that they are told apart in grey. What is not listed here (a policy of one's own)
gets a look that follows from its name alone: the same in every picture and on every machine, with
a marker that nothing listed has.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import zip_longest
from typing import Any, NamedTuple

from traces.errors import UserError
from traces.trace import OWN, Trace

INK = "ink"
Look = dict[str, Any]
"""Keywords of matplotlib's functions."""
LINES = ("-", "--", "-.", ":")
HATCHES = ("", "////", "....", "\\\\\\\\", "xxxx", "----", "++++", "oooo")


class SeriesStyle(NamedTuple):
    """How one series is drawn.

    Attributes:
        hue: in hexadecimal, or `INK`.
        marker: matplotlib's.
        linestyle: matplotlib's.
        hatch: matplotlib's.
    """

    hue: str
    marker: str | tuple[int, int, float]
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
    def line(self) -> Look:
        """For a line with marks."""
        return {"color": self.color, "marker": self.marker, "linestyle": self.linestyle}

    @property
    def dots(self) -> Look:
        """For marks without a line."""
        return self.line | {"linestyle": ""}

    @property
    def bar(self) -> Look:
        """For a bar or a patch."""
        return {"facecolor": self.color, "hatch": self.hatch}


# Colours of Okabe and Ito (2008) first, then of Tol's muted scheme and two browns.
POLICIES = {
    "fixed": SeriesStyle("#0072B2", "o", "-", ""),
    "heuristic": SeriesStyle("#D55E00", "s", "--", "////"),
    "confidence": SeriesStyle("#009E73", "^", "-.", "...."),
    "svip": SeriesStyle("#CC79A7", "D", ":", "\\\\\\\\"),
    "acceptance_head": SeriesStyle("#56B4E9", "v", "-", "xxxx"),
    "pacer": SeriesStyle("#E69F00", "P", "--", "----"),
    "rate_optimal": SeriesStyle("#AA4499", "X", "-.", "++++"),
    "adaedl": SeriesStyle("#332288", "<", ":", "oooo"),
    "specdecpp": SeriesStyle("#882255", ">", "-", "////"),
    "cumulative_confidence": SeriesStyle("#117733", "p", "--", "xxxx"),
    "confidence_adaptive": SeriesStyle("#44AA99", "h", "-.", "----"),
    "draft_verify": SeriesStyle("#8C564B", "d", ":", "...."),
    "llamacpp": SeriesStyle("#999933", "8", "-", "++++"),
    "pearl": SeriesStyle("#CC6677", "H", "--", "oooo"),
    "autoregressive": SeriesStyle("#7F7F7F", (4, 0, 0), ":", ""),
    "oracle": SeriesStyle("#7F7F7F", (3, 0, 180), "--", "\\\\\\\\"),
    "prophet": SeriesStyle(INK, "*", "-", ""),
    "route": SeriesStyle("#5D3A1A", (6, 1, 0), "--", "////"),
    # Of trees: the colour of the same rule on chains.
    "static": SeriesStyle("#0072B2", (4, 1, 0), "--", "////"),
    "sequoia": SeriesStyle("#117733", (4, 1, 45), "-", "////"),
    "eagle2": SeriesStyle("#D55E00", (3, 1, 0), "-", ""),
    "tree_svip": SeriesStyle("#CC79A7", (3, 1, 180), "--", "xxxx"),
    "tree_acceptance_head": SeriesStyle("#56B4E9", (6, 1, 30), "-.", "...."),
    "best_rate": SeriesStyle("#AA4499", (8, 1, 0), ":", "----"),
    "best_first": SeriesStyle("#44AA99", (3, 1, 90), "-.", "\\\\\\\\"),
    "tree_prophet": SeriesStyle(INK, (5, 1, 180), "-", "++++"),
}
"""By the names that specs have."""

CONTROLLERS = {
    "none": SeriesStyle("#7F7F7F", (4, 0, 0), ":", ""),
    "ema": SeriesStyle("#D55E00", "p", "--", "////"),
    "by_batch": SeriesStyle("#009E73", "h", "-.", "...."),
    "budget": SeriesStyle("#CC79A7", "s", ":", "\\\\\\\\"),
    "goodput": SeriesStyle("#E69F00", "d", "--", "----"),
    "off_above": SeriesStyle("#AA4499", "^", "-.", "++++"),
    "all_stopped": SeriesStyle("#117733", "X", "--", "xxxx"),
    "batch_mean": SeriesStyle("#44AA99", "P", "-.", "----"),
    "each": SeriesStyle("#8C564B", "D", ":", "oooo"),
    "prophet": POLICIES["prophet"],
}
"""By the names of their specs; `static` is in `LENGTHS`."""

LENGTHS = (
    SeriesStyle("#9ECAE1", "v", ":", "...."),
    SeriesStyle("#56B4E9", "<", "-.", "////"),
    SeriesStyle("#0072B2", "o", "-", ""),
    SeriesStyle("#08519C", ">", "--", "xxxx"),
    SeriesStyle("#332288", "8", "-", "\\\\\\\\"),
    SeriesStyle("#08306B", "H", "-.", "----"),
)
"""Fixed lengths under load: pale blue is short, dark blue is long."""

DRAFTERS = {
    "own": (SeriesStyle("#0072B2", "o", "-", ""), SeriesStyle("#332288", "8", "--", "////")),
    "model": (SeriesStyle("#0072B2", "o", "-", ""), SeriesStyle("#332288", "8", "--", "////")),
    "rounds": (SeriesStyle("#56B4E9", "h", "-.", "...."),),
    "feature": (
        SeriesStyle("#D55E00", "s", "--", "////"),
        SeriesStyle("#882255", "d", "-.", "----"),
    ),
    "mtp": (SeriesStyle("#8C564B", "p", "-.", "xxxx"),),
    "parallel": (
        SeriesStyle("#E69F00", "P", "-.", "...."),
        SeriesStyle("#CC79A7", "X", ":", "\\\\\\\\"),
    ),
    "block": (SeriesStyle("#AA4499", "D", "--", "++++"),),
    "prompt_lookup": (SeriesStyle("#999933", "<", "-", "----"),),
    "ngram": (SeriesStyle("#009E73", "^", "--", "oooo"), SeriesStyle("#117733", ">", ":", "++++")),
    "ngram_simple": (SeriesStyle("#44AA99", "H", "-.", "OO"),),
    "suffix": (SeriesStyle("#7F7F7F", "v", ":", "xxxx"), SeriesStyle(INK, "*", "-", "////")),
}
"""By kind, as their specs name it: of one recording the first of a kind, and the second."""

OTHERS = (
    SeriesStyle(INK, (5, 1, 0), "-", ""),
    SeriesStyle("#E6007E", (7, 1, 0), "--", "////"),
    SeriesStyle("#7AC943", (8, 1, 22.5), ":", "...."),
    SeriesStyle("#00C8FF", (10, 1, 0), "-.", "xxxx"),
)
"""Of policies beside those that a picture always shows: of no colour that those have."""

_HUES = tuple(dict.fromkeys(look.hue for look in POLICIES.values()))
_MARKS = ((5, 1, 0), (7, 1, 0), (8, 1, 22.5), (10, 1, 0), (12, 1, 0))  # stars that no other has


def of_name(name: str) -> SeriesStyle:
    """A look that follows from a name alone, for what is not listed."""
    k = zlib.crc32(name.encode())
    k, hue = divmod(k, len(_HUES))
    k, mark = divmod(k, len(_MARKS))
    k, line = divmod(k, len(LINES))
    return SeriesStyle(_HUES[hue], _MARKS[mark], LINES[line], HATCHES[k % len(HATCHES)])


def of_policy(spec: object) -> SeriesStyle:
    """The look of a policy.

    Args:
        spec: a policy, or its spec, of which the name counts.
    """
    name = _name(spec)
    return POLICIES.get(name) or of_name(name)


def beside_listed(specs: Iterable[str]) -> dict[str, SeriesStyle]:
    """The looks of policies that are shown beside listed ones, maybe of the same name.

    Args:
        specs: by which they are called.
    """
    few = zip_longest(specs, OTHERS)
    return {spec: look or of_name(spec) for spec, look in few if spec is not None}


def of_controller(spec: object) -> SeriesStyle:
    """The look of a controller; of a policy that every request follows, the policy's.

    Args:
        spec: a controller, or its spec.
    """
    name = _name(spec)
    if name in ("static", "fixed"):
        length = re.search(r"\d+", str(spec))
        return LENGTHS[(int(length[0]) // 2 if length else 2) % len(LENGTHS)]
    return CONTROLLERS.get(name) or of_policy(name)


def of_drafters(specs: Mapping[str, str]) -> dict[str, SeriesStyle]:
    """The looks of one recording's drafters, by their names.

    Args:
        specs: what was attached, by name, in the recording's order; its own has none.
    """
    found: dict[str, SeriesStyle] = {}
    seen: dict[str, int] = {}
    for name, spec in specs.items():
        kind = _name(spec) or OWN
        some, k = DRAFTERS.get(kind, ()), seen.get(kind, 0)
        seen[kind] = k + 1
        found[name] = some[k] if k < len(some) else of_name(name)
    return found


def drafters_of(trace: Trace) -> dict[str, SeriesStyle]:
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
