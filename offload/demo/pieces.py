"""Into which pieces a field is cut, so that they suit the link and their buffers fit the device."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from offload.errors import ClauseError, DeviceMemoryError

if TYPE_CHECKING:
    from offload.devices.base import Device

PIECE_NBYTES = 32 << 20
"""Bytes of a piece of a large field. Copies of 16 MB and more run at the link's best; 32 MB measured best."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """How a slab of ``shape`` is cut: into ``planes`` groups along z, then ``rows`` along y and ``pencils`` along x."""

    shape: tuple[int, int, int]
    planes: int
    rows: int
    pencils: int

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

    Parameters
    ----------
    shape : tuple of int
        Elements along z, y, x.
    itemsize : int
        Bytes of an element.
    device : Device
        Where the buffers will be.
    buffers : int
        How many pieces are on the device at a time.
    planes : int, optional
        Planes of a group in the first pass; the second takes rows of about the same bytes.
    pencils : int, optional
        Pencils along x of the second pass; the first takes about as many groups of planes.

    Raises
    ------
    ClauseError
        More planes or pencils than there are.
    DeviceMemoryError
        The buffers do not fit.
    """
    nz, ny, nx = shape
    free_nbytes, total_nbytes = device.memory_info()
    if pencils is not None:
        if not 1 <= pencils <= nx:
            raise ClauseError(f"--pencils {pencils}: the field has {nx} columns along x; take 1 to {nx} pencils")
        pieces = Pieces(shape, min(pencils, nz), 1, pencils)
    elif planes is not None:
        if not 1 <= planes <= nz:
            raise ClauseError(f"--planes {planes}: the field has {nz} planes along z; take groups of 1 to {nz}")
        pieces = Pieces(shape, -(-nz // planes), _count(ny, planes * ny // nz), 1)
    else:
        works = (
            2 if device.kind == "cuda" else 0
        )  # cuFFT takes up to a buffer's size of work area a plan, for both passes
        most_nbytes = free_nbytes // (buffers * (1 + works))
        piece = min(PIECE_NBYTES, math.prod(shape) * itemsize // (2 * buffers), most_nbytes) // itemsize
        pieces = Pieces(shape, _count(nz, piece // (ny * nx)), _count(ny, piece // (nz * nx)), 1)
    needed_nbytes = buffers * pieces.largest * itemsize
    if needed_nbytes > free_nbytes:
        raise DeviceMemoryError(
            f"{buffers} buffers of {pieces.largest * itemsize:,} bytes need {needed_nbytes:,} bytes of memory on "
            f"{device.name}, {free_nbytes:,} of {total_nbytes:,} are free; take smaller pieces (--planes 1, more "
            "--pencils), fewer --buffers, or a device with more memory",
            needed_nbytes,
            free_nbytes,
        )
    return pieces


def _count(length: int, each: int) -> int:
    """Return how many pieces of at most ``each``, or 1, make up ``length``."""
    return -(-length // min(length, max(1, each)))
