"""OpenACC's ``declare``: data of the program, and data of the calls of a function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offload.acc.clauses import SPELLINGS, host_arrays
from offload.acc.data import data
from offload.constructs.associations import declare_target
from offload.constructs.call import Clauses, DirectiveFunction, decorate
from offload.constructs.clauses.maps import as_tuple, symbolic
from offload.constructs.clauses.names import parse_item, unseen
from offload.errors import ClauseError
from offload.runtime.keywords import unknown_clause

if TYPE_CHECKING:
    from collections.abc import Callable


_STATIC = ("create", "copyin", "device_resident", "link")


def declare(function: Callable[..., Any] | None = None, /, **clauses: Any) -> Any:
    """Declare data for the whole run of the program, or for each call of a function.

    Parameters
    ----------
    create, copyin, device_resident, link : list of arrays
        Host arrays, which have storage on every device from its first use until the runtime closes, with the values
        that the host has then; with ``link`` only while something maps them. Values move by `update`.
    copy, copyin, copyout, create, present, no_create, deviceptr : list of str
        Parameters of a function, or sections of them, or names that it sees: then `declare` is its decorator, and
        each of its calls is a `data` region of them.

    Returns
    -------
    callable or None
        The decorator, with strings; what it makes has ``.options(…)``, which replaces clauses.

    Raises
    ------
    ClauseError
        No list item, arrays beside strings, or a clause that means nothing for them.
    UnsupportedError
        The function is an ``async def`` or a generator.
    MapError
        As `declare_target`.

    Notes
    -----
    *Blocks* never; the region of a call as `data`. OpenACC 3.3, 2.13 "Declare Directive".
    """
    if function is not None and not clauses:
        raise ClauseError("acc declare names no list item; write for example @acc.declare(create=['x'])")
    given = {word: as_tuple(value) for word, value in clauses.items()}
    items = [item for value in given.values() for item in value]
    if not items:
        raise ClauseError("acc declare names no list item; give copyin=[…], create=[…] or others")
    if symbolic(items):
        if not all(isinstance(item, str) for item in items):
            raise ClauseError(
                "acc declare: strings (data of a function) and arrays (data of the program) are mixed; use two "
                "declarations"
            )
        return decorate(DeclaredFunction, None, clauses)
    arrays: list[tuple[Any, str]] = []
    for word, value in given.items():
        if word not in SPELLINGS and word not in _STATIC:
            raise unknown_clause("acc declare", word, {*SPELLINGS, *_STATIC})
        if word not in _STATIC:
            raise ClauseError(
                f"acc declare has no clause {word!r} for data of the program; it takes {', '.join(_STATIC)}; for the "
                "duration of a block, use acc.data"
            )
        arrays += [(array, word) for array in host_arrays(f"acc declare {word}", value)]
    for array, word in arrays:
        declare_target(array, link=word == "link")
    return None


class DeclaredFunction(DirectiveFunction):
    """A function each call of which is a data region."""

    _directive = "acc declare"
    _checks = dict.fromkeys((*SPELLINGS, "deviceptr"), as_tuple)  # a table, never changed

    __slots__ = ()

    def _prepare(self, clauses: Clauses, words: dict[str, Any]) -> None:
        super()._prepare(clauses, words)
        names = clauses.names = self._visible_names()
        for word, items in words.items():
            for item in items:
                if not names.may_have(parse_item(item).name):
                    raise ClauseError(
                        f"acc declare {word}: {item!r}: {unseen(parse_item(item).name, names.parameters)}"
                    )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function in a data region of what the clauses name."""
        names: Any = self._clauses.names
        visible = names.at_call(args, kwargs)
        found: dict[str, Any] = {
            word: [parse_item(item).resolve(visible) for item in items]
            for word, items in self._clauses.given.items()
            if items
        }
        with data(**found):
            return self._function(*args, **kwargs)
