"""Tracked arrays: they look like plain ones, and the accesses of the program are noted, but not the library's."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import offload as omp
from offload.errors import UnsupportedError
from offload.sanitizer import TrackedArray
from offload.sanitizer import numpy as face
from offload.sanitizer import tracked as make_tracked
from offload.sanitizer.tracked import is_tracked

# -- what a program can tell -----------------------------------------------------------------------


def test_a_tracked_array_lies_in_the_same_memory():
    """`tracked` makes a view of an array, and returns a tracked array itself."""
    plain = np.zeros(3)
    array = make_tracked(plain)
    array[0] = 1
    assert plain[0] == 1
    assert make_tracked(array) is array
    assert is_tracked(array)
    assert not is_tracked(plain)


@pytest.mark.parametrize("value", [[1, 2], 3, "abc", None])
def test_only_arrays_can_be_tracked(value):
    """`tracked` of anything else is an error that names its type."""
    with pytest.raises(TypeError, match=type(value).__name__):
        make_tracked(value)


def test_a_program_sees_the_class_ndarray(x):
    """Name, class and instances are those of ndarray; a plain array is an instance, too."""
    assert isinstance(x, np.ndarray)
    assert x.__class__ is np.ndarray
    assert type(x) is face.ndarray
    assert repr(type(x)) == repr(np.ndarray)
    assert x.__class__ == face.ndarray == np.ndarray
    assert {face.ndarray: 1}[type(np.zeros(2))] == {np.ndarray: 1}[type(x)] == 1
    assert type(x).__name__ == "ndarray"
    assert isinstance(np.zeros(2), face.ndarray)
    assert issubclass(np.matrix, face.ndarray)


def test_a_subclass_of_the_program_is_numpys(x):
    """A class that derives from the tracked NumPy's ndarray derives from ndarray, and its arrays are not tracked."""

    class Field(face.ndarray):
        pass

    assert Field.__mro__ == (Field, np.ndarray, object)
    assert type(x.view(Field) + 1) is Field
    assert type(face.ndarray.sum(x.view(Field), keepdims=True)) is Field


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: x[1:],
        lambda x: x[x > 1],
        lambda x: x + 1,
        lambda x: -x,
        lambda x: x.T,
        lambda x: x.reshape(2, 3),
        lambda x: x.copy(),
        lambda x: x.astype(int),
        lambda x: np.add(x, x),
        lambda x: np.concatenate([x, x]),
        lambda x: np.linalg.inv(np.eye(2) * x[1]) @ x[:2],
        lambda x: np.split(x, 2)[1],
        lambda x: np.linalg.svd(x.reshape(2, 3)).S,
        lambda x: x.view(face.ndarray),
        lambda x: x.flat[1:3],
        copy.deepcopy,
        lambda x: np.broadcast_to(x, (2, 6)),
    ],
)
def test_views_and_results_are_tracked(x, operation):
    """Views, copies and results of operations on a tracked array are tracked."""
    assert is_tracked(operation(x))


@pytest.mark.parametrize("operation", [lambda x: x.sum(), lambda x: x[0], np.mean, lambda x: x @ x, max])
def test_numbers_are_numpys_scalars(x, operation):
    """A reduction, an element and a product of vectors are scalars of NumPy."""
    assert type(operation(x)) is np.float64


def test_a_tracked_array_takes_no_attributes(x):
    """Setting an attribute raises what NumPy raises."""
    with pytest.raises(AttributeError, match=r"^'numpy.ndarray' object has no attribute 'note'"):
        x.note = 1


def test_a_new_array_owns_its_memory():
    """An array that NumPy has made has no base and owns its memory; its views have it as their base."""
    array = face.zeros((2, 3))
    assert array.base is None
    assert array.flags.owndata
    assert array.flags["OWNDATA"]
    assert repr(array.flags) == repr(np.zeros((2, 3)).flags)
    assert array.T.base is array
    assert array[1:].base is array
    assert not array[1:].flags.owndata
    array.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


@pytest.mark.parametrize("shape", [(4,), (8,), (3, 2), (2, 2)])
def test_an_array_can_be_resized_in_place(shape):
    """`resize` gives the same elements, followed by zeros, and the array stays what it is."""
    array, plain = face.arange(6.0) + 0, np.arange(6.0) + 0
    array.resize(shape)
    plain.resize(shape)
    assert repr(array) == repr(plain)
    array += 1
    assert array.base is None


