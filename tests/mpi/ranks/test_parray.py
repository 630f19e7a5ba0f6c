"""Typed copies between ranks, on any number of them: the same as over threads in one process."""

from __future__ import annotations

import os
import random

import numpy as np
import pytest
from mpi4py import MPI

import offload as omp
from offload.errors import ClauseError, LayoutError, UsageError
from offload.parray import ArrayType, copy, dim, disp, for_each, ranks, threads, wrap
from tests.parray import copies, trees

N_PAIRS = int(os.environ.get("OFFLOAD_TESTS_PAIRS", "60"))


def patterns(M, P):
    """Each pattern of communication: source, target, whether they are distributed, and whether they are one array."""
    D = ArrayType((P, 4))
    Q = ArrayType((P, P))
    E = ArrayType((P, P))
    L = ArrayType((3, 2))
    r, w = 4, 1
    H = ArrayType((r + 2 * w, 5))
    S = ArrayType((2, (P, 3), 2))
    yield "all-to-all", ArrayType((M, D[0], D[1])), ArrayType((D[0], M, D[1])), False
    yield "scatter", ArrayType((P, D.size)), ArrayType((M, D)), False
    yield "gather", ArrayType((M, D)), ArrayType((P, D.size)), False
    yield "broadcast", ArrayType((dim(P, wrap(1)), D)), ArrayType((M, D)), False
    yield "message", ArrayType((dim(1, disp(P - 1), M), D)), ArrayType((dim(1, disp(0), M), D)), False
    yield "to itself", ArrayType((dim(1, disp(P - 1), M), D)), ArrayType((dim(1, disp(P - 1), M), D)), False
    yield "transposition", ArrayType(((M, Q[0]), Q[1])), ArrayType((E[1], (M, E[0]))), False
    yield "block-cyclic", ArrayType((3, P, 2)), ArrayType((L[0], M, L[1])), False
    yield "turn", ArrayType((M, S)), ArrayType((S[1, 0], (M, S[0]), S[1, 1], S[2])), False
    if P > 1:
        halo = (dim(P - 1, disp(1), M), dim(w, disp(w), H[0]), H[1])
        yield "halo", ArrayType(halo), ArrayType((dim(P - 1, M), dim(w, disp(w + r), H[0]), H[1])), True
    ring = ArrayType((dim(P, disp(1), wrap(P), M), H))
    yield "ring in place", ring, ArrayType((M, H)), True
    if P % 2 == 0:
        yield "wide type", ArrayType((M, D[1], D[0])), ArrayType((M, D)), False


def arrays_of(side, span, n_ranks, dtype, seed):
    """Storage of a type, of each rank."""
    n = n_ranks if side.kind == "both" else 1
    nbytes = span * np.dtype(dtype).itemsize
    return [np.random.default_rng((seed, k)).integers(0, 256, nbytes, "u1").view(dtype) for k in range(n)]


def own(side, arrays, rank):
    """What a rank passes of them."""
    if side.kind == "both":
        return arrays[rank]
    return arrays[0] if rank == 0 else None


def on_device(array):
    """A copy of an array on device 0."""
    found = omp.target_alloc(array.shape, array.dtype)
    omp.target_memcpy(found, array)
    return found


@pytest.mark.parametrize("dtype", ["u1", "c16", "V12"])
@pytest.mark.parametrize("where", ["host", "device", "to the device", "to the host"])
def test_patterns(runtime, comm, dtype, where):
    """Each pattern gives what it gives over threads in one process, from and to hosts and devices."""
    P = comm.size
    M = ranks(P, comm)
    for (name, S, T, is_one), (_, local_S, local_T, _) in zip(patterns(M, P), patterns(threads(P), P), strict=True):
        sources = arrays_of(S, max(S.span, T.span), P, dtype, 1)
        targets = sources if is_one else arrays_of(T, T.span, P, dtype, 2)
        s, t = own(S, sources, comm.rank), own(T, targets, comm.rank)
        on = [
            where in {"device", "to the host"} and dtype != "V12",
            where in {"device", "to the device"} and dtype != "V12",
        ]
        mine_s = None if s is None else on_device(s) if on[0] or (is_one and on[1]) else s.copy()
        mine_t = mine_s if is_one else None if t is None else on_device(t) if on[1] else t.copy()
        is_late = len(name) % 2
        copy(S, mine_s, to=(T, mine_t), nowait=bool(is_late), name=name)
        omp.taskwait()
        copy(
            local_S,
            sources if S.kind == "both" else sources[0],
            to=(local_T, targets if T.kind == "both" else targets[0]),
        )
        if mine_t is not None:
            found = mine_t
            if not isinstance(found, np.ndarray):
                found = np.empty(mine_t.shape, mine_t.dtype)
                omp.target_memcpy(found, mine_t)
            assert found.tobytes() == own(T, targets, comm.rank).tobytes(), name
        for array in {id(x): x for x in (mine_s, mine_t)}.values():
            if array is not None and not isinstance(array, np.ndarray):
                omp.target_free(array)


