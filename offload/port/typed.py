"""Kernels whose signature states what they read and write: `ElementwiseKernel` and `ReductionKernel`, and `fuse`.

On ``sim``, such a kernel is ordered and not carried out, as a `RawKernel` is. The arrays that it makes have the shape
and dtype that CuPy gives them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from offload.port.arrays import PortArray
from offload.port.kernels import split_parameters

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from offload.port.kernels import KernelSide

_POSITIONS = {"ElementwiseKernel": (1, "kernel"), "ReductionKernel": (4, "reduce_kernel")}
"""After the parameters: the position of the kernel's name, and its default."""


class TypedParameter(NamedTuple):
    """A parameter, such as ``raw T x``."""

    kind: str  # "T", "float32"
    is_raw: bool  # the kernel indexes it itself


def typed_parameters(text: str) -> list[TypedParameter]:
    """Return the parameters of a signature."""
    words = [[word for word in part.split() if word != "_non_const"] for part in split_parameters(text)]
    return [TypedParameter(one[-2], "raw" in one[:-2]) for one in words]


class PortTypedKernel:
    """An `ElementwiseKernel` or `ReductionKernel` of CuPy: it reads its inputs and writes its outputs.

    Parameters
    ----------
    side : KernelSide
        The kernels of the run.
    native : object or None
        CuPy's kernel; None on ``sim``.
    name : str
        The kernel's name.
    inputs, outputs : str
        Its signature.
    is_reduction : bool
        Whether it reduces its inputs.
    """

    def __init__(
        self, side: KernelSide, native: Any, name: str, inputs: str, outputs: str, *, is_reduction: bool
    ) -> None:
        self._side, self._native, self._name = side, native, name
        self._inputs, self._outputs = typed_parameters(inputs), typed_parameters(outputs)
        self._is_reduction = is_reduction

    def __call__(self, *args: Any, stream: Any = None, **kwargs: Any) -> Any:
        """Launch the kernel on a stream, by default the current one."""
        recorder = self._side.recorder
        target = self._side.streams.chosen(stream)
        n_inputs = len(self._inputs)
        if len(args) not in {n_inputs, n_inputs + len(self._outputs)}:
            n_all = n_inputs + len(self._outputs)
            raise TypeError(f"kernel {self._name!r} takes {n_inputs} or {n_all} arguments; {len(args)} are given")
        inputs, outputs = args[:n_inputs], list(args[n_inputs:])
        outputs += [kwargs["out"]] if kwargs.get("out") is not None else []
        if self._native is None:
            results = outputs or self._made(inputs, kwargs)
        else:
            results = self._computed(args, outputs, target, kwargs)
        reads = [arg.whole_part for arg in inputs if isinstance(arg, PortArray) and arg.size]
        writes = [array.whole_part for array in results if array.size]
        # A kernel may write some elements of a raw output only.
        partly = [
            array.whole_part for one, array in zip(self._outputs, results, strict=False) if one.is_raw and array.size
        ]
        operation = recorder.add("kernel", self._name, target.number, [*reads, *partly], writes, assumed=tuple(partly))
        if self._native is None:
            self._side.leave_unchecked(self._name, operation)
        return tuple(results) if len(results) != 1 else results[0]

    def _computed(self, args: Sequence[Any], outputs: Sequence[Any], target: Any, kwargs: Any) -> list[PortArray]:
        """Have CuPy carry the kernel out; return its outputs."""
        plain = [arg.array_data if isinstance(arg, PortArray) else arg for arg in args]
        named = {k: arg.array_data if isinstance(arg, PortArray) else arg for k, arg in kwargs.items()}
        with target.native:
            result = self._native(*plain, **named)
        given = {id(array.array_data): array for array in outputs if isinstance(array, PortArray)}
        results = result if isinstance(result, tuple) else (result,)
        machine = self._side.machine
        return [given[id(part)] if id(part) in given else machine.adopt(part, self._name) for part in results]

    def _made(self, inputs: Sequence[Any], kwargs: Mapping[str, Any]) -> list[PortArray]:
        """Return new arrays for the outputs."""
        kinds: dict[str, np.dtype[Any]] = {}
        shapes = []
        for parameter, given in zip(self._inputs, inputs, strict=True):
            array = given.array_shadow if isinstance(given, PortArray) else np.asarray(given)
            if parameter.kind not in kinds or isinstance(given, PortArray):
                kinds[parameter.kind] = array.dtype
            if not parameter.is_raw:
                shapes.append(array.shape)
        shape = np.broadcast_shapes(*shapes) if shapes else (kwargs.get("size"),)
        if shape == (None,):
            raise ValueError("Loop size is undecided.")
        if self._is_reduction:
            whole: Any = np.broadcast_to(np.zeros(()), shape)
            shape = np.sum(whole, axis=kwargs.get("axis"), keepdims=bool(kwargs.get("keepdims"))).shape
        machine = self._side.machine
        types = [kinds.get(one.kind) or np.dtype(one.kind) for one in self._outputs]
        return [machine.adopt(np.zeros(shape, dtype), self._name) for dtype in types]


def typed_kernel(side: KernelSide, kind: str) -> Callable[..., PortTypedKernel]:
    """Return the stand-in for ``cupy.ElementwiseKernel`` or ``cupy.ReductionKernel``."""
    position, default = _POSITIONS[kind]

    def make(in_params: str, out_params: str, *args: Any, **kwargs: Any) -> PortTypedKernel:
        native = None if side.xp is None else getattr(side.xp, kind)(in_params, out_params, *args, **kwargs)
        name = kwargs.get("name", args[position] if len(args) > position else default)
        is_reduction = kind == "ReductionKernel"
        return PortTypedKernel(side, native, name, in_params, out_params, is_reduction=is_reduction)

    make.__name__ = kind
    return make


def fuse(*args: Any, **_: Any) -> Any:
    """Return a function as it is: its operations are carried out one by one. See ``cupy.fuse``."""
    return args[0] if args and callable(args[0]) else lambda function: function