def test_a_pickle_has_no_trace_of_the_sanitizer(x):
    """A tracked array has the pickle of the plain array, which can be read without the sanitizer."""
    plain = np.arange(6.0)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.dumps(x, protocol) == pickle.dumps(plain, protocol)


def test_masked_arrays_print_as_they_do(x):
    """`numpy.ma` makes its arrays of tracked ones, with the text that they have otherwise."""
    assert repr(np.ma.masked_greater(x, 2)) == repr(np.ma.masked_greater(np.arange(6.0), 2))


# -- what is noted ---------------------------------------------------------------------------------


def test_nothing_is_noted_without_a_sink(x):
    """Operations work without a sink."""
    x += 1
    x[0] = 5
    assert x.flat[0] == 5


def test_operators_methods_and_functions_are_accesses(sink, x):
    """Each operation is noted once, with the arrays that it reads and writes."""
    x + 1
    x += x
    x[1:3] = 0
    np.sum(x)
    x.sort()
    x[0]
    float(x[1])
    assert sink.taken() == [
        ([(6,)], [], None),
        ([(6,), (6,)], [(6,)], None),
        ([], [(2,)], None),
        ([(6,)], [], None),
        ([(6,)], [(6,)], None),
        ([()], [], None),
        ([()], [], None),
    ]


def test_a_mask_reads_the_mask_and_the_elements_under_it(sink, x):
    """An index by a mask reads the mask, and the elements that it takes."""
    mask = np.array([True, False, True, True, False, False])
    x[make_tracked(mask)]
    assert sink.taken() == [([(6,), (1,), (2,)], [], None)]


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: x[1:],
        lambda x: x[..., None],
        lambda x: x.T,
        lambda x: x.reshape(2, 3),
        lambda x: x.view("i8"),
        lambda x: x.real,
        lambda x: np.reshape(x, -1),
        lambda x: np.broadcast_to(x, (2, 6)),
        np.shape,
        np.empty_like,
        lambda x: (x.dtype, x.shape, x.flags, x.nbytes, x.base, len(x)),
        lambda x: np.split(x, 2),
        lambda x: x.astype(float, copy=False),
    ],
)
def test_views_and_properties_are_no_accesses(sink, x, operation):
    """Nothing is noted if no element is looked at."""
    operation(x)
    assert sink.taken() == []


def test_an_operation_that_raises_is_no_access(sink, x):
    """An operation that NumPy refuses is not noted."""
    with pytest.raises(ValueError, match="broadcast"):
        x + np.zeros(5)
    with pytest.raises(IndexError):
        x[9]
    assert sink.taken() == []


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: x.data,
        lambda x: x.ctypes,
        lambda x: x.__dlpack__(),
        lambda x: x.view(np.recarray),
        np.ma.array,
    ],
)
def test_memory_that_leaves_is_given_away(sink, x, operation):
    """A form of the memory whose accesses cannot be seen is said to the sink."""
    operation(x)
    assert set(sink.away) == {(6,)}


def test_code_of_numpy_makes_accesses_of_the_program(sink, x):
    """A function of NumPy that is written in Python and not overridden accesses arrays in the program's name."""
    np.testing.assert_allclose(x, x)
    np.polynomial.polynomial.polyval(2.0, x)
    copy.copy(x)
    assert sink.taken()


def test_an_unknown_function_is_refused(sink, x):
    """A function that NumPy dispatches, and that is in no table, raises an error that names it."""

    def frobnicate(array):
        return array

    with pytest.raises(UnsupportedError, match="frobnicate"):
        x.__array_function__(frobnicate, [type(x)], [x], {})


def test_the_librarys_own_work_is_no_access(sink, x, runtime):
    """A construct that maps, copies and gives an array to a body accesses nothing; the body's operations do."""
    y = make_tracked(np.zeros(6))

    @omp.target(map=[omp.to(x), omp.from_(y)], device=0)
    def body(x, y):
        y[...] = x * 2

    body(x, y)
    omp.task(lambda: None, depend=[omp.in_(x)])()
    omp.taskwait()
    assert sink.taken() == []
    assert y.tolist() == [0, 2, 4, 6, 8, 10]


def test_a_host_task_makes_accesses(sink, x, runtime):
    """A host task gets the tracked array, and its operations are noted."""

    @omp.task
    def body(x):
        x += 1

    body(x)
    omp.taskwait()
    assert sink.taken() == [([(6,)], [(6,)], None)]


