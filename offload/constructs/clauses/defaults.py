"""Arguments that a call of a target function leaves out, and whose defaults have to be mapped like arguments."""

from __future__ import annotations

import inspect
from numbers import Number
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from offload.arrays.items import held_host, is_device_array, is_foreign, mapper_of

if TYPE_CHECKING:
    from collections.abc import Callable


class Defaults(NamedTuple):
    """Parameters whose defaults may have to be mapped: arrays, device arrays, and objects that may have a mapper."""

    # defaults of positional-only parameters, from the first that has one to the last to be mapped
    positional: tuple[Any, ...]
    first: int  # the position of the first of them
    # (position, name, value) of other parameters; a keyword-only one has no position
    named: tuple[tuple[int | None, str, Any], ...]

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Defaults | None:
        """Return those of a function; None if it has none."""
        try:
            signature = inspect.signature(function, follow_wrapped=False)  # what the call itself accepts
        except (TypeError, ValueError):
            return None  # a callable of C that does not tell
        positional: list[tuple[int, Any]] = []
        named: list[tuple[int | None, str, Any]] = []
        for number, parameter in enumerate(signature.parameters.values()):
            value = parameter.default
            if parameter.kind is parameter.POSITIONAL_ONLY and value is not parameter.empty:
                positional.append((number, value))
            elif value is not parameter.empty and _may_be_mapped(value):
                named.append((None if parameter.kind is parameter.KEYWORD_ONLY else number, parameter.name, value))
        while positional and not _may_be_mapped(positional[-1][1]):
            positional.pop()
        if not positional and not named:
            return None
        return cls(tuple([value for _, value in positional]), positional[0][0] if positional else 0, tuple(named))

    def completed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a call, and with them the defaults that are mapped of those that it leaves out."""
        # What else it leaves out stays so: a callable of C has defaults that mean what no argument that is given does.
        missing = {
            name: value
            for at, name, value in self.named
            if name not in kwargs and (at is None or at >= len(args)) and _is_mapped(value)
        }
        if len(args) >= self.first:  # else the call lacks an argument, and will say so
            left = self.positional[len(args) - self.first :]
            while left and not _is_mapped(left[-1]):
                left = left[:-1]
            args += left
        return args, {**kwargs, **missing} if missing else kwargs


def _may_be_mapped(value: Any) -> bool:
    """Tell whether a default is an array, or an object whose class can have a mapper, which may be declared later."""
    return not isinstance(value, (type, np.generic, Number)) and (
        is_device_array(value)
        or is_foreign(value)
        or type(value).__module__ != "builtins"
        or held_host(value) is not value
    )


def _is_mapped(value: Any) -> bool:
    """Tell whether such a default is mapped, as things are at the call."""
    if isinstance(value, np.ndarray) or is_device_array(value) or is_foreign(value) or mapper_of(value) is not None:
        return True
    return held_host(value) is not value
