"""Versions of installed packages."""

from importlib.metadata import PackageNotFoundError, version


def installed_version(name: str) -> str:
    """A package's version; "unknown" where it runs from a source tree that is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"
