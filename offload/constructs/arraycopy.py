"""`copy`: a whole array to another, wherever the two are, by the rectangular copy of `offload.constructs.copying`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from offload.arrays.items import array_section, label
from offload.constructs import copying
from offload.errors import ClauseError
from offload.runtime.current import current_runtime, for_finalizers

if TYPE_CHECKING:
    from offload.runtime.place import DevicePlace
    from offload.tasks.task import Task


@for_finalizers
def copy(dst: Any, src: Any, *, depend: Any = (), nowait: bool = False) -> Task | None:
    """Copy all elements of an array to another, each on the host or any device.

    Parameters
    ----------
    dst, src : array
        Host arrays, device arrays, or views of either, any strides, of one shape and one dtype: nothing is broadcast
        and nothing converted. An array says where it is.
    depend : list of dependences
        As for `target_update`; none by default. ``dst`` named by `in_` only is a `DirectiveWarning`.
    nowait : bool
        A deferred task: the arguments are checked at the call, the elements copied when the task runs. ``src`` is
        not to be written until then, nor ``dst`` used.

    Returns
    -------
    Task or None
        The task, with ``nowait``.

    Raises
    ------
    ClauseError
        What is no array, or of no device of this runtime; shapes or dtypes that differ; arrays that share a byte, also
        where ``dst`` is ``src``; a destination that is read-only or has elements that share memory; masked arrays,
        matrices, Python objects.
    DependError
        An item of ``depend`` is no dependence.
    RegionClosedError
        The storage of a device array has gone back.
    UnsupportedError
        The arrays are on devices of two kinds.

    Notes
    -----
    *Blocks* without ``nowait`` until the copy is done. *Costs* one rectangular copy; the host packs nothing that the
    device can copy as it is. It moves bytes, padding of structured dtypes included, as ``target_memcpy_rect`` of OpenMP
    5.2, 18.8.6 "omp_target_memcpy_rect" does, whose offsets and dimensions the views stand for.
    """
    (dst, to), (src, at) = _checked(dst, "dst"), _checked(src, "src")
    if dst.shape != src.shape or dst.dtype != src.dtype:
        what, do = ("dtypes", "convert one") if dst.shape == src.shape else ("shapes", "name the parts that fit")
        raise ClauseError(
            f"copy: dst is {label(dst)} and src is {label(src)}; the {what} must be equal; {do}, or use target_memcpy, "
            "which counts bytes"
        )
    dst, src = copying.uninterpreted(dst, src)
    task = copying.copy("copy", dst, src, () if depend is None else depend, deferred=bool(nowait), places=(to, at))
    return task if nowait else None


def _checked(array: Any, side: str) -> tuple[Any, DevicePlace | None]:
    """Return an array of the host as a plain one, a device's as it is, and its place."""
    if isinstance(array, np.ndarray) and type(array) is not np.ndarray:
        array_section(array)  # refuses masked arrays, whose mask would stay behind, and matrices
    return copying.check_side(current_runtime(), array, None, side, "copy")
