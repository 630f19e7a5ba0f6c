"""Links to the documentation of Python, NumPy, CuPy, Dask and mpi4py, without a network.

``docs/inventories/`` has a list for each project. Its first line is the address of the documentation and its title.
Each other line is a name, its role, and its page; ``$`` stands for the name. This module writes the lists in the format
that `sphinx.ext.intersphinx` reads. Add a name to the list when a page or a docstring needs it: the build reports a
type that it cannot link.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

from build_site.files import DOCS

LISTS = DOCS / "inventories"


class Name(NamedTuple):
    """A name of another project: its role in the domain of Python, and its page."""

    name: str
    role: str
    page: str


def read(project: str) -> tuple[str, str, list[Name]]:
    """Return the address of a project's documentation, its title, and the names in its list."""
    first, *lines = (LISTS / f"{project}.txt").read_text("utf-8").splitlines()
    address, title = first.split()
    return address, title, [Name(name, role, page.replace("$", name)) for name, role, page in map(str.split, lines)]


def projects() -> list[str]:
    """Return the projects that have a list."""
    return sorted(path.stem for path in LISTS.glob("*.txt"))


def mapping() -> dict[str, tuple[str, str]]:
    """Write the inventories, and return the value of ``intersphinx_mapping``."""
    folder = LISTS / "generated"
    folder.mkdir(exist_ok=True)
    found = {}
    for project in projects():
        address, title, names = read(project)
        body = "".join(f"{name} py:{role} 1 {page} -\n" for name, role, page in names)
        head = (
            "# Sphinx inventory version 2\n"
            f"# Project: {title}\n"
            "# Version: \n"
            "# The remainder of this file is compressed using zlib.\n"
        )
        path = folder / f"{project}.inv"
        path.write_bytes(head.encode() + zlib.compress(body.encode(), 9))
        found[project] = (address, str(path))
    return found
