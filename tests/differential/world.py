"""Carries out programs of `tests.differential.programs`, and says what has come of each step.

An outcome is a line of text: what the step returned or raised, a checksum of each array, and where it is present. It
has no addresses and no times. At the end of a program the references that are left on each device are counted, by
releasing them one by one, and the runtime says what else is left.
"""

from __future__ import annotations

import gc
import re
import threading
import warnings
import zlib

import numpy as np

import offload as omp
from offload import acc
from tests.differential.programs import N_SLOTS
from tests.foreign.mixing import in_buffers

MOST_REFERENCES = 12
"""How many references of an array the end of a program releases; some, of declared arrays, have no end."""

_CHANGING = [
    (re.compile(r"\n +last steps:.*", re.DOTALL), ""),
    (re.compile(r"0x[0-9a-f]+|\b\d{9,}\b"), "ADDRESS"),
    (re.compile(r"\b\d+(\.\d+)? ?(s|ms|us|µs|ns)\b"), "TIME"),
    (re.compile(r"(?<=[a-z_>\])])-\d+\b"), "-N"),  # tasks are numbered in a process
    (re.compile(r"began on [\w-]+( \([\w ]+\))?"), "began on THREAD"),
    (re.compile(r"[^\s(]*/offload/[\w/]+\.py:\d+"), "PACKAGE"),
]
"""Parts of texts that differ from run to run, or from tree to tree, and their replacements."""

_LEFT = "left at the end of the runtime: "

OPERATIONS = {}
"""The functions ``operation(world, step)`` by name; `operation` fills it."""


def operation(function):
    """Register the function that carries out the operation of its name."""
    OPERATIONS[function.__name__.rstrip("_")] = function
    return function


class BodyError(Exception):
    """What bodies raise that are to fail."""


class Mode:
    """How programs are carried out, without an influence on what comes of them.

    Attributes
    ----------
    is_cold : bool
        Each construct is called on a function that has just been decorated.
    views : bool
        Each use of an array is a new view of all of it.
    num_threads, seed : int or None
        In place of the program's.
    disturbs : bool
        Before each step, something else is mapped and released, so that what was found for the last table is of no use.
    mixture : tests.foreign.mixing.Mixture or None
        Chooses objects of other libraries for the arrays.
    """

    def __init__(self, *, is_cold=False, views=False, num_threads=None, disturbs=False, seed=None, mixture=None):
        self.is_cold, self.views, self.num_threads, self.disturbs, self.seed, self.mixture = (
            is_cold,
            views,
            num_threads,
            disturbs,
            seed,
            mixture,
        )


def arrays():
    """Return the arrays of a world, and for each of them an array that covers its memory."""
    base, matrix, pairs = np.arange(24.0), np.arange(24.0).reshape(4, 6), np.arange(6).astype("c16")
    own = [
        np.arange(12.0),
        np.arange(12.0) + 1,
        np.arange(12),
        base[:12],
        base[6:18],
        matrix,
        matrix[:, 1:4],
        matrix[::2],
    ]
    own += [np.asfortranarray(np.arange(12.0).reshape(3, 4)), np.arange(12, dtype="f4"), np.array(2.0), np.zeros(24)]
    own += [pairs, pairs.real]
    roots = [own[0], own[1], own[2], base, base, matrix, matrix, matrix, *own[8:12], pairs, pairs]
    return own, roots


def checksum(array):
    """Return a checksum of an array's elements, the same for each NaN, and of its form."""
    array = np.asarray(array)
    if array.dtype.kind in "fc" and np.isnan(array).any():
        array = np.where(np.isnan(array), array.dtype.type(12345), array)
    return f"{array.dtype.str}{list(array.shape)}:{zlib.crc32(array.tobytes()):08x}"


def scrubbed(text):
    """Return a text without addresses, times and the like; the parts of a list of leaks are sorted."""
    text = str(text)
    for pattern, replacement in _CHANGING:
        text = pattern.sub(replacement, text)
    if text.startswith(_LEFT):
        text = _LEFT + "; ".join(sorted(text.removeprefix(_LEFT).split("; ")))
    return text


def described(value, *, names_causes=True):
    """Return what a value is; without causes if a task may have followed several that failed, one of which it names."""
    if isinstance(value, BaseException):
        return failed(value, names_causes=names_causes)
    if isinstance(value, omp.Task):
        return f"Task {value.state}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(described(part, names_causes=names_causes) for part in value) + "]"
    if hasattr(value, "get") and hasattr(value, "dtype"):
        return "device " + checksum(value.get())
    if isinstance(value, np.ndarray):
        return checksum(value)
    if isinstance(value, (float, np.floating)) and value != value:  # noqa: PLR0124  # NaN
        return "nan"
    return scrubbed(repr(value))


