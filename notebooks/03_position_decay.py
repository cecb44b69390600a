# %% [markdown]
# # 03 · Position decay
#
# Are tokens deeper in a draft less likely to be accepted? PACER says so (*acceptance rates decrease
# with draft position*) and builds on it: its threshold grows with depth. PARD-2 draws the same
# decline. But "acceptance" can mean two quantities, and one may fall while the other rises.
#
# *Marginal* acceptance at depth j is the share of drafts whose first j tokens are all accepted. It
# must fall, since a draft ends with its first rejected token. *Conditional* acceptance is the share
# accepted at depth j among drafts whose earlier tokens were all accepted. It need not fall.

# %%
import polars as pl

import traces
from analysis import claims, figures
from analysis.stats import clusters, depth, drafts, iid
from simkit.drafters.path import PathLayout

_ = pl.Config.set_float_precision(3)
_ = pl.Config.set_tbl_rows(20)

# %% [markdown]
# The first figure uses a draft of which 80% of the tokens are accepted, as in the papers:
# [`ladder`](../docs/ladder.md) has SmolLM2-135M-Instruct, a small chat model, as the target, and
# the same model rounded to 3 bits a weight as the draft (`q3-g32`), on 56 prompts, greedy.
#
# All other cells use the two traces below: the same target on 300 prompts with an independent draft
# model of 8 million parameters, of which 40% of the tokens are accepted
# ([details](../docs/smollm2.md)). The first is greedy, the second sampled at temperature 1.

# %% tags=["parameters"]
TRACE = "smollm2"
SAMPLED = "smollm2-sampled"

# %% [markdown]
# ## How far are drafts of 16 tokens accepted?
#
# `fixed(16)` drafts 16 tokens in every step. Here it is replayed on all prompts of `ladder`.

# %%
shown = ["series", "depth", "at_risk", "acceptance", "acceptance_lo", "acceptance_hi"]
some = pl.col("series").is_in(["conditional", "marginal"]), pl.col("depth").is_in([1, 4, 8, 16])
drawn = figures.position_decay(traces.load("ladder/drafters/q3-g32"))
drawn

# %%
drawn.frame.filter(*some).select(shown)

# %% [markdown]
# **What it shows.** Marginal acceptance falls from 0.71 at depth 1 to 0.32 at depth 4 and 0.16 at
# 8. Conditional acceptance *rises*: 0.71 at depth 1, 0.81 at 4, 0.88 at 8, 0.92 at 16. A draft that
# was accepted so far is likely to be accepted further. The curves outside of verbatim loops of the
# output have the same direction.
#
# **The paper's.** PACER's Fig. 6 declines sharply. If it is marginal, ours agrees; if it is
# conditional, ours is the opposite. The dotted line is αʲ, for independent tokens that are each
# accepted with probability α. It falls too, although depth has no effect on such tokens. So a
# falling marginal curve is no evidence that depth matters.
#
# **Caveat.** A rounded copy of the target is not an independent draft model. Does the same hold for
# one?

# %%
drawn = figures.position_decay(TRACE)
drawn

# %%
drawn.frame.filter(*some).select(shown)

# %% [markdown]
# **What it shows.** With the weak independent draft model both curves start lower and have the same
# direction. Marginal acceptance falls from 0.368 at depth 1 to 0.034 at depth 4 and 0.004 at 8.
# Conditional acceptance rises from 0.368 at depth 1 to 0.532 at 4 and 0.696 at 8. Outside of loops
# it rises to about 0.6 at depth 6, and then stays there.
#
# **Caveat.** Of 56,072 drafts 283 reach depth 8 and 31 reach depth 16 (*at_risk*). Most of these 31 are
# in one text that is a loop, so the last points have no intervals. A draft that the end of the text cuts
# off does not count as rejected; it leaves the statistic where it was cut.
#
# ## Why does it rise?
#
# There are two explanations. Either one acceptance makes the next more likely, or only easy texts
# remain: at depth 1 all drafts count, at depth 16 only those that were accepted so far, and they
# are in easy texts. If easy texts are the reason, the rise should be weaker within a task. From
# here on all cells use the weak draft.

# %%
trace = traces.load(TRACE)
ahead = PathLayout(trace).ahead
tasks = pl.from_arrow(trace.sequences)["task"]
rows = []
for task in tasks.unique(maintain_order=True):
    positions, offsets = clusters.of_prompts(trace.position_offsets, (tasks == task).to_numpy())
    steps = drafts.fixed_steps(ahead[positions], offsets, trace.max_new_tokens, 16)
    curve = depth.by_depth(steps, 16).conditional
    rows.append(
        {"task": task}
        | {f"depth {j}": curve[j - 1].value for j in (1, 2, 4, 8, 12) if j <= len(curve)}
    )
pl.DataFrame(rows, infer_schema_length=None)

# %% [markdown]
# **What it shows.** Tasks differ: at depth 1 from 0.25 on `summarization` to 0.47 on `math`. Within
# thirteen of the fourteen tasks acceptance is higher at depth 4 than at depth 1, on `humaneval` by 0.3. A
# task, too, is a mixture of easy and hard prompts. At depths 8 and 12 most tasks have too few drafts
# left.
#
# A second test: does one accepted token make the next one more likely? Compute the correlation of
# acceptance at neighbouring positions, first around the mean of all prompts, then around each prompt's
# own mean, which removes the differences between prompts.

