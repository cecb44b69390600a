# %% [markdown]
# # 06 · Heads and calibration
#
# A learned head is a small network that looks at the draft model's inner state and says how likely
# the target is to accept the token just drafted. PACER, SpecDec++ and the acceptance-head paper
# stop drafting by such a prediction. Here: does the prediction come true, does it order tokens
# better than what the draft says of itself, and when is a head worth its time?

# %%
import polars as pl

import simkit
import traces
from analysis import figures
from analysis.scored import Predicted, predicted
from analysis.stats import ranking

_ = pl.Config.set_tbl_rows(12)

# %% tags=["parameters"]
TRACE = "reference"

# %% [markdown]
# ## What does a head predict?
#
# Three heads were trained on other prompts of the same two models, and have scored every token of
# this trace once. The acceptance head and SpecDec++'s head look at one token's state and give the
# probability that this token is accepted. (PACER's looks at the whole draft: the probability that
# this token *and all before it* are accepted. It comes back below.) Beside them stand signals that
# need no network and no training: the probability that the draft gave its own token, its lead over
# the second likeliest, and the entropy of the draft's distribution, which is high where the draft is
# unsure.

# %%
trace = traces.load(TRACE)
accepted, offsets = trace.positions("accepted"), trace.position_offsets
own = {
    "draft's probability": trace.positions("draft_prob_raw"),
    "lead, top-1 - top-2": trace.positions("draft_top1_prob") - trace.positions("draft_top2_prob"),
    "minus entropy": -trace.positions("draft_entropy"),
}
signals = {  # a token that no state has read has no score
    "acceptance head": predicted(trace, "acceptance_head"),
    "SpecDec++ head": predicted(trace, "specdecpp"),
} | {name: Predicted(values, accepted, offsets) for name, values in own.items()}
pl.DataFrame(
    [
        {
            "signal": name,
            "mean if accepted": float(found.probability[found.accepted].mean()),
            "mean if rejected": float(found.probability[~found.accepted].mean()),
        }
        for name, found in signals.items()
    ]
)

# %% [markdown]
# **What it shows.** All five are higher where the token is accepted. SpecDec++'s scores are low
# throughout: in its training a rejection weighs six times an acceptance.

# %% [markdown]
# ## Which signal orders tokens best?
#
# AUC is the chance that an accepted token scores above a rejected one: 0.5 is a coin, 1 is perfect.
# The brackets (`lo`, `hi`) are a 95% bootstrap interval over prompts. All prompts are new to the
# heads.

# %%
pl.DataFrame(
    [
        {"signal": name}
        | vars(ranking.auc(found.probability, found.accepted, offsets=found.offsets))
        for name, found in signals.items()
    ]
).drop("note")

# %% [markdown]
# **What it shows.** The draft's own signals win: the lead of the first token over the second has 0.87
# [0.85, 0.89], the draft's probability 0.86 [0.84, 0.88]; SpecDec++'s head is at 0.72 [0.67, 0.76], the
# acceptance head at 0.64 [0.58, 0.69]. The state that the acceptance head reads has consumed the token,
# and holds the distribution of the next one.
#
# **The paper's.** PACER holds what the draft says of itself for unreliable, and a head for better;
# neither it nor the acceptance-head paper prints an AUC. **Differs** here, and not because the idea
# is wrong: these heads learnt from 156 prompts, PACER's from 20,000 instructions, and the signals
# come out of the draft's whole output layer, which a head this small cannot stand in for. At
# temperature 1 SpecDec++'s head and the best signal are level ([heads](../docs/heads.md)).

# %% [markdown]
# ## Do the probabilities come true?
#
# To order tokens is not enough where a probability is compared with a cost. Tokens are put into ten
# bins by their score; a calibrated score lies on the diagonal. Beside the heads and the draft's
# probability stands SVIP's estimate of acceptance, 1 − √(c H(q)), from the draft's entropy H(q).

# %%
drawn = figures.reliability(trace)
drawn

# %%
parts = ["error", "brier", "skill", "skill_lo", "skill_hi"]
drawn.frame.group_by("signal", maintain_order=True).agg(pl.col(parts).max())

