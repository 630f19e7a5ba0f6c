"""Array types: trees of dimensions as functions from an index to an offset.

A type is a root dimension, or a sub-dimension of one by itself; `offload.parray.rules` has what its offsets are. What
a type tells of itself is read off its form, the digits of all offsets, and where digits do not decide, off the
offsets.
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple, NoReturn

from offload.errors import LayoutError
from offload.parray import elements, seams
from offload.parray.dimensions import Body, Dimension, abridged, chain_of, dimension_of
from offload.parray.properties import BOTH, TypeProperties, set_slot
from offload.parray.references import MEMORY, THREADS, Index, Reference
from offload.parray.rules import MOST_MEMORY


class Place(NamedTuple):
    """Where an element of a distributed type is.

    Attributes
    ----------
    thread : int, or array of int64
        The number of the thread.
    offset : int, or array of int64
        The offset in its memory.
    """

    thread: Any
    offset: Any


class ArrayType(TypeProperties):
    """A function from an index to an offset, written as a tree of dimensions.

    Parameters
    ----------
    tree : int, tuple, list, dimension or ArrayType
        An integer from 0 is a leaf; a tuple or list has sub-dimensions, the leftmost outermost; `dim` makes a
        dimension with references; a type stands for one that refers to it.

    Raises
    ------
    LayoutError
        The tree cannot mean anything, or an index leaves what it refers to.

    Notes
    -----
    Types are immutable and hashable. They are equal if they are written alike; a sub-dimension is equal to the same
    one of an equal type.
    """

    __slots__ = ()

    _dims: tuple[ArrayType, ...]

    def __init__(self, tree: object) -> None:
        root = dimension_of(tree)
        counts = root.counts | (MEMORY if root.is_loose else 0)
        self._fill(root, (), root.body, 1, root.references, root.chain, root.size, counts, root.teams, None, False)
        self._check()

    def _check(self) -> None:
        """Find the form, which refuses an index that leaves, and hold a distributed type to what digits can count."""
        form = self.find_form()
        if self.counts == BOTH and form is not None and max(map(abs, self.bounds[1])) >= MOST_MEMORY:
            raise LayoutError(
                f"{abridged(str(self))} has offsets of 2**200 and more in the memory of a thread; offsets must be "
                "smaller"
            )

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__}.{name} cannot be set: array types do not change")

    # -- what it is as a value, and as a reference ------------------------------------------------
    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, ArrayType):
            return NotImplemented
        return (
            self._hash == other._hash
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

    # -- sub-dimensions ---------------------------------------------------------------------------
    @property
    def ndim(self) -> int:
        """Number of sub-dimensions; 0 of a leaf."""
        return len(self.dims)

    @property
    def dims(self) -> tuple[ArrayType, ...]:
        """The sub-dimensions, types by themselves."""
        try:
            return self._dims
        except AttributeError:
            if isinstance(self._body, tuple):
                dims = self._of_body(self._body)
            elif self._body is None and isinstance(self._references[0], ArrayType):
                dims = self._of_first(self._references[0])
            else:
                dims = ()
            set_slot(self, "_dims", dims)
            return dims

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the sub-dimensions."""
        return tuple([sub.size for sub in self.dims])

    @property
    def tree(self) -> Any:
        """The nested sizes: an integer of a leaf, else a tuple."""
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
        if self._is_team:
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
            The element's index leaves what a dimension refers to.
        """
        if len(indices) == 1 and not isinstance(indices[0], tuple):
            index = self._checked(indices[0])
        else:
            index = self._number(indices)
        if isinstance(index, int):
            memory, thread = self.places(index)
        elif self.is_wide:
            memory, thread = self._one_by_one(index)
        else:
            memory, thread = self.places(index)
            memory, thread = memory + 0 * index, thread + 0 * index
        return Place(thread, memory) if self.counts == BOTH else memory + thread

    def _one_by_one(self, index: Index) -> tuple[Index, Index]:
        """Return places of many indices, computed with Python's integers, in arrays."""
        found = [self.places(at) for at in index.reshape(-1).tolist()]
        return (
            self._array([memory for memory, _ in found]).reshape(index.shape),
            self._array([thread for _, thread in found]).reshape(index.shape),
        )

    def _array(self, values: list[int]) -> Any:
        try:
            return seams.namespace.asarray(values, dtype=seams.namespace.int64)
        except OverflowError:
            raise self._too_wide() from None

    def _too_wide(self) -> LayoutError:
        return LayoutError(
            f"offsets of {abridged(str(self))} are beyond 64 bits; ask for them one by one, with integers"
        )

    def _checked(self, index: Any) -> Index:
        """Return an index of an element, or an array of them, in range."""
        try:
            at = operator.index(index)
        except TypeError:
            if getattr(getattr(index, "dtype", None), "kind", "") not in {"i", "u"}:
                raise TypeError(
                    f"an index of {abridged(str(self))} is {index!r}, {type(index).__name__}; it must be an integer or "
                    "an array of integers"
                ) from None
            low, high = (int(index.min()), int(index.max())) if index.size else (0, -1)
            at = index.astype(seams.namespace.int64)
        else:
            low = high = at
        if low < 0 or high >= self.size:
            raise IndexError(
                f"index {low if low < 0 else high} is out of range for {abridged(str(self))} of size {self.size}"
            )
        return at

    def ravel(self, *indices: Any) -> Any:
        """Return the number of the element with these indices, counted in row-major order.

        Parameters
        ----------
        *indices : int, array of int, or tuple
            One for each sub-dimension, or the index of a leaf.
        """
        index = self._number(indices)
        return index if isinstance(index, int) else self._array(index)

    def _number(self, indices: tuple[Any, ...]) -> Index:
        """Return the number of an element; beyond 64 bits in an array of Python's integers."""
        dims = self.dims
        if len(indices) != (len(dims) or 1) or (not dims and isinstance(indices[0], tuple)):
            raise self._wrong_number(indices)
        if not dims:
            return self._checked(indices[0])
        index: Any = 0
        for sub, given in zip(dims, indices, strict=True):
            at = sub._number(given if sub.dims else (given,)) if isinstance(given, tuple) else sub._checked(given)  # noqa: SLF001
            index = index * sub.size + (at if isinstance(at, int) or not self.size >> 63 else at.astype(object))
        return index

    def _wrong_number(self, indices: tuple[Any, ...]) -> IndexError:
        dims = self.dims
        wanted = f"{len(dims)} indices, one for each sub-dimension" if dims else "one index, not a tuple"
        return IndexError(f"{abridged(str(self))} takes {wanted}; these are {len(indices)}: {indices}")

    def unravel(self, index: Any) -> Any:
        """Return the indices of an element: an integer for a leaf, a tuple with one for each sub-dimension else."""
        return self._unravelled(self._checked(index))

    def _unravelled(self, index: Any) -> Any:
        found: list[Any] = []
        for sub in reversed(self.dims):
            if sub.size >> 63 and not isinstance(index, int):  # of 64 bits no number is so large
                at, index = index, 0 * index
            else:
                at, index = index % sub.size, index // sub.size
            found.insert(0, sub._unravelled(at))  # noqa: SLF001
        return tuple(found) if found else index

    def offsets(self) -> Any:
        """Return all offsets, an array of int64; of a distributed type a `Place` of two.

        Costs a few operations of arrays as long as the type.
        """
        halves = self.split_form()
        if halves is None:
            return self(seams.namespace.arange(self.size, dtype=seams.namespace.int64))
        threads, memory = halves
        try:
            if self.counts == BOTH:
                return Place(elements.numbers_of(*threads), elements.numbers_of(*memory))
            return elements.numbers_of(*(memory if self.counts == MEMORY else threads))
        except OverflowError:
            raise self._too_wide() from None

    def view(self, x: Any) -> Any:
        """Return an array seen through the type, without a copy, an axis for each leaf in order.

        Parameters
        ----------
        x : array
            C-contiguous, of any shape, with `span` elements or more.

        Raises
        ------
        LayoutError
            A leaf has not one stride, or there are more than 64.
        ClauseError
            ``x`` is no such array.
        """
        return seams.view(self, x)

    @property
    def threads(self) -> ArrayType | None:
        """The thread array that it is distributed over; None of a type of memory."""
        return self.teams[0] if self.teams else None  # type: ignore[return-value]

    @property
    def comm(self) -> Any:
        """The communicator of an array of ranks; None of any other type."""
        return self._comm

    @property
    def axes(self) -> tuple[int, tuple[tuple[int, int], ...]] | None:
        """``(base, ((count, stride), …))``, an entry for each leaf in order; None if a leaf has not one stride.

        Raises
        ------
        LayoutError
            The type is distributed.
        """
        self._refuse_both("a view")
        counts = list(self._leaves())
        if not self.size:
            return 0, tuple((count, 0) for count in counts)
        nest = self.nest
        if nest is None:
            return None
        base, loops = nest
        left = [(count, step) for count, step in loops]  # the last one is the innermost that is left
        axes = []
        for count in reversed(counts):
            if count == 1:
                axes.append((1, 0))
                continue
            whole, step = left.pop()  # the loops have as many elements as the leaves
            if whole % count:
                return None
            axes.append((count, step))
            if whole > count:
                left.append((whole // count, step * count))
        return base, tuple(reversed(axes))

    def _leaves(self) -> Any:
        """Yield the sizes of the leaves, in order."""
        if not self.dims:
            yield self.size
        for sub in self.dims:
            yield from sub._leaves()  # noqa: SLF001


def of_root(root: Dimension, path: tuple[int, ...], comm: object, *, is_team: bool) -> ArrayType:
    """Make a type that is checked elsewhere, or has been: a thread array, or what was pickled."""
    found = ArrayType.__new__(ArrayType)
    counts = THREADS if is_team else root.counts | (MEMORY if root.is_loose else 0)
    teams = () if is_team else root.teams
    values = (root, (), root.body, 1, root.references, root.chain, root.size, counts, teams, comm, is_team)
    found._fill(*values)  # noqa: SLF001
    return found[path] if path else found


def _again(root: Dimension, path: tuple[int, ...], comm: object, is_team: bool) -> ArrayType:
    return of_root(root, path, comm, is_team=is_team)
