"""`copy`: a whole array to another, wherever the two are, by the rectangular copy of `offload.constructs.copying`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

import numpy as np

from offload.arrays.foreign import type_of
from offload.arrays.items import array_section, label
from offload.constructs import copying
from offload.errors import ClauseError
from offload.runtime.current import for_finalizers, here
from offload.runtime.sites import call_site

if TYPE_CHECKING:
    from typing import Literal

    from offload.constructs.clauses.signatures import Depends
    from offload.runtime.place import DevicePlace
    from offload.runtime.runtime import Runtime
    from offload.tasks.task import Task


@overload
def copy(dst: Any, src: Any, *, depend: Depends | None = (), nowait: Literal[True]) -> Task[None]: ...
@overload
def copy(dst: Any, src: Any, *, depend: Depends | None = (), nowait: Literal[False] = False) -> None: ...
@overload
def copy(dst: Any, src: Any, *, depend: Depends | None = (), nowait: bool) -> Task[None] | None: ...
@for_finalizers
def copy(dst: Any, src: Any, *, depend: Depends | None = (), nowait: bool = False) -> Task[None] | None:
    """Copy all elements of an array to another, each on the host or any device.

    Parameters
    ----------
    dst, src : array
        Host arrays, device arrays, or views of either, with any strides. Both need the same shape and dtype; nothing is
        broadcast or converted. The arrays determine the devices.
    depend : list of dependences
        Dependences as in `target_update`; none by default. offload issues a `DirectiveWarning` if `in_` alone names
        ``dst``.
    nowait : bool
        True: a deferred task. The arguments are checked at the call, and the elements are copied when the task runs.
        Until then, do not write ``src`` or use ``dst``.

    Returns
    -------
    Task or None
        The task, with ``nowait``.

    Raises
    ------
    ClauseError
        An argument is not an array, or its device is not of this runtime. Shapes or dtypes differ. The arrays share
        memory, or ``dst`` is ``src``. The destination is read-only, or its elements share memory. An array is masked, a
        matrix, or holds Python objects.
    DependError
        An item of ``depend`` is not a dependence.
    RegionClosedError
        The storage of a device array has been released.
    UnsupportedError
        The arrays are on two kinds of devices.

    Notes
    -----
    Without ``nowait``, the call blocks until the copy is done. It makes one rectangular copy; the host packs only data
    that the device cannot copy directly. It copies bytes, including the padding of structured dtypes, as
    ``target_memcpy_rect`` does (OpenMP 5.2, 18.8.6 "omp_target_memcpy_rect"). Views take the place of its offsets and
    dimensions.

    Examples
    --------
    >>> a, d = np.arange(6.0).reshape(2, 3), omp.target_alloc(2, np.float64)
    >>> omp.copy(d, a[:, 1])  # the second column, to the device
    >>> d.get()
    array([1., 4.])
    >>> omp.target_free(d)
    """
    scope = here()
    given = dst, src
    (dst, to), (src, at) = _checked(scope.runtime, dst, "dst"), _checked(scope.runtime, src, "src")
    if dst.shape != src.shape or type_of(given[0], dst) != type_of(given[1], src):
        what, do = ("dtypes", "convert one") if dst.shape == src.shape else ("shapes", "name the parts that fit")
        raise ClauseError(
            f"copy: dst is {label(dst)} and src is {label(src)}; the {what} must be equal; {do}, or use target_memcpy, "
            "which counts bytes"
        )
    dst, src = copying.uninterpreted(dst, src)
    recipe = copying.copy_recipe(call_site("copy", scope.runtime, 1), dst, src, to, at)
    task = copying.encounter_copy(scope, recipe, () if depend is None else depend, bool(nowait), dst)
    return task if nowait else None


def _checked(runtime: Runtime, array: Any, side: str) -> tuple[Any, DevicePlace | None]:
    """Return an array of the host as a plain one, a device's as it is, and its place."""
    if isinstance(array, np.ndarray) and array.__class__ is not np.ndarray:
        array_section(array)  # refuses masked arrays, whose mask would stay behind, and matrices
    return copying.check_side(runtime, array, None, side, "copy")
