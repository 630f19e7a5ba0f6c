"""The names in the text of a kernel: the slots of its arguments, its variables, and how it reaches elements."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from offload.loops.emit.c_prelude import C_TYPES, MEMORY_TYPES
from offload.loops.tree.promotion import words_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from offload.loops.tree import ir
    from offload.loops.tree.ir import Dtype, Typed

FieldKind: TypeAlias = Literal[
    "pointer",
    "copies",
    "extent",
    "stride",
    "scalar",
    "start",
    "step",
    "trips",
    "partials",
    "report",
    "result",
    "blocks",
    "cancel",
]
Dialect: TypeAlias = Literal["c", "cuda"]
Layout: TypeAlias = Literal["C", "inner", "strided", "packed"]
_VARIABLES: Final[dict[FieldKind, str]] = {
    "pointer": "p_{name}",
    "copies": "c_{name}",
    "extent": "n{number}_{name}",
    "stride": "s{number}_{name}",
    "scalar": "v_{name}",
    "start": "start{number}",
    "step": "step{number}",
    "trips": "trips{number}",
    "partials": "partials",
    "report": "record",
    "result": "result_{name}",
    "blocks": "blocks",
    "cancel": "cancel",
}


@dataclass(frozen=True, slots=True)
class ArgumentSlot:
    """A slot of 8 bytes in the structure of arguments."""

    # `"pointer"` of an array; `"copies"`: of one copy a worker of an array; `"extent"`; `"stride"`, in bytes;
    # `"scalar"`: its bits in the low bytes; `"start"`, `"step"`, `"trips"` of an axis; `"partials"`: the address of the
    # chunks' slots; `"report"`: that of the record of what was wrong; `"cancel"`: that of a word that is set when
    # nobody wants what a run in order computes. On CUDA `"copies"` is the place in a block's shared memory, in words of
    # 8 bytes, and there are `"result"`: the address to which the value of a scalar that comes out is written, and
    # `"blocks"`: how many have left partial results.
    kind: FieldKind
    name: str = ""  # of the array or scalar
    number: int = 0  # of the dimension or axis, or of the word of a scalar


@dataclass(slots=True)
class KernelScope:
    """The names that the text of a kernel may use, and those that it has used so far."""

    typed: Typed  # the function
    modes: Mapping[int, ir.Mode]  # how accesses are checked, by `at`
    layouts: Mapping[str, Layout]  # of arrays; others are strided
    copies: frozenset[str]  # arrays of which a worker, or a block, has a copy
    own: frozenset[str]  # scalars of the iteration: all others are inputs
    locals: Mapping[str, tuple[int, ...]]  # shapes of local arrays
    privates: Mapping[str, str]  # arrays of which an iteration has its own, with the clause
    dialect: Dialect = "c"  # which operators and functions there are
    # 32 where extents, strides in bytes, offsets, trips and the variables of axes are such numbers.
    index_bits: int = 64
    # Variables of loops that have 32 bits. As values of the program they are made 64 bits wide.
    narrow: frozenset[str] = frozenset()
    truncates: bool = False  # whether floats become integers anywhere
    tried: frozenset[int] = frozenset()  # loads that are tried where they are written now; see `OnceChecked`
    # What stands for a loop's variable where an index is tested before it.
    ends: dict[str, str] = field(default_factory=dict)
    fields: dict[ArgumentSlot, None] = field(default_factory=dict)  # the slots that the text has used, in their order
    guarded: dict[str, None] = field(default_factory=dict)  # arrays of which checked loads need a spare element

    def use(self, kind: FieldKind, name: str = "", number: int = 0) -> str:
        """Return the variable of a slot, which is one from now on."""
        self.fields[ArgumentSlot(kind, name, number)] = None
        return _VARIABLES[kind].format(name=name, number=number)

    def dtype(self, name: str) -> Dtype:
        """Return the type of a scalar, or of an array's elements."""
        arrays = self.typed.arrays
        return arrays[name].dtype if name in arrays else self.typed.scalars[name].dtype

    def ctype(self, name: str) -> str:
        """Return the C type of a scalar's variable."""
        return "int32_t" if name in self.narrow else C_TYPES[self.dtype(name)]

    def variable(self, name: str) -> str:
        """Return the variable that holds a scalar."""
        if name in self.own:
            return self.ends.get(name, f"v_{name}")
        return self.scalar(name)

    def scalar(self, name: str) -> str:
        """Return the variable of a scalar that is an input; its words lie side by side."""
        first, *_ = [self.use("scalar", name, word) for word in range(words_of(self.dtype(name)))]
        return first

    def extent(self, array: str, dimension: int) -> str:
        if array in self.locals:
            return str(self.locals[array][dimension])
        return self.use("extent", array, dimension)

    @property
    def index_type(self) -> str:
        return f"int{self.index_bits}_t"

    def element(self, array: str, places: Sequence[str], *, guarded: bool = False, is_original: bool = False) -> str:
        """Return the lvalue of an element.

        A guarded one of an empty array is a spare one; the original one of an array that is private, or that workers
        have copies of, is the argument's.
        """
        if not is_original and (array in self.locals or array in self.privates):
            return f"q_{array}[{self._linear(array, places)}]"
        if array in self.copies and not is_original:
            return f"{self.use('copies', array)}[{self._linear(array, places)}]"
        pointer = self.use("pointer", array)
        if guarded:
            pointer = f"z_{array}"
        layout = self.layouts.get(array, "strided")
        if layout == "C" or (not places and layout != "packed"):
            return f"{pointer}[{self._linear(array, places)}]"
        n_strided = len(places) - (layout == "inner")
        casts = "(int32_t)" if self.index_bits == 32 else ""
        strides = [self.use("stride", array, k) for k in range(n_strided)]
        offset = " + ".join(f"{casts}{place} * {stride}" for place, stride in zip(places, strides, strict=False))
        row = f"((const char *){pointer} + {offset})" if n_strided else pointer
        ctype = MEMORY_TYPES[self.dtype(array)]
        if layout == "packed":  # elements may lie at any byte
            return f"((struct {{ {ctype} v; }} __attribute__((packed)) *){row})->v"
        return f"(({ctype} *){row})[{self._linear(array, places[-1:]) if layout == 'inner' else 0}]"

    def bound(self, array: str, dimension: int) -> str:
        """Return the bound in the checks of a load: the extent, or 0 in every dimension of an empty array."""
        if array in self.locals:
            return str(self.locals[array][dimension])
        self.guarded[array] = None
        for k in range(self.typed.arrays[array].ndim):
            self.use("extent", array, k)
        return f"b{dimension}_{array}"

    def _linear(self, array: str, places: Sequence[str]) -> str:
        if not places:
            return "0"
        text = places[0]
        for k, place in enumerate(places[1:], 1):
            text = f"({text} * {self.extent(array, k)} + {place})"
        return text
