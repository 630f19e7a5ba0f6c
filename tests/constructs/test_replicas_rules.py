"""Random constructs on replicated and plain data against NumPy: what each sees is what the one before has left.

The model is a program on one memory: an array has its host's value and, while it is mapped anywhere, one value on
devices, however many replicas there are. It knows nothing of boxes, copies between devices or streams.
"""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import offload as omp
from offload import acc
from tests import eager_device
from tests.conftest import check_nothing_left
from tests.profiles import examples

assert eager_device.EagerKind.name == "eager", "a kind that is known once the file is imported"

SHAPES = [(24,), (7,), (6, 4), (5, 8), (3, 4, 5), ()]
N_STEPS = 24


def views(rng, array):
    """Return an index that gives a view with elements: a box, one with steps, reversed, or all."""
    if rng.random() < 0.25:
        return (...,)
    index = []
    for extent in array.shape:
        first = rng.randrange(extent)
        end = rng.randint(first + 1, extent)
        step = rng.choice((1, 1, 1, 1, 2, 3))
        index.append(slice(first, end, step) if rng.random() < 0.9 else slice(None, None, -1))
    return (*index, ...)


class Data:
    """An array, and what is known of it: the value on devices, and who has mapped it."""

    def __init__(self, rng, shapes):
        shape = rng.choice(shapes)
        self.host = np.array(rng.choice((1.0, 2.0)) * np.arange(np.prod(shape, dtype=int)).reshape(shape))
        if len(shape) > 1 and rng.random() < 0.3:
            self.host = self.host.T
        self.want = self.host.copy()
        self.value = None  # on devices
        self.devices = None  # of its set
        self.n_entered = 0
        self.plain = Counter()  # constructs on one device, by device

    @property
    def homes(self):
        """The devices on which it is present."""
        return sorted(set(self.devices or ()) | set(+self.plain))


