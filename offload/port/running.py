"""A run of a program on the stand-in: its imports, the sink of its host arrays, and the record."""

from __future__ import annotations

import builtins
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from offload.errors import UnsupportedError
from offload.port.kernels import KernelAccesses
from offload.port.machine import ArrayMachine
from offload.port.recorder import ProgramRecorder
from offload.port.standin import CupyStandIn
from offload.sanitizer.imports import tracked_imports
from offload.sanitizer.tracked import set_sink

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import ModuleType

    from offload.port.kernels import AccessOption
    from offload.port.log import PortLog

Target = Literal["sim", "cuda"]


class RecordedRun:
    """The results of a run.

    Attributes
    ----------
    log : PortLog
        The operations.
    accesses : KernelAccesses
        The accesses of kernels; `KernelAccesses.unused` are the options without effect.
    """

    def __init__(self, recorder: ProgramRecorder, accesses: KernelAccesses) -> None:
        self.log: PortLog = recorder.log
        self.accesses = accesses


@contextmanager
def recorded(
    program: str, *, on: Target = "sim", access: Sequence[AccessOption] = (), wants_digests: bool = False
) -> Iterator[RecordedRun]:
    """Record a program that runs in the block.

    Parameters
    ----------
    program : str
        Its file. The files under its folder receive the stand-in when they import ``cupy`` or ``cupyx``, and tracked
        arrays when they import ``numpy``.
    on : str
        ``"sim"`` carries the operations out by NumPy; ``"cuda"`` by CuPy.
    access : sequence of AccessOption
        The accesses of kernels.
    wants_digests : bool
        Whether to keep digests of the bytes that copies bring to the host.

    Raises
    ------
    UnsupportedError
        ``on`` is ``"cuda"``, and there is no CuPy or no GPU.
    """
    cupy, cupyx = _cuda_modules() if on == "cuda" else (None, None)
    recorder = ProgramRecorder(program, wants_digests=wants_digests)
    accesses = KernelAccesses(access)
    standin = CupyStandIn(ArrayMachine(recorder, np if cupy is None else cupy), accesses, cupy, cupyx)
    folder = str(Path(program).resolve().parent)
    with tracked_imports(folder), _imports_of(standin.modules, recorder):
        before = set_sink(recorder)
        try:
            yield RecordedRun(recorder, accesses)
        finally:
            set_sink(before)
            if cupy is not None:
                cupy.cuda.runtime.deviceSynchronize()


def _cuda_modules() -> tuple[Any, Any]:
    import importlib

    try:
        cupy, cupyx = importlib.import_module("cupy"), importlib.import_module("cupyx")
    except ImportError as error:
        raise UnsupportedError(f"--on cuda needs CuPy, which cannot be imported ({error}); use --on sim") from error
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except Exception as error:
        raise UnsupportedError(f"--on cuda needs a CUDA device ({error}); use --on sim") from error
    if not count:
        raise UnsupportedError("--on cuda needs a CUDA device, and there is none; use --on sim")
    return cupy, cupyx


@contextmanager
def _imports_of(modules: Mapping[str, ModuleType], recorder: ProgramRecorder) -> Iterator[None]:
    """Have the program's files import the stand-in; everybody else imports what is installed."""
    plain = builtins.__import__

    def load(
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Any = None,
        fromlist: Any = (),
        level: int = 0,
    ) -> Any:
        package, _, rest = name.partition(".")
        if level or package not in _PACKAGES or not globals or not recorder.is_program_module(globals):
            return plain(name, globals, locals, fromlist, level)
        if package == "offload":
            place = recorder.place()
            raise UnsupportedError(
                f"{place.file}:{place.line}: the program uses offload itself; offload port reads CuPy programs, and "
                "offload run --sanitize examines programs that use offload"
            )
        module = modules[package]
        inner = module
        for part in rest.split(".") if rest else ():
            inner = getattr(inner, part)
        return inner if fromlist else module

    builtins.__import__ = load
    try:
        yield
    finally:
        builtins.__import__ = plain


_PACKAGES = frozenset({"cupy", "cupyx", "offload"})
