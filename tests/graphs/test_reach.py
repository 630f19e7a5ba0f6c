"""What a body reaches: the device arrays that a graph keeps, and the objects for which there is no graph."""

from __future__ import annotations

import functools
import types

import numpy as np
import pytest

import offload as omp
from offload.graphs.reach import reached
from offload.graphs.rehearsal import NotCapturableError


class Array:
    """A device array, as far as anyone asks."""

    __cuda_array_interface__ = {}  # noqa: RUF012  # never changed


class Model:
    """An object that keeps a device array, and one method that does not use it."""

    def __init__(self):
        self.w = Array()

    def step(self, y):
        y += self.w

    @classmethod
    def of_class(cls, y):
        y += cls.shared

    shared = Array()


GLOBAL = Array()
A_MODULE = types.ModuleType("a_module")
A_MODULE.w = Array()
A_MODULE.unused = Model()


def bodies():
    """Return bodies with the device arrays that each reaches."""
    first, second, host = Array(), Array(), np.zeros(3)
    boxed = {"pair": (first, [second])}
    defined_later = first

    def direct(y):
        y += first

    def in_container(y):
        y += boxed["pair"][0]

    def by_helper(y):
        direct(y)

    def by_default(y, w=first, *, v=second):
        y += w + v

    def by_global(y):
        y += sum([GLOBAL for _ in range(2)])

    def by_module(y):
        y += A_MODULE.w + np.sum(host)

    def by_import(y):
        from tests.graphs import test_reach

        y += test_reach.A_MODULE.w

    def by_class(y):
        y += Model.shared

    def by_task(y):
        by_target(y)

    def recursive(y):
        recursive(y)
        y += defined_later

    by_target = omp.target(direct)
    return [
        (direct, [first]),
        (in_container, [first, second]),
        (by_helper, [first]),
        (by_default, [first, second]),
        (by_global, [GLOBAL]),
        (by_module, [A_MODULE.w]),
        (by_import, [A_MODULE.w]),
        (by_class, [Model.shared]),
        (Model.of_class, [Model.shared]),
        (by_task, [first]),
        (recursive, [first]),
        (functools.partial(by_helper, w=second), [first, second]),
        (boxed.get, [first, second]),
    ]


@pytest.mark.parametrize("at", range(len(bodies())))
def test_device_arrays_that_a_body_reaches(at):
    """What a body gets at by names is found, through containers, modules and the functions that it calls."""
    body, expected = bodies()[at]
    found = [value for value in reached(body, ()) if isinstance(value, Array)]
    assert sorted(map(id, found)) == sorted(map(id, expected))


def test_arguments_are_looked_through():
    """Device arrays in containers that are arguments count as reached."""
    array = Array()
    assert reached(lambda pair: None, [(array, [1.0, "a"]), 3]) == [array]


def test_loops_are_looked_through():
    """A loop that is a body, or that a body calls, is known by its function, which holds no arrays."""

    @omp.target_loop
    def double(y):
        for i in range(y.size):
            y[i] = 2 * y[i]

    first = Array()

    def body(y):
        double(y)
        y += first

    assert reached(body, ()) == [first]
    assert reached(double._body({}, (), {}), ()) == []


def opaque_bodies():
    model, cached = Model(), functools.lru_cache(lambda: Array())  # noqa: PLW0108  # it caches what the class does not
    objects = np.array([Array()])

    def by_attribute(y):
        y += model.w

    def by_cache(y):
        y += cached()

    def by_object_array(y):
        y += objects[0]

    return [model.step, by_attribute, by_cache, by_object_array, functools.partial(by_attribute), [by_cache].pop]


@pytest.mark.parametrize("body", opaque_bodies())
def test_objects_that_cannot_be_looked_into_are_refused(body):
    """A body that reaches an object which may hold device arrays, or come to hold others, is not captured."""
    with pytest.raises(NotCapturableError, match="cannot find"):
        reached(body, ())


def test_many_objects_are_refused():
    """There is an end to looking."""
    many = [object.__new__(Array) for _ in range(10_001)]
    with pytest.raises(NotCapturableError, match="more than"):
        reached(lambda: many, ())
