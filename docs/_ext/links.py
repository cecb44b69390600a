"""Check the links of a built site: `python docs/_ext/links.py build/docs/html`.

Every link to a page, a picture or an anchor must lead somewhere, and nothing that a page loads may
come from elsewhere. Links that leave the site are written to a list and not asked.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = ("link", "script", "img", "source", "iframe")  # what a browser fetches by itself


@dataclass
class Page(HTMLParser):
    """The links and anchors of a page."""

    links: list[str] = field(default_factory=list)
    body: list[str] = field(default_factory=list)  # those of the text, without the site's frame
    inside: int = 0  # an article
    loaded: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self):
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag names."""
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
            self.body += [given["href"]] * (self.inside > 0)
        self.inside += tag == "article"
        for name in ("href", "src") if tag in LOADED else ():
            if name in given and given.get("rel") != "canonical":
                self.loaded.append(given[name])

    def handle_endtag(self, tag: str) -> None:
        """Note where the text ends."""
        self.inside -= tag == "article"


def read(site: Path) -> dict[Path, Page]:
    """Every page of a site."""
    pages = {}
    for path in sorted(site.rglob("*.html")):
        if "_static" not in path.parts:
            pages[path] = page = Page()
            page.feed(path.read_text(encoding="utf-8"))
    return pages


def broken(pages: dict[Path, Page], site: Path) -> Iterator[str]:
    """What leads nowhere, and what would be fetched from elsewhere."""
    for path, page in pages.items():
        where = path.relative_to(site)
        for link in page.loaded:
            if outside(link):
                yield f"{where}: would fetch {link}"
            elif not link.startswith("data:") and not target(path, link)[0].exists():
                yield f"{where}: no file {link}"
        for link in page.links:
            if outside(link):
                continue
            file, anchor = target(path, link)
            if not file.exists():
                yield f"{where}: no page {link}"
            elif anchor and file in pages and anchor not in pages[file].anchors:
                yield f"{where}: no anchor {link}"


def outside(link: str) -> bool:
    """Whether a link leaves the site."""
    parts = urlsplit(link)
    return bool(parts.netloc) or parts.scheme in ("http", "https", "mailto")


def target(path: Path, link: str) -> tuple[Path, str]:
    """The file and the anchor that a page's link means."""
    parts = urlsplit(link)
    file = path if not parts.path else (path.parent / unquote(parts.path)).resolve()
    return file / "index.html" if file.is_dir() else file, unquote(parts.fragment)


def clicks(pages: dict[Path, Page], first: Path) -> dict[Path, int]:
    """How many links of their texts lie between a page and each other one that can be reached."""
    found, waiting = {first: 0}, deque([first])
    while waiting:
        path = waiting.popleft()
        for link in pages[path].body:
            file = path if outside(link) else target(path, link)[0]
            if file in pages and file not in found:
                found[file] = found[path] + 1
                waiting.append(file)
    return found


def main() -> None:
    """Check, and say what was found."""
    site = Path(sys.argv[1]).resolve()
    pages = read(site)
    leaving = sorted({link for page in pages.values() for link in page.links if outside(link)})
    (site.parent / "external-links.txt").write_text("\n".join(leaving) + "\n", encoding="utf-8")
    wrong = list(broken(pages, site))
    print(
        f"{len(pages)} pages, {sum(len(page.links) for page in pages.values()):,} links;", end=" "
    )
    print(f"{len(leaving)} addresses outside, not asked: {site.parent / 'external-links.txt'}")
    sys.exit("\n".join(wrong) if wrong else 0)


if __name__ == "__main__":
    main()
