"""What a type tells of itself: read off its form, and off its offsets where digits do not decide.

A form is found when it is asked for, but for a type that is made, which has to know whether an index leaves. It is
kept.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Final, Literal, TypeAlias

from offload.errors import LayoutError
from offload.parray import elements, injective, rules
from offload.parray.composition import composed
from offload.parray.digits import Digits, Form, Groups, extremes
from offload.parray.dimensions import Body, Dimension, abridged
from offload.parray.references import MEMORY, THREADS, Index, Leaves, Reference, check_extremes, check_range

BOTH: Final = MEMORY | THREADS
KINDS: Final[dict[int, Literal["memory", "threads", "both"]]] = {MEMORY: "memory", THREADS: "threads", BOTH: "both"}
EMPTY: Final = (0, ((0, 1),))
"""The nest of a type without elements."""

Nest: TypeAlias = elements.Nest

set_slot: Final = object.__setattr__
_FIELDS: Final = (
    "_tree",
    "_path",
    "_body",
    "_weight",
    "_references",
    "_chain",
    "size",
    "counts",
    "_teams",
    "_comm",
    "_is_team",
)


class TypeProperties(Reference):
    """A type as a function from an index to an offset; `offload.parray.types.ArrayType` adds its tree.

    Attributes
    ----------
    size : int
        Number of elements.
    counts : int
        What offsets count, as bits.
    """

    __slots__ = (
        "__weakref__",
        "_bounds",
        "_dims",
        "_form",
        "_hash",
        "_injective",
        "_nest",
        *_FIELDS[:6],
        *_FIELDS[8:],
        "counts",
        "size",
    )

    counts: int
    size: int
    _tree: Dimension
    _path: tuple[int, ...]
    _body: Body
    _weight: int
    _references: tuple[Reference, ...]
    _chain: int
    _teams: tuple[Reference, ...]
    _comm: object
    _is_team: bool
    _hash: int
    _form: Form | None
    _nest: Nest | None
    _injective: bool
    _bounds: tuple[tuple[int, int], tuple[int, int]]

    def _fill(self, *values: object) -> None:
        """Set what a type is made of: the root and the path to this dimension in it, and what its offsets follow from.

        The values are those of `_FIELDS`; the body, weight, references and chain those of `offload.parray.rules.place`.
        """
        for name, value in zip(_FIELDS, values, strict=True):
            set_slot(self, name, value)
        set_slot(self, "_hash", hash((self._tree, self._path, self._is_team)))

    @abstractmethod
    def offsets(self) -> Any:
        """Return all offsets."""

    # -- as a reference ---------------------------------------------------------------------------
    @property
    def length(self) -> int:
        return self.size

    def reach(self, index: Index) -> Index:
        memory, thread = self.places(index)
        return memory + thread

    def places(self, index: Index) -> tuple[Index, Index]:
        """Return the offset in memory and the number of the thread for an index, or an array, that has to be in range.

        Raises
        ------
        Leaves
            The index leaves the type.
        LayoutError
            An index in a dimension of the type leaves what that refers to.
        """
        check_range(index, self, self.size)
        try:
            return rules.place(self._body, self._weight, self._references, self._chain, index)
        except Leaves as leaves:
            raise self.leaving(leaves) from None

    def through(self, base: int, given: Digits) -> tuple[int, Groups] | None:
        check_extremes(base, given, self, self.size)
        form = self.form
        return None if form is None else composed(form[0], form[1], base, given)

    def leaving(self, leaves: Leaves) -> LayoutError:
        """Return the error for an index that leaves what a dimension of this type refers to."""
        reference, where = leaves.reference, "".join(f"_{j}" for j in reversed(leaves.path))
        size = reference.length or 0
        return LayoutError(
            f"index {leaves.index} leaves {abridged('#' + reference.as_reference())}, which has {size} elements, in "
            f"{f'dimension {where}' if where else 'the root'} of {abridged(str(self))}; indices are 0 to {size - 1}: "
            f"let the dimension have fewer elements, or wrap the indices with wrap({size})"
        )

    # -- the form ---------------------------------------------------------------------------------
    @property
    def form(self) -> Form | None:
        """All offsets as digits, or None if these do not decide.

        A thread of a distributed type counts `offload.parray.rules.UNIT`.
        """
        try:
            return self._form
        except AttributeError:
            try:
                return self.find_form()
            except LayoutError:  # of a dimension that no element of the whole type reaches: found out one by one
                set_slot(self, "_form", None)
                return None

    def find_form(self) -> Form | None:
        """Find the form.

        Raises
        ------
        LayoutError
            An index leaves what it would reach.
        """
        form: Form | None = (0, ((0, 1, ()),))
        if self.size:
            try:
                form = rules.form(
                    self.size, self._body, self._weight, self._references, self._chain, in_units=self.counts == BOTH
                )
            except Leaves as leaves:
                raise self.leaving(leaves) from None
        set_slot(self, "_form", form)
        return form

    def split_form(self) -> tuple[Form, Form] | None:
        """Return the form of the thread numbers and that of the offsets in memory, digit by digit."""
        form = self.form
        if form is None or self.counts != BOTH:
            return form if form is None else ((form, (0, ())) if self.counts == THREADS else ((0, ()), form))
        base, digits = form
        halves = [
            (rules.halves(step), [(start, rules.halves(jump)) for start, jump in cuts]) for _, step, cuts in digits
        ]
        parts = []
        for k in (0, 1):
            some = [
                (count, steps[k], tuple((start, jump[k]) for start, jump in cuts))
                for (count, *_), (steps, cuts) in zip(digits, halves, strict=True)
            ]
            parts.append((rules.halves(base)[k], tuple(some)))
        return parts[0], parts[1]

    # -- what it tells ----------------------------------------------------------------------------
    @property
    def kind(self) -> Literal["memory", "threads", "both"]:
        """``"memory"``, ``"threads"`` or ``"both"``: what its offsets count."""
        return KINDS[self.counts]

    @property
    def nest(self) -> Nest | None:
        """The fewest nested loops that give the offsets in order; None if there are none.

        It is ``(base, ((count, step), …))``, outermost first.

        Raises
        ------
        LayoutError
            The type is distributed.
        """
        try:
            return self._nest
        except AttributeError:
            pass
        self._refuse_both("nest")
        form = self.form
        nest: Nest | None
        if not self.size:
            nest = EMPTY
        elif form is None:
            nest = elements.nest_of(self.offsets())
        elif any(cuts for *_, cuts in form[1]):
            nest = None
        else:
            nest = form[0], tuple([(count, step) for count, step, _ in form[1]])
        set_slot(self, "_nest", nest)
        return nest

    @property
    def step(self) -> int:
        """The difference of neighbouring offsets if there is one, else 0; 1 for fewer than two elements."""
        self._refuse_both("step")
        if self.size < 2:
            return 1
        nest = self.nest
        return nest[1][0][1] if nest is not None and len(nest[1]) == 1 else 0

    @property
    def is_contiguous(self) -> bool:
        """Whether the step is 1."""
        self._refuse_both("is_contiguous")
        return self.step == 1

    @property
    def is_identity(self) -> bool:
        """Whether element *k* has the offset *k*, for all of them."""
        self._refuse_both("is_identity")
        return not self.size or (self.step == 1 and self.nest is not None and self.nest[0] == 0)

    @property
    def is_injective(self) -> bool:
        """Whether no two elements have one place."""
        try:
            return self._injective
        except AttributeError:
            form = self.form
            found = None if form is None else injective.is_injective(form[1], self.size) if self.size else True
            if found is None:
                places = self.offsets()
                found = elements.all_different(*places) if self.counts == BOTH else elements.all_different(places)
            set_slot(self, "_injective", found)
            return found

    @property
    def span(self) -> int:
        """Elements that storage must have: 1 + the greatest offset; 0 if the type is empty."""
        return self.bounds[1][1] + 1 if self.size else 0

    @property
    def least(self) -> int:
        """The least offset, which may be negative; 0 if the type is empty."""
        return self.bounds[1][0] if self.size else 0

    @property
    def bounds(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """The least and greatest thread number, and the least and greatest offset; both 0 of what it does not count.

        Of a thread array its numbers are its offsets.
        """
        try:
            return self._bounds
        except AttributeError:
            halves = self.split_form()
            if halves is not None:
                threads, memory = (extremes(*half) for half in halves)
            else:
                places = self.offsets()
                threads, memory = (
                    (int(part.min()), int(part.max())) for part in (places if self.counts == BOTH else (places, places))
                )
            if self.counts != BOTH:
                threads, memory = (threads, threads) if self.counts == THREADS else ((0, 0), memory)
            set_slot(self, "_bounds", (threads, memory))
            return threads, memory

    def _refuse_both(self, what: str) -> None:
        if self.counts == BOTH:
            raise LayoutError(
                f"{what} is not defined for the distributed type {abridged(str(self))}; its elements are in several "
                "memories: ask a sub-dimension that counts only memory"
            )
