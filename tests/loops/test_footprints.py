"""Footprints of the loops that programs have, and sequences of them on emulated replicas, values and all."""

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offload.data.boxes import BoxTable
from offload.loops.proofs.numbers import LaunchNumbers, Trips
from offload.loops.proofs.reach import accesses
from offload.loops.sets.footprints import Division, _footprint, duplicate, footprints, owned_along, single, within
from offload.loops.tree import ir
from tests.data.test_parts_rules import Laid, a_view, an_array
from tests.loops.building import accesses_of, typed_nest, view
from tests.loops.test_footprints_rules import cuts, elements, owned_ranges
from tests.profiles import examples

N = 12
BLOCKS = (0, 6), (6, 12)


def division(trips, *, is_guarded=False, own_loads=(), last=0, **splits):
    return Division(tuple(trips), splits, is_guarded, frozenset(own_loads), last)


def of_two(text, views, trips=((0, 6), (6, 12)), collapse=1, own=(), **how):
    """Return footprints; what is owned of an array is a dimension and ranges of it."""
    reached = accesses_of(text, views, collapse=collapse, own=own)
    for array in how.keys() & reached.extents.keys():
        how[array] = owned_along(reached.extents[array], *how[array])
    return footprints(reached, division(trips, **how))


def test_a_stencil():
    """A device needs one element a side of its block, and nothing of what it overwrites."""
    text = "for i in range(1, 13):\n b[i] = a[i - 1] + a[i + 1]"
    found = of_two(text, {"a": (14,), "b": (14,)}, b=(0, [(0, 7), (7, 14)]))
    assert found["a"].needs.boxes == ((((0, 8),),), (((6, 14),),))
    assert found["a"].writes is None
    assert found["b"].needs is None
    assert found["b"].writes.alone == ((((1, 7),),), (((7, 13),),))
    assert found["b"].writes.everywhere == ()


def test_a_cross_has_no_corners():
    """Of five points a device needs the rows beside its own without their ends."""
    text = "for i in range(1, 13):\n for j in range(1, 13):\n  b[i,j] = a[i-1,j] + a[i+1,j] + a[i,j-1] + a[i,j+1]"
    found = of_two(text, {"a": (14, 14), "b": (14, 14)}, collapse=2, b=(0, [(0, 7), (7, 14)]))
    assert set(found["a"].needs.boxes[0]) == {((0, 8), (1, 13)), ((1, 7), (0, 14))}
    assert found["b"].needs is None
    assert found["b"].writes.alone[1] == (((7, 13), (1, 13)),)


def test_columns():
    """A loop over columns has boxes that are narrow in dimension 1; its recurrence reads what the block has written."""
    text = "for i in range(12):\n for j in range(1, 12):\n  r[j, i] = r[j, i] - r[j - 1, i] // 2"
    found = of_two(text, {"r": (12, 12)}, r=(1, BLOCKS))
    assert found["r"].needs.boxes == ((((0, 12), (0, 6)),), (((0, 12), (6, 12)),))
    assert found["r"].writes.alone == ((((1, 12), (0, 6)),), (((1, 12), (6, 12)),))


def test_an_update_reads_its_own_block():
    """``y[i] += 2*x[i]``: the same block of both."""
    found = of_two("for i in range(12):\n y[i] = y[i] + 2*x[i]", {"x": (12,), "y": (12,)}, y=(0, BLOCKS))
    assert found["x"].needs.boxes == found["y"].needs.boxes == ((((0, 6),),), (((6, 12),),))


