"""Properties of comments as directives: in the functions of real files, and for every directive string."""

from __future__ import annotations

import ast
from pathlib import Path
from random import Random

import pytest

import offload
from offload.errors import PragmaError
from offload.pragma.comments import insert_comments
from offload.pragma.parser import parse
from offload.pragma.tables import DIRECTIVES
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


# -- every string --------------------------------------------------------------------------------------------------

RIGHT = [
    "task depend(in: x[0:n], y) if(n > 3) priority(2)",
    "target enter data map(to: x) nowait",
    "target teams distribute parallel for collapse(2) map(tofrom: a[0:n]) reduction(+: s)",
    "taskloop grainsize(strict: 4) shared(x)",
    "depobj(o) depend(inout: x)",
    "critical (name)",
    "taskwait depend(in: ('é', ip))",
    "cancel taskgroup if(n)",
]
WRONG = [
    "target dpend(in: x)",
    "tagret nowait",
    "task depend(int: é)",
    "target map(to: x",
    "task depend(in: a[0:n))",
    "target map(to: x,, y)",
    "task if(n >)",
    "target device(0) device(1)",
    "taskloop grainsize(2) num_tasks(3)",
    "threadprivate(x)",
    "(x)",
]
WORDS = [
    *dict.fromkeys(word for _, name in DIRECTIVES for word in name.split()),
    *("depend(in: x)", "depend(", "map(to: ä[0:n])", "map(", "nowait", "if(n)", "private(x)", "reduction(+: s)"),
    *("(", ")", "[", "]", ":", ",", "'", '"', "é", "x", "3", "$", "#", "`"),
]


def found_by(parse_it):
    """Return a directive without its text, or the class, message and token of the error."""
    try:
        directive = parse_it()
    except PragmaError as error:
        return type(error), error.msg, error.text[error.offset - 1 : error.end_offset - 1]
    return directive


def check_as_comment(string, language="omp"):
    """A string as a comment, and one line of it as a continuation, gives the same as the string does."""
    direct = found_by(lambda: parse(string, language))
    source = f'def f():\n    "é"\n    #$ {language} {string}\n    for i in x:\n        pass\n'
    (definition,) = ast.parse(source).body
    faults = []
    made = insert_comments(FunctionText(FILE, source, definition), faults)
    if type(direct) is tuple:  # a directive is a named one
        (error,) = faults
        assert found_by(lambda: raised(error)) == direct
        assert (error.filename, error.lineno, error.text) == (FILE, 3, source.split("\n")[2])
        assert error.offset == found_direct(string, language).offset + len(f"    #$ {language} ")
        return
    assert not faults
    (call,) = [node for node in ast.walk(made) if hasattr(node, "directive_text")]
    assert call.directive_text.parsed() == direct


def raised(error):
    raise error


def found_direct(string, language):
    with pytest.raises(PragmaError) as caught:
        parse(string, language)
    return caught.value


@pytest.mark.parametrize("string", [*RIGHT, *WRONG])
def test_a_string_as_a_comment(string):
    """A right string gives the same directive, a wrong one the same error with the same token, at its column."""
    check_as_comment(string)


def test_random_strings_as_comments():
    """Random strings as comments give the same as the strings do."""
    random = Random(11)
    for _ in range(3000):
        string = random.choice(["", "", " "]).join([*random.choices(WORDS, k=random.randint(1, 4)), ""]).strip()
        string = " ".join([random.choice(WORDS), string]).strip()
        if not string.startswith("end"):
            check_as_comment(string, random.choice(["omp", "acc"]))


@pytest.mark.parametrize("string", [*RIGHT, *WRONG])
@pytest.mark.parametrize("mark", ["\\", " &"])
def test_a_string_over_several_comments(string, mark):
    """A string that is cut at its blanks gives the same directive, or the same token, on the line that has it."""
    words = string.split(" ")
    lines = [f"    #omp {word}{mark}" for word in words[:-1]] + [f"    #omp {words[-1]}"]
    source = "\n".join(["def f():", *lines, "    for i in x: pass", ""])
    (definition,) = ast.parse(source).body
    faults = []
    insert_comments(FunctionText(FILE, source, definition), faults)
    direct = found_by(lambda: parse("\n".join(words), "omp"))
    if type(direct) is not tuple:  # a directive is a named one
        assert not faults
        return
    (error,) = faults
    expected = found_direct("\n".join(words), "omp")
    assert (type(error), error.msg) == direct[:2]
    assert (error.lineno, error.offset) == (expected.lineno + 1, expected.offset + len("    #omp "))
