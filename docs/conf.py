"""How Sphinx builds the site: ``python -m sphinx -W -n -b html docs build/site``. The build needs no network."""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS), str(DOCS.parent)]

from build_site.files import SCHEME  # noqa: E402  (found by the line above)

project, author, copyright = "offload", "The offload maintainers", "The offload maintainers"  # noqa: A001
extensions = ["myst_parser", "sphinx_design", "sphinx_copybutton", "build_site.files"]
# The gallery and the plots write pages and pictures before Sphinx reads.
extensions += [f"build_site.{name}" for name in ("gallery", "plots") if (DOCS / f"build_site/{name}.py").exists()]
exclude_patterns = ["README.md", "build_site", "_static"]

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 6  # as on GitHub
myst_url_schemes = ["http", "https", "mailto", SCHEME.removesuffix(":")]

html_theme = "furo"
html_title = "offload"
html_static_path = ["_static"]
