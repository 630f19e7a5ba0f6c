"""How trips are cut into chunks."""

from __future__ import annotations

import itertools

import pytest

from offload.loops.running.pool import CHUNKS, guided, n_chunks

TRIPS = [0, 1, 2, 31, 32, 33, 63, 64, 65, 1000, 4_000_000]


@pytest.mark.parametrize("trips", TRIPS)
@pytest.mark.parametrize("least", [1, 7, 1000, 10**7])
def test_guided_chunks_grow_shorter(trips, least):
    """They cover all trips, none is empty, none is longer than the one before, none but the last shorter than asked."""
    bounds = guided(trips, least)
    lengths = [end - begin for begin, end in itertools.pairwise(bounds)]
    assert (bounds[0], bounds[-1], sum(lengths)) == (0, trips, trips)
    assert lengths == sorted(lengths, reverse=True)
    assert all(length >= least for length in lengths[:-1])
    assert all(length > 0 for length in lengths)
    assert n_chunks(trips, trips, ("guided", least), shuffles=False) == len(lengths)


def test_kinds_differ_in_their_chunks():
    """Some of equal length, many, or shorter and shorter ones; a size is that of chunks; rows of tiles are not cut."""
    counts = {
        kind: n_chunks(100_000, 100_000, (kind, None), shuffles=False) for kind in ("static", "dynamic", "guided")
    }
    assert counts["static"] == CHUNKS == n_chunks(100_000, 100_000, None, shuffles=False)
    assert counts["dynamic"] == 16 * CHUNKS
    assert CHUNKS < counts["guided"] < counts["dynamic"]
    assert (
        n_chunks(1000, 1000, ("dynamic", 10), shuffles=False)
        == n_chunks(1000, 1000, ("static", 10), shuffles=False)
        == 100
    )
    assert n_chunks(1000, 10, ("guided", None), shuffles=False) == 10
    assert n_chunks(10, 10, ("dynamic", None), shuffles=True) == 10
