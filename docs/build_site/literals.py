"""Names in the text of pages become links: ``omp.target_memcpy_rect`` here, and ``cupy.cuda.Stream`` to CuPy's page.

The pages are plain Markdown, in which a name is code without a link. The first mention of a name on a page becomes a
link, if it is a public name with its module, or in an inventory of another project. On ``docs/reference.md``, names in
the first column of a table need no module.
"""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.addnodes import pending_xref

from build_site import inventories

if TYPE_CHECKING:
    from sphinx.application import Sphinx

PREFIXES = {
    "omp.": "offload.",
    "acc.": "offload.acc.",
    "mpi.": "offload.mpi.",
    "parray.": "offload.parray.",
    "np.": "numpy.",
    "cp.": "cupy.",
    "MPI.": "mpi4py.MPI.",
}
"""The short names that pages use for modules."""

SHORT = re.compile("|".join(map(re.escape, PREFIXES)))
ARGUMENTS = re.compile(r"\(.*\)$", re.DOTALL)


def known_names() -> set[str]:
    """Return the names that have an entry here or in an inventory."""
    names = {one.name for project in inventories.projects() for one in inventories.read(project)[2]}
    for module in ("offload", "offload.acc", "offload.mpi", "offload.parray"):
        names.update(f"{module}.{name}" for name in importlib.import_module(module).__all__)
    return {name for name in names if "." in name}


def full_name(text: str) -> str:
    """Return a name without its arguments, with the module that a short name stands for."""
    name = ARGUMENTS.sub("", text.strip())
    found = SHORT.match(name)
    return PREFIXES[found[0]] + name[found.end() :] if found else name


def in_first_column(literal: nodes.literal) -> bool:
    """Return whether a name stands in the first cell of a row."""
    cell = literal.parent
    while cell is not None and not isinstance(cell, nodes.entry):
        cell = cell.parent
    return cell is not None and cell.parent.index(cell) == 0


def is_linked(literal: nodes.literal) -> bool:
    """Return whether a name stands in a link or in a title, at any depth."""
    outer = literal.parent
    while outer is not None and not isinstance(outer, (nodes.reference, pending_xref, nodes.title)):
        outer = outer.parent
    return outer is not None


def link(app: Sphinx, doctree: nodes.document) -> None:
    """Make the first mention of each name on a page a link."""
    docname = app.env.docname
    if docname.startswith("generated/api/"):
        return
    known, seen = known_names(), set()
    for literal in list(doctree.findall(nodes.literal)):
        text = literal.astext()
        name = full_name(text)
        if docname == "reference" and in_first_column(literal) and f"offload.{text}" in known:
            name = f"offload.{text}"
        if name not in known or name in seen or is_linked(literal):
            continue
        seen.add(name)
        target = {"refdomain": "py", "reftype": "obj", "reftarget": name, "refdoc": docname, "refexplicit": True}
        literal.replace_self(pending_xref("", literal.deepcopy(), **target))


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the extension."""
    app.connect("doctree-read", link)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
