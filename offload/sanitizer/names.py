"""Names for the memory of findings: the variable that holds it where the program is, and the elements of the array."""

from __future__ import annotations

import linecache
import re
import sys
import sysconfig
import threading
from functools import lru_cache
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from offload.interrupts.frames import frames_of_threads, is_between, of_any_thread
from offload.sanitizer.elements import byte_bounds
from offload.sanitizer.findings import ItemPart, source_line
from offload.sanitizer.memory import array_in, layout_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import FrameType

    import numpy as np

    from offload.sanitizer.findings import Side
    from offload.sanitizer.states import Run, Runs

_NAME = re.compile(r"\w+")

_MOST_NAMES = 4096
"""The names that are remembered."""

_FROM_BOX = 256
"""The runs of which the box is worked out one by one; of more than these only the first and the last ones."""


class Variable(NamedTuple):
    """A variable of the program, and the host array or the hidden storage that it holds."""

    name: str
    array: np.ndarray[Any, Any]


class FrameNames:
    """The variables that have been found for memory: to look for one takes longer than to judge an access."""

    def __init__(self) -> None:
        self._known: dict[tuple[Run, object, int], Variable | None] = {}

    def variable_at(self, run: Run, frame: FrameType | None) -> Variable | None:
        """Return the variable that holds all of a run, in a frame or else in any frame of the program."""
        key = (run, None, 0) if frame is None else (run, frame.f_code, frame.f_lineno)
        if key not in self._known:
            if len(self._known) >= _MOST_NAMES:
                self._known.clear()
            found = variable_at(frame, run) or variable_anywhere(run)
            # The array itself is not kept.
            self._known[key] = None if found is None else Variable(found.name, layout_of(found.array))
        return self._known[key]

    def forget(self, run: Run) -> None:
        """Forget the names of memory that has been freed."""
        for known in [known for known in self._known if known[0][0] < run[1] and run[0] < known[0][1]]:
            del self._known[known]


def variable_at(frame: FrameType | None, run: Run, *, is_at_access: bool = True) -> Variable | None:
    """Return the variable of a frame whose array holds all of a run; None if there is none.

    If the frame ``is_at_access``, a name in its line comes first. Then come local names, then arrays that hold little
    else.
    """
    if frame is None:
        return None
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno) if is_at_access else ""
    words = set(_NAME.findall(line))
    best, best_rank = None, None
    for is_local, names in ((True, _locals_of(frame)), (False, frame.f_globals)):
        for name, array in _arrays_of(names):
            lo, hi = byte_bounds(array)
            if lo <= run[0] and run[1] <= hi:
                mentioned = name.partition(".")[2] or name
                rank = mentioned not in words, not is_local, name.startswith("_"), hi - lo, name
                if best_rank is None or rank < best_rank:
                    best, best_rank = Variable(name, array), rank
    return best


def _locals_of(frame: FrameType) -> Mapping[str, Any]:
    """Return the local variables of a frame.

    Before Python 3.13 a function's frame keeps a dict of them, and thereby their values after the program has let go
    of them. It is emptied here, unless the program has asked for it too, or a debugger is about to write it back.
    """
    names: dict[str, Any] = of_any_thread(frame, "f_locals")
    is_copy = type(names) is dict and frame.f_code.co_flags & CO_OPTIMIZED and frame.f_trace is None
    if not is_copy or sys.getrefcount(names) > _OWN_REFERENCES:
        return names
    found = dict(names)
    names.clear()
    return found


_OWN_REFERENCES = 3
"""Those of the frame, of `_locals_of`, and of the call of `sys.getrefcount`."""


def variable_anywhere(run: Run) -> Variable | None:
    """Return the variable that holds all of a run in the frames of the program's threads; None if there is none.

    The outermost frames come first: the frames of bodies that are there depend on the schedule.
    """
    frames = frames_of_threads()
    main = threading.main_thread().ident
    for ident in sorted(frames, key=lambda ident: ident != main):
        at: FrameType | None = frames[ident]
        stack = []
        while at is not None:
            if not (is_between(at) or is_installed(at.f_code.co_filename)):
                stack.append(at)
            at = of_any_thread(at, "f_back")
        for frame in reversed(stack):
            if (found := variable_at(frame, run, is_at_access=False)) is not None:
                return found
    return None


_INSTALLED = tuple(
    Path(path).resolve() for name, path in sysconfig.get_paths().items() if name in {"stdlib", "platstdlib"}
)


