"""Does a nest write every element of an array, so that its old contents do not matter? Decides for ``map(from:)``.

The plain case alone: a store that is carried out at every point of its box, each of whose indices runs through its
dimension by itself: one variable with coefficient 1 or -1, no variable in two of them, as many values as elements.
Consecutive integers in ``[-extent, extent)`` are all elements if they are as many, wherever negative ones begin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from offload.loops.proofs.reach import ElementAccess, NestAccesses


def is_overwritten(accesses: NestAccesses, array: str) -> bool:
    """Return whether the nest writes every element of an array, and reads only elements that the iteration has written.

    A read counts by its storage, under any name. It may only read an element that the iteration has written before, at
    the same index.
    """
    if array in accesses.own:
        return False
    views = accesses.launch.views
    view = views[array]
    if any(view.may_share(views[item.name]) for item in accesses.nest.reductions if item.name in views):
        return False
    stored: list[ElementAccess] = []
    for access in accesses.listed:
        if access.array in accesses.own or not view.may_share(views[access.array]):
            continue
        if access.kind == "store" and access.array == array and access.is_certain:
            stored.append(access)
        elif access.kind != "store" and not any(is_fed_by(access, store) for store in stored):
            return False
    return 0 in view.extents or any(_covers(accesses, store) for store in stored)


def is_fed_by(read: ElementAccess, store: ElementAccess) -> bool:
    """Return whether a read, later in the text, gets the value that a certain store has written in the same trips."""
    forms = [tuple(index.form for index in access.indices) for access in (read, store)]
    n_common = len(store.loops)
    return read.array == store.array and forms[0] == forms[1] and read.loops[:n_common] == store.loops


def runs_through(accesses: NestAccesses, store: ElementAccess) -> bool:
    """Return whether each index of a store is one number, or takes consecutive values by a variable of its own."""
    variables: set[int] = set()
    for index in store.indices:
        terms = index.form.terms
        if not index.is_exact or len(terms) > 1:
            return False
        for variable, coefficient in terms:
            atom = accesses.space.atoms[variable]
            if not atom.is_trip or atom.room is not None or abs(coefficient) != 1 or variable in variables:
                return False
            variables.add(variable)
    return True


def _covers(accesses: NestAccesses, store: ElementAccess) -> bool:
    extents = accesses.extents[store.array]
    return runs_through(accesses, store) and all(
        -extent <= index.low <= index.high < extent <= index.high - index.low + 1
        for index, extent in zip(store.indices, extents, strict=True)
    )
