"""The state of PyTorch's tensors and modules that a captured graph depends on.

A graph holds addresses, and the decisions of a module's code at the capture. In PyTorch both change in place:
``module.to(…)`` and ``tensor.data = …`` move the data of a tensor, an optimiser drops gradients, and ``module.eval()``
changes the computation of a layer. So the state is noted before the capture and compared at each replay. If it differs,
the region is captured again. If the capture itself changes it, a replay would not. Then the region is replayed task by
task. A backward pass does so: it gives a parameter without a gradient a new one.

Rejected: PyTorch's own rule for graphs, by which the program must change nothing of this. A program that does would get
the results of old memory, and no error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offload.arrays.foreign import is_model, is_tensor
from offload.graphs.rehearsal import NotCapturableError

if TYPE_CHECKING:
    from collections.abc import Iterable


class TensorState:
    """The state of the tensors and modules that the bodies of a graph reach, and the memory that they had.

    Raise `NotCapturableError` for a tensor whose data lies at no address, such as a sparse one.
    """

    # each with what it had
    __slots__ = ("_data", "_empty", "_grads", "_kept", "_modes", "_parts")

    def __init__(self, values: Iterable[object]) -> None:
        values = list(values)
        tensors: list[Any] = [value for value in values if is_tensor(value)]
        states: list[dict[str, Any]] = [vars(value) for value in values if is_model(value)]
        # a tensor that is no leaf would warn of the question for its gradient
        self._grads = [(one, one.grad) for one in tensors if one.requires_grad and one.is_leaf]
        tensors += [grad for _, grad in self._grads if grad is not None]
        try:
            self._data = [(one, one.data_ptr(), one.shape, one.requires_grad) for one in tensors]
            # other tensors of the same memory, which lives with the graph even if a tensor gets other data
            self._kept = [one.detach() for one in tensors]
        except (RuntimeError, NotImplementedError) as error:  # PyTorch's, of a tensor without storage
            raise NotCapturableError(f"it reaches a tensor whose memory offload cannot find ({error})") from None
        self._modes = [(state, state["training"]) for state in states]
        parts = [state[kind] for state in states for kind in ("_modules", "_parameters", "_buffers")]
        self._parts = [(one, [*map(id, one.values())]) for one in parts if one]  # the objects are alive with the graph
        self._empty = [one for one in parts if not one]

    def holds(self) -> bool:
        """Tell whether all is as it was noted. Costs half a microsecond for each tensor, and for each module."""
        for tensor, address, shape, requires_grad in self._data:
            if tensor.data_ptr() != address or tensor.shape != shape or tensor.requires_grad is not requires_grad:
                return False
        for tensor, grad in self._grads:
            if tensor.grad is not grad:
                return False
        for state, is_training in self._modes:
            if state["training"] is not is_training:
                return False
        return not any(self._empty) and all([*map(id, parts.values())] == found for parts, found in self._parts)

    def restore(self) -> None:
        """Give tensors the gradients that they had: those of a capture that was given up were never computed."""
        for tensor, grad in self._grads:
            if tensor.grad is not grad:
                tensor.grad = grad
