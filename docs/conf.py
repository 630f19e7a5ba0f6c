"""How Sphinx builds the site: ``python -m sphinx -W -n -b html docs build/site``. The build needs no network."""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS), str(DOCS.parent)]

from build_site import inventories  # noqa: E402  (found by the line above)
from build_site.files import SCHEME  # noqa: E402

project, author, copyright = "offload", "The offload maintainers", "The offload maintainers"  # noqa: A001
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "build_site.accessible",
    "build_site.anchors",
    "build_site.files",
    "build_site.literals",
    "build_site.reference",
    "build_site.tables",
]
# The gallery, the notebooks and the plots write pages and pictures before Sphinx reads.
WRITERS = ("gallery", "notebooks", "plots")
extensions += [f"build_site.{name}" for name in WRITERS if (DOCS / f"build_site/{name}.py").exists()]
exclude_patterns = ["README.md", "build_site", "_static"]

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 6  # as on GitHub
myst_url_schemes = ["http", "https", "mailto", SCHEME.removesuffix(":")]
suppress_warnings = ["misc.highlighting_failure"]  # listings with "…", which leave something out

default_role = "py:obj"  # of docstrings
intersphinx_mapping = inventories.mapping()
napoleon_google_docstring = False
napoleon_use_ivar = True
python_maximum_signature_line_length = 100

html_theme = "furo"
pygments_dark_style = "a11y-high-contrast-dark"  # of the package that furo takes its light style from
html_title = "offload"
html_static_path = ["_static"]
html_css_files = ["site.css"]
