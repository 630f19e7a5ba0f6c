"""Nests in tiles: in which order iterations are carried out, in both forms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import offload as omp
from offload.loops.emit.python_form import python_form
from offload.loops.front.parse import NestClauses, parse
from offload.loops.front.source import FunctionSource
from offload.loops.running.build import builder
from tests.loops.c_form import c_form
from tests.loops.forms import run

FORMS = [
    python_form,
    pytest.param(c_form, marks=pytest.mark.skipif(builder.compiler is None, reason="no C compiler")),
]


def trace(c, order, n, m, first, step):
    for i in range(n):
        for j in range(first, first + step * m, step):
            k = omp.atomic.add(c, 0, 1)
            order[k, 0] = i
            order[k, 1] = j


def tiled(n, m, tile, chunks):
    """Yield the trips of a nest in tiles, chunk by chunk."""
    for chunk in range(chunks):
        begin, end = n * chunk // chunks, n * (chunk + 1) // chunks
        for row in range(begin, end, tile[0]):
            for column in range(0, m, tile[1]):
                for i in range(row, min(row + tile[0], end)):
                    for j in range(column, min(column + tile[1], m)):
                        yield i, j


@pytest.mark.parametrize("form", FORMS)
@given(
    n=st.integers(0, 9),
    m=st.integers(0, 9),
    tile=st.sampled_from([(1, 1), (2, 3), (5, 1), (1, 4), (3, 12)]),
    chunks=st.integers(1, 3),
    first=st.integers(-4, 4),
    step=st.sampled_from([1, -1, 3, -2]),
)
def test_tiles_are_carried_out_one_after_another(form, n, m, tile, chunks, first, step):
    """Each iteration is carried out once, tile by tile, those at the borders of a chunk cut off."""
    function = parse(FunctionSource.of(trace), NestClauses(tile=tile))
    c, order = np.zeros(1, np.int64), np.full((n * m, 2), -99)
    arguments = {"c": c, "order": order, "n": n, "m": m, "first": first, "step": step}
    run(function, arguments, form, chunks)
    assert order.tolist() == [[i, first + j * step] for i, j in tiled(n, m, tile, chunks)]
