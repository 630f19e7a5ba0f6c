"""The field of ``offload demo fft3d``: from a file or made, and the checks of its options."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from offload.cli.demo.npy import open_field, unwritable
from offload.errors import ClauseError, UnsupportedError
from offload.views.files import writer_for

if TYPE_CHECKING:
    import argparse

    Array = np.ndarray[Any, Any]

SHAPE = (64, 512, 512)  # of the generated field: 128 MB as complex64
LARGE_NBYTES = 256 << 20  # From here on a form is run once

_LOAD_NBYTES = 64 << 20  # read at a time


def check(args: argparse.Namespace) -> None:
    """Check everything that does not need the device, before any work."""
    for name, low in (("buffers", 1), ("repeat", 1)):
        value = getattr(args, name)
        if value is not None and value < low:
            raise ClauseError(f"--{name} {value}: use a number of at least {low}")
    if not args.mpi and (args.grid or args.inverse):
        raise ClauseError(
            f"{'--grid' if args.grid else '--inverse'} applies only to the transform over ranks; add --mpi"
        )
    if args.graph == "-" and args.json:
        raise ClauseError("--graph - and --json both write to standard output; give --graph a file name")
    if args.graph and args.graph != "-":
        path = Path(args.graph)
        try:
            writer_for(path)
        except UnsupportedError as error:
            raise ClauseError(f"--graph {args.graph}: {error}, or - for the terminal") from None
        if (why := unwritable(Path(os.path.realpath(path)))) is not None:
            raise ClauseError(f"--graph {args.graph} {why}")


class _TaylorGreen:
    """The z-component of velocity of a Taylor-Green vortex over one period: ``cos(x) cos(y) sin(z)``, float32."""

    dtype = np.dtype(np.float32)
    ndim = 3

    def __init__(self, shape: tuple[int, int, int]) -> None:
        self.shape = shape  # along z, y, x
        self.size = shape[0] * shape[1] * shape[2]
        self._factors: tuple[Array, Array] | None = None  # made when it is sure that a field of this shape has room

    def __getitem__(self, box: tuple[slice, ...]) -> Array:
        if self._factors is None:
            z, y, x = (2 * np.pi * np.arange(length) / length for length in self.shape)
            plane = np.outer(np.cos(y).astype(np.float32), np.cos(x).astype(np.float32))
            # A value is a product of a number for its plane and one for its place in the plane.
            self._factors = np.sin(z).astype(np.float32), plane
        return self._factors[0][box[0], None, None] * self._factors[1][box[1:]]


def source_of(args: argparse.Namespace) -> Any:
    """Return the field, which is not in memory yet: an array in a file, or a function that makes one."""
    shape = _shape(args.shape) if args.shape else None
    if args.input is None:
        return _TaylorGreen(shape or SHAPE)
    found = open_field(args.input)
    if shape is not None and shape != found.shape:
        raise ClauseError(f"--shape {args.shape}: {args.input} has the shape {found.shape}; leave --shape out")
    return found


def _shape(text: str) -> tuple[int, int, int]:
    try:
        nz, ny, nx = (int(part) for part in text.split(","))
    except ValueError:
        nz = ny = nx = 0
    if min(nz, ny, nx) < 1:
        raise ClauseError(f"--shape {text}: write three numbers of at least 1, as in --shape 64,512,512")
    return nz, ny, nx


def load(slab: Array, source: Any) -> None:
    """Convert the field into the slab, in chunks that lie together in the file."""
    flags = getattr(source, "flags", None)
    axis = 2 if flags is not None and flags.f_contiguous and not flags.c_contiguous else 0
    length = slab.shape[axis]
    step = max(1, _LOAD_NBYTES * length // slab.nbytes)
    for low in range(0, length, step):
        box = (slice(None),) * axis + (slice(low, low + step),) + (slice(None),) * (2 - axis)
        slab[box] = source[box]
