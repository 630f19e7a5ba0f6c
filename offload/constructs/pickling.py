"""Pickling of functions under a directive: another process gets the function with its clauses, nothing else.

Theory of operation
-------------------
A directive stands under the name of the function that it decorates. So it is pickled as functions are: by that name
where it is found there, else by the function and the clauses. A copy that ``options`` made is pickled as the function
of that name, with other clauses. Its objects in this process (its construct in a runtime, records, locks) stay here.

*cloudpickle* takes functions of ``__main__`` by value, since another process has another one; `pickle` takes them by
name. It has no place where a class could say which, so that the caller is looked at: a pickler calls ``__reduce_ex__``
from its own module.

*By value* the function comes as state, behind the object, since a body may refer to itself by its global name. Strings
in clauses may name globals that the body does not mention, which cloudpickle would leave behind; they go along. So do
the texts that a loop is made of, since cloudpickle forgets the file that a function comes from, and the globals that
these name: the type of a local variable is in no code.
"""

from __future__ import annotations

import ast
import sys
from contextlib import suppress
from types import MethodType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class DirectiveLike(Protocol):
    """A function under a directive (`offload.constructs.call`)."""

    _function: Any

    def _apply(self, clauses: dict[str, Any]) -> None:
        """Take clauses that have been checked."""

    def _texts(self) -> tuple[dict[str, Any], tuple[Any, ...]]:
        """Return the globals that texts name, and the texts that the function needs in a process without its file."""

    def _receive(self, texts: tuple[Any, ...]) -> None:
        """Keep the texts that came with the function."""


_Directive = TypeVar("_Directive", bound=DirectiveLike)


def reduced(directive: DirectiveLike, clauses: dict[str, Any]) -> str | tuple[Any, ...]:
    """Return the result for ``__reduce_ex__`` of a function under a directive, which has to call this itself.

    Parameters
    ----------
    directive : DirectiveLike
        The function that is pickled.
    clauses : dict
        All its clauses, checked.
    """
    pickler = str(sys._getframe(2).f_globals.get("__name__"))  # noqa: SLF001  # as above: nothing else tells
    takes_values = "cloudpickle" in pickler  # some libraries have a copy of it
    module = getattr(directive, "__module__", "")
    name = getattr(directive, "__qualname__", "")
    found = None if takes_values and module == "__main__" else _named(module, name)
    if found is directive:
        return name
    if getattr(found, "__dict__", None) is directive.__dict__:
        return copy_of, (found, clauses)
    function = directive._function  # noqa: SLF001  # the directive's own
    if isinstance(function, MethodType) and getattr(found, "__wrapped__", None) is function.__func__:
        return bound_copy_of, (found, function.__self__, clauses)
    by_value = takes_values and found is not function
    named = _named_in_strings(function, clauses) if by_value else {}
    texts: tuple[Any, ...] = ()
    if by_value:
        of_text, texts = directive._texts()  # noqa: SLF001  # its kind's
        named |= of_text
    given = {key: value for key, value in vars(directive).items() if not key.startswith("_")}  # the user's
    return object.__new__, (type(directive),), (function, clauses, named, given, texts)


def _named(module: str, name: str) -> Any:
    """Return the object of a module of this process under a name with dots, or None."""
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def copy_of(directive: _Directive, clauses: dict[str, Any]) -> _Directive:
    """Return a copy of a function under a directive with these clauses, which have been checked, and no others."""
    copy = object.__new__(type(directive))
    copy.__dict__ = directive.__dict__
    copy._apply(clauses)  # its kind's
    return copy


def bound_copy_of(directive: Any, instance: object, clauses: dict[str, Any]) -> DirectiveLike:
    """Return the same of one that is a method, with its object: a taskloop, whose first argument is the range."""
    bound: DirectiveLike = directive.__get__(instance)
    return copy_of(bound, clauses)


def restore(directive: DirectiveLike, state: tuple[Any, ...]) -> None:
    """Make an object the function under a directive that `reduced` has told of."""
    function, clauses, named, given, texts = state
    for name, value in named.items():
        function.__globals__.setdefault(name, value)
    directive._receive(texts)  # noqa: SLF001  # its kind's
    directive.__init__(function, clauses)  # type: ignore[misc]  # of an object that has been made only
    vars(directive).update(given)


_NO_ITEMS = {"default", "defaultmap", "graph_id", "name"}
"""Clauses whose strings name nothing in the program."""


def _named_in_strings(function: Any, clauses: dict[str, Any]) -> dict[str, Any]:
    """Return the globals of a function that list items of its clauses name."""
    known = getattr(function, "__globals__", {})
    names: set[str] = set()
    for text in _strings(value for word, value in clauses.items() if word not in _NO_ITEMS):
        with suppress(SyntaxError):  # an operator
            names.update(node.id for node in ast.walk(ast.parse(text.strip())) if isinstance(node, ast.Name))
    return {name: known[name] for name in names if name in known}


def _strings(values: Iterable[Any]) -> Iterator[str]:
    """Yield the strings in clauses: list items, and operators among them."""
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from _strings(value)
        elif isinstance(getattr(value, "items", None), tuple):  # a map clause, a dependence, or OpenACC's zero
            yield from _strings(value.items)
