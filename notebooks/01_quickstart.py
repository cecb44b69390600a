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
    ["autoregressive", "fixed(1)", "fixed(2)", "fixed(4)", "fixed(8)"]
    + ["svip(h=1)", "oracle", "prophet"],
)
result

# %% [markdown]
# **What it shows.** *speedup* is the time of the target alone over that of the policy; the brackets are
# its 95% interval over prompts, which holds the spread of the times too. *tokens/step* is what one
# target pass yields: the tokens accepted and one from the target itself. *drafted* counts draft tokens,
# and *accepted* is the share of them that was kept. The seconds are those of prompts, draft passes,
# target passes, the policy's decisions, and the rest of the decoder's loop.
#
# The more the draft writes, the more a step yields: 3.256 tokens with γ = 8 against 2.759 with
# γ = 4. But then 71% of the draft's tokens are thrown away, and `fixed(4)` is faster. Tokens per
# step alone do not tell what is fast: look at the time.
#
# The oracle accepts all that it drafts and is 2.421 times as fast as the target alone; `fixed(4)`
# gets to 1.662. Most of these notebooks are about what lies between the two. `autoregressive` is
# the speculative loop with empty drafts. It pays for that loop at every token, so it is slower than
# the target alone: 0.956.
#
# **Caveat.** Times are sums of what was timed for this pair in running decoders, on one thread of a
# CPU ([costs](../docs/costs.md)): passes, decisions, heads, and the loop around them. How far such
# sums are from the clock is measured in [fidelity](../docs/fidelity.md).
#
# ## Is the difference real?
#
# The intervals of `fixed(4)` and `fixed(2)` overlap, mostly because prompts differ. Both policies
# met the same prompts, so compare them prompt by prompt.

# %%
pl.DataFrame([vars(result.compare("fixed(4)", "fixed(2)"))])

# %% [markdown]
# **What it shows.** `fixed(4)` is 1.053 times as fast as `fixed(2)`, and the paired interval, 1.018
# to 1.086, leaves out 1: it is faster.
#
# ## Does it depend on the text?

# %%
simkit.replay(trace, ["fixed(4)", "fixed(8)", "svip(h=1)"], by="task")

# %% [markdown]
# **What it shows.** Much. On `math`, whose lines the draft has learned well, `fixed(8)` is faster
# than `fixed(4)`, and stopping by entropy is faster still: 2.936 times the target alone. On the
# other three tasks `fixed(4)` is ahead of both, though their intervals are wide: 32 prompts a task.
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
families = [
    "svip(h=0.2:2.0:0.1)",
    "confidence(threshold=0.05:0.95:0.05)",
    "pacer(block=4, threshold=0.2:0.9:0.1)",
]
simkit.tune(trace, families)

# %% [markdown]
# **What it shows.** Read *held-out speedup* and *against*. `confidence`, which stops where the draft's
# own probability of its token is low, is 1.053 [1.016, 1.090] times as fast as the best fixed length,
# its decisions paid: each takes about a tenth of a draft pass. Stopping by entropy is slower, 0.956
# [0.919, 0.995]. Its decisions take a little longer still, but they are the smaller part of that: a
# target pass takes as long as ten draft passes here, so draft tokens are cheap, and a rule that stops
# too soon loses more than it saves. PACER asks a small trained head every four tokens, which takes
# seven tenths of a draft pass, and is slower too: 0.959 [0.932, 0.980]. *chosen in folds* says how
# often each setting won.
#
# ## All policies at a glance
#
# The same for every policy in the package. Each point is one policy, tuned on other prompts. To
# the left, little time goes into decisions and into tokens that are thrown away; up is fast.

# %%
figures.frontier(trace)

# %% [markdown]
# **What it shows.** The intervals hold for all policies at once, so they are wider than those above.
# Two of the twelve policies are faster than the best fixed length: the heuristic, which only looks
# whether the last draft was accepted whole, by 6%, and cumulative confidence by 4%. One is slower,
# PACER, by 4%. The intervals of the other nine hold 1, now that of `confidence`, too: it is at 5%, and
# four more are ahead by 1% to 4%, perhaps by chance. The two rules that stop by entropy, SVIP and
# AdaEDL, are 4% behind, llama.cpp's rule as well, and the adaptive confidence rule, which spends 25% of
# its time on overhead, is 9% behind: perhaps by chance, too. What knowing the future would give, 1.46
# times, is above the picture. [Notebook 05](05_comparing_policies.ipynb) takes it apart.
#
# ## Now with your trace
#
# Change one line, `TRACE = "reference"`, to a folder that you recorded, and run all cells. The
# numbers in the text are those of `reference` and will no longer be true. To record a pair, best
# on a machine with a GPU:
#
#     simkit record --target TARGET --draft DRAFT --prompts prompts.jsonl --out my-trace
#     simkit calibrate my-trace --target TARGET --draft DRAFT
#
# The first writes the trace. The second lets the pair decode some of its prompts, and writes into it
# how long passes, decisions and the loop take; `--head` adds learned heads. (`simkit latency` times
# passes alone.) `simkit info my-trace` says what is there. Without times, name a cost instead, as in
# `simkit.replay(trace, …, cost="pacer:deepseek-1.3b-33b")` ([costs](../docs/costs.md)). `pacer`
# reads a trained head's scores; leave it out, or [train one](../docs/heads.md).
#
# A rule of your own is a Python function of the depth and the draft's statistics
# ([policies](../docs/policies.md)). Next: [why the draft's entropy tells when to
# stop](02_entropy_bound.ipynb).
