"""Comments as directives: which statement each one applies to, and errors at their line and column."""

from __future__ import annotations

import ast
import traceback
from textwrap import dedent, indent

import pytest

from offload.errors import PragmaError, UnsupportedPragmaError
from offload.pragma.comments import insert_comments
from offload.texts import FunctionText, first_line
from tests.pragma.comment_texts import RIGHT

SENTINELS = ["#pragma {}", "#{}", "#${}", "#$ {}"]


def text_of(source, name="f"):
    """Return the text of a function of a source."""
    nodes = ast.walk(ast.parse(source))
    found = next(
        node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name
    )
    return FunctionText("program.py", source, found)


def written(body, head="def f():"):
    """Return a function with a body."""
    return f"{head}\n{indent(dedent(body).strip(chr(10)), '    ')}\n"


def inserted(source):
    return ast.unparse(insert_comments(text_of(source)))


def calls_of(definition):
    return [node.directive_text for node in ast.walk(definition) if hasattr(node, "directive_text")]


def error_of(source, name="f"):
    with pytest.raises(PragmaError) as caught:
        insert_comments(text_of(source, name))
    return caught.value


def token_of(error):
    return error.text[error.offset - 1 : error.end_offset - 1]


@pytest.mark.parametrize("name", RIGHT)
def test_right_comments(name):
    """A function with comments is the one with `with` blocks and calls in their places."""
    comments, blocks = RIGHT[name]
    expected = ast.unparse(ast.parse(written(blocks)))
    assert inserted(written(comments)) == expected
    in_class = f"class A:\n    if B:\n{indent(written(comments), ' ' * 8)}\n    x = 1\n"
    if "'''" not in comments:
        assert inserted(in_class) == expected
        assert inserted(written(comments).replace("    ", "\t")) == expected


@pytest.mark.parametrize("sentinel", SENTINELS)
@pytest.mark.parametrize(("language", "string"), [("omp", "task depend(in: x)"), ("acc", "parallel copyin(x)")])
def test_sentinels(sentinel, language, string):
    """Each spelling begins a directive; blanks before and after the string do not count."""
    comment = sentinel.format(language)
    made = insert_comments(text_of(written(f"{comment}  {string}  \ng(x)")))
    assert ast.unparse(made.body) == f"with {language}({string!r}):\n    g(x)"
    (where,) = calls_of(made)
    assert (where.language, where.text, where.line) == (language, string, 2)
    assert where.parsed().text == string


def test_places_of_the_nodes():
    """The nodes stand on the lines of the comments, the statements on their own, and the original is unchanged."""
    source = written("#omp parallel\n#omp \\\n#omp  task\na()\n\n#omp taskwait")
    text = text_of(source)
    before = ast.dump(text.definition, include_attributes=True)
    made = insert_comments(text)
    outer, statement = made.body
    (inner,) = outer.body
    assert [node.lineno for node in (outer, inner, inner.body[0], statement)] == [2, 3, 5, 7]
    assert [node.col_offset for node in (outer, inner, statement)] == [4, 4, 4]
    assert sorted(where.line for where in calls_of(made)) == [2, 3, 7]
    assert ast.dump(text.definition, include_attributes=True) == before
    compile(ast.Module([made], []), "program.py", "exec")


def test_a_decorator_keeps_the_first_line():
    """The first line of a decorated function is not the comment's: code is found by its first line."""
    source = written("#omp task\n@a\ndef g(): pass\n#omp task\ndef h(): pass")
    made = insert_comments(text_of(source))
    assert [first_line(node) for node in made.body] == [3, 6]
    assert [where.line for where in calls_of(made)] == [2, 5]


def test_a_function_without_comments():
    """A function without directive comments is copied as it is."""
    text = text_of("def f():\n    'doc'\n    a()  # omp\n\n#omp nonsense\ndef g():\n    #omp task\n    pass\n")
    made = insert_comments(text)
    assert made is not text.definition
    assert ast.dump(made, include_attributes=True) == ast.dump(text.definition, include_attributes=True)


def test_comments_around_the_function():
    """Comments above, between decorators and below the function are those of the block around it."""
    source = "#omp x\n@a\n#omp x\ndef f():\n    a()\n    #omp taskwait\n#omp x\n\n    #omp barrier\nx = 1\n    #omp x\n"
    source = source.replace("x = 1\n    #omp x\n", "x = 1\n")
    assert inserted(source) == "@a\ndef f():\n    a()\n    omp('taskwait')\n    omp('barrier')"


