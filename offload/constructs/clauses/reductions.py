"""Reductions over tasks: operators, the private arrays of tasks, and how they are combined.

A taskgroup with ``task_reduction`` has one `Reduction` for each list item. A task with ``in_reduction`` takes a private
array from its pool, and gives it back when it is complete. The list item changes in one step at the end of a group that
raises nothing. To a body, the item is its private array. A node of a graph that runs again later adds its part when it
is complete. See docs/design/theory.md, "Reductions over tasks".
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from offload.arrays.foreign import check_numbers, in_kind_of, read_only_reason
from offload.arrays.items import array_section, held_host, host_items, label
from offload.arrays.sections import overlaps
from offload.constructs.clauses.maps import as_tuple
from offload.constructs.clauses.names import parse_item, refused_text
from offload.constructs.clauses.operators import Operator, find_operator
from offload.errors import ClauseError
from offload.interrupts.forks import in_forked_child
from offload.tasks import hooked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from offload.constructs.clauses.names import VisibleNames
    from offload.tasks.region import Group
    from offload.tasks.task import Task

# -- clauses ---------------------------------------------------------------------------------------


class ReductionItem(NamedTuple):
    """A list item with the name of its operator: an array, or a string that names one at the call."""

    operator: str  # its name
    item: Any  # an array, or a string that names one at the call


def check_reduction(clause: str, value: Any) -> tuple[ReductionItem, ...]:
    """Return the list items of a reduction clause, ``{"+": [total], …}``; none for None.

    Raise `ClauseError` for another value, an operator that does not exist or has no meaning for an item's dtype, no
    item, or an item that is neither an array on the host nor a string.
    """
    if value is None:
        return ()
    if not isinstance(value, dict) or not value:
        raise ClauseError(
            f"{clause}: {type(value).__name__} {value!r:.60} is not a dict of operators and list items; "
            'write for example {"+": [total]}'
        )
    found = []
    for name, given in value.items():
        operator = find_operator(clause, name)
        items = as_tuple(given)
        if not items:
            raise ClauseError(f"{clause}: operator {name!r} names no list item; name at least one array")
        for given_item, item in zip(items, host_items(items), strict=True):
            if isinstance(item, str):
                parse_item(item)
            else:
                check_numbers(given_item, item, clause)
                check_item(clause, operator, item)
            found.append(ReductionItem(name, item))
    return tuple(found)


def check_item(clause: str, operator: Operator, item: Any) -> None:
    """Raise `ClauseError` unless ``item`` is an array that the operator can reduce."""
    if not isinstance(item, np.ndarray):
        raise ClauseError(
            f"{clause}: {type(item).__name__} {item!r:.60} is not a NumPy array, so tasks could not update it; for a "
            "number, use an array without dimensions: np.zeros(())"
        )
    if item.dtype.hasobject:
        raise ClauseError(f"{clause}: an array of dtype {item.dtype} holds Python objects; use a numeric dtype")
    if operator.kinds and item.dtype.kind not in operator.kinds:
        raise ClauseError(
            f"{clause}: operator {operator.name!r} is not defined for {label(item)}; use another, or declare_reduction "
            "for this dtype"
        )


def resolved(clause: str, items: Sequence[ReductionItem], names: Mapping[str, Any]) -> tuple[ReductionItem, ...]:
    """Return the list items with strings evaluated, by the names visible at a call."""
    found = []
    for name, item in items:
        value = item
        if isinstance(item, str):
            value = parse_item(item).resolve(names, clause)
            check_item(clause, find_operator(clause, name), value)
        found.append(ReductionItem(name, value))
    return tuple(found)


def reductions_of(clause: str, items: Sequence[ReductionItem]) -> tuple[Reduction, ...]:
    """Return a reduction for each list item of a clause that begins one.

    Raise `ClauseError` if an item is a string or read-only, overlaps itself, or shares storage with another one.
    """
    found: list[Reduction] = []
    for name, item in items:
        if isinstance(item, str):
            raise refused_text(clause, item)
        section = array_section(item)
        if not item.flags.writeable:
            raise ClauseError(
                f"{clause}: {label(item)} cannot be written: {read_only_reason(item)}; name a writeable array, so that "
                "the result can be stored in it"
            )
        if section.nbytes < item.nbytes:
            raise ClauseError(
                f"{clause}: {label(item)} with strides {item.strides} has elements that share memory; "
                "name the array that it is a view of"
            )
        for other in found:
            if overlaps(section, array_section(other.original)):
                raise ClauseError(
                    f"{clause}: {label(item)} shares storage with another list item, {label(other.original)}; "
                    "name each element once, with one operator"
                )
        found.append(Reduction(find_operator(clause, name), item))
    return tuple(found)


# -- a reduction -----------------------------------------------------------------------------------


def identity_of(array: Any) -> tuple[Any, ...]:
    """Return a key that is equal for arrays with the same elements in the same order."""
    strides = tuple(stride if n > 1 else 0 for n, stride in zip(array.shape, array.strides, strict=True))
    return (array.__array_interface__["data"][0], array.dtype, array.shape, strides)


# Held while a task that is run again is combined with an original, which several reductions may have.
_adding = threading.Lock()


class Reduction:
    """A list item of a reduction, in one region."""

    __slots__ = ("_free", "_made", "identities", "is_open", "operator", "original")

    def __init__(self, operator: Operator, original: Any) -> None:
        self.operator = operator
        self.original = original  # the list item
        # of the original and of all private arrays, by which tasks name the reduction
        self.identities = {identity_of(original)}
        self.is_open = True  # whether its region has not ended
        self._made: list[Any] = []  # all private arrays
        self._free: list[Any] = []  # the pool: those that no task has now

    def take(self) -> Any:
        """Return a private array for one task: one that others have put something into, or a new one."""
        try:
            return self._free.pop()
        except IndexError:
            private = self._new()
        self.identities.add(identity_of(private))
        if self.is_open:
            self._made.append(private)
        return private

    def _new(self) -> Any:
        private = np.zeros_like(self.original, subok=False)
        value = self.operator.initialize(private)
        if value is not None and value is not private:
            private[...] = value
        return private

    def give_back(self, private: Any) -> None:
        """Put a private array back into the pool."""
        if self.is_open:
            self._free.append(private)

    def add(self, private: Any) -> None:
        """Combine the private array of a task that is run again with the list item."""
        with _adding:
            self.original[...] = self._combined([private])

    def forget(self, private: Any) -> None:
        """Let go of the private array of a task that is run again."""
        self.identities.discard(identity_of(private))

    def combined(self) -> Any:
        """Return the list item combined with all private arrays; None if no task has taken one."""
        return self._combined(self._made) if self.is_open and self._made else None

    def _combined(self, privates: Iterable[Any]) -> Any:
        result = self.original.copy()
        combine = self.operator.combine
        for private in privates:
            value = combine(result, private)
            if value is not None and value is not result:
                result[...] = value
        return result

    def close(self) -> None:
        """End the region; the private arrays are gone."""
        self.is_open = False
        self._made = []
        self._free = []
        self.identities = {identity_of(self.original)}

    def __repr__(self) -> str:
        return f"{self.operator.name}: {label(self.original)}"


def _moved(plain: Any) -> Any:
    """Return `Reduction.take` for sanitized runtimes: each task has memory of its own.

    Tasks that share a private array exclude each other, but the program asks for no order of theirs.
    """

    def take(self: Reduction) -> Any:
        private = plain(self)
        moved = private.copy()
        for k, made in enumerate(self._made):
            if made is private:
                self._made[k] = moved  # in place, as other threads append
        self.identities.discard(identity_of(private))
        self.identities.add(identity_of(moved))
        return moved

    return take


hooked.register(Reduction, "take", _moved, "sanitize")


def end_reductions(group: Group, *, combines: bool) -> None:
    """End the reductions of a group all of whose tasks are complete; without ``combines`` the items stay as they are.

    If a combiner raises, the list items are unchanged too.
    """
    reductions, group.reductions = group.reductions, ()
    try:
        if combines:
            values = [(reduction, _noted(reduction)) for reduction in reductions]
            for reduction, value in values:
                if value is not None:
                    reduction.original[...] = value
    finally:
        for reduction in reductions:
            reduction.close()


def _noted(reduction: Reduction) -> Any:
    try:
        return reduction.combined()
    except BaseException as error:
        error.add_note(f"in the combiner of the reduction {reduction!r}")
        raise


# -- tasks that take part --------------------------------------------------------------------------


class ReducedPart(NamedTuple):
    """A reduction that a task takes part in, and the arguments that it receives a private array for."""

    reduction: Reduction
    positions: tuple[int, ...]  # of arguments that become the private array
    keywords: tuple[str, ...]  # of arguments that become the private array


def parts_of(
    what: str,
    items: Sequence[ReductionItem],
    visible: VisibleNames | None,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    group: Group | None,
) -> tuple[ReducedPart, ...]:
    """Return the reductions in which a call with these arguments takes part.

    Raise `ClauseError` if no taskgroup around the call reduces an item with that operator, the body is not passed an
    item, or items contradict each other.
    """
    names = visible.at_call(args, kwargs) if visible is not None else {}
    parts: list[ReducedPart] = []
    for (_, given), (operator, item) in zip(items, resolved(f"{what}: in_reduction", items, names), strict=True):
        slot: int | str | None = None
        if isinstance(given, str) and visible is not None:
            parsed = parse_item(given)
            if parsed.is_part_of(names[parsed.name]):
                slot = visible.slot(parsed.name, kwargs)  # receives the array of that section
        reduction = find_reduction(what, operator, item, group)
        identities = reduction.identities
        part = ReducedPart(
            reduction,
            tuple(at for at, value in enumerate(args) if at == slot or _is_one_of(value, identities)),
            tuple(name for name, value in kwargs.items() if name == slot or _is_one_of(value, identities)),
        )
        if not part.positions and not part.keywords:
            raise ClauseError(
                f"{what}: in_reduction names {_named(given)}, which is none of the arguments, so the body could not "
                "receive its private array; pass it"
            )
        for other in parts:
            if other.reduction is reduction or {*other.positions, *other.keywords} & {*part.positions, *part.keywords}:
                raise ClauseError(
                    f"{what}: in_reduction names {_named(given)} and another item for one argument; name each once"
                )
        parts.append(part)
    return tuple(parts)


def _is_one_of(value: Any, identities: set[Any]) -> bool:
    value = held_host(value)
    return isinstance(value, np.ndarray) and identity_of(value) in identities


def _named(item: Any) -> str:
    return repr(item) if isinstance(item, str) else label(item)


def find_reduction(what: str, operator: str, item: Any, group: Group | None) -> Reduction:
    """Return the reduction of the innermost taskgroup that has this item with this operator."""
    wanted = identity_of(item)
    others = []
    while group is not None:
        for reduction in group.reductions:
            if wanted in reduction.identities:
                if reduction.operator.name == operator:
                    return reduction  # type: ignore[no-any-return]  # a Group does not know Reduction
                others.append(reduction.operator.name)
        group = group.outer
    hint = f"; one reduces it with {' and '.join(map(repr, others))}" if others else ""
    raise ClauseError(
        f"{what}: no taskgroup around it reduces {label(item)} with {operator!r}{hint}; put the call into "
        f"`with offload.taskgroup(task_reduction={{{operator!r}: [that array]}}):`"
    )


class ReducingTasks(NamedTuple):
    """The reductions of the tasks of a call; attributes as the parameters of `ReducingBody`."""

    parts: tuple[ReducedPart, ...]
    until_complete: bool

    def participant(self, body: Callable[..., Any]) -> ReducingBody:
        """Return the body of one task."""
        return ReducingBody(body, self.parts, until_complete=self.until_complete)


class ReducingBody:
    """The body of one task that takes part in reductions."""

    # It calls ``function`` with private arrays for ``parts``. ``until_complete`` tells whether the task goes on when
    # the call has returned, because it is detached or a coroutine; then call `completed` when it is complete.

    __slots__ = ("_function", "_parts", "_taken", "_until_complete")

    def __init__(self, function: Callable[..., Any], parts: tuple[ReducedPart, ...], *, until_complete: bool) -> None:
        self._function = function
        self._parts = parts
        # reduction, private array, and whether it goes back to the pool
        self._taken: list[tuple[Reduction, Any, bool]] = []
        self._until_complete = until_complete

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        replaced = list(args)
        try:
            for reduction, positions, keywords in self._parts:
                private = reduction.take()
                self._taken.append((reduction, private, reduction.is_open))
                for at in positions:
                    replaced[at] = in_kind_of(replaced[at], private)
                for name in keywords:
                    kwargs[name] = in_kind_of(kwargs[name], private)
            value = self._function(*replaced, **kwargs)
        except BaseException:
            self._give_back(is_good=False)
            raise
        if not self._until_complete:
            self._give_back(is_good=True)
        return value

    def completed(self, task: Task) -> None:
        """Give the private arrays back."""
        self._give_back(is_good=task.failure is None)

    def _give_back(self, *, is_good: bool) -> None:
        taken, self._taken = self._taken, []
        for reduction, private, is_pooled in taken:
            if is_pooled:
                reduction.give_back(private)
                continue
            if is_good:
                reduction.add(private)
            reduction.forget(private)

    def join(self, task: Task) -> None:
        """Attach the participant to the task whose body it is."""
        # In a graph that is run again, what the body generates has to find the reductions, too.
        if self._until_complete:
            task.callbacks = [self.completed]
            task.special = True
        group = task.inherited.group
        for part in self._parts:
            if group is not None and not part.reduction.is_open and part.reduction not in group.reductions:
                group.reductions = (*group.reductions, part.reduction)


@in_forked_child
def _after_fork() -> None:
    global _adding  # noqa: PLW0603  # another thread of the parent may have it
    _adding = threading.Lock()
