# %% [markdown]
# # 11 · Trees
#
# A chain is lost with its first wrong token. A tree holds several tokens at each place and is verified in
# one pass of the target all the same: if the likeliest token is wrong, the second may be right. Which nodes
# to draft, and how many to verify?
#
# The trace holds, from every position, all nodes that EAGLE-2's beams of 1 to 10 nodes and 8 levels can ask
# for, and those along the output. So any such tree, any fixed one and any exit is replayed exactly. Drafts are
# those of a toy EAGLE layer, 16 outputs of 64 tokens, greedy: intervals are wide.

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
# **What it shows.** Three tokens are certain; then the draft holds "twice", "six" and "five" to be equally likely. A chain
# bets on the first and gets three tokens; the tree verifies 16 nodes in one pass, follows "six", and gets eight.

# %% [markdown]
# ## From chain to tree: what nodes buy

# %%
figures.tree_budget(eagle)

# %% [markdown]
# **What it shows.** Output tokens a step, whatever they cost. A chain levels off: 1.76 [1.48, 2.11] with four tokens, 1.83
# [1.49, 2.32] with eight, which is all that any chain can have (its prophet). Trees go on: with 60 nodes 2.96 [2.29, 3.79] of the
# 3.77 [2.71, 5.16] that the recorded nodes hold.
#
# **Static or dynamic.** Sequoia's tree is the best fixed one on these very prompts, the same rank paths in every step. EAGLE-2 spends
# as many nodes where the draft is unsure: 2.25 to 2.03 with 8, 2.54 to 2.30 with 16, 2.96 to 2.74 with 60. A shape that follows
# the draft's own probabilities is worth about a tenth of the tokens.
#
# **The papers'.** Sequoia's figure has the same form: chains level off, trees do not.

# %% [markdown]
# ## What do they cost?
#
# A step pays a pass of the draft for each level, over the nodes that get children, and one pass of the target over N + 1
# tokens. On a processor, whose times the trace has, 60 nodes are dear; on an H200 (Qwen3-8B with a draft of 0.6B, from the
# [atlas](../docs/costs.md#the-latency-atlas)) they are nearly free, but eight passes of that draft are not.

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
# **What it shows.** Under the processor's times EAGLE-2's 60 nodes and 8 levels are no faster than the target alone (0.97), while eight nodes on
# three levels are ahead of the chain (1.37 to 1.25). Under an H200's, with PARD-2, which says all levels in one pass, 60 nodes
# are the better choice: 1.66, where chains of three and of eight tokens have 1.20 and 1.22, and the prophet of chains 1.51. A tree
# can be faster than anything that a chain could do. (Tuned on other prompts, as below, the first two are 1.33 and 1.23.)

# %% [markdown]
# ## When to stop growing
#
# SVIP's Table 4: EAGLE-2 whose beams stop where the draft's entropy is high.

# %%
figures.tree_exits(eagle)

# %%
figures.tree_exits(Study(traces.load(TRACE + "-sampled", "eagle-tree")))

# %% [markdown]
# **What it shows.** Where EAGLE-2's shape is tuned, the exit is worth 1.03 [1.01, 1.05]; at temperature 1, 1.02 [0.99, 1.07]. With 60 nodes
# it is worth more (1.28 [1.12, 1.48]), because these are too many here, and loses on math (0.89 [0.81, 0.97]), where most is accepted.
#
# **The paper's.** At temperature 1, 1.02 to 1.06 on average over six tasks. **The sign agrees**; eight prompts cannot tell 1.02 from 1.
#
# **Caveat.** The exit's decisions on trees have not been timed: they are charged as those on chains, 0.2 ms each. At no charge
# the greedy gain would be 1.05.

# %% [markdown]
# ## The bound
#
# `tree_prophet` drafts and verifies the nodes of the output alone, as many as make the whole fastest.

# %%
figures.tree_gap(eagle)

# %% [markdown]
# **What it shows.** Of the time between the best chain (1.23) and the prophet (2.58), a static tree closes 12%, a tuned EAGLE-2 14%, with
# SVIP's exit 19% [11%, 26%], with `best_rate`, which weighs a level's chance against its seconds, 18% [10%, 25%]. All have small trees, of
# three to twelve nodes: each further node has its price in the verification, and most of them are in vain.

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
# A chain's policy (`fixed(5)`, `svip(h=0.8)`) follows the best children. [Trees](../docs/trees.md) has them in full.

# %% [markdown]
# ## Now with your trace
#
#     simkit attach TRACE --drafter 'feature("models/eagle")' --target TARGET --name eagle-tree --tree 'eagle2(top_k=1:10, depth=1:7)'
#
# and put its folder into the first cell.
