"""From C to an address: each source is compiled once, by the first compiler that works, and kept.

A compiler works if it makes the loop threads (``pool.c``), which every program with a loop needs anyhow.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import re
import tempfile
import threading
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Final

from offload.devices import diskcache
from offload.errors import InternalError, PerformanceWarning
from offload.interrupts.forks import in_forked_child
from offload.interrupts.frames import warn
from offload.loops.running import compilers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from offload.loops.emit.emit_c import CKernel
    from offload.loops.running.compilers import Compiler
    from offload.loops.tree.ir import Nest, SourceLine


class Builder:
    """Compiles C and loads it, each source once."""

    def __init__(
        self,
        # for ``OFFLOAD_CC``, ``CC``, ``OFFLOAD_CACHE_DIR`` and the platform's cache directory
        environ: Mapping[str, str],
        limit_s: float = compilers.LIMIT_S,  # how long a compiler may run
        large_nchars: int = compilers.LARGE_NCHARS,  # longer sources are compiled with fewer optimisations
    ) -> None:
        self._environ = environ
        self._limit_s = limit_s
        self._large_nchars = large_nchars
        self._libraries: dict[str, ctypes.CDLL] = {}  # loaded, by key
        self._tried: list[str] = []  # why each compiler that was tried does not work
        self._obstacle: str | None = None  # why no compiler works, if that is not their fault
        self._choice: tuple[Compiler, ctypes.CDLL] | None = None  # the compiler, and the loop threads that it has made
        self._has_chosen = False  # whether `_choice` counts; None may be the answer
        self.after_fork()

    def after_fork(self) -> None:
        """Forget the work of the parent's threads; loaded libraries stay loaded."""
        self._lock = threading.Lock()
        self._choosing = threading.Lock()
        self._making: dict[str, threading.Lock] = {}

    @property
    def compiler(self) -> Compiler | None:
        """The compiler for the host; None where there is none. The first question compiles the loop threads."""
        choice = self._chosen()
        return None if choice is None else choice[0]

    @property
    def pool(self) -> ctypes.CDLL:
        """The loop threads, compiled."""
        choice = self._chosen()
        if choice is None:
            raise InternalError("there is no compiler, so there are no loop threads; ask `compiler` first")
        return choice[1]

    @property
    def tried(self) -> tuple[str, ...]:
        """Why each compiler that was tried does not work."""
        return tuple(self._tried)

    @property
    def obstacle(self) -> str | None:
        """Why no compiler works, if that is not their fault."""
        return self._obstacle

    def load(self, source: str, entry: str, place: SourceLine | None = None, options: Sequence[str] = ()) -> int:
        """Return the address of the function ``entry`` of a C source.

        Comments ``/* +3 */`` in the source give lines relative to ``place``, the nest. ``options`` come after those
        that the compiler always gets. Raises `HostFailure` if nothing can be compiled now, and `InternalError` if there
        is no compiler, if it refuses the source, or if the library has no such function.
        """
        compiler = self.compiler
        if compiler is None:
            raise InternalError("generated C cannot be compiled, because there is no compiler; ask `compiler` first")
        try:
            library = self._library(replace(compiler, options=(*compiler.options, *options)), source)
        except compilers.HostFailure:
            raise
        except compilers.CompilerFailure as failure:
            where = "" if place is None else f" for {place.file}:{user_line(source, str(failure), place)}"
            raise InternalError(f"generated C{where} was not compiled: {failure}\nPlease report this.") from failure
        function = getattr(library, entry, None)
        if function is None:
            raise InternalError(f"generated C has no function {entry!r}")
        return ctypes.cast(function, ctypes.c_void_p).value or 0

    def address(self, kernel: CKernel, nest: Nest, options: Sequence[str]) -> int:
        """Return the address of a nest as C, or 0, with a `PerformanceWarning`, if nothing can be compiled now."""
        try:
            return self.load(kernel.source, kernel.entry, nest.place, options)
        except compilers.HostFailure as failure:
            where = f"{nest.place.file}:{nest.place.line}"
            warn(f"the loop at {where} {of_obstacle(str(failure))}", PerformanceWarning, where)
            return 0

    def _chosen(self) -> tuple[Compiler, ctypes.CDLL] | None:
        if not self._has_chosen:
            with self._choosing:
                if not self._has_chosen:
                    self._choice = self._choose()
                    self._has_chosen = True
        return self._choice

    def _choose(self) -> tuple[Compiler, ctypes.CDLL] | None:
        source = pool_source()
        for candidate in compilers.candidates(self._environ, self._limit_s):
            compiler = replace(candidate, large_nchars=self._large_nchars)
            try:
                return compiler, self._library(compiler, source)
            except compilers.CompilerFailure as failure:
                self._tried.append(str(failure))
                if isinstance(failure, compilers.HostFailure):
                    self._obstacle = str(failure)
        return None

    def _library(self, compiler: Compiler, source: str) -> ctypes.CDLL:
        key = compiler.key(source)
        if (library := self._libraries.get(key)) is not None:
            return library
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        with making:
            if key not in self._libraries:
                self._libraries[key] = self._obtain(compiler, source, key)
        return self._libraries[key]

    def _obtain(self, compiler: Compiler, source: str, key: str) -> ctypes.CDLL:
        where = diskcache.folder(self._environ)
        kept = _from_cache(where, key)
        if kept is not None:
            return kept
        try:
            with tempfile.TemporaryDirectory(prefix="offload-", ignore_cleanup_errors=True) as folder:
                made = compiler.compile(source, Path(folder))
                is_kept = diskcache.store(where, key, "so", made.read_bytes())
                return (_from_cache(where, key) if is_kept else None) or _opened(made)
        except compilers.HostFailure as failure:
            raise compilers.HostFailure(f"{_folder_of_compilers()}: {failure}") from failure
        except OSError as error:
            said = str(error)
            if isinstance(error, _LoadError) and not any(word in said.lower() for word in _NOT_MAPPED):
                raise compilers.CompilerFailure(
                    f"the library that `{compiler}` wrote cannot be loaded: {said}"
                ) from error
            raise compilers.HostFailure(f"{_folder_of_compilers()}: {said}") from error


