"""Compilers of C: which there are, their commands, and their time limits."""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import importlib.util
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from offload.errors import ClauseError
from offload.loops.emit.c_host import ROUNDING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

LIMIT_S = 120.0  # for one source; what the emitter writes takes a tenth of a second
_VERSION_LIMIT_S = 20.0

_OPTIONS = [
    *("-std=gnu11", "-O3", "-fPIC", "-shared"),
    *("-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fwrapv", "-fopenmp-simd"),
    "-fno-strict-aliasing",  # views of one buffer may have two types
]


# What compilers say where the source is not at fault.
_OF_HOST = (
    *map(os.strerror, (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.ENOMEM)),
    *("signal terminated program", "unable to execute command", "NoSpaceLeft"),  # of gcc, clang and zig
)

LARGE_NCHARS: Final = 40_000  # a source of some 250 statements

# For larger sources: -O3 took 15 s for 400 stores, this 0.2 s.
_OF_LARGE = ("-O1",)


# gcc 12.0 to 12.2 contract products and sums in pairs of vectors even so (gcc's bug 107647): they get no instruction to
# do it with. AVX-512 has such of its own, and is worth more than it costs in most sources: in those with complex
# numbers, whose products are such pairs, it is left out.
_CONTRACTING: Final = re.compile(r"\b12\.[012]\.\d+\b")
_UNCONTRACTED: Final = ("-mno-fma", "-mno-fma4")
_UNCONTRACTED_PAIRS: Final = ("-mno-avx512f",)
# Of texts with ROUNDING.
_ROUNDED: Final = ("-fno-tree-slp-vectorize",)


class CompilerFailure(Exception):  # noqa: N818  # no error of the program's: another compiler may do, or none
    """A compiler has failed; the text is its output."""


class HostFailure(CompilerFailure):
    """The source is not at fault: a folder is full or cannot be used, or the system has ended the compiler."""


@dataclass(frozen=True, slots=True)
class Compiler:
    """A command that compiles C to a shared library."""

    command: tuple[str, ...]  # with its own options
    options: tuple[str, ...]  # those of this module
    identity: str  # what sets its results apart from those of another compiler, or for another processor
    limit_s: float = LIMIT_S  # for how long it may run
    large_nchars: int = LARGE_NCHARS  # sources of more characters are compiled with fewer optimisations
    contracts: bool = False  # even where it is told not to
    is_gcc: bool = False

    def __str__(self) -> str:
        return shlex.join(self.command)

    def key(self, source: str) -> str:
        """Return the name of the library that this compiler makes of the source: 64 hexadecimal digits."""
        parts = (source, self.identity, *self.command, *self._options_for(source))
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def compile(self, source: str, folder: Path) -> Path:
        """Compile the source in an empty folder, and return the library there.

        Raises `CompilerFailure` if the compiler fails, is silent for `limit_s`, or writes no library, and `OSError` if
        the source cannot be written.
        """
        text, library = folder / "loop.c", folder / "loop.so"
        text.write_text(source, encoding="utf-8")
        words = [*self.command, *self._options_for(source), "-o", library.name, text.name, "-lm"]
        status, said = _run(words, self.limit_s, folder)
        if status != 0:
            kind = HostFailure if status < 0 or any(word in said for word in _OF_HOST) else CompilerFailure
            raise kind(f"`{self}` ended with status {status}:\n{said.strip()}")
        if not library.is_file() or library.stat().st_size == 0:
            raise CompilerFailure(f"`{self}` succeeded, but wrote no library; its output: {said.strip()!r}")
        return library

    def _options_for(self, source: str) -> tuple[str, ...]:
        options = self.options
        if self.contracts and "-ffp-contract=fast" not in options:
            options += (*_UNCONTRACTED, *(_UNCONTRACTED_PAIRS if "complex" in source else ()))
        if self.is_gcc and source.startswith(ROUNDING):
            options += _ROUNDED
        return (*options, *_OF_LARGE) if len(source) > self.large_nchars else options


def candidates(environ: Mapping[str, str], limit_s: float = LIMIT_S) -> Iterator[Compiler]:
    """Yield the compilers that there are, the preferred one first; none where ``OFFLOAD_CC`` is ``none``."""
    if environ.get("OFFLOAD_CC", "").strip() == "none":
        return
    for command in _commands(environ):
        program = shutil.which(command[0], path=environ.get("PATH"))
        if program is None:
            continue
        try:
            _, version = _run([*command, "--version"], min(limit_s, _VERSION_LIMIT_S))
        except CompilerFailure:
            continue
        is_gcc = _is_gcc(version)
        contracts = is_gcc and bool(_CONTRACTING.search(version)) and platform.machine() in ("x86_64", "AMD64")
        options, identity = _options(command, version), _identity(Path(program), version)
        yield Compiler(command, options, identity, limit_s, contracts=contracts, is_gcc=is_gcc)


def _commands(environ: Mapping[str, str]) -> Iterator[tuple[str, ...]]:
    for name in ("OFFLOAD_CC", "CC"):
        value = environ.get(name, "")
        try:
            command = shlex.split(value)
        except ValueError as error:
            raise ClauseError(
                f"{name}={value!r:.60} is not a command ({error}); write a command and its options as for a shell, for"
                f" example {name}='gcc -g'"
            ) from None
        if command:
            yield tuple(command)
    for name in ("gcc", "clang", "cc"):
        yield (name,)
    if importlib.util.find_spec("ziglang") is not None:
        yield (sys.executable, "-m", "ziglang", "cc")


def _options(command: Sequence[str], version: str) -> tuple[str, ...]:
    is_zig = command[-1] == "cc" and ("ziglang" in command or Path(command[0]).stem == "zig")
    native = "-mcpu=native" if is_zig else "-march=native"
    # gcc's own choice at -O3 vectorises sums that stay in order over strided loads, and loses a quarter by it.
    cost = ("-fvect-cost-model=dynamic",) if _is_gcc(version) else ()
    return (*_OPTIONS, native, *cost)


def _is_gcc(version: str) -> bool:
    return "Free Software Foundation" in version


def _identity(program: Path, version: str) -> str:
    found = program.resolve()
    state = found.stat()
    return "\n".join((version, str(found), str(state.st_size), str(state.st_mtime_ns), _processor()))


@functools.cache
def _processor() -> str:
    """Return the processor that ``native`` stands for: different machines may share a home directory."""
    words = {"model name", "flags", "Features", "CPU part", "CPU implementer"}
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n", 1)[0].splitlines()
        return "\n".join(line for line in lines if line.partition(":")[0].strip() in words)
    return f"{platform.machine()} {platform.processor()}"


def _run(command: Sequence[str], limit_s: float, folder: Path | None = None) -> tuple[int, str]:
    """Run a command, and return its status and output; it is killed with its children when its time is over.

    It speaks English, and in a folder it keeps its own temporary files there.
    """
    environ = {**os.environ, "LC_ALL": "C"} | ({} if folder is None else {"TMPDIR": "."})
    try:
        process = subprocess.Popen(  # noqa: S603  # the user's own compiler
            command,
            cwd=folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise CompilerFailure(f"`{shlex.join(command)}` cannot be started: {error}") from error
    try:
        said, _ = process.communicate(timeout=limit_s)
    except BaseException as error:
        _kill(process)
        if isinstance(error, subprocess.TimeoutExpired):
            raise CompilerFailure(f"`{shlex.join(command)}` did not end within {limit_s:g} s") from None
        raise
    return process.returncode, said


def _kill(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