VECTORS = {
    "a triangle": (
        "for i in range(12):\n for j in range(i + 1):\n  o[i] = o[i] + l[i, j]*x[j]",
        {"o": (12,), "l": (12, 12), "x": (12,)},
        {"o": (0, BLOCKS)},
        {"x": [((0, 6),), ((0, 12),)], "l": [((0, 6), (0, 6)), ((6, 12), (0, 12))], "o": [((0, 6),), ((6, 12),)]},
        {"o": [((0, 6),), ((6, 12),)]},
    ),
    "sparse rows": (
        "for i in range(12):\n s = 0\n for k in range(p[i], p[i + 1]):\n  s = s + x[c[k]]\n y[i] = s",
        {"p": (13,), "c": (50,), "x": (12,), "y": (12,)},
        {"y": (0, BLOCKS)},
        {"p": [((0, 7),), ((6, 13),)], "c": [((0, 50),)] * 2, "x": [((0, 12),)] * 2, "y": [None, None]},
        {"y": [((0, 6),), ((6, 12),)]},
    ),
    "backwards": (
        "for i in range(12):\n a[i] = x[i]\n b[11 - i] = a[i] * 2",
        {"a": (12,), "b": (12,), "x": (12,)},
        {"a": (0, BLOCKS), "b": (0, BLOCKS[::-1])},
        {"x": [((0, 6),), ((6, 12),)], "a": [None, None]},  # what the iteration has just written
        {"a": [((0, 6),), ((6, 12),)], "b": [((6, 12),), ((0, 6),)]},
    ),
    "transposed": (
        "for i in range(12):\n for j in range(5):\n  b[j, i] = a[i, j]",
        {"a": (12, 5), "b": (5, 12)},
        {"b": (1, BLOCKS)},
        {"a": [((0, 6), (0, 5)), ((6, 12), (0, 5))], "b": [None, None]},
        {"b": [((0, 5), (0, 6)), ((0, 5), (6, 12))]},
    ),
    "beyond the end": (
        "for i in range(12):\n if i < 11:\n  y[i] = x[i + 1]",
        {"x": (12,), "y": (12,)},
        {"y": (0, BLOCKS)},
        {"x": [((1, 7),), ((7, 12),)], "y": [((0, 6),), ((6, 12),)]},  # a branch: not all is written
        {"y": [((0, 6),), ((6, 12),)]},
    ),
}


@pytest.mark.parametrize("vector", VECTORS)
def test_vectors(vector):
    """Loops that programs have need and write these boxes."""
    text, arrays, owned, needs, writes = VECTORS[vector]
    found = of_two(text, arrays, **owned)
    for array, boxes in needs.items():
        given = found[array].needs.boxes if found[array].needs else ((), ())
        assert given == tuple((box,) if box else () for box in boxes), array
    assert {array: each.writes.alone for array, each in found.items() if each.writes} == {
        array: tuple((box,) for box in boxes) for array, boxes in writes.items()
    }


def test_a_scatter():
    """A guarded scatter needs and marks the range that it owns, and the index everywhere."""
    text = "for i in range(12):\n y[p[i]] = x[i]"
    arrays = {"x": (12,), "y": (12,), "p": (12,)}
    found = of_two(text, arrays, ((0, 12),) * 2, is_guarded=True, y=(0, BLOCKS))
    assert found["p"].needs.boxes == ((((0, 12),),),) * 2
    assert found["y"].needs.boxes == found["y"].writes.alone == ((((0, 6),),), (((6, 12),),))


def test_an_atomic_update():
    """A histogram needs what it owns, since an update reads; a load for an owned element needs that part alone."""
    arrays = {"h": (12,), "b": (12,)}
    found = of_two("for i in range(12):\n atomic(h[b[i]], 1)", arrays, ((0, 12),) * 2, is_guarded=True, h=(0, BLOCKS))
    assert found["h"].needs.boxes == found["h"].writes.alone == ((((0, 6),),), (((6, 12),),))
    text = "for i in range(12):\n h[b[i]] = h[b[i]] + 1"
    reached = accesses_of(text, arrays)
    loads = [access.at for access in reached.listed if access.array == "h" and access.kind == "load"]
    owned = owned_along((12,), 0, BLOCKS)
    how = division(((0, 12),) * 2, is_guarded=True, h=owned, own_loads=loads)
    assert footprints(reached, how)["h"].needs.boxes == ((((0, 6),),), (((6, 12),),))


