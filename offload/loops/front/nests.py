"""Nests, and the scalar statements around them: the work of the host and of an iteration, and the values between.

The associated loops become axes, whose bounds the host evaluates. The body is lowered with the nest's reductions in
force. Then `flow` goes through an iteration: what it reads without having assigned it comes from before the loop, or
breaks a rule. That is done before anything sinks to the head of the iteration (`Sunk`): what has sunk is assigned
in each iteration, and would hide that the program carries it from one to the next.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Literal, NoReturn

from offload.loops.front.calls import known_name
from offload.loops.front.carrying import at_first, items_started_in
from offload.loops.front.counting import collapsed_loops, levels_in, range_of
from offload.loops.front.flow import Flow
from offload.loops.front.frames import Absent, Binding, Frame, Lowering, Parameter, PassedLayout, ReducedItem, Scalar
from offload.loops.front.inline import RULES
from offload.loops.front.levels import loops_in
from offload.loops.front.statements import assigned_otherwise
from offload.loops.front.values import listed
from offload.loops.tree import ir
from offload.loops.tree.nodes import has_load, names_assigned, names_in, renamed, walk
from offload.loops.tree.recurrences import reads_items, scan_of
from offload.loops.tree.sizes import size_error
from offload.loops.tree.text import refusal
from offload.loops.tree.updates import updated_only

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from offload.errors import LoopError
    from offload.loops.front.flow import State
    from offload.loops.front.layouts import AnyLayout
    from offload.loops.front.source import FunctionSource


@dataclass(frozen=True, slots=True, kw_only=True)
class NestClauses:
    """The clauses of a construct about its nest."""

    collapse: int = 1  # how many loops are one iteration space
    # Items, by the names of parameters and variables.
    reductions: tuple[ir.LoopReduction, ...] = ()
    private: tuple[str, ...] = ()  # names of the function
    firstprivate: tuple[str, ...] = ()
    lastprivate: tuple[str, ...] = ()
    atomic: tuple[str, ...] = ()
    # As in `ir.LoopClauses`.
    level: str = ""
    sizes: tuple[tuple[str, int], ...] = ()  # numbers of a launch shape, by clause
    order: Literal["", "seq", "independent", "auto"] = ""  # empty: asserted by the construct
    tile: tuple[int, ...] = ()  # one size a loop
    # Whether there may be several nests, with reductions that are found, as `kernels_loop` has them.
    several: bool = False
    checks: bool = False  # whether `assert` stays
    speculate: object = None  # not None: nobody has proved that iterations are independent


class LoopText:
    """The text of a loop function, read from top to bottom: its parts so far, and the state between them."""

    def __init__(
        self, source: FunctionSource, clauses: NestClauses, absent: frozenset[str], layouts: Mapping[str, AnyLayout]
    ) -> None:
        names: dict[str, Binding] = {
            parameter.arg: Absent() if parameter.arg in absent else Parameter(parameter.arg)
            for parameter in source.parameters
        }
        names |= {name: PassedLayout(layout) for name, layout in layouts.items()}
        taken, atomics = set(source.identifiers), frozenset(clauses.atomic)
        # the state that all frames of the function share
        self._lowering = Lowering(RULES, taken, checks=clauses.checks, atomics=atomics)
        self._lowering.steady |= {name for name in names if name not in source.assigned}
        self.frame = Frame(self._lowering, source, names, [], is_called=False)  # of the loop function itself
        self.clauses = clauses  # of the construct
        self.absent = absent  # the parameters that are None
        self.parts: list[ir.Statement | ir.Nest] = []  # as in `ir.ParsedFunction`
        self.returned: frozenset[str] = frozenset()  # the names after `return`
        self._sunk = Sunk()  # the statements that each iteration carries out for itself
        # the variables that have a value on every path to here
        self._assigned: State = frozenset(names) - absent - layouts.keys()
        self._lost: dict[str, ir.Nest] = {}  # variables whose value an earlier nest has kept to its iterations

    # -- scalar statements

    def on_host(self, node: ast.stmt) -> None:
        """Lower a scalar statement outside of nests."""
        with self.frame.block(ends_rows=False) as statements:
            self.frame.statement(node)
        self._keep(statements)

    def _keep(self, statements: list[ir.Statement]) -> None:
        flow = Flow(self._unset, frozenset(), self._lowering.flags)
        self._assigned = flow.through(statements, self._assigned)
        for name in names_assigned(*statements):
            self._lost.pop(name, None)
        for statement in statements:
            if not self._sunk.takes(statement, len(self.parts)):
                self.parts.append(statement)

    def _unset(self, name: str, place: ir.SourceLine) -> NoReturn:
        if name in self._lost:
            raise refusal(
                place,
                "unbound",
                f"{name} is assigned by the loop at line {self._lost[name].place.line}, whose iterations have private "
                "copies of it; return it from a loop function of its own, or store it in an array",
            )
        raise unbound([self._lowering.origins.get(name, name)], place)

    # -- nests

    def nest(self, node: ast.For) -> None:
        """Lower a nest, and append it with the statements that sink into it."""
        given, lowering = self.clauses, self._lowering
        outer = range_of(self.frame, node, "range")
        loops = collapsed_loops(self.frame, node, self._n_loops(node, outer.clauses))
        axes = tuple([self._axis(loop) for loop in loops])
        body = loops[-1].body
        reductions = self._reductions(body, (*given.reductions, *outer.clauses.reductions))
        started = items_started_in(body, reductions, partial(known_name, self.frame)) & self.returned
        reductions = tuple([one for one in reductions if one.name not in started])
        names = [one.name for one in reductions]
        self._check_reduced(node, names)
        lowering.items = {one.name: ReducedItem(one.operator, self._kind(one.name)) for one in reductions}
        lowering.variables = frozenset(axis.variable for axis in axes)
        lowering.steady |= lowering.variables
        lowering.is_in_nest, lowering.local_nbytes = True, 0
        lowering.levels = levels_in(self.frame, node, outer.clauses.level or given.level)
        with self.frame.block() as statements:
            hidden = self._own_copies(node, (*given.firstprivate,))
            self.frame.statements(body)
        self.frame.names |= hidden
        lowering.steady -= lowering.variables
        lowering.items, lowering.is_in_nest, lowering.variables, lowering.levels = {}, False, frozenset(), ()
        nest = ir.Nest(
            axes=axes,
            body=tuple(statements),
            clauses=self._nest_clauses(outer.clauses, len(loops)),
            place=self.frame.place(node),
            reductions=reductions,
            privates=self._privates(body, (*outer.clauses.private, *private_in(statements))),
            last=tuple(name for name in (*given.lastprivate, *sorted(started)) if name in names_assigned(*statements)),
        )
        nest = replace(nest, carried=self._checked_flow(nest, body, started))
        self._check_sizes(nest)
        self._append(nest)
        for loop in loops:
            assert isinstance(loop.target, ast.Name)
            self._forget(loop.target.id, nest)

    def _forget(self, name: str, nest: ir.Nest) -> None:
        """Forget the value of the variable that counted a nest."""
        self.frame.names[name] = Scalar(name)
        self._lost[name] = nest
        self._assigned = (self._assigned or frozenset()) - {name}

    def _n_loops(self, node: ast.For, said: ir.LoopClauses) -> int:
        """Return how many loops are associated: as many as are collapsed, or cut into tiles."""
        collapse, tile = max(self.clauses.collapse, said.collapse), said.tile or self.clauses.tile
        if tile and collapse not in (1, len(tile)):
            raise self.frame.refusal(
                node,
                "collapse",
                f"tile has {len(tile)} sizes, but collapse={collapse}; give a size for each loop that is collapsed",
            )
        return len(tile) or collapse

    def _axis(self, node: ast.For) -> ir.LoopAxis:
        if node.orelse:
            raise self.frame.refusal(
                node.orelse[0], "range", "the loop has an `else` but no `break`; write its statements after the loop"
            )
        counted = range_of(self.frame, node, "range")
        assert isinstance(node.target, ast.Name)
        with self.frame.block() as before:
            start, stop, step = self.frame.in_order([counted.start, counted.stop, counted.step])
        for bound in (start, stop, step):
            names = names_in(bound, *before) & self._sunk.assigned
            if has_load(bound) or names or any(isinstance(part, ir.Load) for part in walk(*before)):
                raise self.frame.refusal(
                    node.iter,
                    "range",
                    "the bounds must be known before the iterations run, so they cannot use elements of arrays; pass "
                    "the number as an argument, or read it before the call",
                )
        flow = Flow(self._unset, frozenset(), self._lowering.flags)
        flow.read([start, stop, step], flow.through(before, self._assigned))
        self._keep(before)
        name = node.target.id
        bound_name = self.frame.variable(name)
        if not isinstance(bound_name, Scalar):
            raise self.frame.refusal(
                node, "range", f"{name} is a parameter; give the variable of the loop a name of its own"
            )
        if name in assigned_otherwise(self.frame):  # which may give it another type
            self.frame.names[name] = bound_name = Scalar(self._lowering.fresh(name))
        return ir.LoopAxis(variable=bound_name.name, start=start, stop=stop, step=step, place=self.frame.place(node))

    def _own_copies(self, node: ast.AST, names: tuple[str, ...]) -> dict[str, Binding]:
        """Let each iteration have its own copy of scalars; return the former bindings of their names."""
        hidden: dict[str, Binding] = {}
        for name in names:
            binding = self.frame.variable(name)
            if name in self.frame.source.assigned and isinstance(binding, (Scalar, Parameter)):
                hidden[name] = binding
                value = ir.Name(place=self.frame.place(node), name=binding.name)
                self.frame.names[name] = Scalar(self.frame.named(value, name).name)
        return hidden

    def _check_sizes(self, nest: ir.Nest) -> None:
        """Refuse numbers of threads that no block has: the text's own, and with those of the construct."""
        sizes = [*nest.clauses.sizes]
        for loop in loops_in(nest):
            sizes = [*loop.clauses.sizes, *sizes]
            if wrong := size_error(sizes):
                raise refusal(loop.place, "loop", wrong)
        if wrong := size_error(sizes):
            raise refusal(nest.place, "loop", wrong)

    def _nest_clauses(self, said: ir.LoopClauses, collapse: int) -> ir.LoopClauses:
        given = self.clauses
        return replace(
            said,
            level=said.level or given.level,
            sizes=tuple({**dict(given.sizes), **dict(said.sizes)}.items()),
            order=said.order or given.order,
            tile=said.tile or given.tile,
            collapse=collapse,
        )

    def _reductions(self, body: list[ast.stmt], said: tuple[ir.LoopReduction, ...]) -> tuple[ir.LoopReduction, ...]:
        names = {part.id for statement in body for part in ast.walk(statement) if isinstance(part, ast.Name)}
        found = {one.name: one for one in said if one.name in names or not self.clauses.several}
        if self.clauses.several:
            for name, operator in updated_only(body, partial(known_name, self.frame)).items():
                if isinstance(self.frame.names.get(name), (Scalar, Parameter)) and name in self.returned:
                    found.setdefault(name, ir.LoopReduction(operator, name))
        return tuple(found.values())

    def _check_reduced(self, node: ast.For, names: list[str]) -> None:
        """Refuse items of reductions that have no value before the loop, or whose value is lost after it."""
        unset = [name for name in names if name not in (self._assigned or ())]
        if lost := [name for name in unset if name in self._lost]:
            self._unset(lost[0], self.frame.place(node))
        if unset:
            raise unbound([self._lowering.origins.get(name, name) for name in unset], self.frame.place(node))
        ignored = [name for name in names if name not in self.returned and self._kind(name) == "scalar"]
        if ignored:
            are, it, them = ("is", "its value is", "it a parameter whose argument is an array")
            if len(ignored) > 1:
                are, it, them = ("are", "their values are", "them parameters whose arguments are arrays")
            raise self.frame.refusal(
                self.frame.source.definition,
                "reduction",
                f"{listed(ignored)} {are} in reduction=, but {it} lost: add `return {', '.join(ignored)}`, or make "
                f"{them} of one element",
            )

    def _kind(self, name: str) -> Literal["scalar", "array"]:
        is_array = name not in self.returned and isinstance(self.frame.names.get(name), Parameter)
        return "array" if is_array else "scalar"

    def _privates(self, body: list[ast.stmt], said: tuple[str, ...]) -> dict[str, str]:
        given = self.clauses
        names = {part.id for statement in body for part in ast.walk(statement) if isinstance(part, ast.Name)}
        items = [("private", name) for name in said]
        items += [(word, name) for word in ("private", "firstprivate", "lastprivate") for name in getattr(given, word)]
        return {name: word for word, name in items if name in self._lowering.arrays and name in names}

    def _checked_flow(self, nest: ir.Nest, body: list[ast.stmt], started: frozenset[str]) -> tuple[str, ...]:
        """Check the variables that an iteration reads, and those that the nest leaves; return those that are carried.

        ``started`` has the items of reductions that the nest starts itself: iterations in order may carry them.
        """
        assigned = names_assigned(*nest.body)
        before = self._assigned or frozenset()
        variables = frozenset(axis.variable for axis in nest.axes)

        carried: dict[str, ir.SourceLine] = {}
        without: dict[str, ir.SourceLine] = {}

        def unset(name: str, place: ir.SourceLine) -> None:
            if name not in before and name in self._lost:
                self._unset(name, place)
            (carried if name in before else without).setdefault(name, place)

        flow = Flow(unset, (before - assigned) | variables, self._lowering.flags)
        end = flow.through(nest.body, frozenset())
        scanned = replace(nest, carried=tuple(carried))
        keeps = self._keeps_scalars(nest) or (scan_of(scanned) is not None and reads_items(scanned))
        own = {*self.clauses.private, *nest.clauses.private}
        self._check_carried(
            {name: place for name, place in carried.items() if name in own or not (keeps or name in started)},
            body,
            "the construct",
        )
        if without:
            names = [self._lowering.origins.get(name, name) for name in without]
            raise unbound(list(dict.fromkeys(names)), next(iter(without.values())))
        for name in nest.last:
            for state in (end, flow.ends):
                if state is not None and name not in state and (keeps or carried) and name in before:
                    carried.setdefault(name, nest.place)
                if state is not None and name not in state and name not in carried:
                    raise refusal(
                        nest.place,
                        "unbound",
                        f"{name} is in lastprivate=, but some path through an iteration leaves it unassigned; assign "
                        "it on each path",
                    )
        for node in walk(*nest.body):
            if isinstance(node, ir.For) and _is_shared(node.clauses):
                self._check_shared(node, body)
        _check_axes(nest, assigned)
        lost = (assigned | variables | {one.name for one in nest.reductions}) - self._lowering.arrays.keys()
        self._assigned = before - lost
        self._lost |= dict.fromkeys(lost, nest)
        return tuple(carried)

    def _keeps_scalars(self, nest: ir.Nest) -> bool:
        """Tell whether scalars may keep their values from iteration to iteration, so that these run in order."""
        given = self.clauses
        return nest.clauses.order in ("seq", "auto") or given.checks or given.speculate is not None

    def _check_shared(self, node: ir.For, body: list[ast.stmt]) -> None:
        """Check the variables that a trip of a loop in the iteration reads, if threads share the trips."""
        assigned = names_assigned(*node.body) - {one.name for one in node.clauses.reductions}

        loops = [part for one in body for part in ast.walk(one) if isinstance(part, ast.For)]
        trips = next((loop.body for loop in loops if self.frame.place(loop) == node.place), body)

        carried: dict[str, ir.SourceLine] = {}

        def unset(name: str, place: ir.SourceLine) -> None:
            carried.setdefault(name, place)

        accesses = (one for one in walk(*node.body) if isinstance(one, (ir.Load, ir.Store, ir.Atomic)))
        read = names_in(*node.body) | {access.array for access in accesses}
        trip = ir.While(place=node.place, condition=ir.Constant(place=node.place, value=True), body=node.body)
        Flow(unset, frozenset(read - assigned), self._lowering.flags).through([trip], frozenset({node.variable}))
        self._check_carried(carried, trips, "this loop")

    def _check_carried(self, carried: dict[str, ir.SourceLine], body: list[ast.stmt], where: str) -> None:
        """Refuse variables that an iteration takes over from another one: name all of them and the remedy."""
        if not carried:
            return
        operators = updated_only(body, partial(known_name, self.frame))
        items: dict[str, list[str]] = {}
        for name in carried:
            if name in operators:
                items.setdefault(operators[name], []).append(f'"{name}"')
        others = [name for name in carried if name not in operators]
        clause = ", ".join(f'"{operator}": [{", ".join(names)}]' for operator, names in items.items())
        remedies = [f"add reduction={{{clause}}} to {where}"] if items else []
        if others:
            it, updates, them = ("is: it is", "no update", "it")
            if len(others) > 1:
                it, updates, them = ("are: they are", "no updates", "them")
            order = (
                "add seq=True to run in order" if where == "the construct" else f"carry {them} through an inner loop"
            )
            remedies.append(
                f"no clause says what {listed(others)} {it} {updates} by one operator alone. Assign {them} in the"
                " iteration before the read, add firstprivate=[…] if each iteration starts from the value before the"
                f" loop, or {order}"
            )
        them, values = ("it", "its value comes") if len(carried) == 1 else ("them", "their values come")
        raise refusal(
            next(iter(carried.values())),
            "carried",
            f"an iteration reads {listed([*carried])} before it assigns {them}, so {values} from another iteration; "
            f"{'; '.join(remedies)}",
        )

    def _append(self, nest: ir.Nest) -> None:
        """Append a nest, with the statements that sink to the head of its iterations."""
        carried = self._sunk.assigned.intersection(nest.carried)
        sunk = self._sunk.needed_by(names_in(*nest.body) - carried)
        first = self._sunk.needed_by({*carried}) if carried else []
        if carried & names_in(*[statement for _, statement in sunk]):  # the values before the loop, in all iterations
            sunk, first = [], self._sunk.needed_by({*names_in(*nest.body), *carried})
        for position, statement in (*sunk, *first):
            nests = [part for part in self.parts[position:] if isinstance(part, ir.Nest)]
            if (position, statement) in sunk:  # the first iteration reads before the nest writes anything
                nests.append(nest)
            changed = frozenset[str]().union(*(written(one.body) | one.privates.keys() for one in nests))
            if (load := first_load(statement, changed)) is not None:
                raise refusal(
                    load.place,
                    "range",
                    f"{load.array} is read before the loop, but the loop writes it; read it in a function of its own, "
                    "or pass the number as an argument",
                )
        for name in (*(one.name for one in nest.reductions), *nest.last):
            if name in self._sunk.assigned:
                raise refusal(
                    nest.place,
                    "reduction",
                    f"the value of {name} before the loop is an element of an array; start from a number, or pass it as"
                    " an argument",
                )
        assigned = names_assigned(*nest.body)
        statements = self._with_inputs([statement for _, statement in sunk], assigned)
        if first:
            starts = self._with_inputs([statement for _, statement in first], assigned)
            kept = names_assigned(*starts) if not sunk else carried
            for name in sorted(kept):  # the host has a value for each scalar that is carried: of the least type
                start = ir.Constant(place=nest.place, value=False)
                self.parts.append(ir.Assign(place=nest.place, name=name, value=start))
            statements.append(at_first(starts, len(nest.axes), nest.place))
            nest = replace(nest, carried=tuple(dict.fromkeys((*nest.carried, *sorted(kept)))))
        self.parts.append(replace(nest, body=(*statements, *nest.body)))

    def _with_inputs(self, sunk: list[ir.Statement], assigned: set[str]) -> list[ir.Statement]:
        """Let sunk statements read the host's values of variables that the iteration has for itself."""
        values = (names_in(*sunk) - names_assigned(*sunk)) & assigned
        copies = {name: self._lowering.fresh(name) for name in sorted(values)}
        place = self.frame.source.place
        for name, copy in copies.items():
            self.parts.append(ir.Assign(place=place, name=copy, value=ir.Name(place=place, name=name)))
        return [renamed(statement, copies) for statement in sunk]


