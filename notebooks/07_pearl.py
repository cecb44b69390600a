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

# %% [markdown]
# The target is SmolLM2-135M-Instruct, a small chat model, greedy, on 56 prompts. Its draft `q3-g32`
# is the same model rounded to 3 bits a weight: 80% of its tokens are accepted, as in the papers
# ([ladder](../docs/ladder.md)). Such a draft is the target with noise, not an independent small
# model, and as slow as its target. So `COST` names the times of another pair, Qwen2.5-32B with
# Qwen2.5-0.5B on an H200 GPU ([costs](../docs/costs.md#the-latency-atlas)).

# %% tags=["parameters"]
TRACE = "ladder/drafters/q3-g32"
COST = "atlas(target=qwen2.5-32b, draft=qwen2.5-0.5b)"
TOY = "reference"

# %% [markdown]
# ## Does each model really wait for the other?
#
# The figure shows how long the two phases of a step take, by the draft length γ. c is the time of a
# target pass divided by that of a draft pass.

# %%
study = Study(TRACE)
trace = study.trace
figures.mutual_waiting(study, cost=COST)

# %% [markdown]
# **What it shows.** With γ = 6 the target waits 15.3 ms for the draft, then the draft waits 23.3 ms
# for the target. The curves meet between nine and ten tokens, a little above c = 8.4, because
# verifying ten tokens takes longer than a target pass over one.
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
# Below are the first passes on the trace's first prompt, with γ = round(c) = 8. The numbers in the
# bars are tokens emitted; a drafted token is dark if it is accepted, at once or in the next pass.
# The table has one row for each pass.

# %%
drawn = figures.timeline(study, cost=COST)
drawn

# %%
columns = ["policy", "start", "drafted", "kept", "proposed", "accepted", "emitted", "end_ms"]
drawn.frame.filter(pl.col("end_ms") < 140).select(columns)

# %% [markdown]
# **What it shows.** Above, draft and target take turns, and every step emits the accepted tokens
# and one token of the target. Below, in PEARL, the target never waits, and the draft at most 3 ms a
# pass. Each of PEARL's passes emits fewer tokens: after a rejection the next pass can only check
# one token, and a draft that is accepted whole brings no extra token of the target. But nearly
# twice as many passes fit into the same time: after 309 ms PEARL's 13 have emitted 18 tokens, plain
# speculation's 7 have emitted 16. After a rejection, all tokens that were drafted in the meantime
# are thrown away.

# %% [markdown]
# ## How fast is it?
#
# Here all prompts are replayed. Without a number, `pearl` takes the window γ = round(c), here 8. Its
# rivals are the best fixed length, 5, the fixed length of PEARL's own window, and two policies that
# adapt, with the settings that tuning chooses, as in [01](01_quickstart.ipynb). The trace has
# drafts of at most 16 tokens: `max_draft=16`.

# %%
confidence = "confidence(threshold=0.4, max_draft=16)"
cumulative = "cumulative_confidence(threshold=0.15, max_draft=16)"
rivals = ["fixed(5)", "fixed(8)", confidence, cumulative, "prophet(max_draft=16)"]
parts = ["pearl(pre_verify=false)", "pearl(post_verify=false)", "pearl(colocated=true)"]
result = simkit.replay(trace, [*rivals, "pearl", *parts], COST)
result

# %%
pl.DataFrame([vars(result.compare("pearl", rival)) for rival in rivals]).drop("notes")

# %% [markdown]
# **What it shows.** PEARL is 1.14 [1.11, 1.18] times as fast as the best fixed length, 1.06 [1.04,
# 1.08] times as `confidence`, and 1.03 [1.01, 1.06] times as `cumulative_confidence`. All drafting
# is hidden behind target passes: `draft s`, the time that drafting adds to them, is 0, instead of
# 28 s for `fixed(5)`. But nothing else is saved, and verification takes most of it back, 69 s
# instead of 51: PEARL takes more target passes.
#
# Against drafts as long as its own window, `fixed(8)`, it is 1.21 [1.19, 1.23] times as fast. But
# it does more work: 23,578 draft passes instead of 15,082 (1.56 times), and 3,064 target passes
# instead of 1,922 (1.59 times).
#
# **The paper's.** 1.36–1.55 times as fast as plain speculation at its best length (Tables 2 and 3).
# **Agrees in sign**; the gain is smaller here. PEARL runs both models more often than plain
# speculation with the same window, which **agrees** with Table 11 (1.29–1.42 times).
#
# **Caveat.** Acceptance and times are of different pairs. `prophet` is an upper bound only for
# policies that draft and verify in turn, not for PEARL; here it is still faster than PEARL. And
# PEARL needs a second device. If both models share one device and their times add up
# (`colocated=true`, the worst case), it is slower than `fixed(5)`: 1.29 [1.17, 1.41] times as fast
# as the target alone, instead of 2.08.

# %% [markdown]
# ## What is each strategy worth?

# %%
figures.pearl_strategies(study, cost=COST)

# %%
drafts = result.steps("fixed(8)")
drafts.select(
    first_token_rejected=(pl.col("accepted") == 0).mean(),
    whole_draft_accepted=(pl.col("accepted") == pl.col("proposed")).mean(),
)

# %% [markdown]
# **What it shows.** Both help: without pre-verify PEARL keeps 0.89 [0.87, 0.90] of its speed,
# without post-verify 0.93 [0.91, 0.95].
#
# **The paper's.** In Table 4 post-verify matters more (stars in the figure: 0.92 without
# pre-verify, 0.68 without post-verify). **The order differs.** PEARL's section 4.3 has the reason:
# pre-verify helps where the first token is rejected, post-verify where whole drafts are accepted.
# Of this pair's drafts of eight, 27% fail at the first token and 21% are accepted whole; the
# paper's pairs accept runs of 27 to 40 tokens (Table 7).

# %% [markdown]
# ## Which window?
#
# PEARL with window γ drafts up to 2γ tokens ahead, so the trace above has no windows over 8. From
# here on all cells use a toy pair, `reference`: it has drafts of 40 tokens, 72% of draft tokens are
# accepted, and it was timed on a CPU (c = 9.7).

# %%
toy = Study(TOY)
figures.pearl_window(toy)

# %% [markdown]
# **What it shows.** The best window is 9 on code, prose and all prompts, 10 on math, 8 on german;
# round(c) is 10. From 8 to 10 the curve is flat, 1.75 to 1.77 on all prompts. Often no tokens are
# pending, and the target checks only one. Nine tokens, nearly ten, can be drafted during such a
# pass. With more the target waits, and the curve falls: 1.68 with 11. Up to ten, a wider window
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
        simkit.tune(toy.trace, "pearl(window=1:20)", cost, reference=rival)
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
# **Caveat.** The longest window that can be tried is 20, and at c = 24 PEARL may be a little faster
# than that row shows.

# %% [markdown]
# ## Now with your trace
#
# Set `TRACE` and `TOY` to its folder, and `COST` to `"measured"`, the trace's own times. The folder
# is made by
#
#     simkit record --target TARGET --draft DRAFT --prompts prompts.jsonl --out my-trace
#     simkit calibrate my-trace --target TARGET --draft DRAFT
#
# Then the numbers above change, above all c. Passes were timed one after the other, never two at
# once. If both models share a machine, the true speed lies between `pearl(colocated=true)` and
# `pearl`. Exchanging tokens is free unless a cost says otherwise (`--cost 'linear(draft_s=…,
# target_s=…, communication_s=…)'`). Read on: [PEARL](../docs/pearl.md), [costs](../docs/costs.md),
# and [08](08_fidelity.ipynb) about how far predicted times are off.
