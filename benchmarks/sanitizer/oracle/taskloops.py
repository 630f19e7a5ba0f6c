"""Loops that are split into tasks, recorded graphs, and graphs that run again, as the oracle carries them out."""

from __future__ import annotations

import inspect
from contextlib import contextmanager
from itertools import pairwise

import numpy as np

from benchmarks.sanitizer.oracle.arrays import Array
from benchmarks.sanitizer.oracle.constructs import Function
from benchmarks.sanitizer.oracle.tasks import Actor, Task


class TaskloopFunction(Function):
    """`omp.taskloop`, with the iterable as the first argument."""

    @classmethod
    def decorator(cls, library):
        """Return `omp.taskloop`: a function, or a decorator with or without the iterable."""

        def taskloop(iterable=None, body=None, **clauses):
            if body is not None:
                return cls(library, body, clauses)(iterable)
            if iterable is None:
                return lambda inner: cls(library, inner, clauses)
            if callable(iterable):
                return cls(library, iterable, clauses)

            def run(inner):
                cls(library, inner, clauses)(iterable)

            return run

        return taskloop

    def __call__(self, iterable, *args):
        engine, clauses = self.library.engine, self.clauses
        reduction = clauses.get("reduction") or {}
        with engine.group(reduction, waits=not clauses.get("nogroup")) as group:
            tasks = [self._task(part, args, reduction, group) for part in self._parts(iterable)]
        return tasks if clauses.get("nogroup") else None

    def _parts(self, iterable):
        n = len(iterable)
        count = self.clauses.get("num_tasks") or -(-n // (self.clauses.get("grainsize") or 1))
        cuts = [len(part) for part in np.array_split(np.arange(n), min(count, n))]
        ends = np.cumsum([0, *cuts])
        return [iterable[int(low) : int(high)] for low, high in pairwise(ends)]

    def _task(self, part, args, reduction, group):
        engine = self.library.engine
        taken = len(inspect.signature(self.function).parameters) - 1 - len(args)
        items = [(operator, item) for operator, those in reduction.items() for item in those]
        private = [self.library.private_of(item, operator, group) for operator, item in items[:taken]]
        task = Task(engine, engine.actor(), "taskloop", ())
        return task.run(self.function, part, *args, *private)


class TaskgraphFunction(Function):
    """`omp.taskgraph`: the calls of the first run are kept, and run again in an order of their own."""

    def __init__(self, library, function, clauses):
        super().__init__(library, function, clauses)
        self.records = clauses.setdefault("_records", {})

    def __call__(self, *args):
        engine = self.library.engine
        key = tuple((a.bytes.low, a.shape) if isinstance(a, Array) else a for a in args)
        if key not in self.records:
            outer, engine.recording = engine.recording, []
            try:
                self.function(*args)
                self.records[key] = engine.recording
            finally:
                engine.recording = outer
        replay(engine, self.records[key], waits=not self.clauses.get("nogroup"))


def replay(engine, calls, *, waits=True):
    """Run recorded calls: their dependences hold among themselves, and for nobody else."""
    actor = engine.actor()
    first = len(engine.tasks)
    with engine.group(waits=waits):
        own = Actor(engine, actor)
        with engine.acting(own):
            for function, args, kwargs in calls:
                function(*args, **kwargs)
    actor.children += engine.tasks[first:]


class Graph:
    """What `omp.record` gives."""

    def __init__(self, library, *, execute):
        self.library, self.execute = library, execute
        self.calls = []

    @contextmanager
    def recording(self):
        engine = self.library.engine
        if self.execute:
            yield self
            return
        engine.recording = self.calls
        try:
            yield self
        finally:
            engine.recording = None

    def compute(self, scheduler=None):
        replay(self.library.engine, self.calls)