def test_negative_indices():
    """An index that wraps round needs the last element on one device, and not all in between."""
    found = of_two("for i in range(12):\n y[i] = x[i - 1]", {"x": (12,), "y": (12,)}, y=(0, BLOCKS))
    assert {frozenset(boxes) for boxes in found["x"].needs.boxes} == {
        frozenset({((0, 5),), ((11, 12),)}),
        frozenset({((5, 11),)}),
    }


def test_what_all_devices_write():
    """An array that is written everywhere is current on all, and needed where its hull has gaps."""
    whole = ((0, 6),) * 2
    found = of_two("for i in range(6):\n w[i] = p[i]", {"w": (12,), "p": (12,)}, whole)
    assert found["w"].needs is None
    assert found["w"].writes.everywhere == (((0, 6),),)
    found = of_two("for i in range(6):\n w[2*i] = p[i]", {"w": (12,), "p": (12,)}, whole)
    assert found["w"].needs.boxes == ((((0, 11),),),) * 2


def test_devices_without_trips_and_loops_without_iterations():
    """A device that does nothing needs and writes nothing; of a loop that does nothing there are no footprints."""
    arrays = {"x": (12,), "y": (12,)}
    found = of_two("for i in range(12):\n y[i] = x[i]", arrays, ((0, 12), (12, 12)), y=(0, [(0, 12), (12, 12)]))
    assert found["x"].needs.boxes == ((((0, 12),),), ())
    assert found["y"].writes.alone == ((((0, 12),),), ())
    found = of_two(
        "for i in range(6):\n y[p[i]] = 1", arrays | {"p": (6,)}, ((0, 6), (0, 0)), is_guarded=True, y=(0, BLOCKS)
    )
    assert found["y"].needs.boxes == found["y"].writes.alone == ((((0, 6),),), ())
    assert of_two("for i in range(3, 3):\n y[i] = x[i]", arrays, ((0, 0), (0, 0))) == {}


def test_two_names_of_one_array():
    """They have one footprint, under the first name."""
    same = view(12, address=8_000)
    found = of_two("for i in range(12):\n y[i] = x[i] + 1", {"x": same, "y": same}, y=(0, BLOCKS))
    assert found.keys() == {"x"}
    assert found["x"].needs.boxes == found["x"].writes.alone == ((((0, 6),),), (((6, 12),),))


def test_private_arrays_and_items_of_reductions():
    """What is copied in is needed by all; what holds afterwards is on one device."""
    typed, nest = typed_nest("for i in range(12):\n t[0] = i")
    for word, needed, written in (("firstprivate", 2, 0), ("lastprivate", 0, 1), ("private", 0, 0)):
        nest_ = ir.Nest(axes=nest.axes, body=nest.body, clauses=nest.clauses, place=nest.place, privates={"t": word})
        reached = accesses(typed, nest_, LaunchNumbers((Trips(0, 1, 12),), {}, {"t": view(3, address=64)}))
        found = footprints(reached, division(((0, 6), (6, 12)), last=1)).get("t")
        assert sum(map(bool, found.needs.boxes)) if found and found.needs else needed == 0
        assert (found.writes.alone if found and found.writes else ((), ())) == ((), (((0, 3),),) * written)
    item = ir.LoopReduction("+", "s")
    items = item, ir.LoopReduction("+", "a_scalar")
    nest_ = ir.Nest(axes=nest.axes, body=nest.body, clauses=nest.clauses, place=nest.place, reductions=items)
    views = {"s": view(address=64), "t": view(3, address=640)}
    found = footprints(accesses(typed, nest_, LaunchNumbers((Trips(0, 1, 12),), {}, views)), division(((0, 12),) * 2))
    assert found["s"].needs.boxes == found["s"].writes.alone == (((),), ())


