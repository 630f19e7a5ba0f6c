"""`target data`, `target enter data`, `target exit data` and `target update` against the calls."""

from __future__ import annotations

import numpy as np
import pytest

from tests.conformance.pragma.spelling import dedent


def arrays():
    return np.arange(8.0), np.zeros(8), 3


BODY = """
    @offload.target
    def region(x, y, n):
        y[...] = x * n

    {marker}
    def program(x, y, n):
{lines}
"""


def program_of(marker, lines):
    """Return a program whose region is in both spellings the same; the lines are what is compared."""
    body = "\n".join("        " + line for line in lines)
    return dedent(BODY.format(marker=marker, lines=body))


def same(twins, strings, calls, make=arrays):
    return twins.same(program_of("@directives", strings), program_of("# calls", calls), make)


DATA = {
    "map": ("map(to: x) map(from: y)", "map=[to(x), from_(y)]"),
    "no map type": ("map(x, y)", "map=[x, y]"),
    "alloc": ("map(x) map(alloc: y)", "map=[x, alloc(y)]"),
    "always": ("map(always, tofrom: x) map(y)", "map=[tofrom(x, always=True), y]"),
    "sections": ("map(to: x[0:8]) map(from: y[0:8])", "map=[to(x), from_(y)]"),
    "device": ("map(x, y) device(0)", "map=[x, y], device=0"),
    "if": ("map(x, y) if(n > 5)", "map=[x, y], if_=False"),
    "if with the directive": ("map(x, y) if(target data: n > 1)", "map=[x, y]"),
    "nowait": ("map(x, y) nowait depend(inout: y)", "map=[x, y], nowait=True, depend=[inout(y)]"),
    "nogroup": ("map(x, y) nogroup", "map=[x, y], nogroup=True"),
}


@pytest.mark.parametrize("name", DATA)
def test_target_data(twins, name):
    """Each clause of `target data` means in a string what the keyword means."""
    string, keywords = DATA[name]
    strings = [
        f'with omp("target data {string}"):',
        "    region(x, y, n)",
        "    region(x, y, n + 1)",
        'omp("taskwait")',
    ]
    calls = [f"with offload.target_data({keywords}):", *strings[1:3], "offload.taskwait()"]
    same(twins, strings, calls)


@pytest.mark.parametrize("word", ["use_device_ptr", "use_device_addr"])
def test_use_device(twins, word):
    """In the block, the names of `use_device_*` are the device arrays; afterwards they are the host arrays."""
    strings = [
        f'with omp("target data map(tofrom: x) map(from: y) {word}(x, y)"):',
        "    kinds = [isinstance(x, np.ndarray), isinstance(y, np.ndarray)]",
        "    region(x, y, n)",
        "return kinds, isinstance(x, np.ndarray)",
    ]
    calls = [
        f"with offload.target_data(map=[tofrom(x), from_(y)], {word}=(x, y)) as (dx, dy):",
        "    kinds = [isinstance(dx, np.ndarray), isinstance(dy, np.ndarray)]",
        "    region(dx, dy, n)",
        "return kinds, isinstance(x, np.ndarray)",
    ]
    outcome = same(twins, strings, calls)
    assert outcome.value == ([False, False], True)
    assert (outcome.arguments[1] == 3 * np.arange(8.0)).all()


def test_use_device_if_false(twins):
    """Under a false `if`, the names of `use_device_ptr` are the original arrays."""
    strings = [
        'with omp("target data map(x) use_device_ptr(x) if(n < 0)"):',
        "    found = isinstance(x, np.ndarray)",
        "return found",
    ]
    calls = [
        "with offload.target_data(map=[x], use_device_ptr=(x,), if_=False) as (d,):",
        "    found = d is x",
        "return found",
    ]
    assert same(twins, strings, calls).value is True


def test_a_block_that_stays_can_be_left(twins):
    """`return`, `break` and `continue` leave a `target data` block, which ends as any `with`."""
    strings = [
        "for i in range(4):",
        '    with omp("target data map(tofrom: x)"):',
        "        if i == 0:",
        "            continue",
        "        region(x, x, n)",
        "        if i == 1:",
        "            break",
        'with omp("target data map(x)"):',
        "    return offload.target_is_present(x)",
    ]
    calls = [
        line.replace('omp("target data map(tofrom: x)")', "offload.target_data(map=[tofrom(x)])") for line in strings
    ]
    calls[7] = "with offload.target_data(map=[x]):"
    outcome = same(twins, strings, calls)
    assert outcome.value is True
    assert (outcome.arguments[0] == 3 * np.arange(8.0)).all()


ENTER = {
    "to": ("map(to: x) map(alloc: y)", "map=[to(x), alloc(y)]"),
    "no map type": ("map(x, y)", "map=[x, y]"),
    "tofrom": ("map(tofrom: x) map(storage: y)", "map=[tofrom(x), alloc(y)]"),
    "always": ("map(always, to: x) map(y)", "map=[to(x, always=True), y]"),
    "device": ("map(x, y) device(n - 3)", "map=[x, y], device=0"),
    "if": ("map(x, y) if(n)", "map=[x, y]"),
    "if with the directive": ("map(x, y) if(target enter data: n)", "map=[x, y]"),
    "depend": ("map(x, y) depend(out: x, y)", "map=[x, y], depend=[out(x, y)]"),
    "nowait": ("map(x, y) nowait depend(out: x)", "map=[x, y], nowait=True, depend=[out(x)]"),
}


