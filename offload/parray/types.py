"""Array types: trees of dimensions as functions from an index to an offset.

A type is a root dimension, or a sub-dimension of one by itself; `offload.parray.rules` defines its offsets. The
properties of a type come from its form, the digits of all offsets. If digits do not decide a property, it comes from
the offsets.
"""

from __future__ import annotations

import operator
from typing import Any, Final, Literal, NoReturn, TypeAlias

from offload.errors import LayoutError
from offload.parray import elements, indexing, injective, rules, seams
from offload.parray.composition import composed
from offload.parray.digits import Digits, Form, Groups, extremes
from offload.parray.dimensions import Body, Dimension, abridged, chain_of, dimension_of
from offload.parray.indexing import Place
from offload.parray.references import (
    BOTH,
    MEMORY,
    THREADS,
    Index,
    Leaves,
    Reference,
    check_extremes,
    check_range,
)

KINDS: Final[dict[int, Literal["memory", "threads", "both"]]] = {MEMORY: "memory", THREADS: "threads", BOTH: "both"}
EMPTY: Final = (0, ((0, 1),))  # The nest of a type without elements

Nest: TypeAlias = elements.Nest

_set_slot: Final = object.__setattr__
# What `ArrayType._fill` sets, in this order.
_FIELDS: Final = (
    "_tree", "_path", "_body", "_weight", "_references", "_chain", "size", "counts", "_teams", "_comm", "_is_team",
)  # fmt: skip