def test_one_device_or_all_of_them():
    """Of a nest on the first device alone the others need nothing; where each does all, all are current."""
    reached = accesses_of("for i in range(12):\n y[i] = y[i - 2] + s[()]", {"y": (14,), "s": ()})
    found = footprints(reached, single(reached, 3))
    assert [len(boxes) for boxes in found["s"].needs.boxes] == [1, 0, 0]
    assert found["y"].writes.alone == ((((0, 12),),), (), ())
    found = footprints(reached, duplicate(reached, 3))
    assert [len(boxes) for boxes in found["s"].needs.boxes] == [1, 1, 1]
    assert found["y"].writes.everywhere == (((0, 12),),)


def test_atomic_updates_on_one_device_or_all():
    """An element without dimensions is owned by one device; of updates that each device makes the first's hold."""
    reached = accesses_of("for i in range(12):\n atomic(s[()], 1)", {"s": ()})
    for how in (single(reached, 2), duplicate(reached, 2), division(((0, 12),) * 2, is_guarded=True, s=((), None))):
        found = footprints(reached, how)
        assert found["s"].writes.alone == (((),), ())
        assert not found["s"].writes.everywhere


def a_footprint(rng, shape, n_devices):
    """Return a footprint of an array: any needs, writes by blocks of a dimension or everywhere."""

    def box():
        return tuple(tuple(sorted((rng.randint(0, n), rng.randint(0, n)))) for n in shape)

    needs = [[box() for _ in range(rng.randint(0, 2))] for _ in range(n_devices)]
    alone, everywhere = [[] for _ in range(n_devices)], []
    if rng.random() < 0.3:
        everywhere = [box()]
    elif shape:
        k = rng.randrange(len(shape))
        for device, block in enumerate(cuts(rng, 0, shape[k], n_devices)):
            alone[device] = [(*box()[:k], block, *box()[k + 1 :])]
    boxes = [[each for each in boxes if elements([each])] for boxes in (*needs, *alone, everywhere)]
    return _footprint(boxes[:n_devices], boxes[n_devices:-1], boxes[-1])


def test_footprints_of_views():
    """What stands for a part of an array claims in the whole what it has written, and needs what lies between."""
    rng, counts = random.Random(5), Counter()
    for _ in range(600):
        array = an_array(rng)
        view = a_view(rng, array.reshape(-1) if rng.random() < 0.2 else array)
        if view.base is None or not np.shares_memory(view, array) or not view.size:
            continue
        n_devices = rng.choice((1, 2, 3))
        part = a_footprint(rng, view.shape, n_devices)
        found = within(part, Laid(view), Laid(array))
        if found is None:
            counts["none"] += 1
            continue
        counts["is a view"] += 1

        def image(boxes, view=view, shape=array.shape):
            return {tuple(map(int, np.unravel_index(view[index], shape))) for index in elements(boxes)}

        for device in range(n_devices):
            needs = elements(found.needs.boxes[device]) if found.needs else set()
            asked = image(part.needs.boxes[device]) if part.needs else set()
            of_part, of_whole = (
                (p.writes.alone[device], p.writes.everywhere) if p.writes else ((), ()) for p in (part, found)
            )
            assert asked <= needs
            for written, marked in zip(of_part, of_whole, strict=True):
                assert image(written) <= elements(marked) <= image(written) | needs
            counts["more"] += needs > asked
    assert counts["is a view"] > 300
    assert min(counts["none"], counts["more"]) > 3, counts


def test_a_field_of_a_record_is_a_part_of_each_element():
    """A device that writes one field needs the whole elements, which are marked as current with all their fields."""
    array = np.zeros((4, 6), np.complex128)
    part = _footprint([[], []], [[((0, 2), (0, 6))], [((2, 4), (0, 6))]], [])
    assert part.needs is None
    for one in (array.real, array.imag):
        found = within(part, Laid(one), Laid(array))
        assert found.writes.alone == part.writes.alone
        assert found.needs.boxes == part.writes.alone
    assert within(part, Laid(array), Laid(array)) is part


