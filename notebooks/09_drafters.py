# %% [markdown]
# # 09 · Drafters
#
# What should write the drafts? It can be a small model that writes token after token, a network
# that writes a whole draft in one pass (PARD, PARD-2), or a network that reads the target's states
# (EAGLE). Or it needs no model: a lookup searches the text so far for a place that continues in the
# same way. One recording of the target is enough for all of them. Each drafter is attached to it
# later, run over the same outputs, and compared prompt by prompt.

# %%
import polars as pl

import simkit
import traces
from analysis import Study, figures

# %% tags=["parameters"]
TRACE = "reference"
SAMPLED = "reference-target"

# %% [markdown]
# ## What is attached?
#
# `reference` was recorded with a draft model, its *own* drafter. Six more are attached: three rules
# that look at tokens alone, a PARD and a PARD-2 drafter, and an EAGLE chain. The networks were
# trained on the target's answers to other prompts.

# %%
study = Study(TRACE)
specs = {name: traces.load(TRACE, drafter=name).manifest.spec for name in study.trace.drafters}
pl.DataFrame({"drafter": list(specs), "spec": list(specs.values())})

# %% [markdown]
# ## How far do their drafts get?
#
# Conditional acceptance at depth j is the share of drafts whose token j was accepted, among those
# whose first j − 1 tokens were accepted. PARD-2's Fig. 2a has this for PARD and PARD-2.

# %%
figures.drafters_by_depth(study)

# %% [markdown]
# **What it shows.** Outside of the greedy outputs' loops the draft model is the best of the
# networks at every depth: 0.65 at the first token, and more later, because drafts that get far are
# easy ones. The parallel drafters are nearly as good at the first token (PARD-2 0.63, PARD 0.60)
# but not at the second, which they must guess without seeing the first: 0.49 and 0.48. The EAGLE
# chain is weak at its first token (0.42) but not at later ones. The three rules' first tokens are
# mostly wrong (0.36–0.49), their later ones seldom: a match that goes on is a copy.
#
# **The paper's.** In Fig. 2a the conditional ratio falls with depth, less for PARD-2 than for PARD.
# Here it falls up to the third token (0.46 and 0.44) and then rises, until few drafts are left.
# PARD-2 is a little ahead of PARD at the first five tokens.
#
# **Caveat.** The networks have 0.35 to 0.75 M parameters and a quarter of an hour of training each.

# %% [markdown]
# ## Does the draft's entropy tell?
#
# SVIP stops where the draft model is unsure: acceptance is at least 1 − √(KL ∕ 2), and the entropy
# H(q) stands in for the divergence, with a constant c. Does that hold for networks that were trained
# in other ways?

# %%
figures.drafters_entropy(study)

# %% [markdown]
# **What it shows.** Acceptance falls with entropy for all networks, as in SVIP, but each network
# needs its own constant: c is 0.06 for the draft model, 0.08 for the chain, 0.10 for PARD-2 and
# 0.13 for PARD. At equal entropy a parallel drafter is accepted less often than the draft model, so
# a threshold of entropy does not carry over from one to the other. The estimate lies below the
# acceptance probability β in 52% (PARD) to 68% (draft model) of the positions. Lookups have no
# distribution and so no entropy.

# %% [markdown]
# ## Which drafter for which task?
#
# The figure has speedups over the target alone. Each drafter has its best fixed length, chosen on
# other prompts. A parallel drafter takes one pass for each step, a chain one for each token, a
# lookup next to nothing. The trace has the measured times of all: a pass of PARD-2 over three
# tokens takes 2.2 ms, one of PARD 1.9 ms, a token of the chain 0.84 ms, one of the draft model 1.75
# ms.

# %%
figures.drafters_by_task(study)

# %% [markdown]
# **What it shows.** `suffix` is the fastest on the greedy outputs, 3.5 [3.1, 3.9] over all tasks,
# because they loop. On arithmetic, which does not loop, it has 1.18, the draft model 2.20 [2.15,
# 2.25] and PARD-2 2.14 [2.09, 2.19]. A parallel draft has fewer accepted tokens but costs only one
# pass. Over all tasks PARD-2 has 1.53, PARD 1.51, the draft model 1.65, and the chain, whose tokens
# cost half as much, 1.36.
#
# **Caveat.** The networks' passes were timed by themselves, the draft model's in a running decoder,
# where a pass is a little slower. So comparisons between them may be off by about 7% of a pass
# ([drafters](../docs/drafters.md)). `simkit latency --drafter NAME --out TRACE` times the networks
# of a trace of yours.

