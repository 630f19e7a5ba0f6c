"""Blocks that a program makes and never enters: ``target_data(…)`` as a statement, without ``with``, does nothing."""

from __future__ import annotations

import sys
import warnings
from contextlib import _GeneratorContextManager  # what `contextmanager` makes
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from offload.errors import DirectiveWarning
from offload.interrupts.frames import caller, calls_program
from offload.interrupts.shields import Shield, in_one_piece, is_at_work, late
from offload.runtime.keywords import refuse_unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    Parameters = ParamSpec("Parameters")
    Value = TypeVar("Value")
    Function = TypeVar("Function", bound="Callable[..., Any]")


class Unentered:
    """Belongs to a block, and warns when it goes with the block unless the block has been entered.

    Parameters
    ----------
    construct : str
        The construct that the program has called, at the line that the warning names.
    """

    __slots__ = ("_construct", "_line", "_path")

    def __init__(self, construct: str) -> None:
        frame = caller(2)
        self._construct = construct
        self._path, self._line = frame.f_code.co_filename, frame.f_lineno

    def settle(self) -> None:
        """Note that the block is entered, or decorates a function."""
        self._construct = ""

    def __del__(self) -> None:
        if getattr(self, "_construct", "") and not sys.is_finalizing():
            warnings.warn_explicit(
                f"{self._construct}(…) was discarded without being entered, so it has no effect; write `with "
                f"{self._construct}(…):` around the code that it is for",
                DirectiveWarning,
                self._path,
                self._line or 1,
                registry=_seen.setdefault(self._path, {}),
            )


_seen: dict[str, dict[Any, Any]] = {}
"""Where `warnings` notes what it has shown, by file."""


class _Manager(_GeneratorContextManager[Any]):
    """A context manager as `contextmanager` makes it, with a warning if it is not entered."""

    def __init__(self, construct: str, function: Callable[..., Any], args: Any, kwargs: Any) -> None:
        super().__init__(function, args, kwargs)
        self._unentered = Unentered(construct)

    @in_one_piece  # what comes meanwhile is delivered in the block, at its end at the latest
    def __enter__(self) -> Any:
        self._unentered.settle()
        return super().__enter__()

    @in_one_piece
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        try:
            if is_at_work():  # a finalizer's: a shield is up
                return super().__exit__(kind, error, trace)
            return self._exit(kind, error, trace)
        finally:
            if late.is_due:
                late.deliver()

    @calls_program  # else the end of the block would be taken for a finalizer's
    def _exit(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        with Shield():
            return super().__exit__(kind, error, trace)

    def __call__(self, function: Function) -> Function:
        """Decorate a function, each call of which enters a block of its own."""
        self._unentered.settle()
        return super().__call__(function)

    def _recreate_cm(self) -> Any:
        return _Manager("", self.func, self.args, self.kwds)  # without a name it does not warn


def block(
    construct: str,
) -> Callable[[Callable[Parameters, Iterator[Value]]], Callable[Parameters, _GeneratorContextManager[Value]]]:
    """Decorate a construct like `contextmanager`; its block warns if it is discarded without being entered."""

    def decorate(function: Callable[Parameters, Iterator[Value]]) -> Any:
        @wraps(function)
        def made(*args: Any, **kwargs: Any) -> Any:
            try:
                return _Manager(construct, function, args, kwargs)
            except TypeError:
                refuse_unknown(function, kwargs)
                raise

        return made

    return decorate