def test_a_division_that_breaks_its_promise():
    """A write of a cut nest outside of its device's range is found, before anything is marked."""
    with pytest.raises(AssertionError):
        of_two("for i in range(12):\n y[i] = 1", {"y": (12,)}, y=(0, [(0, 5), (5, 12)]))
    with pytest.raises(AssertionError):
        of_two("for i in range(12):\n y[i] = 1", {"y": (12,)})


INNER = "for i in range(1, 11):\n for j in range(1, 11):\n"
LOOPS = {
    "sweep": f"{INNER}  b[i, j] = a[i-1, j] + a[i+1, j] + a[i, j-1] + a[i, j+1]",
    "back": f"{INNER}  a[i, j] = b[i-1, j] + b[i+1, j] + b[i, j-1] + b[i, j+1]",
    "rows": "for i in range(12):\n for j in range(1, 12):\n  a[i, j] = a[i, j] - a[i, j-1]",
    "columns": "for i in range(12):\n for j in range(1, 12):\n  a[j, i] = a[j, i] - a[j-1, i]",
    "transpose": "for i in range(12):\n for j in range(12):\n  b[j, i] = a[i, j]",
    "triangle": "for i in range(12):\n for j in range(i + 1):\n  b[i, j] = a[j, i]",
    "branch": "for i in range(12):\n if v[i] > 0:\n  w[i] = v[i]",
    "gather": "for i in range(12):\n w[i] = v[p[i]]",
    "backwards": "for i in range(12):\n v[11 - i] = w[i]",
    "parity": "for i in range(5):\n v[2*i + 1] = v[2*i] + v[2*i + 2]",
    "wrapped": "for i in range(12):\n w[i] = v[i - 1] - v[i]",
    "twice": "for i in range(12):\n w[i] = v[i] + 1\n v[i] = 2*w[i]",
    "product": "for i in range(12):\n s = 0\n for j in range(12):\n  s = s + a[i, j]*w[j]\n v[i] = s % 1000",
}
EXTENTS = {"a": (N, N), "b": (N, N), "v": (N,), "w": (N,), "p": (N,)}
EXACT = LOOPS.keys() - {"gather", "triangle", "branch", "parity"}
"""Loops whose devices read every element that they need."""


class Seen:
    """An array whose elements are noted when they are read."""

    def __init__(self, array, read):
        self.array, self.read = array, read

    def __getitem__(self, index):
        index = index if isinstance(index, tuple) else (index,)
        self.read.add(tuple(place % extent for place, extent in zip(index, self.array.shape, strict=True)))
        return int(self.array[index])

    def __setitem__(self, index, value):
        self.array[index] = value


def carry_out(text, arrays, trips):
    """Run a loop in some of its outermost trips, and return what it has read of each array."""
    read = {name: set() for name in arrays}
    head, body = text.split("\n", 1)
    head = head.replace(":", f"[{trips[0]}:{trips[1]}]:")
    exec(f"{head}\n{body}", {name: Seen(array, read[name]) for name, array in arrays.items()})
    return read


