"""The data environment against a model: for each device a dictionary of counts and one of values.

The model is written from the standard's rules (`map Clause`, `target update Construct`), element by element; it knows
nothing of sections, plans, packing or streams. A new device block is filled with `POISON`, so that storage whose
content the standard leaves open has a known one, and a copy that should not have been is seen.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import offload as omp
from offload.arrays.items import array_section
from offload.data.maptypes import MapConstruct, types_of
from tests.profiles import examples

pytestmark = pytest.mark.filterwarnings("ignore::offload.DirectiveWarning")  # an exit from associated storage

ROWS, COLUMNS = 4, 6
SIZE = ROWS * COLUMNS
NUMBERS = np.arange(SIZE).reshape(ROWS, COLUMNS)
POISON = float(np.full(8, 0x42, np.uint8).view(np.float64)[0])
DEVICES = 2


def named(construct):
    """Return the functions' names of the map types that a construct takes; its rules are the model's own."""
    return [{"from": "from_"}.get(map_type.word, map_type.word) for map_type in types_of(construct)]


ENTERING, LEAVING = named(MapConstruct.TARGET_ENTER_DATA), named(MapConstruct.TARGET_EXIT_DATA)
REGION = named(MapConstruct.TARGET)
COPIES_IN, COPIES_OUT = {"to", "tofrom"}, {"from_", "tofrom"}


# -- list items -------------------------------------------------------------------------------------
class View(NamedTuple):
    """A view of the one host array: of its flat form if ``index`` is one slice, else of the matrix."""

    index: tuple[slice, ...]
    is_turned: bool = False

    def of(self, matrix):
        view = (matrix.reshape(-1) if len(self.index) == 1 else matrix)[self.index]
        return view.T if self.is_turned else view

    @property
    def elements(self):
        return frozenset(self.of(NUMBERS).ravel().tolist())


class Item(NamedTuple):
    """A view with a map type and modifiers."""

    view: View
    map_type: str
    always: bool = False
    present: bool = False

    def clause(self, matrix):
        return getattr(omp, self.map_type)(self.view.of(matrix), always=self.always, present=self.present)

    def __repr__(self):
        flags = "".join(f", {flag}=True" for flag in ("always", "present") if getattr(self, flag))
        return f"{self.map_type}({self.view}{flags})"


@st.composite
def slices(draw, size, steps):
    """Return a slice with at least one element."""
    start = draw(st.integers(0, size - 1))
    step = draw(st.sampled_from(steps))
    return slice(start, min(size, start + draw(st.integers(1, size))), step)


@st.composite
def views(draw, *, may_be_empty=True):
    """Return a view: the whole, a flat range with or without strides, a tile, one turned round or over, or empty."""
    kind = draw(st.sampled_from(["whole", "range", "range", "strided", "tile", "tile", "empty"]))
    if kind == "empty" and may_be_empty:
        start = draw(st.integers(0, SIZE - 1))
        return View((slice(start, start),))
    if kind == "whole":
        return View((slice(0, ROWS), slice(0, COLUMNS)))
    if kind == "strided":
        return View((draw(slices(SIZE, [2, 3, 7])),))
    if kind == "tile":
        rows, columns = draw(slices(ROWS, [1, 1, 2])), draw(slices(COLUMNS, [1, 1, 2, 3]))
        if draw(st.booleans()):
            last = range(*rows.indices(ROWS))[-1]
            rows = slice(last, rows.start - 1 if rows.start else None, -rows.step)
        return View((rows, columns), draw(st.booleans()))
    return View((draw(slices(SIZE, [1])),))


def items(types, **more):
    modifiers = st.sampled_from([(False, False)] * 4 + [(True, False), (False, True), (True, True)])
    return st.builds(
        lambda view, kind, flags: Item(view, kind, *flags), views(**more), st.sampled_from(types), modifiers
    )


def constructs(types, size=3):
    return st.lists(items(types), min_size=1, max_size=size)


devices = st.integers(0, DEVICES - 1)


# -- the model --------------------------------------------------------------------------------------
class Model:
    """What the standard says: counts by the elements that an entry holds, values by element."""

    def __init__(self):
        self.host = [float(k) for k in range(SIZE)]
        self.counts = [{} for _ in range(DEVICES)]
        self.memory = [{} for _ in range(DEVICES)]

    def holder(self, view, entries):
        """Return the entry that holds a view, and whether some entry holds a part of it only."""
        elements = view.elements
        if not elements:
            # NumPy lets an empty view begin where its base does.
            return next((entry for entry in entries if 0 in entry), None), False
        for entry in entries:
            if elements <= entry and has_strides(view, entry):
                return entry, False
        return None, any(elements & entry for entry in entries)

    def refused(self, views, counts):
        """Return the errors of which one is due: a view is absent, or all of it is there, but has no strides there."""
        absent = [view for view, is_present in views if self.holder(view, counts)[0] is None]
        errors = set()
        if any(view.elements and any(view.elements <= entry for entry in counts) for view in absent):
            errors.add(omp.MapError)
        if any(is_present and self.holder(view, counts)[0] is None for view, is_present in views):
            errors.add(omp.NotPresentError)
        return tuple(errors)

    def enter(self, device, construct):
        """Enter; return the error that is due, when nothing has changed, or None."""
        counts, memory = self.counts[device], self.memory[device]
        refused = self.refused([(item.view, item.present) for item in construct], counts)
        if refused:
            return refused
        found = [self.holder(item.view, counts) for item in construct]
        if any(is_partial for _, is_partial in found):
            return omp.ExtensionError
        new = []
        absent = [item.view for item, (entry, _) in zip(construct, found, strict=True) if entry is None]
        for view in sorted(absent, key=lambda view: -len(view.elements)):
            entry, is_partial = self.holder(view, new)
            if is_partial:
                return omp.MapError
            if entry is None and view.elements:
                new.append(view.elements)
        for entry in new:
            counts[entry] = 0
            memory.update(dict.fromkeys(entry, POISON))
        hit = {self.holder(item.view, counts)[0] for item in construct if item.view.elements}
        for entry in hit:
            counts[entry] += 1
        for item in construct:
            entry = self.holder(item.view, counts)[0]
            if item.map_type in COPIES_IN and (entry in new or item.always):
                self.copy_in(device, item.view)
        return None

    def exit(self, device, construct):
        """Leave; return the error that is due, when nothing has changed, or None."""
        counts = self.counts[device]
        refused = self.refused([(item.view, item.present) for item in construct], counts)
        if refused:
            return refused
        found = [(item, self.holder(item.view, counts)[0]) for item in construct]
        found = [(item, entry) for item, entry in found if entry is not None and item.view.elements]
        for entry in {entry for _, entry in found}:
            if counts[entry] != inf:
                is_deleted = any(item.map_type == "delete" for item, hit in found if hit == entry)
                counts[entry] = 0 if is_deleted else counts[entry] - 1
        for item, entry in found:
            if item.map_type in COPIES_OUT and (item.always or not counts[entry]):
                self.copy_out(device, item.view)
        for entry in {entry for _, entry in found}:
            if not counts[entry]:
                self.drop(device, entry)
        return None

    def update(self, device, to, from_, present):
        """Update; return the error that is due, or None."""
        incoming = frozenset().union(*[view.elements for view in to])
        if any(view.elements & incoming for view in from_) or not (to or from_):
            return omp.ClauseError
        refused = self.refused([(view, present) for view in (*to, *from_)], self.counts[device])
        if refused:
            return refused
        found = [self.holder(view, self.counts[device])[0] for view in (*to, *from_)]
        for view, entry in zip((*to, *from_), found, strict=True):
            if entry is not None:
                (self.copy_in if view in to else self.copy_out)(device, view)
        return None

    def copy_in(self, device, view):
        for element in view.elements:
            self.memory[device][element] = self.host[element]

    def copy_out(self, device, view):
        for element in view.elements:
            self.host[element] = self.memory[device][element]

    def drop(self, device, entry):
        del self.counts[device][entry]
        for element in entry:
            del self.memory[device][element]


def has_strides(view, entry):
    """Tell whether a view inside an entry is one of what is stored there too: an array has strides, not any set has."""
    order = sorted(entry)
    if order[-1] - order[0] + 1 == len(order):
        return True
    where = {element: k for k, element in enumerate(order)}
    places = np.vectorize(where.get)(view.of(NUMBERS))
    steps = [np.diff(places, axis=axis) for axis in range(places.ndim)]
    return all(step.size == 0 or (step == step.flat[0]).all() for step in steps)


# -- the machine ------------------------------------------------------------------------------------
class DataEnvironmentMachine(RuleBasedStateMachine):
    """Does to a runtime and to the model the same; after each step memory and counts are compared."""

    @initialize()
    def open(self):
        self.model = Model()
        self.matrix = NUMBERS.astype(np.float64)
        self.next_value = 1000.0
        self.associated = []
        self.runtime = omp.Runtime("sim:2", num_threads=1)
        self.runtime.__enter__()
        for place in self.runtime.places:
            place.device.alloc, place.device.poisons = poisoned(place.device.alloc), False

    def new_value(self):
        self.next_value += 1
        return self.next_value

    def does(self, expected, construct, **clauses):
        """Run a construct, at once or deferred, and expect the model's error, or none."""
        nowait = clauses.get("nowait")
        if expected is None:
            result = construct(**clauses)
            return result.result() if nowait else result
        with pytest.raises(expected) as caught:
            construct(**clauses).result() if nowait else construct(**clauses)
        assert type(caught.value) in (expected if isinstance(expected, tuple) else (expected,))
        return None

    def clauses(self, construct):
        return [item.clause(self.matrix) for item in construct]

    @rule(device=devices, construct=constructs(ENTERING), nowait=st.booleans())
    def enter(self, device, construct, nowait):
        expected = self.model.enter(device, construct)
        self.does(expected, omp.target_enter_data, map=self.clauses(construct), device=device, nowait=nowait)

    @rule(device=devices, construct=constructs(LEAVING), nowait=st.booleans())
    def exit(self, device, construct, nowait):
        expected = self.model.exit(device, construct)
        self.does(expected, omp.target_exit_data, map=self.clauses(construct), device=device, nowait=nowait)

    @rule(device=devices, number=st.integers(0, 9), kind=st.sampled_from(LEAVING), always=st.booleans())
    def exit_what_is_there(self, device, number, kind, always):
        """Items drawn at random seldom are what was entered."""
        entries = sorted(self.model.counts[device], key=sorted)
        view = self.as_view(entries[number % len(entries)]) if entries else None
        if view is not None:
            self.exit(device, [Item(view, kind, always)], nowait=False)

    @rule(device=devices, item=items(REGION, may_be_empty=False), nowait=st.booleans(), is_listed=st.booleans())
    def target(self, device, item, nowait, is_listed):
        """A region reads and writes all of its item."""
        if not is_listed:
            item = Item(item.view, "tofrom")
        expected = self.model.enter(device, [item])
        value = self.new_value()
        seen = []

        def body(a):
            assert omp.get_device_num() == device
            seen.append(a.get())
            a[...] = value

        region = omp.target(map=self.clauses([item]) if is_listed else [], device=device, nowait=nowait)(body)
        array = item.view.of(self.matrix)
        self.does(expected, lambda nowait: region(array), nowait=nowait)
        if expected is None:
            memory = self.model.memory[device]
            assert seen[0].ravel().tolist() == [memory[k] for k in item.view.of(NUMBERS).ravel().tolist()]
            memory.update(dict.fromkeys(item.view.elements, value))
            assert self.model.exit(device, [Item(item.view, item.map_type, item.always)]) is None

    @rule(device=devices, construct=constructs(REGION, 2), inside=constructs(LEAVING, 2), is_own=st.booleans())
    def target_data(self, device, construct, inside, is_own):
        """A region, in which something is unmapped, perhaps what it found there, and the host's array is written."""
        if is_own:
            self.enter(device, [item._replace(map_type="alloc", present=False) for item in construct], nowait=False)
            inside = [item._replace(view=own.view) for item, own in zip(inside, construct, strict=False)]
        expected = self.model.enter(device, construct)
        if expected is not None:
            with pytest.raises(expected), omp.target_data(map=self.clauses(construct), device=device):
                pass
            return
        with omp.target_data(map=self.clauses(construct), device=device):
            self.exit(device, [item._replace(present=False) for item in inside], nowait=False)
            self.write(construct[0].view)
        assert self.model.exit(device, [item._replace(present=False) for item in construct]) is None

    @rule(
        device=devices,
        to=st.lists(views(), max_size=2),
        from_=st.lists(views(), max_size=2),
        present=st.booleans(),
        nowait=st.booleans(),
    )
    def update(self, device, to, from_, present, nowait):
        expected = self.model.update(device, to, from_, present)
        self.does(
            expected,
            omp.target_update,
            to=[view.of(self.matrix) for view in to],
            from_=[view.of(self.matrix) for view in from_],
            present=present,
            device=device,
            nowait=nowait,
        )

    @rule(view=views())
    def write(self, view):
        """The host writes."""
        value = self.new_value()
        view.of(self.matrix)[...] = value
        for element in view.elements:
            self.model.host[element] = value

    @rule(device=devices, view=views(may_be_empty=False))
    def associate(self, device, view):
        array = view.of(self.matrix)
        entry, is_partial = self.model.holder(view, self.model.counts[device])
        expected = omp.MapError if entry is not None or is_partial else None
        d = omp.target_alloc(array.size, np.float64, device)
        if expected is None:
            omp.target_associate_ptr(array, d, device)
            self.model.counts[device][view.elements] = inf
            self.model.memory[device].update(dict.fromkeys(view.elements, POISON))
            self.associated.append((device, view, d))
        else:
            with pytest.raises(expected):
                omp.target_associate_ptr(array, d, device)
            omp.target_free(d)

    @rule(device=devices, view=views(may_be_empty=False), number=st.none() | st.integers(0, 3))
    def disassociate(self, device, view, number):
        if number is not None and self.associated:
            device, view, d = self.associated.pop(number % len(self.associated))
            omp.target_disassociate_ptr(view.of(self.matrix), device)
            omp.target_free(d)
            self.model.drop(device, view.elements)
        elif self.model.counts[device].get(view.elements) != inf:
            with pytest.raises(omp.MapError):
                omp.target_disassociate_ptr(view.of(self.matrix), device)

    def as_view(self, entry):
        """Return a view of the elements of an entry, where a flat slice makes one."""
        order = sorted(entry)
        step = order[1] - order[0] if len(order) > 1 else 1
        view = View((slice(order[0], order[-1] + 1, step),))
        return view if view.elements == entry else None

    @invariant()
    def agree(self):
        if not hasattr(self, "runtime"):
            return
        assert self.matrix.ravel().tolist() == self.model.host
        base = array_section(self.matrix).address
        for place, counts, memory in zip(self.runtime.places, self.model.counts, self.model.memory, strict=True):
            assert not place.in_flight
            entries = {elements_of(entry, base): entry for entry in place.table.entries()}
            assert {elements: entry.count for elements, entry in entries.items()} == counts
            assert all(count > 0 for count in counts.values())
            stored = {}
            for elements, entry in entries.items():
                stored.update(zip(sorted(elements), entry.buffer.get().view(np.float64).tolist(), strict=True))
            assert stored == memory

    def teardown(self):
        if not hasattr(self, "runtime"):
            return
        try:
            while self.associated:
                self.disassociate(0, None, 0)
            for device in range(DEVICES):
                whole = [omp.delete(entry.host) for entry in self.runtime.places[device].table.entries()]
                if whole:
                    omp.target_exit_data(map=whole, device=device)
                assert self.runtime.places[device].table.entries() == ()
            assert self.matrix.ravel().tolist() == self.model.host
        finally:
            self.runtime.__exit__(None, None, None)
        for place in self.runtime.places:
            assert place.device.live_nbytes() == 0


def poisoned(alloc):
    """Return an allocator whose blocks are full of `POISON`."""

    def fill(shape, dtype, stream):
        array = alloc(shape, dtype, stream)
        array.unwrap().view(np.uint8)[...] = 0x42
        return array

    return fill


def elements_of(entry, base):
    """Return the numbers of the elements that an entry holds."""
    section = entry.section
    starts = [section.address]
    for count, stride in section.dims:
        starts = [start + k * stride for start in starts for k in range(count)]
    return frozenset((start - base) // 8 + k for start in starts for k in range(section.run_nbytes // 8))


TestDataEnvironment = DataEnvironmentMachine.TestCase
TestDataEnvironment.settings = settings(
    max_examples=examples(60, soak=2_000),
    stateful_step_count=20,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow],
)
