"""Links of pages to other files of the repository, which the site shows as pages too.

The pages link to each other and to files of the repository by relative paths, as GitHub resolves them. Sphinx knows
only the pages in ``docs/``. This extension does three things:

* It copies the pages of `COPIES`, which stand elsewhere in the repository, into ``docs/generated/``.
* It points links to ``README.md`` and ``docs/README.md`` at the front page, and links to an example at its page in the
  gallery, where the gallery has one.
* It gives each other linked file a page that shows the file, and each linked folder a page that lists its files.
"""

from __future__ import annotations

import html
import os
import re
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from docutils import nodes
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import TextLexer, get_lexer_for_filename
from pygments.util import ClassNotFound
from sphinx.util.logging import getLogger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx
    from sphinx.builders import Builder
    from sphinx.environment import BuildEnvironment

logger = getLogger(__name__)

DOCS = Path(__file__).resolve().parents[1]
ROOT = DOCS.parent

GENERATED = "docs/generated"
"""The folder of the pages that this build writes. Git and the tests of the pages leave it out."""

COPIES = {
    "CONTRIBUTING.md": f"{GENERATED}/contributing.md",
    "CHANGELOG.md": f"{GENERATED}/changelog.md",
    "SECURITY.md": f"{GENERATED}/security.md",
}
"""Pages outside of ``docs/``, by the place of their copies."""

FRONT_PAGE = {"README.md", "docs/README.md"}
"""Pages that the front page of the site replaces."""

CODE = re.compile(r"(^ *```.*?^ *```$|`[^`\n]*`)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<=\]\()([^)#:\s]+)(#[^)]*)?(?=\))")

SCHEME = "repository:"
"""How a link to a file that is not a page is spelt between reading and writing a page."""

PREFIX = "files/"
"""The folder of the site with the pages that show files."""


def page_of(path: str) -> str | None:
    """Return the page of the site, as a path in the repository, that a link to a file leads to, or None."""
    if path in FRONT_PAGE:
        return "docs/index.md"
    if path in COPIES:
        return COPIES[path]
    if path.startswith("docs/") and path.endswith(".md"):
        return path
    if path in {"examples", "examples/"} and (DOCS / "gallery/index.md").exists():
        return "docs/gallery/index.md"
    example = PurePosixPath(path)
    in_gallery = f"docs/gallery/generated/{example.stem}.md"
    if path.startswith("examples/") and example.suffix == ".py" and (ROOT / in_gallery).exists():
        return in_gallery
    return None


def rewritten(text: str, page: str, place: str) -> str:
    """Return the text of a page, the links of which lead to pages of the site and to `SCHEME`.

    Parameters
    ----------
    text
        Markdown.
    page, place
        The path in the repository that the links are relative to, and the path at which Sphinx reads the page.
    """

    def replaced(link: re.Match[str]) -> str:
        path = os.path.normpath(PurePosixPath(page).parent / link[1])
        anchor = link[2] or ""
        target = page_of(path)
        if target is not None:
            moved = anchor if path not in FRONT_PAGE or anchor == "#install" else ""
            return os.path.relpath(target, PurePosixPath(place).parent) + moved
        if path.startswith("docs/"):
            return os.path.relpath(path, PurePosixPath(place).parent) + anchor
        return SCHEME + path

    parts = CODE.split(text)
    return "".join(part if i % 2 else LINK.sub(replaced, part) for i, part in enumerate(parts))


def copy_pages(app: Sphinx) -> None:
    """Copy the pages of `COPIES` that exist; write only those that changed, so that Sphinx reads only these again."""
    for source, place in COPIES.items():
        if (ROOT / source).exists():
            write(ROOT / place, rewritten((ROOT / source).read_text("utf-8"), source, place))


def write(path: Path, text: str) -> None:
    """Write a file if it has another text, or does not exist."""
    if not path.exists() or path.read_text("utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def rewrite_links(app: Sphinx, docname: str, source: list[str]) -> None:
    """Rewrite the links of a page that Sphinx has read."""
    path = Path(app.env.doc2path(docname)).relative_to(ROOT).as_posix()
    if path.endswith(".md") and path not in COPIES.values():
        source[0] = rewritten(source[0], path, path)


def note_files(app: Sphinx, doctree: nodes.document) -> None:
    """Note the files of the repository that a page links to, and warn about files that do not exist."""
    found = linked(app.env).setdefault(app.env.docname, set())
    for link in doctree.findall(nodes.reference):
        path = link.get("refuri", "").removeprefix(SCHEME)
        if path != link.get("refuri", ""):
            if not (ROOT / path).exists():
                logger.warning("the page links to %s, which does not exist", path, location=link)
            else:
                found.add(path)


def linked(env: BuildEnvironment) -> dict[str, set[str]]:
    """Return the files of the repository that each page links to."""
    if not hasattr(env, "offload_linked_files"):
        env.offload_linked_files = {}  # type: ignore[attr-defined]
    files: dict[str, set[str]] = env.offload_linked_files  # type: ignore[attr-defined]
    return files


def forget_page(app: Sphinx, env: BuildEnvironment, docname: str) -> None:
    """Forget the links of a page that Sphinx reads again or that is gone."""
    linked(env).pop(docname, None)


def resolve_links(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Point the links to files at the pages that show them."""
    for link in doctree.findall(nodes.reference):
        path = link.get("refuri", "").removeprefix(SCHEME)
        if path != link.get("refuri", ""):
            link["refuri"] = app.builder.get_relative_uri(docname, page_name(path))


def page_name(path: str) -> str:
    """Return the name of the page that shows a file."""
    return PREFIX + path.strip("/")


def file_pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield the pages of all linked files, and of the files in linked folders."""
    todo, done = set().union(*linked(app.env).values()), set()
    while todo:
        path = todo.pop()
        done.add(path)
        if (ROOT / path).is_dir():
            listed = sorted(f"{path}/{child.name}" for child in (ROOT / path).iterdir() if is_shown(child))
            todo |= set(listed) - done
            body = listing(path, listed, app.builder)
        else:
            body = highlighted(path)
        title = html.escape(path)
        yield page_name(path), {"title": title, "body": f"<h1>{title}</h1>\n{body}"}, "page.html"


def is_shown(path: Path) -> bool:
    """Return whether the listing of a folder has this file."""
    return path.is_file() and path.suffix in {".py", ".md", ".json", ".toml"}


def listing(path: str, children: list[str], builder: Builder) -> str:
    """Return a list of links to the files of a folder."""
    items = ""
    for child in children:
        uri = builder.get_relative_uri(page_name(path), page_name(child))
        items += f'<li><a href="{uri}"><code>{html.escape(child[len(path) + 1 :])}</code></a></li>\n'
    return f"<ul>\n{items}</ul>"


def highlighted(path: str) -> str:
    """Return the text of a file as highlighted HTML."""
    text = (ROOT / path).read_text("utf-8")
    try:
        lexer = get_lexer_for_filename(path)
    except ClassNotFound:
        lexer = TextLexer()
    return highlight(text, lexer, HtmlFormatter(cssclass="highlight"))


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the extension."""
    app.connect("builder-inited", copy_pages)
    app.connect("source-read", rewrite_links)
    app.connect("doctree-read", note_files)
    app.connect("env-purge-doc", forget_page)
    app.connect("doctree-resolved", resolve_links)
    app.connect("html-collect-pages", file_pages)
    return {"version": "1", "parallel_read_safe": False, "parallel_write_safe": True}
