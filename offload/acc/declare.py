"""OpenACC's ``declare``: data of the program, and data of the calls of a function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from offload.acc.clauses import SPELLINGS, host_arrays
from offload.acc.data import data
from offload.constructs.associations import declare_target
from offload.constructs.call import Clauses, DirectiveFunction, decorate
from offload.constructs.clauses.maps import as_tuple, symbolic
from offload.constructs.clauses.names import parse_item, unseen
from offload.errors import ClauseError
from offload.runtime.keywords import shows_clauses, unknown_clause

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Unpack

    from offload.acc.signatures import DeclareClauses, DeclaredCall, NamedClauses
    from offload.constructs.clauses.signatures import P, R


# The clauses for data of the program. All but ``link`` mean the same here.
_STATIC = ("create", "copyin", "device_resident", "link")


@overload
def declare(
    function: None = None, /, **clauses: Unpack[NamedClauses]
) -> Callable[[Callable[P, R]], DeclaredCall[P, R]]: ...
@overload
def declare(function: None = None, /, **clauses: Unpack[DeclareClauses]) -> None: ...
@shows_clauses("offload.acc.signatures")
def declare(function: Callable[..., Any] | None = None, /, **clauses: Unpack[DeclareClauses]) -> Any:
    """Declare data for the whole run of the program, or for each call of a function.

    Parameters
    ----------
    create, copyin, device_resident, link : list of arrays
        Host arrays that have storage on every device from its first use until the runtime closes. The initial values
        are the host's values at that time. With ``link``, the storage exists only while something maps the array. Use
        `update` to move values.
    copy, copyin, copyout, create, present, no_create, deviceptr : list of str
        Parameters of a function, sections of them, or variables that it can see. `declare` is then the function's
        decorator, and each of its calls is a `data` region of these items.

    Returns
    -------
    callable or None
        The decorator, with strings. The decorated function has ``.options(…)``, which replaces clauses.

    Raises
    ------
    ClauseError
        There is no list item, arrays and strings are mixed, or a clause has no meaning for them.
    UnsupportedError
        The function is an ``async def`` or a generator.
    MapError
        See `declare_target`.

    Notes
    -----
    The call never blocks. The region of a decorated call blocks as `data` does. OpenACC 3.3, 2.13 "Declare Directive".

    Examples
    --------
    >>> @acc.parallel(present=["x"])
    ... def increment(x):
    ...     x += 1
    >>> @acc.declare(copy=["x"])
    ... def increment_twice(x):  # each call is a data region of x
    ...     increment(x)
    ...     increment(x)
    >>> x = np.zeros(3)
    >>> increment_twice(x)
    >>> x
    array([2., 2., 2.])
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
        return decorate(DeclaredFunction, None, clauses)  # a decorator: the function comes next
    # All clauses are checked before the first array is declared.
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
        declare_target(array, link=word == "link")  # declared twice is no error
    return None


class DeclaredFunction(DirectiveFunction):
    """A function each call of which is a data region."""

    _directive = "acc declare"
    _checks = dict.fromkeys((*SPELLINGS, "deviceptr"), as_tuple)  # a table, never changed

    __slots__ = ()

    def _prepare(self, clauses: Clauses, words: dict[str, Any]) -> None:
        super()._prepare(clauses, words)
        # A misspelled name is reported at the decorator, not at the first call.
        names = clauses.names = self._visible_names()
        for word, items in words.items():
            for item in items:
                if not names.may_have(parse_item(item).name):
                    raise ClauseError(
                        f"acc declare {word}: {item!r}: {unseen(parse_item(item).name, names.parameters)}"
                    )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function in a data region of the variables that the clauses name."""
        names: Any = self._clauses.names
        visible = names.at_call(args, kwargs)
        # `data` evaluates and checks the items, as if the call had written it.
        found: dict[str, Any] = {
            word: [parse_item(item).resolve(visible) for item in items]
            for word, items in self._clauses.given.items()
            if items
        }
        with data(**found):
            return self._function(*args, **kwargs)