def test_random_pairs(runtime, comm, monkeypatch):
    """Random pairs of types, of which one at least is over ranks, equal the loop over indices."""
    monkeypatch.setattr(trees, "threads", lambda tree: ranks(tree, comm))
    for seed in range(0, 3 * N_PAIRS, 3):  # which have a thread array
        source, target = copies.pair_of(seed, range(1, comm.size + 1))
        S, T = source.made, target.made
        rng = random.Random(seed)
        dtype = rng.choice([*copies.DTYPES, "V12"])
        held = [copies.Arrays(rng, side.meant, made.span, dtype, 0) for side, made in ((source, S), (target, T))]
        wanted = copies.copied(source.meant, held[0], target.meant, held[1])
        mine = [given_to(arrays, comm.rank) for arrays in held]
        copy(S, mine[0], to=(T, mine[1]))
        if mine[1] is not None:
            number = comm.rank if held[1].is_list else 0
            assert held[1].given[number].tobytes() == wanted[number], seed


def given_to(arrays, rank):
    """What a rank passes."""
    if arrays.is_list:
        return arrays.given[rank] if rank < len(arrays.given) else None
    return arrays.given[0] if rank == 0 else None


def test_order_of_the_program(runtime, comm):
    """Copies that become ready in another order on each rank match as they were written."""
    P = comm.size
    M = ranks(P, comm)
    D = ArrayType((P, 8))
    S, T = ArrayType((M, D[0], D[1])), ArrayType((D[0], M, D[1]))
    gates = [omp.Event() for _ in range(4)]
    sources = [np.full(D.size, 10 * k + comm.rank) for k in range(4)]
    targets = [np.zeros(D.size, int) for _ in range(4)]
    for source, target, gate in zip(sources, targets, gates, strict=True):
        omp.task(depend=[omp.out(source)], detach=gate)(lambda: None)()
        copy(S, source, to=(T, target), nowait=True, depend=[omp.in_(source), omp.out(target)])
    order = list(range(4))
    random.Random(comm.rank).shuffle(order)
    for k in order:
        gates[k].fulfill()
    omp.taskwait()
    for k, target in enumerate(targets):
        assert (target.reshape(P, 8) == 10 * k + np.arange(P)[:, None]).all()


def test_mistakes(runtime, comm):
    """What is wrong with ranks and their storage is said on the rank, and nothing is sent."""
    P = comm.size
    M = ranks(P, comm)
    D = ArrayType((P, 2))
    S, T = ArrayType((M, D)), ArrayType((D[0], M, D[1]))
    x = np.zeros(D.size)
    with pytest.raises(LayoutError):
        ranks(P + 1, comm)
    with pytest.raises(ClauseError):
        ranks(P, "world")
    with pytest.raises(LayoutError):
        copy(S, x, to=(ArrayType((threads(P), D)), [x] * P))
    other = comm.Dup()
    with pytest.raises(LayoutError):
        copy(S, x, to=(ArrayType((ranks(P, other), D)), x))
    other.Free()
    halves = comm.Split(comm.rank % 2)
    between = halves.Create_intercomm(0, comm, 1 - comm.rank % 2)
    for none in (between, MPI.COMM_NULL, 3):
        with pytest.raises(ClauseError):
            ranks(1, none)
    between.Free()
    halves.Free()
    with pytest.raises(UsageError):
        for_each(M, print)
    for source, target in ((None, x), ([x], x), (x, x[:1].copy()), (x, x[::-1]), (x, np.zeros(D.size, "f4"))):
        with pytest.raises(ClauseError):
            copy(S, source, to=(T, target))
    copy(S, x, to=(T, np.ones(D.size)))