# %%
accepted = trace.positions("accepted")
pl.DataFrame(
    [
        {"from the mean of": "each prompt" if within else "all prompts"}
        | vars(iid.autocorrelation(accepted, trace.position_offsets, within=within))
        for within in (False, True)
    ]
).drop("note")

# %% [markdown]
# **What it shows.** Over all prompts the correlation is 0.075. Within prompts it is 0.004, and the
# interval contains 0. So an accepted token shows, on average, only that the prompt is easy. With
# depth the share of easy prompts rises.
#
# How much do run lengths vary? A run is a series of accepted tokens. For independent tokens of one α,
# run lengths are geometric. *Dispersion* is their variance over that of the geometric law: 1 if tokens are
# independent.

# %%
runs = drafts.runs(accepted, trace.position_offsets)
fit = iid.run_lengths(runs)
pl.DataFrame(
    [
        {"what": "alpha"} | vars(fit.alpha),
        {"what": "dispersion"} | vars(fit.dispersion),
    ]
).drop("note")

# %%
lengths = pl.DataFrame({"tokens": runs.accepted, "rejected": runs.rejected})
ended = lengths.filter("rejected").sort("tokens", descending=True)
parts = {
    "ended by a rejection": ended,
    "the same, without the longest": ended[1:],
    "cut off by the end of the text": lengths.filter(~pl.col("rejected")),
}
pl.concat([part.with_columns(runs=pl.lit(what)) for what, part in parts.items()]).group_by(
    "runs", maintain_order=True
).agg(
    number=pl.len(),
    over_100=(pl.col("tokens") > 100).sum(),
    longest=pl.col("tokens").max(),
    variance=pl.col("tokens").var(ddof=0),
)

# %% [markdown]
# **What it shows.** 39.7% of tokens are accepted, and the variance of run lengths is 1.28
# [1.20, 1.39] times that of independent tokens: there are somewhat more short and long runs. The closed
# forms of notebook 04 assume geometric runs, and are not far off here.
#
# **Caveat.** No run that ends in a rejection is longer than 16 tokens, and the result does not
# depend on one prompt. But one loop lasts for 467 tokens, to the end of its text. Its full length
# is unknown, so the dispersion leaves it out. On the toy pair of later notebooks, one loop that
# does end causes two fifths of the variance, and the interval is from 1 to 16.
#
# ## Does it matter where drafts start?
#
# A decoder's steps start after a rejection, or after a draft that was accepted whole. The trace
# has the drafts from every position.

# %%
figures.position_decay(TRACE, starts="every")

# %% [markdown]
# **What it shows.** Both curves are higher, and with loops the conditional one rises to 0.99. A run
# of n accepted tokens counts n times here, once from each of its tokens, so the run of 467 makes
# nearly all drafts that reach depth 16. Papers count the starts of steps. Always state which starts
# you count.
#
# ## And when tokens are sampled?

# %%
figures.position_decay(SAMPLED)

# %% [markdown]
# **What it shows.** The two directions are the same: marginal acceptance falls from 0.36 to
# nothing, conditional acceptance rises from 0.36 to 0.60 at depth 8. There are hardly any loops,
# and two drafts of 57,894 reach depth 16.
#
# ## Does a threshold that grows with depth help?
#
# PACER stops a draft when its head's predicted acceptance falls below a threshold. It multiplies
# the threshold by ρ = 1.05 after every block of tokens, because it found deeper tokens to be
# accepted less often. The figure shows its speed by ρ.

# %%
figures.pacer_growth(TRACE)

# %%
wanted = ("marginal_falls", "conditional_falls", "growth_helps", "growth_shortens")
claims.check(TRACE, claims=[one for one in claims.claims() if one.name in wanted])

# %% [markdown]
# **What it shows.** No effect: for every ρ the steps are almost the same. The threshold can grow
# only after a block of four tokens, and here hardly any draft gets past the first block. Any head
# would do the same if two tokens in five are accepted. On the toy pair, too, every ρ is within 0.5%
# of 1.05 ([ablations](../docs/ablations.md)). And conditional acceptance, for which growth was
# designed, does not fall.
#
# **The paper's.** Table 12 has ρ = 1.05 best by 0.5% to 6%. **Caveat.** The paper's pairs accept
# longer runs, and its head gets the depth as an input.
#
# ## Now with your trace
#
# Set `TRACE` to your folder, and `SAMPLED` to a recording at `--temperature 1`, or delete its cell.
# Delete the first figure, too. The numbers in the text are those of the bundled traces. Look first
# whether *conditional* acceptance rises or falls, and whether it still does so within prompts. That
# shows whether a rule should depend on depth or on the text. The cells on growth need the scores of
# a trained PACER head ([heads](../docs/heads.md)) and times that include the head:
#
#     simkit calibrate my-trace --target TARGET --draft DRAFT --head pacer.safetensors
#
# [Statistics](../docs/statistics.md) explains the estimators and their intervals. Next:
# [the optimal draft length](04_optimal_gamma.ipynb).
