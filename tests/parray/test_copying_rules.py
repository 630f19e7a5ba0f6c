"""Typed copies of random pairs of types equal a loop over indices, wherever their arrays are."""

from __future__ import annotations

import random

import numpy as np
import pytest

import offload as omp
from offload.parray import copy, plan
from tests.parray import oracle
from tests.parray.copies import DTYPES, HOST_DTYPES, Arrays, copied, pair_of

N_IN_CI = 240
N_IN_SOAK, N_PARTS = 3000, 6


def check_pair(seed):
    """Copy one random pair, and back; return the kind of its plan, and whether it is distributed."""
    rng, n_devices = random.Random(seed * 7919 + 1), omp.get_num_devices()
    source, target = pair_of(seed)
    S, T = source.made, target.made
    dtype = rng.choice(HOST_DTYPES) if rng.random() < 0.15 else rng.choice(DTYPES)
    is_distributed = oracle.is_both(source.meant) or oracle.is_both(target.meant)
    is_one = not is_distributed and rng.random() < 0.25
    sources = Arrays(rng, source.meant, S.span, dtype, n_devices, max(S.span, T.span) if is_one else None)
    targets = sources if is_one else Arrays(rng, target.meant, T.span, dtype, n_devices)
    if oracle.is_both(source.meant) and oracle.is_both(target.meant) and rng.random() < 0.3:
        sources.free()
        sources = Arrays(rng, source.meant, max(S.span, T.span), dtype, n_devices)
        if len(sources.given) >= len(targets.given):
            targets.free()
            targets = sources
    before = sources.now()
    wanted = copied(source.meant, sources, target.meant, targets)
    if rng.random() < 0.5:
        copy(S, sources.argument, to=(T, targets.argument))
    else:
        copy(S, sources.argument, to=(T, targets.argument), nowait=True, name="seed")
        omp.taskwait()
    assert targets.now() == wanted, seed
    if targets is not sources:
        assert sources.now() == before, seed
        if S.is_injective:
            back = Arrays(rng, source.meant, S.span, dtype, n_devices)
            targets.held = [
                np.frombuffer(now, held.dtype) for held, now in zip(targets.held, targets.now(), strict=True)
            ]
            wanted = copied(target.meant, targets, source.meant, back)
            copy(T, targets.argument, to=(S, back.argument))
            assert back.now() == wanted, seed
            back.free()
        targets.free()
    sources.free()
    return plan(S, T).kind, is_distributed


def test_random_pairs(runtime):
    """On hosts, devices, both, and lists of arrays: the target is what the loop makes it, all else stays."""
    seen = [check_pair(seed) for seed in range(N_IN_CI)]
    kinds = {kind for kind, _ in seen}
    assert kinds >= {"contiguous", "strided", "boxes", "indexed"}, kinds
    assert sum(is_distributed for _, is_distributed in seen) >= N_IN_CI * 0.3


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("part", range(N_PARTS))
def test_many_random_pairs(runtime, part):
    """The same for 3,000 pairs, of which at least 300 are over thread arrays, in parts for several processes."""
    n = N_IN_SOAK // N_PARTS
    seen = [check_pair(seed) for seed in range(N_IN_CI + part * n, N_IN_CI + (part + 1) * n)]
    assert sum(is_distributed for _, is_distributed in seen) >= 300 // N_PARTS
