"""Random sequences of loops, updates, plain regions and reads over arrays that several devices hold.

Beside the runtime two models go through a sequence. NumPy says what arrays hold. A `Holders` says which device has
which element, one by one, and how many bytes have to travel: what a use needs and its device has not. Needs are what
the plain function reads in the iterations that a device has, found by running it; of arrays that it reaches through
others, or where devices test what they own, they are everything.
"""

from __future__ import annotations

import random
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

import offload as omp
from offload.data import exchanges

N, M = 9, 6


def rows(a, b):
    for i in range(1, a.shape[0] - 1):
        for j in range(1, a.shape[1] - 1):
            b[i, j] = (a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1]) % 97


def columns(a, b):
    for i in range(a.shape[1]):
        for j in range(1, a.shape[0]):
            a[j, i] = (a[j, i] + a[j - 1, i] + b[j, i]) % 97


def lower_rows(a, k):
    for i in range(k, a.shape[0]):
        for j in range(a.shape[1]):
            a[i, j] = (3 * a[i, j] + i) % 97


def scatter(p, x, y):
    for i in range(x.size):
        y[p[i]] = (y[p[i]] + x[i]) % 97


def gather(p, x, y):
    for i in range(y.size):
        y[i] = (x[p[i]] + i) % 97


def edge(a, x):
    for i in range(a.shape[1]):
        x[i] = (a[0, i] + 2 * x[i]) % 97


def fill(x, k):
    for i in range(x.size):
        x[i] = (i * k) % 97


def total(x):
    s = 1
    for i in range(x.size):
        s += x[i]
    return s


@dataclass
class Loop:
    """A loop function, whose parameters are of these kinds: "a" matrices, "x" vectors, "p" a permutation, "k" numbers.

    Attributes
    ----------
    whole : tuple of str
        Parameters of which every device with a part needs everything.
    is_tested : bool
        Devices go through all iterations and test what they own of the last parameter.
    """

    function: object
    kinds: str
    whole: tuple = ()
    is_tested: bool = False
    clauses: dict = None

    @property
    def parameters(self):
        return self.function.__code__.co_varnames[: self.function.__code__.co_argcount]


LOOPS = [
    Loop(rows, "aa"),
    Loop(columns, "aa"),
    Loop(lower_rows, "ak"),
    Loop(scatter, "pxx", ("p", "x"), is_tested=True),
    Loop(gather, "pxx", ("x",)),
    Loop(edge, "ax"),
    Loop(fill, "xk"),
    Loop(total, "x", clauses={"reduction": {"+": ["s"]}}),
]


# -- what iterations read and write ----------------------------------------------------------------------


class _Traced:
    """An array that notes which of its elements are read, before they are written, and written."""

    def __init__(self, array):
        self.array = array
        self.shape, self.size = array.shape, array.size
        self.reads, self.writes = set(), set()

    def __getitem__(self, index):
        if index not in self.writes:
            self.reads.add(index)
        return self.array[index]

    def __setitem__(self, index, value):
        self.writes.add(index)
        self.array[index] = value


def traces(function, args):
    """Return what each iteration reads and writes: for each, by position, two sets of indices. `args` are changed."""
    found = []

    def traced_range(*bounds):
        if seen:
            yield from range(*bounds)
            return
        seen.append(True)
        for i in range(*bounds):
            for one in wrapped:
                if isinstance(one, _Traced):
                    one.reads, one.writes = set(), set()
            yield i
            found.append([(one.reads, one.writes) if isinstance(one, _Traced) else None for one in wrapped])

    seen = []
    wrapped = [_Traced(one) if isinstance(one, np.ndarray) else one for one in args]
    copy = type(function)(function.__code__, {**function.__globals__, "range": traced_range})
    return found, copy(*wrapped)


