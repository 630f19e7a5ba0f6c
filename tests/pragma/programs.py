"""Functions from texts that a test puts together."""

from __future__ import annotations

import itertools
import linecache
import textwrap

from offload.pragma import acc, directives, omp

_numbers = itertools.count()


def made_of(text, names=None):
    """Return the last function of a text, which keeps its lines; ``names`` are its globals."""
    file, text = f"<program {next(_numbers)}>", textwrap.dedent(text).lstrip("\n")
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    known = {"omp": omp, "acc": acc, "directives": directives}
    found = {**(names or {}), **known}
    before = dict(found)
    exec(compile(text, file, "exec"), found)
    return [value for name, value in found.items() if before.get(name) is not value and name != "__builtins__"][-1]