@lru_cache(maxsize=4096)
def is_installed(file: str) -> bool:
    """Tell whether a file belongs to Python, or to an installed package, and so not to the program."""
    path = Path(file).resolve()
    in_package = not {"site-packages", "dist-packages"}.isdisjoint(path.parts)
    return in_package or any(map(path.is_relative_to, _INSTALLED))


def _arrays_of(names: Any) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Yield the arrays that variables hold, also those that are attributes of objects."""
    for name, value in list(names.items()):
        if not name.isidentifier():  # pytest's own
            continue
        array = array_in(value)
        if array is not None:
            yield name, array
        elif not isinstance(value, (ModuleType, type)):
            for attribute, inner in list(getattr(value, "__dict__", {}).items()):
                if (array := array_in(inner)) is not None:
                    yield f"{name}.{attribute}", array


def part_of(name: str, array: np.ndarray[Any, Any], runs: Runs) -> ItemPart:
    """Return the smallest box of an array that holds all bytes of these runs that it has."""
    shown = runs if len(runs) <= _FROM_BOX else (*runs[: _FROM_BOX // 2], *runs[-_FROM_BOX // 2 :])
    box: list[tuple[int, int]] | None = None
    for run in shown:
        found = _box_of(array, run)
        if found is not None:
            pairs = zip(box or found, found, strict=True)
            box = [(min(a[0], b[0]), max(a[1], b[1])) for a, b in pairs]
    return ItemPart(name, tuple(box) if box is not None else tuple((0, n) for n in array.shape), byte_bounds(array)[0])


def _box_of(array: np.ndarray[Any, Any], run: Run) -> list[tuple[int, int]] | None:
    """Return the smallest box of elements that holds the bytes of a run; None if the array has none of them."""
    lowest, end = byte_bounds(array)
    lo, hi = max(run[0], lowest), min(run[1], end)
    if lo >= hi:
        return None
    # From the axis with the largest stride on, so that the bytes between two elements belong to the first one.
    axes = sorted(
        (axis for axis in range(array.ndim) if array.shape[axis] > 1), key=lambda axis: -abs(array.strides[axis])
    )
    first, last = _index_at(array, axes, lo - lowest), _index_at(array, axes, hi - 1 - lowest)
    box = [(0, 1)] * array.ndim
    is_open = False
    for axis in axes:
        n, backwards = array.shape[axis], array.strides[axis] < 0
        if is_open:
            box[axis] = 0, n
            continue
        a, b = first[axis], last[axis]
        is_open = a != b
        box[axis] = (n - 1 - b, n - a) if backwards else (a, b + 1)
    return box


def _index_at(array: np.ndarray[Any, Any], axes: list[int], offset: int) -> dict[int, int]:
    """Return the position, along each axis, of the byte at an offset from the lowest one; all strides count upwards."""
    index = {}
    for axis in axes:
        stride = abs(array.strides[axis])
        index[axis] = min(offset // stride, array.shape[axis] - 1) if stride else 0
        offset -= index[axis] * stride
    return index


def plain_name(label: str) -> str:
    """Return the name in the label of a list item: ``x`` for ``x[0:50]`` and ``x: float64[100]``."""
    if is_description(label):
        return label
    return label.partition(": ")[0].partition("[")[0]


def assigned_at(side: Side) -> str:
    """Return the variable that a side's line assigns first; an empty name if it assigns none."""
    found = _ASSIGNED.match(source_line(side))
    return "" if found is None else found[1]


_ASSIGNED = re.compile(r"((?:\w+\.)*\w+)(?:\s*,[\w\s,.]*)?\s*(?::[^=]*)?=(?!=)")


def names_device(side: Side) -> bool:
    """Tell whether a side's line has a ``device`` clause."""
    return _DEVICE.search(source_line(side)) is not None


_DEVICE = re.compile(r"\bdevice\s*=")


def argument_of(label: str, task: Any) -> str:
    """Return the parameter that the label of an implicit item means, as ``argument 0: float64[8]``; else empty."""
    found = _ARGUMENT.match(label)
    if found is None:
        return ""
    at, code = found[1].strip("'"), getattr(getattr(task, "body", None), "__code__", None)
    if not at.isdecimal():
        return at
    return code.co_varnames[int(at)] if code is not None and int(at) < code.co_argcount else ""


_ARGUMENT = re.compile(r"argument ([\w']+)")


def is_description(label: str) -> bool:
    """Tell whether a label only describes an array, as ``float64[100]`` does."""
    return _DESCRIPTION.fullmatch(label) is not None


_DESCRIPTION = re.compile(
    r"argument [\w']+(: .*)?|(bool|bytes|str|void|datetime|timedelta|u?int|float|complex)\d*\[[\d, ]*\]"
)
