"""Loops that are only probably parallel, of the table of §10.6, and what takes note of what logs find."""

from __future__ import annotations

import contextlib
import linecache
import warnings
from dataclasses import dataclass, field
from itertools import count
from unittest import mock

import numpy as np

import offload as omp
from offload.loops.speculative import race as racing
from offload.loops.speculative.contest import History
from offload.loops.speculative.log_runs import LoggedRun

N = 12
P = np.random.default_rng(2).permutation(N)
Q = np.array([0, 3, 3, 5, 1, 0, 7, 3, 8, 9, 10, 11])
K = np.arange(N + 4)
Z = np.zeros(N + 4, int)
S = np.array([2, 0, 3, 4, 5, 6, 7, 0, 8, 9, 10, 11])
_NUMBERS = count()


@dataclass(frozen=True)
class Vector:
    """A row: statements of an iteration, the first iteration, index arrays by name, what a log says of it."""

    text: str
    is_parallel: bool
    first: int = 0
    arrays: dict = field(default_factory=dict)

    def __str__(self):
        return f"{self.text} {'' if 'p[' not in self.text else 'P' if self.arrays['p'] is P else 'Q'}"

    @property
    def names(self):
        return [name for name in "apqstxyzk" if f"{name}[" in self.text]

    def function(self):
        """Return the loop function, with the arrays and `trips` as its parameters."""
        return made(self.text, *self.names, first=self.first)

    def values(self):
        """Return arguments."""
        known = {"p": P, "q": Q, "s": S, "k": K, "z": Z, **self.arrays}
        return [known[n].copy() if n in known else np.arange(30.0) + ord(n) for n in self.names] + [N + self.first]


VECTORS = [
    Vector("y[p[i]] = x[i]", True, arrays={"p": P}),
    Vector("y[p[i]] = x[i]", False, arrays={"p": Q}),
    Vector("a[p[i]] += 1", True, arrays={"p": P}),
    Vector("a[p[i]] += 1", False, arrays={"p": Q}),
    Vector("a[k[i]] = a[k[i] - 1]", False, first=1),
    Vector("a[k[i]] = a[k[i] + 1]", False),
    Vector("a[k[i]] = a[k[i] - 4]", False, first=4),
    Vector("a[k[i] // 2] = x[i]", False),
    Vector("t[z[i]] = x[i]; y[i] = 2 * t[z[i]]", False),
    Vector("a[k[i]] = 1; a[k[i]] = 2", True),
    Vector("a[1 + k[i]] = a[z[i]]", True),
    Vector("a[k[i]] = 2 * a[k[i] + 12]", True),
    Vector("a[k[i]] = 2 * a[k[i] + 1]", False),
    Vector("a[k[i]] = x[i]; y[i] = a[z[i]] if i == 11 else 0", False),
    Vector("y[i] = a[5 + z[i]] if i == 0 else 0; a[k[i]] = x[i]", False),
    Vector("a[s[i]] = 3", False),
    Vector("a[k[i]] = x[i]; y[int(a[k[i] - 1]) % 20] = 2", False, first=1),
]


def made(text, *parameters, first=0):
    """Return the function ``for i in range(first, trips): text`` of some parameters."""
    lines = "".join(f"        {line}\n" for line in text.split("; "))
    source = f"def f({', '.join([*parameters, 'trips'])}):\n    for i in range({first}, trips):\n{lines}"
    file = f"<speculated {next(_NUMBERS)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    names = {"omp": omp, "np": np}
    exec(compile(source, file, "exec"), names)
    return names["f"]


@contextlib.contextmanager
def noted():
    """Give the list of what logs have found, run by run, to a block; the host is slow, and no competitor is quicker.

    The device takes part in each race: without a competitor no core has to be free.
    """
    found = []
    look = LoggedRun.close

    def close(run):
        found.append(run.found())
        look(run)

    has_core = mock.patch.object(racing, "_has_core", return_value=True)
    with racing.alone(), slow_host(), has_core, mock.patch.object(LoggedRun, "close", close):
        yield found


def slow_host():
    """Return a context in which no loop is thought to be cheaper in order."""
    return mock.patch.object(History, "is_hosts", new=False)


@contextlib.contextmanager
def quiet():
    """Let loops turn out dependent."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", omp.SpeculationWarning)
        yield
