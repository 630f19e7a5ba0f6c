"""Fields in ``.npy`` files: checked before anything is done with them, mapped rather than read; written all or not."""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.lib import format as npy

from offload.errors import ClauseError

if TYPE_CHECKING:
    from collections.abc import Iterator

    Array = np.ndarray[Any, Any]

# The type of the transform, by kind and bytes of the input.
_RESULTS = {
    "f2": np.complex64,
    "f4": np.complex64,
    "c8": np.complex64,
    "f8": np.complex128,
    "c16": np.complex128,
}


def open_field(path: str) -> Array:
    """Map a 3-D field of floats or complex numbers for reading, in the order and byte order that it has.

    Raise `ClauseError` if there is no such file, or it is no ``.npy`` file, is truncated, or has other contents.
    """
    where = f"--input {path}"
    wanted = "name a .npy file with a 3-D array of floats or complex numbers"
    if not Path(path).exists():
        raise ClauseError(f"{where}: there is no such file; {wanted}")
    if not Path(path).is_file():
        raise ClauseError(f"{where} is not a regular file; {wanted}")
    try:
        with Path(path).open("rb") as file:
            shape, fortran_order, dtype = _read_header(file, where)
            offset, size = file.tell(), os.fstat(file.fileno()).st_size
    except OSError as error:
        raise ClauseError(f"{where} cannot be read: {error.strerror or error}; check its permissions") from error
    result_dtype(dtype, where)
    if len(shape) != 3:
        raise ClauseError(f"{where} has {len(shape)} dimensions, {shape}; the transform takes 3: reshape and save it")
    if any(length < 0 for length in shape):
        raise ClauseError(f"{where}: its header is damaged (shape {shape}); copy or write it again")
    if 0 in shape:
        raise ClauseError(f"{where} has shape {shape}, which has no elements; give a field with at least one element")
    nbytes = math.prod(shape) * dtype.itemsize
    if size < offset + nbytes:
        raise ClauseError(
            f"{where} is truncated: its header promises {nbytes:,} bytes of {dtype}{list(shape)}, but the file has "
            f"{size - offset:,}; copy or write it again"
        )
    return np.memmap(path, dtype, "r", offset, shape, "F" if fortran_order else "C")


def result_dtype(dtype: np.dtype[Any], where: str) -> np.dtype[Any]:
    """Return complex64 for data of up to 32 bits a number, complex128 for 64; raise `ClauseError` for other kinds."""
    result = _RESULTS.get(f"{dtype.kind}{dtype.itemsize}")
    if result is not None:
        return np.dtype(result)
    advice = {
        "f": "convert it with .astype('f8')",
        "c": "convert it with .astype('c16')",
        **dict.fromkeys("biu", "convert it with .astype('f4') or .astype('f8')"),
    }.get(dtype.kind, "save numbers")
    raise ClauseError(
        f"{where} holds {_KINDS.get(dtype.kind, 'data')} ({dtype}); the transform takes "
        f"floats of 16, 32 or 64 bits and complex numbers of those: {advice}"
    )


# What messages call the kinds that are refused.
_KINDS = {
    **dict.fromkeys("USTa", "strings"),
    **dict.fromkeys("iu", "integers"),
    **dict.fromkeys("fc", "long doubles"),
    **dict.fromkeys("Mm", "dates"),
    "O": "Python objects",
    "V": "records",
    "b": "booleans",
}


