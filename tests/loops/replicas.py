"""One nest on several replicas of its arrays, as devices would have them, with a mark beside each element.

A device's marks say which elements of its replica are current. What a nest needs is brought first, from whoever has it;
then each device goes through its trips, and reading an element that is not current is an error. Afterwards whatever a
device owns is current there alone. What is current is compared with the serial run, everywhere.
"""

from __future__ import annotations

import numpy as np

from offload.loops.emit.python_form import combine, from_bits, held, host_parts, places, python_form
from offload.loops.front.parse import parse
from offload.loops.front.source import FunctionSource
from offload.loops.front.types import infer
from offload.loops.proofs.bounds import bounds
from offload.loops.proofs.numbers import LaunchNumbers, Trips, View
from offload.loops.proofs.reach import accesses
from offload.loops.sets.filter import filtered
from offload.loops.sets.footprints import footprints
from offload.loops.tree import ir
from offload.loops.tree.uses import numbered, result_words
from tests.loops.forms import types_of
from tests.loops.oracle import compare


class StaleError(Exception):
    """An element was read that is not current on the device."""


class FailedError(Exception):
    """A kernel has reported."""


def root(array):
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


class Replica:
    """Arrays on a device that share memory as the program's do, and which of their elements are current."""

    def __init__(self, arrays, rng=None):
        roots = {id(root(array)): root(array) for array in arrays.values()}
        memory = {}
        for key, array in roots.items():
            whole = np.ndarray(array.nbytes, np.uint8, array.copy(order="K") if array.nbytes else None, 0, (1,))
            if rng is not None:
                whole[:] = rng.integers(0, 255, whole.shape)
            memory[key] = whole, np.full(array.nbytes, rng is None)
        self.arrays, self.current = {}, {}
        for name, array in arrays.items():
            base = root(array)
            data, marks = memory[id(base)]
            offset = array.__array_interface__["data"][0] - base.__array_interface__["data"][0]
            of = dict(zip(("shape", "offset", "strides"), (array.shape, offset, array.strides), strict=True))
            if array.size == 0:
                data, marks, of = np.zeros(1, np.uint8), np.zeros(1, bool), {"shape": array.shape}
                self.arrays[name], self.current[name] = np.zeros(array.shape, array.dtype), np.zeros(array.shape, bool)
                continue
            self.arrays[name] = np.ndarray(dtype=array.dtype, buffer=data, **of)
            self.current[name] = np.ndarray(dtype=bool, buffer=marks, **of)


class Watch:
    """What kernels ask for elements: counts writes, and finds elements that are not current."""

    def __init__(self, replica):
        self.replica = replica
        self.n_writes = 0
        self.changed = {name: np.zeros(array.shape, bool) for name, array in replica.arrays.items()}

    def load(self, name, indices, at, trips, report):
        array = self.replica.arrays[name]
        indices = places(array, indices, at, trips, report)
        if not self.replica.current[name][indices]:
            raise StaleError(f"{name}{[int(i) for i in indices]} is not current, access {at}, trips {trips}")
        return array[indices]

    def store(self, name, indices, value, at, trips, report):
        array = self.replica.arrays[name]
        indices = places(array, indices, at, trips, report)
        array[indices] = value
        self.replica.current[name][indices] = True
        self.changed[name][indices] = True
        self.n_writes += 1


def view_of(array):
    address = array.__array_interface__["data"][0]
    return View(array.shape, array.strides, array.itemsize, address)


def slices(box):
    return (*[slice(begin, end) for begin, end in box], ...)


