"""What positions are part of: `spans.parquet`, written by `simkit spans`.

A rule says what begins and ends a span, in the text as the tokenizer reads it. The text of the
prompt counts too, so that a span which the chat template opens goes on in the output. A span begins
behind its marker, and the marker that ends it is its last part: so whoever has read the tokens
before a position knows the span that it is in. A pattern is its whole match, which is known later,
and so are an echo, and whatever no rule finds: the answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from traces import reading
from traces.errors import TraceError
from traces.trace import Trace

FILE = "spans.parquet"
COLUMN = "span_"  # begins the names of columns that policies read
REST = "answer"
ECHO = "prompt echo"
_ECHOED = 8  # tokens in a row that stand in the prompt
_FACTS = b"simkit"
_MOST_BYTES = reading.MEBIBYTE
_NAME = re.compile(r"[\w][\w .+-]{0,39}")


@dataclass(frozen=True)
class SpanRule:
    """What is one kind of span.

    Attributes:
        name: of the kind.
        begin: text behind which it begins; "" where a pattern is given.
        end: text with which it ends; the output's end ends it as well.
        pattern: a regular expression that it matches.

    Raises:
        TraceError: it has neither markers nor a pattern, or these are none.
    """

    name: str
    begin: str = ""
    end: str = ""
    pattern: str = ""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or self.name in (REST, ECHO):
            raise TraceError(f"a span cannot be named {self.name!r}")
        if bool(self.pattern) == bool(self.begin and self.end):
            raise TraceError(f"span {self.name}: give begin and end, or a pattern")
        try:
            matches_nothing = self.pattern and re.compile(self.pattern).match("")
        except re.error as error:
            raise TraceError(f"span {self.name}: its pattern: {error}") from None
        if matches_nothing:
            raise TraceError(f"span {self.name}: its pattern matches a text without letters")

    def places(self, text: str) -> Iterator[tuple[int, int]]:
        """Begin and end of each span in a text, in characters; one that goes on ends behind it."""
        if self.pattern:
            yield from (found.span() for found in re.finditer(self.pattern, text))
            return
        at = text.find(self.begin)
        while at >= 0:
            at += len(self.begin)
            behind = text.find(self.end, at)
            behind = len(text) + 1 if behind < 0 else behind + len(self.end)
            yield at, behind
            at = text.find(self.begin, behind)


# Of model families (Qwen, DeepSeek, GPT-OSS, Llama, Mistral), and of Markdown.
BUILT_IN = (
    SpanRule("thinking", "<think>", "</think>"),
    SpanRule("thinking", "<|channel|>analysis<|message|>", "<|end|>"),
    SpanRule("thinking", "[THINK]", "[/THINK]"),
    SpanRule("tool call", "<tool_call>", "</tool_call>"),
    SpanRule("tool call", "<|python_tag|>", "<|eom_id|>"),
    SpanRule("tool call", "[TOOL_CALLS]", "]\n"),
    SpanRule("code", "```", "```"),
)


class SpanLabels(NamedTuple):
    """The span of each position.

    Attributes:
        names: of the kinds, "answer" first.
        label: (n_positions,) int, an index into `names`.
        causal: kinds that whoever has read the tokens before knows.
    """

    names: tuple[str, ...]
    label: np.ndarray
    causal: frozenset[str]


def read_rules(file: str | Path) -> list[SpanRule]:
    """The rules of a TOML file: `[[span]]` with `name`, and `begin` and `end`, or `pattern`.

    Raises:
        TraceError: it cannot be read, or a rule is none.
    """
    text = reading.read_text(file, _MOST_BYTES, TraceError)
    given = reading.parse_toml(text, file, TraceError)
    rules = given.get("span")
    if set(given) != {"span"} or not isinstance(rules, list) or not rules:
        raise TraceError(f"{file}: needs [[span]] tables, and nothing else")
    found = []
    for number, rule in enumerate(rules, 1):
        known = {"name", "begin", "end", "pattern"}
        if set(rule) - known or not all(isinstance(value, str) for value in rule.values()):
            raise TraceError(f"{file}: span {number} needs name, begin and end, or pattern: texts")
        try:
            found.append(SpanRule(**{"name": "", **rule}))
        except TraceError as error:
            raise TraceError(f"{file}: {error}") from None
    columns: dict[str, str] = {}
    for name in (rule.name for rule in found):
        if (other := columns.setdefault(column_name(name), name)) != name:
            raise TraceError(f"{file}: spans {other!r} and {name!r} are one name to a policy")
    return found


def column_name(kind: str) -> str:
    """What a policy calls a kind of span."""
    return COLUMN + re.sub(r"\W", "_", kind)


def check_tokenizer(trace: Trace, sha256: str, name: str) -> None:
    """Refuse another tokenizer than the recording's, where that is known.

    Raises:
        TraceError: as said.
    """
    known = trace.manifest.tokenizer_sha256
    if known not in (None, sha256):
        raise TraceError(f"{name}: this is not the tokenizer that the trace was recorded with")


def find(trace: Trace, tokenizer: Any, rules: Iterable[SpanRule] = BUILT_IN) -> pa.Table:
    """The spans of a trace's outputs; where kinds overlap, the rule that comes first counts.

    What stands word for word in the prompt is an echo where no rule says otherwise.

    Args:
        trace: of which prompts and outputs are known.
        tokenizer: that reads them.
        rules: of the kinds.

    Returns:
        sequence, begin, end (positions, both inside) and span; what is in none is the answer.

    Raises:
        TraceError: the trace has no token ids.
    """
    rules = list(rules)
    table = trace.sequences
    if not trace.manifest.drafter.known_outputs:
        raise TraceError("spans need the outputs' token ids, and this trace has none")
    pieces = _Pieces(tokenizer)
    columns: dict[str, list[Any]] = {"sequence": [], "begin": [], "end": [], "span": []}
    for row in table.select(["sequence", "prompt_tokens", "output_tokens"]).to_pylist():
        labels = _labels(row["prompt_tokens"], row["output_tokens"], pieces, rules)
        for begin, end, name in _runs(labels):
            values = row["sequence"], begin, end, name
            for column, value in zip(columns.values(), values, strict=True):
                column.append(value)
    types = {"sequence": pa.int32(), "begin": pa.int32(), "end": pa.int32(), "span": pa.string()}
    made = pa.table({name: pa.array(columns[name], kind) for name, kind in types.items()})
    return _signed(made, trace.hash, [vars(rule) for rule in rules])


def of_copy(trace: Trace, copy_hash: str) -> pa.Table | None:
    """The table of a copy of a trace, which has the same outputs; None if the trace has none.

    A copy's sequences are numbered from 0.

    Raises:
        TraceError: those of the trace do not fit.
    """
    table = trace.extra(FILE)
    if table is None:
        return None
    load(trace)
    numbers = np.searchsorted(trace.sequences["sequence"], table["sequence"]).astype(np.int32)
    place = table.schema.get_field_index("sequence")
    table = table.set_column(place, table.schema.field(place), pa.array(numbers))
    return _signed(table, copy_hash, json.loads(table.schema.metadata[_FACTS])["rules"])


def of_part(trace: Trace, part: Trace) -> pa.Table | None:
    """The table of some of a trace's sequences, whose outputs may be cut; None if it has none.

    Raises:
        TraceError: those of the trace do not fit.
    """
    table = (trace.recording or trace).extra(FILE)
    if table is None:
        return None
    load(trace)
    columns = part.sequences.select(["sequence", "n_output"]).to_pydict()
    ends = dict(zip(*columns.values(), strict=True))
    rows = [
        {**row, "end": min(row["end"], ends[row["sequence"]])}
        for row in table.to_pylist()
        if row["begin"] <= ends.get(row["sequence"], 0)
    ]
    left = pa.Table.from_pylist(rows, schema=table.schema)
    return _signed(left, part.hash, json.loads(table.schema.metadata[_FACTS])["rules"])


def _signed(table: pa.Table, trace_hash: str, rules: list[Any]) -> pa.Table:
    """A table that says of which trace it is, and by which rules."""
    facts = json.dumps({"trace": trace_hash, "rules": rules}, sort_keys=True)
    return table.replace_schema_metadata({_FACTS: facts})


def load(trace: Trace) -> SpanLabels:
    """The spans that were written into a trace, or into the recording of a drafter.

    Raises:
        TraceError: there are none, or they do not fit.
    """
    recording = trace.recording or trace
    table, where = recording.extra(FILE), f"{recording.path or 'the trace'}: spans"
    if table is None:
        raise TraceError(f"{where} are missing; write them with simkit spans")
    try:
        facts = json.loads((table.schema.metadata or {})[_FACTS])
        rules = [SpanRule(**rule) for rule in facts["rules"]]
        given = {name: table[name].to_pylist() for name in ("sequence", "begin", "end", "span")}
    except (KeyError, TypeError, ValueError, TraceError):
        raise TraceError(f"{where} are no spans; write them again with simkit spans") from None
    if facts.get("trace") != recording.hash:
        raise TraceError(f"{where} belong to another trace; write them again with simkit spans")
    known = dict.fromkeys([REST, *(rule.name for rule in rules), ECHO])
    index = {name: k for k, name in enumerate(known)}
    offsets, label = recording.position_offsets, np.zeros(recording.n_positions, np.int64)
    row = {s: k for k, s in enumerate(recording.sequences["sequence"].to_pylist())}
    last = {}
    for sequence, begin, end, name in zip(*given.values(), strict=True):
        k = row.get(sequence, -1)
        n = int(offsets[k + 1] - offsets[k]) if k >= 0 else 0
        if not last.get(sequence, 0) < begin <= end <= n or name not in index:
            raise TraceError(f"{where} do not fit the outputs; write them again with simkit spans")
        label[offsets[k] + begin - 1 : offsets[k] + end] = index[name]
        last[sequence] = end
    return SpanLabels(tuple(index), label, _causal(rules))


def _causal(rules: list[SpanRule]) -> frozenset[str]:
    """Kinds that are known while a text is read: of markers, and no pattern comes before them."""
    first = next((k for k, rule in enumerate(rules) if rule.pattern), len(rules))
    known, later = ({rule.name for rule in some} for some in (rules[:first], rules[first:]))
    return frozenset(known - later)


def column(trace: Trace, name: str) -> np.ndarray:
    """1 where a position is in the span of a column's name, "span_thinking", else 0; float32.

    Raises:
        TraceError: there is no such span, or it is known only from what comes later.
    """
    found = load(trace)
    known = {column_name(kind): kind for kind in sorted(found.causal)}
    if name not in known:
        raise TraceError(
            f"a policy cannot know the span {name} while a text is generated. It knows spans with"
            f" markers whose rules stand before all patterns: {', '.join(known) or 'there is none'}"
        )
    return (found.label == found.names.index(known[name])).astype(np.float32)


def shares(trace: Trace, found: SpanLabels) -> list[tuple[str, int, float | None]]:
    """Of each kind that there is: its name, positions, and the share of accepted draft tokens."""
    kinds = []
    accepted = trace.positions("accepted") if trace.manifest.kind == "path" else None
    for k, name in enumerate(found.names):
        mine = found.label == k
        if n := int(mine.sum()):
            kinds.append((name, n, None if accepted is None else float(accepted[mine].mean())))
    return kinds


class _Pieces:
    """What a tokenizer reads in each token behind another: some drop a text's first space."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer, self._known = tokenizer, {}

    def __call__(self, tokens: list[int]) -> list[str]:
        for token in set(tokens) - self._known.keys():
            alone, twice = self._read([token]), self._read([token, token])
            self._known[token] = twice[len(alone) :] if twice.startswith(alone) else alone
        return [self._known[token] for token in tokens]

    def _read(self, tokens: list[int]) -> str:
        return self._tokenizer.decode(
            tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False
        )


