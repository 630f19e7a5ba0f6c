"""Keywords of constructs and routines: how signatures show them, and the error of one that does not exist."""

from __future__ import annotations

import functools
import importlib
import inspect
from typing import TYPE_CHECKING, Any, TypeVar

from offload.errors import UnknownClauseError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    Function = TypeVar("Function", bound=Callable[..., Any])


def meant(name: str, known: Iterable[str]) -> str:
    """Return a hint for messages that gives a name spelt like ``name``; empty if there is none."""
    if len(name) < 2:  # a letter is like too many names
        return ""
    from difflib import get_close_matches  # errors alone need it

    close = get_close_matches(name, sorted(known), 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def unknown_clause(construct: str, name: str, known: Iterable[str]) -> UnknownClauseError:
    """Return the error of a clause that a construct does not have, which has these."""
    known = tuple(known)
    hint = meant(name, known)
    takes = "It takes" if hint else "; it takes"
    return UnknownClauseError(
        f"{construct} has no clause {name!r}{hint}{' ' * bool(hint)}{takes} {', '.join(sorted(known))}"
    )


def keywords_of(function: Callable[..., Any]) -> list[str]:
    """Return the names of the parameters that a call may give by keyword."""
    parameters = inspect.signature(function).parameters.values()
    by_keyword = [p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return [name for name in by_keyword if name != "self"]


def refuse_unknown(function: Callable[..., Any], given: Iterable[str]) -> None:
    """Raise `ClauseError` if a function has no parameter for one of these keywords.

    It is called after a call has raised `TypeError`, so a call without a mistake pays nothing. A function for which a
    wrapper would cost too much, or that looks at its caller's frame, has a parameter ``**unknown: Never`` instead.
    """
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is p.VAR_KEYWORD and p.annotation != "Never" for p in parameters):
        return
    known = keywords_of(function)
    unknown = next((name for name in given if name not in known), None)
    if unknown is not None:
        room = function.__module__.split(".")[1]
        prefix = {"acc": "acc ", "mpi": "mpi.", "parray": "parray."}.get(room, "")
        raise unknown_clause(prefix + function.__qualname__.removesuffix(".__init__"), unknown, known) from None


def takes_clauses(function: Function) -> Function:
    """Have a call with a keyword that the function does not have raise `ClauseError`, with a suggestion."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError:
            refuse_unknown(function, kwargs)
            raise

    return call  # type: ignore[return-value]  # it has the signature of what it wraps


# -- what a signature shows ------------------------------------------------------------------------


class ClauseSignature(inspect.Signature):
    """The signature of a construct that takes its clauses by ``**clauses: Unpack[…]``; it shows each of them.

    The `TypedDict` of the clauses is in a module that is for type checkers. The first question imports it.
    """

    __slots__ = ("module",)

    module: str
    """Where the `TypedDict` is."""

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:  # type: ignore[override]  # typeshed promises more
        """The parameters, with one for each clause."""
        shown = [*super().parameters.values()]
        if hasattr(self, "module") and shown[-1].kind is inspect.Parameter.VAR_KEYWORD:  # copies have no module
            module, clauses = importlib.import_module(self.module), shown.pop()
            types = getattr(module, clauses.annotation.removeprefix("Unpack[").removesuffix("]")).__annotations__
            for name, default in module.DEFAULTS.items():
                if name in types:
                    type_ = types[name].__forward_arg__
                    shown.append(
                        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=type_)
                    )
            self.__init__(shown, return_annotation=self.return_annotation)  # type: ignore[misc]  # of this class
        return super().parameters


def shows_clauses(module: str) -> Callable[[Function], Function]:
    """Have `inspect.signature` and `help` show the clauses of a function whose last parameter takes them.

    Parameters
    ----------
    module : str
        The module with the `TypedDict` of the clauses, and with ``DEFAULTS`` for them.
    """

    def shown(function: Function) -> Function:
        plain = inspect.signature(function)
        signature = ClauseSignature([*plain.parameters.values()], return_annotation=plain.return_annotation)
        signature.module = module
        function.__signature__ = signature  # type: ignore[attr-defined]  # where `inspect` looks
        return function

    return shown