def _read_header(file: BinaryIO, where: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    try:
        version = npy.read_magic(file)
    except ValueError as error:
        raise ClauseError(f"{where} is not a .npy file; write it with numpy.save") from error
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    if version not in readers:
        number = ".".join(map(str, version))
        raise ClauseError(f"{where}: version {number} of .npy is not for plain numbers; write it with numpy.save")
    try:
        shape, fortran_order, dtype = readers[version](file)
    except Exception as error:  # NumPy evaluates the header's text: what a damaged one raises is open
        raise ClauseError(f"{where}: its header is damaged ({error!r:.200}); copy or write it again") from error
    return shape, fortran_order, dtype


class Output:
    """A ``.npy`` file in the making, beside the one that it will replace."""

    def __init__(self, where: str, path: Path, part: Path, file: BinaryIO) -> None:
        self._where = where  # the option, for messages
        self._path = path  # the file that it becomes
        self._part = part  # the file that is written
        self._file = file  # that one, open; closed once it is published

    def save(self, array: Array) -> None:
        """Write a C-ordered array and put the file in its place.

        Raise `ClauseError` if the system refuses, for example because the disk is full; the old file then stays.
        """
        with self._telling():
            npy.write_array(self._file, array, allow_pickle=False)
            self._publish()

    def begin(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[str, int]:
        """Write the header; return the file to write the elements to, and the offset of the first.

        Raises as `save`.
        """
        with self._telling():
            header = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
            npy.write_array_header_1_0(self._file, header)
            offset = self._file.tell()
            # Its whole length, so that ranks can write anywhere in it.
            self._file.truncate(offset + math.prod(shape) * dtype.itemsize)
            self._file.flush()
            return str(self._part), offset

    def publish(self) -> None:
        """Put the file in its place, once all elements are written. Raises as `save`."""
        with self._telling():
            self._publish()

    def _publish(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())  # else a crash could leave an empty file in place of the old one
        self._file.close()
        self._part.replace(self._path)

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            with contextlib.suppress(OSError):
                self._file.close()  # what is in its buffer does not fit either
            raise ClauseError(
                f"{self._where} cannot be written: {error.strerror or error} in {str(self._path.parent)!r}; "
                "name a file elsewhere"
            ) from error


def write_box(path: str, offset: int, shape: tuple[int, int, int], box: tuple[slice, ...], array: Array) -> None:
    """Write a rank's box of an array into the file that `Output.begin` has made, where others write theirs."""
    # Writes, unlike a map, do not overwrite the neighbours' bytes on machines that share a file system.
    z, y, x = box
    item = array.itemsize
    with Path(path).open("r+b", buffering=0) as file:
        for plane, values in zip(range(z.start, z.stop), array, strict=True):
            # A plane of whole rows is one run of the file.
            rows = [values] if x.stop - x.start == shape[2] else values
            for row, run in enumerate(rows, y.start):
                file.seek(offset + ((plane * shape[1] + row) * shape[2] + x.start) * item)
                left = memoryview(run.tobytes())
                while left:  # an unbuffered write may take less than it is given
                    left = left[file.write(left) :]
        os.fsync(file.fileno())


def unwritable(target: Path) -> str | None:
    """Return why a file cannot be made or replaced, or None if nothing is known to prevent it."""
    parent = target.parent
    if target.exists() and not target.is_file():
        return "exists and is not a regular file; name a file"
    if target.exists() and not os.access(target, os.W_OK):
        return "is read-only; name another file, or make it writable"
    if not parent.is_dir():
        return f"cannot be written: {str(parent)!r} is not a directory; create it, or name a file elsewhere"
    if not os.access(parent, os.W_OK | os.X_OK):
        return f"cannot be written: {str(parent)!r} is read-only; name a file elsewhere"
    return None


@contextlib.contextmanager
def reserve_output(path: str, nbytes: int) -> Iterator[Output]:
    """Create the file for an output, in the same directory; remove it at the end unless it is saved.

    Raise `ClauseError` if the output cannot be written, or there is no space for its ``nbytes`` bytes.
    """
    where = f"--output {path}"
    target = Path(os.path.realpath(path))  # replace what a link points to, not the link
    if (why := unwritable(target)) is not None:
        raise ClauseError(f"{where} {why}")
    # Not tempfile: it makes files private, and the umask cannot be read without changing it for all threads.
    part = target.with_name(f".{target.name[:64]}.{os.getpid()}-{secrets.token_hex(4)}.part")
    try:
        file = part.open("xb")
    except OSError as error:
        raise ClauseError(
            f"{where} cannot be written: {error.strerror or error} in {str(target.parent)!r}; name a file elsewhere"
        ) from error
    try:
        with file:
            free_nbytes = shutil.disk_usage(target.parent).free
            if free_nbytes < nbytes:
                raise ClauseError(
                    f"{where} needs {nbytes:,} bytes, but only {free_nbytes:,} are free in {str(target.parent)!r}; "
                    "name a file elsewhere"
                )
            yield Output(where, target, part, file)
    finally:
        part.unlink(missing_ok=True)
