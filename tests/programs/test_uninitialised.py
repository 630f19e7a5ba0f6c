"""Uninitialised memory of a simulated device shows, in a runtime that checks or has a seed."""

from __future__ import annotations

import numpy as np
import pytest

import offload as omp
from offload import acc, alloc, from_, to
from tests.profiles import few

DTYPES = ("f2", "f4", "f8", "g", "c8", "c16", "?", "i1", "u1", "i4", "u8", "M8[s]", "S3", "i4,f8", "(2,)f4")


@pytest.fixture(params=[{"check": True}, {"check": True, "seed": 3}, {"seed": 3}, {"env": {"OFFLOAD_SEED": "4"}}])
def poisoned(request):
    """Return a runtime whose simulated device fills memory that nobody has written."""
    with omp.Runtime("sim", **request.param) as runtime:
        yield runtime


def shows(host):
    """Tell whether every element of a host array is what uninitialised memory is filled with."""
    kind = host.dtype.base.kind
    if kind in "fc":
        parts = (host.real, host.imag) if kind == "c" else (host,)
        return host.size > 0 and all(bool(np.isnan(part).all()) for part in parts)
    expected = 1 if kind == "b" else 0xCB
    return host.size > 0 and set(host.tobytes()) == {expected}


@pytest.mark.parametrize("dtype", DTYPES)
def test_target_alloc(poisoned, dtype):
    """What target_alloc returns is NaN, true, or bytes 0xCB, also where the memory was used before."""
    for _ in range(3):
        d = omp.target_alloc((4, 5), dtype)
        assert shows(d.get())
        omp.target_memset(d, 0)
        omp.target_free(d)


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if not dtype.startswith("(")])
@pytest.mark.parametrize("clause", [alloc, from_])
@pytest.mark.parametrize(
    "index", few(1, [(slice(None, None, 2), slice(None, None, -2)), ..., (slice(None), slice(1, 4))])
)
@pytest.mark.filterwarnings("ignore:.*the body wrote no element:offload.DirectiveWarning")
def test_mapped_storage(poisoned, clause, dtype, index):
    """What a map makes and does not copy to is filled for the elements of the item, packed ones too."""
    x = np.zeros((6, 7), dtype)
    body = omp.target(lambda d: d.get(), map=[clause("d")])
    for _ in range(2):
        assert shows(body(x[index]))
    assert shows(x[index]) is (clause is from_)


def test_mapped_storage_is_what_was_copied_to_it(poisoned):
    """A copy to the device goes over the filling, and storage that stays is filled once."""
    x, y = np.arange(10.0), np.zeros(10)
    assert omp.target(lambda x: x.get(), map=[to("x")])(x).tolist() == x.tolist()
    with omp.target_data(map=[alloc(y)]):
        omp.target(lambda y: y.fill(3.0))(y)
        assert (omp.target(lambda y: y.get(), map=[alloc("y")])(y) == 3).all()
        omp.target_update(from_=[y])
    assert (y == 3).all()


def test_private_and_firstprivate(poisoned):
    """A private array is filled, a firstprivate one is the copy that it is to be."""
    x = np.ones(5)
    assert shows(omp.target(lambda x: x.get(), private=["x"])(x))
    assert (omp.target(lambda x: x.get(), firstprivate=["x"])(x) == 1).all()


def test_arrays_that_bodies_make(poisoned):
    """`empty` and `empty_like` of the device's namespace are filled, in any order of elements; `zeros` is not."""

    def body(x):
        xp = omp.array_namespace(x)
        made = [xp.empty((3, 4)), xp.empty((3, 4), "f4", order="F"), xp.empty_like(x), np.empty_like(x.T), xp.empty(())]
        made += [np.empty(5, like=x), xp.empty_like(x, dtype="i4"), xp.empty(3, "?")]
        return [array.get() for array in made], xp.zeros(3).get()

    made, zeros = omp.target(body)(np.zeros((2, 3, 4)).transpose(1, 0, 2))
    assert all(shows(array) for array in made)
    assert (zeros == 0).all()


def test_sums_of_what_nobody_wrote_are_nan(poisoned):
    """The mistake that this is for: a port that relies on zeros finds NaN in its result."""
    total, x = np.zeros(1), np.ones(8)

    def body(total, x, partial):
        partial[:4] += x[:4]  # nobody has set it to 0
        total[0] = partial[:4].sum()

    omp.target(body, private=["partial"])(total, x, np.zeros(8))
    assert np.isnan(total[0])


def test_openacc(poisoned):
    """`create` and `malloc` give filled storage, `create` with `zero` zeros."""
    x = np.zeros(6)
    with acc.data(create=[x]):
        assert shows(acc.parallel(lambda x: x.get(), present=["x"])(x))
    with acc.data(create=[acc.zero(x)]):
        assert (acc.parallel(lambda x: x.get(), present=["x"])(x) == 0).all()
    d = acc.malloc(16)
    assert shows(d.get())
    acc.free(d)


def test_replays_fill_anew(poisoned):
    """Each replay of a task graph allocates filled storage, as the recording did."""
    x, seen = np.zeros(4), []

    @omp.target(map=[alloc("x")], nowait=True)
    def look(x):
        seen.append(x.get())
        x[...] = 7.0

    graph = omp.taskgraph(lambda x: look(x) and None)
    for _ in range(3):
        graph(x)
    assert len(seen) == 3
    assert all(shows(array) for array in seen)


def test_only_where_asked_for():
    """Without a seed and without check nothing is filled."""
    with omp.Runtime("sim", env={}):
        assert not omp.device(0).poisons


def test_simulated_devices_alone(runtime):
    """With check a simulated device fills, a CUDA device does not; neither changes what is copied."""
    x = np.arange(10.0)
    assert all(device.poisons is (device.kind == "sim") for device in omp.devices())
    assert (omp.target(lambda x: x.get(), map=[to("x")])(x) == x).all()
