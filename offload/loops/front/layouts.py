"""Array types as loops know them: objects that say where an element is.

`offload.parray` is a higher room. It enters its types here when it is imported (`enter`), with the functions that
compute with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeGuard

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class AnyLayout(Protocol):
    """An array type."""

    @property
    def size(self) -> int: ...  # number of elements
    @property
    def dims(self) -> tuple[AnyLayout, ...]: ...  # the sub-dimensions; none of a leaf
    @property
    def span(self) -> int: ...  # elements of the storage
    @property
    def kind(self) -> str: ...  # ``"both"``: a place is a thread and an offset
    def __hash__(self) -> int: ...


class Reckoner(NamedTuple):
    """The functions that compute with the types of a class; each raises `LayoutError`."""

    check: Callable[[Any], None]  # refuses a type whose places no arithmetic gives
    is_affine: Callable[[Any], bool]
    # ``place(type, parts)``: the thread and the offset of an element, by sizes and numbers of a mixed radix
    place: Callable[[Any, Sequence[tuple[int, Any]]], tuple[Any, Any]]


# The methods of types that loops have.
METHODS: Final = ("ravel", "unravel")

# The classes of array types.
KINDS: Final[dict[type, Reckoner]] = {}


def enter(kind: type, reckoner: Reckoner) -> None:
    """Let loops use the types of a class. They are hashable, and equal types have equal places."""
    KINDS[kind] = reckoner


def is_layout(value: object) -> TypeGuard[AnyLayout]:
    """Tell whether a value is an array type."""
    return value.__class__ in KINDS


def reckoner_of(layout: AnyLayout) -> Reckoner:
    """Return the functions for an array type."""
    return KINDS[layout.__class__]


def described(layout: Any) -> str:
    """Return an array type in words, for reports."""
    return f"{layout!r}, {'affine' if reckoner_of(layout).is_affine(layout) else 'not affine'}"
