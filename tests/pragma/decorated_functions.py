"""Functions of a module under directive strings, for tests that pickle them."""

from __future__ import annotations

import offload as omp
from offload.pragma.decorated import decorated
from offload.pragma.placing import of_string

LIMIT = 2


def under(text, language="omp"):
    """Return the decorator that a directive string is."""
    return lambda function: decorated(function, of_string(text, language))


@under("target map(to: x) map(tofrom: y) nowait depend(inout: y)")
def saxpy(a, x, y):
    y += a * x


@under("task priority(n) if(n > LIMIT)")
def double(n):
    return 2 * n


@omp.target(map=[omp.to("x"), omp.tofrom("y")], nowait=True, depend=[omp.inout("y")])
def called(a, x, y):
    y += a * x


class Field:
    def __init__(self, a):
        self.a = a
        self.__rate = 3

    @under("task depend(inout: self.a) priority(self.__rate)")
    def scale(self, factor):
        self.a *= factor

    @under("taskloop num_tasks(self.__rate)")
    def count(self, part):
        self.a[0] += len(part)
