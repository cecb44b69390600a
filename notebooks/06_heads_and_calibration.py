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
from traces import scores

_ = pl.Config.set_tbl_rows(12)

# %% [markdown]
# The target is SmolLM2-135M-Instruct, a small chat model, greedy, on 56 prompts. Its draft `q3-g32`
# is the same model rounded to 3 bits a weight: 80% of its tokens are accepted, as in the papers
# ([ladder](../docs/ladder.md)). Such a draft is the target with noise, not an independent small
# model, and as slow as its target. So this notebook takes the times of another pair: `COST` names
# those of Qwen2.5-32B with Qwen2.5-0.5B on an H200 ([costs](../docs/costs.md)).

# %% tags=["parameters"]
TRACE = "ladder/drafters/q3-g32"
COST = "atlas(target=qwen2.5-32b, draft=qwen2.5-0.5b)"
TOY = "reference"

# %% [markdown]
# ## What does a head predict?
#
# Three heads were trained on 284 of the target's answers to other prompts, and have scored every
# token of this trace once. The acceptance head and SpecDec++'s head look at one token's state and
# give the probability that this token is accepted. PACER's head looks at the whole draft and
# predicts that this token *and all before it* are accepted. For a draft's first token this is the
# same, so the table has PACER's scores of first tokens. Two signals need no training: the
# probability that the draft gave its own token, and the entropy of the draft's distribution, which
# is high where the draft is unsure.

# %%
trace = traces.load(TRACE)
accepted, offsets = trace.positions("accepted"), trace.position_offsets
by_token = {
    "PACER head, first tokens": scores.load(trace, "pacer").values[:, 0],
    "draft's probability": trace.positions("draft_prob_raw"),
    "minus entropy": -trace.positions("draft_entropy"),
}
signals = {
    "acceptance head": predicted(trace, "acceptance_head"),
    "SpecDec++ head": predicted(trace, "specdecpp"),
} | {name: Predicted(values, accepted, offsets) for name, values in by_token.items()}
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
# `lo` and `hi` are the ends of a 95% bootstrap interval over prompts.

# %%
pl.DataFrame(
    [
        {"signal": name}
        | vars(ranking.auc(found.probability, found.accepted, offsets=found.offsets))
        for name, found in signals.items()
    ]
).drop("note")

# %% [markdown]
# **What it shows.** The draft's own signals are best: its probability has an AUC of 0.88 [0.86,
# 0.89], its entropy 0.84 [0.82, 0.86]. SpecDec++'s head has 0.76 [0.73, 0.79], the acceptance head
# 0.73 [0.70, 0.76], and PACER's 0.68 [0.64, 0.72]. The acceptance head reads the draft's state
# after the token, and that state is about the next token.
#
# **The paper's.** PACER calls the draft's own probabilities unreliable and a head better. Neither
# PACER nor the acceptance-head paper prints an AUC. **Differs** here, which does not refute the
# idea: these heads learnt from 284 answers, PACER's from 20,000 instructions.
#
# **Caveat.** The probabilities of a rounded copy are close to the target's, which favours the
# draft's own signals. PACER's head is made for deeper tokens, where it should be compared with the
# product of the draft's probabilities; a rule below uses it.

# %% [markdown]
# ## Do the probabilities come true?
#
# If a rule compares a probability with a cost, the probability must be right, not only its order.
# Tokens are put into ten bins by their score; a calibrated score lies on the diagonal. The figure
# has two heads, the draft's probability, and SVIP's estimate of acceptance from the draft's entropy
# H(q), 1 − √(c H(q)).

# %%
drawn = figures.reliability(trace)
drawn

# %%
parts = ["error", "brier", "skill", "skill_lo", "skill_hi"]
drawn.frame.group_by("signal", maintain_order=True).agg(pl.col(parts).max())