class Replicas:
    """Arrays on several devices, and the one that a serial run has."""

    def __init__(self, rng, n_devices):
        self.rng, self.n = rng, n_devices
        self.serial = {
            name: np.array([rng.randint(-9, 9) for _ in range(np.prod(shape))]) for name, shape in EXTENTS.items()
        }
        self.serial = {name: array.reshape(EXTENTS[name]) for name, array in self.serial.items()}
        self.serial["p"][:] = rng.sample(range(N), N)
        self.devices = [{name: array.copy() for name, array in self.serial.items()} for _ in range(n_devices)]
        self.tables = {name: BoxTable(tuple((0, n) for n in shape), n_devices) for name, shape in EXTENTS.items()}
        self.n_copied = 0

    def move(self, name, exchange):
        copied = [set() for _ in range(self.n)]
        # The order of copies is free: each is made of what was there before.
        sent = [self.devices[copy.source][name][slices(copy.box)].copy() for copy in exchange.copies]
        for copy, values in zip(exchange.copies, sent, strict=True):
            self.devices[copy.target][name][slices(copy.box)] = values
            copied[copy.target] |= elements([copy.box])
        self.n_copied += sum(map(len, copied))
        return copied

    def loop(self, kind):
        """Split a loop by blocks of its outermost trips, and run it."""
        text = LOOPS[kind]
        reached = accesses_of(text, {name: EXTENTS[name] for name in EXTENTS if f"{name}[" in text})
        n_trips = reached.launch.axes[0].trips
        trips = cuts(self.rng, 0, n_trips, self.n)
        splits = {}
        for array in sorted({access.array for access in reached.listed if access.kind == "store"}):
            stores = [access for access in reached.listed if access.kind == "store" and access.array == array]
            owned = (owned_ranges(stores, trips, N, dimension) for dimension in range(len(EXTENTS[array])))
            splits[array] = next(owned_along(EXTENTS[array], k, ranges) for k, ranges in enumerate(owned) if ranges)
        found = footprints(reached, division(trips, **splits))
        copied = {name: self.move(name, self.tables[name].exchange(p.needs)) for name, p in found.items() if p.needs}
        for device, arrays in enumerate(self.devices):
            read = carry_out(text, arrays, trips[device])
            for name, moved in copied.items():
                assert kind not in EXACT or moved[device] <= read[name], "no byte that is not needed"
        for name, prints in found.items():
            if prints.writes is not None:
                self.tables[name].wrote(prints.writes)
        carry_out(text, self.serial, (0, n_trips))

    def host_writes(self, name):
        """Send a section to all devices, as ``update to`` does."""
        box = self.section(name)
        values = self.rng.randint(-9, 9)
        for arrays in (self.serial, *self.devices):
            arrays[name][slices(box)] = values
        self.tables[name].mark_written(box)

    def plain(self, name):
        """Use a section on one device, in a construct that says nothing of what it writes."""
        box, device = self.section(name), self.rng.randrange(self.n)
        if not self.tables[name].is_current(device, box):
            self.move(name, self.tables[name].complete(device))
        self.tables[name].mark_written(box, device)
        values = self.rng.randint(-9, 9)
        for arrays in (self.serial, self.devices[device]):
            arrays[name][slices(box)] += values

    def host_reads(self, name):
        box = self.section(name)
        for device, part in self.tables[name].gather(box):
            assert (self.devices[device][name][slices(part)] == self.serial[name][slices(part)]).all()

    def section(self, name):
        return tuple(tuple(sorted(self.rng.sample(range(N + 1), 2))) for _ in EXTENTS[name])

    def compare(self):
        for name, table in self.tables.items():
            for box, mask in table.rows:
                for device in range(self.n):
                    if mask >> device & 1:
                        mine = self.devices[device][name][slices(box)]
                        assert (mine == self.serial[name][slices(box)]).all(), (name, box, device)


def slices(box):
    return tuple(slice(low, high) for low, high in box)


def run_a_sequence(rng, counts):
    replicas = Replicas(rng, rng.choice((1, 2, 3, 4, 7)))
    for _ in range(rng.randint(2, 8)):
        match rng.randrange(8):
            case 0:
                replicas.host_writes(rng.choice("abvw"))
            case 1:
                replicas.plain(rng.choice("abvw"))
            case 2:
                replicas.host_reads(rng.choice("abvw"))
            case _:
                replicas.loop(rng.choice(list(LOOPS)))
        replicas.compare()
    counts["copied"] += replicas.n_copied


@settings(max_examples=examples(40, soak=1_000), deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_sequences_of_loops(seed):
    """What a table calls current has the value of the serial run, and nothing is copied that nobody reads."""
    run_a_sequence(random.Random(seed), Counter())


def test_sequences_copy_something():
    """Sequences move enough elements to mean something."""
    rng, counts = random.Random(1), Counter()
    for _ in range(10):
        run_a_sequence(rng, counts)
    assert counts["copied"] > 200
