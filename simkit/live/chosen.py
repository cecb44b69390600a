"""Which policies and heads run live."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from simkit import policies
from simkit.errors import HeadError, LiveError
from simkit.heads import registry
from simkit.heads.files import Head, load
from simkit.live.deciders import check
from simkit.live.settings import DecoderSettings
from simkit.policies import Policy, PolicyError, Sequential, Setting
from simkit.policies.base import chain_of


def choose(
    specs: Sequence[str],
    heads: dict[str, Head],
    settings: DecoderSettings,
    setting: Setting | None = None,
) -> list[Sequential]:
    """The policies of some specs, if they can run live with these heads.

    Args:
        specs: of the policies.
        heads: by name.
        settings: how to decode.
        setting: what those that are fitted to a trace are fitted to.
    """
    ready = [make_ready(policies.parse(spec), heads, settings, setting) for spec in specs]
    check_read(heads, ready)
    return list({str(policy): policy for policy in ready}.values())


def check_read(heads: Mapping[str, object], chosen: Sequence[Policy]) -> None:
    """Refuse heads, by name, that none of the policies reads.

    Raises:
        LiveError: as said.
    """
    for name in heads:
        if name not in {policy.head for policy in chosen}:
            raise LiveError(f"--head: no policy reads a head {name}")


def make_ready(
    policy: Policy, heads: dict[str, Head], settings: DecoderSettings, setting: Setting | None
) -> Sequential:
    """A policy, bound to the setting, if it can run live with these heads; see `choose`."""
    chain = chain_of(policy, "it cannot be timed here")
    check(chain, settings, heads)
    if setting:
        return cast(policies.Sequential, chain.bind(setting))
    if is_fitted(chain):
        raise LiveError(f"{policy} is fitted to a trace: it cannot run live by itself")
    return chain


def load_heads(heads: Sequence[str] | None) -> dict[str, Head]:
    """Heads by name, as --head gives them.

    Raises:
        HeadError: a file is wrong, or two have one name.
    """
    found = {}
    for given in heads or []:
        name, _, file = given.rpartition("=")
        loaded = load(file)
        name = name or registry.get(loaded.kind).policy
        if name in found:
            raise HeadError(f"--head: two heads have the name {name}: give NAME=FILE")
        found[name] = loaded
    return found


def is_fitted(policy: Sequential) -> bool:
    """Whether the rule has no numbers of its own before it has seen a trace."""
    try:
        policy.limit(policy.begin(0), -1)
    except PolicyError:
        return True
    return False
