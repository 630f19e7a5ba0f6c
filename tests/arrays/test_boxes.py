"""Rectangular copies: reduction to rows, arguments of target_memcpy_rect."""

from __future__ import annotations

import pytest

from offload.arrays.boxes import Box, RectArgs, collapse, resolve_rect
from offload.errors import ClauseError


@pytest.mark.parametrize(
    ("shape", "dst", "src", "expected"),
    [
        ((4, 5), (40, 8), (40, 8), Box(0, 0, 160, ())),
        ((4, 5), (40, 8), (80, 8), Box(0, 0, 40, ((4, 40, 80),))),
        ((5, 4), (8, 40), (8, 80), Box(0, 0, 40, ((4, 40, 80),))),
        ((4, 1, 5), (40, 7, 8), (80, 9, 8), Box(0, 0, 40, ((4, 40, 80),))),
        ((4, 5), (-40, 8), (-80, 8), Box(-120, -240, 40, ((4, 40, 80),))),
        ((4, 5), (-40, 8), (80, 8), Box(0, 0, 40, ((4, -40, 80),))),
        ((4, 5), (40, 8), (8, 32), Box(0, 0, 8, ((4, 40, 8), (5, 8, 32)))),
        ((2, 4, 5), (160, 40, 8), (320, 80, 8), Box(0, 0, 40, ((8, 40, 80),))),
        ((2, 4, 5), (160, 40, 8), (400, 80, 8), Box(0, 0, 40, ((2, 160, 400), (4, 40, 80)))),
        ((4, 5), (40, 8), (0, 8), Box(0, 0, 40, ((4, 40, 0),))),
        ((), (), (), Box(0, 0, 8, ())),
        ((4, 0), (40, 8), (40, 8), Box(0, 0, 0, ())),
    ],
    ids=[
        "dense",
        "rows",
        "transposed",
        "one",
        "both-back",
        "one-back",
        "turned",
        "merged",
        "3d",
        "broadcast",
        "0d",
        "empty",
    ],
)
def test_collapse(shape, dst, src, expected):
    """A copy is reduced to the longest rows and the fewest axes over them."""
    assert collapse(shape, dst, src, 8) == expected


def test_collapse_nbytes():
    """A box knows how many bytes it copies, and items of no bytes are no copy."""
    assert collapse((4, 5), (40, 8), (80, 8), 8).nbytes == 160
    assert collapse((4, 5), (40, 8), (80, 8), 0) == Box(0, 0, 0, ())


def test_defaults():
    """Dimensions default to the shapes, offsets to 0, the volume to the smaller of what both leave."""
    assert resolve_rect((4, 5), (6, 3)) == RectArgs((4, 3), (0, 0), (0, 0), (4, 5), (6, 3))
    assert resolve_rect((4, 5), (6, 3), None, (1, 1), (4, 0)).volume == (2, 3)
    assert resolve_rect((4, 5), (6, 3), None, (4, 0)).volume == (0, 3)


def test_given_dimensions():
    """Dimensions let a flat array be seen otherwise, and entries beyond the number of dimensions are ignored."""
    args = resolve_rect((100,), (6, 3), (2, 2), (1, 1, 9), (0, 1, 9), (10, 10, 77), (6, 3, 77))
    assert args == RectArgs((2, 2), (1, 1), (0, 1), (10, 10), (6, 3))


def test_zero_volume():
    """A volume with a zero is allowed and copies nothing."""
    assert resolve_rect((4, 5), (6, 3), (0, 3)).volume == (0, 3)


@pytest.mark.parametrize(
    "args",
    [
        ((), ()),
        ((4, 5), (20,)),
        ((4, 5), (4, 5), (2,)),
        ((4, 5), (4, 5), (2, 2, 2)),
        ((4, 5), (4, 5), ()),
        ((4, 5), (4, 5), (2, 2), (0,)),
        ((4, 5), (4, 5), (2, 2), None, (0,)),
        ((4, 5), (4, 5), (2, 2), None, None, (20,)),
        ((4, 5), (4, 5), (2, -2)),
        ((4, 5), (4, 5), (2, 2), (-1, 0)),
        ((4, 5), (4, 5), (2, 2.0)),
        ((4, 5), (4, 5), 2),
        ((4, 5), (4, 5), (4, 5), (0, 1)),
        ((4, 5), (4, 5), (4, 5), None, (1, 0)),
        ((4, 5), (4, 5), None, (5, 0)),
        ((4, 5), (4, 5), (2, 2), None, None, (5, 5)),
        ((4, 5), (4, 5), (2, 2), None, None, None, (3, 7)),
    ],
)
def test_refused(args):
    """Wrong lengths, negative or fractional entries and boxes beyond the arrays are refused."""
    with pytest.raises(ClauseError):
        resolve_rect(*args)
