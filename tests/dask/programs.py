"""Programs made from a seed, that run on any two devices: what they leave in memory, and how their tasks end."""

from __future__ import annotations

import random

import numpy as np

import offload as omp
from offload import alloc, delete, from_, in_, inout, out, release, to, tofrom

N_ARRAYS = 4
SIZE = 24


class BrokenError(Exception):
    """A body raises it."""


@omp.target
def add(x, value):
    x += value


@omp.target
def mix(x, y, value):
    x *= 0.5
    x += y[: x.shape[0]] * value


@omp.target
def total(x):
    return float(x.sum())


@omp.target
def breaks(x):
    x += 1
    raise BrokenError("as it should")


class Program:
    """A program of a seed: a list of steps, each of which generates one task or a block of them."""

    def __init__(self, seed, *, n_steps=14, fails=True):
        rng = random.Random(seed)
        self.steps = []
        for _ in range(n_steps):
            kinds = ["add"] * 4 + ["mix"] * 3 + ["total", "enter", "exit", "update", "host", "copy", "section", "first"]
            if fails and rng.random() < 0.1:
                kinds = ["breaks"]
            self.steps.append(
                (
                    rng.choice(kinds),
                    rng.randrange(N_ARRAYS),
                    rng.randrange(N_ARRAYS),
                    rng.randrange(2),
                    rng.randrange(1, 8),
                    rng.random(),
                    rng.random() < 0.75,
                )
            )

    def run(self):
        """Return the arrays at the end, and the values and failures of the tasks, in their order."""
        arrays = [np.arange(SIZE, dtype=float) + 100 * k for k in range(N_ARRAYS)]
        buffers = [omp.target_alloc(SIZE, "f8", device=k) for k in range(2)]
        for k, buffer in enumerate(buffers):
            omp.target_memcpy(buffer, np.full(SIZE, float(k)))
        mapped = set()
        tasks = []
        for step in self.steps:
            task = self._step(step, arrays, buffers, mapped)
            if task is not None:
                tasks.append(task)
        ends = []
        for task in tasks:
            error = task.exception()
            if error is None:
                ends.append(task.result())
            else:
                cause = error.__cause__ if isinstance(error, omp.errors.DependError) else None
                ends.append((type(error).__name__, type(cause).__name__))
        for k, device in sorted(mapped):
            if omp.target_is_present(arrays[k], device=device):
                omp.target_update(from_=[arrays[k]], device=device)
                omp.target_exit_data(map=[delete(arrays[k])], device=device)
        for buffer in buffers:
            host = np.zeros(SIZE)
            omp.target_memcpy(host, buffer)
            arrays.append(host)
            omp.target_free(buffer)
        return arrays, ends

    def record(self):
        """Return arrays, and a graph of the steps that map all that they use."""
        arrays = [np.arange(SIZE, dtype=float) + 100 * k for k in range(N_ARRAYS)]
        mapped = set()
        with omp.record(execute=False) as graph:
            for step in self.steps:
                if step[0] != "copy":  # of arrays that no run of the graph makes
                    self._step(step, arrays, (), mapped)
            for k, device in sorted(mapped):
                omp.target_exit_data(map=[delete(arrays[k])], device=device, depend=[inout(arrays[k])], nowait=True)
        return arrays, graph

    def _step(self, step, arrays, buffers, mapped):
        kind, i, j, device, value, _fraction, _nowait = step
        x, y = arrays[i], arrays[j]
        clauses = {"device": device, "nowait": True}
        if kind == "add":
            return add.options(depend=[inout(x)], **clauses)(x, value)
        if kind == "mix":
            if i == j:
                return add.options(depend=[inout(x)], **clauses)(x, -value)
            maps = [tofrom("x"), to("y")]
            return mix.options(map=maps, depend=[inout(x), in_(y)], **clauses)(x, y, value)
        if kind == "total":
            return total.options(depend=[in_(x)], map=[to("x")], **clauses)(x)
        if kind == "breaks":
            return breaks.options(depend=[inout(x)], **clauses)(x)
        if kind == "enter":
            mapped.add((i, device))
            return omp.target_enter_data(map=[to(x)], depend=[inout(x)], **clauses)
        if kind == "exit":
            which = from_ if value % 3 else (release if value % 2 else delete)
            return omp.target_exit_data(map=[which(x)], depend=[inout(x)], **clauses)
        if kind == "update":
            items = {"to": [x]} if value % 2 else {"from_": [x]}
            return omp.target_update(**items, depend=[inout(x)], **clauses)
        if kind == "host":
            return omp.task(depend=[inout(x)])(lambda x: x.__iadd__(value) is None)(x)
        if kind == "copy":
            a, b = (buffers[0], buffers[1]) if value % 2 else (buffers[1], buffers[0])
            if value % 3 == 0:
                return omp.copy(b, x, depend=[in_(x), out(b)], nowait=True)
            return omp.copy(a, b, depend=[inout(a), in_(b)], nowait=True)
        if kind == "section":
            low = value
            part = x[low : low + 9 : 2]
            return (
                omp.target(lambda part, value: part.__imul__(value) is None).options(
                    map=[tofrom("part")], depend=[inout(x)], **clauses
                )(part, value)
                if not any((i, d) in mapped for d in range(2))
                else None
            )
        temporary = np.empty(SIZE)
        return mix.options(map=[tofrom("x"), alloc(temporary)], firstprivate=["y"], depend=[inout(x)], **clauses)(
            x, np.arange(SIZE) * 0.5, value
        )