def failed(error, *, names_causes=True):
    """Return an error's type, text, notes, cause and members."""
    name = type(error).__name__
    if isinstance(error, BaseExceptionGroup):
        members = sorted(failed(member, names_causes=names_causes) for member in error.exceptions)
        return f"{name}({error.message}: " + " | ".join(members) + ")"
    if isinstance(error, omp.DependError) and not names_causes:
        return f"{name}({scrubbed(error).split(' did not run')[0]} did not run)"
    notes = "".join(f" // {scrubbed(note)}" for note in getattr(error, "__notes__", ()))
    cause = f" from {failed(error.__cause__)}" if isinstance(error, omp.DependError) and error.__cause__ else ""
    return f"{name}({scrubbed(error)}{notes}){cause}"


def attempted(call):
    """Return what a call returns, or the error that it raises."""
    try:
        return call()
    except Exception as error:
        return error


class World:
    """The arrays, device memory and functions of one thread of a program.

    Attributes
    ----------
    chain : list or None
        In a chain, the tasks of its constructs, which are deferred; else constructs are synchronous.
    queue, other_queue : int or None
        Among the steps of queues, the number of the queue, and of the one that is to be waited for; else operations of
        queues are waited for.
    records : bool
        A graph is being recorded, which nothing may disturb.
    first_queue : int
        Added to the numbers of queues, which threads do not have in common.
    """

    def __init__(self, mode, table, lines, first_queue=0):
        self.mode, self.table, self.lines, self.first_queue = mode, table, lines, first_queue
        self.arrays, self.roots = arrays()
        self._buffers = {}  # by the ids of the roots, the memory of each, in a mixture
        if mode.mixture is not None:
            self.arrays, self.roots, self._buffers = in_buffers(self.arrays, self.roots)
        self.slots = [None] * N_SLOTS
        self.chain = None
        self.queue = self.other_queue = None
        self.records = False
        self.graphs = {}
        self.n_devices = 1
        self._other = np.zeros(3)

    # -- arrays and functions --------------------------------------------------------------------------
    def array(self, number):
        """Return an array, or a new view of it."""
        array = self.arrays[number]
        return array[...] if self.mode.views and array.ndim else array

    def item(self, item, *, is_clause=False, **how):
        """Return the view that an item names, or in clauses also a section; in a mixture an object over it."""
        view = self.view(item, is_clause=is_clause)
        return view if self.mode.mixture is None else self.mode.mixture.of(view, f"{len(self.lines)} {item}", **how)

    def view(self, item, *, is_clause=False):
        """Return the view that an item names, or in clauses also a section."""
        number, view = item
        array = self.array(number)
        match view:
            case None:
                return array
            case "head":
                return array[:2]
            case "tail":
                return array[-2:]
            case "step":
                return array[::2]
            case "gap":
                return array[..., 1:3]
            case "reverse":
                return array[::-1]
            case "transpose":
                return array.T
            case "empty":
                return array[:0]
        return omp.section(array, (1, 2)) if is_clause else array[1:3]

    def storage(self, items):
        """Return the list items of ``depend`` for items and numbers of slots."""
        found = [self.root(item[0]) if isinstance(item, list) else self.slots[item] for item in items]
        return [storage for storage in found if storage is not None]

    def root(self, number):
        """Return the array that covers an array's memory; in a mixture an object over it."""
        root, mixture = self.roots[number], self.mode.mixture
        if mixture is None:
            return root
        if mixture.are_objects and (len(self.lines) + number) % 3 == 0:
            return self._buffers[id(root)]
        return mixture.of(root, f"root {len(self.lines)} {number}")

    def function(self, kind, name):
        """Return a decorated function of the table."""
        if self.mode.is_cold:
            return self.table.made(kind, name)
        return self.table.kept(kind, name)

    def end(self, end):
        """Return an end of a copy."""
        return self.item(end) if isinstance(end, list) else self.slots[end]

    def deferral(self, items, type_=omp.inout):
        """Return the clauses by which a construct of a chain is deferred and ordered; none elsewhere."""
        if self.chain is None:
            return {}
        return {"nowait": True, "depend": [type_(*self.storage(items))]}

    def waited(self, task):
        """Keep the task of a chain; return anything else."""
        if self.chain is not None and isinstance(task, omp.Task):
            self.chain.append(task)
            return "deferred"
        return task

    # -- steps -----------------------------------------------------------------------------------------
    def carry_out(self, steps):
        """Carry out steps, and write down what has come of each."""
        for step in steps:
            self.carry_out_one(step)

    def carry_out_one(self, step):
        """Carry out a step."""
        name = step["op"]
        if self.mode.disturbs and not self.records:
            omp.target_enter_data(map=[omp.to(self._other)])
            omp.target_exit_data(map=[omp.release(self._other)])
        line = len(self.lines)
        self.lines.append(name)
        try:
            done = OPERATIONS[name](self, step)
            is_open = self.queue is not None and isinstance(done, omp.Task)
            outcome = "queued" if is_open else described(done)
        except Exception as error:
            outcome = failed(error, names_causes=self.chain is None)
        self.lines[line] = f"{name} -> {outcome}" + (
            f" {self.state()}" if self.chain is None and self.queue is None else ""
        )

    def state(self):
        """Return checksums of all arrays, and on which devices each is present."""
        sums = zlib.crc32("".join(map(checksum, self.arrays)).encode())
        present = [
            "".join(str(device) for device in range(self.n_devices) if omp.target_is_present(array, device))
            for array in self.arrays
        ]
        return f"{sums:08x} {'.'.join(present)}"

    def close(self):
        """Release everything, and write down how often each array had to be released."""
        try:
            omp.taskwait()
        except Exception as error:
            self.lines.append(f"end -> {failed(error)}")
        self.lines.append("arrays -> " + " ".join(map(checksum, self.arrays)))
        self.lines.append("slots -> " + " ".join(described(slot) for slot in self.slots))
        for number in range(len(self.arrays)):
            for device in range(self.n_devices):
                self.lines.append(f"references of {number} on {device}: {self.drained(number, device)}")
        for slot in self.slots:
            if slot is not None:
                omp.target_free(slot)

    def drained(self, number, device):
        """Release an array until it is not present; return how often that took, or the error that ends it."""
        array, count = self.arrays[number], 0
        wheres = [{"device": device}, {"devices": "all"}]
        wheres += [{"devices": [device, other]} for other in range(self.n_devices) if other != device]
        errors = []
        while omp.target_is_present(array, device) and count < MOST_REFERENCES and wheres:
            try:
                omp.target_exit_data(map=[omp.release(array)], **wheres[0])
                count += 1
            except Exception as error:
                errors.append(failed(error))
                del wheres[0]
        return " ".join([str(count), *errors])


