"""One program with directives in several spellings: strings in `with`, comments, and calls of the API.

A program is a module's text, without its imports, that defines `program`. `Twins.same` runs it with directive strings,
with the same directives as comments (`as_comments` writes that text), and in the spelling of API.md, which the test
writes next to it. All of them must leave the same in their arguments, return the same, and record the same graph.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import inspect
import itertools
import linecache
import re
import sys
from dataclasses import dataclass
from typing import Any

import cloudpickle
import numpy as np
import pytest

import offload
from tests import cluster

HEADER = """\
import itertools
import numpy as np
import offload
from offload import *
from offload import acc as api
from offload.pragma import acc, directives, omp
"""

CALLS_HEADER = HEADER.replace("from offload.pragma import acc, directives, omp", "from offload import acc")
"""Of a program in the spelling of API.md: it does not know directive strings."""

SENTINELS = ("#pragma {}", "#{}", "#${}", "#$ {}")

_numbers = itertools.count()


# -- comments ------------------------------------------------------------------------------------------
def directive_of(node):
    """Return language and string of ``omp("…")``, or None for any other expression."""
    is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("omp", "acc")
    if not is_call or len(node.args) != 1 or not isinstance(node.args[0], ast.Constant):
        return None
    return node.func.id, node.args[0].value


def blocks_of(tree):
    """Yield each directive in a `with` or a statement: the node, language, string and the block's statements."""
    for node in ast.walk(tree):
        if isinstance(node, ast.With) and len(node.items) == 1:
            found = directive_of(node.items[0].context_expr)
            if found is not None:
                yield node, *found, node.body
        elif isinstance(node, ast.Expr):
            found = directive_of(node.value)
            if found is not None:
                yield node, *found, []


def words_of(string):
    """Return the words of a directive that its ``end`` repeats: those before the first clause or bracket."""
    words = "target teams distribute parallel for simd loop data enter exit update task taskloop taskgroup taskgraph"
    words += " masked master single sections section critical atomic kernels serial host_data"
    word = f"(?:{words.replace(' ', '|')})"
    found = re.match(rf"\s*({word}(?:(?:\s+|_){word})*)(?!\w)", string)
    return " ".join(found[1].replace("_", " ").split()) if found else ""


def is_stand_alone(string):
    """Tell whether a directive has no block, though it stands in a `with`."""
    first = re.match(
        r"[\s]*(taskwait|taskyield|barrier|flush|cancel|target (enter|exit|update)|enter|exit|update|wait)", string
    )
    return first is not None


def as_comments(text, sentinels=SENTINELS):
    """Return a program's text with each directive of a block or statement as a comment."""
    lines = text.splitlines()
    n_dedented = [0] * (len(lines) + 2)  # by how many levels a line moves to the left
    replaced, inserted = {}, {}
    kinds = itertools.cycle(sentinels)
    found = list(blocks_of(ast.parse(text)))
    for node, _, _, body in found:
        for line in range(body[0].lineno, node.end_lineno + 1) if body else ():
            n_dedented[line] += 1
    ended = []  # the blocks that have an end: an end closes the nearest block of its words
    for node, language, string, body in found:
        indent = " " * (node.col_offset - 4 * n_dedented[node.lineno])
        words = (language, words_of(string)) if body else None
        is_nothing_else = len(body) == 1 and isinstance(body[0], ast.Expr) and directive_of(body[0].value) is not None
        is_in_its_like = any(words == its and node.end_lineno <= end for its, end in ended if body)
        has_end = (len(body) > 1 or is_nothing_else or is_in_its_like) and not is_stand_alone(string)
        if has_end:
            ended.append((words, node.end_lineno))
        sentinel = "#$ {}" if has_end else next(kinds)
        first = node.lineno
        last = body[0].lineno - 1 if body else node.end_lineno
        if body and isinstance(body[0], ast.FunctionDef) and body[0].decorator_list:
            last = body[0].decorator_list[0].lineno - 1
        replaced[first] = f"{indent}{sentinel.format(language)} {' '.join(string.split())}"
        for line in range(first + 1, last + 1):
            replaced[line] = None if lines[line - 1].strip() else ""
        if has_end:
            end = f"{indent}#$ {language} end {words[1]}"
            inserted.setdefault(node.end_lineno, []).insert(0, (node.col_offset, end))
    out = []
    for number, line in enumerate(lines, 1):
        new = replaced.get(number, line[4 * n_dedented[number] :] if line.strip() else line)
        if new is not None:
            out.append(new)
        out += [end for _, end in sorted(inserted.get(number, ()), reverse=True)]
    return "\n".join(out) + "\n"


