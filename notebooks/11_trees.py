# %% [markdown]
# # 11 · Trees
#
# The first wrong token ends a chain of draft tokens. A tree has several tokens at each depth, and
# one target pass still verifies all of it: if the likeliest token is wrong, the second may be
# right. Which nodes should be drafted, and how many verified?
#
# From every position, the trace has all nodes that EAGLE-2's beams of 1 to 10 nodes and 8 levels
# can ask for, and those along the output. So a replay of any such tree, of any fixed tree and of
# any early exit is exact. A toy EAGLE layer made the drafts, for 16 greedy outputs of up to 64
# tokens, so intervals are wide.

# %%
import polars as pl

import simkit
import traces
from analysis import Study, figures

_ = pl.Config.set_tbl_rows(20)
_ = pl.Config.set_fmt_str_lengths(60)

# %% tags=["parameters"]
TRACE = "reference-trees"

# %% [markdown]
# ## One step

# %%
eagle = Study(traces.load(TRACE, "eagle-tree"))
figures.tree_step(eagle)

# %% [markdown]
# **What it shows.** The draft is certain of three tokens; then it finds "twice", "six" and "five"
# equally likely. A chain must take the first and gets three tokens. The tree verifies 16 nodes in
# one pass, follows "six", and gets eight.

# %% [markdown]
# ## From chain to tree: what nodes buy

# %%
figures.tree_budget(eagle)

# %% [markdown]
# **What it shows.** The figure shows output tokens per step and ignores costs. Chains level off:
# 1.76 [1.48, 2.11] with four tokens, 1.83 [1.49, 2.32] with eight, which is as much as a chain that
# knows the future gets. Trees do not: with 60 nodes they get 2.96 [2.29, 3.79] of the 3.77 [2.71,
# 5.16] that all recorded nodes together allow.
#
# **Static or dynamic.** Sequoia's tree is the best fixed tree on these very prompts: it has the
# same ranks of tokens in every step. EAGLE-2 has as many nodes, but places them where the draft is
# unsure, and gets more tokens per step: 2.25 against 2.03 with 8 nodes, 2.54 against 2.30 with 16,
# 2.96 against 2.74 with 60. So a shape that follows the draft's own probabilities gains about a
# tenth.
#
# **The papers'.** Sequoia's figure has the same form: chains level off, trees do not.

# %% [markdown]
# ## What do they cost?
#
# A step takes one draft pass for each level, over the nodes that get children, and one target pass
# over N + 1 tokens, where N is the number of nodes. The trace has the times of a CPU, where 60
# nodes are expensive. On an H200 (Qwen3-8B with a draft of 0.6B, from the
# [atlas](../docs/costs.md#the-latency-atlas)) they are nearly free, but eight passes of that draft
# are not.

# %%
arms = ["fixed(3)", "sequoia(3, depth=2)", "eagle2(top_k=6, depth=2, total=9)"]
arms += ["eagle2()", "best_rate()", "prophet()", "tree_prophet()"]
shown = ["policy", "drafted", "draft_passes", "proposed", "emitted", "steps", "speedup"]
simkit.replay(eagle.trace, arms).frame.select(*shown, "speedup_lo", "speedup_hi")

# %%
parallel = Study(traces.load(TRACE, "pard2-tree"))
ATLAS = "atlas(target=qwen3-8b, draft=qwen3-0.6b)"
arms = ["fixed(3)", "fixed(8)", "best_first(16)", "eagle2(top_k=4, depth=3, total=16)"]
arms += ["best_first(60)", "eagle2()", "prophet()", "tree_prophet()"]
simkit.replay(parallel.trace, arms, cost=ATLAS).frame.select(*shown, "speedup_lo", "speedup_hi")

# %% [markdown]
# **What it shows.** At the CPU's times EAGLE-2 with 60 nodes and 8 levels is no faster than the
# target alone (0.97), while eight nodes on three levels are faster than the chain (1.37 against
# 1.25; tuned on other prompts, as below, 1.33 against 1.23). At the H200's times PARD-2, which
# drafts all levels in one pass, does best with 60 nodes: 1.66. Chains of three and eight tokens
# have 1.19 and 1.22, and `prophet`, the fastest possible chain, 1.51. So a tree can be faster than
# any chain.

# %% [markdown]
# ## When to stop growing
#
# Like SVIP's Table 4, the figure has EAGLE-2 with beams that stop where the draft's entropy is
# high.

# %%
figures.tree_exits(eagle)

# %%
figures.tree_exits(Study(traces.load(TRACE + "-sampled", "eagle-tree")))

# %% [markdown]
# **What it shows.** If EAGLE-2's shape is tuned, the early exit makes it 1.03 [1.01, 1.05] times as
# fast, and 1.02 [0.99, 1.07] at temperature 1. With 60 nodes it gains more (1.28 [1.12, 1.48]),
# because 60 are too many here. On math, where most tokens are accepted, it is slower (0.89 [0.81,
# 0.99]).
#
# **The paper's.** At temperature 1 the paper has 1.02 to 1.06 on average over six tasks. **The sign
# agrees**, but with eight prompts 1.02 and 1 do not differ measurably.
#
# **Caveat.** The exit's decisions on trees were not timed. They are charged like those on chains,
# 0.2 ms each. If they were free, the greedy gain would be 1.05.

# %% [markdown]
# ## The bound
#
# `tree_prophet` knows the future: it drafts and verifies only nodes of the output, as many as give
# the shortest total time.

# %%
figures.tree_gap(eagle)

# %% [markdown]
# **What it shows.** Take the time that `tree_prophet` (2.58) saves over the best chain (1.23) as
# 100%. A static tree saves 12% of it, a tuned EAGLE-2 14%, EAGLE-2 with SVIP's exit 19% [11%, 26%],
# and `best_rate`, which compares a level's expected tokens with its seconds, 18% [10%, 25%]. All
# choose small trees of three to twelve nodes: each further node makes the verification longer, and
# most of them are rejected.

# %% [markdown]
# ## Policies
#
# | policy | which nodes | source |
# |---|---|---|
# | `eagle2(top_k=10, depth=7, total=60)` | the likeliest of those that beams propose | EAGLE-2; SGLang, TensorRT-LLM |
# | `static([[0], [1], [0, 0]])` | the same rank paths in every step | Medusa, SpecInfer |
# | `sequoia(16, by=paths)` | the fixed tree that takes most on the trace | Sequoia |
# | `best_first(60, least=0)` | the likeliest of all | DDTree, suffix decoding |
# | `tree_svip(h=0.4, every=2)` | EAGLE-2's, until the entropy is high | SVIP |
# | `best_rate()` | EAGLE-2's, until a level is not worth its time | ours |
# | `tree_prophet()` | those of the output | ours, a bound |
#
# A policy for chains (`fixed(5)`, `svip(h=0.8)`) takes the likeliest token at each depth.
# [Trees](../docs/trees.md) describes all policies.

# %% [markdown]
# ## Now with your trace
#
#     simkit attach TRACE --drafter 'feature("models/eagle")' --target TARGET --name eagle-tree --tree 'eagle2(top_k=1:10, depth=1:7)'
#
# and put its folder into the first cell.
