"""What a message may hold: one line, not too long, without what may be secret."""

from __future__ import annotations

import re
from typing import SupportsInt

MOST_LETTERS = 400
_HEAD, _TAIL = 200, 180  # letters of a longer message that are kept

# Schemes of stores and servers, also of a URL that has lost its slashes or its colon; any other
# word before ":/", before user:password@ or before a query.
STORES = "s3|gs|gcs|abfss?|az|azure|adl|wasbs?|hdfs|viewfs|https?|ftp|ray|hf|redis"
_OTHER = r"[a-z][a-z0-9+.-]+:(?=[^\w\s@]*[/\\]|[^\s:@]+:[^\s@]+@|[^\s?]+\?[^\s=]+=)"
_URL = re.compile(rf"(\b(?:{STORES})(?::|(?=//))|{_OTHER})[/\\]*\S+", re.IGNORECASE)
# Moves the cursor, colours, turns the order of letters, or cannot be written.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_QUERY = re.compile(r"\?.*?(?=[:;,.)\]'\"]*$)")


def scrubbed(text: str) -> str:
    """A text without the users, passwords and queries of the URLs in it."""
    return _URL.sub(lambda found: _without_secrets(found[0], found.end(1) - found.start()), text)


def plain(text: str) -> str:
    """A text on one line, without secrets and control characters."""
    return printable(scrubbed(" ".join(text.split())))


def line(text: str) -> str:
    """A message for people: `plain`, and the middle is left out where it is long."""
    text = plain(text)
    if len(text) <= MOST_LETTERS:
        return text
    return f"{text[:_HEAD]} … {text[-_TAIL:]}"


def how_many(n: SupportsInt, one: str, many: str = "") -> str:
    """A number of things: "1 request", "1,000 requests"; `many` is `one` with an s by itself."""
    return f"{n:,} {one if n == 1 else many or f'{one}s'}"


def printable(text: str) -> str:
    """A text whose control characters, but tabs and ends of lines, are spelt out for a terminal."""
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


def _without_secrets(url: str, begin: int) -> str:
    """A URL whose scheme ends at `begin`."""
    slashes = re.match(r"[/\\]*", url[begin:])
    begin += len(slashes[0]) if slashes else 0
    rest = _QUERY.sub("", url[begin:])
    return url[:begin] + rest.rpartition("@")[2]
