"""How the cases of this directory look at data: on the device, and at its counters, without moving anything."""

from __future__ import annotations

import numpy as np

from offload import acc
from offload.arrays.items import array_section


def increment(*arrays):
    """Add 1, where the body runs."""
    for array in arrays:
        array[...] += 1


def fill(d, value):
    """Fill a device array, in a region that is complete on return."""
    acc.parallel(deviceptr=["d"])(lambda d, value: d.fill(value))(d, value)


def bump(*arrays):
    """Add 1 to arrays that are present, on the device alone."""
    acc.parallel(present=[*arrays])(increment)(*arrays)


def on_device(a, **where):
    """Return the values that the device has for a host array."""
    d = acc.deviceptr(a, **where)
    assert d is not None, "not present"
    return d.copy() if isinstance(d, np.ndarray) else d.get()


def counters(runtime, a, device=0):
    """Return the structured and the dynamic counter of an array's data, both 0 where it is absent."""
    entry, _ = runtime.places[device].table.search(array_section(a))
    return (0, 0) if entry is None else (entry.structured, entry.dynamic)