def _labels(
    prompt: list[int], output: list[int], pieces: _Pieces, rules: list[SpanRule]
) -> list[str]:
    """The span of each position of an output."""
    texts = pieces(prompt + output)
    sizes = np.array([len(text) for text in texts])
    ends = sizes.cumsum()
    text, first = "".join(texts), len(prompt)
    labels: list[str] = [""] * len(output)
    for rule in rules:
        for begin, end in rule.places(text):
            last = np.searchsorted(ends, end - 1, side="right")  # it holds the last letter
            if rule.pattern:
                low = np.searchsorted(ends, begin, side="right")
            else:  # the token that completes the marker is read before the span is known
                low = np.searchsorted(ends - sizes, begin, side="left")
            for k in range(max(0, low - first), min(last + 1 - first, len(output))):
                labels[k] = labels[k] or rule.name
    for k in _echoes(prompt, output):
        labels[k] = labels[k] or ECHO
    return [label or REST for label in labels]


def _echoes(prompt: list[int], output: list[int]) -> Iterator[int]:
    """Indices of output tokens in runs that stand in the prompt."""
    n = _ECHOED
    known = {tuple(prompt[k : k + n]) for k in range(len(prompt) - n + 1)}
    last = -1
    for k in range(len(output) - n + 1):
        if tuple(output[k : k + n]) in known:
            yield from range(max(k, last + 1), k + n)
            last = k + n - 1


def _runs(labels: list[str]) -> Iterator[tuple[int, int, str]]:
    """First and last position, from 1, of runs of one label that is not the rest."""
    begin = 0
    for k in range(1, len(labels) + 1):
        if k == len(labels) or labels[k] != labels[begin]:
            if labels[begin] != REST:
                yield begin + 1, k, labels[begin]
            begin = k
