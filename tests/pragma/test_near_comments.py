"""Comments that a blank after the ``#`` keeps from being directives, as formatters write them."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import offload
from tests.conftest import checked
from tests.pragma.programs import made_of

PROGRAM = """
    @directives
    def total(x):
        s = 0.0
        {comment} parallel for reduction(+: s)
        for i in range(x.size):
            s += x[i]
        return s
"""


def warnings_of(text):
    """Return the warnings at the decoration of a program, each with its line and its text."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made_of(text)
    assert all(issubclass(one.category, offload.DirectiveWarning) for one in caught)
    assert all(one.filename.startswith("<program") for one in caught)
    return [(one.lineno, str(one.message)) for one in caught]


@pytest.mark.parametrize("sentinel", ["pragma omp", "pragma acc", "$omp", "$acc", "$ omp", "$ acc"])
def test_a_blank_after_the_sign(sentinel):
    """A comment that would be a directive without its blank gives one warning, at its file and line."""
    [(line, message)] = warnings_of(PROGRAM.format(comment=f"# {sentinel}"))
    assert line == 4
    assert f"`# {sentinel}` is not a directive" in message
    assert f"write `#{sentinel}`" in message
    assert len(message) <= 200


@pytest.mark.parametrize(
    "comment",
    [
        "# omp",
        "# acc",
        "# the pragma omp",
        "#! pragma omp",
        "# pragma",
        "# pragma ompx",
        "# pragma: omp",
        "## $omp",
        "#",
    ],
)
def test_prose(comment):
    """Other comments are prose, and give no warning."""
    assert warnings_of(PROGRAM.format(comment=comment)) == []


def test_other_places():
    """A comment after code, in a string, in a nested function and below the function gives no warning."""
    text = '''
        @directives
        def f(x):
            """Do this.

            # pragma omp task
            """
            y = x  # pragma omp task

            def g():
                # pragma omp task
                return y

            return g
        # pragma omp task
    '''
    assert warnings_of(text) == []


def test_the_last_line():
    """A comment below the last statement of the function belongs to it."""
    [(line, _)] = warnings_of("@directives\ndef f(x):\n    x += 1\n    # pragma omp taskwait\n")
    assert line == 4


def test_next_to_directives():
    """A function with directives gives the warning too, and runs as it is written."""
    with pytest.warns(offload.DirectiveWarning, match="because of the blank") as caught:
        f = made_of("""
            @directives
            def f(x):
                with omp("taskgroup"):
                    # $omp task
                    x += 1
        """)
    assert len(caught) == 1
    x = np.zeros(2)
    with checked("none"):
        f(x)
    assert x.tolist() == [1, 1]


def test_as_an_error():
    """A program that makes errors of warnings gets the error at decoration."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(offload.DirectiveWarning, match="write `#pragma omp`"):
            made_of(PROGRAM.format(comment="# pragma omp"))
