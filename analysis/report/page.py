"""The page in HTML: template, style and script in one file, the browser held to it."""

from __future__ import annotations

import base64
import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

if TYPE_CHECKING:
    from analysis.report import Report


def render(report: Report) -> str:
    """The page. All that comes from a trace is escaped; scripts run only if they are ours."""
    template, style, script = _parts()
    # Nothing is loaded, and nothing runs, but what stands here: the browser holds us to it.
    rules = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:;"
        f" style-src '{_hash(style)}'; script-src '{_hash(script)}'"
    )
    return template.render(report=report, rules=rules, style=Markup(style), script=Markup(script))


@lru_cache(maxsize=1)
def _parts() -> tuple[Template, str, str]:
    loader = PackageLoader("analysis.report", "parts")
    environment = Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style, script = (loader.get_source(environment, f"page.{end}")[0] for end in ("css", "js"))
    return environment.get_template("page.html"), style, script


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
