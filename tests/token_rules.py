"""The rules of drafters from tokens alone, word for word: judges of the compiled ones."""

import numpy as np


def all_starts(rule, text, n_prompt, eos, max_new_tokens, outputs=()):
    """(draft, probabilities) from each start."""
    out = []
    for i in range(1, len(text) - n_prompt + 1):
        known, room = list(text[: n_prompt + i - 1]), max_new_tokens - i
        out.append(RULES[rule.name](rule, known, eos, max(0, room), outputs))
    return out


def prompt_lookup(rule, known, eos, room, outputs):
    for n in range(rule.ngram, 0, -1):
        for end in range(n, len(known)):
            if known[end - n : end] == known[-n:]:
                return before_eos(known[end : end + rule.length], eos)[:room], None
    return [], None


def ngram(rule, known, eos, room, outputs):
    for n in range(rule.most, rule.least - 1, -1):
        ends = [end for end in range(n, len(known)) if known[end - n : end] == known[-n:]]
        if ends:
            end = ends[0] if rule.which == "first" else ends[-1]
            return with_eos(known[end : end + rule.length][:room], eos), None
    return [], None


def ngram_simple(rule, known, eos, room, outputs):
    """llama.cpp's `common_ngram_simple_draft`: it has the tokens before the sampled one apart."""
    if len(known) - 1 <= rule.n + rule.m + 1:
        return [], None
    tokens, sampled = known[:-1], known[-1]
    pattern = [*tokens[len(tokens) - rule.n + 1 :], sampled]
    for j in range(len(tokens) - rule.n - 1, 0, -1):
        if tokens[j : j + rule.n] == pattern:
            found = tokens[j + rule.n : j + rule.n + rule.m]
            return ([] if len(found) < rule.n else with_eos(found[:room], eos)), None
    return [], None


def suffix(rule, known, eos, room, outputs):
    best = max(
        (best_match(rule, texts, known, room) for texts in ([known], outputs)),
        key=lambda found: found[0],  # the first of equal ones
    )
    tokens = with_eos(best[1], eos)
    return tokens, best[2][: len(tokens)]


def best_match(rule, texts, known, room):
    """(score, tokens, probabilities) of the best match in these texts."""
    best = (np.float32(0), [], [])
    for m in range(1, min(len(known), rule.max_depth)):
        if not ends_of(known[-m:], texts):
            break
        most = int(m * rule.factor + rule.offset + 1e-6)
        most = max(0, min(most, rule.max_tokens, rule.max_depth - m, room))
        found = follow(known[-m:], texts, most, np.float32(rule.min_prob))
        if found[0] >= best[0]:
            best = found
    return best


def follow(path, texts, most, least):
    probability, score, tokens, probabilities = np.float32(1), np.float32(0), [], []
    while len(tokens) < most:
        children = children_of(path, texts)
        if not children:
            break
        token, count = next(iter(children.items()))
        ratio = np.float32(count) / np.float32(len(ends_of(path, texts)))
        probability *= ratio
        if probability < least:
            break
        score += probability
        path = [*path, token]
        tokens.append(token)
        probabilities.append(probability)
    return score, tokens, probabilities


def children_of(path, texts):
    """What comes behind a path, with counts, in the order of ArcticInference's list of siblings.

    A new child stands last. One that is counted again goes in front of those that have its new
    count if it was the first of those with the old one, and behind them if not.
    """
    counts, order = {}, []
    for text, end in ends_of(path, texts):
        for token in texts[text][end : end + 1]:
            same = [other for other in order if counts[other] == counts.get(token)]
            counts[token] = counts.get(token, 0) + 1
            if not same:
                order.append(token)
                continue
            order.remove(token)
            behind = 0 if same[0] == token else 1  # those that have its new count
            before = [t for t in order if counts[t] >= counts[token] + 1 - behind]
            order.insert(len(before), token)
    return {token: counts[token] for token in order}


def ends_of(piece, texts):
    """Where a piece ends in the texts, in their order."""
    n = len(piece)
    return [
        (k, end)
        for k, text in enumerate(texts)
        for end in range(n, len(text) + 1)
        if text[end - n : end] == piece
    ]


def before_eos(tokens, eos):
    return tokens[: next((k for k, token in enumerate(tokens) if token in eos), len(tokens))]


def with_eos(tokens, eos):
    return tokens[: len(before_eos(tokens, eos)) + 1]


def agreed(draft, rest):
    """Tokens of the draft that are the output's, from the first."""
    k = 0
    while k < min(len(draft), len(rest)) and draft[k] == rest[k]:
        k += 1
    return k


RULES = {
    "prompt_lookup": prompt_lookup,
    "ngram": ngram,
    "ngram_simple": ngram_simple,
    "suffix": suffix,
}