# %% [markdown]
# **What it shows.** The acceptance head is closest to the diagonal: on average it is off by 0.047
# (`error`), the draft's probability by 0.198, SVIP's estimate by 0.259, SpecDec++'s score by 0.298.
# The draft's own signals and SpecDec++ say too little: of the tokens to which the draft gives a
# probability between 0.3 and 0.4, two thirds are accepted. Under greedy decoding a token is accepted if
# it is the likeliest for both models, and for that it need not be likely. So the head that orders
# tokens worst says most truly how likely they are. That alone is worth little: its squared errors
# (`brier`) are 4% [−1%, 11%] smaller than those of always guessing the mean (`skill`), which cannot be
# told from none; SpecDec++'s, which were weighted so on purpose, are larger than those.
#
# **The paper's.** PACER expects language models to be overconfident. **Differs**: this draft is too
# modest, as is natural where acceptance asks for the likeliest token only.
#
# **Caveat.** A score that is off in the same direction everywhere does little harm where a
# threshold is tuned, which then moves with it. It does harm where the threshold follows from a
# cost, as in `acceptance_head(h=cost)`.

# %% [markdown]
# ## Does a better score make a faster policy?
#
# Each policy with its arguments chosen on other prompts, against the best fixed length, chosen in the
# same way. The four rules and their heads were timed in running decoders, so deciding is paid for.

# %%
families = [
    "confidence(threshold=0.05:0.95:0.05)",
    "acceptance_head(h=0.1:0.9:0.1, max_draft=20)",
    "specdecpp(threshold=0.15:0.95:0.1)",
    "pacer(block=1:4, threshold=0.1:0.9:0.1)",
]
tuned = simkit.tune(trace, families)
tuned

# %% [markdown]
# What each of the chosen settings drafts, and what it spends on deciding (*policy s*: the rule and
# the head):

# %%
simkit.replay(trace, tuned.frame["chosen"].unique(maintain_order=True).to_list())

# %% [markdown]
# **What it shows.** One of the four is faster than the best fixed length: `confidence`, which reads the
# draft's probability, by 5% [2%, 9%]. The acceptance head at 1.01 [0.99, 1.02] and SpecDec++ at 1.01
# [0.98, 1.03] are not distinguishable from it. PACER is slower: 0.96 [0.93, 0.98].
#
# The second table has the reasons. SpecDec++ drafts an eighth less than `fixed(4)`, which saves 7.8 s,
# its verifications are a little shorter, and it spends 7.9 s on deciding. PACER drafts 4% more, which
# takes 2.7 s. It verifies less often, which saves 3.4 s, but it spends 11.3 s on deciding: a call of its
# head takes 1.25 ms, where a draft pass takes 1.8 ms. To read the draft's own probability is not free
# either: 4.6 s, as much as the acceptance head with its rule.
#
# **The paper's.** PACER is 1.01–1.13 times as fast as the best fixed length (Tables 1 and 5), and 1.14
# times on HumanEval with Llama 2 (Table 3). **Differs**: here it is slower. Its appendix G expects as
# much of small models, where short drafts are best and the head's time weighs more.
#
# **Caveat.** A difference between two heads of less than about 2% may come from the seed of their
# training ([ablations](../docs/ablations.md)), and the folds do not agree on PACER's arguments (*chosen
# in folds*), by which it loses 0.7%. The intervals cover neither.

# %% [markdown]
# ## Faster although fewer tokens are accepted?
#
# The acceptance-head paper compares drafts of a fixed length with the same drafts, stopped early by
# the head at h = 0.95.

# %%
drawn = figures.acceptance_head(trace)
drawn

# %%
drawn.frame.filter(pl.col("arm") == "with head, h = 0.95").select(
    "task", "speed", "speed_lo", "speed_hi", "tokens_per_step", "tokens_per_step_without"
)

# %%
simkit.replay(trace, ["fixed(6)", "acceptance_head(h=0.95, max_draft=6)"])

