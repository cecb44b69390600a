# %% [markdown]
# # 06 · Heads and calibration
#
# A learned head is a small network that looks at the draft model's inner state and says how likely
# the target is to accept the token just drafted. PACER, SpecDec++ and the acceptance-head paper
# stop drafting by such a prediction. This notebook asks three questions. Are the predicted
# probabilities right? Do they rank tokens better than the draft's own probabilities do? And when is
# a head worth its time?

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
# probability that this token is accepted. (PACER's head looks at the whole draft and predicts that
# this token *and all before it* are accepted; it is used below.) The table compares the two heads
# with signals that need no network and no training: the probability that the draft gave its own
# token, its lead over the second likeliest, and the entropy of the draft's distribution, which is
# high where the draft is unsure.

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
# **What it shows.** All five signals are higher where the token is accepted. SpecDec++'s scores are
# low throughout, because its training weights a rejection six times as much as an acceptance.

# %% [markdown]
# ## Which signal orders tokens best?
#
# AUC is the chance that an accepted token scores above a rejected one: 0.5 is a coin, 1 is perfect.
# `lo` and `hi` are the ends of a 95% bootstrap interval over prompts. No head was trained on these
# prompts.

# %%
pl.DataFrame(
    [
        {"signal": name}
        | vars(ranking.auc(found.probability, found.accepted, offsets=found.offsets))
        for name, found in signals.items()
    ]
).drop("note")

# %% [markdown]
# **What it shows.** The draft's own signals are best: the lead of the first token over the second
# has an AUC of 0.87 [0.85, 0.89], the draft's probability 0.86 [0.84, 0.88]. SpecDec++'s head has
# 0.72 [0.67, 0.76], the acceptance head 0.64 [0.58, 0.69]. The acceptance head reads the draft's
# state after the token, and that state is about the next token.
#
# **The paper's.** PACER calls the draft's own probabilities unreliable and a head better. Neither
# PACER nor the acceptance-head paper prints an AUC. **Differs** here, but that does not refute the
# idea: these heads learnt from 156 prompts, PACER's from 20,000 instructions, and a head this small
# cannot replace the draft's whole output layer, from which the signals come. At temperature 1
# SpecDec++'s head is as good as the best signal ([heads](../docs/heads.md)).

# %% [markdown]
# ## Do the probabilities come true?
#
# If a rule compares a probability with a cost, the probability must be right, not only its order.
# Tokens are put into ten bins by their score; a calibrated score lies on the diagonal. The figure
# has the heads, the draft's probability, and SVIP's estimate of acceptance from the draft's entropy
# H(q), 1 − √(c H(q)).

# %%
drawn = figures.reliability(trace)
drawn

# %%
parts = ["error", "brier", "skill", "skill_lo", "skill_hi"]
drawn.frame.group_by("signal", maintain_order=True).agg(pl.col(parts).max())

# %% [markdown]
# **What it shows.** The acceptance head is closest to the diagonal: on average it is off by 0.047
# (`error`), the draft's probability by 0.198, SVIP's estimate by 0.259, SpecDec++'s score by 0.298.
# The draft's own signals and SpecDec++ predict too little acceptance: of the tokens to which the
# draft gives a probability between 0.3 and 0.4, two thirds are accepted. Under greedy decoding a
# token is accepted if it is the likeliest for both models, even if its probability is low. So the
# head with the worst order has the best calibration. Good calibration alone is worth little.
# `skill` compares squared errors (`brier`) with those of always guessing the mean: the acceptance
# head's are 4% [−1%, 11%] smaller, which may be chance. SpecDec++'s are larger than those of
# guessing, because its training weighted rejections on purpose.
#
# **The paper's.** PACER expects language models to be overconfident. **Differs**: this draft is
# underconfident, as expected where a token only has to be the likeliest to be accepted.
#
# **Caveat.** A score that is too low everywhere does little harm if its threshold is tuned, because
# tuning lowers the threshold, too. It does harm if the threshold is computed from a cost, as in
# `acceptance_head(h=cost)`.

