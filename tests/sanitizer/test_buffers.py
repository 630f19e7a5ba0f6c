"""Accesses of compiled code to tracked arrays by the buffer protocol."""

from __future__ import annotations

import array
import copy
import hashlib
import io
import pickle
import struct

import numpy as np
import pytest

from offload.sanitizer import buffers
from offload.sanitizer import numpy as face
from offload.sanitizer import tracked as make_tracked

needs_buffers = pytest.mark.skipif(not buffers.ARE_SEEN, reason="Python shows these accesses since 3.12")


@needs_buffers
@pytest.mark.parametrize(
    ("access", "writes"),
    [
        (bytes, False),
        (bytearray, False),
        (hashlib.sha1, False),
        (io.BytesIO().write, False),
        (lambda x: struct.unpack_from("d", x), False),
        (lambda x: b"".join([x]), False),
        (io.BytesIO(bytes(48)).readinto, True),
        (lambda x: struct.pack_into("d", x, 0, 1.0), True),
    ],
)
def test_compiled_code_reads_or_writes(sink, x, access, writes):
    """A request for a buffer is a read, and a write if the buffer has to be writable; nothing is out of sight."""
    access(x[1:5])
    assert sink.taken() == [([], [(4,)], None) if writes else ([(4,)], [], None)]
    assert sink.away == []


@needs_buffers
def test_a_view_that_lives_on_is_out_of_sight(sink, x):
    """A memoryview that the program keeps is read when it is made, and its later accesses are not seen."""
    view = memoryview(x)
    assert sink.taken() == [([(6,)], [], None)]
    assert sink.away == [(6,)]
    view[0] = 7.0
    assert sink.taken() == []
    assert x[0] == 7


@pytest.mark.parametrize(
    ("operation", "n"),
    [
        (np.asarray, 0),
        (np.array, 1),
        (np.sum, 1),
        (lambda x: x + 1, 1),
        (lambda x: x.copy(), 1),
        (copy.deepcopy, 1),
        (lambda x: pickle.dumps(x, 5), 1),
        (np.from_dlpack, 0),
        (lambda x: x.data, 0),
        (lambda x: x.tobytes(), 1),
        (lambda x: face.ndarray((2,), float, x), 0),
        (face.frombuffer, 0),
        (lambda x: face.save(io.BytesIO(), x), 1),
    ],
)
def test_numpys_own_work_asks_for_no_buffer(sink, x, operation, n):
    """An operation of NumPy is noted once, or not at all if it only makes a view."""
    operation(x)
    assert len(sink.taken()) <= n


@pytest.mark.parametrize(
    "plain", [np.arange(6).reshape(2, 3), np.arange(8.0)[::2], np.zeros((), "f4"), np.zeros(2, "c8")]
)
def test_the_buffer_is_exact(sink, plain):
    """Shape, strides, format and the right to write equal those of the plain array, and so does a refusal."""
    for is_writable in (True, False):
        plain.flags.writeable = is_writable
        one, other = memoryview(plain), memoryview(make_tracked(plain))
        names = ("shape", "strides", "format", "readonly", "itemsize", "nbytes")
        assert [getattr(one, name) for name in names] == [getattr(other, name) for name in names]
        assert np.asarray(other).tolist() == plain.tolist()
    with pytest.raises((BufferError, TypeError)):
        io.BytesIO(bytes(8)).readinto(make_tracked(plain))
    assert all(not writes for _, writes, _ in sink.taken())


def test_an_array_of_a_buffer_has_its_memory(x):
    """An array over a memoryview of a tracked array shares its memory."""
    other = np.asarray(memoryview(x))
    assert np.shares_memory(other, x)
    assert buffers.exporter(memoryview(array.array("d", [1]))).typecode == "d"
    assert np.shares_memory(buffers.exporter(memoryview(x)), x)
