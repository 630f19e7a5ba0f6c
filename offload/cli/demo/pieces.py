"""Into which pieces a field is cut, so that they suit the link and their buffers fit the device."""

from __future__ import annotations

import math
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING

from offload.errors import ClauseError, DeviceMemoryError

if TYPE_CHECKING:
    from offload.devices.base import Device

# Bytes of a piece of a large field. Copies of 16 MB and more run at the link's best; 32 MB measured best.
PIECE_NBYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Pieces:
    """How a slab of ``shape`` is cut: into ``planes`` groups along z, then ``rows`` along y and ``pencils`` along x."""

    shape: tuple[int, int, int]  # elements along z, y, x
    planes: int  # groups along z, of the first pass
    rows: int  # groups along y, of the second pass
    pencils: int  # groups along x, of the second pass

    @property
    def counts(self) -> tuple[int, int]:
        """Number of pieces of either pass."""
        return self.planes, self.rows * self.pencils

    @property
    def largest(self) -> int:
        """Elements of the largest piece."""
        nz, ny, nx = self.shape
        return max(-(-nz // self.planes) * ny * nx, nz * -(-ny // self.rows) * -(-nx // self.pencils))


def cut(
    shape: tuple[int, int, int],
    itemsize: int,
    device: Device,
    *,
    buffers: int,
    planes: int | None = None,
    pencils: int | None = None,
) -> Pieces:
    """Choose the pieces: as asked for, or by default whole planes and rows.

    ``shape`` has the elements along z, y, x. ``buffers`` pieces are on the device at a time. ``planes`` is the size of
    a group in the first pass; the second takes rows of about the same bytes. ``pencils`` along x are for the second
    pass; the first takes about as many groups of planes. Raise `ClauseError` if there are fewer planes or pencils, and
    `DeviceMemoryError` if the buffers do not fit.
    """
    nz, ny, nx = shape
    free_nbytes, total_nbytes = device.memory_info()
    if pencils is not None:
        if not 1 <= pencils <= nx:
            raise ClauseError(f"--pencils {pencils}: the field has {nx} columns along x; use 1 to {nx} pencils")
        pieces = _in_pencils(shape, pencils)
    elif planes is not None:
        if not 1 <= planes <= nz:
            raise ClauseError(f"--planes {planes}: the field has {nz} planes along z; use groups of 1 to {nz}")
        pieces = _in_planes(shape, planes)
    else:
        # Pieces suit the link, but leave at least two for each buffer, and fit the device.
        most_nbytes = free_nbytes // (buffers * _parts(device))
        piece = min(PIECE_NBYTES, math.prod(shape) * itemsize // (2 * buffers), most_nbytes) // itemsize
        pieces = Pieces(shape, _count(nz, piece // (ny * nx)), _count(ny, piece // (nz * nx)), 1)
    needed_nbytes = buffers * pieces.largest * itemsize
    if needed_nbytes > free_nbytes:
        raise DeviceMemoryError(
            f"{_buffers(buffers)} of {pieces.largest * itemsize:,} bytes need {needed_nbytes:,} bytes of memory on "
            f"{device.name}, but {free_nbytes:,} of {total_nbytes:,} are free; "
            f"{advise(shape, itemsize, device, buffers, free_nbytes)}",
            needed_nbytes,
            free_nbytes,
        )
    return pieces


def advise(shape: tuple[int, int, int], itemsize: int, device: Device, buffers: int, free_nbytes: int) -> str:
    """Return which options would make the buffers fit into so many bytes, or how many bytes it takes."""
    nz, _, nx = shape
    most = free_nbytes // (itemsize * _parts(device))
    # The largest pieces that fit, of sizes halved again and again: whole planes first, which lie together.
    cuts = [(f"--planes {k}", _in_planes(shape, k)) for k in _halves(nz)]
    cuts += [(f"--pencils {k}", _in_pencils(shape, k)) for k in reversed(_halves(nx))]
    smallest = min(((one.largest, option) for option, one in cuts), key=itemgetter(0))
    for count in (buffers, *range(buffers - 1, 0, -1)):
        for option, one in cuts:
            if count * one.largest <= most:
                fewer = "" if count == buffers else f" --buffers {count}"
                return f"{option}{fewer} would fit: {_buffers(count)} of {one.largest * itemsize:,} bytes"
    needs = smallest[0] * itemsize
    return (
        f"the smallest piece ({smallest[1]}) takes {needs:,} bytes, so {_buffers(buffers)} "
        f"{'needs' if buffers == 1 else 'need'} {buffers * needs * _parts(device):,}, and --buffers 1 "
        f"{needs * _parts(device):,}: use a device with that much memory (or a higher --device-memory)"
    )


def _in_planes(shape: tuple[int, int, int], planes: int) -> Pieces:
    nz, ny, _ = shape
    return Pieces(shape, -(-nz // planes), _count(ny, planes * ny // nz), 1)


def _in_pencils(shape: tuple[int, int, int], pencils: int) -> Pieces:
    return Pieces(shape, min(pencils, shape[0]), 1, pencils)


def _parts(device: Device) -> int:
    """Return how many times the bytes of a buffer it takes: cuFFT has up to as much of work area, for each pass."""
    return 3 if device.kind == "cuda" else 1


def _buffers(count: int) -> str:
    return "1 buffer" if count == 1 else f"{count} buffers"


def _halves(number: int) -> list[int]:
    """Return a number, its half, …, 1."""
    return [number >> shift for shift in range(number.bit_length())]


def _count(length: int, each: int) -> int:
    """Return how many pieces of at most ``each``, or 1, make up ``length``."""
    return -(-length // min(length, max(1, each)))
