"""The clauses that only loop constructs have: their values, and which exclude others.

Each check takes the program's value and returns the value that the rest of the package reads; `LoopWords` has all of
them for one function. Questions about the function's text, such as whether a reduction's item is used by its operator
only, are for `parse`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import numpy as np

from offload.constructs.clauses.maps import check_count
from offload.constructs.clauses.names import parse_item
from offload.constructs.replicas import check_devices, refuse_both
from offload.errors import ClauseError
from offload.loops.proofs.dependences import DependenceProfile
from offload.loops.tree.sizes import size_error
from offload.runtime.keywords import meant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from offload.loops.tree.ir import ReductionOperator

_OPERATORS: Final[tuple[ReductionOperator, ...]] = ("+", "*", "min", "max", "&", "|", "^", "and", "or")
_KINDS: Final = ("static", "dynamic", "guided")
_LEVELS: Final = ("gang", "worker", "vector")
_ORDERS: Final[tuple[Literal["seq", "independent", "auto"], ...]] = ("seq", "independent", "auto")
_COUNTS: Final = ("num_threads", "num_teams", "thread_limit", "num_gangs", "num_workers", "vector_length")
# The clauses by which an array, or a scalar, is an iteration's own.
SHARING: Final = ("private", "firstprivate", "lastprivate")


class SetWords(NamedTuple):
    """The clauses of a construct about the devices of its loop."""

    devices: str | tuple[int, ...] | None = None  # `"all"`, or device numbers, the primary's first
    # `"auto"`: times decide about ways; `"always"`: it is split; `"never"`: it is not.
    filter: Literal["auto", "always", "never"] = "auto"
    is_eager: bool = False  # replicas are made equal after every loop

    @classmethod
    def of(cls, directive: str, clauses: Mapping[str, Any]) -> SetWords:
        """Return the values of checked clauses; raise `ClauseError` if they exclude each other."""
        devices = clauses.get("devices")
        refuse_both(directive, devices, clauses.get("device"))
        if devices is not None and clauses.get("speculate"):
            raise ClauseError(f"{directive}: devices= and speculate= exclude each other; leave out one of them")
        return cls(devices, clauses.get("filter") or "auto", clauses.get("exchange") == "eager")


class LoopWords(NamedTuple):
    """The clauses of a construct about its loop; `parse.NestClauses` has those about its text."""

    collapse: int = 1  # how many loops are one iteration space
    reductions: tuple[tuple[ReductionOperator, str], ...] = ()  # operators and names of the function
    # Names of the function.
    private: tuple[str, ...] = ()
    firstprivate: tuple[str, ...] = ()
    lastprivate: tuple[str, ...] = ()
    atomic: tuple[str, ...] = ()
    level: str = ""  # `"gang"`, `"worker"`, `"vector"`, joined by `" "`
    sizes: tuple[tuple[str, int], ...] = ()  # numbers of a launch shape, by clause
    order: Literal["", "seq", "independent", "auto"] = ""  # `"seq"`, `"independent"`, `"auto"`, or empty
    tile: tuple[int, ...] = ()  # sizes of blocks, one for each loop
    cache: tuple[str, ...] = ()  # hints
    schedule: tuple[str, int | None] | None = None  # kind and size of a chunk
    num_threads: int | None = None  # None: as many as the runtime has
    checks: bool = False  # the call proves or observes that iterations are independent, and asserts count
    bounds: bool = True  # whether indices that depend on data are checked
    fastmath: str | None = None  # `"contract"`, `"fast"`
    reassociate: bool = False  # whether a scan of floats may combine them in another order
    # `True`, `"always"`, a profile. None: the loop is asserted to be parallel, has to be (`check`), or is not (`seq`).
    speculate: bool | str | DependenceProfile | None = None
    # There may be several nests, and reductions that no clause names are found, as `kernels_loop` has it.
    several: bool = False
    # A call returns a dict of the scalars that have got a value, as loops under directive strings need it.
    by_name: bool = False
    worded: Callable[[str], str] = str  # gives warnings the spelling of clauses that the program has

    @property
    def named(self) -> frozenset[str]:
        """The names in clauses that say whose a variable is."""
        items = [name for _, name in self.reductions]
        return frozenset((*items, *self.private, *self.firstprivate, *self.lastprivate))

    @classmethod
    def of(cls, directive: str, clauses: Mapping[str, Any], names: Iterable[str]) -> LoopWords:
        """Return the values of checked clauses for a function with these names; conflicts raise `ClauseError`."""
        _check_names(directive, clauses, set(names))
        order, levels = check_order(directive, clauses)
        if order == "seq" and clauses.get("reassociate"):
            raise ClauseError(
                f"{directive}: seq=True and reassociate=True exclude each other, because a loop in order combines "
                "nothing in another order; leave out one of them"
            )
        given = [(word, clauses[word]) for word in _LEVELS if type(clauses.get(word)) is int]
        counts = [(word, clauses[word]) for word in _COUNTS if word != "num_threads" and clauses.get(word)]
        if wrong := size_error((*given, *counts)):
            raise ClauseError(f"{directive}: {wrong}")
        return cls(
            collapse=clauses.get("collapse", 1),
            reductions=clauses.get("reduction", ()),
            private=clauses.get("private", ()),
            firstprivate=clauses.get("firstprivate", ()),
            lastprivate=clauses.get("lastprivate", ()),
            atomic=clauses.get("atomic", ()),
            level=" ".join(levels),
            sizes=(*given, *counts),
            order=order,
            tile=clauses.get("tile", ()),
            cache=clauses.get("cache", ()),
            schedule=clauses.get("schedule"),
            num_threads=clauses.get("num_threads"),
            checks=clauses.get("check", False),
            bounds=clauses.get("bounds", True),
            fastmath=clauses.get("fastmath"),
            reassociate=clauses.get("reassociate", False),
            speculate=None if order == "seq" or clauses.get("check") else clauses.get("speculate"),
        )


def check_order(
    directive: str, clauses: Mapping[str, Any]
) -> tuple[Literal["", "seq", "independent", "auto"], list[str]]:
    """Return the order of iterations and their levels, from checked clauses; a conflict raises `ClauseError`."""
    order = [word for word in _ORDERS if clauses.get(word)]
    levels = [word for word in _LEVELS if clauses.get(word)]
    if len(order) > 1 or (order == ["seq"] and levels):
        both = [*order, *levels]
        raise ClauseError(f"{directive}: {both[0]}=True and {both[1]}=… exclude each other; leave out one of them")
    tile, collapse = clauses.get("tile") or (), clauses.get("collapse", 1)
    if tile and collapse not in (1, len(tile)):
        raise ClauseError(
            f"{directive}: tile has {len(tile)} sizes, but collapse={collapse}; give a size for each loop that is "
            "collapsed"
        )
    return order[0] if order else "", levels


def _check_names(directive: str, clauses: Mapping[str, Any], known: set[str]) -> None:
    """Raise `ClauseError` where a name is in two clauses that say whose it is, or is none of the function."""
    seen: dict[str, str] = {}
    reduced = tuple([name for _, name in clauses.get("reduction", ())])
    for item in clauses.get("cache", ()):
        if parse_item(item).name not in known:
            raise ClauseError(
                f"{directive} cache: {item!r} is not part of a parameter; name the elements that the loop indexes"
            )
    for clause, names in [("reduction", reduced), *((word, clauses.get(word, ())) for word in (*SHARING, "atomic"))]:
        for name in names:
            if name in seen:
                raise ClauseError(
                    f"{directive}: {name!r} is in {seen[name]} and in {clause}, which contradict each other; "
                    "name it in one clause, once"
                )
            seen[name] = clause
            if name not in known:
                raise ClauseError(
                    f"{directive} {clause}: {name!r} is neither a parameter nor a variable of the "
                    f"function{meant(name, known)}; it has {', '.join(sorted(known)) or 'none'}"
                )


# -- the checks of single clauses ------------------------------------------------------------------


def _check_collapse(value: Any) -> int:
    return check_count("collapse", value) or 1


def check_loop_reduction(value: Any) -> tuple[tuple[ReductionOperator, str], ...]:
    """Return the items of a ``reduction`` clause: names of the function, by operator."""
    if value is None:
        return ()
    if not isinstance(value, dict):
        raise ClauseError(f'reduction: {value!r:.60} is not allowed; give a dict such as {{"+": ["s"]}}')
    items = []
    for operator, names in value.items():
        if operator not in _OPERATORS:
            raise ClauseError(
                f"reduction: {operator!r:.20} is not an operator of loops; use one of {' '.join(_OPERATORS)}"
            )
        items += [(operator, name) for name in check_names("reduction", names)]
    return tuple(items)


def check_names(clause: str, value: Any) -> tuple[str, ...]:
    """Return the names that a clause lists; one string stands for a list of one."""
    names = (value,) if isinstance(value, str) else () if value is None else value
    if not isinstance(names, (list, tuple, set, frozenset)):
        raise ClauseError(f"{clause}: {value!r:.60} is not a list of names; name parameters or variables, as strings")
    for name in names:
        if not isinstance(name, str) or not name.isidentifier():
            raise ClauseError(f"{clause}: {name!r:.60} is not a name; name a parameter or a variable, as a string")
    return tuple(names)


def _check_schedule(value: Any) -> tuple[str, int | None] | None:
    if value is None:
        return None
    kind, size = value if isinstance(value, tuple) and len(value) == 2 else (value, None)
    if kind not in _KINDS:
        raise ClauseError(
            f'schedule: {value!r:.60} is not allowed; use "static", "dynamic" or "guided", or a tuple with the chunk '
            'size, such as ("dynamic", 4)'
        )
    return kind, check_count("schedule", size)


def _check_level(clause: str) -> Callable[[Any], bool | int]:
    def check(value: Any) -> bool | int:
        return bool(value) if value is None or isinstance(value, (bool, np.bool_)) else check_count(clause, value) or 0

    return check


def _check_tile(value: Any) -> tuple[int, ...]:
    if value is None:
        return ()
    if not isinstance(value, (tuple, list)) or not value:
        raise ClauseError(f"tile: {value!r:.60} is not allowed; give a tuple of sizes, one per loop, such as (8, 32)")
    return tuple([check_count("tile", size) or 1 for size in value])


def _check_cache(value: Any) -> tuple[str, ...]:
    items = (value,) if isinstance(value, str) else () if value is None else value
    if not isinstance(items, (list, tuple)):
        raise ClauseError(f'cache: {value!r:.60} is not a list of strings such as "a[i-1:3]"')
    for item in items:
        if not isinstance(item, str):
            raise ClauseError(f'cache: {item!r:.60} is not a string such as "a[i-1:3]"')
        parse_item(item)
    return tuple(items)


def _check_flag(clause: str) -> Callable[[Any], bool]:
    def check(value: Any) -> bool:
        if value is not None and not isinstance(value, (bool, np.bool_)):
            raise ClauseError(f"{clause}: {value!r:.60} is not allowed; use True or False")
        return bool(value)

    return check


def _check_bounds(value: Any) -> bool:
    if value is not False and value != "auto":
        raise ClauseError(f'bounds: {value!r:.60} is not allowed; use "auto" or False')
    return value is not False


def _check_one_of(clause: str, *allowed: Any) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        for one in allowed:
            if type(value) is type(one) and value == one:
                return value or None
        raise ClauseError(f"{clause}: {value!r:.60} is not allowed; use {' or '.join(map(repr, allowed))}")

    return check


def _check_speculate(value: Any) -> bool | str | DependenceProfile | None:
    if value is None or isinstance(value, (bool, np.bool_)):
        return True if value else None
    if isinstance(value, DependenceProfile) or (isinstance(value, str) and value == "always"):
        return value
    raise ClauseError(
        f'speculate: {value!r:.60} is not allowed; use True, False, "always" or the result of profile_dependences'
    )


# The clauses of every loop construct, by name.
COMMON_CHECKS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "collapse": _check_collapse,
    "reduction": check_loop_reduction,
    **{word: partial(check_names, word) for word in (*SHARING, "atomic")},
    "schedule": _check_schedule,
    **{word: partial(check_count, word) for word in _COUNTS},
    **{word: _check_level(word) for word in _LEVELS},
    **{word: _check_flag(word) for word in _ORDERS},
    "tile": _check_tile,
    "cache": _check_cache,
    "check": _check_flag("check"),
    "bounds": _check_bounds,
    "fastmath": _check_one_of("fastmath", False, "contract", "fast"),
    "reassociate": _check_flag("reassociate"),
}

# Those of a loop construct for devices.
DEVICE_CHECKS: Final[Mapping[str, Callable[[Any], Any]]] = {
    **COMMON_CHECKS,
    "devices": check_devices,
    "filter": _check_one_of("filter", "auto", "always", "never"),
    "exchange": _check_one_of("exchange", "lazy", "eager"),
    "speculate": _check_speculate,
}
