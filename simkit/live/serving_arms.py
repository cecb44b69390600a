"""Run several controllers side by side on the same requests, in turns."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from simkit.costs import CostModel, Times
from simkit.live.clock import Clock
from simkit.live.decoder import Decoded, Request
from simkit.live.decoders import LiveServed, LiveServer
from simkit.live.interleave import Turns, finished, in_turns
from simkit.live.live_controllers import decider
from simkit.live.rotation import check_rounds, guarded, moved_on
from simkit.live.served import ServedRun, iterations_of
from simkit.live.settings import DecoderSettings
from simkit.serving import Engine
from simkit.serving.controllers import ByLength, Controller, Nothing
from simkit.serving.prices import Prices, Pricing, prices_of
from traces.messages import how_many
from traces.record.header import model_info
from traces.record.latency import no_collection
from traces.record.pair import Pair
from traces.synthetic import iid
from traces.trace import Trace

_WARM_UP = 2  # requests that each arm serves first
_WARM_UP_TOKENS = 12


def engine(concurrency: int, extrapolate: bool = False) -> Engine:
    """The simulator's engine that does as `LiveServer` does."""
    return Engine(concurrency, mixed=False, padded=True, ragged=False, extrapolate=extrapolate)


@dataclass(frozen=True)
class ServingArm:
    """What is run.

    Attributes:
        controller: whose lengths are drafted.
        requests: that it serves.
    """

    controller: Controller
    requests: tuple[Request, ...]


@dataclass(frozen=True)
class ServingBench:
    """A pair, and how it serves.

    Attributes:
        pair: the models.
        settings: how to decode.
        concurrency: requests in flight.
        times: for controllers that decide by them; None: there are none.
        turns: what arms do before another's turn comes: a "step" is an iteration, a "sequence" all
            requests.
        clock: see `LiveServer`.
    """

    pair: Pair
    settings: DecoderSettings
    concurrency: int
    times: Times | None = None
    turns: Turns = "step"
    clock: Clock | None = None

    def server(self, arm: ServingArm, settings: DecoderSettings | None = None) -> LiveServer:
        """A server with a state of its own."""
        settings = settings or self.settings
        how = None
        if not isinstance(arm.controller, Nothing):
            how = decider(arm.controller, settings, self.prices(arm))
        return LiveServer(self.pair, how, settings, self.concurrency, self.clock)

    def prices(self, arm: ServingArm) -> Prices | None:
        """Those that an arm's controller is bound to, as the simulator makes them."""
        if self.times is None or not isinstance(arm.controller, ByLength):
            return None
        longest = max(len(request.tokens) for request in arm.requests)
        budget = self.settings.max_new_tokens
        batch = min(self.concurrency, len(arm.requests))
        deepest = max(1, min(arm.controller.max_draft, budget - 1))
        how = Pricing(batch, deepest, engine(self.concurrency, extrapolate=True))
        return prices_of(self.times.of_batch(1), _known(longest, budget), how)


class _KnownArms(NamedTuple):
    """What prices take of a trace, `simkit.drafters.layout.Layout`."""

    trace: Trace
    n_prompt: np.ndarray
    paid: str = "token"
    deepest: int | None = None


def _known(longest: int, budget: int) -> Any:
    return _KnownArms(iid(1, budget, 0.5, max_draft=40, seed=0), np.array([longest]))


def times_of(cost: CostModel, pair: Pair, budget: int) -> Times:
    """The times of a cost for a pair that was not recorded."""
    blank = iid(1, budget, 0.5, max_draft=40, seed=0)
    models = {"target": model_info(pair.target), "draft": model_info(pair.draft)}
    blank.manifest = replace(blank.manifest, **models)
    return cost.times(blank)


def run(
    bench: ServingBench,
    arms: Sequence[ServingArm],
    rounds: int,
    runs: list[ServedRun],
    on_run: Callable[[], None] = lambda: None,
) -> dict[int, LiveServed]:
    """Serve every arm's requests in every round, in turns.

    The order of the arms moves on by one from round to round. Every arm serves a few short
    requests first that are not logged. Python's garbage collector runs between rounds only.

    Args:
        bench: the pair.
        arms: by number.
        rounds: how often.
        runs: is told what took how long.
        on_run: called behind each arm of each round.

    Returns:
        What came out of each arm in the first round.

    Raises:
        LiveError: a number is out of range, or memory ran out.
    """
    check_rounds(rounds)
    short = replace(
        bench.settings, max_new_tokens=min(_WARM_UP_TOKENS, bench.settings.max_new_tokens)
    )
    for arm in arms:
        finished(_serving(bench.server(arm, short), arm, arm.requests[:_WARM_UP]))
    found: dict[int, LiveServed] = {}
    for round_ in range(rounds):
        begins = {
            number: partial(
                _serving, bench.server(arms[number]), arms[number], arms[number].requests
            )
            for number in moved_on(range(len(arms)), round_)
        }
        with no_collection():
            for number, decoded in in_turns(begins, bench.turns):
                served = LiveServed(iterations_of(decoded), decoded.outputs)
                name = str(arms[number].controller)
                runs.append(ServedRun(number, round_, name, bench.concurrency, served.iterations))
                found.setdefault(number, served)
                on_run()
    return found


def _serving(
    server: LiveServer, arm: ServingArm, requests: Sequence[Request]
) -> Generator[int, None, Decoded]:
    """Serve some requests."""
    at_once = how_many(server.slots or 0, "request")
    what = f"{arm.controller} with {at_once} in flight"
    return guarded(lambda: server.stepwise(requests), lambda: what)