@functools.cache
def pool_source() -> str:
    """Return the C of the loop threads."""
    return resources.files("offload.loops.running").joinpath("pool.c").read_text(encoding="utf-8")


def of_obstacle(obstacle: str) -> str:
    """Return the text of a warning for a loop that cannot be compiled now."""
    return (
        f"runs as Python, some hundred times slower: {obstacle}; free space there, name another folder in TMPDIR, or "
        "free memory, and restart the program"
    )


def _from_cache(where: Path, key: str) -> ctypes.CDLL | None:
    """Return the library of a key in the cache, if it is there and can be loaded."""
    with contextlib.suppress(OSError), diskcache.held(where) as folder:
        kept = diskcache.find(folder, key)
        return None if kept is None else _opened(kept)
    return None


class _LoadError(OSError):
    """A library was not loaded."""


# What the system says of a library that nothing is wrong with: no file of its folder may be executed, say.
_NOT_MAPPED: Final = ("failed to map segment", "cannot allocate memory")


def _opened(library: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(library))
    except OSError as error:
        raise _LoadError(str(error)) from None


def _folder_of_compilers() -> str:
    """Return how messages begin that are about the folder in which compilers work."""
    with contextlib.suppress(OSError):
        return f"nothing can be compiled in {tempfile.gettempdir()}"
    return "nothing can be compiled"


def user_line(source: str, message: str, place: SourceLine) -> int:
    """Return the user's line that a compiler's message is about: by the last mark before the line that it names."""
    named = re.search(r"loop\.cu?[:(](\d+)", message)
    text = "\n".join(source.splitlines()[: int(named[1])]) if named else ""
    marks = re.findall(r"/\* \+(\d+) \*/", text)
    return place.line + (int(marks[-1]) if marks else 0)


builder = Builder(os.environ)

in_forked_child(builder.after_fork)
