"""Typed copies: element *k* of one array to element *k* of another, each found through a type of its own.

A plan says how (`offload.parray.plans`). One box is two strided views of one shape, and the landed copy between them;
several boxes are one task that makes them all (`offload.parray.moves`), tables are `offload.parray.indexed`, and
processes `offload.parray.ranks()`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offload.constructs.clauses.maps import check_name
from offload.constructs.copying import encounter_copy
from offload.errors import ClauseError
from offload.parray import indexed, moves
from offload.parray.dimensions import abridged
from offload.parray.moves import Move, clashing, read_first
from offload.parray.plans import plan
from offload.parray.storage import COPY, Storage, check, common_dtype
from offload.runtime.current import for_finalizers, here
from offload.runtime.sites import call_site
from offload.tasks.recipe import Recipe

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from offload.parray.plans import Box, Plan
    from offload.parray.types import ArrayType
    from offload.tasks.site import Site
    from offload.tasks.task import Task

    Stores = dict[int | None, Storage]  # by thread number; by None, of a side that is not distributed


@for_finalizers
def copy(
    source_type: ArrayType,
    source: Any,
    /,
    *,
    to: tuple[ArrayType, Any],
    nowait: bool = False,
    depend: Any = (),
    name: str | None = None,
) -> Task | None:
    """Copy element *k* of a source to element *k* of a target, for every *k*, as if all at once.

    Parameters
    ----------
    source_type : ArrayType
        The places of the elements in the source.
    source : array, or list or tuple of arrays
        A C-contiguous array of the host or a device, used as a flat array. For a distributed type, a list with one
        array for each thread, by its number, and None for threads without elements. For a type over `ranks`, the rank's
        own array.
    to : (ArrayType, array)
        Type and storage of the target, of the same size and item size. The type must be injective.
    nowait : bool
        True: a deferred task.
    depend : dependence or list of dependences
        The copy runs after the earlier siblings that they name.
    name : str, optional
        The name of the task in graphs and errors; ``"parray.copy"`` by default.

    Returns
    -------
    Task or None
        The task, with ``nowait``.

    Raises
    ------
    LayoutError
        The two types do not fit (`plan`), or one has a negative offset.
    ClauseError
        Storage is not an array, not C-contiguous, too small or of Python objects. Item sizes differ, the target is
        read-only, a thread with elements has no array, or a clause is wrong.
    UnsupportedError
        Arrays are on two kinds of devices.
    UsageError
        The call is in a target body.

    Notes
    -----
    Without ``nowait``, the call blocks until the copy is done. It costs one task. Elements that the target's type does
    not contain keep their values. If the source shares memory with the target, it is copied to temporary memory first.
    OpenMP has no such construct; in PARRAY it is ``copy S(s) to T(t)``.

    Examples
    --------
    >>> A = parray.ArrayType((2, 3))
    >>> B = parray.ArrayType((A[1], A[0]))
    >>> a, b = np.arange(6), np.zeros(6, int)
    >>> parray.copy(A, a, to=(B, b))
    >>> b
    array([0, 2, 4, 1, 3, 5])
    """
    target_type, target = _pair(to)
    made = plan(source_type, target_type)  # the same pair of types finds it in a cache
    team = target_type.threads or source_type.threads
    if team is not None and team.comm is not None:
        from offload.parray import exchanges  # needs mpi4py

        return exchanges.copy(made, source_type, source, target_type, target, nowait=nowait, depend=depend, name=name)
    label = check_name(name)
    scope = here()
    site = call_site(COPY, scope.runtime, 1)
    # Threads without elements need no array.
    pieces: Sequence[Any] = made.boxes if made.kind != "indexed" else indexed.tables_of(source_type, target_type)
    sources = _stores(source_type, source, [piece[0] for piece in pieces], "the source", is_written=False)
    targets = _stores(target_type, target, [piece[1] for piece in pieces], "the target", is_written=True)
    recipe = _recipe(site, made, source_type, target_type, sources, targets)
    if label is not None:
        recipe.label = label
    task = encounter_copy(scope, recipe, depend, nowait, *[storage.array for storage in targets.values()])
    return task if nowait else None


def _pair(to: Any) -> tuple[ArrayType, Any]:
    if not isinstance(to, (tuple, list)) or len(to) != 2:  # a pair
        raise ClauseError(f"{COPY}: to={to!r:.60} is not a pair of a type and storage; write to=(T, t)")
    return to[0], to[1]


def _stores(side: ArrayType, x: Any, threads: Sequence[int | None], role: str, *, is_written: bool) -> Stores:
    """Return the checked storage of a side: by thread, of those that have elements, or of None.

    Raise as `copy` does.
    """
    if side.threads is None:
        return {None: check(side, x, role, is_written=is_written)}
    if not isinstance(x, (list, tuple)):
        raise ClauseError(
            f"{COPY}: {role} is a {type(x).__name__}; {abridged(str(side))} is distributed over "
            f"{side.threads.size} threads: give a list of arrays by thread number"
        )
    found: Stores = {}  # checked once for each thread, whatever number of boxes it has
    for thread in dict.fromkeys(threads):
        assert thread is not None
        array = x[thread] if thread < len(x) else None
        if array is None:
            raise ClauseError(
                f"{COPY}: {role} has no array for thread {thread}, which has elements of {abridged(str(side))}; the "
                f"list has {len(x)} entries: give one for each thread"
            )
        found[thread] = check(side, array, f"{role}, of thread {thread},", is_written=is_written)
    return found


def _recipe(
    site: Site, made: Plan, source_type: ArrayType, target_type: ArrayType, sources: Stores, targets: Stores
) -> Recipe:
    """Return the recipe of a copy between checked storage.

    Raise `ClauseError` if item sizes differ, and `UnsupportedError` if arrays are on devices of two kinds.
    """
    every = [*targets.values(), *sources.values()]
    if not every:  # a task all the same: dependences may name it
        return Recipe(site)
    dtype = common_dtype([storage.array for storage in every])
    if made.kind == "empty" or not dtype.itemsize:
        return Recipe(site)
    if made.boxes and len(made.boxes) == 1:
        return _one_box(site, made.boxes[0], sources, targets, dtype)
    shared = clashing(targets.values(), sources.values())  # ids of arrays whose memory is read and written
    if made.kind == "indexed":
        return _indexed(site, source_type, target_type, sources, targets, dtype, shares=bool(shared))
    pairs = [(box, targets[box.target_thread], sources[box.source_thread]) for box in made.boxes]
    found = [move_of(box, to, at, dtype) for box, to, at in pairs]
    if not shared:
        return moves.recipe_of(site, found)
    ends = {id(storage.array) for storage in every if id(storage.array) in shared}
    # Only boxes of these arrays can meet; others need no comparison.
    close = [i for i, (_, to, at) in enumerate(pairs) if {id(to.array), id(at.array)} & ends]
    first = read_first([found[i] for i in close])
    return moves.recipe_of(site, found, frozenset([close[i] for i in first]))


def _one_box(site: Site, box: Box, sources: Stores, targets: Stores, dtype: np.dtype[Any]) -> Recipe:
    to, at = targets[box.target_thread], sources[box.source_thread]
    move = move_of(box, to, at, dtype)
    if to.place is at.place:
        (low, high), (other_low, other_high) = to.extent, at.extent
        if low < other_high and other_low < high:  # the runs of bytes meet; their elements may not
            return moves.recipe_of(site, [move], read_first([move]))
    return moves.recipe_of(site, [move])


def move_of(box: Box, to: Storage, at: Storage, dtype: np.dtype[Any]) -> Move:
    """Return the move of a box between two arrays."""
    digits = box.digits or ((1, 1, 1),)
    shape, source_steps, target_steps = zip(*digits, strict=True)
    return Move(
        to.view(box.target_offset, shape, target_steps, dtype),
        at.view(box.source_offset, shape, source_steps, dtype),
        to.place,
        at.place,
    )


def _indexed(
    site: Site,
    source_type: ArrayType,
    target_type: ArrayType,
    sources: Stores,
    targets: Stores,
    dtype: np.dtype[Any],
    *,
    shares: bool,
) -> Recipe:
    made = []
    for i, table in enumerate(indexed.tables_of(source_type, target_type)):
        to, at = targets[table.target_thread], sources[table.source_thread]
        sides: list[tuple[Any, Any]] = []  # of target and source: a view, and a table of offsets in it or None
        for storage, offsets in ((to, table.to), (at, table.at)):
            if isinstance(offsets, int):  # one run: no table
                sides.append((storage.view(offsets, (table.size,), (1,), dtype), None))
            else:
                sides.append((storage.flat(dtype), offsets))
        (dst, into), (src, out_of) = sides
        key = source_type, target_type, i  # names the tables where devices keep them
        made.append(indexed.IndexedMove(dst, src, to.place, at.place, table.size, into, out_of, key))
    return indexed.recipe_of(site, made, shares=shares)
