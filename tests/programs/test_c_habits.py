"""Mistakes that C programmers make in their first programs: each message says what to write instead."""

import re

import numpy as np
import pytest

import offload
import offload.acc as openacc
from offload import in_, section, to, tofrom
from offload.pragma import acc, directives, omp
from tests.conftest import checked


@pytest.fixture(autouse=True)
def runtime():
    with checked("sim:1"):
        yield


@directives
def half_in_data(u, n):
    with omp("target data map(tofrom: u[0:n/2])"):
        pass


@directives
def half_in_block(u, n):
    with omp("target map(tofrom: u[n / 2:2])"):
        u[n // 2] += 1


@directives
def half_of_a_part(u, n):
    with omp("task depend(out: u[1:max(n, 1) * 0.5])"):
        pass


@directives
def flat(u, n):
    with omp("target data map(tofrom: u[0:n*n])"):
        pass


@offload.target(map=[tofrom("u[n/2:2]")])
def half_in_decorator(u, n):
    u += 1


@offload.target(map=[tofrom("u[n/2]")])
def half_index(u, n):
    u += 1


@offload.target(map=[to("v[0:n]")])
def far_name(v):
    pass


SECTIONS = {
    "length": (half_in_data, "'u[0:n/2]': the length `n / 2` is float 4.0; write `n // 2`"),
    "lower": (half_in_block, "'u[n / 2:2]': the lower bound `n / 2` is float 4.0; write `n // 2`"),
    "no division": (half_of_a_part, "the length `max(n, 1) * 0.5` is float 4.0; write `int(max(n, 1) * 0.5)`"),
    "decorator": (half_in_decorator, "'u[n/2:2]': the lower bound `n / 2` is float 4.0; write `n // 2`"),
    "index": (half_index, "'u[n/2]': the index of dimension 0 is float 4.0; use an int, for example i // 2"),
    "call": (lambda u, n: section(u, (n / 2, 2)), "section: the lower bound of dimension 0 is float 4.0; use an int"),
}


@pytest.mark.parametrize(("function", "message"), SECTIONS.values(), ids=SECTIONS)
def test_a_section_with_a_float(function, message):
    """C's `n/2` is a float in Python: the error shows the number's text, its value and the integer to write."""
    with pytest.raises(offload.ClauseError, match=re.escape(message)):
        function(np.ones(8), 8)


def test_a_flat_section_of_a_matrix():
    """A section of all elements of a matrix in one dimension: the error shows the shape."""
    with pytest.raises(
        offload.ClauseError, match=r"outside dimension 0 of shape \(8, 8\); give each dimension its own"
    ):
        flat(np.ones((8, 8)), 8)


def test_a_name_that_is_far_away():
    """A single letter is no reason to guess another name."""
    with pytest.raises(offload.ClauseError, match="no parameter or visible name 'n'; a string can name parameters"):
        far_name(np.ones(8))


@directives
def half_a_loop(u, n):
    with omp("target teams distribute parallel for"):
        for i in range(n / 2):
            u[i] += 1


def test_a_loop_to_a_float():
    """A bound that is a division is a float: the error says the integer division."""
    with pytest.raises(offload.LoopError, match=r"the bound n / 2 is a float; write n // 2\n"):
        half_a_loop(np.ones(8), 8)


@offload.target_loop(reduction={"+": ["s"]})
def into_parameter(u, s):
    for i in range(u.size):
        s += u[i]


def test_a_reduction_into_a_number():
    """A reduction into a parameter that is a number would lose its result: the error says where the sum begins."""
    with pytest.raises(
        offload.LoopError, match=r"s is a parameter, .* begin with `s = 0\.0` in the function and return s"
    ):
        into_parameter(np.ones(8), 0.0)


def test_the_api_of_the_other_omp():
    """The `omp` of strings is not the module: an attribute of the API names the module, another one does not."""
    with pytest.raises(AttributeError, match=r"`omp` .* no attribute 'taskwait'; write offload\.taskwait, after"):
        omp.taskwait
    with pytest.raises(AttributeError, match=r"`acc` .* no attribute 'wait'; write offload\.acc\.wait, after"):
        acc.wait
    with pytest.raises(AttributeError, match=r"no attribute 'tskwait'; write omp\(\"…\"\), or take"):
        omp.tskwait
    assert not hasattr(omp, "__wrapped__")


@directives
def absent(u, v, n):
    with omp("target teams distribute parallel for map(present, to: v[0:n])"):
        for i in range(n):
            u[i] += v[i]


@directives
def extending(u, n):
    with omp("target data map(tofrom: u[0:n])"):  # noqa: SIM117  # a directive needs a `with` of its own
        with omp("target teams distribute parallel for"):
            for i in range(n):
                u[i] += 1


def test_messages_have_the_text_of_the_item():
    """A message about an item of a directive string says the item's text, and not its type alone."""
    with pytest.raises(offload.NotPresentError, match=re.escape("map(to: v[0:n]: float64[8]) is not present")):
        absent(np.ones(8), np.ones(8), 8)
    message = r"extends u\[0:n\]: float64\[4\], .*; name the section that is present in a map clause of this directive"
    with pytest.raises(offload.ExtensionError, match=message):
        extending(np.ones(8), 4)


def acc_data(u):
    openacc.enter_data(copyin=["u[2:3]"])


CALLS = {
    "map": lambda u: offload.target_data(map=[tofrom("u[2:3]")]).__enter__(),
    "update": lambda u: offload.target_update(to=["u[2:3]"]),
    "depend": lambda u: offload.taskwait(depend=[in_("u[2:3]")]),
    "OpenACC": acc_data,
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_string_in_a_call(call):
    """A call that gets a list item as a string says the section to write."""
    with pytest.raises(offload.ClauseError, match=r"'u\[2:3\]' is a string, .* write section\(u, \(2, 3\)\)"):
        call(np.ones(10))


def test_an_unknown_clause_has_a_public_class():
    """The error of a keyword that a construct does not have is `omp.UnknownClauseError`, which is a TypeError too."""
    with pytest.raises(TypeError) as caught:
        offload.taskwait(dependence=[])
    assert type(caught.value) is offload.UnknownClauseError
    assert type(caught.value).__module__ == "offload.errors"
