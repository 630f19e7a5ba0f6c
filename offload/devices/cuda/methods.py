"""The choice of a method for a strided copy between pinned memory and a CUDA device, by measurements.

The geometry is that of `offload.arrays.copies`. The rates are those of an H200 with PCIe 5.0 x16 (CUDA 13.0), and are
taken for those of every CUDA device.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from offload.arrays.copies import hull, n_calls, run_of

if TYPE_CHECKING:
    from offload.arrays.boxes import Box

# Bytes a second for rows of so many bytes, half of the pitch.
_PACKED_RATE = 50e9
_CALLS_RATES = (
    {8: 4.2e9, 16: 10.2e9, 32: 20.8e9, 64: 35e9, 128: 49.5e9, 256: 54.5e9},  # to the device
    {8: 6.3e9, 16: 12.3e9, 32: 18.7e9, 64: 44e9, 128: 51.5e9, 256: 54.8e9},  # to the host
)
_MAPPED_RATES = (
    {32: 27.8e9, 64: 31.5e9, 128: 48e9, 256: 49.5e9},
    {8: 3.9e9, 16: 7.8e9, 32: 18e9, 64: 42e9, 128: 50e9},
)
_CALL_S = 4e-6
_LAUNCH_S = 8e-6


class CopyMethod(Enum):
    """How a copy between pinned memory of the host and a device is done."""

    CALLS = "calls"  # Copies of the driver, between the two layouts
    # One copy of the host's bytes, which are dense, and a kernel between a temporary and the device's layout.
    PACKED = "packed"
    MAPPED = "mapped"  # A kernel that reads or writes the host's memory itself


def choose(box: Box, *, to_host: bool) -> CopyMethod:
    """Return the fastest method for a copy between pinned memory of the host and a device."""
    if not box.dims:
        return CopyMethod.CALLS
    n = n_calls(box)
    if n == 1 and box.row_nbytes >= 256:
        return CopyMethod.CALLS
    side = 1 if to_host else 2
    nbytes, (run, pitch) = box.nbytes, run_of(box, side)
    # A kernel takes part of the device from others for as long as it runs, which has to be worth it.
    calls_s = n * _CALL_S + nbytes / _rate(_CALLS_RATES[to_host], box.row_nbytes)
    mapped_s = _LAUNCH_S + 1.1 * nbytes / _mapped_rate(run, pitch, to_host=to_host)
    method, least_s = (CopyMethod.MAPPED, mapped_s) if mapped_s < calls_s else (CopyMethod.CALLS, calls_s)
    hull_nbytes = hull(box, side)[1]
    is_possible = hull_nbytes == nbytes or not to_host  # else what lies between would be written
    return CopyMethod.PACKED if is_possible and 2 * _LAUNCH_S + hull_nbytes / _PACKED_RATE < least_s else method


def _rate(rates: dict[int, float], row_nbytes: int) -> float:
    """Return the rate of the longest measured row that is not longer; below the shortest one, in proportion."""
    best = [rate for row, rate in rates.items() if row <= row_nbytes]
    shortest = min(rates)
    return best[-1] if best else rates[shortest] * row_nbytes / shortest


def _mapped_rate(run: int, pitch: int, *, to_host: bool) -> float:
    """Return the rate of a kernel on the host's memory; reads of less than 64 bytes fetch 64, which may be of use."""
    if not to_host and run <= 32:
        return 50e9 * run / min(pitch, 64)
    return _rate(_MAPPED_RATES[to_host], run)