class Program:
    """Carries out a random program on a runtime, and on the model beside."""

    names = (
        *("enter", "exit", "plain_enter", "plain_exit", "kernel", "kernel", "kernel"),
        *("read", "readers", "update", "update", "host"),
    )
    by_address = ("pointer", "memcpy", "memset")

    def __init__(self, rng, n, counts, shapes=SHAPES):
        self.rng, self.n, self.counts = rng, n, counts
        self.arrays = [Data(rng, shapes) for _ in range(rng.randint(1, 3))]

    # -- choices -----------------------------------------------------------------------------------
    def chosen(self):
        """Return devices of a set, in any order, and how a program may write them."""
        numbers = self.rng.sample(range(self.n), self.rng.randint(2, self.n))
        if len(numbers) == self.n and self.rng.random() < 0.5:
            return tuple(range(self.n)), "all"
        return tuple(numbers), self.rng.choice((list, tuple))(numbers)

    def shuffled(self, devices):
        return self.rng.sample(list(devices), len(devices))

    def ordered(self, data):
        """Return clauses under which a construct is in order with those before and after it."""
        return {"nowait": self.rng.random() < 0.6, "depend": omp.inout(data.host)}

    def settle(self, *arrays):
        if self.rng.random() < 0.9:
            omp.taskwait(depend=omp.inout(*[data.host for data in arrays]))
        else:
            omp.taskwait()

    # -- steps -------------------------------------------------------------------------------------
    def run(self):
        steps = [getattr(self, name) for name in (*self.names, *self.by_address)]
        for _ in range(N_STEPS):
            data, step = self.rng.choice(self.arrays), self.rng.choice(steps)
            if step(data) is not False:
                self.counts[step.__name__] += 1
        for data in self.arrays:
            while data.devices:
                self.exit(data)
            while data.homes:
                self.plain_exit(data)
            self.compare(data)

    def compare(self, data):
        self.settle(data)
        assert np.array_equal(data.host, data.want), (data.host, data.want)

    def host(self, data):
        """The host writes to its array."""
        self.settle(data)
        index = views(self.rng, data.host)
        self.compare(data)
        data.host[index] += 1
        data.want[index] += 1

    def enter(self, data):
        """Devices get replicas, or count theirs."""
        if data.devices is None and data.homes:
            return False
        devices, written = self.chosen()
        if data.devices is not None:
            devices, written = data.devices, self.shuffled(data.devices)
        if self.rng.random() < 0.3:
            acc.enter_data(copyin=[data.host], devices=written, depend=omp.inout(data.host))
            always = False
        else:
            always = self.rng.random() < 0.2
            omp.target_enter_data([omp.to(data.host, always=always)], devices=written, **self.ordered(data))
        if data.devices is None or always:
            data.value = data.want.copy()
        data.devices, data.n_entered = devices, data.n_entered + 1
        return True

    def exit(self, data):
        """The set is counted down, or ends."""
        if data.devices is None:
            return False
        written = self.shuffled(data.devices)
        word = self.rng.choice((omp.from_, omp.from_, omp.release))
        always = word is omp.from_ and self.rng.random() < 0.2
        item = word(data.host, always=True) if always else word(data.host)
        if self.rng.random() < 0.3 and not always:
            clauses = {"copyout": [data.host]} if word is omp.from_ else {"delete": [data.host]}
            acc.exit_data(devices=written, depend=omp.inout(data.host), **clauses)
        else:
            omp.target_exit_data([item], devices=written, **self.ordered(data))
        data.n_entered -= 1
        stays = set(+data.plain)
        ends = data.n_entered == 0
        if always or (ends and not stays and word is omp.from_):
            data.want[...] = data.value
        if ends:
            data.devices = None
            self.counts["dissolved"] += bool(stays)
            if not stays:
                data.value = None
        return True

    def plain_enter(self, data):
        """One device counts the array, or maps it; where it is in no set it is on one device only."""
        device = self.rng.choice(data.homes) if data.homes else self.rng.randrange(self.n)
        if (data.plain and device not in data.plain) or (not data.homes and self.rng.random() < 0.6):
            return False
        omp.target_enter_data([omp.to(data.host)], device=device, **self.ordered(data))
        if not data.homes:
            data.value = data.want.copy()
        data.plain[device] += 1
        return True

    def plain_exit(self, data):
        if not +data.plain:
            return False
        (device,) = +data.plain
        omp.target_exit_data([omp.from_(data.host)], device=device, **self.ordered(data))
        data.plain[device] -= 1
        data.plain = +data.plain
        if not data.homes:
            data.want[...] = data.value
            data.value = None
        return True

    def kernel(self, data):
        """A target region on one device changes a part, which it maps or is given."""
        device = self.rng.choice(data.homes) if data.homes else self.rng.randrange(self.n)
        index = views(self.rng, data.host)
        how = self.rng.choice(("implicit", "tofrom", "always", "acc"))
        clauses = {"map": {"tofrom": omp.tofrom("x"), "always": omp.tofrom("x", always=True)}[how]} if how in {
            "tofrom", "always"} else {}  # fmt: skip
        add = self.rng.randint(1, 3)

        def body(x):
            x *= 2
            x += add

        if how == "acc":
            acc.parallel(body, device=device, depend=omp.inout(data.host), async_=self.rng.choice((None, 1)))(
                data.host[index]
            )
        else:
            omp.target(body, device=device, **clauses, **self.ordered(data))(data.host[index])
        if data.value is None:
            data.want[index] = data.want[index] * 2 + add
            return
        if how == "always":
            data.value[index] = data.want[index]
        data.value[index] = data.value[index] * 2 + add
        if how == "always":
            data.want[index] = data.value[index]

    def read(self, data):
        """A target region on one device reads a part, and nobody becomes stale."""
        if not data.homes:
            return False
        device, index = self.rng.choice(data.homes), views(self.rng, data.host)
        found = np.zeros(data.host[index].shape)

        @omp.target(map=[omp.to("x"), omp.from_("y")], device=device, depend=omp.in_(data.host))
        def body(x, y):
            y[...] = x

        body(data.host[index], found)
        assert np.array_equal(found, data.value[index]), (found, data.value[index])
        return True

    def readers(self, data):
        """Several devices read at a time: what one has been sent others may take from it, or find there."""
        if not data.devices:
            return False
        self.kernel(data)
        found = []
        for _ in range(self.rng.randint(2, 6)):
            index = views(self.rng, data.host)
            copy = np.zeros(data.host[index].shape)

            @omp.target(
                map=[omp.to("x"), omp.from_("y")],
                device=self.rng.choice(data.homes),
                depend=[omp.in_(data.host), omp.out(copy)],
                nowait=True,
            )
            def body(x, y):
                y[...] = x

            body(data.host[index], copy)
            found.append((copy, index))
        omp.taskwait()
        for copy, index in found:
            assert np.array_equal(copy, data.value[index]), (copy, data.value[index])
        return True

    def update(self, data):
        if not data.homes:
            return False
        index = views(self.rng, data.host)
        part = data.host[index]
        where = {"device": self.rng.choice(data.homes)}
        if data.devices and self.rng.random() < 0.6:
            where = {"devices": self.shuffled(data.devices)}
        clauses = self.ordered(data)
        is_to = self.rng.random() < 0.5
        if self.rng.random() < 0.2:
            if "device" in where:
                where["device_num"] = where.pop("device")
            acc.update(**({"device": [part]} if is_to else {"host": [part]}), depend=omp.inout(data.host), **where)
        else:
            omp.target_update(**({"to": [part]} if is_to else {"from_": [part]}), **where, **clauses)
        if is_to:
            data.value[index] = data.want[index]
        else:
            data.want[index] = data.value[index]
        return True

    def pointer(self, data):
        """The program asks for a device array, reads it and writes to it."""
        if not data.homes:
            return False
        device, index = self.rng.choice(data.homes), views(self.rng, data.host)
        self.settle(data)
        array = self.rng.choice((omp.get_mapped_ptr, acc.deviceptr))(data.host[index], device=device)
        found = np.empty(array.shape)
        omp.target_memcpy_rect(found, array)
        assert np.array_equal(found, data.value[index])
        self.add_one(array)
        data.value[index] += 1
        return True

    def add_one(self, array):
        """The program writes to a device array, and waits until that is done: later constructs map the host's."""
        array += 1

    def memcpy(self, data):
        """A device array that was asked for before others have written is copied to, and from."""
        if not data.homes or not data.devices:
            return False
        device, other = self.rng.choice(data.homes), self.rng.choice(data.homes)
        self.settle(data)
        index = views(self.rng, data.host)
        array = omp.get_mapped_ptr(data.host[index], device=device)
        self.kernel(data)
        self.settle(data)
        if self.rng.random() < 0.3:

            @omp.target(device=device, depend=omp.inout(data.host))
            def body(x):
                x += 1

            body(array)
            data.value[index] += 1
        elif self.rng.random() < 0.4:
            found = np.empty(array.shape)
            omp.target_memcpy_rect(found, array)
            assert np.array_equal(found, data.value[index])
        elif self.rng.random() < 0.5:
            values = np.full(array.shape, 5.0)
            omp.target_memcpy_rect(array, values)
            data.value[index] = values
        else:
            there = omp.target_alloc(array.shape, float, device=other)
            omp.target_memcpy_rect(there, array)
            found = np.empty(array.shape)
            omp.target_memcpy_rect(found, there)
            omp.target_free(there)
            assert np.array_equal(found, data.value[index])
        return True

    def memset(self, data):
        if not data.devices:
            return False
        self.settle(data)
        array = omp.get_mapped_ptr(data.host, device=self.rng.choice(data.devices))
        self.kernel(data)
        self.settle(data)
        if not array.flags.c_contiguous:
            return False
        omp.target_memset(array, 0)
        data.value[...] = 0
        return True


