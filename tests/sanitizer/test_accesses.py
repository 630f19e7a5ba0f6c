"""The table of NumPy's reads and writes, against experiments and against NumPy's names."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from offload.errors import UnsupportedError
from offload.sanitizer import accesses
from offload.sanitizer.accesses import accesses_of, accesses_of_method, is_known
from tests.sanitizer.calls import READ_EXACTLY, READ_MORE, WRITE
from tests.sanitizer.perturbed import experiment

MODULES = [np, np.linalg, np.fft, np.strings, np.char, np.emath, np.lib.stride_tricks, np.lib.array_utils]

OF_OTHER_VERSIONS = {"cumulative_prod", "cumulative_sum", "in1d", "row_stack", "trapz", "unstack"}
"""Functions of the tables that some of the versions of NumPy which are allowed do not have."""

METHODS_OF_OTHER_VERSIONS = {
    *("itemset", "newbyteorder", "ptp", "tostring"),
    *("__buffer__", "__release_buffer__", "_set_dtype", "_set_shape"),
}
"""Methods of the table that some versions of NumPy or Python do not have."""

KEPT = {
    "a.sort()",
    "np.random.default_rng(1).shuffle(b)",
    "np.random.default_rng(1).permuted(b, out=b)",
    "np.random.shuffle(b)",
}
"""Statements that write elements which may keep their value."""


def without(one, other):
    """Return how many elements of each array are in one set and not in the other."""
    return {name: int((one[name] & ~other[name]).sum()) for name in one if (one[name] & ~other[name]).any()}


@pytest.mark.parametrize("statement", READ_EXACTLY)
def test_reads_are_exact(statement):
    """Each element that the result depends on is noted as read, and no other; nothing is written."""
    reads, writes, needed, changed = experiment(statement)
    assert without(needed, reads) == {}
    assert {name: n for name, n in without(reads, needed).items() if name not in "mi"} == {}
    assert without(writes, changed) == without(changed, writes) == {}
    assert not any(part.any() for part in writes.values())


@pytest.mark.parametrize("statement", READ_MORE)
def test_reads_are_not_missed(statement):
    """Each element that the result depends on is noted as read; nothing is written."""
    reads, writes, needed, _ = experiment(statement)
    assert without(needed, reads) == {}
    assert not any(part.any() for part in writes.values())


@pytest.mark.parametrize("statement", WRITE)
def test_writes_are_exact(statement):
    """Each element that gets another value is noted as written, and no other."""
    reads, writes, needed, changed = experiment(statement)
    assert without(needed, reads) == {}
    assert without(changed, writes) == {}
    if statement not in KEPT:
        assert without(writes, changed) == {}


@pytest.mark.parametrize("name", sorted(set(dir(np.ndarray))))
def test_every_attribute_of_an_array_has_a_rule(name):
    """``dir(numpy.ndarray)`` has no name that the table does not know."""
    assert name in accesses._METHOD_RULES


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_public_function_has_a_rule(module):
    """A public function of NumPy is in the tables, and so is each class that looks at arrays."""
    functions = {name: one for name, one in vars(module).items() if not name.startswith("_")}
    assert [name for name, one in functions.items() if callable(one) and not is_known(one)] == []


def test_every_class_of_numpy_that_takes_arrays_has_a_rule():
    """A class of NumPy is a type of scalars or errors, describes something, or is in the table of classes."""
    of_values = (np.generic, BaseException, np.dtype)
    describing = {"errstate", "finfo", "flatiter", "iinfo", "ufunc"}
    classes = {name: one for name, one in vars(np).items() if isinstance(one, type) and not name.startswith("_")}
    left = {name for name, one in classes.items() if not issubclass(one, of_values) and one not in accesses._CLASSES}
    assert left <= describing


def test_the_tables_name_functions_of_numpy():
    """Each name of the tables is a function of NumPy, of this version or of another one."""
    tables = (accesses._READS, accesses._NOTHING, accesses._VIEWS, *accesses._OWN)
    names = {word.partition(":")[0] for table in tables for word in table.split()}
    assert {name for name in names if name not in vars(np)} <= OF_OTHER_VERSIONS
    for module, table in ((np.linalg, accesses._LINALG), (np.fft, accesses._FFT)):
        assert all(hasattr(module, word.partition(":")[0]) for word in table.split())
    assert {name for name in accesses._METHOD_RULES if name not in dir(np.ndarray)} <= METHODS_OF_OTHER_VERSIONS


def signature(function):
    """Return the parameters of a function; none if this version of NumPy does not say them."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []


@pytest.mark.parametrize(
    ("owner", "table"),
    [
        (np, accesses._READS),
        (np.linalg, accesses._LINALG),
        (np.fft, accesses._FFT),
        (np.ndarray, accesses._METHODS),
    ],
    ids=["numpy", "linalg", "fft", "methods"],
)
def test_the_positions_of_out_are_those_of_the_signatures(owner, table):
    """A function that takes ``out`` by position has that position in the table, and no other function has one."""
    for word in table.split():
        name, _, position = word.partition(":")
        parameters = signature(getattr(owner, name, None))
        places = [at for at, one in enumerate(parameters) if one.name == "out" and one.kind is not one.KEYWORD_ONLY]
        if parameters:
            assert places == [int(at) for at in [position] if at], name


def test_an_unknown_function_is_refused_by_name():
    """A function that is in no table raises an error that names it."""
    with pytest.raises(UnsupportedError, match=r"test_accesses.*signature"):
        accesses_of(signature, [np.zeros(3)], {})


def test_an_unknown_method_is_refused_by_name():
    """A method of a later NumPy raises an error that names it."""
    with pytest.raises(UnsupportedError, match="frobnicate"):
        accesses_of_method("frobnicate", np.zeros(3), [], {})


@pytest.mark.parametrize(
    ("function", "args"),
    [(np.ndarray.sum, [np.zeros(3)]), (np.zeros(3).sum, []), (np.add.reduce, [np.zeros(3)]), (np.sum, [np.zeros(3)])],
    ids=["unbound", "bound", "ufunc", "function"],
)
def test_a_function_is_known_in_each_form(function, args):
    """Methods, bound and unbound, methods of ufuncs and functions read the array."""
    reads, writes = accesses_of(function, args, {})
    assert [array.shape for array in reads] == [(3,)]
    assert writes == []


def test_a_view_is_no_access_if_the_result_says_so():
    """`reshape` accesses nothing if its result lies in the array's memory, and reads the array if it does not."""
    array = np.zeros((3, 4))
    assert accesses_of(np.reshape, [array, -1], {}, array.reshape(-1)) == ([], [])
    (read,), writes = accesses_of(np.reshape, [array.T, -1], {}, array.T.reshape(-1))
    assert read.shape == (4, 3)
    assert writes == []


def test_a_list_that_holds_itself_has_the_arrays_in_it():
    """A container that leads back to itself is looked into once."""
    array, container = np.zeros(2), []
    container += [array, container, {"x": container}]
    reads, _ = accesses_of(np.array_equal, [container, 1], {})
    assert [read is array for read in reads] == [True]