# -- modules -------------------------------------------------------------------------------------------
def import_text(folder, text, header=HEADER):
    """Write a module with these lines after the header, import it, and return it."""
    name = f"directives_{next(_numbers)}"
    path = folder / f"{name}.py"
    path.write_text(header + text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where `inspect` looks for the file of a class, and `pickle` for a function
    if cluster.N_WORKERS:
        cloudpickle.register_pickle_by_value(module)  # the workers do not have its file
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


# -- comparisons ---------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Outcome:
    """A run of a program: its arguments afterwards, its return value, and its graph's shape."""

    arguments: tuple[Any, ...]
    value: Any
    nodes: list[tuple[str, int | None]]
    edges: set[tuple[int, int, str]]


def shape_of(graph):
    """Return directives and devices of a graph's nodes in order, and its edges with kinds."""
    nodes = [(node.directive, node.device_num) for node in graph.tasks]
    edges = {(edge.source.index, edge.target.index, edge.kind) for edge in graph.edges}
    return nodes, edges


def run(program, make, *, is_recorded=True):
    """Run a program on new arguments, with its graph recorded unless it must not be."""
    arguments = make()
    with offload.record() if is_recorded else contextlib.nullcontext() as graph:
        value = program(*arguments)
        offload.taskwait()
    if isinstance(value, offload.Task):
        value = value.result()
    nodes, edges = shape_of(graph) if graph is not None else ([], set())
    return Outcome(arguments, value, nodes, edges)


def assert_equal(one, other):
    """Compare two values, arrays by type, shape and elements."""
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        assert type(one) is type(other), (one, other)
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    elif isinstance(one, (list, tuple)):
        assert type(one) is type(other), (one, other)
        assert len(one) == len(other), (one, other)
        for first, second in zip(one, other, strict=True):
            assert_equal(first, second)
    elif isinstance(one, dict):
        assert list(one) == list(other)
        assert_equal(list(one.values()), list(other.values()))
    elif type(one).__module__.startswith(("directives_", "offload")) and hasattr(one, "__dict__"):
        assert_equal(vars(one), vars(other))
    else:
        assert one == other, (one, other)


def assert_same(one, other, what):
    """Compare two outcomes."""
    try:
        assert one.nodes == other.nodes, (one.nodes, other.nodes)
        assert one.edges == other.edges, (sorted(one.edges), sorted(other.edges))
        assert_equal(one.value, other.value)
        assert_equal(one.arguments, other.arguments)
    except AssertionError as error:
        error.add_note(what)
        raise


class Twins:
    """Runs programs in several spellings, and compares what they do.

    Parameters
    ----------
    folder : Path
        Where their modules are written.
    """

    def __init__(self, folder):
        self.folder = folder

    def string(self, text):
        """Return `program` of a text with directive strings."""
        return import_text(self.folder, text).program

    def same(self, strings, calls, make=tuple, *, functions=None, comments=True, is_recorded=True):
        """Run a program in each of its spellings; return the outcome of the strings.

        Parameters
        ----------
        strings, calls : str
            The program with directive strings in blocks, and with calls of the API.
        make : callable
            Makes the arguments of a run.
        functions : str, optional
            The program with directive strings over functions.
        comments : bool
            Whether comments can say it, too.
        is_recorded : bool
            Whether the graph is recorded, which a taskgraph and ``interop`` behave differently under.
        """
        expected = run(import_text(self.folder, calls, CALLS_HEADER).program, make, is_recorded=is_recorded)
        outcome = run(self.string(strings), make, is_recorded=is_recorded)
        assert_same(outcome, expected, f"strings:\n{strings}")
        if comments:
            text = as_comments(strings)
            assert_same(run(self.string(text), make, is_recorded=is_recorded), expected, f"comments:\n{text}")
        if functions is not None:
            found = run(self.string(functions), make, is_recorded=is_recorded)
            assert_same(found, expected, f"functions:\n{functions}")
        return outcome


# -- errors --------------------------------------------------------------------------------------------
LEFT, RIGHT = "«", "»"
"""They stand around the token that an error has to point at; nothing in between: an error without a token."""


@dataclass(frozen=True)
class Place:
    """Where an error is expected: the token, its 1-based line in the module, and its 1-based column."""

    token: str
    line: int
    column: int


def marked(text, header=HEADER):
    """Return a text without its marks, and the place that they mark in the module."""
    begin = text.index(LEFT)
    end = text.index(RIGHT) - 1
    plain = text.replace(LEFT, "").replace(RIGHT, "")
    before = header + plain[:begin]
    return plain, Place(plain[begin:end], before.count("\n") + 1, len(before) - before.rfind("\n"))


def token_of(error):
    """Return the text that an error points at."""
    return error.text[error.offset - 1 : error.end_offset - 1]


def error_of(folder, text, *, run_it=None):
    """Import a module, or run its program, and return the PragmaError that it raises."""
    with pytest.raises(offload.errors.PragmaError) as caught:
        module = import_text(folder, text)
        if run_it is not None:
            run_it(module.program)
    return caught.value


def assert_at(error, place, text):
    """Compare file, line, column and token of an error with the place marked."""
    lines = (HEADER + text).splitlines()
    found = (token_of(error), error.lineno, error.offset)
    assert found == (place.token, place.line, place.column), f"{error!r}\n{lines[place.line - 1]}"
    assert error.text.rstrip("\n") == lines[place.line - 1]
    assert linecache.getline(error.filename, error.lineno).rstrip("\n") == error.text.rstrip("\n")
    assert error.end_lineno == error.lineno


def dedent(text):
    """Return a text of a test without its indentation and first line break."""
    return inspect.cleandoc(text) + "\n"
