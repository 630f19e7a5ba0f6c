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

import sys
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any

from offload.arrays.foreign import is_model, is_tensor
from offload.graphs.rehearsal import NotCapturableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_PARTS = ("_modules", "_parameters", "_buffers")  # of a module, by name; dicts

_OTHERS = tuple(map(attrgetter, ("shape", "dtype", "requires_grad")))  # of a tensor, besides address and strides


class TensorState:
    """The state of the tensors and modules that the bodies of a graph reach, and the memory that they had.

    Raise `NotCapturableError` for a tensor whose data lies at no address, such as a sparse one, and for a module that
    is not complete.
    """

    # each with what it had; what is compared by its id is alive with the graph
    __slots__ = ("_empty", "_grads", "_kept", "_models", "_parts", "_seen", "_tensors")

    def __init__(self, values: Iterable[object]) -> None:
        values = list(values)
        tensors: list[Any] = [value for value in values if is_tensor(value)]
        # a tensor that is no leaf would warn of the question for its gradient
        self._grads = [(one, one.grad) for one in tensors if one.requires_grad and one.is_leaf]
        tensors += [grad for _, grad in self._grads if grad is not None]
        self._tensors = tensors
        try:
            self._seen = [(ask, [*map(ask, tensors)]) for ask in _questions()] if tensors else []
            # other tensors of the same memory, which lives with the graph even if a tensor gets other data
            self._kept = [one.detach() for one in tensors]
        except (RuntimeError, NotImplementedError) as error:  # PyTorch's, of a tensor without storage
            raise NotCapturableError(f"it reaches a tensor whose memory offload cannot find ({error})") from None
        for tensor, address in zip(tensors, self._seen[0][1] if tensors else (), strict=True):
            if not address and tensor.numel():
                raise NotCapturableError("it reaches a tensor without memory, such as one on the meta device")
        self._models: list[tuple[dict[str, Any], Callable[[Any], tuple[Any, ...]], list[int]]] = []
        dicts: list[dict[str, Any]] = []
        for state in [vars(value) for value in values if is_model(value)]:
            if not {"training", *_PARTS} <= state.keys():
                raise NotCapturableError(
                    "it reaches a PyTorch module whose parts offload cannot find: a ScriptModule, or a module whose "
                    "__init__ has not run"
                )
            own = [name for name, value in state.items() if value is None or is_tensor(value)]
            found = itemgetter("training", *_PARTS, *own)
            self._models.append((state, found, [*map(id, found(state))]))
            hooks = [name for name, value in state.items() if name.endswith("_hooks") and isinstance(value, dict)]
            dicts += [state[name] for name in (*_PARTS, *hooks)]
        self._parts = [(one, [*map(id, one.values())]) for one in dicts if one]
        self._empty = [one for one in dicts if not one]

    def holds(self) -> bool:
        """Tell whether all is as it was noted. The cost grows with the number of tensors and modules."""
        if not (self._tensors or self._models):
            return True
        for ask, answers in self._seen:
            if [*map(ask, self._tensors)] != answers:
                return False
        for tensor, grad in self._grads:
            if tensor.grad is not grad:
                return False
        try:
            for state, found, ids in self._models:
                if [*map(id, found(state))] != ids:
                    return False
        except KeyError:  # an attribute was deleted
            return False
        return not any(self._empty) and all([*map(id, parts.values())] == found for parts, found in self._parts)

    def restore(self) -> None:
        """Give tensors the gradients that they had: those of a capture that was given up were never computed."""
        for tensor, grad in self._grads:
            if tensor.grad is not grad:
                tensor.grad = grad


def _questions() -> tuple[Callable[[Any], Any], ...]:
    """Return what is asked of each tensor, its address first."""
    tensor: Any = sys.modules["torch"].Tensor
    return tensor.data_ptr, tensor.stride, *_OTHERS
