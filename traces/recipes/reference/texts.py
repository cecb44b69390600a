"""Plain text from Python files, HTML pages and manual pages (standard library and groff only)."""

from __future__ import annotations

import gzip
import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path

_VOID = {"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "source", "wbr"}
_DROP = set("script style nav head header footer aside button noscript svg form".split())
_DROP_CLASS = (
    "sphinxsidebar related footer navheader navfooter headerlink toc fancy_toc nosearch "
    "docs-sidebar docs-top-navigation docs-bottom-navigation linkselect howtoget menu mobilemenu "
    "desktoponly clearer"
).split()
_BLOCK = set(
    "p div h1 h2 h3 h4 h5 h6 li dt dd tr pre table ul ol dl section blockquote br title".split()
)


class _Extract(HTMLParser):
    """Collects blocks of text; ``pre`` keeps its line breaks, dropped elements are skipped."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.blocks: list[str] = []
        self.buffer: list[str] = []
        self.stack: list[tuple[str, bool]] = []  # (tag, starts a dropped element)
        self.dropped = 0
        self.pre = 0

    def flush(self) -> None:
        text = "".join(self.buffer)
        self.buffer = []
        if self.pre:
            text = text.strip("\n")
        else:
            text = re.sub(r"\s+", " ", text).strip()
        if text.strip():
            self.blocks.append(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _BLOCK and not self.dropped and not self.pre:
            self.flush()
        if tag in _VOID:
            return
        classes = (dict(attrs).get("class") or "").lower().split()
        drop = tag in _DROP or any(c in _DROP_CLASS for c in classes)
        self.stack.append((tag, drop))
        self.dropped += drop
        self.pre += tag == "pre"
        if tag in ("td", "th") and self.buffer:
            self.buffer.append(" ")

    def handle_endtag(self, tag: str) -> None:
        if not any(name == tag for name, _ in self.stack):
            return
        if tag in _BLOCK and not self.dropped and (not self.pre or tag == "pre"):
            self.flush()
        while self.stack:
            name, drop = self.stack.pop()
            self.dropped -= drop
            self.pre -= name == "pre"
            if name == tag:
                break

    def handle_data(self, data: str) -> None:
        if not self.dropped:
            self.buffer.append(data)


def html_text(html: str) -> str:
    """Readable text of an HTML page, one block a line, without navigation."""
    parser = _Extract()
    parser.feed(html)
    parser.flush()
    return "\n".join(parser.blocks).replace("¶", "")


def man_text(path: Path) -> str:
    """A gzipped manual page as plain text: one paragraph a line, no indentation."""
    source = gzip.open(path, "rt", encoding="utf-8", errors="replace").read()
    if source.startswith(".so "):
        return ""
    source = re.sub(r"^(\.TH .*)$", r"\1\n.nh\n.ad l", source, count=1, flags=re.M)
    command = ["groff", "-Kutf8", "-Tutf8", "-t", "-man", "-P-c", "-P-b", "-P-u", "-rLL=600n"]
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    lines = [re.sub(r"\s+", " ", line).strip() for line in done.stdout.splitlines()]
    text = "\n".join(lines[1:-1])  # the first and last line are the page's running heads
    return re.sub(r"\n{2,}", "\n\n", text).strip()


def python_text(path: Path) -> str:
    """A Python file, or "" if it looks like data rather than code."""
    text = path.read_text(encoding="utf-8", errors="replace")
    lines = text.splitlines()
    if not 8 <= len(lines) or len(text) > 250_000 or "\ufffd" in text:
        return ""
    digits = sum(c.isdigit() for c in text) / len(text)
    ascii_share = sum(c < "\x80" for c in text) / len(text)
    if max(map(len, lines)) > 400 or digits > 0.12 or ascii_share < 0.97:
        return ""
    return text.expandtabs(4).strip() + "\n"


def text_of(path: Path, kind: str) -> str:
    """Text of one file of the given kind (``python``, ``html``, ``man``)."""
    if kind == "python":
        return python_text(path)
    if kind == "man":
        return man_text(path)
    return html_text(path.read_text(encoding="utf-8", errors="replace"))