def _is_shared(clauses: ir.LoopClauses) -> bool:
    """Tell whether threads may share the trips of a loop."""
    return clauses.order == "independent" or (clauses.order == "" and clauses.level != "")


def _check_axes(nest: ir.Nest, assigned: set[str]) -> None:
    for axis in nest.axes[1:]:
        if entering := names_in(axis.start, axis.stop, axis.step) & assigned:
            raise refusal(
                axis.place,
                "collapse",
                f"{min(entering)} is used in these bounds and is assigned in the loop; assign another variable, or "
                "collapse fewer loops",
            )


def private_in(statements: list[ir.Statement]) -> tuple[str, ...]:
    """Return the names in the ``private`` clauses of inner loops."""
    return tuple([name for part in walk(*statements) if isinstance(part, ir.For) for name in part.clauses.private])


def unbound(names: Sequence[str], place: ir.SourceLine) -> LoopError:
    """Return the error for variables that are read without a value."""
    are, it = ("is", "it") if len(names) == 1 else ("are", "them")
    return refusal(
        place,
        "unbound",
        f"{listed(names)} {are} read here, but some path to this line leaves {it} unassigned; assign {it} before, on "
        "each path",
    )


# -- statements that sink -----------------------------------------------------------------------------
#
# Elements are on the device, so the host cannot carry out `w = a[0]` before the launch. Such a statement sinks: each
# iteration carries it out, and finds the same value while no nest in between writes the array. A statement sinks too
# if it reads a name that a sunk statement assigns, or assigns a name that a sunk statement reads or assigns.


