"""Serial elision: with covering clauses, memory is bit-identical to the serial run, under every schedule.

A program is a list of operations on four host arrays and two device buffers. `Serial` runs it with NumPy, one operation
after the other; `Offloaded` generates the constructs. Arrays that a data region holds are touched by target regions on
that device only, others in fixed blocks, as the standard asks: so each program is conforming. What a set of tasks
does in any order, it adds, or does to parts.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from queue import SimpleQueue

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import offload as omp
from offload import all_memory, alloc, depobj, from_, in_, inout, inoutset, mutexinoutset, out, release, to, tofrom
from tests.profiles import examples, is_soak

N_ARRAYS, BLOCK = 4, 4
BLOCKS = (slice(0, 8, 2), slice(1, 8, 2)), (slice(0, 4), slice(4, 8))
HOW = ("before", "inside", "after", "stream", "future")
FREE = ("parts", "relay", "final", "graph", "everything")
KINDS = ["fold"] * 6 + ["add"] * 4 + ["copy", "buffer", "wait", "waitfor", "enter", "exit", "data", "group"]
KINDS += [*FREE, "barrier", "yield_"]
SECTIONS = (*BLOCKS[0], *BLOCKS[1], slice(2, 6), slice(7, 3, -1), slice(1, 5))


def fold(y, a, c, *xs):
    """Do what every body does: ``y = a * y + c + sum(xs)``."""
    total = c
    for x in xs:
        total = total + x
    if a:
        total = total + a * y
    y[...] = total


# -- programs -------------------------------------------------------------------------------------
@st.composite
def item(draw, held):
    """Return (array number, slice): any section of an array that is held, a block of one that is not."""
    k = draw(st.integers(0, N_ARRAYS - 1))
    return k, draw(st.sampled_from(SECTIONS if k in held else BLOCKS[k % 2]))


@st.composite
def fold_operation(draw, held, n_devices):
    """Return an operation that writes one item and reads some, where it may run."""
    devices = st.integers(0, n_devices - 1)
    y = draw(item(held))
    xs = draw(st.lists(item(held), max_size=2))
    homes = {held[k] for k, _ in (y, *xs) if k in held}
    if len(homes) > 1:
        xs = []
        homes = {held[y[0]]} if y[0] in held else set()
    kind = "target" if homes else draw(st.sampled_from(["target", "target", "task", "detach", "nested"]))
    a, c = draw(st.integers(0, 3)), draw(st.integers(-9, 9))
    return {
        "kind": kind,
        "device": homes.pop() if homes else draw(devices),
        "y": y,
        "xs": xs,
        "a": a,
        "c": c,
        "nowait": draw(st.booleans()),
        "map": draw(st.sampled_from(["exact", "implicit", "wide"])),
        "how": draw(st.sampled_from(HOW)),
        "priority": draw(st.integers(0, 3)),
        "depobj": draw(st.booleans()),
    }


@st.composite
def free_operation(draw, kind, free):
    """Return an operation on blocks of arrays that nothing holds."""
    k, other = draw(st.sampled_from(free)), draw(st.sampled_from(free))
    block = st.sampled_from([0, 1])
    y, z = draw(block), draw(block)
    if k == other:
        z = 1 - y
    return {
        "kind": kind,
        "y": (k, BLOCKS[k % 2][y]),
        "z": (other, BLOCKS[other % 2][z]),
        "arrays": free,
        "c": draw(st.integers(-9, 9)),
        "how": draw(st.sampled_from(HOW)),
        "priority": draw(st.integers(0, 3)),
    }


@st.composite
def add_operation(draw, held, n_devices):
    """Return an operation that adds to an item, in any order with others that do."""
    y = draw(item(held))
    kinds = ["target"] if y[0] in held else ["target", "task", "task", "detach", "undeferred"]
    return {
        "kind": "add",
        "y": y,
        "c": draw(st.integers(-9, 9)),
        "by": draw(st.sampled_from(kinds)),
        "device": held[y[0]] if y[0] in held else draw(st.integers(0, n_devices - 1)),
        "how": draw(st.sampled_from(HOW)),
        "priority": draw(st.integers(0, 3)),
        "depobj": draw(st.booleans()),
    }


@st.composite
def operations(draw, n_devices, held, depth, size=8):
    """Return a list of operations; ``held`` says which arrays are mapped, and where."""
    program = []
    held = dict(held)
    outer = set(held)
    for _ in range(draw(st.integers(1, size))):
        kind = draw(st.sampled_from(KINDS))
        free = [k for k in range(N_ARRAYS) if k not in held]
        if kind == "fold":
            program.append(draw(fold_operation(held, n_devices)))
        elif kind == "add":
            program.append(draw(add_operation(held, n_devices)))
        elif kind in FREE and free:
            program.append(draw(free_operation(kind, free)))
        elif kind in ("barrier", "yield_"):
            program.append({"kind": kind})
        elif kind == "copy":
            ours = st.sampled_from([k for k in range(N_ARRAYS) if k not in held]) if free else None
            if ours is not None:
                k = draw(ours)
                program.append(
                    {
                        "kind": "copy",
                        "block": (k, draw(st.sampled_from(BLOCKS[k % 2]))),
                        "buffer": draw(st.integers(0, 1)),
                        "out": draw(st.booleans()),
                    }
                )
        elif kind == "buffer":
            program.append(
                {
                    "kind": "buffer",
                    "buffer": draw(st.integers(0, 1)),
                    "a": draw(st.integers(0, 3)),
                    "c": draw(st.integers(-9, 9)),
                }
            )
        elif kind == "wait":
            program.append({"kind": "wait"})
        elif kind == "waitfor":
            program.append({"kind": "waitfor", "array": draw(st.integers(0, N_ARRAYS - 1))})
        elif kind == "enter" and free:
            k, device = draw(st.sampled_from(free)), draw(st.integers(0, n_devices - 1))
            held[k] = device
            program.append({"kind": "enter", "array": k, "device": device, "nowait": draw(st.booleans())})
        elif kind == "exit" and set(held) - outer:
            k = draw(st.sampled_from(sorted(set(held) - outer)))
            program.append({"kind": "exit", "array": k, "device": held.pop(k), "nowait": draw(st.booleans())})
        elif kind == "data" and free and depth:
            k, device = draw(st.sampled_from(free)), draw(st.integers(0, n_devices - 1))
            inner = draw(operations(n_devices, {**held, k: device}, depth - 1, 5))
            program.append(
                {"kind": "data", "array": k, "device": device, "body": inner, "nogroup": draw(st.booleans())}
            )
        elif kind == "group" and depth:
            program.append({"kind": "group", "body": draw(operations(n_devices, held, depth - 1, 5))})
    program.extend(
        {"kind": "exit", "array": k, "device": held[k], "nowait": draw(st.booleans())}
        for k in sorted(set(held) - outer)
    )
    return program


@st.composite
def programs(draw):
    n_devices = draw(st.sampled_from([1, 2]))
    return n_devices, draw(operations(n_devices, {}, 2))


# -- interpreters -----------------------------------------------------------------------------------
class Memory:
    """The host arrays at the start of each run, and what the buffers hold."""

    def __init__(self):
        self.arrays = [np.arange(8, dtype=np.int64) + 10 * k for k in range(N_ARRAYS)]
        self.buffers = [np.zeros(BLOCK, np.int64), np.zeros(BLOCK, np.int64)]

    def view(self, chosen):
        return self.arrays[chosen[0]][chosen[1]]


class Serial(Memory):
    def run(self, program):
        for op in program:
            kind = op["kind"]
            if kind in ("target", "task", "detach", "nested"):
                fold(self.view(op["y"]), op["a"], op["c"], *map(self.view, op["xs"]))
            elif kind == "copy":
                host, buffer = self.view(op["block"]), self.buffers[op["buffer"]]
                if op["out"]:
                    host[...] = buffer
                else:
                    buffer[...] = host
            elif kind == "buffer":
                fold(self.buffers[op["buffer"]], op["a"], op["c"])
            elif kind == "add":
                self.view(op["y"])[...] += op["c"]
            elif kind in ("parts", "relay", "final"):
                fold(self.view(op["y"]), 2, op["c"])
            elif kind == "graph":
                chain(*map(self.view, (op["y"], op["z"])))
            elif kind == "everything":
                for k in op["arrays"]:
                    self.arrays[k] *= 2
                    self.arrays[k] += op["c"]
            elif kind in ("data", "group"):
                self.run(op["body"])


def chain(y, z):
    """Do what a recorded graph does."""
    y += 1
    z += y
    y -= z


class Offloaded(Memory):
    def __init__(self, n_devices):
        super().__init__()
        zeros = np.zeros(BLOCK, np.int64)
        self.device_of = [0, n_devices - 1]
        self.buffers = [omp.target_alloc(BLOCK, np.int64, device) for device in self.device_of]
        for buffer in self.buffers:
            omp.target_memcpy(buffer, zeros)
        self.changing = []
        self.replayed = omp.taskgraph(self.recorded)
        self.foreign = SimpleQueue()
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self):
        while True:
            job = self.foreign.get()
            if job is None:
                return
            job()

    def end(self):
        self.foreign.put(None)
        self.thread.join()

    def collect(self):
        """Bring the buffers home and free them."""
        found = []
        for buffer in self.buffers:
            found.append(np.empty(BLOCK, np.int64))
            omp.target_memcpy(found[-1], buffer)
            omp.target_free(buffer)
        self.buffers = found

    def run(self, program):
        for op in program:
            getattr(self, op["kind"])(op)
            self.change()

    def depend(self, op):
        y, xs = self.view(op["y"]), [self.view(x) for x in op["xs"]]
        writes = inout(y) if op["a"] else out(y)
        return y, xs, self.objects(op, [writes, *map(in_, xs)])

    def objects(self, op, dependences):
        """Return the same as depend objects, which change between their uses, if the operation says so."""
        if not op["depobj"]:
            return dependences
        found = []
        for dependence in dependences:
            found.append(depobj(in_(*dependence.items)))
            found[-1].update("inoutset")
            found[-1].update(dependence.type.value)
        self.changing += found
        return found

    def change(self):
        """Change the depend objects of the last operation: what has been generated is as it was."""
        for number, used in enumerate(self.changing):
            if number % 2:
                used.destroy()
            else:
                used.update("in")
        self.changing.clear()

    def target(self, op):
        y, xs, depend = self.depend(op)
        maps = []
        if op["map"] != "implicit":
            others = [x for x in xs if not np.shares_memory(x, y)]
            overwrites = not op["a"] and len(others) == len(xs)
            maps = [from_(y) if op["map"] == "exact" and overwrites else tofrom(y), *map(to, others)]
        call = omp.target(map=maps, depend=depend, device=op["device"], nowait=op["nowait"])(self.on_device)
        call(y, op["a"], op["c"], *xs, device=op["device"])

    @staticmethod
    def on_device(y, a, c, *xs, device):
        assert omp.get_device_num() == device
        assert not omp.is_initial_device()
        fold(y, a, c, *xs)

    def task(self, op):
        y, xs, depend = self.depend(op)
        omp.task(depend=depend, if_=op["nowait"], priority=op["priority"])(fold)(y, op["a"], op["c"], *xs)

    def detach(self, op):
        """Let the body do a part, and something else the rest, before it fulfils the event."""
        y, xs, depend = self.depend(op)
        self.detached(op, y, depend, lambda less: fold(y, op["a"], op["c"] - less, *xs))

    def detached(self, op, y, depend, begin):
        """Generate a detached task: its body does ``begin(less)``, and something else adds what that left out."""
        event = omp.Event()
        how = op["how"]

        def rest():
            np.add(y, 1, out=y)
            event.fulfill()

        def body():
            begin(how != "before")
            if how == "stream":
                stream = omp.current_stream()
                stream.launch(np.add, y, 1, y)
                event.fulfill_on(stream)
            elif how == "future":
                future = Future()
                event.fulfill_on(future)
                self.foreign.put(lambda: future.set_result(np.add(y, 1, out=y)))
            elif how == "inside":
                rest()
            elif how == "after":
                self.foreign.put(rest)

        if how == "before":
            event.fulfill()
        omp.task(depend=depend, detach=event, priority=op["priority"])(body)()

    def nested(self, op):
        """Let the body generate two tasks, on the halves of the item."""
        y, xs, depend = self.depend(op)
        how = op["how"]

        def part(half):
            own = [x[half] for x in xs]
            depend = [inout(y[half]), *map(in_, own)]
            if how in ("before", "after") and not any(np.shares_memory(x, y) for x in xs):
                maps = [tofrom(y[half])]
                omp.target(map=maps, depend=depend, nowait=True, device=op["device"])(fold)(y[half], op["a"], op["c"])
                omp.task(depend=depend)(lambda: [np.add(y[half], x, out=y[half]) for x in own])()
            else:
                omp.task(depend=depend)(fold)(y[half], op["a"], op["c"], *own)

        def body():
            if how in ("before", "stream", "future"):
                with omp.taskgroup():
                    part(slice(0, 2))
                    part(slice(2, 4))
            else:
                part(slice(0, 2))
                part(slice(2, 4))
                omp.taskwait()

        if any(np.shares_memory(x, y) for x in xs):  # halves would not be covered by the clauses
            return self.task(op)
        return omp.task(depend=depend)(body)()

    def add(self, op):
        """Add to an item, one task after the other, in any order."""
        y, c = self.view(op["y"]), op["c"]
        depend = self.objects(op, [mutexinoutset(y)])
        clauses = {"depend": depend, "priority": op["priority"]}

        def body(y):
            seen = y.copy()
            y[...] = seen + c

        if op["by"] == "target":
            call = omp.target(map=[tofrom(y)], nowait=True, device=op["device"], **clauses)
            call(body)(y)
        elif op["by"] == "detach":
            self.detached(op, y, depend, lambda less: np.add(y, c - less, out=y))
        else:
            omp.task(if_=op["by"] == "task", **clauses)(body)(y)

    def parts(self, op):
        """Let a set of two tasks do something to the halves of an item; a task before makes it a set of its own."""
        y = self.view(op["y"])
        omp.taskwait(nowait=True, depend=[inout(y)])
        for half in (slice(0, 2), slice(2, 4)):
            omp.task(depend=[inoutset(y)], priority=op["priority"])(fold)(y[half], 2, op["c"])

    def relay(self, op):
        """Let a task be ordered by edges alone, since it names a token and not what it writes."""
        y, token = self.view(op["y"]), ("relay",)
        omp.taskwait(nowait=True, depend=[inout(y), out(token)])
        self.detached(op, y, [inout(token)], lambda less: fold(y, 2, op["c"] - less))
        omp.taskwait(nowait=True, depend=[in_(token), inout(y)])

    def final(self, op):
        """Let a final task generate tasks, which need no dependences: each runs at once."""
        y = self.view(op["y"])

        def outer():
            assert omp.in_final()
            omp.task(fold)(y, 2, 0)

        def body():
            omp.task(outer, priority=3)()
            omp.task(fold, if_=False)(y, 1, op["c"])

        omp.task(final=True, depend=[inout(y)], priority=op["priority"])(body)()

    @staticmethod
    def recorded(y, z):
        omp.task(depend=[inout(y)])(lambda: np.add(y, 1, out=y))()
        omp.task(depend=[in_(y), inout(z)])(lambda: np.add(z, y, out=z))()
        omp.task(depend=[inout(y), in_(z)])(lambda: np.subtract(y, z, out=y))()

    def graph(self, op):
        """Record a graph, or replay the record of the same items; it begins and ends with nothing else under way."""
        omp.taskwait()
        self.replayed(self.view(op["y"]), self.view(op["z"]))

    def everything(self, op):
        """Let a task do something to all arrays that nothing holds."""

        def body():
            for k in op["arrays"]:
                self.arrays[k] *= 2
                self.arrays[k] += op["c"]

        omp.task(depend=[inout(all_memory)], priority=op["priority"])(body)()

    def barrier(self, op):
        omp.barrier()

    def yield_(self, op):
        omp.taskyield()

    def copy(self, op):
        host, buffer = self.view(op["block"]), self.buffers[op["buffer"]]
        dst, src = (host, buffer) if op["out"] else (buffer, host)
        omp.target_memcpy_rect_async(dst, src, depend=[out(dst), in_(src)])

    def buffer(self, op):
        buffer = self.buffers[op["buffer"]]
        call = omp.target(nowait=True, device=self.device_of[op["buffer"]], depend=[inout(buffer)])(fold)
        call(buffer, op["a"], op["c"])

    def wait(self, op):
        omp.taskwait()

    def waitfor(self, op):
        omp.taskwait(depend=[in_(self.arrays[op["array"]])])

    def enter(self, op):
        a = self.arrays[op["array"]]
        omp.target_enter_data(map=[to(a)], depend=[inout(a)], nowait=op["nowait"], device=op["device"])

    def exit(self, op):
        a = self.arrays[op["array"]]
        omp.target_exit_data(map=[from_(a)], depend=[inout(a)], nowait=op["nowait"], device=op["device"])

    def data(self, op):
        a = self.arrays[op["array"]]
        with omp.target_data(map=[tofrom(a)], depend=[inout(a)], device=op["device"], nogroup=op["nogroup"]):
            self.run(op["body"])

    def group(self, op):
        with omp.taskgroup():
            self.run(op["body"])


@pytest.mark.timeout(1_800 if is_soak() else 60)
@pytest.mark.parametrize("num_threads", [0, 1, 4])
@pytest.mark.parametrize("seeded", [False, True])
@given(programs(), st.integers(0, 2**32 - 1), st.booleans())
@settings(max_examples=examples(60, soak=2_000))
def test_memory_is_that_of_the_serial_run(num_threads, seeded, program, seed, has_priorities):
    """Every schedule leaves host arrays and device buffers as the serial run does, and nothing mapped."""
    n_devices, operations = program
    serial = Serial()
    serial.run(operations)
    env = {"OMP_MAX_TASK_PRIORITY": "2"} if has_priorities else {}
    seed = seed if seeded else None
    with omp.Runtime(f"sim:{n_devices}", num_threads=num_threads, check=True, seed=seed, env=env):
        offloaded = Offloaded(n_devices)
        try:
            offloaded.run(operations)
            omp.taskwait()
        finally:
            offloaded.end()
        offloaded.collect()
    np.testing.assert_array_equal(offloaded.arrays, serial.arrays)
    np.testing.assert_array_equal(offloaded.buffers, serial.buffers)


def test_alloc_and_release_move_nothing():
    """Storage that is allocated and released leaves the host as it was."""
    a = np.arange(8)
    with omp.Runtime("sim", check=True):
        omp.target_enter_data(map=[alloc(a)])
        omp.target(map=[to(a)])(lambda a: fold(a, 0, 5))(a)
        omp.target_exit_data(map=[release(a)])
    np.testing.assert_array_equal(a, np.arange(8))