class Holders:
    """Which device has which element of each array, and how many bytes have to travel."""

    def __init__(self, arrays, n_devices):
        self.current = {name: np.ones((n_devices, *array.shape), bool) for name, array in arrays.items()}
        self.itemsize = {name: array.itemsize for name, array in arrays.items()}
        self.n_devices = n_devices
        self.nbytes = 0

    def need(self, device, name, where):
        """Bring elements, given by a mask or a slice, to a device."""
        mine = self.current[name][device]
        self.nbytes += int((~mine[where]).sum()) * self.itemsize[name]
        mine[where] = True

    def wrote(self, device, name, where):
        """Let elements be current on one device, or on all if that is None."""
        marks = self.current[name]
        if device is None:
            marks[(slice(None), *(where if isinstance(where, tuple) else (where,)))] = True
            return
        for one in range(self.n_devices):
            marks[one][where] = one == device

    def loop(self, loop, names, args):
        """Go through a loop; `args` hold what arrays hold before, and are changed."""
        found, value = traces(loop.function, args)
        count, parts = len(found), range(self.n_devices)
        blocks = [range(count * d // self.n_devices, count * (d + 1) // self.n_devices) for d in parts]
        kinds = [(at, kind, name) for at, (kind, name) in enumerate(zip(loop.kinds, names, strict=True)) if kind != "k"]
        if loop.is_tested:
            *others, (_, _, written) = kinds
            size = len(self.current[written][0])
            ranges = [slice(size * d // self.n_devices, size * (d + 1) // self.n_devices) for d in parts]
            for device in parts:
                for _, _, name in others:
                    self.need(device, name, ...)
                self.need(device, written, ranges[device])
            for device in parts:
                self.wrote(device, written, ranges[device])
            return value
        masks = {}
        for device, block in enumerate(blocks):
            for at, _, name in kinds:
                reads, writes = (np.zeros(args[at].shape, bool) for _ in range(2))
                for i in block:
                    for mask, indices in zip((reads, writes), found[i][at], strict=True):
                        for index in indices:
                            mask[index] = True
                if loop.parameters[at] in loop.whole and len(block):
                    reads[...] = True
                masks[device, name] = masks.get((device, name), False) | writes
                self.need(device, name, reads)
        for (device, name), writes in masks.items():
            self.wrote(device, name, writes)
        return value


@contextmanager
def counted():
    """Count the bytes of copies between devices in a list of one number."""
    right, n = exchanges._copy, [0]

    def copy(held, one, lane):
        n[0] += int(np.prod([high - low for low, high in one.box], dtype=int)) * held.layout.itemsize
        right(held, one, lane)

    exchanges._copy = copy
    try:
        yield n
    finally:
        exchanges._copy = right


# -- sequences -------------------------------------------------------------------------------------------


@omp.target
def advance(a):
    a[...] = (a * 2 + 1) % 97


@omp.target
def look(a, found):
    found[...] = a.sum()


class Sequence:
    """One sequence, by its seed."""

    def __init__(self, seed, n_devices, steps=None, **words):
        self.random = random.Random(seed)
        values = np.random.default_rng(seed)
        self.serial = {
            **{name: values.integers(0, 97, (N, M)) for name in "AB"},
            **{name: values.integers(0, 97, N) for name in "xyz"},
            **{name: values.permutation(N) for name in "pq"},
        }
        self.mine = {name: array.copy() for name, array in self.serial.items()}
        self.holders = Holders(self.serial, n_devices)
        self.n_devices = n_devices
        self.n_steps = steps or self.random.randint(2, 12)
        words = {"filter": "always", **words}
        self.is_counted = words["filter"] == "always" and words.get("exchange") != "eager"
        self.loops = [omp.target_loop(devices="all", **(one.clauses or {}), **words) for one in LOOPS]
        self.loops = [make(one.function) for make, one in zip(self.loops, LOOPS, strict=True)]
        self.text = []

    def run(self):
        """Run it, and compare every value that the program sees, and in the end all arrays."""
        maps = [omp.tofrom(array) for array in self.mine.values()]
        try:
            with counted() as moved, omp.target_data(map=maps, devices="all"):
                for _ in range(self.n_steps):
                    step = self.random.choice([self.loop] * 5 + [self.plain, self.to, self.from_, self.sum])
                    step()
                    if self.is_counted:
                        assert moved[0] == self.holders.nbytes, "bytes of copies between devices"
            for name, array in self.serial.items():
                np.testing.assert_array_equal(self.mine[name], array, err_msg=name)
        except BaseException as error:
            error.add_note("; ".join(self.text))
            raise

    def loop(self):
        at = self.random.randrange(len(LOOPS))
        one = LOOPS[at]
        of_kind = {"a": ["A", "B"], "x": ["x", "y", "z"], "p": ["p", "q"]}
        for names in of_kind.values():
            self.random.shuffle(names)
        given = [of_kind[kind].pop() if kind != "k" else self.random.randint(0, N) for kind in one.kinds]
        self.text.append(f"{one.function.__name__}({', '.join(map(str, given))})")
        expected = self.holders.loop(one, given, [self.serial.get(name, name) for name in given])
        got = self.loops[at](*[self.mine.get(name, name) for name in given])
        assert got == expected

    def part(self):
        """Return an array's name and a part of it, on whole rows or columns."""
        name = self.random.choice("ABxyz")
        low = self.random.randrange(N)
        rows_of = slice(low, self.random.randint(low + 1, N))
        where = (rows_of, slice(None)) if name in "AB" else (rows_of,)
        if name in "AB" and self.random.random() < 0.4:
            first = self.random.randrange(M)
            where = slice(None), slice(first, self.random.randint(first + 1, M))
        return name, where if self.random.random() < 0.7 else (...,)

    def plain(self):
        """A region on one device, of part of an array."""
        (name, where), device = self.part(), self.random.randrange(self.n_devices)
        self.text.append(f"advance({name}{where}) on {device}")
        serial = self.serial[name][where]
        serial[...] = (serial * 2 + 1) % 97
        self.holders.need(device, name, where)
        self.holders.wrote(device, name, where)
        advance.options(device=device)(self.mine[name][where])

    def sum(self):
        """A region that only reads."""
        (name, where), device = self.part(), self.random.randrange(self.n_devices)
        self.text.append(f"look({name}{where}) on {device}")
        self.holders.need(device, name, where)
        found = np.zeros((), np.int64)
        part = self.mine[name][where]
        look.options(device=device, map=[omp.to(part), omp.from_(found)])(part, found)
        assert found == self.serial[name][where].sum()

    def to(self):
        name, where = self.part()
        self.text.append(f"to {name}{where}")
        self.serial[name][where] = (self.serial[name][where] + 5) % 97
        self.mine[name][where] = self.serial[name][where]
        self.holders.wrote(None, name, where)
        omp.target_update(to=[self.mine[name][where]], devices="all")

    def from_(self):
        name, where = self.part()
        self.text.append(f"from {name}{where}")
        self.mine[name][where] = 0
        omp.target_update(from_=[self.mine[name][where]], devices="all")
        np.testing.assert_array_equal(self.mine[name][where], self.serial[name][where], err_msg=name)
