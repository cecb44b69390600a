# %% [markdown]
# # 01 · Quickstart
#
# A large language model, the *target*, writes one token in each pass. *Speculative decoding* lets a
# small *draft* model guess the next tokens first; the target then checks all guesses in one pass
# and keeps those up to its first disagreement. The text comes out as the target alone would have
# written it, only sooner.
#
# How many tokens should be guessed before the target is asked? That number is the *draft length* γ,
# and a rule that sets it is a *policy*. With too few guesses the expensive target runs too often;
# with too many, guesses are thrown away.
#
# simkit answers this on a laptop. A *trace* is a recording of what two models did on many prompts.
# A *replay* computes from it exactly what any policy would have done, and how long that would have
# taken. This notebook loads a trace, replays policies, and compares them.

# %%
import polars as pl

import simkit
import traces
from analysis import figures

_ = pl.Config.set_float_precision(3)

# %% tags=["parameters"]
TRACE = "reference"

# %% [markdown]
# ## What is in a trace?
#
# `ladder` comes with simkit. The target is SmolLM2-135M-Instruct, a small chat model, on 56 prompts
# of 14 tasks, with up to 160 tokens each. Its draft `q3-g32` is the same model rounded to 3 bits a
# weight: 80% of its tokens are accepted, as in the papers ([ladder](../docs/ladder.md)). Both
# decoded greedily: each model's token is its likeliest one.
#
# Such a draft is as slow as its target. So this notebook takes the times of another pair: `COST`
# names those of Qwen2.5-32B with Qwen2.5-0.5B on an H200 GPU ([costs](../docs/costs.md)). One cell
# below uses the trace named above, `reference`: a toy pair with its own times on a CPU.

# %%
trace = traces.load("ladder/drafters/q3-g32")
COST = "atlas(target=qwen2.5-32b, draft=qwen2.5-0.5b)"
pl.from_arrow(trace.sequences).group_by("task", maintain_order=True).agg(
    prompts=pl.len(), output_tokens=pl.col("n_output").sum()
)

# %% [markdown]
# Every position of every output is a row. It has the draft's token, the target's token, whether the
# draft's token is accepted, and how sure the draft was: its top probability, and its entropy H(q)
# in nats. The entropy is 0 if only one token is possible, and larger if many are. Here are the
# first rows.

# %%
tokens = ("position", "draft_token", "target_token", "accepted")
columns = (*tokens, "draft_top1_prob", "draft_entropy")
pl.DataFrame({name: trace.positions(name)[:8] for name in columns})

# %% [markdown]
# The output does not depend on the policy. So these rows, and the draft's continuations after each
# rejected token, are all that any policy can see, and one recording is enough for every policy
# ([how it works](../docs/how-it-works.md)).
#
# ## What would each policy have done?
#
# `autoregressive` drafts nothing, and `fixed(γ)` drafts γ tokens in every step. `svip(h=…)` drafts
# until the draft's entropy is too high (notebook 02). `cumulative_confidence` drafts until the
# product of the draft's probabilities is too low. The last two know the future, so no decoder can
# use them: `oracle` drafts exactly the tokens that will be accepted, and `prophet` is the fastest
# policy possible. The trace has drafts of at most 16 tokens, so no policy may draft more:
# `max_draft=16`.

# %%
fixed, cumulative = "fixed(5)", "cumulative_confidence(threshold=0.3, max_draft=16)"
specs = ["autoregressive", "fixed(1)", "fixed(3)", fixed, "fixed(8)"]
specs += ["svip(h=1.2, max_draft=16)", cumulative, "oracle(max_draft=16)", "prophet(max_draft=16)"]
result = simkit.replay(trace, specs, COST)
result

# %% [markdown]
# **What it shows.** *speedup* is the time of the target alone over that of the policy; the brackets
# are its 95% interval over prompts, which contains the spread of the times, too. *tokens/step* is
# what one target pass yields: the tokens accepted and one from the target itself. *drafted* counts
# draft tokens, and *accepted* is the share of them that was kept. The seconds are those of prompts,
# draft passes, target passes, the policy's decisions, and the rest of the decoder's loop.
#
# Longer drafts yield more tokens per step: 4.012 with γ = 8, 3.484 with γ = 5. But with γ = 8, 62%
# of the draft's tokens are thrown away, and `fixed(5)` is faster. So judge policies by time, not by
# tokens per step.
#
# All tokens of `oracle` are accepted, and it is 2.982 times as fast as the target alone; `fixed(5)`
# is 2.077 times as fast. Most of these notebooks are about policies between the two. Cumulative
# confidence is at 2.224: it drafts a third less than `fixed(5)`, with 8% more steps.
#
# **Caveat.** Acceptance and times are of different pairs. Seconds are sums of timed passes; how far
# such sums are from measured times is tested in [fidelity](../docs/fidelity.md). The GPU's times
# have none of decisions, so *policy s* was timed on the machine that ran this cell.
#
# ## Is the difference real?
#
# The intervals of `fixed(5)` and cumulative confidence overlap, mostly because prompts differ. Both
# policies had the same prompts, so compare them prompt by prompt.