def test_a_coroutine():
    """The comments of an `async def` count too."""
    assert (
        inserted("async def f():\n    #omp taskwait\n    await x\n")
        == "async def f():\n    omp('taskwait')\n    await x"
    )


# Each: the body, the line (of the file; the first line has `def`), the column (from 1), the token, and a word that the
# message has.
WRONG = {
    "no directive": ("#omp tsk\na()", 2, 10, "tsk", "task"),
    "no clause": ("#$ omp task dpend(in: x)\na()", 2, 17, "dpend", "depend"),
    "nothing": ("a()\n#omp\nb()", 3, 9, "", ""),
    "a bracket": ("#pragma omp(x)\na()", 2, 16, "(", ""),
    "a word of prose": ("#omp is not needed here\na()", 2, 10, "is", ""),
    "commented code": ("#acc += 1\na()", 2, 10, "+", ""),
    "not supported": ("#omp threadprivate(x)\na()", 2, 10, "threadprivate", ""),
    "an end that is not supported": ("#omp end declare target\na()", 2, 14, "declare target", "not supported"),
    "no ASCII": ("#omp task depend(in: ä, é) dpend(in: x)\na()", 2, 32, "dpend", "depend"),
    "in a continuation": ("#omp task \\\n#omp  depend(in: x) \\\n#omp\tdpend(in: x)\na()", 4, 10, "dpend", ""),
    "a continuation that ends": ("#omp task \\\na()", 2, 15, "\\", "#omp"),
    "a continuation by another sentinel": ("#omp task &\n#$omp depend(in: x)\na()", 2, 15, "&", "#omp"),
    "a continuation by another language": ("#omp task &\n#acc depend(in: x)\na()", 2, 15, "&", "#omp"),
    "a continuation over a blank line": ("#omp task \\\n\n#omp depend(in: x)\na()", 2, 15, "\\", "#omp"),
    "a continuation of a continuation": ("#omp task &\n#omp depend(in: x) &\na()", 3, 24, "&", "#omp"),
    "a continuation of nothing": ("#omp \\\na()", 2, 10, "\\", "#omp"),
    "nothing follows": ("if a:\n    b()\n    #omp task\nc()", 4, 14, "task", "next statement"),
    "nothing follows at the end": ("a()\n#omp target nowait", 3, 10, "target", "next statement"),
    "a stand-alone directive follows": ("#omp task\n#omp taskwait\na()", 2, 10, "task", "end task"),
    "an end follows": ("#omp parallel\na()\n#omp task\n#omp end parallel", 4, 10, "task", "next statement"),
    "nothing before the end": ("#omp task\n#omp end task\na()", 2, 10, "task", "end task"),
    "an end alone": ("a()\n#omp end task\nb()", 3, 14, "task", "closes nothing"),
    "another end": ("#omp task\na()\n#omp end target\nb()", 4, 14, "target", "`task`"),
    "the end of another language": ("#omp parallel\na()\n#acc end parallel\nb()", 4, 14, "parallel", "closes"),
    "the end of another block": ("#omp task\nif a:\n    b()\n    #omp end task", 5, 18, "task", "closes nothing"),
    "an end twice": ("#omp task\na()\n#omp end task\n#omp end task", 5, 14, "task", "closes nothing"),
    "ends that cross": (
        "#omp task\n#omp target\na()\nb()\n#omp end task\n#omp end target",
        7,
        14,
        "target",
        "closes nothing",
    ),
    "an end with clauses": ("#omp single\na()\n#omp end single nowait", 4, 14, "single nowait", "name alone"),
    "an end of a stand-alone directive": ("#omp taskwait\n#omp end taskwait\na()", 3, 14, "taskwait", "closes"),
    "an end without a name": ("#omp task\na()\n#omp end", 4, 10, "end", "name"),
    "before else": ("if a:\n    b()\n#omp task\nelse:\n    c()", 4, 10, "task", "indent"),
    "before elif": ("if a:\n    b()\n#omp task\nelif c:\n    c()", 4, 10, "task", "indent"),
    "before except": ("try:\n    b()\n#omp taskwait\nexcept A:\n    c()", 4, 10, "taskwait", "indent"),
    "before finally": ("try:\n    b()\n#omp taskwait\nfinally:\n    c()", 4, 10, "taskwait", "indent"),
    "before case": ("match a:\n    #omp task\n    case 1:\n        b()", 3, 14, "task", "indent"),
    "too little indentation": ("for i in a:\n    b()\n#omp task\n    c()", 4, 10, "task", "indent"),
    "too much indentation": ("a()\n    #omp task\nb()", 3, 14, "task", "indent"),
    "between two indentations": ("if a:\n    b()\n  #omp task\nc()", 4, 12, "task", "indent"),
    "under a body on the line of its head": ("if a: b()\n    #omp taskwait\nc()", 3, 14, "taskwait", "indent"),
    "in an expression": ("a(1,\n#omp task\n2)", 3, 10, "task", "inside of a statement"),
    "in an expression, and no directive": ("a(1,\n#omp x y\n2)", 3, 10, "x y", "inside of a statement"),
    "in the head of a statement": (
        "for i in (\n    #omp task\n    a):\n    b()",
        3,
        14,
        "task",
        "inside of a statement",
    ),
    "in the head of a block below": (
        "if a:\n    b()\nelif (\n    #omp task\n    c):\n    d()",
        5,
        14,
        "task",
        "inside of a statement",
    ),
    "in a decorator": ("@a(\n#omp task\n1)\ndef g(): pass", 3, 10, "task", "inside of a statement"),
    "no function form, between decorators": ("@a\n#omp parallel\ndef g(): pass", 3, 10, "parallel", "decorate"),
    "stand-alone, between decorators": ("@a\n#omp taskwait\n@b\ndef g(): pass", 3, 10, "taskwait", "decorate"),
    "not indented, between decorators": ("@a\n  #omp task\n@b\ndef g(): pass", 3, 12, "task", "indent"),
    "the first of two": ("#omp task dpend(x)\na()\n#omp tsk", 2, 15, "dpend", ""),
    "the first of two kinds": ("if a:\n    b()\n#omp task\nelse:\n    c()\n#omp tsk\nd()", 4, 10, "task", "indent"),
    "the second of two kinds": ("#omp tsk\nif a:\n    b()\n#omp task\nelse:\n    c()", 2, 10, "tsk", "task"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_comments(name):
    """A wrong comment is an error at its line, column and token, in the file's text."""
    body, line, column, token, word = WRONG[name]
    source = f"def f():\n{indent(body, '    ')}\n"
    for before, head in ((0, ""), (2, "x = 1\n\n")):
        error = error_of(head + source)
        assert (error.filename, error.lineno, error.end_lineno) == ("program.py", line + before, line + before)
        assert error.text == (head + source).split("\n")[line + before - 1]
        assert (error.offset, token_of(error)) == (column, token)
        assert word in error.msg
        assert error.__cause__ is error.__context__ is None
        assert len(traceback.extract_tb(error.__traceback__)) == 2


def test_several_errors():
    """A caller that gives a list receives all errors in it, in reading order."""
    faults = []
    source = written("#omp tsk\nif a:\n    b()\n#omp task\nelse:\n    #omp tsk\n    c()\n#omp end task")
    made = insert_comments(text_of(source), faults=faults)
    assert [(error.lineno, token_of(error)) for error in faults] == [(2, "tsk"), (5, "task"), (7, "tsk"), (9, "task")]
    assert ast.unparse(made) == ast.unparse(text_of(source).definition)


@pytest.mark.parametrize("string", ["threadprivate(x)", "end declare target", "scan inclusive(x)"])
def test_directives_that_are_not_supported(string):
    """A directive that is known, but not supported, is an `UnsupportedPragmaError`."""
    assert type(error_of(written(f"#omp {string}\na()"))) is UnsupportedPragmaError


def test_the_signature():
    """A comment in the signature of the function stands inside of a statement."""
    error = error_of("def f(\n    a,\n    #omp task\n    b,\n):\n    pass\n")
    assert (error.lineno, error.offset, token_of(error)) == (3, 10, "task")


def test_indentation_with_tabs_and_page_breaks():
    """Indentations are compared as Python counts them: a tab goes to a multiple of eight."""
    source = "def f():\n        if a:\n\t\t#omp task\n                b()\n\t#omp taskwait\n\f\t#omp barrier\n"
    assert inserted(source) == ast.unparse(
        ast.parse(written('if a:\n    with omp("task"):\n        b()\nomp("taskwait")\nomp("barrier")'))
    )
