# %% [markdown]
# # 01 · Quickstart
#
# A large language model, the *target*, writes one token in each pass. *Speculative decoding* lets a
# small *draft* model guess the next tokens first; the target then checks all guesses in one pass
# and keeps those up to its first disagreement. The text comes out as the target alone would have
# written it, only sooner.
#
# How many tokens should be guessed before the target is asked? That number is the *draft length*
# γ, and a rule that sets it is a *policy*. Too few, and the expensive target is asked too often;
# too many, and guesses are thrown away.
#
# simkit answers this on a laptop. A *trace* holds what two models did on many prompts, recorded
# once. A *replay* computes from it what any policy would have done, exactly, and how long that
# would have taken. This notebook loads a trace, replays policies, and compares them.

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
# `reference` comes with the package: a target of 7.9 million parameters and a draft of 0.7
# million, both toys, continued prompts of four tasks for up to 256 tokens. They decoded greedily:
# each model's token is its likeliest one.

# %%
trace = traces.load(TRACE)
pl.from_arrow(trace.sequences).group_by("task", maintain_order=True).agg(
    prompts=pl.len(), output_tokens=pl.col("n_output").sum()
)

# %% [markdown]
# Every position of every output is a row. It says what the draft would have written there, what
# the target wrote, whether the draft's token is accepted, and how sure the draft was: its top
# probability, and its entropy H(q) in nats (0 if it sees one possible token, larger if many).
# Here are the first rows.

# %%
tokens = ("position", "draft_token", "target_token", "accepted")
columns = (*tokens, "draft_top1_prob", "draft_entropy")
pl.DataFrame({name: trace.positions(name)[:8] for name in columns})

# %% [markdown]
# Since the output does not depend on the policy, these rows, with the draft's continuations behind
# each rejected token, are all that a policy could ever see. That is why one recording answers for
# every policy ([how it works](../docs/how-it-works.md)).
#
# ## What would each policy have done?
#
# `fixed(γ)` drafts γ tokens in every step. `svip(h=…)` drafts until the draft's entropy is too
# high (notebook 02). The last two know the future, so that no decoder can use them: `oracle`
# drafts exactly the tokens that will be accepted, and `prophet` is the fastest there can be.

# %%
result = simkit.replay(
    trace,
    ["autoregressive", "fixed(1)", "fixed(2)", "fixed(3)", "fixed(8)"]
    + ["svip(h=1)", "oracle", "prophet"],
)
result

# %% [markdown]
# **What it shows.** *speedup* is the time of the target alone (the first row) over that of the
# policy; the brackets are its 95% interval over prompts. *tokens/step* is what one target pass
# yields: the tokens accepted and one from the target itself. *drafted* counts draft tokens, and
# *accepted* is the share of them that was kept.
#
# The more the draft writes, the more a step yields: 3.256 tokens with γ = 8 against 2.218 with
# γ = 2. But then 71% of the draft's tokens are thrown away, and `fixed(2)` is faster. Tokens per
# step alone do not tell what is fast: look at the time.
#
# The oracle accepts all that it drafts and is 2.175 times as fast as the target alone; `fixed(2)`
# gets to 1.423. Most of these notebooks are about what lies between the two.
#
# **Caveat.** Times are sums of passes that were timed once for this pair
# ([costs](../docs/costs.md)); decisions were not timed and count nothing. How far such sums are from
# the clock is measured in [fidelity](../docs/fidelity.md).
#
# ## Is the difference real?
#
# The intervals of `fixed(3)` and `fixed(2)` overlap widely, mostly because prompts differ. Both
# policies met the same prompts, so compare them prompt by prompt.

# %%
pl.DataFrame([vars(result.compare("fixed(3)", "fixed(2)"))])

# %% [markdown]
# **What it shows.** `fixed(3)` is 0.976 times as fast as `fixed(2)`, and the paired interval leaves
# out 1: it is slower, if not by much.
#
# ## Does it depend on the text?

# %%
simkit.replay(trace, ["fixed(2)", "fixed(8)", "svip(h=1)"], by="task")

# %% [markdown]
# **What it shows.** Much. On `math`, whose lines the draft has learned well, `fixed(8)` is faster
# than `fixed(2)`, and stopping by entropy is faster still: 2.639 times the target alone. On the
# other three tasks `fixed(2)` is ahead of `fixed(8)` and `svip(h=1)`, though their intervals are
# wide: 32 prompts a task.
#
# ## Which setting is best?
#
# A range in a spec stands for all its settings. `sweep` replays each of them, here 27.

# %%
swept = simkit.sweep(trace, ["fixed(1:8)", "svip(h=0.2:2.0:0.1)"])
swept.best(6).select("policy", "speedup", "tokens_per_step", "drafted", "accepted")

# %% [markdown]
# The best of many settings looks better than it is, since it was picked on the very prompts it is
# judged by. `tune` picks each setting on some prompts and judges it on others.

# %%
simkit.tune(trace, ["svip(h=0.2:2.0:0.1)", "pacer(block=2, threshold=0.2:0.8:0.1)"])

# %% [markdown]
# **What it shows.** Read *held-out speedup* and *against*. Stopping by entropy, with the setting
# chosen on other prompts, is 1.006 times as fast as the best fixed length, and the interval holds 1:
# not distinguishable. PACER, which here asks a small trained head every two tokens, is 1.032 times
# as fast, if its head costs nothing. *chosen in folds* says how often each setting won.
#
# ## All policies at a glance
#
# The same for every policy in the package. Each point is one policy, tuned on other prompts. To
# the left, little time goes into tokens that are thrown away; up is fast.

# %%
figures.frontier(trace)

# %% [markdown]
# **What it shows.** Most policies are a little faster than the best fixed length, by 9% at the most:
# `confidence`, which stops where the draft's own probability of its token is low. The intervals hold
# for all policies at once, and those of the fast ones overlap. The adaptive confidence rule spends
# 30% of its time on overhead and is slower, if perhaps by chance. What knowing the future would give, 1.53 times, is above
# the picture. [Notebook 05](05_comparing_policies.ipynb) takes it apart.
#
# ## Now with your trace
#
# Change one line, `TRACE = "reference"`, to a folder that you recorded, and run all cells. The
# numbers in the text are those of `reference` and will no longer be true. To record a pair, best
# on a machine with a GPU:
#
#     simkit record --target TARGET --draft DRAFT --prompts prompts.jsonl --out my-trace
#     simkit latency --target TARGET --draft DRAFT --out my-trace
#
# The first writes the trace, the second times the passes of both models into it. `simkit info
# my-trace` says what is there. Without times, name a cost instead, as in
# `simkit.replay(trace, …, cost="pacer:deepseek-1.3b-33b")` ([costs](../docs/costs.md)). `pacer`
# reads a trained head's scores; leave it out, or [train one](../docs/heads.md).
#
# A rule of your own is a Python function of the depth and the draft's statistics
# ([policies](../docs/policies.md)). Next: [why the draft's entropy tells when to
# stop](02_entropy_bound.ipynb).
