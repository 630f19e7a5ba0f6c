"""The notebooks of the site, executed when the site is built.

This extension executes each notebook in ``docs/notebooks/``, which git keeps without outputs. It writes a Markdown page
with the outputs, and the pictures in them, into ``docs/notebooks/generated/``. A cell that raises stops the build.
"""

from __future__ import annotations

import html
import logging
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from build_site.files import rewritten, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = ROOT / "docs" / "notebooks"
GENERATED = NOTEBOOKS / "generated"

LIMIT_S = 60
"""Of one cell."""

PICTURE, TEXT = "image/svg+xml", "text/plain"
TITLE = re.compile(r"<title[^>]*>(.*?)</title>|<text[^>]*>(.*?)</text>", re.DOTALL)
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
NOTEBOOK_LINK = re.compile(r"(?<=\]\()([\w-]+)\.ipynb(?=\))")


def executed(path: Path) -> Any:
    """Execute a notebook on a simulated device, in a kernel that imports this tree; return it with its outputs."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OFFLOAD_DEVICES": "sim"}
    quiet = ["--log-level=ERROR"]  # the kernel warns that its ports are not encrypted
    limits = {"timeout": LIMIT_S, "iopub_timeout": LIMIT_S}  # of a cell, and then of its outputs
    client = NotebookClient(notebook, kernel_name="python3", extra_arguments=quiet, **limits)
    client.execute(cwd=str(path.parent), env=env)
    return notebook


def page_of(notebook: Any, name: str) -> tuple[str, dict[str, str]]:
    """Return an executed notebook as Markdown, and the pictures that belong to it by the names of their files."""
    pictures: dict[str, str] = {}
    parts = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(NOTEBOOK_LINK.sub(r"generated/\1.md", cell.source))
        else:
            parts.append(fenced("{code-block} python", cell.source))
            parts += outputs_of(cell.outputs, name, pictures)
    parts.insert(1, f"You can [download this notebook]({name}.ipynb) and run it.")
    text = "\n\n".join(parts) + "\n"
    return rewritten(text, f"docs/notebooks/{name}.ipynb", f"docs/notebooks/generated/{name}.md"), pictures


def outputs_of(outputs: Any, name: str, pictures: dict[str, str]) -> Iterator[str]:
    """Yield the outputs of a cell as Markdown; add its pictures."""
    for output in outputs:
        data = output.get("data", {})
        if PICTURE in data:
            file, svg = f"{name}-{len(pictures)}.svg", data[PICTURE]
            pictures[file] = svg
            yield f"```{{image}} {file}\n:alt: {alternative(svg)}\n```"
        else:
            text = output.text if output.output_type == "stream" else data[TEXT]
            yield fenced("text", ESCAPE.sub("", text).rstrip())


def alternative(svg: str) -> str:
    """Return the title of a picture, or its first text."""
    found = TITLE.search(svg)
    return html.unescape((found[1] or found[2]).strip()) if found else "A picture"


def fenced(language: str, text: str) -> str:
    """Return a listing."""
    return f"```{language}\n{text}\n```"


def write_pages(app: Sphinx) -> None:
    """Execute the notebooks and write their pages."""
    logging.getLogger("traitlets").setLevel(logging.WARNING)  # nbclient reports each kernel that it starts
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        text, pictures = page_of(executed(path), path.stem)
        for file, svg in pictures.items():
            write(GENERATED / file, svg)
        write(GENERATED / f"{path.stem}.md", text)


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the extension."""
    app.connect("builder-inited", write_pages)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
