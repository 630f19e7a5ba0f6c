"""Write a nest as a scan in CUDA: one kernel reads each element once, and blocks pass on what they have.

The iterations are one line, cut into *tiles*. Blocks take tiles in the order in which they begin to run, so no block
waits for a tile that has not begun. A row of 32 threads has consecutive iterations of a tile. Each thread has every
32nd of these. A block computes the totals of its iterations, keeps them in registers, and publishes their sum.

Then it needs the sum of all tiles before. 32 tiles are a group, and 32 groups are a group of groups. The last tile of
each publishes the sum, as soon as it knows the sums of the others, so that no group waits for the group before it. So
the block reads the tiles of its own group, the groups of its group of groups, and all earlier groups of groups. The
order of operations follows from the number of iterations alone. At last the iterations run, each with the values that
the items have before it.

``begin`` clears the words by which sums are published, before ``loop``. Behind the partial results of reductions,
``partials`` has the number of tiles that were taken, and the sums of tiles, of groups and of groups of groups.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from offload.loops.emit.c_cuda import combining
from offload.loops.emit.c_expressions import literal
from offload.loops.emit.c_host import indented
from offload.loops.emit.c_prelude import C_TYPES
from offload.loops.emit.c_scans import TotalsWriter, of_totals, total_of
from offload.loops.emit.emit_cuda import BEGIN, FINISH_THREADS, CudaWriter, scope_for
from offload.loops.emit.grids import SCAN_THREADS_AT_A_TIME, SUM_WORDS
from offload.loops.tree.promotion import identity
from offload.loops.tree.recurrences import with_totals

if TYPE_CHECKING:
    from offload.loops.emit.c_scope import KernelScope
    from offload.loops.emit.emit_c import CKernel
    from offload.loops.emit.emit_cuda import CudaVariant
    from offload.loops.tree import ir
    from offload.loops.tree.ir import Nest, Typed

# Tiles of a group, and groups of a group of groups: what a row of threads reads at a time.
_GROUP_BITS: Final = 5


def emit_cuda_scan(typed: Typed, nest: Nest, variant: CudaVariant) -> CKernel:
    """Return a nest as CUDA: kernels ``begin``, ``loop`` and, if it has reductions, ``finish``."""
    given = _given_names(typed, nest)
    nest = replace(nest, body=with_totals(nest, given))
    scope = scope_for(typed, nest, variant)
    scope.own |= {*given.values()}
    return _CudaScanWriter(typed, nest, variant, scope, given).emitted()


def _given_names(typed: Typed, nest: Nest) -> dict[str, str]:
    """Return the names of the scalars by which iterations are given their totals, by item."""
    assert nest.scan is not None
    names: dict[str, str] = {}
    for item in nest.scan.items:
        name = f"total_{item.name}"
        while name in typed.scalars or name in typed.arrays or name in names.values():
            name += "_"
        if item.name not in nest.scan.started:  # whose start is in the total of the first iteration
            names[item.name] = name
    return names


class _CudaScanWriter(CudaWriter):
    """Writes the kernels; see above."""

    def __init__(
        self, typed: Typed, nest: Nest, variant: CudaVariant, scope: KernelScope, given: dict[str, str]
    ) -> None:
        super().__init__(typed, nest, variant, scope)
        assert nest.scan is not None
        self._scan: ir.Scan = nest.scan
        self._given = given  # the scalars by which iterations are given their totals, by item
        self._totals = TotalsWriter(typed, of_totals(nest), variant, scope)
        self._totals.end_at("next_total")

    def _start_carried(self) -> None:
        """Have items start from their values before the nest, unless the first iteration has these."""
        for item in self._scan.items:
            if item.name not in self._scan.started:
                self._scope.use("scalar", item.name)

    # -- kernels -----------------------------------------------------------------------------------------

    def _kernels(self) -> list[tuple[str, str]]:
        return [(BEGIN, f"{FINISH_THREADS}"), *super()._kernels()]

    def _loop_bounds(self) -> str:
        """Say how many blocks are to run at a time, so that some load while others wait for the tiles before."""
        return f"{super()._loop_bounds()}, {max(1, SCAN_THREADS_AT_A_TIME // self._variant.n_threads)}"

    def _combined(self) -> list[tuple[ir.ReductionOperator, ir.Dtype]]:
        return [*super()._combined(), *((item.operator, self._scope.dtype(item.name)) for item in self._scan.items)]

    def _bodies(self) -> list[list[str]]:
        finish = [self._finish()] if self._nest.reductions else []
        return [self._begin(), self._tiles(), *finish]

    def _places(self) -> list[str]:
        """Return the lines that tell where the sums of tiles, of groups, and of groups of groups are."""
        partials, tiles, n = self._scope.use("partials"), self._scope.use("blocks"), self._n_reduced()
        of_each = SUM_WORDS * len(self._scan.items)
        return [
            f"const int64_t n_groups = ({tiles} + 31) >> {_GROUP_BITS};",
            f"uint64_t *const taken = (uint64_t *){partials} + {tiles} * {n};",
            "uint64_t *const of_tiles = taken + 1;",
            f"uint64_t *const of_groups = of_tiles + (int64_t){tiles} * {of_each};",
            f"uint64_t *const of_wide = of_groups + n_groups * {of_each};",
        ]

    def _begin(self) -> list[str]:
        of_each = SUM_WORDS * len(self._scan.items)
        return [
            *self._places(),
            f"uint64_t *const end = of_wide + ((n_groups + 31) >> {_GROUP_BITS}) * {of_each};",
            "for (uint64_t *word = taken + thread_of_block(); word < end; word += threads_of_block())",
            "    *word = 0;",
        ]

    def _tiles(self) -> list[str]:
        tiles = self._scope.use("blocks")
        taken = "thread_of_block() == 0 ? (int64_t)atomicAdd(taken, 1ull) : 0"
        lines = [f"const int64_t tile = from_block<int64_t>({taken});", *self._tile()]
        if not self._variant.is_strided:  # each block has one
            return [*self._places(), *lines]
        lines[1:1] = [f"if (tile >= {tiles})", "    break;"]
        return [*self._places(), "for (;;) {", *indented(lines), "}"]

    # -- a tile ------------------------------------------------------------------------------------------

    def _tile(self) -> list[str]:
        index, rows = self._scope.index_type, self._variant.scan_rows
        size = " * ".join(f"({index}){self._trips(k)}" for k in range(len(self._axes)))
        first = f"({index})tile * {rows * self._variant.n_threads} + (thread_of_block() >> 5) * {32 * rows} + lane"
        lines = [
            "const int lane = thread_of_block() & 31;",
            f"const {index} n_iterations = {size};",
            f"const {index} first = {first};",
        ]
        lines += [f"r_{item.name} = {self._nothing(item)};" for item in self._nest.reductions]
        lines += self._of_iterations()
        lines += self._before()
        lines += self._iterations()
        return [*lines, *self._leave_partials()]

    def _each(self, lines: list[str]) -> list[str]:
        """Return lines for each iteration of a thread, in the order of its row."""
        head = f"for (int k = 0; k < {self._variant.scan_rows}; k++) {{"
        place = f"const {self._scope.index_type} iteration = first + k * 32;"
        return ["#pragma unroll", head, *indented([place, *lines]), "}"]

    def _one(self, lines: list[str]) -> list[str]:
        """Return the lines of an iteration, behind those that give the axes their values."""
        index = self._scope.index_type
        places, rest = [], "iteration"
        for k in range(len(self._axes) - 1, 0, -1):
            places.append(f"const {index} t{k} = {rest} % {self._trips(k)};")
            rest = f"{rest} / {self._trips(k)}"
        places.append(f"const {index} t0 = {rest};")
        places += [self._variable(k) for k in range(len(self._axes))]
        return ["if (iteration < n_iterations) {", *indented([*places, *lines]), "}"]

    def _of_iterations(self) -> list[str]:
        """Return the lines that compute the totals of a thread's iterations, and publish those of the tile."""
        lines, each = [], []
        for item in self._scan.items:
            ctype, name = self._ctype(item), item.name
            lines.append(
                f"{ctype} kept_{name}[{self._variant.scan_rows}], row_{name} = {self._nothing(item)}, all_{name};"
            )
            each.append(f"kept_{name}[k] = r_{name};")
            each.append(f"row_{name} = {self._combining(item)}(row_{name}, r_{name});")
        totals = [total_of(item, self._scope) for item in self._scan.items]
        lines += self._each([*totals, *self._one(self._totals.iteration()), *each])
        for item in self._scan.items:
            name, function = item.name, f"{self._ctype(item)}, {self._combining(item)}"
            lines.append(
                f"const {self._ctype(item)} before_{name} = before_row<{function}, {self._variant.n_threads // 32}>("
                f"over_row<{function}>(row_{name}), {self._nothing(item)}, &all_{name});"
            )
        return [*lines, *self._publish("thread_of_block() == 0", "of_tiles", "tile", "all")]

    def _before(self) -> list[str]:
        """Return the lines that find the items' values before the iterations of each row.

        The last tile of a group publishes its sum before it waits for other groups, so no group waits for another.
        """
        starts, of_tiles, group, of_groups, wide, before, carried = [], [], [], [], [], [], []
        for item in self._scan.items:
            name, ctype, combine = item.name, self._ctype(item), self._combining(item)
            over, none = f"over_row<{ctype}, {combine}>", self._nothing(item)
            start = none if name in self._scan.started else self._scope.use("scalar", name)
            starts.append(f"{ctype} start_{name} = {start};")
            here = self._awaited("of_tiles", item, "tile & ~31ll", "tile")
            of_tiles.append(f"const {ctype} here_{name} = {here};")
            of_tiles.append(f"{ctype} group_{name} = {none}, wide_{name} = {none};")
            group.append(f"group_{name} = {over}(lane == 31 ? all_{name} : here_{name});")
            groups = self._awaited("of_groups", item, "group & ~31ll", "group")
            of_groups.append(f"{ctype} earlier_{name} = {groups};")
            wide.append(f"wide_{name} = {over}(lane == 31 ? group_{name} : earlier_{name});")
            earlier = self._awaited("of_wide", item, "at", "group >> 5")
            before += [
                "for (int64_t at = 0; at < group >> 5; at += 32)",
                f"    earlier_{name} = {combine}(earlier_{name}, {earlier});",
                f"start_{name} = {combine}(start_{name}, {over}({combine}(earlier_{name}, here_{name})));",
            ]
            carried.append(f"{ctype} carry_{name} = {combine}(from_block(start_{name}), before_{name});")
        group += self._publish("lane == 0", "of_groups", "group", "group")
        wide += self._publish("lane == 0", "of_wide", "(group >> 5)", "wide")
        lines = [f"const int64_t group = tile >> {_GROUP_BITS};", *of_tiles]
        lines += ["if ((tile & 31) == 31) {", *indented(group), "}", *of_groups]
        lines += ["if ((tile & 1023) == 1023) {", *indented(wide), "}", *before]
        return [*starts, "if (thread_of_block() < 32) {", *indented(lines), "}", *carried]

    def _iterations(self) -> list[str]:
        """Return the lines that carry out a thread's iterations."""
        before, starts, after = [], [], []
        for item in self._scan.items:
            name, ctype, combine = item.name, self._ctype(item), self._combining(item)
            before += [
                f"const {ctype} upto_{name} = up_to<{ctype}, {combine}>(kept_{name}[k]);",
                f"const {ctype} left_{name} = ({ctype})__shfl_up_sync(0xffffffffu, upto_{name}, 1);",
                f"const {ctype} last_{name} = ({ctype})__shfl_sync(0xffffffffu, upto_{name}, 31);",
            ]
            starts.append(f"{ctype} v_{name} = lane == 0 ? carry_{name} : {combine}(carry_{name}, left_{name});")
            if name in self._given:
                starts.append(f"const {ctype} v_{self._given[name]} = kept_{name}[k];")
            after.append(f"carry_{name} = {combine}(carry_{name}, last_{name});")
        return self._each([*before, *self._one([*starts, *self._iteration()]), *after])

    def _leave_partials(self) -> list[str]:
        return [line.replace("block_of_grid()", "tile") for line in super()._leave_partials()]

    # -- words -------------------------------------------------------------------------------------------

    def _publish(self, condition: str, sums: str, place: str, value: str) -> list[str]:
        """Return the lines by which one thread publishes the items' sums of a tile, group or group of groups."""
        n = len(self._scan.items)
        lines = [
            f"publish({sums} + ({place} * {n} + {k}) * {SUM_WORDS}, {value}_{item.name});"
            for k, item in enumerate(self._scan.items)
        ]
        return [f"if ({condition}) {{", *indented(lines), "}"]

    def _awaited(self, sums: str, item: ir.LoopReduction, first: str, end: str) -> str:
        """Return what a lane reads of the sums of an item, from first to end."""
        k, n = self._scan.items.index(item), len(self._scan.items)
        given = f"{sums} + {k * SUM_WORDS}, {n * SUM_WORDS}, {first}, {end}, {self._nothing(item)}"
        return f"published<{self._ctype(item)}>({given})"

    def _ctype(self, item: ir.LoopReduction) -> str:
        return C_TYPES[self._scope.dtype(item.name)]

    def _combining(self, item: ir.LoopReduction) -> str:
        return combining(item.operator, self._scope.dtype(item.name))

    def _nothing(self, item: ir.LoopReduction) -> str:
        """Return the value that changes nothing."""
        dtype = self._scope.dtype(item.name)
        return literal(identity(item.operator, dtype), dtype)
