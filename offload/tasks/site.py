"""Sites: where in the program a construct stands, and for which runtime it is encountered."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import CodeType

    from offload.tasks.protocols import AnyRuntime


class Site:
    """A construct in the program: what its tasks are called, and where it stands.

    That is a file with a line, or code with an instruction in it, of which the line is looked up when somebody asks:
    it takes as long as all the rest of a site.

    Attributes
    ----------
    is_target : bool
        Whether it is a target region, whose body only enqueues device work.
    """

    __slots__ = ("_place", "directive", "is_target", "name", "runtime")

    def __init__(
        self,
        directive: str,
        name: str,
        place: str | tuple[CodeType, int],
        runtime: AnyRuntime,
        *,
        is_target: bool = False,
    ) -> None:
        self.directive = directive
        self.name = name
        self._place = place
        self.runtime = runtime
        self.is_target = is_target

    @property
    def location(self) -> str:
        """The file and the line."""
        if isinstance(self._place, str):
            return self._place
        code, at = self._place
        line = next((line for begin, end, line in code.co_lines() if begin <= at < end), None)
        return f"{code.co_filename}:{line or code.co_firstlineno}"