class ArrayType(Reference):
    """A function from an index to an offset, written as a tree of dimensions.

    Parameters
    ----------
    tree : int, tuple, list, dimension or ArrayType
        An integer from 0 is a leaf. A tuple or list has sub-dimensions, the leftmost outermost. `dim` makes a dimension
        with references. A type stands for a dimension that refers to it.

    Raises
    ------
    LayoutError
        The tree is wrong, or an index leaves a dimension that it refers to.

    Notes
    -----
    Types are immutable and hashable. Two types are equal if they are written alike. Sub-dimensions are equal if they
    are the same sub-dimension of equal types.

    Examples
    --------
    >>> A = parray.ArrayType((2, 3))
    >>> A.shape, A.size
    ((2, 3), 6)
    >>> A(1, 2), A(4)  # offsets, by indices and by element number
    (5, 4)
    >>> parray.ArrayType((A[1], A[0])).offsets()
    array([0, 3, 1, 4, 2, 5])
    """

    __slots__ = (
        "__weakref__", "_bounds", "_dims", "_form", "_hash", "_injective", "_nest", *_FIELDS[:6], "counts", "size",
        *_FIELDS[8:],
    )  # fmt: skip

    # What the type is made of:
    _tree: Dimension  # the root
    _path: tuple[int, ...]  # the sub-dimension of the root
    _body: Body  # this and the next three are as in `offload.parray.rules.place`
    _weight: int  # what an index adds to the regular part
    _references: tuple[Reference, ...]  # they act on the regular part, from left to right
    _chain: int  # the unit of what the references give, as bits; 0 without references
    size: int  # number of elements
    counts: int  # the units of offsets, as bits
    _teams: tuple[Reference, ...]  # the thread array that it is distributed over; at most one
    _comm: object  # the communicator of an array of ranks
    _is_team: bool  # whether it is a thread array
    # What follows from these; all but the hash is found when it is asked for, and kept.
    _hash: int  # of the tree, the path and whether it is a team; found at once
    _form: Form | None  # all offsets as digits; None: digits do not decide
    _nest: Nest | None  # the smallest loop nest; None: there is none
    _injective: bool  # whether all elements have different places
    _bounds: tuple[tuple[int, int], tuple[int, int]]  # least and greatest thread number, then offset
    _dims: tuple[ArrayType, ...]  # the sub-dimensions, each by itself

    def __init__(self, tree: object) -> None:
        root = dimension_of(tree)
        counts = root.counts | (MEMORY if root.is_loose else 0)
        self._fill(root, (), root.body, 1, root.references, root.chain, root.size, counts, root.teams, None, False)
        self._check()

    def _fill(self, *values: object) -> None:
        """Set the fields of the type."""
        for name, value in zip(_FIELDS, values, strict=True):
            _set_slot(self, name, value)
        _set_slot(self, "_hash", hash((self._tree, self._path, self._is_team)))

    def _check(self) -> None:
        """Find the form, which checks all references, and limit a distributed type to offsets that digits count."""
        form = self.find_form()
        if self.counts == BOTH and form is not None and max(map(abs, self.bounds[1])) >= rules.MOST_MEMORY:
            raise LayoutError(
                f"{abridged(str(self))} has offsets of 2**200 and more in the memory of a thread; make it smaller"
            )

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__}.{name} cannot be set: array types do not change")

    # -- what it is as a value, and as a reference ------------------------------------------------
    def __eq__(self, other: object) -> bool:
        if self is other:  # the usual case: plans and tables are found by the same objects
            return True
        if not isinstance(other, ArrayType):
            return NotImplemented
        return (
            self._hash == other._hash  # first, since trees are compared node by node
            and self._path == other._path
            and self._is_team == other._is_team
            and self._tree == other._tree
            and bool(self._comm == other._comm)
        )

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[object, ...]:
        return _again, (self._tree, self._path, self._comm, self._is_team)

    def __str__(self) -> str:
        text = f"{self._team_word}({self._tree})" if self._is_team else str(self._tree)
        return self.as_reference() if self._path else text

    def __repr__(self) -> str:
        return f"<ArrayType {abridged(str(self))}>"

    @property
    def _team_word(self) -> str:
        return "" if not self._is_team else "threads" if self._comm is None else "ranks"

    def as_reference(self) -> str:
        """Return the text of the type as a reference, the part after ``#``."""
        return f"{self._team_word}({self._tree})" + "".join(f"_{j}" for j in self._path)

    @property
    def levels(self) -> int:  # type: ignore[override]
        return self._tree.levels

    @property
    def n_dimensions(self) -> int:  # type: ignore[override]
        return self._tree.n_dimensions

    @property
    def is_wide(self) -> bool:  # type: ignore[override]
        return self._tree.is_wide

    @property
    def has_function(self) -> bool:  # type: ignore[override]
        return self._tree.has_function

    @property
    def teams(self) -> tuple[Reference, ...]:  # type: ignore[override]
        return (self,) if self._is_team and not self._path else self._teams

    @property
    def length(self) -> int:
        return self.size

    def reach(self, index: Index) -> Index:
        memory, thread = self.places(index)
        return memory + thread

    def places(self, index: Index) -> tuple[Index, Index]:
        """Return the offset in memory and the number of the thread for an index, or an array, that has to be in range.

        Raise `Leaves` if the index leaves the type, and `LayoutError` if an index in a dimension leaves its reference.
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
        """Return the error for an index that leaves a type that a dimension of this type refers to."""
        reference, where = leaves.reference, "".join(f"_{j}" for j in reversed(leaves.path))
        size = reference.length or 0
        return LayoutError(
            f"index {leaves.index} leaves {abridged('#' + reference.as_reference())}, which has {size} elements, "
            f"in {f'dimension {where}' if where else 'the root'} of {abridged(str(self))}; "
            f"indices are 0 to {size - 1}: let the dimension have fewer elements, or wrap the indices with wrap({size})"
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
                _set_slot(self, "_form", None)
                return None

    def find_form(self) -> Form | None:
        """Find the form; raise `LayoutError` if an index is outside the range of its reference."""
        form: Form | None = (0, ((0, 1, ()),))
        if self.size:
            try:
                form = rules.form(
                    self.size, self._body, self._weight, self._references, self._chain, in_units=self.counts == BOTH
                )
            except Leaves as leaves:
                raise self.leaving(leaves) from None
        _set_slot(self, "_form", form)
        return form

    def split_form(self) -> tuple[Form, Form] | None:
        """Return the form of the thread numbers and the form of the offsets in memory, digit by digit."""
        form = self.form
        if form is None or self.counts != BOTH:
            return form if form is None else ((form, (0, ())) if self.counts == THREADS else ((0, ()), form))
        base, digits = form  # each step and jump counts threads in units of `rules.UNIT`
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

    # -- sub-dimensions ---------------------------------------------------------------------------
    @property
    def ndim(self) -> int:
        """Number of sub-dimensions; 0 for a leaf.

        Examples
        --------
        >>> parray.ArrayType((2, 3)).ndim
        2
        """
        return len(self.dims)

    @property
    def dims(self) -> tuple[ArrayType, ...]:
        """The sub-dimensions, each an `ArrayType`.

        Examples
        --------
        >>> [dim.size for dim in parray.ArrayType((2, 3)).dims]
        [2, 3]
        """
        try:
            return self._dims
        except AttributeError:
            if isinstance(self._body, tuple):
                dims = self._of_body(self._body)
            elif self._body is None and isinstance(self._references[0], ArrayType):
                dims = self._of_first(self._references[0])
            else:
                dims = ()
            _set_slot(self, "_dims", dims)
            return dims

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the sub-dimensions.

        Examples
        --------
        >>> parray.ArrayType(((2, 2), 3)).shape
        (4, 3)
        """
        return tuple([sub.size for sub in self.dims])

    @property
    def tree(self) -> Any:
        """The nested sizes: an integer for a leaf, otherwise a tuple.

        Examples
        --------
        >>> parray.ArrayType(((2, 2), 3)).tree
        ((2, 2), 3)
        """
        return tuple([sub.tree for sub in self.dims]) if self.dims else self.size

    def __getitem__(self, place: int | tuple[int, ...]) -> ArrayType:
        found = self
        for j in place if isinstance(place, tuple) else (place,):
            at, dims = operator.index(j), found.dims
            if not -len(dims) <= at < len(dims):
                raise IndexError(f"{abridged(str(found))} has no sub-dimension {at}; it has {len(dims)}")
            found = dims[at]
        return found

    def __iter__(self) -> Any:
        return iter(self.dims)

    def _of_body(self, body: tuple[Dimension, ...]) -> tuple[ArrayType, ...]:
        """Return the sub-dimensions of a body, each by itself."""
        dims: list[ArrayType] = []
        weight = self._weight
        for j in range(len(body) - 1, -1, -1):
            sub = body[j]
            if sub.references:
                dims.append(self._sub(j, sub.body, 1, sub.references, sub.chain, sub.size, sub.counts, sub.teams))
            else:
                own = self._chain or (MEMORY if sub.is_loose else 0)
                teams = self._teams if self._chain & THREADS else sub.teams
                dims.append(
                    self._sub(j, sub.body, weight, self._references, self._chain, sub.size, sub.counts | own, teams)
                )
            weight *= sub.size
        return tuple(reversed(dims))

    def _of_first(self, first: ArrayType) -> tuple[ArrayType, ...]:
        """Return the sub-dimensions of a pure reference: those of the first type, each with the rest of the chain."""
        dims = []
        for j, sub in enumerate(first.dims):
            references = (sub, *self._references[1:])
            chain = chain_of(references)
            dims.append(self._sub(j, None, 1, references, chain, sub.size, chain, self._teams))
        return tuple(dims)

    def _sub(
        self,
        j: int,
        body: Body,
        weight: int,
        references: tuple[Reference, ...],
        chain: int,
        size: int,
        counts: int,
        teams: tuple[Reference, ...],
    ) -> ArrayType:
        if self._is_team:  # a part of a thread array is one, over the whole array
            counts, teams = THREADS, self.teams
        elif not counts & THREADS:
            teams = ()
        found = ArrayType.__new__(ArrayType)
        path = (*self._path, j)
        values = (self._tree, path, body, weight, references, chain, size, counts, teams, self._comm, self._is_team)
        found._fill(*values)  # noqa: SLF001
        return found

    # -- offsets ----------------------------------------------------------------------------------
    def __call__(self, *indices: Any) -> Any:
        """Return the offset of an element; of a distributed type, its place.

        Parameters
        ----------
        *indices : int, array of int, or tuple
            One, the number of the element, or one for each sub-dimension, which may be a tuple in its turn. Arrays
            broadcast.

        Returns
        -------
        int, array of int64, or Place

        Raises
        ------
        IndexError
            An index out of range, or a wrong number of them.
        LayoutError
            The element's index is outside the range of a dimension's reference.
        """
        if len(indices) == 1 and not isinstance(indices[0], tuple):
            index = indexing.checked(self, indices[0])
        else:
            index = indexing.number_of(self, indices)
        if isinstance(index, int):
            memory, thread = self.places(index)
        elif self.is_wide:
            memory, thread = indexing.one_by_one(self, index)
        else:
            memory, thread = self.places(index)
            memory, thread = memory + 0 * index, thread + 0 * index  # a part that is one number becomes an array
        return Place(thread, memory) if self.counts == BOTH else memory + thread

    def ravel(self, *indices: Any) -> Any:
        """Return the number of the element with these indices, counted in row-major order.

        Parameters
        ----------
        *indices : int, array of int, or tuple
            One index for each sub-dimension, or the index of a leaf.

        Examples
        --------
        >>> parray.ArrayType((2, 3)).ravel(1, 2)
        5
        """
        index = indexing.number_of(self, indices)
        return index if isinstance(index, int) else indexing.integers(self, index)

    def unravel(self, index: Any) -> Any:
        """Return the indices of an element: an integer for a leaf, otherwise a tuple, with one per sub-dimension.

        Examples
        --------
        >>> parray.ArrayType((2, 3)).unravel(5)
        (1, 2)
        """
        return indexing.unravelled(self, indexing.checked(self, index))

    def offsets(self) -> Any:
        """Return all offsets, an array of int64; for a distributed type, a `Place` of two arrays.

        The cost is a few operations on arrays as long as the type.

        Examples
        --------
        >>> A = parray.ArrayType((2, 3))
        >>> parray.ArrayType(A[1]).offsets()
        array([0, 1, 2])
        """
        halves = self.split_form()
        if halves is None:  # no digits: each element by itself
            return self(seams.namespace.arange(self.size, dtype=seams.namespace.int64))
        threads, memory = halves
        try:
            if self.counts == BOTH:
                return Place(elements.numbers_of(*threads), elements.numbers_of(*memory))
            return elements.numbers_of(*(memory if self.counts == MEMORY else threads))
        except OverflowError:
            raise indexing.too_wide(self) from None

    def view(self, x: Any) -> Any:
        """Return an array seen through the type, without a copy, with an axis for each leaf in order.

        Parameters
        ----------
        x : array
            A C-contiguous array of any shape, with `span` elements or more.

        Raises
        ------
        LayoutError
            A leaf does not have a single stride, or there are more than 64 leaves.
        ClauseError
            ``x`` is not such an array.

        Examples
        --------
        >>> A = parray.ArrayType((2, 3))
        >>> B = parray.ArrayType((A[1], A[0]))
        >>> B.view(np.arange(6))
        array([[0, 3],
               [1, 4],
               [2, 5]])
        """
        return seams.view(self, x)

    @property
    def threads(self) -> ArrayType | None:
        """The thread array that the type is distributed over; None for a type of memory.

        Examples
        --------
        >>> P = parray.threads(2)
        >>> parray.ArrayType((P, 3)).threads == P
        True
        """
        return self.teams[0] if self.teams else None  # type: ignore[return-value]

    @property
    def comm(self) -> Any:
        """The communicator of an array of ranks; None for any other type.

        Examples
        --------
        >>> print(parray.threads(2).comm)
        None
        """
        return self._comm

    @property
    def axes(self) -> tuple[int, tuple[tuple[int, int], ...]] | None:
        """``(base, ((count, stride), …))``, an entry for each leaf in order; None if a leaf has no single stride.

        Raises
        ------
        LayoutError
            The type is distributed.

        Examples
        --------
        >>> A = parray.ArrayType((2, 3))
        >>> parray.ArrayType((A[1], A[0])).axes
        (0, ((3, 1), (2, 3)))
        """
        indexing.refuse_both(self, "a view")
        counts = indexing.leaf_sizes(self)
        if not self.size:
            return 0, tuple((count, 0) for count in counts)
        nest = self.nest
        if nest is None:
            return None
        base, loops = nest
        return None if (axes := indexing.axes_of(loops, counts)) is None else (base, axes)

    # -- what it tells ----------------------------------------------------------------------------
    @property
    def kind(self) -> Literal["memory", "threads", "both"]:
        """``"memory"``, ``"threads"`` or ``"both"``: the things that the offsets count.

        Examples
        --------
        >>> P = parray.threads(2)
        >>> parray.ArrayType(3).kind, P.kind, parray.ArrayType((P, 3)).kind
        ('memory', 'threads', 'both')
        """
        return KINDS[self.counts]

    @property
    def nest(self) -> Nest | None:
        """The smallest loop nest that gives the offsets in order; None if there is none.

        It is ``(base, ((count, step), …))``, outermost first.

        Raises
        ------
        LayoutError
            The type is distributed.

        Examples
        --------
        >>> parray.ArrayType((2, 3)).nest
        (0, ((6, 1),))
        """
        try:
            return self._nest
        except AttributeError:
            pass
        indexing.refuse_both(self, "nest")
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
        _set_slot(self, "_nest", nest)
        return nest

    @property
    def step(self) -> int:
        """The difference of neighbouring offsets, or 0 if it is not constant; 1 for fewer than two elements.

        Examples
        --------
        >>> A = parray.ArrayType((2, 3))
        >>> A.step, A[0].step, parray.ArrayType((A[1], A[0])).step
        (1, 3, 0)
        """
        indexing.refuse_both(self, "step")
        if self.size < 2:
            return 1
        nest = self.nest
        return nest[1][0][1] if nest is not None and len(nest[1]) == 1 else 0  # one loop: one step

    @property
    def is_contiguous(self) -> bool:
        """Whether the step is 1.

        Examples
        --------
        >>> A = parray.ArrayType((2, 3))
        >>> A.is_contiguous, A[0].is_contiguous
        (True, False)
        """
        indexing.refuse_both(self, "is_contiguous")
        return self.step == 1

    @property
    def is_identity(self) -> bool:
        """Whether every element *k* has the offset *k*.

        Examples
        --------
        >>> A = parray.ArrayType((2, 3))
        >>> A.is_identity, parray.ArrayType((A[1], A[0])).is_identity
        (True, False)
        """
        indexing.refuse_both(self, "is_identity")
        return not self.size or (self.step == 1 and self.nest is not None and self.nest[0] == 0)

    @property
    def is_injective(self) -> bool:
        """Whether all elements have different places.

        Examples
        --------
        >>> parray.ArrayType(6).is_injective
        True
        >>> parray.ArrayType(parray.dim(6, parray.wrap(3))).is_injective
        False
        """
        try:
            return self._injective
        except AttributeError:
            form = self.form
            found = None if form is None else injective.is_injective(form[1], self.size) if self.size else True
            if found is None:  # digits do not decide: compare all places
                places = self.offsets()
                found = elements.all_different(*places) if self.counts == BOTH else elements.all_different(places)
            _set_slot(self, "_injective", found)
            return found

    @property
    def span(self) -> int:
        """The number of elements that storage needs: 1 + the greatest offset; 0 if the type is empty.

        Examples
        --------
        >>> A = parray.ArrayType((2, 3))
        >>> A.span, A[0].span
        (6, 4)
        """
        return self.bounds[1][1] + 1 if self.size else 0

    @property
    def least(self) -> int:
        """The least offset, which may be negative; 0 if the type is empty.

        Examples
        --------
        >>> parray.ArrayType(parray.dim(6, parray.disp(-2))).least
        -2
        """
        return self.bounds[1][0] if self.size else 0

    @property
    def bounds(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """The least and greatest thread number, and the least and greatest offset.

        Both numbers are 0 for a part that the type does not count. The offsets of a thread array are its thread
        numbers.

        Examples
        --------
        >>> parray.ArrayType((parray.threads(2), 3)).bounds
        ((0, 1), (0, 2))
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
            _set_slot(self, "_bounds", (threads, memory))
            return threads, memory


def of_root(root: Dimension, path: tuple[int, ...], comm: object, *, is_team: bool) -> ArrayType:
    """Make a type without checks, which were made before or follow: a thread array, or an unpickled type."""
    found = ArrayType.__new__(ArrayType)
    counts = THREADS if is_team else root.counts | (MEMORY if root.is_loose else 0)
    teams = () if is_team else root.teams
    values = (root, (), root.body, 1, root.references, root.chain, root.size, counts, teams, comm, is_team)
    found._fill(*values)  # noqa: SLF001
    return found[path] if path else found


def _again(root: Dimension, path: tuple[int, ...], comm: object, is_team: bool) -> ArrayType:
    return of_root(root, path, comm, is_team=is_team)
