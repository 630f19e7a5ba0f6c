"""Write a nest of a typed loop function as CUDA: the differences from C.

A thread is an iteration: the innermost loop on ``x``, the next on ``y``, all others on ``z``. A thread continues with
further iterations only if the grid is smaller than the loop (`CudaVariant.is_strided`). With `CudaVariant.team` a
block, or a row of it, has an iteration (`c_teams`). The structure of arguments is passed by value: nvcc then knows that
its pointers lead to global memory.

A block combines the reduction items of its threads by shuffles. The kernel ``finish`` combines the blocks' partial
results onto the value before the loop. The grid fixes all orders, so results are the same in every run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from offload.loops.emit import c_cuda
from offload.loops.emit.c_cuda import combine, combining
from offload.loops.emit.c_expressions import literal
from offload.loops.emit.c_host import indented
from offload.loops.emit.c_prelude import C_TYPES
from offload.loops.emit.c_statements import ATOMICS
from offload.loops.emit.c_teams import SharedStatements
from offload.loops.emit.emit_c import CKernel, CVariant, KernelWriter, copied, scope_of
from offload.loops.front.levels import loops_in
from offload.loops.tree import ir
from offload.loops.tree.nodes import walk
from offload.loops.tree.promotion import identity, is_complex, words_of
from offload.loops.tree.sizes import ROW

if TYPE_CHECKING:
    from collections.abc import Iterator

    from offload.loops.emit.c_scope import ArgumentSlot, KernelScope
    from offload.loops.emit.c_statements import Statements
    from offload.loops.front.levels import Sharing, Team
    from offload.loops.tree.ir import Nest, ReductionOperator, Typed

LOOP: Final = "loop"
# The kernels of a nest; the second is there if it has reductions, the third before the first if it is a scan.
FINISH: Final = "finish"
BEGIN: Final = "begin"

FINISH_THREADS: Final = 1024


@dataclass(frozen=True, slots=True)
class CudaVariant(CVariant):
    """The launcher's decisions about a nest on CUDA."""

    # 32 where all numbers that have to do with places are below 2**31, with those of the grid's last threads. The
    # variables of axes have as many bits.
    index_bits: int = 64
    # Variables of inner loops that have 32 bits, if places have; see `NestAccesses.narrow`.
    narrow: tuple[str, ...] = ()
    n_threads: int = 256  # of a block
    is_strided: bool = False  # whether there may be fewer threads than iterations
    privates: tuple[tuple[str, int], ...] = ()  # elements of private arrays
    empty: tuple[str, ...] = ()  # arrays without elements
    team: Team | None = None  # the threads that carry out an iteration together; None: one
    # The loops that they share, as in `offload.loops.front.levels.Levels`.
    shared: tuple[tuple[int, Sharing], ...] = ()
    scan_rows: int = 0  # of a scan: the iterations that a thread has of a tile


def emit_cuda(typed: Typed, nest: Nest, variant: CudaVariant) -> CKernel:
    """Return a nest as CUDA: kernels ``loop`` and, if it has reductions, ``finish``, each of the same structure."""
    return CudaWriter(typed, nest, variant, scope_for(typed, nest, variant)).emitted()


def scope_for(typed: Typed, nest: Nest, variant: CudaVariant) -> KernelScope:
    """Return the names that the text of a nest may use."""
    narrow = frozenset(variant.narrow)
    if variant.index_bits == 32:
        narrow |= {axis.variable for axis in nest.axes if typed.scalars[axis.variable].dtype == "int64"}
    return scope_of(typed, nest, variant, "cuda", variant.index_bits, narrow)