# %%
pl.DataFrame([vars(result.compare(cumulative, fixed))])

# %% [markdown]
# **What it shows.** Cumulative confidence is 1.071 times as fast as `fixed(5)`. The paired
# interval, 1.051 to 1.092, does not contain 1, so it is faster.
#
# ## Does it depend on the text?
#
# This cell uses the toy pair's `reference`, which has more prompts of each task.

# %%
simkit.replay(TRACE, ["fixed(4)", "fixed(8)", "svip(h=1)"], by="task")

# %% [markdown]
# **What it shows.** Yes, a lot. On `math`, whose lines the toy draft has learned well, `fixed(8)`
# is faster than `fixed(4)`, and stopping by entropy is even faster: 2.936 times the target alone.
# On the other three tasks `fixed(4)` is faster than the other two, though intervals are wide: there
# are 32 prompts per task.
#
# ## Which setting is best?
#
# Back to `ladder`. A range in a policy's arguments stands for all settings in it. `sweep` replays
# each setting, here 35.

# %%
swept = simkit.sweep(trace, ["fixed(1:16)", "svip(h=0.2:2.0:0.1, max_draft=16)"], COST)
swept.best(6).select("policy", "speedup", "tokens_per_step", "drafted", "accepted")

# %% [markdown]
# The best of many settings looks better than it is, because it was chosen on the same prompts that
# judge it. `tune` chooses each setting on some prompts and judges it on others.

# %%
families = [
    "svip(h=0.2:2.0:0.1, max_draft=16)",
    "confidence(threshold=0.05:0.95:0.05, max_draft=16)",
    "cumulative_confidence(threshold=0.05:0.95:0.05, max_draft=16)",
]
simkit.tune(trace, families, COST)

# %% [markdown]
# **What it shows.** Read *held-out speedup* and *against*, the speed relative to the best fixed
# length, 5. Stopping by entropy is 1.049 [1.021, 1.078] times as fast. `confidence`, which stops
# where the draft's own probability of its token is low, is 1.079 [1.054, 1.106] times as fast, and
# cumulative confidence 1.102 [1.084, 1.123] times. *chosen in folds* counts how often each setting
# was chosen.
#
# ## All policies at a glance
#
# The figure compares every policy in the package that can run on this trace. Each point is one
# policy, tuned on other prompts. Further up is faster. Further left, less time is spent on
# decisions and on tokens that are thrown away.

# %%
figures.frontier(trace, cost=COST)

# %% [markdown]
# **What it shows.** The intervals hold for all policies at once, so they are wider than those
# above. Nine of the twelve policies are faster than the best fixed length: the best rate
# (`rate_optimal`) by 11%, cumulative confidence by 10%, `confidence` by 8%, Draft & Verify by 7%,
# and the acceptance head, SVIP, AdaEDL, SpecDec++ and PACER by 3% to 6%. The intervals of the
# heuristic, llama.cpp's rule and adaptive confidence contain 1. A policy that knows the future would
# be 1.44 times as fast as the best fixed length, which is above the picture. [Notebook
# 05](05_comparing_policies.ipynb) explains the comparison. Decisions are timed on the machine that
# runs this cell, so the best rate's place may change.
#
# ## Now with your trace
#
# Record a pair, best on a machine with a GPU:
#
#     simkit record --target TARGET --draft DRAFT --prompts prompts.jsonl --out my-trace
#     simkit calibrate my-trace --target TARGET --draft DRAFT
#
# The first command writes the trace. The second lets the pair decode some of its prompts, and
# writes into the trace how long passes, decisions and the loop take; `--head` adds learned heads.
# (`simkit latency` times only passes.) `simkit info my-trace` lists what a trace has. Then set
# `TRACE` to the folder `my-trace`, and `trace` to `traces.load(TRACE)`; remove `COST` where the
# trace has its own times. The numbers in the text will not hold for your trace. Policies with
# learned heads need scores ([heads](../docs/heads.md)).
#
# A rule of your own is a Python function of the depth and the draft's statistics
# ([policies](../docs/policies.md)). Next: [why the draft's entropy tells when to
# stop](02_entropy_bound.ipynb).