@dataclass(slots=True)
class Sunk:
    """The statements that have sunk so far, with the names that they read and assign."""

    # with the part of the function that each stood before
    statements: list[tuple[int, ir.Statement]] = field(default_factory=list)
    assigned: set[str] = field(default_factory=set)  # scalars that they assign
    read: set[str] = field(default_factory=set)  # scalars that they read

    def takes(self, statement: ir.Statement, position: int) -> bool:
        """Take a statement if it has to sink; tell whether it has."""
        read, assigned = names_in(statement), names_assigned(statement)
        has_loads = any(isinstance(node, ir.Load) for node in walk(statement))
        if not has_loads and not read & self.assigned and not assigned & (self.assigned | self.read):
            return False
        self.statements.append((position, statement))
        self.read |= read
        self.assigned |= assigned
        return True

    def needed_by(self, names: set[str]) -> list[tuple[int, ir.Statement]]:
        """Return the statements from which the values of scalars follow."""
        wanted = set(names)
        needed: list[tuple[int, ir.Statement]] = []
        for position, statement in reversed(self.statements):
            if names_assigned(statement) & wanted or isinstance(statement, ir.Assert | ir.IndexCheck):
                needed.insert(0, (position, statement))
                wanted |= names_in(statement)
        return needed


def first_load(statement: ir.Statement, arrays: frozenset[str]) -> ir.Load | None:
    """Return a read of one of some arrays, if a statement has one."""
    for node in walk(statement):
        if isinstance(node, ir.Load) and node.array in arrays:
            return node
    return None


def written(statements: tuple[ir.Statement, ...]) -> frozenset[str]:
    """Return the arrays that statements change elements of; reductions' items among them."""
    found = set()
    for node in walk(*statements):
        match node:
            case ir.Store(array=name) | ir.Atomic(array=name) | ir.Reduce(name=name):
                found.add(name)
    return frozenset(found)
