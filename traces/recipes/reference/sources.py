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


# Below, what is skipped stands in one text, with spaces between.


def _code(package: str, licence: str, folder: str, skip: str = "") -> TextSource:
    return TextSource(package, "code", "python", licence, folder, tuple(skip.split()))


def _prose(package: str, licence: str, folder: str, skip: str) -> TextSource:
    place = f"usr/share/doc/{folder}"
    return TextSource(package, "prose", "html", licence, place, tuple(skip.split()))


def _german(
    package: str, licence: str, folder: str, skip: str = "", kind: str = "html", only: str = ""
) -> TextSource:
    place = f"usr/share/{folder}"
    return TextSource(package, "german", kind, licence, place, tuple(skip.split()), only)


_PY, _ADDED = "usr/lib/python3.11", "usr/lib/python3"
_DIST = f"{_ADDED}/dist-packages"
_PAGES = "genindex /search _modules _sources"  # of Sphinx
SOURCES: tuple[TextSource, ...] = (
    _code("libpython3.11-minimal", "PSF-2.0", _PY, "/encodings/"),
    _code("libpython3.11-stdlib", "PSF-2.0", _PY, "/encodings/ pydoc_data"),
    _code("libpython3.11-testsuite", "PSF-2.0", _PY, "/data/ bad"),
    _code("idle-python3.11", "PSF-2.0", _PY),
    _code("python3-distutils", "PSF-2.0", _ADDED),
    _code("python3-lib2to3", "PSF-2.0", _ADDED),
    _code("python3-tk", "PSF-2.0", _ADDED),
    _code("python3-django", "BSD-3-Clause", _DIST, "/locale/"),
    _code("python3-sqlalchemy", "MIT", _DIST),
    _code("python3-twisted", "MIT", _DIST),
    _prose(
        "python3.11-doc",
        "PSF-2.0",
        "python3.11",
        "genindex /search _sources download contents.html",
    ),
    _prose("postgresql-doc-15", "PostgreSQL", "postgresql-doc-15", "bookindex"),
    _prose(
        "sqlite3-doc",
        "public domain",
        "sqlite3",
        "/syntax/ matrix keyword_index doclist sitemap",
    ),
    _prose("python-django-doc", "BSD-3-Clause", "python-django-doc", f"{_PAGES} py-modindex"),
    _prose("python-sqlalchemy-doc", "MIT", "python-sqlalchemy-doc", _PAGES),
    _german("manpages-de", "GPL-3+", "man/de", kind="man"),
    _german("manpages-de-dev", "GPL-3+", "man/de", kind="man"),
    _german("libreoffice-help-de", "MPL-2.0", "libreoffice/help/de/text"),
    _german("debian-reference-de", "GPL-2+", "debian-reference", only=".de.html"),
    _german("developers-reference-de", "GPL-2+", "developers-reference/de", "search genindex"),
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
