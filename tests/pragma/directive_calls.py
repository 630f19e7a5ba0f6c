"""Directive strings as calls, in a namespace written by hand: what rewritten functions do, without the rewriting."""

from __future__ import annotations

import ast

from offload.pragma import items
from offload.pragma.calls import DirectiveCall
from offload.pragma.parser import parse

ACTIVATION = object()


class HandNaming:
    """Names of a namespace; a name that it lacks is unbound."""

    def __init__(self, names):
        self._names = names

    @property
    def library(self):
        return ast.Name("_items", ast.Load())

    def read(self, name):
        return ast.Name(name if name in self._names else "_unbound", ast.Load())

    def location(self, name):
        return ast.parse(f"_items.variable(_activation, {name!r})", mode="eval").body


def evaluated(text, language="omp", **names):
    """Return the call of a directive, and the values of its clauses in a namespace."""
    call = DirectiveCall(parse(text, language))
    tree = ast.Expression(call.values(HandNaming(names)))
    for node in ast.walk(tree):
        for word in ("lineno", "end_lineno", "col_offset", "end_col_offset"):
            if word in getattr(node, "_attributes", ()):
                setattr(node, word, 1)
    given = {"_items": items, "_unbound": items.UNBOUND, "_activation": ACTIVATION, **names}
    return call, eval(compile(tree, "<directive>", "eval"), given)


def keywords(text, language="omp", **names):
    """Return the keyword clauses that a directive stands for."""
    call, values = evaluated(text, language, **names)
    return call.keywords(values)


def run(text, language="omp", **names):
    """Carry out a directive that stands alone."""
    call, values = evaluated(text, language, **names)
    return call.run(values)


def manage(text, language="omp", **names):
    """Return the context manager of a directive whose block stays."""
    call, values = evaluated(text, language, **names)
    return call.manage(values)


def encounter(text, function, args, language="omp", **names):
    """Encounter a directive whose block is this function, with these arguments."""
    call, values = evaluated(text, language, **names)
    return call.encounter(call.decorate(function), values)(*args)