# %% [markdown]
# ## Early or late?
#
# A parallel drafter has paid for all its tokens before it is decided how many of them to verify.
# Verifying fewer than would be accepted costs further steps; verifying more costs time for tokens
# that are thrown away.

# %%
figures.parallel_stop(study)

# %% [markdown]
# **What it shows.** The figure shows how much time is lost compared with the prophet, which knows
# what will be accepted. The loss is smallest if three of PARD-2's tokens are verified, 14%: 13%
# from verifying too few tokens, 2% from verifying too many. Verifying all eight loses 26%, of which
# 15% comes from too many tokens; verifying one loses 34%, all from too few. If verifying more
# tokens takes longer, "draft 16, verify all" is not free.

# %% [markdown]
# ## Does it matter how a parallel drafter is trained?
#
# The arms of PARD-2's Tables 3, 4 and 5, trained here with three seeds each: weights by the target's
# confidence (CAT) or by position (γ), the target's features dropped for a share ρ of the texts, one
# layer or four, drafts of 8 or 16 in training.

# %%
figures.parallel_training(study)

# %% [markdown]
# **What it shows.** Weights by the target's confidence help: τ is 1.06 [1.03, 1.10] times that of
# equal weights, and 1.10 [1.07, 1.13] times that of PARD's loss: the sign is the paper's (1.05 and
# 1.03), the second gain is larger than the paper's. Fixed decays by position help as well: 0.6 is
# as good as 0.8 here, while in the paper it is worse than no decay. CAT is 3% [1%, 5%] ahead of 0.8
# and does not differ measurably from 0.6. Training plain PARD for drafts of 16 makes its drafts of
# 8 worse (0.97 [0.96, 0.99]), as in the paper. Features of the target do not help (0.99 [0.96,
# 1.02]; the paper has 1.06); those of four layers are a little better than those of one (1.011
# [1.004, 1.019]). The ratio ρ makes no measurable difference. Drafts of 16 gain nothing over drafts
# of 8, because hardly any draft is accepted that far.
#
# **Caveat.** These arms were trained for 300 steps of two texts. The projection of the features begins
# at zero and has little time to become useful; the paper trains for 30,000 steps. Intervals are over
# prompts and seeds; with loops most ratios are within 2% of 1, and none is significant.

# %% [markdown]
# ## And where the target samples?
#
# `reference-target` is a recording of the target alone, at temperature 1. The draft model is
# attached to it like the others.

# %%
drafters = ("draft", "pard2", "pard", "eagle", "prompt_lookup", "ngram", "suffix")
simkit.replay(SAMPLED, dict.fromkeys(drafters, "fixed(5)"))

# %% [markdown]
# **What it shows.** The networks are in the same order: the draft model has 1.40, PARD-2 1.24, PARD
# 1.19, the chain 1.08. The lookups find next to nothing and have 0.99 to 1.04, because a target
# that samples does not repeat itself.

# %% [markdown]
# ## Several in one decoder
#
# A lookup is nearly free. If it finds nothing, a model can draft instead.

# %%
both = simkit.replay(TRACE, {"own": "fixed(4)", "route(suffix, own, least=3)": "fixed(4)"})
both

# %% [markdown]
# **What it shows.** If `suffix` finds three tokens or more, they are the draft; otherwise the draft
# model drafts. On these looping outputs that is much faster than the draft model alone; on sampled
# ones, in [drafters](../docs/drafters.md), it is as fast as the draft model alone.

# %% [markdown]
# ## Now with your trace
#
# Record a target (`simkit record --target …`, with a draft model or without), attach what you have
# (`simkit attach TRACE --drafter …`), and put its folder into the first cell. Its passes are timed by
# `simkit latency --drafter NAME --out TRACE`; without times, give the figures a `cost`. The arms of
# training belong to the bundled pair: leave that cell out.
