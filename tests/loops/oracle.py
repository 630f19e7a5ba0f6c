"""What CPython makes of a loop function: the oracle of generated programs."""

from __future__ import annotations

import linecache
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class Program:
    """A loop function ``f``, its clauses and its arguments.

    Attributes
    ----------
    private : list of str
        Arrays of each iteration, which have no contents afterwards.
    inexact : set of str
        Arrays that hold results of library functions.
    products : set of str
        Products of complex numbers, arrays or returned values: a chunk starts from 1, which changes the sign of zeros.
    """

    text: str
    arguments: dict[str, Any]
    collapse: int
    reductions: list[tuple[str, str]] = field(default_factory=list)
    atomic: list[str] = field(default_factory=list)
    lastprivate: list[str] = field(default_factory=list)
    private: list[str] = field(default_factory=list)
    inexact: set[str] = field(default_factory=set)
    products: set[str] = field(default_factory=set)

    def function(self) -> Any:
        """Return ``f``."""
        return function_of_text(self.text)

    def expected(self) -> tuple[Any, dict[str, Any]]:
        """Return what CPython returns, and the arguments afterwards."""
        arguments = copy_of(self.arguments)
        with np.errstate(all="ignore"):
            returned = self.function()(**arguments)
        return returned, arguments

    def check(self, returned: Any, arguments: dict[str, Any]) -> None:
        """Compare what a form returned, and left in the arguments, with CPython's.

        Raises
        ------
        AssertionError
            They differ; the program is a note.
        """
        try:
            expected, left = self.expected()
            for name, values in left.items():
                if isinstance(values, np.ndarray) and name not in self.private:
                    added = 0 if name in self.products else None
                    compare(*_with(added, arguments[name], values), name, exact=name not in self.inexact)
            many = isinstance(expected, tuple)
            for k, (a, b) in enumerate(zip(*([returned, expected] if many else [[returned], [expected]]), strict=True)):
                if expected is not None:
                    added = 0 if self.products else None
                    compare(*_with(added, np.asarray(a), np.asarray(b)), f"returned value {k}", exact=True)
                    if isinstance(b, np.generic):  # ours is the join over all assignments, carried out or not
                        assert np.promote_types(np.asarray(a).dtype, b.dtype) == np.asarray(a).dtype, (
                            f"returned type {k}"
                        )
        except AssertionError as error:
            error.add_note(self.text)
            error.add_note(f"collapse={self.collapse} reductions={self.reductions} atomic={self.atomic}")
            raise


def function_of_text(text: str) -> Any:
    """Return the function ``f`` of a text, whose source the standard library finds."""
    file = f"<program {hash(text)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {"__name__": "program"}
    exec(compile(text, file, "exec"), namespace)
    return namespace["f"]


def _with(added: int | None, *values: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return values to which zero is added, which makes zeros positive, or the values as they are."""
    return values if added is None else tuple(value + added for value in values)


def compare(got: np.ndarray, expected: np.ndarray, name: str, *, exact: bool, ulps: int = 4) -> None:
    """Compare bit for bit (NaN with NaN), or to 4 units in the last place, of complex numbers to 8 in each part."""
    if expected.dtype.kind == "c":
        assert got.dtype.kind == "c", f"{name}: {got.dtype}"
        compare(got.real, expected.real, f"{name}.real", exact=exact, ulps=8)
        # C leaves the sign of an infinity open next to a NaN, as in the root of -inf + nan i: it is that of the NaN.
        is_open = np.isnan(got.real) & np.isnan(expected.real) & np.isinf(got.imag) & np.isinf(expected.imag)
        compare(np.where(is_open, expected.imag, got.imag), expected.imag, f"{name}.imag", exact=exact, ulps=8)
        return
    if expected.dtype.kind != "f":
        assert np.array_equal(got, expected), f"{name}: {got.tolist()} instead of {expected.tolist()}"
        return
    got = got.astype(expected.dtype)
    same = (np.isnan(got) & np.isnan(expected)) | ((got == expected) & (np.signbit(got) == np.signbit(expected)))
    if not exact:
        with np.errstate(all="ignore"):
            same |= np.abs(got - expected) <= ulps * np.spacing(np.abs(expected))
    assert same.all(), f"{name}: {got.tolist()} instead of {expected.tolist()}"


def copy_of(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments with arrays of their own, of the same strides."""
    return {n: _copied(v) if isinstance(v, np.ndarray) else v for n, v in arguments.items()}


def _copied(view: np.ndarray) -> np.ndarray:
    """Return an array of the same strides; what lies between its elements is copied with them."""
    if view.base is None:
        return view.copy(order="K")
    base = view.base.copy(order="K")
    offset = view.ctypes.data - view.base.ctypes.data
    return np.ndarray(view.shape, view.dtype, base, offset, view.strides)
