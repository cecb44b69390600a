"""Routing of every causal LM of transformers with experts: what is read, or the class is refused.

    python -m benchmarks.experts [--only mixtral,gpt_oss]

Each class whose router weights transformers records is built tiny (`benchmarks.tiny_models`). The
judge knows nothing of routers: the weights of one expert of one layer are changed, and those tokens
read it whose output of that layer changes. A class whose recorded routing differs is silent; the
exit status is 1 if there is one.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from typing import NamedTuple

import numpy as np
import torch
import transformers
from torch import nn
from transformers import PreTrainedModel

from benchmarks.tiny_models import MAPPED, VOCAB, tiny_config, tiny_model
from traces.errors import RecordError
from traces.record.routers import Routing, routers

SHAPE = (2, 11)  # texts and tokens
RECORDS, REFUSED, NOT_BUILT, SILENT = "records", "refused", "not built", "silent"


class Routed(NamedTuple):
    """What came of one class."""

    kind: str
    outcome: str
    reason: str = ""


def main(argv: list[str] | None = None) -> int:
    """Print the table; 1 if a class is silent."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", default="", help="Model types, joined by commas.")
    given = options.parse_args(argv)
    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    names = given.only.split(",") if given.only else list(MAPPED)
    found = [one for name in names if (one := family(name)) is not None]
    for one in found:
        print(*one, sep=" | ")
    totals = Counter(one.outcome for one in found)
    print(f"\ntransformers {transformers.__version__}: {dict(totals)}")
    return int(totals[SILENT] > 0)


def family(kind: str) -> Routed | None:
    """Build a class tiny, and compare; None if it has no routers that are recorded."""
    try:
        model = tiny_model(tiny_config(kind), torch.float32)
    except Exception as error:  # a class that wants other numbers, a library, a picture
        return Routed(kind, NOT_BUILT, type(error).__name__) if _names_routers(kind) else None
    if not routers(model):
        return None
    try:
        wrong = compared(model)
    except RecordError as error:
        return Routed(kind, REFUSED, str(error))
    return Routed(kind, SILENT if wrong else RECORDS, wrong)


def _names_routers(kind: str) -> bool:
    """Whether a class that could not be built has routers that are recorded."""
    made = getattr(transformers, MAPPED[kind], None)
    return "router_logits" in (getattr(made, "_can_record_outputs", None) or {})


def compared(model: PreTrainedModel) -> str:
    """Where the recorded routing is not that of the judge; empty if it is."""
    routing = Routing(model)
    torch.manual_seed(0)
    text = torch.randint(2, VOCAB - 1, SHAPE)
    with routing, torch.no_grad():
        model(input_ids=text, use_cache=False)
        rows = routing.taken(SHAPE).numpy()
    info = routing.info
    bits = rows.reshape(*SHAPE, info.layers, info.layer_bytes)
    read = np.unpackbits(bits, axis=-1, bitorder="little")[..., : info.count].astype(bool)
    for layer, (router, beside) in enumerate(routers(model)):
        for expert in range(info.count):
            seen = _changed(model, router, beside, text, (expert, info.count))
            if not np.array_equal(seen, read[:, :, layer, expert]):
                return f"layer {layer}, expert {expert}"
    return ""


def _changed(
    model: PreTrainedModel,
    router: nn.Module,
    beside: list[nn.Module],
    text: torch.Tensor,
    which: tuple[int, int],
) -> np.ndarray:
    """Whether each token's output of a router's layer depends on one expert, of so many."""
    expert, count = which
    parent = next(part for part in model.modules() if router in list(part.children()))
    held = [w for part in beside for w in part.parameters() if w.ndim == 3 and len(w) == count]
    before, found = [w.detach().clone() for w in held], []
    handle = parent.register_forward_hook(lambda part, given, output: found.append(output))
    try:
        with torch.no_grad():
            model(input_ids=text, use_cache=False)
            for weight in held:
                weight[expert] = 0.5 - 2 * weight[expert]
            model(input_ids=text, use_cache=False)
            for weight, kept in zip(held, before, strict=True):
                weight.copy_(kept)
    finally:
        handle.remove()
    one, other = (output[0] if isinstance(output, tuple) else output for output in found)
    return (one != other).any(-1).reshape(text.shape).numpy()


if __name__ == "__main__":
    sys.exit(main())
