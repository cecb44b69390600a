"""How `make docs` builds the site: Sphinx over the Markdown pages, notebooks and docstrings.

The source folder is the repository's root, so that links between pages are the same here and where
the files are read one by one. Nothing is fetched, by the build or by its pages.
"""

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs" / "_ext")]

project = "simkit"
copyright = "the authors of simkit; Apache-2.0"
release = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
root_doc = "docs/index"
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "pages",
    "made_parts",
]
include_patterns = [
    "docs/*.md",
    "docs/api/*.md",
    "notebooks/*.ipynb",
    "notebooks/README.md",
    "benchmarks/README.md",
    "traces/reference/README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
]
exclude_patterns = [".*", "build", "**/__pycache__"]

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
nb_execution_mode = "off"  # they are shown with the outputs that are stored in them
nb_render_markdown_format = "myst"

default_role = "code"  # one backquote means code in these docstrings
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
napoleon_use_ivar = True

html_theme = "furo"
html_title = f"simkit {release}"
html_theme_options = {"navigation_with_keys": True}
html_static_path = ["_ext/static"]
html_css_files = ["simkit.css"]
html_additional_pages = {"index": "redirect.html"}  # the site's own first page
templates_path = ["_ext"]
html_show_sourcelink = False
html_copy_source = False
html_use_index = True
copybutton_exclude = ".linenos, .gp, .go"
