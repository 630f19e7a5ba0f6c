"""Wrappers that the clauses of a compute construct put around its body: reduction arrays and launches."""

from __future__ import annotations

from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from offload.arrays.foreign import Forms, with_forms
from offload.constructs.routines import array_namespace
from offload.errors import UsageError
from offload.runtime.current import here

if TYPE_CHECKING:
    from collections.abc import Callable

    from offload.constructs.clauses.operators import Operator


class LaunchConfig(NamedTuple):
    """The launch clauses of a compute construct; a field is None if its clause is missing.

    Attributes
    ----------
    num_gangs, num_workers, vector_length : int or None
        Usual compilers map them to CUDA's blocks, warps of a block and threads of a warp.

    Examples
    --------
    >>> acc.LaunchConfig(num_gangs=80, vector_length=32)
    LaunchConfig(num_gangs=80, num_workers=None, vector_length=32)
    """

    num_gangs: int | None = None
    num_workers: int | None = None
    vector_length: int | None = None


# The launch clauses of the region whose body runs in this context.
_config: ContextVar[LaunchConfig] = ContextVar("offload_acc_config")


class Body:
    """A function with private arrays for its reduction variables, and its launch configuration at hand."""

    __slots__ = ("_config", "_function", "_reduced")

    def __init__(
        self, function: Callable[..., Any], config: LaunchConfig | None, reduced: list[tuple[Operator, int | str]]
    ) -> None:
        self._function = function
        self._config = config  # None: the construct has no launch clause
        self._reduced = reduced  # each argument's position or name, once

    def formed(self, forms: Forms) -> Body:
        """Return a body whose function receives some arguments in these forms, the private arrays of reductions too.

        Raise `UnsupportedError` if a reduction would compute with the bytes of a tensor, not with its numbers.
        """
        reduced = {slot for _, slot in self._reduced}
        for slot, form in forms:
            if slot in reduced:
                form.check_numbers("reduction")
        return Body(partial(with_forms, self._function, forms), self._config, self._reduced)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given: list[Any] = list(args)
        combined = []  # the operator, the variable and its private array
        for operator, slot in self._reduced:
            values: Any = kwargs if isinstance(slot, str) else given  # where the argument stands
            variable = values[slot]
            private = values[slot] = array_namespace(variable).zeros(variable.shape, variable.dtype)
            operator.initialize(private)
            combined.append((operator, variable, private))
        token = _config.set(self._config or LaunchConfig())
        try:
            value = self._function(*given, **kwargs)
        finally:
            _config.reset(token)
        # Only after the body has succeeded: if it raises, the variables keep their values.
        for operator, variable, private in combined:
            result = operator.combine(variable, private)
            if result is not None:  # else the operator has combined in place
                variable[...] = result
        return value


def launch_config() -> LaunchConfig:
    """Return ``num_gangs``, ``num_workers`` and ``vector_length`` of the compute region that the caller is in.

    Returns
    -------
    LaunchConfig
        A field is None if the construct does not have the clause.

    Raises
    ------
    UsageError
        The caller is not in a compute region.

    Notes
    -----
    OpenACC 3.3, 2.5.10 "num_gangs clause" and the next two.

    Examples
    --------
    >>> @acc.parallel(num_gangs=80, vector_length=32)
    ... def body():
    ...     return acc.launch_config().num_gangs
    >>> body()
    80
    """
    task = here().task
    if task is None or not task.construct.directive.startswith("acc "):
        raise UsageError(
            "launch_config: called outside a compute region; call it in the body of an acc.parallel region"
        )
    return _config.get(LaunchConfig())