# %% [markdown]
# **What it shows.** The acceptance head is closest to the diagonal: it is off by 0.02 [0.01, 0.03]
# (`error`), the draft's probability by 0.14 [0.12, 0.16], SVIP's estimate by 0.24 [0.22, 0.26],
# SpecDec++'s score by 0.34 [0.32, 0.37]. These three predict too little acceptance: of the tokens
# to which the draft gives a probability between 0.3 and 0.4, three fifths are accepted. Under
# greedy decoding a token is accepted if it is the likeliest for both models, even if its
# probability is low. `skill` compares squared errors (`brier`) with those of always guessing the
# mean. The acceptance head's are 10% [8%, 13%] smaller, those of the draft's probability 15% [10%,
# 21%]: it is worse calibrated, but its order is better. SVIP's and SpecDec++'s are larger.
#
# **The paper's.** PACER expects language models to be overconfident. **Differs**: this draft is
# underconfident.
#
# **Caveat.** A score that is too low everywhere does little harm if its threshold is tuned. It does
# harm if the threshold is computed from a cost, as in `acceptance_head(h=cost)`.

# %% [markdown]
# ## Does a better score make a faster policy?
#
# Each policy is compared with the best fixed length; the arguments of both are chosen on other
# prompts. Two rules need no head: `confidence` reads the draft's probability, and
# `cumulative_confidence` its product over the draft, which predicts the same as PACER's head. The
# trace has drafts of at most 16 tokens.

# %%
families = [
    "confidence(threshold=0.05:0.95:0.05, max_draft=16)",
    "cumulative_confidence(threshold=0.05:0.95:0.05, max_draft=16)",
    "acceptance_head(h=0.05:0.95:0.05, max_draft=16)",
    "specdecpp(threshold=0.15:0.95:0.1, max_draft=16)",
    "pacer(block=1:4, threshold=0.1:0.9:0.1, max_draft=16)",
]
tuned = simkit.tune(trace, families, COST)
tuned

# %% [markdown]
# What the chosen settings draft, and what they spend on deciding (*policy s*: rule and head):

# %%
simkit.replay(trace, tuned.frame["chosen"].unique(maintain_order=True).to_list(), COST)

# %% [markdown]
# **What it shows.** All are faster than the best fixed length: `cumulative_confidence` by 10%
# [8%, 12%], `confidence` by 8% [5%, 11%], the acceptance head by 5% [4%, 7%], SpecDec++ by 4%
# [2%, 7%], and PACER by 3.0% [1.1%, 4.8%]. The rules that read the best signal are the fastest.
#
# The second table has the reasons. Rules without heads draft nearly a fifth less than `fixed(5)`,
# which saves 5 s. SpecDec++ drafts 23% less, which saves 6.6 s, but 7% more steps cost 3.2 s. The
# acceptance head drafts nearly as much, but needs fewer steps, which saves 3.3 s. PACER drafts 6%
# less, which saves 1.6 s, and needs 3% fewer steps, which saves 1.4 s.
#
# **The paper's.** PACER is 1.01–1.13 times as fast as the best fixed length (Tables 1 and 5).
# **Agrees**: 1.030 [1.011, 1.048].
#
# **Caveat.** `COST` has a time of PACER's head only; the other heads are free. A difference between
# two heads of less than about 2% may come from the seed of their training
# ([ablations](../docs/ablations.md)), which the intervals do not contain.

# %% [markdown]
# ## Faster although fewer tokens are accepted?
#
# The acceptance-head paper compares drafts of a fixed length with the same drafts, stopped early by
# the head at h = 0.95. The figure compares both with the best fixed length.

# %%
figures.acceptance_head(trace, cost=COST)

# %%
specs = ["fixed(6)"] + [f"acceptance_head(h={h}, max_draft=6)" for h in (0.95, 0.6)]
result = simkit.replay(trace, specs, COST)
result

# %%
pl.DataFrame([vars(result.compare(head, specs[0])) for head in specs[1:]]).drop("notes")

# %% [markdown]
# **What it shows.** At h = 0.95 the head hardly ever stops a draft of six tokens: it saves 41 draft
# passes of 12,325, and its speed differs from that of `fixed(6)` by at most 0.2%. With h = 0.6,
# which most folds chose above, it is 1.04 [1.03, 1.05] times as fast, with 3.51 tokens a step
# instead of 3.69. In the figure, the tuned head is also faster than the best fixed length.
#
# **The paper's.** Fig. 2 and Table 1: faster with the head, mean 1.013 for Vicuna 7B, with τ
# slightly shorter. **Differs** at the paper's h, **agrees** with h tuned.
#
# **Caveat.** Calls of the head are free here.