# %% [markdown]
# **What it shows.** At h = 0.95 the head hardly ever stops a draft of six tokens: it saves 56 draft
# passes of 45,584, and deciding takes 7.5 s. So all tasks lose what deciding takes, 0.973 [0.972,
# 0.974]. With h tuned it stops sooner and pays: 1.07 [1.03, 1.10], with 2.73 tokens a step instead of
# 3.06.
#
# **The paper's.** Fig. 2 and Table 1: faster with the head, mean 1.013 for Vicuna 7B, with τ
# slightly shorter. **Differs** at the paper's h, **agrees** with h tuned.
#
# **Caveat.** Drafts of six tokens are too long for this pair. Against the best fixed length, four in
# most folds, what the tuned head gains cannot be told from nothing (the section above).

# %% [markdown]
# ## When does a head pay for itself?
#
# What a head takes has to be seen beside a draft pass: of this small pair that is 1.8 ms. PACER prints
# 1.81 ms for its head, beside draft passes of 16.52 ms and verifications of 67.31 ms (Table 14). Put
# these times on our steps.

# %%
simkit.tune(trace, families, cost="pacer:deepseek-1.3b-33b")

# %%
figures.runtime_breakdown(trace)

# %% [markdown]
# **What it shows.** Under these times the best fixed length is `fixed(2)`, and no head beats it: the
# acceptance head is at 0.987 [0.984, 0.991], SpecDec++ at 0.99 [0.97, 1.00] and PACER at 0.98 [0.94, 1.01].
# `confidence`, which asks no head, gains 7% [4%, 10%]. The picture has the policies at their default
# settings.
#
# **The paper's.** PACER's Table 15: 2.1% of the time for the head. **Agrees** that it is cheap on
# such models; on the trace's own times head and rule take 11.3 s of 257, 4%.
#
# **Caveat.** The preset charges every head with the 1.81 ms of PACER's transformer layer, and rules
# with nothing. A head of two small blocks would take less, and no rule is free.

# %% [markdown]
# The break-even, then, in round numbers near the trace's own: a target pass takes 10 draft passes,
# however many tokens it verifies, and a call of a head a growing share of one.

# %%
shares = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7)
shown = ["chosen", "speedup", "against", "against_lo", "against_hi"]
pl.concat(
    [
        simkit.tune(trace, family, simkit.costs.Linear(draft_s=1, target_s=10, head_s=share))
        .frame.tail(1)
        .select(pl.lit(share).alias("head ÷ draft pass"), *shown)
        for family in (families[1], families[3])
        for share in shares
    ]
)

# %% [markdown]
# **What it shows.** Free of charge, the acceptance head is 1.03 [1.01, 1.04] times as fast as the best
# fixed length, PACER 1.00 [0.96, 1.04], which is not distinguishable. With a call at a tenth of a draft
# pass, about what the timed one takes, the acceptance head cannot be told from it either, 1.01 [0.99,
# 1.02]; at a half it loses 6%. PACER is called less often and loses less for the same price, but it
# starts from less. Its timed head takes 0.71 of a draft pass, and the last row has it at 0.96 [0.94,
# 0.98], slower. With the paper's own times a call is 0.11 of a draft pass.
#
# **The paper's.** The acceptance-head paper calls its head's cost negligible and does not print it.
# It has to be: on this pair a tenth of a draft pass takes four fifths of the gain.

# %% [markdown]
# ## Now with your trace
#
# Set `TRACE` to its folder. Heads need a recording with the draft's states, and are best trained on
# other prompts than those that are compared:
#
#     simkit record --target TARGET --draft DRAFT --prompts train.jsonl --hidden --mix 0.5 \
#         --out train-trace
#     simkit train acceptance train-trace -o acceptance.safetensors  # or pacer, specdecpp
#     simkit score my-trace --head acceptance.safetensors    # recorded with --hidden, too
#     simkit calibrate my-trace --target TARGET --draft DRAFT --head acceptance.safetensors
#
# The last command decodes some of the trace's prompts and times the passes, the rules and the heads
# that are named. A rule that was not timed is timed when it is replayed; a head that was not is free,
# and the replay says so. A trace without scores
# of a head can still be judged by the draft's own signals: take the heads out of `signals` and
# `families`. Then none of the figures above holds: how good a head is depends on how many prompts it
# was trained on, and whether it pays, on how long your draft takes. How far such predictions are
# from live runs is in [08](08_fidelity.ipynb). Read on: [heads](../docs/heads.md), [the papers'
# ablations](../docs/ablations.md), [07](07_pearl.ipynb) about PEARL.
