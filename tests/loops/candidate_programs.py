"""Random plain functions with several loops, and what brute force says of each loop."""

from __future__ import annotations

import linecache
import random
from collections import defaultdict
from itertools import count

import numpy as np

N = 6
ARRAYS = ("a", "b", "c")
_NUMBERS = count()


class Generated:
    """A function ``f(a, b, c, m, p, q)``, and the verdict that each of its loops has to have."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []  # of the function
        self.marked: list[str] = []  # with calls of `enter` around the ranges, for brute force
        self.loops: list[dict] = []  # by number: the scalars that it carries, and how it uses arrays
        self._open: list[int] = []  # the loops around
        self._line("k = 0.0", "    ")
        for _ in range(self.random.randint(2, 3)):
            self._loop("    ", 0)
        self._line("return k", "    ")
        self.function = made(self.lines)

    def _line(self, text: str, indent: str, marked: str | None = None) -> None:
        self.lines.append(indent + text)
        self.marked.append(indent + (text if marked is None else marked))

    def _loop(self, indent: str, depth: int) -> None:
        number, variable = len(self.loops), "ijl"[depth]
        self.loops.append({"carries": False, "reduces": False, "line": len(self.lines) + 2, "plain": set()})
        bounds = self.random.choice([f"1, {N}", f"{N - 1}", f"0, {N}, 2", f"{N - 1}, 0, -1"])
        scalar = self.random.choice(["", "", "", "sum", "inner", "carried"])
        if scalar == "sum":
            self._line(f"s{number} = 0.0", indent)
        if scalar == "carried":
            self._line(f"s{number} = 1.0", indent)
        text = f"for {variable} in range({bounds}):"
        self._line(text, indent, f"for {variable} in enter({number}, range({bounds})):")
        self._open.append(number)
        inner = indent + "    "
        variables = list("ijl"[: depth + 1])
        for _ in range(self.random.randint(1, 2)):
            self._statement(inner, variables)
        if scalar == "sum":
            self._line(f"s{number} += {self._read(variables)}", inner)
            self.loops[number]["reduces"] = True
        if scalar == "carried":
            self._line(f"c[{variable}] = s{number}", inner)
            self._uses("c", is_update=False)
            self._line(f"s{number} = {self._read(variables)}", inner)
            self.loops[number]["carries"] = True
        if scalar == "inner":
            self._line(f"t{number} = 2.0", inner)
            self._line(f"t{number} = t{number} * {self._read(variables)}", inner)
            self._line(f"b[{variable}] = t{number}", inner)
            self._uses("b", is_update=False)
        if depth < 2 and self.random.random() < 0.5:
            self._loop(inner, depth + 1)
        self._open.pop()
        if scalar == "sum":
            self._line(f"k = s{number}", indent)
            for around in self._open:  # a plain assignment: each iteration has it, and the last one's is read
                self.loops[around]["last"] = True

    def _index(self, variables: list[str]) -> str:
        v = self.random.choice(variables)
        return self.random.choice(
            [v, v, v, v, v, f"p[{v}]", f"{v} - 1", f"{v} + 1", f"p[{v}]", f"q[{v}]", f"{v} // 2", "0"]
        )

    def _read(self, variables: list[str]) -> str:
        array = self.random.choice(ARRAYS)
        self._uses(array, is_update=False)
        return f"{array}[{self._index(variables)}]"

    def _uses(self, array: str, *, is_update: bool) -> None:
        for number in self._open:
            if not is_update:
                self.loops[number]["plain"].add(array)

    def _statement(self, indent: str, variables: list[str]) -> None:
        target = self.random.choice(ARRAYS)
        index = self._index(variables)
        if self.random.random() < 0.3:
            self._uses(target, is_update=True)
            self._line(f"{target}[{index}] += {variables[-1]}", indent)
        elif self.random.random() < 0.3 and len(variables) > 1:
            self._uses("m", is_update=False)
            self._line(f"m[{variables[0]}, {variables[1]}] = {self._read(variables)}", indent)
        else:
            plain = [set(self.loops[number]["plain"]) for number in self._open]
            read = self._read(variables)
            if read == f"{target}[{index}]":  # an update as well
                for number, before in zip(self._open, plain, strict=True):
                    self.loops[number]["plain"] = before
            else:
                self._uses(target, is_update=False)
            self._line(f"{target}[{index}] = {read} + 1", indent)

    def arguments(self) -> list:
        """Return arguments: `p` is a permutation, `q` has elements twice."""
        rng = np.random.default_rng(self.random.getrandbits(32))
        places = rng.permutation(N)
        q = places.copy()
        q[1] = q[4]
        return [*(np.arange(N + 2.0) + n for n in range(3)), np.zeros((N + 2, N + 2)), places, q]

    def expected(self, arguments: list) -> list[str]:
        """Return the verdict of each loop by brute force: each pair of accesses in each entry of each loop."""
        log: list[tuple] = []  # the loops around, the array, the place, whether it is a write
        function = made(self.marked, enter=_enter, log=log)
        now: list = []
        _STATE["now"], _STATE["entries"] = now, count()
        function(*[_Noted(name, array, log) for name, array in zip("abcmpq", arguments, strict=True)])
        return [self._expected(number, of, log) for number, of in enumerate(self.loops)]

    def _expected(self, number: int, of: dict, log: list[tuple]) -> str:
        entries: dict = defaultdict(lambda: defaultdict(list))
        for position, array, place, is_write in log:
            for loop, entry, trip in position:
                if loop == number:
                    entries[entry][array].append((trip, place, is_write))
        if of["carries"]:
            return "sequential"
        bad, updated, own = False, False, False
        for arrays in entries.values():
            for array, accesses in arrays.items():
                if not _meet(accesses):
                    continue
                if array not in of["plain"]:
                    updated = True
                elif _is_own(accesses) and _is_last(accesses):
                    own = True
                else:
                    bad = True
        if bad:
            return "sequential"
        return "reduction" if of["reduces"] or updated else "private" if own else "parallel"


_STATE: dict = {}


def _enter(number, counted):
    entry = next(_STATE["entries"])
    for trip, item in enumerate(counted):
        _STATE["now"].append((number, entry, trip))
        yield item
        while _STATE["now"].pop() != (number, entry, trip):
            pass


class _Noted:
    def __init__(self, name, array, log):
        self.name, self.array, self.log = name, array.copy(), log

    def __getitem__(self, key):
        self.log.append((tuple(_STATE["now"]), self.name, _place(key, self.array.shape), False))
        return self.array[key]

    def __setitem__(self, key, value):
        self.log.append((tuple(_STATE["now"]), self.name, _place(key, self.array.shape), True))
        self.array[key] = value


def _place(key, shape):
    keys = key if isinstance(key, tuple) else (key,)
    return tuple(int(one) % n for one, n in zip(keys, shape, strict=True))


def _meet(accesses):
    """Tell whether two trips touch one place, one of them by a write."""
    return any(
        first[0] != second[0] and first[1] == second[1] and (first[2] or second[2])
        for number, first in enumerate(accesses)
        for second in accesses[number + 1 :]
    )


def _is_own(accesses):
    """Tell whether each trip writes a place before it reads it."""
    written: set = set()
    for trip, place, is_write in accesses:
        if is_write:
            written.add((trip, place))
        elif (trip, place) not in written:
            return False
    return True


def _is_last(accesses):
    """Tell whether the last trip writes all places that any trip writes."""
    last = max(trip for trip, _, _ in accesses)
    places = {place for _, place, is_write in accesses if is_write}
    return places == {place for trip, place, is_write in accesses if is_write and trip == last}


def made(lines, **names):
    """Return the function of some lines, whose text can be found."""
    source = "def f(a, b, c, m, p, q):\n" + "\n".join(lines) + "\n"
    file = f"<candidates {next(_NUMBERS)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec"), names)
    return names["f"]


__all__ = ["Generated"]
