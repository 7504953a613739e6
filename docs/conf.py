"""How the documentation is built: `make docs`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # for name_links

project = "parllel"
author = "The parllel authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "name_links"]
html_theme = "furo"
html_title = "parllel"
exclude_patterns = ["_build"]
autodoc_member_order = "bysource"
autodoc_typehints = "none"
napoleon_google_docstring = True
napoleon_use_ivar = True
myst_heading_anchors = 3
default_role = "py:obj"  # what docstrings have in backticks


def leave_out_foreign(app, what, name, obj, options, lines):
    """Don't repeat the docstring of another library's function that serves as a method."""
    if what == "method" and not str(getattr(obj, "__module__", "")).startswith(
        "parllel"
    ):
        lines[:] = ["See the base class."]


def setup(app):
    """Register with Sphinx."""
    app.connect("autodoc-process-docstring", leave_out_foreign)
