"""Sites: where in the program a construct stands, and for which runtime it is encountered."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import CodeType
    from typing import TypeAlias

    from offload.tasks.protocols import AnyRuntime

    Call: TypeAlias = tuple[CodeType, int]
    """Where the program calls the library: code, and the instruction in it.

    The line is looked up when somebody asks, since that takes as long as all the rest of a site."""


class Site:
    """A construct in the program: the name of its tasks, and its place.

    A decorated function stands where it is defined, which is given as text. Any other construct stands where the
    program calls it, which is given as a `Call`.

    Attributes
    ----------
    caller : Call or None
        The program's call of the decorated function, if each call has a site of its own; a task has it otherwise.
    is_call : bool
        Whether the construct stands where the program calls it.
    is_target : bool
        Whether it is a target region, whose body only enqueues device work.
    where : str or Call
        The file and the line, or the call.
    """

    __slots__ = ("caller", "directive", "is_call", "is_target", "name", "runtime", "where")

    def __init__(
        self,
        directive: str,
        name: str,
        where: str | Call,
        runtime: AnyRuntime,
        *,
        is_target: bool = False,
    ) -> None:
        self.directive = directive
        self.name = name
        self.where = where
        self.caller: Call | None = None
        self.is_call = where.__class__ is tuple
        self.runtime = runtime
        self.is_target = is_target

    @property
    def location(self) -> str:
        """The file and the line."""
        return self.where if isinstance(self.where, str) else line_of(self.where)

    @property
    def call(self) -> Call | None:
        """The program's call of the construct; None for a decorated function."""
        return None if isinstance(self.where, str) else self.where

    def called_at(self, caller: Call | None) -> Site:
        """Return a copy for a call of the decorated function there."""
        copy = Site(self.directive, self.name, self.where, self.runtime, is_target=self.is_target)
        copy.caller = caller
        return copy

    def moved(self, runtime: AnyRuntime) -> Site:
        """Return a copy for another runtime."""
        copy = Site(self.directive, self.name, self.where, runtime, is_target=self.is_target)
        copy.caller = self.caller
        return copy


def line_of(call: Call) -> str:
    """Return the file and the line of a call."""
    code, at = call
    line = next((line for begin, end, line in code.co_lines() if begin <= at < end), None)
    return f"{code.co_filename}:{line or code.co_firstlineno}"