@pytest.mark.parametrize("name", ENTER)
def test_target_enter_data(twins, name):
    """Each clause of `target enter data` means in a string what the keyword means."""
    string, keywords = ENTER[name]
    rest = [
        "offload.taskwait()",
        "found = offload.target_is_present(x)",
        "region(x, y, n)",
        "offload.target_exit_data(map=[delete(x), from_(y)])",
        "return found",
    ]
    outcome = same(
        twins, [f'omp("target enter data {string}")', *rest], [f"offload.target_enter_data({keywords})", *rest]
    )
    assert outcome.value is True


EXIT = {
    "from": ("map(delete: x) map(from: y)", "map=[delete(x), from_(y)]"),
    "no map type": ("map(x, y)", "map=[x, y]"),
    "release": ("map(release: x) map(tofrom: y)", "map=[release(x), tofrom(y)]"),
    "always": ("map(release: x) map(always, from: y)", "map=[release(x), from_(y, always=True)]"),
    "device": ("map(x, y) device(0)", "map=[x, y], device=0"),
    "if": ("map(x, y) if(target exit data: n > 0)", "map=[x, y]"),
    "depend": ("map(x, y) depend(inout: y)", "map=[x, y], depend=[inout(y)]"),
    "nowait": ("map(x, y) depend(inout: y) nowait", "map=[x, y], depend=[inout(y)], nowait=True"),
}


@pytest.mark.parametrize("name", EXIT)
def test_target_exit_data(twins, name):
    """Each clause of `target exit data` means in a string what the keyword means."""
    string, keywords = EXIT[name]
    first = ["offload.target_enter_data(map=[to(x, y)])", "region.options(nowait=True, depend=[inout(y)])(x, y, n)"]
    if "depend" not in name and name != "nowait":
        first.append("offload.taskwait()")
    last = ["offload.taskwait()", "return offload.target_is_present(y)"]
    outcome = same(
        twins,
        [*first, f'omp("target exit data {string}")', *last],
        [*first, f"offload.target_exit_data({keywords})", *last],
    )
    assert outcome.value is False
    assert (outcome.arguments[1] == 3 * np.arange(8.0)).all()


UPDATE = {
    "to": ("to(x)", "to=[x]"),
    "from": ("from(y)", "from_=[y]"),
    "both": ("to(x) from(y)", "to=[x], from_=[y]"),
    "sections": ("to(x[1:2]) from(y[0:4:2])", "to=[x[1:3]], from_=[y[0:8:2]]"),
    "iterator": ("to(iterator(i=0:n): x[i:1])", "to=[x[0:1], x[1:2], x[2:3]]"),
    "present": ("from(present: y)", "from_=[y], present=True"),
    "device": ("from(y) device(0)", "from_=[y], device=0"),
    "if": ("from(y) if(n > 4)", "from_=[y], if_=False"),
    "if with the directive": ("from(y) if(target update: n < 4)", "from_=[y]"),
    "depend": ("from(y) depend(inout: y)", "from_=[y], depend=[inout(y)]"),
    "nowait": ("from(y) depend(inout: y) nowait", "from_=[y], depend=[inout(y)], nowait=True"),
}


@pytest.mark.parametrize("name", UPDATE)
def test_target_update(twins, name):
    """Each clause of `target update` means in a string what the keyword means."""
    string, keywords = UPDATE[name]
    first = ["offload.target_enter_data(map=[to(x, y)])", "region(x, y, n)", "x[...] = 50", "y[...] = 60"]
    last = [
        "offload.taskwait()",
        "before = y.copy()",
        "offload.target_exit_data(map=[from_(x, y)])",
        "return before",
    ]
    same(
        twins, [*first, f'omp("target update {string}")', *last], [*first, f"offload.target_update({keywords})", *last]
    )


def test_underscores(twins):
    """The words of a directive may be joined by underscores, and line breaks are blanks."""
    strings = [
        'omp("target_enter_data map(to: x)")',
        'with omp("target_data"',
        '         "  map(from:"',
        '         " y)"):',
        "    region(x, y, n)",
        'omp("""target_update',
        '       from(x)""")',
        'omp("target exit_data map(delete: x)")',
    ]
    calls = [
        "offload.target_enter_data(map=[to(x)])",
        "with offload.target_data(map=[from_(y)]):",
        "    region(x, y, n)",
        "offload.target_update(from_=[x])",
        "offload.target_exit_data(map=[delete(x)])",
    ]
    same(twins, strings, calls)


def test_alone_as_with(twins):
    """A stand-alone directive may be the head of a `with`: its block runs after it, in place."""
    strings = [
        'with omp("target enter data map(to: x)"):',
        "    found = offload.target_is_present(x)",
        'with omp("target exit data map(delete: x)"):',
        "    pass",
        "return found, offload.target_is_present(x)",
    ]
    calls = [
        "offload.target_enter_data(map=[to(x)])",
        "found = offload.target_is_present(x)",
        "offload.target_exit_data(map=[delete(x)])",
        "return found, offload.target_is_present(x)",
    ]
    assert same(twins, strings, calls).value == (True, False)
