"""Values that nests under directives meet: modules and classes, parts of other objects, and results that come late."""

from __future__ import annotations

import math
import threading

import numpy as np
import pytest

import offload
from offload.pragma import directives, omp
from tests.conftest import checked
from tests.pragma.programs import made_of


@pytest.fixture(params=["sim:1", "sim:2"], autouse=True)
def runtime(request):
    """Runtimes with one device and with two."""
    with checked(request.param):
        yield


def test_modules_and_classes_that_variables_hold():
    """A nest calls functions of a module that a parameter or a local import holds, and converts by a class."""

    @directives
    def apply(x, module, kind):
        import numpy as other  # noqa: ICN001  # what is tested

        with omp("target teams loop"):
            for i in range(x.size):
                x[i] = kind(module.sqrt(x[i])) + other.sqrt(x[i]) + other.pi

    for module, kind in ((math, float), (np, np.int8), (math, np.float32)):
        x = np.array([4.0, 9.0])
        apply(x, module, kind)
        assert x.tolist() == [4 + math.pi, 6 + math.pi]


def test_a_method_of_an_array_is_an_error_at_its_line():
    """A call of a method is no call of a module's function: the error names the line."""

    @directives
    def apply(x):
        with omp("parallel for"):
            for _ in range(3):
                y = x.sum()  # noqa: F841  # what is tested

    with pytest.raises(offload.LoopError, match=r"`x\.sum` has no device form") as caught:
        apply(np.ones(3))
    assert caught.value.line == apply.__wrapped__.__code__.co_firstlineno + 4


@pytest.mark.parametrize(
    "directive", ['omp("target loop map(tofrom: arrays[k])")', 'acc("serial loop copy(arrays[k])")']
)
def test_a_mapped_element_of_a_list(directive):
    """A data clause may name an element of a list or of a dictionary, which the nest has under another name."""
    add = made_of(
        f"""
        @directives
        def add(arrays, k):
            array = arrays[k]
            with {directive}:
                for i in range(array.size):
                    array[i] += 1
        """
    )
    for arrays, k in (([np.zeros(2), np.ones(3)], 1), ({"x": np.ones(3)}, "x")):
        add(arrays, k)
        assert arrays[k].tolist() == [2, 2, 2]


@pytest.mark.parametrize("directive", ["target teams loop", "parallel for"])
def test_a_deferred_nest_keeps_values_that_variables_receive_later(directive):
    """A result without a value, and an array, leave a variable as it is when the nest has run."""
    late = made_of(
        f"""
        @directives
        def late(x, go):
            last, total = 1, np.zeros(1)
            with omp("task depend(out: x)"):
                go.wait()
            with omp("{directive} nowait depend(inout: x) lastprivate(last) reduction(+: total)"):
                for i in range(x.size):
                    last = i
                    total[0] += x[i]
            last, total = 7, None
            go.set()
            omp("taskwait")
            return last, total
        """,
        {"np": np},
    )
    assert late(np.ones(0), threading.Event()) == (7, None)


def test_kinds_of_arguments_take_turns():
    """One nest takes numbers, arrays without dimensions and functions for the same variables, call by call."""

    @directives
    def apply(x, step, function):
        total = 0
        with omp("target teams loop reduction(+: total)"):
            for i in range(x.size):
                x[i] = function(x[i]) + step
                total += x[i]
        return total

    def doubled(value):
        return 2 * value

    for _ in range(2):
        for step in (1, np.array(1.0), np.float32(1), True):
            for function, expected in ((abs, 2), (doubled, 3), (math.sqrt, 2)):
                x = np.ones(2)
                assert apply(x, step, function) == 2 * expected
                assert x.tolist() == [expected] * 2


def test_profiles_of_functions_with_nonlocal_variables():
    """`profile_dependences` runs a function that assigns variables of the function around it."""
    weights, n_calls = np.ones(3), 0

    def scale(x):
        nonlocal n_calls
        for i in range(3):
            x[i] *= 2
        n_calls += 1
        for i in range(1, 3):
            x[i] += x[i - 1]

    report = offload.profile_dependences(scale, (weights,))
    assert [loop.verdict for loop in report.loops] == ["parallel", "sequential"]
    assert (weights == 1).all()
    assert n_calls == 0


CHAINS = {
    "parallel for": ("parallel for reduction(+: s) nowait depend(inout: s)", "taskwait"),
    "target": ("target teams loop map(tofrom: s) reduction(+: s) nowait depend(inout: s)", "taskwait"),
    "target of arrays": ("target parallel for map(to: y) reduction(+: s) nowait depend(inout: s)", "taskwait"),
    "acc": ("parallel loop copyin(y) reduction(+: s) async(1)", "wait(1)"),
    "acc kernels": ("kernels loop copyin(y) reduction(+: s) async", "wait"),
}


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("first", [0, 0.5])
def test_deferred_reductions_begin_with_the_values_of_their_turn(name, first):
    """Nests in a row add to one variable; a number that a task gives it in between counts, also of another type."""
    directive, wait = CHAINS[name]
    spelling = "acc" if name.startswith("acc") else "omp"
    total = made_of(
        f"""
        @directives
        def total(y, s):
            for k in range(3):
                with {spelling}("{directive}"):
                    for i in range(4):
                        s += y[i]
            {spelling}("{wait}")
            return s
        """
    )
    assert total(np.ones(4), first) == 12 + first
    assert total(np.ones(4, int), first) == 12 + first


@pytest.mark.parametrize("directive", ["target teams loop", "parallel for"])
def test_a_reduction_after_tasks(directive):
    """A deferred reduction, and one that waits itself, begin with the number that the task before has stored."""
    add = made_of(
        f"""
        @directives
        def add(y, gate, value):
            s = 1
            with omp("task shared(s) depend(inout: s)"):
                gate.wait()
                s = value
            with omp("{directive} reduction(+: s) nowait depend(inout: s)"):
                for i in range(4):
                    s += y[i]
            with omp("{directive} reduction(max: s) nowait depend(inout: s)"):
                for i in range(4):
                    s = max(s, y[i])
            gate.set()
            with omp("{directive} reduction(+: s) depend(inout: s)"):
                for i in range(4):
                    s += y[i]
            return s
        """
    )
    assert add(np.ones(4, int), threading.Event(), 5) == 13
    assert add(np.ones(4), threading.Event(), 0.25) == 8.25


class Private:
    """Has private members, which Python spells with the name of the class."""

    __factor = 4

    def __init__(self):
        self.__n, self.__u = 3, np.zeros(3)

    @directives
    def filled(self, x):
        with omp("parallel for"):
            for i in range(self.__n):
                self.__u[i] = i
        with omp("target teams loop map(tofrom: self.__u)"):
            for i in range(self.__n):
                self.__u[i] += 10
        with omp("task"):  # noqa: SIM117  # a directive has a `with` of its own
            with omp("parallel for"):
                for i in range(self.__n):
                    x[i] = self.__factor * self.__u[i]
        omp("taskwait")
        return self.__u


def test_private_members():
    """`self.__x` means the same in a nest as around it."""
    x = np.zeros(3)
    assert Private().filled(x).tolist() == [10, 11, 12]
    assert x.tolist() == [40, 44, 48]
