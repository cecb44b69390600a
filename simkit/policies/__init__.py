"""Draft-length policies: rules that say when to stop drafting.

A policy holds no state. To drive one from plain Python, as a live decoder does:

    policy = simkit.policies.parse("svip(h=0.4)")
    columns = policy.columns(sampler)           # what a row must hold, in order
    state = policy.begin(sequence)              # once a run, or once a sequence: policy.carried
    while the output goes on, for a step at position i:
        room = min(policy.limit(state, -1), policy.max_draft, max_new_tokens - i)
        drafted = 0
        while drafted < room:
            draft one token; drafted += 1
            row = tuple(float(numpy.float32(v)) for v in the token's values of `columns`)
            stop, state = policy.trips(state, drafted, row)
            if stop or the token is an EOS: break
        proposed = policy.proposed(state, drafted)
        verify them, which gives `accepted` (an empty draft is verified too: a plain step)
        ended = the last accepted token is an EOS
        state = policy.update(state, Outcome(drafted, proposed, accepted, ended))

Values are rounded to float32 and then widened, so that a rule decides on the same bits live and
replayed. Every drafted token goes to `trips`, the last one too. Policies that need the future
(`needs_future`) cannot run live. Sequences go in ascending order where state lasts a whole run.

To add a policy, in a file of its own:

1. write its rule as module-level functions of numbers: the slots that differ from the defaults;
2. write the frozen dataclass on `NumericPolicy`, with `@register`. Its fields say how they are
   checked, and become the `params` of the slots, see `simkit.policies.arguments`. Its docstring
   says where the rule comes from, whether the tripping token is kept or dropped, whether the score
   lags by a token, what state is carried and until when, and whether feedback uses the nominal or
   the actual draft length;
3. name the columns that the rule `reads`;
4. name it in the registry's list of what is built in, and here. The shared tests find it there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simkit.errors import PolicyError
from simkit.policies.arguments import shortened
from simkit.policies.base import (
    Branching,
    Concurrent,
    Grid,
    NumericPolicy,
    Outcome,
    Policy,
    Sequential,
    Setting,
    Slots,
    score_column,
)
from simkit.policies.function import FunctionPolicy, from_function
from simkit.policies.registry import BUILT_IN, chains, expand, get, names, parse, register
from simkit.policies.stateful import StatefulPolicy, Token, policy
from traces.registry import attribute

if TYPE_CHECKING:
    from simkit.policies.acceptance_head import AcceptanceHead
    from simkit.policies.adaedl import AdaEDL
    from simkit.policies.autoregressive import Autoregressive
    from simkit.policies.confidence import Confidence
    from simkit.policies.confidence_adaptive import ConfidenceAdaptive
    from simkit.policies.cumulative_confidence import CumulativeConfidence
    from simkit.policies.draft_verify import DraftVerify
    from simkit.policies.fixed import Fixed
    from simkit.policies.heuristic import Heuristic
    from simkit.policies.llamacpp import LlamaCpp
    from simkit.policies.oracle import Oracle
    from simkit.policies.pacer import Pacer
    from simkit.policies.pearl import PEARL
    from simkit.policies.prophet import Prophet
    from simkit.policies.rate_optimal import RateOptimal
    from simkit.policies.specdecpp import SpecDecPP
    from simkit.policies.svip import SVIP
    from simkit.trees.acceptance_head import TreeAcceptanceHead
    from simkit.trees.best_first import BestFirstTree
    from simkit.trees.eagle2 import Eagle2
    from simkit.trees.exits import BestRate, TreeSVIP
    from simkit.trees.prophet import TreeProphet
    from simkit.trees.sequoia import Sequoia
    from simkit.trees.static import StaticTree

__all__ = [
    "PEARL",
    "SVIP",
    "AcceptanceHead",
    "AdaEDL",
    "Autoregressive",
    "BestFirstTree",
    "BestRate",
    "Confidence",
    "ConfidenceAdaptive",
    "CumulativeConfidence",
    "DraftVerify",
    "Eagle2",
    "Fixed",
    "FunctionPolicy",
    "Grid",
    "Heuristic",
    "LlamaCpp",
    "NumericPolicy",
    "Oracle",
    "Outcome",
    "Pacer",
    "Branching",
    "Concurrent",
    "Policy",
    "PolicyError",
    "Prophet",
    "RateOptimal",
    "Sequential",
    "Sequoia",
    "Setting",
    "Slots",
    "SpecDecPP",
    "StatefulPolicy",
    "StaticTree",
    "Token",
    "TreeAcceptanceHead",
    "TreeProphet",
    "TreeSVIP",
    "chains",
    "expand",
    "from_function",
    "get",
    "names",
    "parse",
    "policy",
    "register",
    "score_column",
    "shortened",
]


def __getattr__(name: str) -> Any:
    return attribute(__name__, name, BUILT_IN.values())


def __dir__() -> list[str]:
    return sorted(__all__)