def carried_out(program, mode, kept):
    """Carry out a program; return its lines.

    Parameters
    ----------
    program : dict
        Of `tests.differential.programs`.
    mode : Mode
        How.
    kept : Table
        Functions that programs have in common; those of a program that does not keep them are its own.
    """
    runtime = dict(program["runtime"])
    if mode.num_threads is not None:
        runtime["num_threads"] = mode.num_threads
    if mode.seed is not None:
        runtime["seed"] = mode.seed
    lines = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        lines.append(
            f"runtime -> {_run(program, runtime, World(mode, kept if program['keeps'] else type(kept)(), lines))}"
        )
    if any(step["op"] == "persist" for step in program["steps"]):
        gc.collect()  # a declaration ends with the array, which errors may hold
    ours = (omp.DirectiveWarning, omp.HostFallbackWarning, omp.CleanupWarning)
    said = [f"{w.category.__name__}({scrubbed(w.message)})" for w in caught if issubclass(w.category, ours)]
    return lines + sorted(said)


def _run(program, runtime, world):
    """Carry out a program in a runtime of its own; return how that closes."""
    try:
        with omp.Runtime(runtime.pop("devices"), **runtime):
            world.n_devices = omp.get_num_devices()
            world.carry_out(program["steps"])
            world.close()
    except Exception as error:
        return failed(error)
    return "closed"


def in_threads(worlds, programs):
    """Carry out the steps of each world in a thread of its own; return the lines of each."""
    begun = threading.Barrier(len(worlds))

    def run(world, steps):
        begun.wait()
        world.carry_out(steps)
        world.close()

    threads = [threading.Thread(target=run, args=pair) for pair in zip(worlds, programs, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [world.lines for world in worlds]


__all__ = ["OPERATIONS", "BodyError", "Mode", "World", "acc", "carried_out", "in_threads", "operation"]
