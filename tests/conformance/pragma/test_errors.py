"""Errors of strings: class, token, file, line and column, in a `with`, in a comment, and given directly (§5)."""

from __future__ import annotations

import copy
import pickle
import traceback

import numpy as np
import pytest

import offload
from offload.errors import PragmaError, UnsupportedError
from tests.conformance.pragma.spelling import HEADER, LEFT, RIGHT, assert_at, error_of, marked, token_of

WRONG = {
    "target «dpend»(in: x)": "depend",
    "«tagret» nowait": "target",
    "task depend(«int»: x)": "in",
    "task depend(«x»)": "type",
    "target map(«tofrm»: x)": "tofrm",
    "target enter data map(«from»: x)": "alloc",
    "target exit data map(«alloc»: x)": "alloc",
    "target data map(«delete»: x)": "delete",
    "target map«(»to: x": "",
    "task depend(in: a[0:n«)»)": "",
    "target map(to: x,«,» y)": "item",
    "target map(to: «)»": "item",
    "target device(0) «device»(1)": "twice",
    "target nowait(1) «nogroup»": "target",
    "taskloop grainsize(2) «num_tasks»(3)": "grainsize",
    "taskloop nogroup «reduction»(+: x)": "nogroup",
    "task shared(x) private(«x»)": "shared",
    "«target update» nowait": "to",
    "«target enter data» nowait": "map",
    "taskwait «nowait»": "depend",
    "«(»x)": "directive",
    "task if(n > 10 &«&» m)": "`and`",
    "task if(n «?» 1 : 2)": "`a if i else b`",
    "task depend(in: p«->»x)": "`p.x`",
    "target map(«to a»)": "map(to: …)",
    "task «wait»": "taskwait",
    "taskgroup «reduction»(+: x)": "task_reduction",
    "task «final»": "",
    "barrier «nowait»": "",
}
"""Strings with their marks, and a word of the message."""

UNSUPPORTED = (
    "cancel «parallel»",
    "«scan» inclusive(x)",
    "«threadprivate»(x)",
    "«ordered»",
    "«requires» unified_address",
)
WRONG_ACC = ("exit data finalize«(»1)", "parallel «cpoy»(x)", "«paralel»", "parallel copy«(»x")


def places_of(text):
    """Return the text without marks, and begin and end of the token in it."""
    begin = text.index(LEFT)
    end = text.index(RIGHT) - 1
    return text.replace(LEFT, "").replace(RIGHT, ""), begin, end


@pytest.mark.parametrize("string", [*WRONG, *UNSUPPORTED])
def test_given_directly(string):
    """A string given to `omp` is the line, and its token stands where the offsets say."""
    from offload.pragma import omp

    plain, begin, end = places_of(string)
    with pytest.raises(PragmaError) as caught:
        omp(plain)
    error = caught.value
    assert (token_of(error), error.offset, error.end_offset) == (plain[begin:end], begin + 1, end + 1)
    assert (error.filename, error.lineno, error.text) == ("<directive>", 1, plain)
    assert isinstance(error, UnsupportedError) == (string in UNSUPPORTED)
    assert WRONG.get(string, "") in str(error)


@pytest.mark.parametrize("spelling", ["with", "statement", "comment"])
@pytest.mark.parametrize("string", [*WRONG, *UNSUPPORTED])
def test_under_directives(on_sim, string, spelling):
    """Under `@directives`, the error has the file's line and column, in a string and in a comment."""
    directive = {
        "with": f'    with omp("{string}"):\n        pass\n',
        "statement": f'    omp("{string}")\n',
        "comment": f"    #pragma omp {string}\n    pass\n",
    }[spelling]
    text = f"@directives\ndef program(x, y, a, n):\n    x = 1\n{directive}    return x\n"
    plain, place = marked(text)
    error = error_of(on_sim.folder, plain)
    assert_at(error, place, plain)
    assert isinstance(error, UnsupportedError) == (string in UNSUPPORTED)
    assert "^" in "".join(traceback.format_exception_only(error))


@pytest.mark.parametrize("sentinel", ["#pragma acc", "#acc", "#$acc", "#$ acc", '    with acc("'])
@pytest.mark.parametrize("string", WRONG_ACC)
def test_of_acc(on_sim, string, sentinel):
    """So it is for OpenACC's strings."""
    if "with" in sentinel:
        directive = f'    with acc("{string}"):\n        pass\n'
    else:
        directive = f"    {sentinel} {string}\n    pass\n"
    plain, place = marked(f"@directives\ndef program(x):\n{directive}")
    assert_at(error_of(on_sim.folder, plain), place, plain)