class CudaWriter(KernelWriter):
    """Writes a nest; ``scope`` is the result of `scope_for` for the other arguments."""

    _variant: CudaVariant
    _parameters = frozenset()

    def __init__(self, typed: Typed, nest: Nest, variant: CudaVariant, scope: KernelScope) -> None:
        self._team: SharedStatements | None = None  # writes the statements of a team; None: a thread has the iteration
        super().__init__(typed, nest, variant, scope)
        written = {node.array for node in walk(*nest.body) if isinstance(node, (ir.Store, ir.Atomic))}
        written |= {item.name for item in nest.reductions}
        loaded = {node.array for node in walk(*nest.body) if isinstance(node, ir.Load)}
        self._passed_on = written & loaded if variant.team is not None else set[str]()  # from thread to thread
        # arrays without a read-only pointer
        self._written = written | {name for name, kind in nest.privates.items() if kind == "lastprivate"}

    def _writer(self) -> Statements:
        variant = self._variant
        if variant.team is None:
            return super()._writer()
        loops = loops_in(self._nest)
        shared = {id(loops[number]): sharing for number, sharing in variant.shared}
        is_restricted = variant.is_restricted
        self._team = SharedStatements(
            self._scope,
            self._nest,
            variant.team,
            shared,
            is_restricted=is_restricted,
            is_ordered=variant.is_ordered,
            can_fail=self._can_fail,
        )
        return self._team

    # -- what a thread is given --------------------------------------------------------------------------

    def _bodies(self) -> list[list[str]]:
        loop = [*self._fill_copies(), *self._stopped(self._loops()), *self._merge_copies(), *self._leave_partials()]
        return [loop, self._finish()] if self._nest.reductions else [loop]

    def _text(self, head: list[str], bodies: list[list[str]]) -> str:
        lines = [f"typedef struct {{ int64_t slots[{max(len(self._scope.fields), 1)}]; }} Arguments;", ""]
        if self._variant.copies:
            lines += ["extern __shared__ uint64_t shared[];", ""]
        for operator, dtype in dict.fromkeys(self._combined()):
            lines += [combine(operator, dtype), ""]
        for (name, bounds), body in zip(self._kernels(), bodies, strict=True):
            bound = f"__global__ void __launch_bounds__({bounds})"
            lines += [f'extern "C" {bound} {name}(const __grid_constant__ Arguments arguments)', "{"]
            lines += [*indented(["const int64_t *const slots = arguments.slots;", *head, *body]), "}", ""]
        return c_cuda.text(lines)

    def _kernels(self) -> list[tuple[str, str]]:
        """Return the names of the kernels, with the bounds of their launches, in the order of their bodies."""
        finish = [(FINISH, f"{FINISH_THREADS}")] if self._nest.reductions else []
        return [(LOOP, self._loop_bounds()), *finish]

    def _loop_bounds(self) -> str:
        return f"{self._variant.n_threads}"

    def _combined(self) -> list[tuple[ReductionOperator, ir.Dtype]]:
        """Return the operators by which threads combine values, with the types of these."""
        inner = [] if self._team is None else [*self._team.combined]
        return [*((item.operator, self._scope.dtype(item.name)) for item in self._nest.reductions), *inner]

    def _read(self, field: ArgumentSlot, slot: str) -> str:
        variable = self._scope.use(field.kind, field.name, field.number)
        if field.kind == "pointer":
            ctype = self._memory(field.name) if field.name in self._written else f"const {self._memory(field.name)}"
            restrict = "__restrict__ " if self._variant.is_restricted and field.name not in self._passed_on else ""
            return f"{ctype} *{restrict}const {variable} = ({ctype} *){slot};"
        if field.kind == "copies":
            ctype = self._memory(field.name)
            return f"{ctype} *const {variable} = ({ctype} *)(shared + {slot});"
        return super()._read(field, slot)

    def _own(self) -> Iterator[str]:
        yield from ()  # an iteration has it

    def _guard(self, array: str) -> Iterator[str]:
        if array in self._variant.empty:
            yield from super()._guard(array)
            return
        for k in range(self._typed.arrays[array].ndim):
            yield f"const {self._scope.index_type} b{k}_{array} = n{k}_{array};"
        if array not in self._nest.privates:
            is_alone = self._variant.is_restricted and array not in self._written
            restrict = "__restrict__ " if is_alone else ""
            yield f"const {self._memory(array)} *{restrict}const z_{array} = p_{array};"

    # -- iterations --------------------------------------------------------------------------------------

    def _loops(self) -> list[str]:
        lines = [*[self._variable(k) for k in range(len(self._axes))], *self._iteration()]
        if self._variant.is_ordered:
            return self._in_order(lines)
        if self._team is not None:
            return self._of_teams(lines)
        index, last = self._scope.index_type, len(self._axes) - 1
        lines = self._along("x", f"t{last}", self._trips(last), lines)
        if last:
            lines = self._along("y", f"t{last - 1}", self._trips(last - 1), lines)
        if last > 1:
            places, rest = [], "z"
            for k in range(last - 2, 0, -1):
                places.append(f"const {index} t{k} = {rest} % {self._trips(k)};")
                rest = f"{rest} / {self._trips(k)}"
            lines = [*places, f"const {index} t0 = {rest};", *lines]
            lines = self._along("z", "z", " * ".join(self._trips(k) for k in range(last - 1)), lines)
        return lines

    def _in_order(self, lines: list[str]) -> list[str]:
        for k in reversed(range(len(self._axes))):
            head = f"for ({self._scope.index_type} t{k} = 0; t{k} < {self._trips(k)}; t{k}++) {{"
            lines = [head, *indented(lines), "}"]
        return lines if self._team is not None else ["if (thread_of_block() == 0) {", *indented(lines), "}"]

    def _of_teams(self, lines: list[str]) -> list[str]:
        index, team = self._scope.index_type, self._variant.team
        assert team is not None
        casts = f"({index})" if self._scope.index_bits == 64 else ""
        rows = f" * {team.rows}" if team.rows > 1 else ""
        first = f"{casts}blockIdx.x{rows}" + (" + threadIdx.y" if rows else "")
        places, rest = [], "iteration"
        for k in range(len(self._axes) - 1, 0, -1):
            places.append(f"const {index} t{k} = {rest} % {self._trips(k)};")
            rest = f"{rest} / {self._trips(k)}"
        lines = [*places, f"const {index} t0 = {rest};", *lines]
        trips = " * ".join(self._trips(k) for k in range(len(self._axes)))
        if self._variant.is_strided:
            step = f"iteration += {casts}gridDim.x{rows}"
            head = f"for ({index} iteration = {first}; iteration < {trips}; {step}) {{"
            return [head, *indented(lines), "}"]
        return [f"const {index} iteration = {first};", f"if (iteration < {trips}) {{", *indented(lines), "}"]

    def _along(self, axis: str, trip: str, trips: str, lines: list[str]) -> list[str]:
        """Return the loop over a thread's trips along an axis of the grid; `z` has blocks of one."""
        index = self._scope.index_type
        casts = f"({index})" if self._scope.index_bits == 64 else ""  # the grid ends below 2**31 else
        first = f"{casts}blockIdx.{axis}" + ("" if axis == "z" else f" * blockDim.{axis} + threadIdx.{axis}")
        if self._variant.is_strided:
            step = f"{casts}gridDim.{axis}" + ("" if axis == "z" else f" * blockDim.{axis}")
            head = [f"for ({index} {trip} = {first}; {trip} < {trips}; {trip} += {step}) {{"]
            if self._variant.copies:
                head.insert(0, "#pragma unroll 4")  # so that loads of several trips are under way: 1 % of a histogram
        else:
            head = [f"const {index} {trip} = {first};", f"if ({trip} < {trips}) {{"]
        return [*head, *indented(lines), "}"]

    def _trips(self, k: int) -> str:
        return self._scope.use("trips", number=k)

    def _iteration(self) -> list[str]:
        sizes = dict(self._variant.privates)
        own = [f"{self._memory(array)} q_{array}[{max(1, sizes[array])}];" for array in self._nest.privates]
        return [*own, *super()._iteration()]

    def _has_failed(self) -> str:
        condition = super()._has_failed()
        return condition if self._team is None else f"any_of_{self._team.group}({condition} != 0)"

    def _is_last(self) -> str:
        return super()._is_last() if self._team is None else f"{super()._is_last()} && {self._team.first}"

    def _last_values(self) -> list[str]:
        stores = [f"*({self._slot(name)} *){self._scope.use('result', name)} = v_{name};" for name in self._nest.last]
        return [f"if ({self._is_last()}) {{", *indented(stores), "}"] if stores else []

    # -- copies in shared memory -------------------------------------------------------------------------

    def _fill_copies(self) -> list[str]:
        if not self._variant.copies:
            return []
        lines = []
        for array in self._variant.copies:
            copy = self._scope.use("copies", array)
            lines += [self._each_element(array), f"    {copy}[k] = {self._none(array)};"]
        return [*lines, "__syncthreads();"]

    def _merge_copies(self) -> list[str]:
        if not self._variant.copies:
            return []
        lines = ["__syncthreads();"]
        for array in self._variant.copies:
            dtype, operator = self._typed.arrays[array].dtype, copied(self._nest)[array]
            copy, name = self._scope.use("copies", array), ATOMICS.get(operator, operator)
            places: list[str] = []
            rest = "k"
            for k in range(self._typed.arrays[array].ndim - 1, 0, -1):
                places.insert(0, f"({rest} % {self._scope.extent(array, k)})")
                rest = f"({rest} / {self._scope.extent(array, k)})"
            element = self._scope.element(array, [rest, *places][: self._typed.arrays[array].ndim], is_original=True)
            changed = f"{copy}[k] != {self._none(array)}"
            if is_complex(dtype):
                changed = f"!equal_{dtype}({copy}[k], {self._none(array)})"
            lines += [self._each_element(array), f"    if ({changed})"]
            lines += [f"        atomic_{name}_{dtype}(&{element}, {copy}[k]);"]
        return lines

    def _each_element(self, array: str) -> str:
        size = " * ".join(self._scope.extent(array, k) for k in range(self._typed.arrays[array].ndim)) or "1"
        return f"for (int k = thread_of_block(); k < {size}; k += threads_of_block())"

    def _none(self, array: str) -> str:
        dtype = self._typed.arrays[array].dtype
        return literal(identity(cast("ReductionOperator", copied(self._nest)[array]), dtype), dtype)

    # -- reductions --------------------------------------------------------------------------------------

    def _leave_partials(self) -> list[str]:
        lines = self._over_block(self._variant.n_threads)
        if lines:
            partials, n = self._scope.use("partials"), self._n_reduced()
            lines += ["if (thread_of_block() == 0) {"]
            for item in self._nest.reductions:
                at = f"{partials} + block_of_grid() * {n} + {self._words[item.name].start}"
                lines.append(f"    *({self._slot(item.name)} *)({at}) = r_{item.name};")
            lines += ["}"]
        return lines

    def _over_block(self, n_threads: int) -> list[str]:
        """Return the lines that combine the items of a block's threads."""
        lines = []
        for item in self._nest.reductions:
            dtype = self._scope.dtype(item.name)
            of = f"{C_TYPES[dtype]}, {combining(item.operator, dtype)}"
            none = literal(identity(item.operator, dtype), dtype)
            value = f"over_block<{of}>(r_{item.name}, {none})" if n_threads >= ROW else f"over_few<{of}>(r_{item.name})"
            lines.append(f"r_{item.name} = {value};")
        return lines

    def _n_reduced(self) -> int:
        """Return how many words a block leaves."""
        return sum(words_of(self._scope.dtype(item.name)) for item in self._nest.reductions)

    def _slot(self, name: str) -> str:
        return "complex128_slot" if self._scope.dtype(name) == "complex128" else super()._slot(name)

    def _finish(self) -> list[str]:
        """Return the lines by which one block combines the partial results of all."""
        partials, blocks, n = self._scope.use("partials"), self._scope.use("blocks"), self._n_reduced()
        of_block = []
        stores = []
        for item in self._nest.reductions:
            name, slot = item.name, self._slot(item.name)
            partial = f"*(const {slot} *)({partials} + block * {n} + {self._words[name].start})"
            function = combining(item.operator, self._scope.dtype(name))
            of_block.append(f"r_{name} = {function}(r_{name}, {partial});")
            if name in self._typed.arrays:
                to = before = self._scope.element(name, ["0"] * self._typed.arrays[name].ndim)
            else:
                to, before = f"*({slot} *){self._scope.use('result', name)}", self._scope.scalar(name)
            stores.append(f"{to} = {function}({before}, r_{name});")
        return [
            f"for (int64_t block = thread_of_block(); block < {blocks}; block += threads_of_block()) {{",
            *indented(of_block),
            "}",
            *self._over_block(FINISH_THREADS),
            "if (thread_of_block() == 0) {",
            *indented(stores),
            "}",
        ]
