"""URLs as people see them: without what may be secret."""

from __future__ import annotations

import re
from pathlib import Path

from traces.errors import TraceError
from traces.messages import STORES, plain

_GOOGLE_S = 5.0  # in which Google's library asks again
_BEGINS = r"[A-Za-z][A-Za-z0-9+.-]+:/"  # not C:/
_LOOKS_LIKE_ONE = re.compile(rf"{_BEGINS}|({STORES}):", re.IGNORECASE)
_CAUSES = {  # what is wrong, by words of the stores' libraries
    "no credentials were found": r"access token|AuthenticationException|no credentials",
    "access is denied": r"(access|permission)_?denied|forbidden|unauthenti|access_?key|signature",
    "no such bucket": r"no_?such_?bucket|bucket .*not (found|exist)",
    "the store cannot be reached": r"network|unavailable|resolve|connect|timed? ?out",
    "no such kind of store is known": r"unrecognized filesystem",
}
_QUOTED = 120  # letters of theirs


class Fault(OSError):
    """What is wrong, in our own words."""


def is_url(name: object) -> bool:
    """Whether a name is a URL."""
    return isinstance(name, str) and bool(re.match(f"{_BEGINS}/", name))


def looks_like_url(name: str | Path) -> bool:
    """Whether a name is a URL, or was one before it was made a path and lost its slashes."""
    return bool(_LOOKS_LIKE_ONE.match(str(name)))


def shown(name: str | Path) -> str:
    """A URL without user, password and query; any other name as it is."""
    name = str(name)
    begin = re.match(f"{_BEGINS}/?", name)
    if begin is None:
        return name
    rest = name[begin.end() :].partition("?")[0].rstrip("/")
    host = rest.partition("/")[0]
    if "@" in host or ":" in host:  # a key may hold a slash, though it should not
        rest = rest.rpartition("@")[2]
    return begin[0] + rest


def has_slash_in_key(url: str) -> bool:
    """Whether a URL's password seems to hold a slash, at which its host would begin."""
    rest = url.partition("://")[2].partition("?")[0]
    host = rest.partition("/")[0]
    return ":" in host and "@" not in host and "@" in rest


def impatient(url: str) -> str:
    """A URL by which Google's library gives up soon; without credentials it asks for 15 minutes."""
    if not re.match(r"gc?s://", url, re.IGNORECASE) or "retry_limit_seconds" in url:
        return url
    return f"{url}{'&' if '?' in url else '?'}retry_limit_seconds={_GOOGLE_S:g}"


def refuse_url(place: str | Path) -> None:
    """Refuse to write to a URL, of which a path makes folders of one slash.

    Raises:
        TraceError: it is one.
    """
    if looks_like_url(place):
        name = re.sub(r"^([^/]+:)/+", r"\1//", shown(place))
        raise TraceError(f"{name}: is a URL: write to a folder of this machine")


def refuse_half(name: str | Path) -> None:
    """Refuse a URL that has lost its slashes, as one loses one that was made a path.

    Raises:
        TraceError: it is one.
    """
    if looks_like_url(name) and not is_url(str(name)):
        scheme = str(name).partition(":")[0]
        raise TraceError(f"{shown(name)}: a URL begins with {scheme}://, and is text, no path")


def reason(error: Exception) -> str:
    """What is wrong, in our words, and the beginning of the library's."""
    said = plain(str(error))
    if isinstance(error, Fault):
        return said
    found = (cause for cause, words in _CAUSES.items() if re.search(words, said, re.IGNORECASE))
    cut = said if len(said) <= _QUOTED else f"{said[: _QUOTED - 1]}…"
    return f"{next(found, 'the store cannot be read')} ({cut or type(error).__name__})"