def check(seed, counts):
    """Carry out the program of a seed."""
    rng = random.Random(seed)
    n = rng.randint(2, 7)
    options = {"seed": seed} if rng.random() < 0.5 else {}
    kind = "eager" if not options and rng.random() < 0.3 else "sim"
    with omp.Runtime(f"{kind}:{n}", check=True, num_threads=rng.randint(0, 2), **options) as runtime:
        Program(rng, n, counts).run()
        assert not any(place.sets for place in runtime.places)
    check_nothing_left(runtime)


@settings(max_examples=examples(60))
@given(st.integers(0, 2**32))
def test_constructs_see_what_the_ones_before_have_left(seed):
    """Whatever the devices, the order of constructs and the streams' progress, values are NumPy's."""
    check(seed, Counter())


def test_programs_do_all_of_it():
    """Random programs carry out each kind of step often enough to mean something."""
    counts = Counter()
    for seed in range(80):
        check(seed, counts)
    expected = {
        "enter",
        "exit",
        "plain_enter",
        "plain_exit",
        "kernel",
        "read",
        "readers",
        "update",
        "pointer",
        "memcpy",
        "memset",
    }
    assert expected | {"host", "dissolved"} == counts.keys()
    assert min(counts.values()) >= 10, counts


@pytest.mark.soak
@settings(max_examples=5_000)
@given(st.integers(0, 2**32))
def test_constructs_see_what_the_ones_before_have_left_at_length(seed):
    """The same, for longer."""
    check(seed, Counter())
