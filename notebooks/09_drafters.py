# %% [markdown]
# # 09 · Drafters
#
# What to draft with? A small model that writes token after token, a network that writes a whole draft
# in one pass (PARD, PARD-2), one that reads the target's states (EAGLE), or no model at all: the text
# itself, searched for what came before. A recording of the target serves them all. Each is attached
# to it later, run over the same outputs, and compared prompt by prompt.

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
# Conditional acceptance: of the drafts whose first j − 1 tokens were accepted, how many had the next
# one accepted, too. PARD-2's Fig. 2a has this for PARD and PARD-2.

# %%
figures.drafters_by_depth(study)

# %% [markdown]
# **What it shows.** Outside of the greedy outputs' loops the draft model is the best of the networks at
# every depth: 0.65 at the first token, rising from there, since drafts that get far are the easy ones.
# The parallel drafters begin alike (PARD-2 0.63, PARD 0.60) and lose at the second token, which they
# must guess without having seen the first: 0.49 and 0.48. The chain is weak at its first token (0.42)
# and then holds. The rules are wrong at first more often than not (0.36–0.49), and seldom later: a
# match that goes on is a copy.
#
# **The paper's.** In Fig. 2a the conditional ratio falls with depth, less for PARD-2 than for PARD.
# Here it falls up to the third token (0.46 and 0.44) and then rises, until few drafts are left. PARD-2
# is a little ahead at the first five.
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
# **What it shows.** All fall as SVIP has it, and each network needs a constant of its own: c is 0.06 for the draft
# model, 0.08 for the chain, 0.10 for PARD-2 and 0.13 for PARD. At equal entropy a parallel drafter is
# accepted less often than the draft model, so a threshold of entropy does not carry over from one to
# the other. The estimate lies below β in 52% (PARD) to 68% (draft model) of the rows. Rules from
# tokens have no distribution, so nothing to take an entropy of.

# %% [markdown]
# ## Which drafter for which task?
#
# Speedups over the target alone, each drafter with its best fixed length, chosen on other prompts.
# A parallel drafter pays one pass a step, a chain one a token, a rule next to nothing. All were timed,
# and the trace has their times: a pass of PARD-2 over three tokens takes 2.2 ms, one of PARD 1.9 ms, a
# token of the chain 0.84 ms, one of the draft model 1.75 ms.

# %%
figures.drafters_by_task(study)

# %% [markdown]
# **What it shows.** `suffix` is the fastest on the greedy outputs, 3.5 [3.1, 3.9] over all tasks, because
# they loop. On arithmetic, which does not, it is at 1.18 and the draft model at 2.20 [2.15, 2.25], PARD-2
# at 2.14 [2.09, 2.19]. A parallel draft gets less accepted but costs one pass: over all tasks PARD-2 is
# at 1.53, PARD at 1.51, the draft model, tuned alike, at 1.65, the chain, whose tokens cost half as
# much, at 1.36.
#
# **Caveat.** The networks' passes were timed by themselves, the draft model's in a running decoder, where
# a pass is a little slower: they compare to within some 7% of a pass ([drafters](../docs/drafters.md)).
# `simkit latency --drafter NAME --out TRACE` times the networks of a trace of yours.

# %% [markdown]
# ## Early or late?
#
# A parallel drafter has paid for all its tokens before it is decided how many of them to verify.
# Verifying fewer than would be accepted costs further steps; verifying more costs time for tokens
# that are thrown away.

# %%
figures.parallel_stop(study)

# %% [markdown]
# **What it shows.** With three of PARD-2's tokens verified the loss against the prophet is smallest,
# 14%: 13% for having stopped early, 2% for late tokens. Verifying all eight costs 26%, of which 15% is
# late; one token alone 34%, all of it early. Where verification is not flat, "draft 16, verify all" is
# not free.

# %% [markdown]
# ## Does it matter how a parallel drafter is trained?
#
# The arms of PARD-2's Tables 3, 4 and 5, trained here with three seeds each: weights by the target's
# confidence (CAT) or by position (γ), the target's features dropped for a share ρ of the texts, one
# layer or four, drafts of 8 or 16 in training.

# %%
figures.parallel_training(study)

# %% [markdown]
# **What it shows.** Weights by the target's confidence help: τ is 1.06 [1.03, 1.10] times that of equal weights, and
# 1.10 [1.07, 1.13] times that of PARD's loss: the paper's sign (1.05 and 1.03), the second more than printed. Fixed decays
# help as well: 0.6 is as good as 0.8 here, where the paper has it behind no decay at all; CAT is ahead
# of 0.8 by 3% [1%, 5%] and not distinguishable from 0.6. Training plain PARD for drafts of 16 makes its drafts
# of 8 worse (0.97 [0.96, 0.99]), as printed. Features of the target do not help (0.99 [0.96, 1.02]; the paper
# has 1.06), four layers do a little against one (1.011 [1.004, 1.019]). The gate's ratio makes no
# difference that could be told, and drafts of 16 gain nothing over drafts of 8: acceptance ends before.
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
# **What it shows.** The order of the networks stays: the draft model at 1.40, PARD-2 at 1.24, PARD at
# 1.18, the chain at 1.08. The rules find next to nothing, and reach 0.99 to 1.04: where the target
# samples it does not repeat itself.

# %% [markdown]
# ## Several in one decoder
#
# A lookup is nearly free where it finds something, and where it does not a model can draft.

# %%
both = simkit.replay(TRACE, {"own": "fixed(4)", "route(suffix, own, least=3)": "fixed(4)"})
both

# %% [markdown]
# **What it shows.** Whatever `suffix` finds of three tokens or more is taken, and the draft model drafts where it
# finds less. On these looping outputs that is far ahead of either alone; on sampled ones, in
# [drafters](../docs/drafters.md), the same route is as fast as the draft model alone.

# %% [markdown]
# ## Now with your trace
#
# Record a target (`simkit record --target …`, with a draft model or without), attach what you have
# (`simkit attach TRACE --drafter …`), and put its folder into the first cell. Its passes are timed by
# `simkit latency --drafter NAME --out TRACE`; without times, give the figures a `cost`. The arms of
# training belong to the bundled pair: leave that cell out.
