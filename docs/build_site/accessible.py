"""Changes of the HTML that keyboards and screen readers need, where the theme and Sphinx leave them out.

* Listings and tables that scroll can have the keyboard's focus, so that the arrow keys scroll them.
* The captions of the navigation are headings of level 2.
* The lines of a long signature are not a list of definitions, as Sphinx writes them.

``tools/look_at_site.py`` finds such faults with axe-core.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from docutils import nodes
    from sphinx.application import Sphinx

SIGNATURE = re.compile(r"<dl>\s*(?:<dd>.*?</dd>\s*)+</dl>", re.DOTALL)


def change(app: Sphinx, name: str, template: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
    """Change the body and the navigation of a page."""
    body = context.get("body", "")
    body = SIGNATURE.sub(lambda found: re.sub(r"<(dl|dd)>", r'<\1 role="none">', found[0]), body)
    body = body.replace("<pre>", '<pre tabindex="0">')
    context["body"] = body.replace('<div class="table-wrapper', '<div tabindex="0" class="table-wrapper')
    if "furo_navigation_tree" in context:
        tree = context["furo_navigation_tree"]
        context["furo_navigation_tree"] = tree.replace('role="heading"', 'role="heading" aria-level="2"')


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the extension."""
    app.connect("html-page-context", change, priority=900)  # after the theme
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
