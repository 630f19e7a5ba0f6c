"""Finding the locations that share a byte: the index against the plain test of all pairs, and what it costs."""

import random

import pytest

from offload.arrays.sections import HOST, overlaps, section_of
from offload.tasks import locations
from offload.tasks.locations import Locations
from tests.profiles import few


def sliced(rng, space=HOST):
    """Return a section that slicing an array makes, of one of several arrays that lie over each other."""
    itemsize = rng.choice([1, 2, 4, 8])
    shape = [rng.choice([2, 3, 4, 6, 9]) for _ in range(rng.randint(1, 3))]
    address, strides, n_bytes = 1000 + rng.choice([0, 0, 0, 1, 5, 17, 64]), [], itemsize
    for size in reversed(shape):
        strides.insert(0, n_bytes)
        n_bytes *= size
    cut = []
    for axis, size in enumerate(shape):
        low = rng.randrange(size)
        high = rng.randint(low + 1, size)
        step = rng.choice([1, 1, 1, 2, 3])
        count = -(-(high - low) // step)
        address += low * strides[axis]
        strides[axis] *= step
        if rng.random() < 0.3:
            address += (count - 1) * strides[axis]
            strides[axis] = -strides[axis]
        cut.append(count)
    return section_of(space, address, cut, strides, itemsize)


def interleaved(rng, space=HOST):
    """Return a section with strides made by hand, whose rows interleave."""
    shape = [rng.randint(1, 5) for _ in range(rng.randint(1, 3))]
    strides = [rng.randint(-30, 30) for _ in shape]
    return section_of(space, 1000 + rng.randrange(200), shape, strides, rng.choice([1, 1, 2, 4]))


def wrapping(rng, space=HOST):
    """Return some columns of a matrix whose rows begin anywhere, so that the columns go beyond the end of a period."""
    pitch = rng.choice([12, 12, 12, 24, 36, 18])
    n_rows = rng.choice([2, 3, 3, 5])
    return section_of(space, 1000 + rng.randrange(120), (n_rows, rng.randint(1, 11)), (pitch, 1), 1)


def add_all(locations, known, sections):
    """Add sections, each of which must meet exactly those before that share a byte with it, each once."""
    for section in sections:
        if section not in known:
            wanted = [other for other in known if overlaps(other, section)]
            assert sorted(map(repr, locations.add(section))) == sorted(map(repr, wanted)), section
            known.append(section)


@pytest.mark.parametrize("make", [sliced, interleaved, wrapping])
@pytest.mark.parametrize("seed", few(3, range(10)))
def test_overlaps_are_those_of_all_pairs(make, seed):
    """A new section meets the earlier ones that share a byte with it, each once, whatever their strides."""
    rng = random.Random(seed)
    add_all(Locations(), [], [make(rng) for _ in range(150)])


def dense(rng, space=HOST):
    """Return a contiguous piece, of one of three sizes, or empty; many begin at one address or next to another."""
    n_bytes = rng.choice([8, 8, 8, 12, 40, 300, 0])
    return section_of(space, 1000 + 4 * rng.randrange(1500), (n_bytes,), None, 1)


@pytest.mark.parametrize("most", [2, 3, 8, 512])
@pytest.mark.parametrize("seed", few(3, range(10)))
def test_dense_sections_in_pieces(seed, most, monkeypatch):
    """Dense sections are found whichever pieces they stand in, in ascending order, descending, in runs, or in none."""
    monkeypatch.setattr(locations, "_MOST", most)
    rng = random.Random(seed)
    found, known = Locations(), []
    add_all(found, known, [dense(rng) for _ in range(150)])
    for turn in range(3):
        known = [section for section in known if rng.random() < 0.6]
        found.keep(set(known).__contains__)
        more = sorted([dense(rng) for _ in range(60)], reverse=turn == 1)
        if turn == 2:  # runs that begin anywhere
            more = [section for at in rng.sample(range(0, 60, 6), 10) for section in more[at : at + 6]]
        add_all(found, known, more)
        add_all(found, known, [sliced(rng) for _ in range(10)])


@pytest.mark.parametrize("most", [2, 8, 512])
@pytest.mark.parametrize("seed", few(3, range(10)))
def test_runs(seed, most, monkeypatch):
    """Sections one behind the other meet whatever begins, ends or lies between them, and what comes meets them."""
    monkeypatch.setattr(locations, "_MOST", most)
    rng = random.Random(seed)
    sections = []
    for _ in range(40):
        at, space = 1000 + rng.randrange(2000), rng.choice([HOST, HOST, HOST, "other"])
        for _ in range(rng.randrange(20)):
            at += rng.choice([0, 0, 4, 40])
            n_bytes = rng.choice([8, 8, 8, 12, 40, 300, 0])
            sections.append(section_of(space, at, (n_bytes,), None, 1))
            at += n_bytes
        sections += [rng.choice([sliced, wrapping])(rng, space) for _ in range(rng.randrange(3))]
    found, known = Locations(), []
    add_all(found, known, sections[:200])
    known = [section for section in known if rng.random() < 0.6]
    found.keep(set(known).__contains__)
    add_all(found, known, sections[200:])


@pytest.mark.parametrize("n_bytes", [4, 8])
def test_what_is_wider_than_those_before_it_in_a_run_is_met_at_its_end(n_bytes):
    """A run takes sections of several sizes, and each is found by whatever meets its last bytes."""
    found, known = Locations(), []
    add_all(found, known, [section_of(HOST, at, (size,), None, 1) for at, size in [(1000, 8), (1010, 12), (1030, 9)]])
    add_all(found, known, [section_of(HOST, 1020, (n_bytes,), None, 1)])


@pytest.mark.parametrize("seed", range(5))
def test_kinds_of_sections_mix(seed):
    """Sections of every make and of several address spaces are told apart in one index."""
    rng = random.Random(seed)
    makes = [sliced, interleaved, wrapping, dense]
    add_all(Locations(), [], [rng.choice(makes)(rng, rng.choice([HOST, HOST, 0, "other"])) for _ in range(250)])


@pytest.mark.parametrize("make", [sliced, interleaved, wrapping, dense])
@pytest.mark.parametrize("seed", few(2, range(5)))
def test_what_is_kept_is_found(make, seed):
    """After sections have been dropped, those kept are found and the others are not."""
    rng = random.Random(seed)
    found, known = Locations(), []
    for _ in range(4):
        add_all(found, known, [make(rng) for _ in range(60)])
        known = [section for section in known if rng.random() < 0.4]
        found.keep(set(known).__contains__)
    found.keep(lambda _: False)
    assert not found._spaces
    add_all(found, [], [make(rng) for _ in range(20)])


def rows(n, pitch, width=None, *, n_rows=1):
    """Return the first ``width`` bytes of each ``n_rows`` rows of a matrix."""
    shape, strides = (n_rows, width or pitch), (pitch, 1)
    return [section_of(HOST, 1000 + k * n_rows * pitch, shape, strides, 1) for k in range(n)]


def columns(n, n_rows, *, step=1, width=8):
    """Return the columns of a C-ordered matrix of ``n`` items a row, every ``step``-th row of it."""
    shape, strides = (n_rows, width), (step * n * width, 1)
    return [section_of(HOST, 1000 + j * width, shape, strides, 1) for j in range(n)]


def tiles(n, size):
    """Return the tiles of a square matrix of ``n`` times ``n``, each of ``size`` times ``size`` bytes."""
    pitch = n * size
    at = [1000 + i * size * pitch + j * size for i in range(n) for j in range(n)]
    return [section_of(HOST, address, (size, size), (pitch, 1), 1) for address in at]


def blocks(n, size):
    """Return the blocks of a cube of ``n`` blocks an axis, each of ``size`` bytes an axis."""
    pitch = n * size
    at = [(i * size * pitch + j * size) * pitch + k * size for i in range(n) for j in range(n) for k in range(n)]
    return [section_of(HOST, 1000 + low, (size,) * 3, (pitch * pitch, pitch, 1), 1) for low in at]


def trailing(n, size):
    """Return for each column of tiles what is right of it and below, and then the tiles."""
    pitch = n * size
    at = [(1000 + k * size * (pitch + 1), (n - k) * size) for k in range(n)]
    return [section_of(HOST, low, (left, left), (pitch, 1), 1) for low, left in at] + tiles(n, size)


WHOLE = section_of(HOST, 1000, (1 << 20,), None, 1)
PANEL = section_of(HOST, 1008, (4, 15_992), (16_000, 1), 1)


@pytest.mark.parametrize(
    ("sections", "most"),
    [
        pytest.param(tiles(32, 16), 4, id="tiles"),
        pytest.param(columns(2000, 64), 1, id="columns"),
        pytest.param(rows(2000, 64), 1, id="rows"),
        pytest.param([WHOLE, *rows(2000, 64)], 2, id="rows of what was named whole"),
        pytest.param([WHOLE, *tiles(32, 16)], 5, id="tiles of what was named whole"),
        pytest.param([PANEL, *columns(2000, 4)], 2, id="columns and most of them together"),
        pytest.param(columns(1000, 32, step=2) + columns(1000, 64), 2, id="columns of every other row, then of all"),
        pytest.param(columns(1000, 64) + columns(1000, 32, step=2), 2, id="columns of all rows, then of every other"),
        pytest.param(rows(500, 64, 60, n_rows=4), 2, id="wide pieces of rows"),
        pytest.param(trailing(24, 8), 40, id="trailing matrices"),
        pytest.param(blocks(12, 4), 40, id="blocks of a cube"),
    ],
)
def test_few_pairs_are_tested(sections, most, monkeypatch):
    """A new location is tested exactly against few others, however many there are."""
    calls = 0

    def counted(a, b):
        nonlocal calls
        calls += 1
        return overlaps(a, b)

    monkeypatch.setattr(locations, "overlaps", counted)
    space = Locations()
    for section in sections:
        space.add(section)
    assert calls <= most * len(sections)


def test_many_arrays_cost_no_more():
    """Arrays of other row lengths elsewhere are passed over without a look at their sections."""
    space = Locations()
    for k in range(50):
        space.add(section_of(HOST, 10_000 * k, (4, 8), (64 + k, 1), 1))
    near = [
        lattice for lattice in space._spaces[HOST]._lattices.values() if lattice.low < 10_500 and lattice.high > 10_000
    ]
    assert len(near) == 1
