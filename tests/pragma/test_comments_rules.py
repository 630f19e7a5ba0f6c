"""Properties of comments as directives: in the functions of real files, and for every directive string."""

from __future__ import annotations

import ast
from pathlib import Path
from random import Random

import pytest

import offload
from offload.pragma.comments import insert_comments
from offload.texts import FunctionText, first_line

FILE = "program.py"
FILES = sorted(Path(offload.__file__).parent.glob("tasks/*.py"))[::2]


def statements_of(function):
    """Return the statements of a function that begin a line, with their lists; not those of nested functions."""
    found, lists = [], [function.body]
    for block in lists:  # which grows
        for statement in block:
            found.append((statement, block))
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            for node in (statement, *getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
                lists += [getattr(node, name) for name in ("body", "orelse", "finalbody") if getattr(node, name, None)]
    return found


def row_of(node):
    return first_line(node) if hasattr(node, "decorator_list") else node.lineno


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
@pytest.mark.parametrize("string", ["taskwait", "parallel"])
def test_comments_above_the_statements_of_a_file(file, string):
    """Above each statement of real functions, a comment becomes the statement before it, or the block around it."""
    lines = file.read_text(encoding="utf-8").split("\n")
    number = 0
    while True:
        functions = [
            node
            for node in ast.walk(ast.parse("\n".join(lines)))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        if number >= len(functions):
            return
        function = functions[number]
        number += 7  # some of them
        for place in range(len(statements_of(function))):
            check_comment_above(lines, function, place, string)


def check_comment_above(lines, function, place, string):
    statement, _ = statements_of(function)[place]
    row = row_of(statement)
    line = lines[row - 1]
    margin = line[: len(line) - len(line.lstrip())]
    is_first = hasattr(statement, "decorator_list") or len(margin) == statement.col_offset
    if not is_first or line.lstrip().startswith("elif"):
        return
    source = "\n".join([*lines[: row - 1], f"{margin}#omp {string}", *lines[row - 1 :]])
    nodes = ast.walk(ast.parse(source))
    expected = next(
        node
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.name, node.lineno) == (function.name, function.lineno)
    )
    made = insert_comments(FunctionText(FILE, source, expected))
    statement, block = statements_of(expected)[place]
    at = block.index(statement)
    call = ast.parse(f"omp({string!r})").body[0]
    block[at : at + 1] = (
        [call, statement] if string == "taskwait" else [ast.With([ast.withitem(call.value)], [statement])]
    )
    assert ast.dump(made) == ast.dump(expected)


COMMENTS = [
    "#omp task",
    "#omp taskwait",
    "#omp end task",
    "#acc loop",
    "#omp",
    "#$ omp parallel &",
    "#omp wrong",
    "# x",
]


def test_comments_anywhere():
    """Wherever comments stand, with any indentation, nothing but a `PragmaError` is raised."""
    random = Random(35)
    n_faults = 0
    for file in FILES:
        lines = file.read_text(encoding="utf-8").split("\n")
        for _ in range(3):
            for _ in range(3):
                row = random.randrange(len(lines))
                lines.insert(row, " " * random.choice([0, 3, 4, 8, 12]) + random.choice(COMMENTS))
            try:
                tree = ast.parse("\n".join(lines))
            except SyntaxError:  # after a backslash
                continue
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    insert_comments(FunctionText(FILE, "\n".join(lines), node), faults := [])
                    n_faults += len(faults)
                    for error in faults:
                        assert error.text == lines[error.lineno - 1]
                        assert 1 <= error.offset <= error.end_offset <= len(error.text) + 1
    assert n_faults > 10