# %% [markdown]
# ## Does a better score make a faster policy?
#
# Each policy is compared with the best fixed length; the arguments of both are chosen on other
# prompts. The four rules and their heads were timed in running decoders, so decisions are paid for.

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
# **What it shows.** One of the four is faster than the best fixed length: `confidence`, which reads
# the draft's probability, by 5% [2%, 9%]. The acceptance head at 1.01 [0.99, 1.02] and SpecDec++ at
# 1.01 [0.98, 1.03] do not differ measurably from it. PACER is slower: 0.96 [0.93, 0.98].
#
# The second table has the reasons. SpecDec++ drafts an eighth less than `fixed(4)`, which saves 7.8
# s, its verifications are a little shorter, and it spends 7.9 s on deciding. PACER drafts 4% more,
# which takes 2.7 s. It verifies less often, which saves 3.4 s, but it spends 11.3 s on deciding: a
# call of its head takes 1.25 ms, where a draft pass takes 1.8 ms. Reading the draft's own
# probability is not free either: it takes 4.6 s, as much as the acceptance head with its rule.
#
# **The paper's.** PACER is 1.01–1.13 times as fast as the best fixed length (Tables 1 and 5), and
# 1.14 times on HumanEval with Llama 2 (Table 3). **Differs**: here PACER is slower. Its appendix G
# expects this for small models, where short drafts are best and the head takes a larger share of
# the time.
#
# **Caveat.** A difference between two heads of less than about 2% may come from the seed of their
# training ([ablations](../docs/ablations.md)), and the folds do not agree on PACER's arguments
# (*chosen in folds*), which costs it 0.7%. The intervals contain neither effect.

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
# **Caveat.** Drafts of six tokens are too long for this pair. Compared with the best fixed length,
# four in most folds, the tuned head gains nothing measurable (the section above).

# %% [markdown]
# ## When does a head pay for itself?
#
# A head's time matters relative to a draft pass, which takes 1.8 ms on this small pair. PACER
# reports 1.81 ms for its head, with draft passes of 16.52 ms and verifications of 67.31 ms (Table
# 14). Here these times are applied to our steps.

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
# such models. At the trace's own times head and rule take 11.3 of 257 s, 4%.
#
# **Caveat.** This cost charges 1.81 ms, the time of PACER's transformer layer, for every head, and
# nothing for rules. A head of two small blocks would take less, and no rule is free.

# %% [markdown]
# At which price does a head stop paying? The next table uses round numbers near the trace's own: a
# target pass takes as long as 10 draft passes, however many tokens it verifies. A call of a head
# takes a growing share of a draft pass.

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
# **What it shows.** If calls are free, the acceptance head is 1.03 [1.01, 1.04] times as fast as
# the best fixed length, and PACER, 1.00 [0.96, 1.04], does not differ measurably. If a call takes a
# tenth of a draft pass, about as much as the timed one, the acceptance head does not differ
# measurably either, 1.01 [0.99, 1.02]; at a half it loses 6%. PACER calls its head less often and
# loses less at the same price, but gains less when calls are free. Its timed head takes 0.71 of a
# draft pass, about as in the last row, 0.96 [0.94, 0.98]. At the paper's own times a call takes
# 0.11 of a draft pass.
#
# **The paper's.** The acceptance-head paper calls its head's cost negligible and does not print it.
# It must be: on this pair a call that takes a tenth of a draft pass already costs four fifths of
# the gain.

# %% [markdown]
# ## Now with your trace
#
# Set `TRACE` to its folder. Heads need a recording with the draft's states, and should be trained
# on other prompts than those on which policies are compared:
#
#     simkit record --target TARGET --draft DRAFT --prompts train.jsonl --hidden --mix 0.5 \
#         --out train-trace
#     simkit train acceptance train-trace -o acceptance.safetensors  # or pacer, specdecpp
#     simkit score my-trace --head acceptance.safetensors    # recorded with --hidden, too
#     simkit calibrate my-trace --target TARGET --draft DRAFT --head acceptance.safetensors
#
# The last command decodes some of the trace's prompts and times the passes, the rules and the named
# heads. A rule that was not timed then is timed during the replay. A head that was not timed is
# free, and a note under the table tells you so. A trace without scores of a head can still be
# judged by the draft's own signals: take the heads out of `signals` and `families`. The numbers in
# the text will not hold for your trace: a head's quality depends on how many prompts it was trained
# on, and whether it pays depends on how long your draft passes take. How far such predictions are
# from live runs is in [08](08_fidelity.ipynb). Read on: [heads](../docs/heads.md), [the papers'
# ablations](../docs/ablations.md), [07](07_pearl.ipynb) about PEARL.