@pytest.mark.parametrize("string", ["", "  "])
def test_an_empty_string(on_sim, string):
    """An empty string is a PragmaError: a directive is missing."""
    from offload.pragma import acc, omp

    for front in (omp, acc):
        with pytest.raises(PragmaError, match="directive"):
            front(string)
    text = f"@directives\ndef program(x):\n    with omp('{string}'):\n        pass\n"
    assert error_of(on_sim.folder, text).lineno == HEADER.count("\n") + 3


def test_a_wrong_expression(on_sim):
    """In an expression, the token is where Python's parser stops, with Python's own message."""
    string = "task if(n >)"
    text = f'@directives\ndef program(n):\n    with omp("{string}"):\n        pass\n'
    error = error_of(on_sim.folder, text)
    with pytest.raises(SyntaxError) as caught:
        compile("(n >)", "", "eval")
    assert caught.value.msg.split(".")[0] in str(error)
    assert error.lineno == HEADER.count("\n") + 3
    assert token_of(error) == ")"
    assert error.offset - 1 == error.text.index(")")


@pytest.mark.parametrize("head", ["target teams distribute parallel for", "parallel for", "for"])
@pytest.mark.parametrize("inside", ["x = 1\n        y = 2", "while x:\n            pass", "pass"])
def test_no_loop(on_sim, head, inside):
    """A loop directive around anything but one `for` points at its words."""
    plain, place = marked(f'@directives\ndef program(x):\n    with omp("«{head}»"):\n        {inside}\n')
    error = error_of(on_sim.folder, plain)
    assert_at(error, place, plain)
    assert "for" in str(error)


@pytest.mark.parametrize("head", ["target teams distribute parallel for", "parallel for", "taskloop"])
def test_no_loop_after_a_comment(on_sim, head):
    """A comment with a loop directive above another statement points at its words, too."""
    plain, place = marked(f"@directives\ndef program(x):\n    #pragma omp «{head}»\n    while x:\n        pass\n")
    assert_at(error_of(on_sim.folder, plain), place, plain)


def test_unsupported_of_taskloop(on_sim):
    """`collapse` of `taskloop`, and `cancel` of anything but a taskgroup, are unsupported at their place."""
    loops = "for i in x:\n            for j in x:\n                pass\n"
    text = f'@directives\ndef program(x):\n    with omp("taskloop «collapse»(2)"):\n        {loops}'
    plain, place = marked(text)
    error = error_of(on_sim.folder, plain)
    assert_at(error, place, plain)
    assert isinstance(error, UnsupportedError)


def test_unsupported_of_acc(on_sim):
    """acc `routine` is unsupported, and the message names the decorator."""
    plain, place = marked('@directives\ndef program(x):\n    acc("«routine» seq")\n')
    error = error_of(on_sim.folder, plain)
    assert isinstance(error, UnsupportedError)
    assert_at(error, place, plain)
    assert "acc.routine" in str(error)


@pytest.mark.parametrize("string", ["task depend(«source»)", "task depend(«sink»: x)"])
def test_unsupported_dependences(string):
    """`source` and `sink` are unsupported."""
    from offload.pragma import omp

    plain, begin, end = places_of(string)
    with pytest.raises(UnsupportedError) as caught:
        omp(plain)
    assert token_of(caught.value) == plain[begin:end]


def test_several_literals(on_sim):
    """For adjacent literals, and for escapes, the place is that in the string."""
    for written in (
        '"target "\n             "dpend(in: x)"',
        '"target \\x64pend(in: x)"',
        '"""target\n             dpend(in: x)"""',
    ):
        text = f"@directives\ndef program(x):\n    with omp({written}):\n        pass\n"
        error = error_of(on_sim.folder, text)
        assert token_of(error) == "dpend"


def test_a_string_of_many_lines(on_sim):
    """In a string of many lines, the line is the token's own."""
    string = '"""target\n              map(to: x)\n              «mpa»(from: y)"""'
    text = f"@directives\ndef program(x, y):\n    with omp({string}):\n        pass\n"
    plain, place = marked(text)
    error = error_of(on_sim.folder, plain)
    assert token_of(error) == "mpa"
    assert error.lineno in (place.line, 3)


