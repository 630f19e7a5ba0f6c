"""A check of the built site: each link within the site leads to a page and an anchor that exist.

Sphinx checks the references that it resolves. This check reads the HTML, so it also covers templates, raw HTML,
pictures and the pages of other extensions. A link that leads nowhere is a warning, so ``-W`` fails the build. Links to
other sites are not fetched: the build lists them in ``external-links.txt``.
"""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from sphinx.util.logging import getLogger

if TYPE_CHECKING:
    from sphinx.application import Sphinx

logger = getLogger(__name__)

IDS = re.compile(r'\b(?:id|name)="([^"]*)"')
LINKS = re.compile(r'\b(?:href|src|data)="([^"]*)"')
LISTING = re.compile(r"<pre[ >].*?</pre>", re.DOTALL)


class Site:
    """The pages of a built site, with their anchors."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ids: dict[Path, set[str]] = {}
        self.external: set[str] = set()

    def problems(self) -> list[str]:
        """Return a text for each link that leads nowhere, and collect the links to other sites."""
        found = []
        for page in sorted(self._folder.rglob("*.html")):
            text = LISTING.sub("", page.read_text("utf-8"))
            for link in dict.fromkeys(LINKS.findall(text)):
                problem = self._problem(page, html.unescape(link))
                if problem:
                    found.append(f"{page.relative_to(self._folder)}: {problem}")
        return found

    def _problem(self, page: Path, link: str) -> str:
        """Return why a link leads nowhere, or an empty text."""
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            if parts.scheme in {"http", "https"}:
                self.external.add(link)
                return ""
            return "" if parts.scheme in {"data", "mailto", "javascript"} else f"{link} has an unknown scheme"
        target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
        if not target.is_relative_to(self._folder) or not target.is_file():
            return f"{link} leads to no file"
        if parts.fragment and target.suffix == ".html" and unquote(parts.fragment) not in self._ids_of(target):
            return f"{link} leads to no anchor"
        return ""

    def _ids_of(self, page: Path) -> set[str]:
        """Return the anchors of a page."""
        if page not in self._ids:
            self._ids[page] = {html.unescape(found) for found in IDS.findall(page.read_text("utf-8"))}
        return self._ids[page]


def check(app: Sphinx, error: Exception | None) -> None:
    """Check the site after the build."""
    if error is not None or app.builder.format != "html":
        return
    site = Site(Path(app.outdir).resolve())
    for problem in site.problems():
        logger.warning("%s", problem, type="site", subtype="link")
    Path(app.outdir, "external-links.txt").write_text("".join(f"{link}\n" for link in sorted(site.external)), "utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the extension."""
    app.connect("build-finished", check, priority=900)  # after the search index and the copies of files
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
