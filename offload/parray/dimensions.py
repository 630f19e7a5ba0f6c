"""Trees of dimensions: their parts, their sizes, and their notation.

A dimension is a value: a body, references, and the properties that follow from them in every tree. A size stands for a
dimension in a tree, a tuple for one with sub-dimensions, a type for one that refers to it; `dimension_of` makes them
all alike.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from offload.errors import LayoutError
from offload.parray.references import MEMORY, THREADS, WIDE, Reference, integer

# Dimensions one inside of, or one referring to, the other: each takes some frames of Python's 1,000.
MOST_LEVELS: Final = 100

# Dimensions of a type with all that it refers to: doubled by each level, they would soon be more than memory holds.
MOST_DIMENSIONS: Final = 1 << 20

Body: TypeAlias = "int | tuple[Dimension, ...] | None"


class Dimension:
    """A dimension of a type; made by `dim`, or from its short form in a tree."""

    __slots__ = (
        "_hash", "body", "chain", "counts", "has_function", "is_loose", "is_wide", "levels", "n_dimensions",
        "references", "size", "teams",
    )  # fmt: skip

    def __init__(self, body: Body, references: tuple[Reference, ...]) -> None:
        self.body = body  # a size, sub-dimensions, or None for a pure reference
        self.references = references  # from left to right
        self.teams: tuple[Reference, ...]  # the thread array whose numbers it gives, if it gives any
        inside: tuple[Dimension, ...] = body if isinstance(body, tuple) else ()
        if body is None:
            self.size = _length(references)  # number of elements
        elif isinstance(body, int):
            self.size = body
        else:
            self.size = 1
            for sub in inside:
                self.size *= sub.size
        self.chain = chain_of(references)  # the unit of its own references; 0 without any
        self.counts = self.chain  # the units of its fixed parts, as bits: `MEMORY`, `THREADS`
        self.is_loose = not references  # whether a leaf of it is regular as seen from outside
        self.levels = 0  # its depth, with all that it refers to
        self.n_dimensions = 1  # its number of dimensions, with all that it refers to
        self.is_wide = self.size >= WIDE  # whether numbers are too large to compute with in 64 bits
        self.has_function = False  # whether an offset calls a function of the program
        teams: list[Reference] = []
        if inside:
            self.is_loose = not references and any(sub.is_loose for sub in inside)
            for sub in inside:
                self.counts |= sub.counts
                teams += sub.teams
                self._holds(sub)
        for reference in references:
            self._holds(reference)
        self.levels += 1
        if self.chain & THREADS:
            teams += references[-1].teams if self.chain == MEMORY | THREADS else last_type(references).teams
        self.teams = _one_team(teams)
        if self.levels > MOST_LEVELS:
            raise LayoutError(
                f"a tree of {self.levels} levels is too deep; at most {MOST_LEVELS} dimensions may be nested in, or "
                "refer to, each other: use fewer levels"
            )
        if self.n_dimensions > MOST_DIMENSIONS:
            raise LayoutError(
                f"a tree of {self.n_dimensions} dimensions, with all dimensions that they refer to, is too large; "
                f"{MOST_DIMENSIONS} are allowed: write regular parts as one size"
            )
        self._hash = hash((body, references))

    def _holds(self, other: Dimension | Reference) -> None:
        self.levels = max(self.levels, other.levels)
        self.n_dimensions += other.n_dimensions
        self.is_wide = self.is_wide or other.is_wide
        self.has_function = self.has_function or other.has_function

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Dimension):
            return NotImplemented
        return self._hash == other._hash and self.body == other.body and self.references == other.references

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[object, ...]:
        return Dimension, (self.body, self.references)

    def __str__(self) -> str:
        return text_of(self.body, self.references)

    def __repr__(self) -> str:
        return f"<dimension {abridged(str(self))}>"


def text_of(body: Body, references: tuple[Reference, ...]) -> str:
    """Return a dimension in PARRAY's notation."""
    if isinstance(body, tuple):
        start = "".join([f"[{sub}]" for sub in body])
    elif body is None:
        start = ""
    else:
        start = str(body)
    return start + "".join([f"#{reference.as_reference()}" for reference in references])


def abridged(text: str, most: int = 400) -> str:
    """Return a tree as a message has it: a long one without its middle."""
    return text if len(text) <= most else f"{text[: most // 2]} … {text[-most // 2 :]}"


