"""Where the text of the reference pair comes from: Debian packages and their licences.

Every package is fetched with ``apt-get download`` and unpacked with ``dpkg -x`` into a work folder;
nothing is installed. The licence is the main one in the package's ``debian/copyright``; single
files may carry others, which that file lists.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

TASKS = ("code", "prose", "math", "german")


@dataclass(frozen=True)
class TextSource:
    """One Debian package: the task it feeds, its licence, and how its files become text.

    ``kind`` is ``python``, ``html`` or ``man``. ``folder`` is inside the unpacked package; files
    whose path there contains one of ``skip`` are left out, and where ``only`` is set, the rest too.
    """

    package: str
    task: str
    kind: str
    licence: str
    folder: str
    skip: tuple[str, ...] = ()
    only: str = ""


_PY = "usr/lib/python3.11"
_DIST = "usr/lib/python3/dist-packages"

SOURCES: tuple[TextSource, ...] = (
    TextSource("libpython3.11-minimal", "code", "python", "PSF-2.0", _PY, ("/encodings/",)),
    TextSource(
        "libpython3.11-stdlib", "code", "python", "PSF-2.0", _PY, ("/encodings/", "pydoc_data")
    ),
    TextSource("libpython3.11-testsuite", "code", "python", "PSF-2.0", _PY, ("/data/", "bad")),
    TextSource("idle-python3.11", "code", "python", "PSF-2.0", _PY),
    TextSource("python3-distutils", "code", "python", "PSF-2.0", "usr/lib/python3"),
    TextSource("python3-lib2to3", "code", "python", "PSF-2.0", "usr/lib/python3"),
    TextSource("python3-tk", "code", "python", "PSF-2.0", "usr/lib/python3"),
    TextSource("python3-django", "code", "python", "BSD-3-Clause", _DIST, ("/locale/",)),
    TextSource("python3-sqlalchemy", "code", "python", "MIT", _DIST),
    TextSource("python3-twisted", "code", "python", "MIT", _DIST),
    TextSource(
        "python3.11-doc",
        "prose",
        "html",
        "PSF-2.0",
        "usr/share/doc/python3.11",
        ("genindex", "/search", "_sources", "download", "contents.html"),
    ),
    TextSource(
        "postgresql-doc-15",
        "prose",
        "html",
        "PostgreSQL",
        "usr/share/doc/postgresql-doc-15",
        ("bookindex",),
    ),
    TextSource(
        "sqlite3-doc",
        "prose",
        "html",
        "public domain",
        "usr/share/doc/sqlite3",
        ("/syntax/", "matrix", "keyword_index", "doclist", "sitemap"),
    ),
    TextSource(
        "python-django-doc",
        "prose",
        "html",
        "BSD-3-Clause",
        "usr/share/doc/python-django-doc",
        ("genindex", "/search", "_modules", "_sources", "py-modindex"),
    ),
    TextSource(
        "python-sqlalchemy-doc",
        "prose",
        "html",
        "MIT",
        "usr/share/doc/python-sqlalchemy-doc",
        ("genindex", "/search", "_modules", "_sources"),
    ),
    TextSource("manpages-de", "german", "man", "GPL-3+", "usr/share/man/de"),
    TextSource("manpages-de-dev", "german", "man", "GPL-3+", "usr/share/man/de"),
    TextSource(
        "libreoffice-help-de", "german", "html", "MPL-2.0", "usr/share/libreoffice/help/de/text"
    ),
    TextSource(
        "debian-reference-de",
        "german",
        "html",
        "GPL-2+",
        "usr/share/debian-reference",
        only=".de.html",
    ),
    TextSource(
        "developers-reference-de",
        "german",
        "html",
        "GPL-2+",
        "usr/share/developers-reference/de",
        ("search", "genindex"),
    ),
)


def fetch(work: Path) -> dict[str, str]:
    """Download and unpack every source below ``work``; return package -> version."""
    debs, root = work / "debs", work / "deb"
    debs.mkdir(parents=True, exist_ok=True)
    root.mkdir(exist_ok=True)
    versions = {}
    for package in dict.fromkeys(source.package for source in SOURCES):
        found = sorted(debs.glob(f"{package}_*.deb"))
        if not found:
            subprocess.run(["apt-get", "download", package], cwd=debs, check=True)
            found = sorted(debs.glob(f"{package}_*.deb"))
        versions[package] = found[-1].name.split("_")[1].replace("%3a", ":")
        if not (root / package).exists():
            subprocess.run(["dpkg", "-x", str(found[-1]), str(root / package)], check=True)
    return versions


def files(source: TextSource, work: Path) -> list[Path]:
    """Files of one unpacked source, sorted by path, without links."""
    suffix = {"python": ".py", "html": ".html", "man": ".gz"}[source.kind]
    base = work / "deb" / source.package / source.folder
    paths = sorted(p for p in base.rglob(f"*{suffix}") if p.is_file() and not p.is_symlink())
    return [
        p
        for p in paths
        if source.only in p.name and not any(part in str(p) for part in source.skip)
    ]