class Devices:
    """Replicas of a set of arrays on so many devices."""

    def __init__(self, arrays, weights, seed=0, also=None):
        self.also = also  # another form of kernels, which has to do the same
        self.weights = tuple(weights)
        self.host = Replica(arrays)
        self.originals = arrays
        rng = np.random.default_rng(seed)
        self.replicas = [Replica(arrays, rng) for _ in weights]
        self.n_copied = 0
        self.last = None
        self.parsed = {}

    @property
    def holders(self):
        return [*self.replicas, self.host]

    def run(self, function, clauses, arguments):
        """Run a loop function of one nest; arguments are names of these arrays, by parameter, and scalars."""
        given = {n: self.originals[a] if isinstance(a, str) else a for n, a in arguments.items()}
        names = {n: a for n, a in arguments.items() if isinstance(a, str)}
        if (function, clauses) not in self.parsed:
            loop = parse(FunctionSource.of(function), clauses)
            typed = infer(loop, *types_of(loop, given))
            self.parsed[function, clauses] = typed, host_parts(typed)
        typed, parts = self.parsed[function, clauses]
        values = {n: held(v, typed.scalars[n]) for n, v in given.items() if n not in names}
        for part, host in zip(typed.function.parts, parts, strict=True):
            axes = host(values, {n: given[n] for n in names})
            if isinstance(part, ir.Nest):
                self.nest(typed, part, tuple(Trips(*axis) for axis in axes), values, names)
        returned = tuple(values[n] for n in typed.function.returns)
        return returned if typed.function.returns_tuple else returned[0] if returned else None

    def nest(self, typed, nest, axes, values, names):
        views = {n: view_of(self.originals[a]) for n, a in names.items()}
        plain = {n: v.item() for n, v in values.items()}
        launch = LaunchNumbers(axes, plain, views)
        found = self.last = filtered(typed, nest, launch, self.weights)
        modes = {at: limit.mode for at, limit in bounds(accesses(typed, nest, launch)).items()}
        extra, run = (), nest
        if not found.is_cut:
            typed, run, extra = found.guarded(typed)
        own = found.accesses.own
        observed = frozenset(at for at, access in numbered(nest).items() if access.array not in own)
        kernel = python_form(typed, run, modes, observed)
        prints = footprints(found.accesses, found.division)
        self.bring(prints, names)
        before = [{n: replica.arrays[a].copy() for n, a in names.items()} for replica in self.replicas]
        _, n_words = result_words(typed, nest)
        partials = np.zeros((len(self.replicas), n_words), np.uint64)
        self.n_writes, watches = 0, []
        for device, replica in enumerate(self.replicas):
            begin, end = found.trips[device]
            mine = _Named(replica, names)
            watch = Watch(mine)
            watches.append(watch)
            arguments = {**mine.arrays, **values, "observer": watch}
            arguments |= {name: np.int64(bound) for name, bound in found.fields(extra, device).items()}
            for number, axis in enumerate(axes):
                arguments |= {f"{what} {number}": getattr(axis, what) for what in ("start", "step", "trips")}
            report = np.zeros(16, np.int64)
            if self.also is not None:
                twin = Replica(mine.arrays)
            kernel(arguments, begin, end, device, partials, report)  # without a trip: partial results of none
            if self.also is not None:
                self.do_the_same(self.also(typed, run, modes), {**arguments, **twin.arrays}, found.trips[device], mine)
            if report[0]:
                raise FailedError(device, [int(slot) for slot in report[1:6]])
            self.n_writes += watch.n_writes
        self.combine(found, typed, nest, values, names, partials)
        self.mark(found, prints, names, before)
        return found

    def do_the_same(self, kernel, arguments, trips, replica):
        """Compare what another form does with what the Python form has done."""
        kernel(arguments, *trips, 0, np.zeros((1, 8), np.uint64), np.zeros(16, np.int64))
        for name, array in replica.arrays.items():
            assert (_bytes(arguments[name]) == _bytes(array)).all(), f"{name} differs"

    def bring(self, prints, names):
        """Bring what each device needs."""
        for device, replica in enumerate(self.replicas):
            for array, each in prints.items():
                name, boxes = names[array], each.needs.boxes[device] if each.needs is not None else ()
                for box in boxes:
                    where = slices(box)
                    missing = ~replica.current[name][where]
                    for other in self.holders:
                        have = missing & other.current[name][where]
                        replica.arrays[name][where][have] = other.arrays[name][where][have]
                        replica.current[name][where][have] = True
                        missing &= ~have
                        self.n_copied += int(have.sum()) * (other is not self.host)
                    assert not missing.any(), f"nobody has {name}{box}"

    def combine(self, found, typed, nest, values, names, partials):
        if found.mode != "split":
            partials = partials[:1]
        words, _ = result_words(typed, nest)
        for item in nest.reductions:
            of_item = partials[:, words[item.name]]
            if item.name not in names:
                values[item.name] = combine(item.operator, values[item.name], of_item)
                continue
            name = names[item.name]
            first = self.replicas[0].arrays[name]
            assert self.replicas[0].current[name].all()
            first[...] = combine(item.operator, first.reshape(-1)[0], of_item)
        count = found.cutter.count
        last = [device for device, (begin, end) in enumerate(found.blocks) if begin < end == count]
        if found.mode != "split":
            last = [0]
        if count:
            for name in nest.last:
                values[name] = from_bits(partials[last[0], words[name]], typed.scalars[name].dtype)

    def mark(self, found, prints, names, before):
        """Let what devices write be current on them alone, or on all; nothing else may have changed."""
        everywhere = {array: each.writes.everywhere for array, each in prints.items() if each.writes is not None}
        alone = {array: each.writes.alone for array, each in prints.items() if each.writes is not None}
        for array, boxes in everywhere.items():
            for box in boxes:
                self.host.current[names[array]][slices(box)] = False
                for device, replica in enumerate(self.replicas):
                    assert replica.current[names[array]][slices(box)].all(), f"{array}{box} of {device} is not current"
        for array, boxes_of in alone.items():
            is_last = found.accesses.nest.privates.get(array) == "lastprivate"  # copied at the end
            for device, boxes in enumerate(boxes_of):
                for box in boxes:
                    marks = self.replicas[device].current[names[array]][slices(box)]
                    assert is_last or marks.all(), f"{array}{box} of {device} is not current"
                    for other in self.holders:
                        other.current[names[array]][slices(box)] = other is self.replicas[device]
        self.check_untouched(names, before, everywhere, alone)

    def check_untouched(self, names, before, everywhere, alone):
        """Nothing that nobody says anything about has changed."""
        for device, replica in enumerate(self.replicas):
            for array, name in names.items():
                told = np.zeros(replica.arrays[name].shape, bool)
                for other in (other for other in alone if names[other] == name):
                    for box in (*everywhere[other], *[box for boxes in alone[other] for box in boxes]):
                        told[slices(box)] = True
                same = _bytes(replica.arrays[name]) == _bytes(before[device][array])
                shared = any(  # told of by another's name
                    names[other] != name and np.shares_memory(self.originals[names[other]], self.originals[name])
                    for other in names
                )
                assert shared or (same | told).all(), f"{name} changed on {device} and nobody says so"

    def check(self, expected, exact=True):
        """Compare whatever is current with the serial run; each element has to be current somewhere."""
        for name, serial in expected.items():
            anywhere = np.zeros(serial.shape, bool)
            for holder in self.holders:
                marks = holder.current[name]
                anywhere |= marks
                compare(holder.arrays[name][marks], serial[marks], name, exact=exact)
            assert anywhere.all(), f"elements of {name} are lost"


class _Named:
    """A replica by the names of parameters."""

    def __init__(self, replica, names):
        self.arrays = {n: replica.arrays[a] for n, a in names.items()}
        self.current = {n: replica.current[a] for n, a in names.items()}


def _bytes(array):
    packed = np.ascontiguousarray(array)
    return packed.view(np.uint8).reshape(*packed.shape, -1).sum(-1, dtype=np.int64) if packed.size else packed