def test_columns_are_characters(on_sim):
    """Columns count characters, also after letters that are no ASCII and after tabs."""
    plain, place = marked(
        '@directives\ndef program(ä, x):\n    with omp("task depend(in: ä) «dpend»(in: x)"):\n        pass\n'
    )
    assert_at(error_of(on_sim.folder, plain), place, plain)
    plain, place = marked("@directives\ndef program(x):\n\tif x:\n\t\t#pragma omp task «dpend»(in: x)\n\t\tpass\n")
    assert_at(error_of(on_sim.folder, plain), place, plain)
    plain, place = marked('@directives\ndef program(x):\n    ä = "ö"; omp("taskwait «dpend»(in: x)")\n')
    assert_at(error_of(on_sim.folder, plain), place, plain)


def test_the_first_error_is_raised(on_sim):
    """One error is raised, the first in reading order, and no name of the module has been bound."""
    plain, place = marked(
        '@directives\ndef program(x):\n    omp("taskwait «first»(1)")\n    #pragma omp second\n    omp("third")\n'
    )
    assert_at(error_of(on_sim.folder, plain), place, plain)


def test_decorator_strings(on_sim):
    """A wrong string over a function is an error of the same token, at decoration."""
    text = '@omp("target dpend(in: x)")\ndef program(x):\n    pass\n'
    error = error_of(on_sim.folder, text)
    assert token_of(error) == "dpend"


def test_directives_that_decorate_nothing(on_sim):
    """A directive that is no decorator over a function is an error."""
    for string in ("taskwait", "target data map(to: x)", "parallel", "target update to(x)", "taskgroup"):
        text = f'@omp("{string}")\ndef program(x):\n    pass\n'
        with pytest.raises((offload.UsageError, PragmaError)):
            on_sim.string(text)


@pytest.mark.parametrize("string", ["target dpend(in: x)", "cancel parallel"])
def test_errors_can_be_pickled(string):
    """Errors can be pickled and copied, with all of their fields."""
    from offload.pragma import omp

    with pytest.raises(PragmaError) as caught:
        omp(string)
    error = caught.value
    fields = ("filename", "lineno", "offset", "end_lineno", "end_offset", "text", "msg")
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(other) is type(error)
        assert [getattr(other, name) for name in fields] == [getattr(error, name) for name in fields]
        assert str(other) == str(error)
    assert isinstance(error, (SyntaxError, offload.ClauseError))


def test_caught_errors_are_fresh():
    """The same wrong string raises an error of its own each time."""
    from offload.pragma import omp

    errors = []
    for _ in range(2):
        with pytest.raises(PragmaError) as caught:
            omp("tsak")
        errors.append(caught.value)
    assert errors[0] is not errors[1]


# -- errors that need values ---------------------------------------------------------------------------
AT_THE_CALL = {
    "a negative priority": ('"task priority(-1)"', offload.ClauseError),
    "a device out of range": ('"target device(99)"', offload.DirectiveError),
    "absent data": ('"target map(present, to: x)"', offload.NotPresentError),
    "a wrong item": ('"task depend(in: [1])"', offload.ClauseError),
    "a grainsize of 0": ('"taskloop grainsize(0)"', offload.ClauseError),
}


@pytest.mark.parametrize("name", AT_THE_CALL)
def test_errors_of_values(on_sim, name):
    """Errors that need values are those of the call, raised at the line of the `with`."""
    string, kind = AT_THE_CALL[name]
    inside = "for i in x:\n            pass" if "taskloop" in string else "x[0]"
    text = f"@directives\ndef program(x):\n    y = 1\n    with omp({string}):\n        {inside}\n    return y\n"
    program = on_sim.string(text)
    with pytest.raises(kind) as caught:
        program(np.zeros(3))
    frames = [frame for frame in traceback.extract_tb(caught.value.__traceback__) if frame.name == "program"]
    assert frames[-1].lineno == HEADER.count("\n") + 4
    assert offload.current_task() is None


def test_an_error_in_an_item(on_sim):
    """An exception of an expression in the string is raised at the line of the `with`, and nothing is generated."""
    program = on_sim.string(
        "@directives\ndef program(x, log):\n    with omp('task depend(in: x[7], x[k])'):\n        log.append(1)\n"
    )
    log = []
    with pytest.raises(NameError) as caught:
        program(np.zeros(9), log)
    frames = [frame for frame in traceback.extract_tb(caught.value.__traceback__) if frame.name == "program"]
    assert frames[-1].lineno == HEADER.count("\n") + 3
    offload.taskwait()
    assert log == []