# -- NumPy with tracked arrays ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda np: np.zeros(3),
        lambda np: np.array([1, 2]),
        lambda np: np.add([1], [2]),
        lambda np: np.add.outer([1], [2]),
        lambda np: np.linspace(0, 1, 3),
        lambda np: np.linalg.inv([[1.0, 2.0], [3.0, 4.0]]),
        lambda np: np.fft.fft([1, 2]),
        lambda np: np.r_[1:3],
        lambda np: np.mgrid[0:2],
        lambda np: np.ndarray(3),
        lambda np: np.random.rand(3),
        lambda np: np.random.default_rng(1).normal(size=3),
        lambda np: np.random.RandomState(1).rand(3),
        lambda np: np.random.Generator(np.random.PCG64(1)).random(3),
        lambda np: np.random.default_rng(1).spawn(1)[0].random(3),
        lambda np: np.vectorize(lambda e: e + 1)([1, 2]),
        lambda np: np.frompyfunc(lambda e: e + 1, 1, 1)([1, 2]),
        lambda np: np.frombuffer(b"12345678"),
        lambda np: np.asarray((1, 2)),
        lambda np: np.char.upper(["a"]),
        lambda np: np.strings.upper(["a"]),
        lambda np: np.emath.sqrt([-1]),
        lambda np: np.lib.stride_tricks.as_strided(np.arange(4), (2,)),
        lambda np: np.where([True], [1], [2]),
        lambda np: np.meshgrid([1], [2])[0],
    ],
)
def test_functions_and_generators_give_tracked_arrays(make):
    """Each way to an array gives a tracked one, of the same shape and dtype."""
    array = make(face)
    assert is_tracked(array)
    assert array.shape == make(np).shape
    assert array.dtype == make(np).dtype


def test_the_names_are_numpys():
    """Types, constants and names are NumPy's; functions are equal to NumPy's, and instances of their classes."""
    assert face.__name__ == "numpy"
    assert face.__version__ == np.__version__
    assert dir(face) == dir(np)
    assert face.float64 is np.float64
    assert face.sin == np.sin == face.sin
    assert {np.sin: 1}[face.sin] == 1
    assert isinstance(face.sin, np.ufunc)
    assert face.add.nin == 2
    assert face.sum.__name__ == "sum"
    assert repr(face.sum) == repr(np.sum)
    assert isinstance(face.nditer(np.zeros(2)), face.nditer)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        face.nonsense


@pytest.mark.parametrize("module", ["", "char", "emath", "fft", "lib", "linalg", "random", "strings"])
def test_every_name_has_a_form(module):
    """Each public name of NumPy and its modules is one of the tracked NumPy, and functions are functions there."""
    ours, theirs = (getattr(one, module) if module else one for one in (face, np))
    for name in vars(theirs):  # others are deprecated
        if not name.startswith("_"):
            assert callable(getattr(ours, name)) == callable(getattr(theirs, name)), name


def test_an_iterator_accesses_its_operands_by_their_flags(sink):
    """`nditer` reads and writes as its flags say, when it is made."""
    array = face.zeros(3)
    sink.taken()
    for element in face.nditer(array, op_flags=["readwrite"]):
        element[...] = 1
    assert sink.taken() == [([(3,)], [(3,)], None)]
    assert array.tolist() == [1, 1, 1]


def test_a_loop_function_knows_the_functions_of_the_tracked_numpy(runtime):
    """A loop that calls functions of the tracked NumPy is compiled as one that calls NumPy's."""
    sine, np = face.sin, face

    @omp.target_loop
    def wave(x, y):
        for k in range(len(x)):
            y[k] = np.cos(x[k]) + sine(x[k])

    x, y = face.linspace(0, 1, 5), face.zeros(5)
    wave(x, y)
    assert face.allclose(y, face.cos(x) + face.sin(x))


def test_arrays_that_the_library_makes_for_the_program_are_tracked(sink, sim):
    """Pinned memory, the host's namespace and copies of device arrays are tracked while there is a sink."""
    assert is_tracked(omp.empty_pinned(3))
    assert omp.array_namespace() is face
    found = []

    @omp.target(map=[omp.to(make_tracked(np.ones(2)))], device=0)
    def body(x):
        found.append(x.get())

    body(make_tracked(np.ones(2)))
    assert is_tracked(found[0])


def test_the_exported_class_is_that_of_tracked_arrays(x):
    """`TrackedArray` is the type of every tracked array."""
    assert type(x) is TrackedArray
