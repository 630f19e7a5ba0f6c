"""Addresses of host arrays: read where they stand, as NumPy says them."""

from __future__ import annotations

import mmap

import numpy as np
import pytest

from offload.arrays import items
from offload.arrays.items import address_of


def said(array):
    return array.__array_interface__["data"][0]


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((3, 4)),
        np.zeros((3, 4), order="F")[1:, ::2],
        np.zeros(8)[::-1],
        np.zeros(8)[5:5],
        np.zeros(()),
        np.zeros(3, "i4, f8").view(np.recarray),
        np.frombuffer(b"12345678"),
        np.frombuffer(mmap.mmap(-1, 4096), "u1")[7:],
        np.broadcast_to(np.zeros(1), (4, 4)),
    ],
    ids=lambda array: f"{type(array).__name__}-{array.shape}",
)
def test_addresses_are_numpys(array):
    """Views, subclasses, arrays without elements and over foreign memory are where NumPy says."""
    assert address_of(array) == said(array)


def test_an_array_that_moves():
    """An array that is resized in place has its new address."""
    a = np.zeros(4)
    for size in (1 << 20, 3, 1 << 22):
        a.resize(size, refcheck=False)
        assert address_of(a) == said(a)


def test_numpy_is_asked_where_arrays_look_otherwise():
    """Where the look into an array finds something else, addresses are those that NumPy says."""
    read = items.address_reader(items._HEAD_NBYTES + 8)
    assert read is not address_of
    a = np.zeros((3, 4))[1:]
    assert read(a) == said(a)
