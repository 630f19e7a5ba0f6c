"""The marks by which rewriting recognises the objects `omp` and `acc`, and those of other libraries' programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from offload.pragma.syntax import Directive, Language


class SpellingMark:
    """An object whose call with a string is a directive.

    Parameters
    ----------
    language : str
        "omp" or "acc".
    name : str
        The object's name in messages.
    default : str
        The default for names in no clause of a task: "shared", or empty for the rules of `directives`.
    read : callable, optional
        Changes each parsed directive: a spelling may write sections in another way.
    """

    def __init__(
        self,
        language: Language,
        name: str,
        default: str = "",
        read: Callable[[Directive], Directive] | None = None,
    ) -> None:
        self.language = language
        self.default = default
        self._name = name
        self._read = read

    def read(self, directive: Directive) -> Directive:
        """Return a parsed directive as the rest of this package understands it."""
        return directive if self._read is None else self._read(directive)
