"""Kernels given as CUDA source: what a launch reads and writes, from the signature or from ``--access``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from offload.errors import UsageError
from offload.port.arrays import PortArray
from offload.port.extents import space_of
from offload.views.words import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from offload.port.extents import AccessPart
    from offload.port.log import StreamOperation
    from offload.port.streams import CudaSide

AccessMode = Literal["in", "out", "inout"]
MODES: tuple[AccessMode, ...] = ("in", "out", "inout")

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\])*\"", re.DOTALL)
_LINKAGE = re.compile(r"__launch_bounds__\s*\([^()]*\)|__\w+__|\bextern\b")


class KernelParameter(NamedTuple):
    """A parameter of a kernel: its text, and whether it points to memory, and to memory that is const."""

    text: str
    is_pointer: bool
    is_const: bool


class KernelSyntaxError(ValueError):
    """A CUDA source has no kernel of a name, or its parameters cannot be read."""


def parameters_of(source: str, name: str) -> list[KernelParameter]:
    """Return the parameters of a kernel.

    Parameters
    ----------
    source : str
        CUDA C++.
    name : str
        The kernel's name, also with template arguments, as in ``"scale<float>"``.

    Raises
    ------
    KernelSyntaxError
        There is no ``__global__`` function of that name, or its brackets do not match.
    """
    text = _COMMENT.sub(lambda found: '""' if found.group().startswith('"') else " ", source)
    plain = name.partition("<")[0].rpartition("::")[2].strip()
    for found in re.finditer(rf"\b{re.escape(plain)}\s*\(", text):
        head = re.split(r"[;{}]", text[: found.start()])[-1]
        if "__global__" not in head or "void" not in _LINKAGE.sub("", head):
            continue
        end = _closing(text, found.end() - 1)
        body = re.compile(r"\s*(;|\{)").match(text, end + 1) if end is not None else None
        if end is None or body is None or (body.group(1) == "{" and _closing(text, body.end() - 1) is None):
            raise KernelSyntaxError(f"the brackets of kernel {plain!r} do not match")
        return [_parameter(part) for part in split_parameters(text[found.end() : end])]
    raise KernelSyntaxError(f"the source has no `__global__ void {plain}(…)`")


def _closing(text: str, at: int) -> int | None:
    """Return where the bracket that opens at a place closes."""
    opening = text[at]
    closing = {"(": ")", "{": "}"}[opening]
    depth = 0
    for place in range(at, len(text)):
        if text[place] == opening:
            depth += 1
        elif text[place] == closing:
            depth -= 1
            if not depth:
                return place
    return None


def split_parameters(text: str) -> list[str]:
    """Split a list of parameters at its outer commas."""
    parts, depth, begin = [], 0, 0
    for at, sign in enumerate(text):
        depth += (sign in "(<[{") - (sign in ")>]}")
        if sign == "," and not depth:
            parts.append(text[begin:at])
            begin = at + 1
    parts.append(text[begin:])
    parts = [" ".join(part.split()) for part in parts]
    return [] if parts in ([""], ["void"]) else parts


def _parameter(text: str) -> KernelParameter:
    pointee, star, _ = text.partition("*")
    if not star:
        pointee, star, _ = text.partition("[")
    if not text:
        raise KernelSyntaxError("a parameter is empty")
    return KernelParameter(text, bool(star), bool(star) and re.search(r"\bconst\b", pointee) is not None)


class AccessOption(NamedTuple):
    """An option ``--access KERNEL=in,out,…``: the accesses of the arrays that a launch passes, in their order."""

    kernel: str
    modes: tuple[AccessMode, ...]


def access_option(text: str) -> AccessOption:
    """Parse the value of ``--access``.

    Raises
    ------
    ValueError
        It is not ``KERNEL=MODE,MODE,…``.
    """
    kernel, equals, rest = text.partition("=")
    modes = tuple(part.strip() for part in rest.split(","))
    if not equals or not kernel.strip() or not rest.strip():
        raise ValueError(f"{text!r} is not KERNEL=in,out,inout,…")
    known = tuple(mode for mode in MODES for part in modes if part == mode)
    if len(known) != len(modes):
        wrong = next(part for part in modes if part not in MODES)
        raise ValueError(f"{wrong!r} in {text!r} is no access; use in, out or inout, one for each array of a launch")
    return AccessOption(kernel.strip(), tuple(mode for part in modes for mode in MODES if mode == part))


class KernelAccesses:
    """The accesses of kernels, as ``--access`` states them or their sources show."""

    def __init__(self, options: Sequence[AccessOption] = ()) -> None:
        self.stated: dict[str, tuple[AccessMode, ...]] = {option.kernel: option.modes for option in options}
        self.launched: set[str] = set()
        self.is_wrong = False  # an option has the wrong number of entries

    @property
    def unused(self) -> list[str]:
        """The kernels of ``--access`` that were never launched."""
        return [name for name in self.stated if name not in self.launched]

    def modes(
        self, name: str, signature: Sequence[KernelParameter] | None, args: Sequence[Any]
    ) -> list[AccessMode | None]:
        """Return the access of each argument; None for one that is not an array.

        Raises
        ------
        UsageError
            ``--access`` has an entry neither for each array of the launch nor for each argument.
        """
        self.launched.add(name)
        is_array = [isinstance(arg, PortArray) for arg in args]
        stated = self.stated.get(name)
        if stated is not None:
            if len(stated) == len(args):
                return [mode if found else None for mode, found in zip(stated, is_array, strict=True)]
            if len(stated) != sum(is_array):
                self.is_wrong = True
                raise UsageError(
                    f"--access {name}={','.join(stated)} is for {plural(len(stated), 'array')}, and a launch passes "
                    f"{sum(is_array)}; give in, out or inout for each of them"
                )
            entries = iter(stated)
            return [next(entries) if found else None for found in is_array]
        assert signature is not None
        return [
            (("in" if parameter.is_const else "inout") if found else None)
            for found, parameter in zip(is_array, signature, strict=True)
        ]

    def is_stated(self, name: str) -> bool:
        """Tell whether ``--access`` names a kernel."""
        return name in self.stated


class KernelSide:
    """The state that the kernels of a run share.

    Parameters
    ----------
    streams : CudaSide
        The streams.
    accesses : KernelAccesses
        The accesses of kernels.
    xp : module or None
        CuPy; None on ``sim``, where a kernel is ordered and not carried out.
    """

    def __init__(self, streams: CudaSide, accesses: KernelAccesses, xp: Any) -> None:
        self.streams = streams
        self.machine = streams.machine
        self.recorder = streams.recorder
        self.accesses = accesses
        self.xp = xp
        self.raw_kernel: type[PortRawKernel] = type("RawKernel", (PortRawKernel,), {"side": self})
        self.raw_module: type[PortRawModule] = type("RawModule", (PortRawModule,), {"side": self})

    def signature(self, source: str | None, name: str) -> list[KernelParameter] | None:
        """Return the parameters of a kernel; None if ``--access`` states its accesses."""
        if self.accesses.is_stated(name):
            return None
        if source is None:
            raise self.machine.unsupported(
                f"kernel {name!r}", f"its source is not known; state its accesses: --access {name}=in,out,…"
            )
        try:
            return parameters_of(source, name)
        except KernelSyntaxError as error:
            raise self.machine.unsupported(
                f"RawKernel {name!r}", f"{error}; state its accesses: --access {name}=in,out,…"
            ) from None

    def launch(
        self,
        name: str,
        signature: Sequence[KernelParameter] | None,
        args: Sequence[Any],
        stream: Any,
        run: Callable[[list[Any]], Any] | None,
    ) -> None:
        """Record a launch, and carry it out on ``cuda``."""
        recorder = self.recorder
        if signature is not None and len(signature) != len(args):
            raise TypeError(f"kernel {name!r} has {len(signature)} parameters; the launch passes {len(args)}")
        modes = self.accesses.modes(name, signature, args)
        reads: list[AccessPart] = []
        writes: list[AccessPart] = []
        for arg, mode in zip(args, modes, strict=True):
            if isinstance(arg, PortArray) and arg.size:
                if mode != "out":
                    reads.append(arg.whole_part)
                if mode != "in":
                    writes.append(arg.whole_part)
        stream = self.streams.chosen(stream)
        assumed = () if signature is None else tuple(part for part in reads if part in writes)
        operation = recorder.add("kernel", name, stream.number, reads, writes, assumed=assumed)
        if run is not None:
            run([arg.array_data if isinstance(arg, PortArray) else arg for arg in args])
            return
        self.leave_unchecked(name, operation)

    def leave_unchecked(self, name: str, operation: StreamOperation) -> None:
        """Note that a kernel has not been carried out."""
        log = self.recorder.log
        log.unchecked_kernels.setdefault(name, operation.place)
        log.unchecked.update(map(space_of, operation.writes))


class PortRawKernel:
    """A kernel from source; ``cupy.RawKernel`` is a subclass, with CuPy's parameters."""

    side: ClassVar[KernelSide]

    def __init__(self, code: str, name: str, options: Any = (), backend: str = "nvrtc", **kwargs: Any) -> None:
        side = self.side
        self.name, self.code = name, code
        self.signature = side.signature(code, name)
        self.native = None if side.xp is None else side.xp.RawKernel(code, name, options, backend, **kwargs)

    def __call__(self, grid: Any, block: Any, args: Sequence[Any], *, stream: Any = None, **kwargs: Any) -> None:
        """Launch the kernel on a stream, by default the current one."""
        run = _runner(self.native, grid, block, stream, kwargs)
        self.side.launch(self.name, self.signature, args, stream, run)

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile the kernel now, on ``cuda``."""
        if self.native is not None:
            self.native.compile(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise self.side.machine.unsupported(f"RawKernel.{name}")


class PortRawModule:
    """A module of kernels from source; ``cupy.RawModule`` is a subclass, with CuPy's parameters."""

    side: ClassVar[KernelSide]

    def __init__(self, *, code: str | None = None, path: str | None = None, **kwargs: Any) -> None:
        side = self.side
        self.code = code
        self.native = None if side.xp is None else side.xp.RawModule(code=code, path=path, **kwargs)

    def get_function(self, name: str) -> PortRawKernel:
        """Return a kernel of the module."""
        side = self.side
        kernel: PortRawKernel = object.__new__(side.raw_kernel)
        kernel.name, kernel.code = name, self.code or ""
        kernel.signature = side.signature(self.code, name)
        kernel.native = None if self.native is None else self.native.get_function(name)
        return kernel

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile the module now, on ``cuda``."""
        if self.native is not None:
            self.native.compile(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise self.side.machine.unsupported(f"RawModule.{name}")


def _runner(
    native: Any, grid: Any, block: Any, stream: Any, kwargs: Mapping[str, Any]
) -> Callable[[list[Any]], Any] | None:
    """Return what launches CuPy's kernel with plain arguments; None on ``sim``."""
    if native is None:
        return None

    def run(args: list[Any]) -> None:
        if stream is None:
            native(grid, block, tuple(args), **kwargs)
        else:
            with stream.native:
                native(grid, block, tuple(args), **kwargs)

    return run