# %% [markdown]
# ## When does a head pay for itself?
#
# PACER reports 1.81 ms for its head, with draft passes of 16.52 ms and verifications of 67.31 ms
# (Table 14). Here these times are applied to our steps.

# %%
simkit.tune(trace, families, cost="pacer:deepseek-1.3b-33b")

# %% [markdown]
# The next two cells use a toy pair, `reference` (72% accepted), because all its heads and rules
# were timed in running decoders, on a CPU.

# %%
toy = traces.load(TOY)
simkit.tune(toy, families)

# %%
figures.runtime_breakdown(toy, cost="measured")

# %% [markdown]
# **What it shows.** Under PACER's times the best fixed length is `fixed(3)`. PACER is 1.024 [1.006,
# 1.041] times as fast. The acceptance head, 1.010 [0.998, 1.024], and SpecDec++, 1.012 [0.999,
# 1.027], do not differ measurably from it. `confidence` and `cumulative_confidence`, which ask no
# head, gain 10% [7%, 12%] and 11% [9%, 13%].
#
# On the toy pair PACER is slower than the best fixed length: 0.955 [0.930, 0.975]. The acceptance
# head and SpecDec++, both at 1.01, do not differ measurably from it. A draft pass of this pair
# takes 1.8 ms, a call of PACER's head 1.25 ms ([heads](../docs/heads.md)). The picture has default
# settings: PACER's head and rule take 5% of the time.
#
# **The paper's.** Under its times PACER's gain **agrees** with Tables 1 and 5. Table 15 has 2.1% of
# the time for the head. The toy pair **differs**, as appendix G expects of small models.
#
# **Caveat.** The first table charges 1.81 ms, the time of PACER's transformer layer, for every
# head, and nothing for rules.

# %% [markdown]
# At which price does a head stop paying? Back to the first trace, with round numbers near its cost:
# a target pass takes as long as 8 draft passes, however many tokens it verifies. A head's call
# takes a growing share of a draft pass.

# %%
shares = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7)
shown = ["chosen", "speedup", "against", "against_lo", "against_hi"]
pl.concat(
    [
        simkit.tune(trace, family, simkit.costs.Linear(draft_s=1, target_s=8, head_s=share))
        .frame.tail(1)
        .select(pl.lit(share).alias("head ÷ draft pass"), *shown)
        for family in (families[2], families[4])
        for share in shares
    ]
)

# %% [markdown]
# **What it shows.** If calls are free, the acceptance head is 1.057 [1.040, 1.076] times as fast as
# the best fixed length, and PACER 1.033 [1.013, 1.052] times. If a call takes a tenth of a draft
# pass, about as in PACER's paper (0.11), they gain: 1.026 [1.011, 1.042] and 1.030 [1.012,
# 1.048]. At a fifth only PACER gains, 1.022 [1.004, 1.039]; at a half the acceptance head loses 6%.
# PACER calls its head less often and loses less.
#
# **The paper's.** The acceptance-head paper calls its head's cost negligible and does not print it.
# It has to be: here a call that takes a tenth of a draft pass costs half of the gain.

# %% [markdown]
# ## Now with your trace
#
# Set `TRACE` to its folder, `COST` to `None` for its own times, and `max_draft` to its recorded
# depth. Heads need a recording with the draft's states, and should be trained on other prompts than
# those on which policies are compared:
#
#     simkit record --target TARGET --draft DRAFT --prompts train.jsonl --hidden --mix 0.5 \
#         --out train-trace
#     simkit train acceptance train-trace -o acceptance.safetensors  # or pacer, specdecpp
#     simkit score my-trace --head acceptance.safetensors    # recorded with --hidden, too
#     simkit calibrate my-trace --target TARGET --draft DRAFT --head acceptance.safetensors
#
# The last command decodes some of the trace's prompts and times the passes, the rules and the named
# heads. A rule that was not timed then is timed during the replay. A head that was not timed is
# free, and a note tells you so. A trace without scores of a head can still be judged by the draft's
# own signals: take the heads out of the cells. The numbers in the text will not hold for your
# trace. How far such predictions are from live runs is in [08](08_fidelity.ipynb). Read on:
# [heads](../docs/heads.md), [the papers' ablations](../docs/ablations.md), [07](07_pearl.ipynb)
# about PEARL.
