"""Directive strings: OpenMP's and OpenACC's own spelling, in blocks, on functions, over loops and in comments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from offload.pragma.spelling import DirectiveSpelling

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["acc", "directives", "omp"]

Decorated = TypeVar("Decorated", bound="Callable[..., Any]")

omp = DirectiveSpelling("omp", "omp")
acc = DirectiveSpelling("acc", "acc")


@overload
def directives(function: Decorated, /) -> Decorated: ...
@overload
def directives(*, default: Literal["shared"]) -> Callable[[Decorated], Decorated]: ...
def directives(function: Any = None, /, *, default: str = "") -> Any:
    """Rewrite the directives in a function, or in each function of a class.

    Parameters
    ----------
    function : function or class
        The function. `directives` must be its lowest decorator.
    default : {"shared"}
        "shared": names in no clause of a task are variables of the function.

    Returns
    -------
    function or class
        The rewritten function, with the globals, closure, defaults and annotations of the given one.

    Raises
    ------
    PragmaError
        A directive is wrong, or a block cannot be taken. The error shows the line with carets.
    UsageError
        The source text of the function is not available.

    Notes
    -----
    The function is rewritten once. OpenMP 5.2, 3.2 "Directive Format", here as strings.

    Examples
    --------
    >>> from offload.pragma import directives, omp as pragma
    >>> @directives
    ... def scale(x):
    ...     with pragma("target map(tofrom: x)"):
    ...         x *= 2
    >>> x = np.ones(3)
    >>> scale(x)
    >>> x
    array([2., 2., 2.])
    """
    from offload.pragma.rewrite import decorated

    if default not in ("", "shared"):
        from offload.errors import ClauseError

        raise ClauseError(f'directives: default={default!r} is not allowed; write default="shared", or leave it out')
    if function is None:
        return lambda function: decorated(function, default=default)
    return decorated(function, default=default)
