"""Run a program under the oracle, and return its verdict."""

from __future__ import annotations

import builtins
import contextlib
import importlib
import io
import types
from dataclasses import dataclass

import numpy as np

from benchmarks.sanitizer.oracle import clauses
from benchmarks.sanitizer.oracle.arrays import Array, Face, World
from benchmarks.sanitizer.oracle.constructs import Library, TargetFunction, TaskFunction, nothing
from benchmarks.sanitizer.oracle.openacc import Compute, OpenACC
from benchmarks.sanitizer.oracle.recording import Recorder, Violation
from benchmarks.sanitizer.oracle.taskloops import Graph, TaskgraphFunction, TaskloopFunction
from benchmarks.sanitizer.oracle.tasks import ALL, Engine


@dataclass(frozen=True)
class Verdict:
    """What the oracle says of a run."""

    violations: tuple[Violation, ...]
    output: str
    error: str | None
    n_accesses: int


def judge(text, file):
    """Run a program's text; its lines are those of `file`."""
    recorder = Recorder(file)
    engine = Engine(recorder)
    world = World(recorder, engine.actor)
    library = Library(engine, world)
    world.accessed = library.memory.accessed
    faces = {"numpy": numpy_face(world), "offload": offload_face(library)}
    namespace = {"__name__": "program", "__file__": file, "__builtins__": _builtins(faces)}
    output, error = io.StringIO(), None
    try:
        with contextlib.redirect_stdout(output):
            exec(compile(text, file, "exec"), namespace)
        engine.barrier()
        library.memory.leaks()
    except Exception as raised:  # a mutant may raise anything
        error = f"{type(raised).__name__}: {raised}"
        if isinstance(raised, (AttributeError, KeyError, NameError)):
            raise
    found = tuple(recorder.violations()) if error is None else ()
    return Verdict(found, output.getvalue(), error, len(recorder.accesses))


def _builtins(faces):
    """Return the builtins of a program, whose imports give the oracle's `numpy` and `offload`."""

    def importing(name, globals=None, locals=None, fromlist=(), level=0):
        root = name.partition(".")[0]
        if root in faces:
            found = faces[root]
            for part in name.split(".")[1:] if fromlist else ():
                found = getattr(found, part)
            return found
        return importlib.__import__(name, globals, locals, fromlist, level)

    return {**vars(builtins), "__import__": importing}


def numpy_face(world):
    """Return the oracle's `numpy`."""
    return Face(world, np)


def decorator(library, cls, **fixed):
    """Return a decorator that works bare and with clauses."""

    def decorate(function=None, **given):
        if function is None:
            return lambda inner: cls(library, inner, fixed | given)
        return cls(library, function, fixed | given)

    return decorate


def offload_face(library):
    """Return the oracle's `offload`."""
    engine = library.engine
    names = {name: getattr(library, name) for name in dir(library) if not name.startswith("_")}
    names |= {kind.rstrip("_"): clauses.maker(kind) for kind in ("to", "tofrom", "alloc", "release", "delete")}
    names |= {"from_": clauses.maker("from"), "in_": clauses.dependence("in"), "all_memory": ALL}
    names |= {kind: clauses.dependence(kind) for kind in ("out", "inout", "mutexinoutset", "inoutset")}
    names |= {
        "Event": library.event,
        "task": decorator(library, TaskFunction),
        "target": decorator(library, TargetFunction),
        "target_loop": decorator(library, TargetFunction),
        "taskgraph": decorator(library, TaskgraphFunction),
        "taskloop": TaskloopFunction.decorator(library),
        "taskgroup": lambda task_reduction=None: Block(engine.group(task_reduction)),
        "taskwait": lambda depend=None, nowait=False: taskwait(library, depend, nowait=nowait),
        "barrier": engine.barrier,
        "record": lambda execute=True: Graph(library, execute=execute).recording(),
        "stream": lambda queue=0, device=None: engine.stream(queue, library.device_of(device)),
        "get_num_devices": lambda: library.n_devices,
        "get_default_device": lambda: engine.actor().default_device,
        "set_default_device": lambda number: setattr(engine.actor(), "default_device", number),
        "get_device_num": lambda: engine.actor().device,
        "device": lambda number: types.SimpleNamespace(number=number, kind="sim"),
        "fulfill_event": lambda event: event.fulfill(),
        "empty_pinned": lambda shape, dtype="f8": Array(np.zeros(shape, dtype), None, library.world),
        "NotPresentError": LookupError,
        "acc": acc_face(library),
    }
    return types.SimpleNamespace(**names)


def acc_face(library):
    """Return the oracle's `offload.acc`."""
    acc = OpenACC(library)
    names = {name: getattr(acc, name) for name in dir(acc) if not name.startswith("_")}
    regions = ("parallel", "kernels", "serial", "parallel_loop", "kernels_loop")
    return types.SimpleNamespace(**names | {name: decorator(library, Compute) for name in regions})


class Block:
    """A group that can be entered by ``with`` and by ``async with``."""

    def __init__(self, inner):
        self.inner = inner

    def __enter__(self):
        return self.inner.__enter__()

    def __exit__(self, *raised):
        return self.inner.__exit__(*raised)

    async def __aenter__(self):
        return self.inner.__enter__()

    async def __aexit__(self, *raised):
        return self.inner.__exit__(*raised)


class Waited:
    """What `taskwait` returns, for those that await it."""

    def __await__(self):
        yield from ()


def taskwait(library, depend, *, nowait):
    """Wait for tasks, or generate the empty task that follows them."""
    if nowait:
        library.construct("taskwait", nothing, depend=depend, nowait=True)
    else:
        library.engine.taskwait(None if depend is None else clauses.depends(None, depend))
    return Waited()
