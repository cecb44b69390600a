"""Which of several policies a trace can replay, and why it cannot replay the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from simkit.drafters.layout import DepthError
from simkit.errors import PolicyError
from simkit.policies import Policy, parse, shortened
from simkit.simulator import By, ByDrafter, FirstToken, replay
from simkit.simulator.arguments import AnyCost
from traces import specs
from traces.errors import UserError
from traces.messages import how_many
from traces.trace import OWN, Trace

Asked = Mapping[str, list[str]]
"""Specs of policies, by the name of the drafter."""


class Usable(NamedTuple):
    """A replay of what can be replayed.

    Attributes:
        result: of each drafter.
        notes: what is left out or drafts less deep than by default, and why; one line each.
    """

    result: ByDrafter
    notes: list[str]


def replay_usable(
    trace: Trace, asked: Asked, cost: AnyCost | None, by: By, first_token: FirstToken
) -> Usable:
    """Replay policies on drafters, and leave out those that this trace cannot replay.

    A policy whose spec gives no `max_draft`, and which by default asks for deeper drafts than were
    recorded, drafts up to the Γ of its drafter.

    Args:
        trace: see `simkit.replay`, as for cost, by and first_token.
        asked: specs by drafter.
        cost: of the steps.
        by: what a row stands for.
        first_token: "draft" or "prefill".

    Raises:
        UserError: a spec cannot be read, or nothing is left; the error is the first one then.
    """
    how = cost, by, first_token
    read = {name: [parse(text) for text in texts] for name, texts in asked.items()}
    try:
        return Usable(replay(trace, read, *how), [])
    except UserError as error:
        first = error
    kept: dict[str, list[Policy]] = {}
    notes: list[str] = []
    for name, texts in asked.items():
        for text in texts:
            used, note = _usable(trace, name, text, how)
            kept.setdefault(name, []).extend(used)
            notes += note
    kept = {name: some for name, some in kept.items() if some}
    if not kept:
        raise first
    return Usable(replay(trace, kept, *how), notes)


def _usable(
    trace: Trace, drafter: str, spec: str, how: tuple[AnyCost | None, By, FirstToken]
) -> tuple[list[Policy], list[str]]:
    """The policy that can be replayed, if any, and what to say of it."""
    policy = used = parse(spec)
    given = "max_draft" in specs.parse(spec, PolicyError).kwargs
    note = []
    while True:
        try:
            replay(trace, {drafter: [used]}, *how)
            return [used], note
        except UserError as error:
            shorter = shortened(used, error.deepest) if isinstance(error, DepthError) else None
            if given or shorter is None or shorter is used:
                whose = "" if drafter == OWN else f" on {drafter}"
                return [], [f"{policy}{whose} is left out: {str(error).removeprefix(f'{used}: ')}"]
            depth = how_many(shorter.max_draft, "token")
            scored = " and scored" if shorter.head else ""
            known = f"as many as were recorded{scored}: {shorter}"
            note = [f"{policy} drafts up to {depth} here, {known}"]
            used = shorter
