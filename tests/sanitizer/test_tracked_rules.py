"""Generated programs give the same with tracked arrays and with plain ones: values, types, text and errors."""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import math
import operator
import pickle
import random
import re
import sys
import warnings

import numpy as np
import pytest

from offload.sanitizer import numpy as face
from offload.sanitizer.tracked import is_tracked, set_sink, tracked
from tests.profiles import few
from tests.sanitizer.statements import STATEMENTS

SHAPES = ((3,), (2, 3), (4, 1), (2, 2), (6,), ())
DTYPES = ("'f8'", "'i8'", "'f4'", "'c16'", "bool")


class Counter:
    """A sink that checks that it gets plain arrays with elements."""

    def __init__(self):
        self.n = 0

    def note(self, reads, writes, device):
        assert not any(is_tracked(array) or not array.size for array in (*reads, *writes))
        self.n += 1

    def ignores(self, array):
        return False

    def given_away(self, storage, device):
        assert not is_tracked(storage)

    def lent(self, storage):
        assert not is_tracked(storage)
        return lambda: None


def saved(numpy, array):
    """Return the bytes of the file of an array."""
    file = io.BytesIO()
    numpy.save(file, array, allow_pickle=True)
    return file.getvalue()


def described(value):
    """Return the class, properties, text and bytes of a value."""
    if isinstance(value, np.ma.MaskedArray):
        return "masked", repr(value)
    if isinstance(value, np.ndarray):
        contents = repr(value) if value.dtype.hasobject else (repr(value), value.tobytes())
        name = "ndarray" if is_tracked(value) else type(value).__name__
        strides = [stride for stride, n in zip(value.strides, value.shape, strict=True) if n > 1]
        return name, value.__class__, value.dtype, value.shape, strides, value.flags.writeable, contents
    if isinstance(value, list | tuple):
        return type(value).__name__, [described(part) for part in value]
    text = re.sub("0x[0-9a-fA-F]+", "", repr(value))
    return (type(value).__name__ if isinstance(value, np.generic) else ""), text


def outcomes(numpy, statements):
    """Run a program statement by statement; return what each one leaves, prints and raises."""
    modules = (copy, functools, io, math, operator, pickle, sys)
    names = {module.__name__: module for module in modules} | {"np": numpy, "save": saved, "__name__": "program"}
    exec("a = np.arange(6.0)\nb = np.ones(6)", names)
    found = []
    for statement in statements:
        names["v"], failure = None, ""
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                exec(statement, names)
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
        value = names["v"]
        found.append((failure, described(value), printed.getvalue(), described(names["a"])))
        is_array = isinstance(value, np.ndarray) and value.__class__ is np.ndarray
        if is_array and value.size < 200 and not value.dtype.hasobject:  # NumPy crashes after some errors of objects
            # An array that was unpickled is not tracked.
            names["b"], names["a"] = names["a"], value if numpy is np else tracked(value)
    return found


def program(seed):
    """Return the statements of a random program."""
    rng = random.Random(seed)
    return [
        rng.choice(STATEMENTS).format(s=rng.choice(SHAPES), n=rng.randint(2, 6), d=rng.choice(DTYPES))
        for _ in range(25)
    ]


@pytest.mark.parametrize("seed", few(15, range(80)))
def test_programs_do_the_same_with_tracked_arrays(seed):
    """Each statement leaves the same value, with the same class, prints the same text and raises the same error."""
    statements = program(seed)
    state = np.random.get_state()  # noqa: NPY002  # of the functions that share one
    sink = Counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy warns of both
        expected = outcomes(np, statements)
        np.random.set_state(state)  # noqa: NPY002  # the same
        before = set_sink(sink)
        try:
            found = outcomes(face, statements)
        finally:
            set_sink(before)
    for statement, one, other in zip(statements, expected, found, strict=True):
        assert one == other, statement
    assert sink.n
