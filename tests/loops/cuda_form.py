"""The CUDA form of a nest, called as the Python form is: compiled for the host, or by nvcc without being run."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import hashlib
import math
import os
import shutil
import subprocess
import tempfile
import threading
from functools import cache
from pathlib import Path

import numpy as np

from offload.loops.emit.emit_cuda import FINISH_THREADS, CudaVariant, emit_cuda
from offload.loops.emit.grids import Shape, grid_of, rows_of, team_grid
from offload.loops.emit.python_form import bits
from offload.loops.front.levels import levels_of
from offload.loops.proofs.numbers import LaunchNumbers, Trips, View
from offload.loops.proofs.reach import accesses
from offload.loops.tree.promotion import identity
from offload.loops.tree.uses import result_words

GXX = shutil.which("g++")
NVCC = shutil.which("nvcc")
SHARED = "extern __shared__ uint64_t shared[];"
_OF_RUN = os.environ.get("OFFLOAD_TESTS_FOLDER")
_ONE = threading.Lock()  # a text has one set of threads
LAUNCHERS = """
static const Arguments *given;
extern "C" int launch_loop(const Arguments *arguments, const long *shape)
{
    given = arguments;
    return run_grid([] { loop(*given); }, shape);
}
"""
FINISHER = """
extern "C" int launch_finish(const Arguments *arguments, const long *shape)
{
    given = arguments;
    return run_grid([] { finish(*given); }, shape);
}
"""


def cuda_form(shape=None, **words):
    """Return a form for `forms.run` with one chunk; `words` are those of a `CudaVariant`."""

    def make(typed, nest, modes):
        return _Form(typed, nest, modes, shape or Shape(), words).run

    return make


class _Form:
    def __init__(self, typed, nest, modes, shape, words):
        self.typed, self.nest, self.modes, self.shape, self.words = typed, nest, modes, shape, words

    def run(self, arguments, begin, end, chunk, partials, report):
        trips = [arguments[f"trips {k}"] for k in range(len(self.nest.axes))]
        assert (begin, end) == (0, trips[0])
        self.arguments, self.partials, self.report = arguments, partials, report
        is_ordered = self.words.get("is_ordered", False)
        levels = levels_of(self.nest, is_ordered=is_ordered)
        iterations = 1 if is_ordered else max(1, math.prod(trips))
        team = levels.team and rows_of(levels.team, iterations)
        if team is None:
            shape = self.shape._replace(n_threads=levels.n_threads or self.shape.n_threads)
            grid = grid_of([max(n, 1) for n in trips], shape, is_ordered=is_ordered)
        else:
            grid = team_grid(iterations, team, self.shape.most_blocks)
        arrays = {n: v for n, v in arguments.items() if isinstance(v, np.ndarray) and n in self.typed.arrays}
        variant = CudaVariant(
            modes=tuple(self.modes.items()),
            n_threads=grid.n_threads,
            is_strided=grid.is_strided,
            privates=tuple((name, arrays[name].size) for name in self.nest.privates),
            empty=tuple(name for name, array in arrays.items() if array.size == 0),
            team=team,
            shared=levels.shared,
            **{"narrow": self.narrow(arrays), **self.words},
        )
        kernel = emit_cuda(self.typed, self.nest, variant)
        library = on_host(kernel.source)
        self.places, _ = result_words(self.typed, self.nest)
        n_words = max([1, *(self.places[item.name].stop for item in self.nest.reductions)])
        self.of_blocks = np.zeros((grid.n_blocks, n_words), np.uint64)
        self.blocks = grid.n_blocks if all(trips) else 0
        slots = np.array([self.slot(field) for field in kernel.fields] or [0], np.int64)
        if all(trips):
            launch(library.launch_loop, slots, grid.blocks, grid.threads)
        for item in self.nest.reductions:
            if item.name in self.typed.arrays:  # which `finish` has combined in place
                partials[0, self.places[item.name]] = self.none(item)
        if self.nest.reductions:
            launch(library.launch_finish, slots, (1, 1, 1), (FINISH_THREADS, 1, 1))

    def narrow(self, arrays):
        """Return the variables that a launcher gives 32 bits."""
        if self.words.get("index_bits") != 32:
            return ()
        axes = [
            Trips(*(self.arguments[f"{what} {k}"] for what in ("start", "step", "trips")))
            for k, _ in enumerate(self.nest.axes)
        ]
        scalars = {n: v.item() for n, v in self.arguments.items() if isinstance(v, np.generic)}
        views = {n: View(v.shape, v.strides, v.itemsize, v.ctypes.data) for n, v in arrays.items()}
        return tuple(sorted(accesses(self.typed, self.nest, LaunchNumbers(tuple(axes), scalars, views)).narrow))

    def none(self, item):
        types = self.typed.arrays if item.name in self.typed.arrays else self.typed.scalars
        dtype = types[item.name].dtype
        return bits(np.dtype(dtype).type(identity(item.operator, dtype)))

    def slot(self, field):
        held = self.arguments.get(field.name)
        items = [item.name for item in self.nest.reductions]
        match field.kind:
            case "pointer":
                return held.ctypes.data
            case "extent":
                return held.shape[field.number]
            case "stride":
                return held.strides[field.number]
            case "copies":
                return sorted(self.words["copies"]).index(field.name) * 1024
            case "scalar" if field.name in items:  # combined with the value before the loop by `forms`
                return int(self.none(self.nest.reductions[items.index(field.name)]).view(np.int64)[field.number])
            case "scalar":
                return int(bits(held).view(np.int64)[field.number])
            case "partials":
                return self.of_blocks.ctypes.data
            case "blocks":
                return self.blocks
            case "report":
                return self.report.ctypes.data
            case "result":
                return self.partials[0, self.places[field.name]].ctypes.data
            case kind:
                return self.arguments[f"{kind} {field.number}"]


def launch(function, slots, blocks, threads):
    shape = np.array([*blocks, *threads], np.int64)
    with _ONE:
        failed = function(ctypes.c_void_p(slots.ctypes.data), ctypes.c_void_p(shape.ctypes.data))
    assert not failed, "threads wait for each other at different barriers"


@cache
def folder():
    """Return where texts are compiled. All processes of a run share it, so that each text is compiled once."""
    if _OF_RUN is not None:
        path = Path(_OF_RUN, "cuda")
        path.mkdir(exist_ok=True)
        return path
    path = Path(tempfile.mkdtemp(prefix="offload-cuda-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


@cache
def on_host(source):
    """Compile a CUDA text for the host, and load it."""
    text = '#include "cuda_on_host.h"\n' + source.replace(SHARED, "static uint64_t shared[1 << 16];") + LAUNCHERS
    text += FINISHER if " finish(" in source else ""
    text += FINISHER.replace("finish", "begin") if " begin(" in source else ""
    options = (f"-I{words()}", "-shared")
    return ctypes.CDLL(str(made(text, "cpp", "so", options, gxx)))


def made(text, suffix, kind, options, run):
    """Return the file of a kind that a compiler makes of a text, unless this or another process has made it."""
    name = hashlib.sha256("\0".join((text, kind, *options)).encode()).hexdigest()
    path = folder() / f"{name}.{kind}"
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=folder()) as place:
            source, new = Path(place, f"text.{suffix}"), Path(place, path.name)
            source.write_text(text)
            run(*options, str(source), "-o", str(new))
            new.replace(path)
    return path


@cache
def words():
    """Return the folder of the header of CUDA's words, compiled: it takes more time than a kernel."""
    path = folder() / "words"
    if not path.exists():
        place = tempfile.mkdtemp(dir=folder())
        header = shutil.copy(Path(__file__).parent / "cuda_on_host.h", place)
        gxx("-x", "c++-header", header, "-o", f"{header}.gch")
        with contextlib.suppress(OSError):  # another process has been quicker
            Path(place).rename(path)
    return path


def gxx(*arguments):
    one_place = [
        "-fno-thread-jumps",
        "-fno-tree-dominator-opts",
    ]  # a barrier is known by its address: it is to have one
    command = [GXX, "-std=c++17", "-O1", *one_place, "-ffp-contract=off", "-fno-strict-aliasing", "-w", "-fPIC"]
    command += ["-U_FORTIFY_SOURCE", *arguments]  # which takes jumps to another stack for mistakes
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def compiled(source, options=("--fmad=false",)):
    """Compile a CUDA text by nvcc, and return its PTX."""
    return by_nvcc(source, "ptx", options).read_text()


def assembled(source):
    """Compile a CUDA text by nvcc, and return the code of the device."""
    return by_nvcc(source, "cubin").read_bytes()


def by_nvcc(source, kind, options=("--fmad=false",)):
    return made(source, "cu", kind, (*options, "-std=c++17", f"-{kind}"), nvcc)


def nvcc(*arguments):
    done = subprocess.run([NVCC, "-arch=sm_90", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