def dim(body: object = None, *references: object) -> Dimension:
    """Make a dimension with references, for use in a tree.

    Parameters
    ----------
    body : int, tuple or list, optional
        A size, from 0, or sub-dimensions. Without a body, the dimension is a pure reference, with the size and the
        sub-dimensions of the first reference.
    *references : ArrayType, disp, wrap or func
        References that act on the index from left to right.

    Returns
    -------
    Dimension
        The dimension.

    Raises
    ------
    LayoutError
        The size is negative or not an integer, there are no sub-dimensions, the body is a type, there is neither a body
        nor a reference, a reference is of another kind, or a pure reference begins with a function.

    Examples
    --------
    >>> shifted = parray.ArrayType(parray.dim(4, parray.disp(2)))
    >>> shifted.offsets()
    array([2, 3, 4, 5])
    """
    if isinstance(body, Reference):
        raise LayoutError(
            f"dim({body}, …) has a reference as its body, but a body must be a size or a tuple of sub-dimensions: "
            "write dim(None, …) for a pure reference, or dim(T.size, …)"
        )
    for reference in references:
        if not isinstance(reference, Reference):
            raise LayoutError(
                f"{reference!r} is not a reference; a dimension can refer to an array type, disp(e), wrap(n) or "
                "func(f): turn a tree into a type first, with ArrayType(…)"
            )
    chosen: tuple[Reference, ...] = references  # type: ignore[assignment]
    if body is None:
        return Dimension(None, chosen)
    inner = dimension_of(body)
    if not chosen:
        return inner
    if inner.references:
        raise LayoutError(
            f"dim({inner}, …) has a dimension with references as its body; put it in a tuple: dim((…,), …)"
        )
    return Dimension(inner.body, chosen)


def dimension_of(tree: object, level: int = 0) -> Dimension:
    """Return the dimension that something in a tree stands for."""
    if isinstance(tree, Dimension):
        return tree
    if isinstance(tree, Reference):
        if not tree.counts:
            raise LayoutError(f"{tree} in a tree is not a size; write dim(None, {tree}), or dim(n, {tree})")
        return Dimension(None, (tree,))
    if isinstance(tree, (tuple, list)):
        if level >= MOST_LEVELS:
            raise LayoutError(f"a tree of more than {MOST_LEVELS} levels is too deep; use fewer levels")
        if not tree:
            raise LayoutError("a dimension has an empty tuple of sub-dimensions; give it one or more, or a size")
        return Dimension(tuple([dimension_of(sub, level + 1) for sub in tree]), ())
    size = integer(tree, "the size of a dimension")
    if size < 0:
        raise LayoutError(f"the size of a dimension is {size}; it must be 0 or more")
    return Dimension(size, ())


def chain_of(references: tuple[Reference, ...]) -> int:
    """Return the bits of the units that a chain of references counts; 0 for an empty chain."""
    if not references:
        return 0
    found = MEMORY
    for k, reference in enumerate(references):
        found = reference.counts or found
        if found == MEMORY | THREADS and k < len(references) - 1:
            raise LayoutError(
                f"{abridged(text_of(None, references))}: the distributed type {abridged(str(reference))} is not the "
                "last in a chain of references; its place is not an index: make it the last reference"
            )
    return found


def last_type(references: tuple[Reference, ...]) -> Reference:
    """Return the last type in a chain that has one."""
    return next(reference for reference in reversed(references) if reference.counts)


def _length(references: tuple[Reference, ...]) -> int:
    """Return the size of a pure reference."""
    if not references:
        raise LayoutError(
            "a dimension has neither a body nor references; give it a size, sub-dimensions or a reference"
        )
    length = references[0].length
    if length is None:
        raise LayoutError(
            f"a pure reference begins with {references[0]}, which has no size; give it one: dim(n, func(f))"
        )
    return length


def _one_team(teams: list[Reference]) -> tuple[Reference, ...]:
    """Return the one thread array of some; raise `LayoutError` where there are two."""
    for team in teams[1:]:
        if team != teams[0]:
            raise LayoutError(
                f"two thread arrays in one type, {abridged(str(teams[0]))} and {abridged(str(team))}; a type is "
                "distributed over one: refer only to sub-dimensions of one thread array"
            )
    return tuple(teams[:1])
