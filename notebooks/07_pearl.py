# %% [markdown]
# # 07 · PEARL and parallel timelines
#
# In speculative decoding the target model waits while the draft model drafts, and the draft waits
# while the target verifies. PEARL (Liu et al. 2025) gives each model a device of its own and lets
# both work all the time. How much faster is that, why, and when is it slower? Here PEARL is
# replayed on the same trace as every other policy. The recorded tokens determine what each of its
# steps drafts and accepts, and its seconds are those of two models that work at the same time.

# %%
import polars as pl

import simkit
from analysis import Study, figures

# %% tags=["parameters"]
TRACE = "reference"

# %% [markdown]
# ## Does each model really wait for the other?
#
# The figure shows how long the two phases of a step take, by the draft length γ. c is the time of a
# target pass divided by that of a draft pass.

# %%
study = Study(TRACE)
trace = study.trace
figures.mutual_waiting(study)

# %% [markdown]
# **What it shows.** With γ = 6 the target waits 10.3 ms for the draft, then the draft waits 22.0 ms
# for the target. (Times are of this trace's small pair, c = 9.7.) Drafting ten tokens takes as long
# as a target pass over one token, but not as long as verifying the ten: 17.1 against 23.2 ms. So
# the two curves do not meet in the picture.
#
# **The paper's.** In PEARL's Fig. 2a both phases take long: CodeLlama 7B needs twice as long to
# draft six tokens as CodeLlama 34B needs to verify them. **Agrees** that neither phase can be
# neglected; here verification takes longer.

# %% [markdown]
# ## What do both models do, step by step?
#
# PEARL has two modes. **Pre-verify**, when nothing is pending: while γ tokens are drafted, the
# target already checks the first of them. If it is rejected, the target's correction is emitted and
# the draft thrown away; else the γ tokens are pending. **Post-verify**: while the target checks the
# pending tokens, the draft goes on behind them. If all are accepted, the next ones are pending
# already.
#
# Below are the first passes on the trace's first prompt under made-up times that are easy to draw:
# a draft pass takes 1 ms, a target pass 6 whatever it verifies, and γ = 6. The numbers in the bars
# are tokens emitted; a drafted token is dark if it is accepted, at once or in the next pass. The
# table has one row for each pass.

# %%
drawn = figures.timeline(study, cost="linear(draft_s=0.001, target_s=0.006)", window=6)
drawn

# %%
columns = ["policy", "start", "drafted", "kept", "proposed", "accepted", "emitted", "end_ms"]
drawn.frame.filter(pl.col("end_ms") < 40).select(columns)

# %% [markdown]
# **What it shows.** Above, draft and target take turns, and every step emits the accepted tokens
# and one token of the target. Below, in PEARL, neither model waits. Each of PEARL's passes emits
# fewer tokens: after a rejection the next pass can only check one token, and a draft that is
# accepted whole brings no extra token of the target. But twice as many passes fit into the same
# time: PEARL has emitted 32 tokens after 84 ms, against 26. After a rejection, all tokens that were
# drafted in the meantime are thrown away.

# %% [markdown]
# ## How fast is it?
#
# All prompts, with the trace's own times. Without a number, `pearl` takes the window γ = round(c),
# here 10. Its rivals are the best fixed length, 4, the fixed length of PEARL's own window, and two
# policies that adapt, with the settings that tuning chooses, as in [01](01_quickstart.ipynb).

# %%
result = simkit.replay(
    trace,
    [
        "fixed(4)",
        "fixed(10)",
        "heuristic(initial=7)",
        "confidence(threshold=0.3)",
        "pearl",
        "pearl(pre_verify=false)",
        "pearl(post_verify=false)",
        "pearl(colocated=true)",
        "prophet",
    ],
)
result

# %%
rivals = ["fixed(4)", "fixed(10)", "heuristic(initial=7)", "confidence(threshold=0.3)", "prophet"]
pl.DataFrame([vars(result.compare("pearl", rival)) for rival in rivals])

# %% [markdown]
# **What it shows.** PEARL does not differ measurably from the best fixed length, 1.05 [1.00, 1.11],
# nor from the policies that adapt: 1.00 [0.95, 1.04] times as fast as `heuristic`, 1.00 [0.95,
# 1.05] as `confidence`. Nearly all drafting is hidden behind target passes. `draft s` counts only
# the time that drafting adds to them: 4 s, instead of 59 s for `fixed(4)`. But nothing else is
# saved, and verification takes most of it back, 215 s instead of 174: PEARL takes more target
# passes and checks ten tokens in those that verify a draft.
#
# Against drafts as long as its own window, `fixed(10)`, it is 1.27 [1.20, 1.36] times as fast. But
# it does more work: 106,445 draft passes instead of 69,088 (1.54 times), and 11,092 target passes
# instead of 7,085 (1.57 times).
#
# **The paper's.** 1.36–1.55 times as fast as plain speculation at its best length (Tables 2 and 3).
# **Not distinguishable** from equal speed here, and the paper's gains lie above our interval: this
# pair accepts less, and its drafts are cheap. PEARL runs both models more often than plain
# speculation with the same window, which **agrees** with Table 11 (1.29–1.42 times).
#
# **Caveat.** `prophet` is an upper bound only for policies that draft and verify in turn, not for
# PEARL; here it is still faster than PEARL. And PEARL needs a second device. If both models share
# one device and their times add up (`colocated=true`, the worst case), it is no faster than the
# target alone, 0.98 [0.89, 1.08].

