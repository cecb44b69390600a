"""What attaching trees costs: `python -m benchmarks.attach_trees`.

The reference pair's drafters follow outputs of a bundled trace, a batch of texts at a time. Once
as `simkit attach --tree` runs them, which chooses the nodes level by level and writes the bytes of
a file; once the networks alone, whose passes are over the same nodes, in the same order, with their
logits and nothing else. The arms take turns in one process, on one thread; times are those of the
processor, as medians. `--shape` names other shapes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import traces
from benchmarks.attach_speed import MODELS, attach, in_turns
from traces.attach import registry
from traces.attach.drafter import Means
from traces.record.drafters.nodes import Nodes, nodes_of
from traces.record.drafters.running import Planting
from traces.record.drafters.trees import Planter
from traces.record.pair import quiet
from traces.trees import shapes

DRAFTERS = {
    "eagle": f'feature("{MODELS / "eagle"}")',
    "draft": f'model("{MODELS / "draft"}")',
    "pard2": f'parallel("{MODELS / "pard2"}", length=8)',
}
UNION = "eagle2(top_k=1:10, depth=1:7)"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("--shape", nargs="*", default=[UNION])
    parser.add_argument("--recording", default="reference-trees", metavar="TRACE")
    parser.add_argument("--shard", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--drafter", nargs="*", default=list(DRAFTERS), choices=list(DRAFTERS))
    given = parser.parse_args()
    torch.set_num_threads(1)
    quiet()
    means = Means(str(MODELS / "target"), "cpu", tree=tuple(given.shape))
    print("| drafter | starts | nodes | networks, s | attached, s | ratio |")
    print("|---|---|---|---|---|---|")
    for name in given.drafter:
        print(line(name, given.recording, given.shard, means, given.rounds), flush=True)


def line(name: str, recording: str, shard: int, means: Means, rounds: int) -> str:
    """The table's line of one drafter."""
    opened = registry.parse(DRAFTERS[name]).open(traces.load(recording), means)
    assert isinstance(opened, Planting)
    texts, _ = opened._read(shard)  # the target's pass is neither's
    asked, nodes = calls(opened, texts)
    arms: dict[str, Callable[[], Any]] = {
        "networks": lambda: bare(opened, texts, asked),
        "attached": lambda: attach(opened, shard),
    }
    bare_s, attached_s = in_turns(arms, rounds).values()
    starts = int(texts.n_output.sum())
    cells = [name, f"{starts:,}", f"{nodes:,}", f"{bare_s:.2f}", f"{attached_s:.2f}"]
    return f"| {' | '.join([*cells, f'{attached_s / bare_s:.2f}×'])} |"


class Noted(Nodes):
    """Nodes of a draft, and what it is asked."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes, self.asked, self.alike = nodes, [], nodes.alike

    def roots(self) -> Tensor:
        """See `Nodes`."""
        return self.nodes.roots()

    def below(self, tree: Tensor, parent: Tensor, token: Tensor, depth: int) -> Tensor:
        """See `Nodes`."""
        self.asked.append((tree, parent, token, depth))
        return self.nodes.below(tree, parent, token, depth)


def calls(opened: Planting, texts: Any) -> tuple[list[list[tuple]], int]:
    """What each group of starts asks of the network, and how many nodes are written."""
    header, network = opened.header, opened._network
    known = [shapes.parse(text) for text in header.shapes]
    planter = Planter(texts, known, header.eos_token_ids, header.max_new_tokens, network.ids)
    asked, written = [], 0
    for group, nodes in nodes_of(network, texts, planter.levels, 2 * planter.width):
        noted = Noted(nodes)
        written += len(planter.plant(group, noted)["node"])
        asked.append(noted.asked)
    return asked, written


def bare(opened: Planting, texts: Any, asked: list[list[tuple]]) -> None:
    """The same passes alone."""
    levels, rows = opened.header.max_draft, 2 * opened.header.width
    parts = nodes_of(opened._network, texts, levels, rows)
    for (_, nodes), mine in zip(parts, asked, strict=True):
        nodes.roots()
        for question in mine:
            nodes.below(*question)


if __name__ == "__main__":
    main()
