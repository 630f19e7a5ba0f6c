"""References for a transform: another library's, and sums written out, which share no code with any library."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from offload.errors import ClauseError

if TYPE_CHECKING:
    from collections.abc import Callable

    Array = np.ndarray[Any, Any]

# Values of the transform that are summed directly. The simulated device calls the same library as `reference`.
N_SUMS = 8


@dataclass(frozen=True, slots=True)
class Expected:
    """The transform of a field: all of it by a library, and ``sums[i]`` at ``places[i]`` by direct summation."""

    transform: Array
    places: Array
    sums: Array

    def relative_error(self, slab: Array) -> float:
        """Return max |difference| / max |expected|, from the library or the sums; NaN if one of the values is."""
        pairs = zip(slab, self.transform, strict=True)
        with np.errstate(invalid="ignore", over="ignore"):  # of values that are not finite; they are told
            scale = float(np.max([np.abs(plane).max() for plane in self.transform]))
            worst = float(np.max([np.abs(plane - right).max() for plane, right in pairs]))
            apart = float(np.abs(slab[tuple(self.places.T)] - self.sums).max())
        error = float(np.max([worst, apart]))  # NaN, if one is
        return error / scale if scale else error


def reference(source: Any, shape: tuple[int, ...], load: Callable[[Array, Any], None]) -> Expected:
    """Return the transform of a field in double precision; raise `ClauseError` if memory is short."""
    nbytes = source.size * 16 * (1 if library() == "scipy.fft" else 2)
    physical_nbytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        if nbytes > physical_nbytes:
            raise MemoryError  # noqa: TRY301  # told below, with NumPy's
        whole = np.empty(shape, np.complex128)
        with np.errstate(all="ignore"):  # as in `Expected.relative_error`
            load(whole, source)
            places = np.random.default_rng(0).integers(0, whole.shape, (N_SUMS, 3))
            sums = sums_at(places, whole, (0, 0, 0), whole.shape)
            whole = transform(whole)
    except MemoryError as error:
        raise ClauseError(
            f"--verify takes {nbytes:,} bytes of host memory for the reference in double precision; this machine has "
            f"{physical_nbytes:,}: transform a smaller field, or leave --verify out"
        ) from error
    return Expected(whole, places, sums)


def library() -> str:
    """Return the name of the library that `reference` calls."""
    return "scipy.fft" if find_spec("scipy") else "numpy.fft"


def transform(whole: Array, *, inverse: bool = False) -> Array:
    """Return the transform by the library, which may overwrite the array."""
    if library() == "numpy.fft":
        return (np.fft.ifftn if inverse else np.fft.fftn)(whole)
    from scipy import fft

    found: Array = (fft.ifftn if inverse else fft.fftn)(whole, overwrite_x=True, workers=-1)
    return found


def sums_at(
    places: Array, part: Array, start: tuple[int, ...], shape: tuple[int, ...], *, inverse: bool = False
) -> Array:
    """Return the contribution of the part of a field from ``start`` to its transform at some places, in complex128."""
    sign = 1 if inverse else -1
    # The product modulo the length first, so that the angles keep all digits.
    z, y, x = (
        np.exp(sign * 2j * np.pi / n * (np.outer(np.arange(low, low + many), places[:, axis]) % n))
        for axis, (low, many, n) in enumerate(zip(start, part.shape, shape, strict=True))
    )
    sums = np.zeros(len(places), np.complex128)
    for plane, factors in zip(part, z, strict=True):
        sums += factors * ((plane @ x) * y).sum(axis=0)
    return sums / math.prod(shape) if inverse else sums