# %% [markdown]
# ## What is each strategy worth?

# %%
figures.pearl_strategies(study)

# %%
drafts = result.steps("fixed(10)")
drafts.select(
    first_token_rejected=(pl.col("accepted") == 0).mean(),
    whole_draft_accepted=(pl.col("accepted") == pl.col("proposed")).mean(),
)

# %% [markdown]
# **What it shows.** Without pre-verify PEARL keeps 0.81 [0.75, 0.86] of its speed, without
# post-verify 0.97 [0.96, 0.98]. Under the times of PEARL's DeepSeek pair, where the window is 4, it
# is 0.84 [0.79, 0.88] and 0.94 [0.92, 0.96].
#
# **The paper's.** In Table 4 post-verify matters more (stars in the figure: 0.92 without
# pre-verify, 0.68 without post-verify). **The order differs.** PEARL's section 4.3 has the reason:
# pre-verify helps where the first token is rejected, post-verify where whole drafts are accepted.
# Of this pair's drafts of ten, 38% fail at the first token and 9% are accepted whole; the paper's
# pairs accept runs of 27 to 40 tokens (Table 7).

# %% [markdown]
# ## Which window?

# %%
figures.pearl_window(study)

# %% [markdown]
# **What it shows.** The best window is 9 on code, prose, math and all prompts, 8 on german;
# round(c) is 10. From 8 to 10 the curve is flat, 1.74 to 1.77 on all prompts. Often no tokens are
# pending, and the target checks only one. Nine tokens, nearly ten, can be drafted during such a
# pass. With more the target waits, and the curve falls: 1.67 with 11. Up to ten, a wider window
# lets a pass check more tokens, which pays if they are accepted, as on math. A window of 1 is
# slower than the target alone.
#
# **The paper's.** Tables 5 and 6: round(c) is best, whatever the pair or the task. **Not
# distinguishable** here: with simultaneous intervals, windows of 5 to 9 do not differ measurably
# from 10. So few tokens are accepted that a longer window is mostly a longer verification
# ([claims](../docs/claims.md)). The point where the curve turns down **agrees**.

# %% [markdown]
# ## Where does it win, and where does it lose?
#
# The same steps under made-up times: a draft pass takes 1, a target pass c. PEARL's window and its
# rivals' arguments are tuned on other prompts at every c.

# %%
rivals = ["fixed(0:20)", "confidence(threshold=0.05:0.95:0.05)"]
costs = {c: simkit.costs.Linear(draft_s=1, target_s=c) for c in (2, 4, 8, 12, 24)}
shown = ["chosen", "speedup", "against", "against_lo", "against_hi"]
pl.concat(
    [
        simkit.tune(trace, "pearl(window=1:20)", cost, reference=rival)
        .frame.tail(1)
        .select(pl.lit(rival).alias("rival"), pl.lit(c).alias("c"), *shown)
        for rival in rivals
        for c, cost in costs.items()
    ]
)

# %% [markdown]
# **What it shows.** `against` is how many times faster PEARL is than its rival. Parallel work pays
# most where both models are about equally busy: at c = 2 PEARL is 1.29 [1.26, 1.33] times as fast
# as the best fixed length, at c = 8 1.14 [1.08, 1.19]. At c = 12, a little above this trace's own
# 9.7, the difference is not measurable, 1.04 [0.99, 1.10], and at c = 24 PEARL is slower: 0.90
# [0.86, 0.95]. There drafting is so cheap that hiding it gains little, while after each rejection
# PEARL spends a whole target pass on one token. `confidence` stops before most rejections, and its
# decisions are free under these times. Against it, the advantage ends sooner: 1.05 [1.00, 1.09] at
# c = 8, 0.99 [0.95, 1.04] at c = 12.
#
# **The paper's.** Its pairs have c between 2.7 and 5.4 (from the speeds of Table 10), where PEARL
# wins here too.
#
# **Caveat.** PEARL with window γ drafts up to 2γ tokens ahead, and the trace has drafts of 40
# tokens. So the longest window that can be tried is 20, and at c = 24 PEARL may be a little faster
# than that row shows.

# %% [markdown]
# ## Now with your trace
#
# Set `TRACE` to its folder. It is made by
#
#     simkit record --target TARGET --draft DRAFT --prompts prompts.jsonl --out my-trace
#     simkit calibrate my-trace --target TARGET --draft DRAFT
#
# Then the numbers above change, above all c. Passes were timed one after the other, never two at
# once. If both models share a machine, the true speed lies between `pearl(colocated=true)` and
# `pearl`. Exchanging tokens is free unless a cost says otherwise (`--cost 'linear(draft_s=…,
# target_s=…, communication_s=…)'`). Read on: [PEARL](../docs/pearl.md), [costs](../docs/costs.md),
# and [08](08_fidelity.ipynb) about how far predicted times are off.
