"""The meaning of each name in each block of a function, by the table in `names`, and the errors that ask.

Blocks are looked at from the inside out: a name that an inner block captures is read in the block around it, and a name
that an inner block gives a result to is assigned there.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, Final, Protocol

from offload.pragma.blocks import TEAMS
from offload.pragma.flow import FunctionFlow, is_mentioned
from offload.pragma.names import OF_A_BLOCK, BindingKind, Meaning, NameFacts, meaning_of
from offload.pragma.placing import at_node
from offload.pragma.sectioned import bare_uses
from offload.pragma.tables import Form

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from offload.errors import PragmaError
    from offload.pragma.blocks import CodeRegion, Found, FoundDirectives
    from offload.pragma.loops import DirectiveNest
    from offload.pragma.names import NameUse, Stored, Uses

RECEIVING: Final = frozenset({"from", "tofrom", ""})
"""The map types whose variables receive the block's last value."""
_DATA: Final = frozenset(
    {
        "map", "is_device_ptr", "has_device_addr", "in_reduction", "copy", "copyin", "copyout", "create", "present",
        "no_create", "deviceptr", "attach",
    }
)  # fmt: skip
_SHARING: Final = ("shared", "private", "firstprivate")
_KINDS: Final = (*_SHARING, "reduction", "result", "data")
"""The kinds of clauses that `NameFacts` knows; of a name in several, the first counts."""
_METHODS: Final = {
    ast.Add: "__iadd__", ast.Sub: "__isub__", ast.Mult: "__imul__", ast.MatMult: "__imatmul__", ast.Div: "__itruediv__",
    ast.FloorDiv: "__ifloordiv__", ast.Mod: "__imod__", ast.Pow: "__ipow__", ast.LShift: "__ilshift__",
    ast.RShift: "__irshift__", ast.BitAnd: "__iand__", ast.BitXor: "__ixor__", ast.BitOr: "__ior__",
}  # fmt: skip

_OPERATORS: Final = {ast.Add: "+", ast.Sub: "+", ast.Mult: "*", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^"}
"""The operators of reductions by those of ``+=``."""


class SeenNames(Protocol):
    """The facts about names when a function is decorated."""

    def is_of_module(self, name: str) -> bool:
        """Tell whether a name is a variable of the module that has a value."""

    def is_data(self, name: str) -> bool:
        """Tell whether a module-level name may hold an array when a block is encountered."""


class BlockPlan:
    """The names of a block, by what they are."""

    def __init__(self) -> None:
        self.parameters: list[str] = []
        self.shared: list[str] = []  # variables of the function around it
        self.results: list[str] = []
        self.mapped: list[str] = []  # results in data clauses, which may be arrays
        self.read: list[str] = []  # results whose values the block may read
        self.in_place: list[str] = []
        self.late: dict[str, Found] = {}  # parameters to which these deferred constructs may give values later
        self.copied: list[str] = []
        self.private: list[str] = []  # of a target
        self.own: list[str] = []
        self.unsure: set[str] = set()  # parameters that may be unbound at the encounter
        self.declared_global: list[str] = []
        self.declared_nonlocal: list[str] = []


class Meanings:
    """The meanings of names in the blocks of one function.

    Parameters
    ----------
    finding : FoundDirectives
        The directives of the function.
    free : frozenset of str
        The variables of enclosing functions that the function uses.
    default : str
        The default of `directives` for names in no clause: "shared", or empty.
    seen : SeenNames
        The facts about names when the function is decorated.
    """

    def __init__(
        self,
        finding: FoundDirectives,
        free: frozenset[str],
        default: str,
        seen: SeenNames,
    ) -> None:
        self.finding = finding
        self._default = default
        self._is_data = seen.is_data
        regions = finding.regions
        self.declared_global = {name for region in regions for name in region.uses.declared_global}
        self.declared_nonlocal = {name for region in regions for name in region.uses.declared_nonlocal}
        self._declare_results(free, seen)
        self.free = free | self.declared_nonlocal
        bound = {name for region in regions for name in region.uses.bound}
        self.locals = bound - self.declared_global - self.free
        self._flow = FunctionFlow(finding)
        self._readers: dict[str, list[CodeRegion]] = {}
        self._binders: dict[str, list[CodeRegion]] = {}
        self.unsure: set[str] = set()  # names that some statement unbinds
        for region in regions:
            self._index(region)
        self._temporary = self._temporaries()
        # Names to which deferred constructs give values, with the first of these.
        self._late: dict[str, Found] = {}
        for found in finding.directives:
            if found.directive.clause("nowait") is not None or found.directive.clause("async") is not None:
                for name in received(found):
                    self._late.setdefault(name, found)
        # Names in `shared` of a block, with the blocks.
        self._shared: dict[str, list[Found]] = {}
        for found in finding.directives:
            if found.form in (Form.TAKEN, Form.LOOP, Form.SECTION):
                for name in found.names_of("shared"):
                    self._shared.setdefault(name, []).append(found)

    def _declare_results(self, free: frozenset[str], seen: SeenNames) -> None:
        """Decide whose variables the names are that directives alone bind, as ``detach(ev)`` does.

        They are the function's, unless Python's rules have found a variable of an enclosing function or of the module.
        """
        for found in self.finding.directives:
            for name in found.binds:
                if name in free:
                    self.declared_nonlocal.add(name)
                elif seen.is_of_module(name):
                    self.declared_global.add(name)

    def _index(self, region: CodeRegion) -> None:
        for name, use in region.uses.items():
            if use.loads or any(stored.binding is BindingKind.AUGMENTED for stored in use.stores):
                self._readers.setdefault(name, []).append(region)
            if use.stores:
                self._binders.setdefault(name, []).append(region)
                if any(_unbinds(stored) for stored in use.stores):
                    self.unsure.add(name)

    def _temporaries(self) -> dict[str, set[CodeRegion]]:
        """Return the names that blocks assign before they read them, in no clause, with these blocks.

        Only names that several blocks assign are in question.
        """
        found: dict[str, set[CodeRegion]] = {}
        for name, regions in self._binders.items():
            blocks = [region.block for region in regions if region.block is not None and not region.block.is_team]
            if len(blocks) < 2 or name not in self.locals or all(block.form is Form.NEST for block in blocks):
                continue
            own = [
                block.inner
                for block in blocks
                if not is_mentioned(block, name)
                and not (_takes_default(block) and block.defaults_from(self._default) == "shared")
                and name not in self._flow.before(block)
            ]
            if own:
                found[name] = {region for region in own if region is not None}
        return found

    def lost_in(self, nests: Sequence[tuple[Found, DirectiveNest]]) -> dict[int, PragmaError]:
        """Return errors of nests that carry a variable on which the function reads afterwards, by their directives.

        Loops refuse most of these, with a better message, but not a prefix sum. A scalar that each iteration assigns is
        private to it (§3.1), so the function reads the value from before. If the nest itself never reads the scalar, it
        was meant as a result: that is noted as a doubt.
        """
        carried: dict[int, PragmaError] = {}
        own = {id(found.inner): nest.own for found, nest in nests}
        for found, nest in nests:
            for name, is_read_first in nest.own.items():
                others = [
                    region
                    for region in self._readers.get(name, ())
                    if region is not found.inner and own.get(id(region), {}).get(name, True)
                ]
                is_kept = any(region.uses[name].is_nested for region in others)
                if not (is_kept or ((others or is_read_first) and name in self._flow.after(found))):
                    continue
                message = lost(found, name, is_read_first=is_read_first)
                if is_read_first:
                    carried.setdefault(id(found), found.where.refusal(message))
                elif found.inner is not None and not found.inner.uses[name].loads:
                    self.finding.doubts.append((found.where.line, message))
        return carried

    def is_variable(self, name: str) -> bool:
        """Tell whether a name is a variable of the function or of one around it, not of the module."""
        return name in self.locals or name in self.free

    def is_sure(self, name: str, found: Found) -> bool:
        """Tell whether a name surely has a value where a directive stands."""
        is_of_module = not self.is_variable(name) and name not in self.declared_global
        return name not in self.unsure and (name in found.bound or is_of_module)

    # -- blocks --------------------------------------------------------------------------------------
    def plan(self, found: Found, named: Iterable[str]) -> BlockPlan:
        """Return what the names in a block are; ``named`` are the names that need parameters in any case."""
        region: Any = found.inner
        plan = BlockPlan()
        self._note_object(region)
        clauses = self._clauses(found)
        default = "shared" if found.is_team else ""
        if _takes_default(found) or found.is_team:
            default = found.defaults_from(self._default) or default
        order = list(dict.fromkeys([*region.uses, *named]))
        for name in order:
            self._place(plan, found, name, region.uses.get(name), clauses.get(name, ""), default, name in named)
        plan.unsure = {name for name in plan.parameters if not self.is_sure(name, found)} | set(plan.private)
        self._pass_on(plan, found)
        return plan

    def _clauses(self, found: Found) -> dict[str, str]:
        """Return the kind of clause that a name is in, by name."""
        of_kinds: dict[str, list[str]] = {kind: [] for kind in _KINDS}
        for clause in found.directive.clauses:
            if clause.name in _SHARING:
                of_kinds[clause.name] += [item.name for item in clause.items if item.name]
            elif clause.name == "reduction":
                kind = "reduction" if found.form is Form.LOOP else "result"
                of_kinds[kind] += [item.name for item in clause.items if item.is_name]
            elif clause.name in _DATA:
                receives = clause.name in ("copy", "copyout") or (clause.name == "map" and clause.kind in RECEIVING)
                kind = "result" if receives else "data"
                of_kinds[kind] += [item.name for item in clause.items if _is_of_name(item)]
        clauses: dict[str, str] = {}
        for kind, names in of_kinds.items():
            for name in names:
                clauses.setdefault(name, kind)
        around = None if _is_device(found) else found.around
        while around is not None:
            if around.row.name in TEAMS:
                for name in around.names_of("shared"):
                    clauses.setdefault(name, "shared")
            around = around.around
        return clauses

    def _place(
        self, plan: BlockPlan, found: Found, name: str, use: NameUse | None, clause: str, default: str, is_named: bool
    ) -> None:
        """Enter a name into a plan."""
        device = _is_device(found)
        if not self.is_variable(name) and not clause:
            if name in self.declared_global:
                plan.declared_global.append(name)
            is_read = use is not None and bool(use.loads) and name not in self.declared_global
            is_array = (device and self._is_data(name)) or found.rebinds(name)
            if is_named or (is_read and is_array):
                plan.parameters.append(name)
            return
        facts = self._facts(found, name, use, clause, default)
        meaning = meaning_of(facts)
        if found.is_team and not clause and default == "shared" and meaning is not Meaning.DECLARED:
            meaning = Meaning.SHARED  # loop variables too: nothing else runs the block
        if meaning is Meaning.SHARED:
            if self.is_variable(name):
                plan.shared.append(name)
            elif name in self.declared_global:
                plan.declared_global.append(name)
        elif meaning is Meaning.DECLARED:
            if name in self.declared_nonlocal:
                plan.declared_nonlocal.append(name)
        elif meaning is Meaning.OWN:
            if device and clause == "private":
                plan.private.append(name)
                plan.parameters.append(name)
            else:
                plan.own.append(name)
        elif meaning in (Meaning.ASKS, Meaning.SAYS_BOTH, Meaning.UNLISTED):
            self._ask(found, name, use, meaning)
            plan.own.append(name)
        else:
            plan.parameters.append(name)
            if meaning is Meaning.COPIED and not device:
                plan.copied.append(name)
            elif meaning is Meaning.IN_PLACE:
                plan.in_place.append(name)
            elif meaning is Meaning.CAPTURED and name in self._late and _waits_for(found, name):
                plan.late[name] = self._late[name]
            elif meaning is Meaning.RESULT or (
                meaning is Meaning.DEVICE and clause == "result" and self._is_read_late(found, name, use)
            ):
                plan.results.append(name)
                if clause == "result":
                    plan.mapped.append(name)
                    if name in self._read_first(found):
                        plan.read.append(name)

    def _is_read_late(self, found: Found, name: str, use: NameUse | None) -> bool:
        """Tell whether a target reads a number which it waits for: it reads the value of its turn.

        An array has no other value then. So names that nothing binds, or that have subscripts, need no look.
        """
        if use is None or not use.loads or name not in self._read_first(found) or not _depends_on(found, name):
            return False
        uses = [region.uses[name] for region in self.finding.regions if name in region.uses]
        is_bound = any(not isinstance(stored.node, ast.arg) for one in uses for stored in one.stores)
        return (is_bound or name in self._late) and len(bare_uses(found.node.body, name)) == len(use.loads)

    def _read_first(self, found: Found) -> set[str]:
        """Return the names in clauses that give a variable's value to the block: ``tofrom``, ``copy``, a reduction."""
        clauses = found.clauses("copy", "reduction")
        clauses += [clause for clause in found.clauses("map") if clause.kind in ("tofrom", "")]
        return {item.name for clause in clauses for item in clause.items}

    def _facts(self, found: Found, name: str, use: NameUse | None, clause: str, default: str) -> NameFacts:
        region: Any = found.inner
        bindings = frozenset() if use is None else use.bindings
        # A block inside shares this block's variable.
        others = [
            other for other in self._shared.get(name, ()) if other is not found and not other.region.is_in(region)
        ]
        return NameFacts(
            bindings=bindings,
            is_loaded=use is not None and (bool(use.loads) or BindingKind.AUGMENTED in bindings),
            clause=clause,
            is_declared=name in self.declared_nonlocal,
            is_read_elsewhere=bool(bindings) and self._is_elsewhere(self._readers, name, region),
            is_bound_elsewhere=bool(bindings)
            and (name in self.free or self._is_elsewhere(self._binders, name, region)),
            is_shared_elsewhere=bool(others) and use is not None and not found.is_team,
            default=default,
        )

    def _is_elsewhere(self, regions: dict[str, list[CodeRegion]], name: str, region: CodeRegion) -> bool:
        """Tell whether code outside of a block is among the regions of a name; other blocks' own variables aside."""
        own = self._temporary.get(name, ())
        for other in regions.get(name, ()):
            if other.is_in(region):
                continue
            around: CodeRegion | None = other
            while around is not None and not region.is_in(around) and around not in own:
                around = around.outer
            if around is None or region.is_in(around):
                return True
        return False

    def object_for_super(self, region: CodeRegion) -> str:
        """Return the first parameter of the function if a block calls `super`, which reads it; else nothing."""
        if "super" not in region.uses or self.is_variable("super"):
            return ""
        arguments = self.finding.definition.args
        return next((one.arg for one in (*arguments.posonlyargs, *arguments.args)), "")

    def _note_object(self, region: CodeRegion) -> None:
        first = self.object_for_super(region)
        if first:
            region.uses.load(first, region.uses["super"].loads[0])

    def _pass_on(self, plan: BlockPlan, found: Found) -> None:
        """Note the uses of a block in the code around it."""
        uses = found.region.uses
        for name in plan.parameters:
            if self.is_variable(name) or found.region.block is not None:
                uses.load(name, found.node)
        for name in (*plan.shared, *plan.declared_nonlocal, *plan.declared_global):
            inner: Any = found.inner
            uses.load(name, found.node)
            if name in plan.shared and inner.uses[name].stores:
                pass_store(uses, name, found)
        for name in plan.results:
            pass_store(uses, name, found)

    def check_listed(self, found: Found) -> None:
        """Note an error for each name of a block that stays, under ``default(none)``, which is in no clause."""
        listed = set(found.names_of("shared", "private", "firstprivate"))
        for name, use in (found.own_uses or {}).items():
            if self.is_variable(name) and name not in listed and not use.bindings & OF_A_BLOCK:
                self._ask(found, name, use, Meaning.UNLISTED)

    # -- questions -----------------------------------------------------------------------------------
    def _ask(self, found: Found, name: str, use: NameUse | None, meaning: Meaning) -> None:
        node: Any = found.node if use is None else use.first()
        if meaning is Meaning.SAYS_BOTH and use is not None:
            places = [*use.loads, *(stored.node for stored in use.stores)]
            # A block inside of this one may be what reads the name.
            node = next((place for place in places if isinstance(place, ast.Name)), places[0])
        is_temporary = meaning is Meaning.ASKS and name not in self._flow.before(found)
        message = question(found, name, meaning, is_temporary=is_temporary)
        error = at_node(node, message, self.finding.text)
        self.finding.refuse(error, node)


def question(found: Found, name: str, meaning: Meaning, *, is_temporary: bool = False) -> str:
    """Return the message that asks for a clause for a name; a temporary is one that the block assigns first."""
    what = f"{found.directive.language} {found.directive.name}"
    if _is_device(found):
        remedy = _device_remedy(found, name, is_temporary=is_temporary)
    elif found.form is Form.CALLED:
        remedy = f"an array of one element, `{name}[0] = …`, or assign it after the block"
    elif found.form is Form.SECTION:
        remedy = f"shared({name}) at the `parallel` around it, or use a task"
    elif is_temporary:
        remedy = f"private({name}), shared({name}) or firstprivate({name})"
    else:
        operator = _reduced_by(found, name, meaning)
        reduction = f"reduction({operator}: {name}), " if operator else ""
        remedy = f"{reduction}shared({name}), private({name}) or firstprivate({name})"
    if meaning is Meaning.UNLISTED:
        return f"{what}: {name} is in no clause, and default(none) needs one for each name; write {remedy}"
    if meaning is Meaning.IN_PLACE:
        return (
            f"{what}: {name} holds a value that does not change in place, so the change would be lost; write {remedy}"
        )
    if meaning is Meaning.SAYS_BOTH:
        return f"{what}: {name} is in shared of another block and in no clause here; write {remedy}"
    return (
        f"{what}: the block assigns {name}, and the function reads it elsewhere; the block's assignment would be lost; "
        f"write {remedy}"
    )


def _device_remedy(found: Found, name: str, *, is_temporary: bool) -> str:
    """Return the clauses to choose from for a name in a device region."""
    region: Any = found.inner
    use = region.uses[name]
    is_acc = found.directive.language == "acc"
    if not use.stores:
        return f"firstprivate({name}) or {'copyin' if is_acc else 'map'}({'' if is_acc else 'to: '}{name})"
    is_read = not is_temporary and (bool(use.loads) or bool(use.updates))
    receiving = f"copy({name})" if is_acc else f"map({'tofrom' if is_read else 'from'}: {name})"
    return f"{receiving} if the function needs the value, or private({name})"


def _reduced_by(found: Found, name: str, meaning: Meaning) -> str:
    """Return the operator if the iterations of a taskloop only update a number by one; else an empty string."""
    if found.form is not Form.LOOP or meaning not in (Meaning.IN_PLACE, Meaning.ASKS):
        return ""
    region: Any = found.inner
    use = region.uses[name]
    if meaning is Meaning.IN_PLACE:
        kinds = {type(update.op) for update in use.updates}
        return _OPERATORS.get(kinds.pop(), "") if len(kinds) == 1 and not use.loads else ""
    from offload.loops.tree.updates import updated_only  # an error is raised, so time does not matter

    updates = updated_only(found.node.body, lambda node: node.id if isinstance(node, ast.Name) else None)
    return updates.get(name, "")


def received(found: Found) -> list[str]:
    """Return the names to which a construct gives values when it has run."""
    names = found.names_of("reduction", "lastprivate", "copy", "copyout")
    return names + [item.name for clause in found.clauses("map") if clause.kind in RECEIVING for item in clause.items]


def _waits_for(found: Found, name: str) -> bool:
    """Tell whether a task has a variable in ``depend``."""
    return _takes_default(found) and _depends_on(found, name)


def _depends_on(found: Found, name: str) -> bool:
    """Tell whether a construct has a variable in ``depend``."""
    return any(item.is_name and item.name == name for clause in found.clauses("depend") for item in clause.items)


def captured_early(found: Found, name: str, later: Found) -> str:
    """Return the message of a task that reads a number before a deferred construct has given it a value."""
    return (
        f"{found.directive.language} {found.directive.name}: {name} is read when the block is met, before "
        f"{later.directive.name} in line {later.where.line} has given it a value; write shared({name}) to read it when "
        f"the task runs, or firstprivate({name})"
    )


def lost(found: Found, name: str, *, is_read_first: bool) -> str:
    """Return the message of a nest that assigns a variable whose value the function reads afterwards."""
    what = f"{found.directive.language} {found.directive.name}"
    if is_read_first:
        return (
            f"{what}: {name} passes a value from one iteration to the next, and the function reads it afterwards; the "
            f"value would be lost; read it from an array, or write reduction(+: {name}) if {name} is only a sum"
        )
    last = "" if found.directive.language == "acc" else f"lastprivate({name}), "
    return (
        f"{what}: {name} is private to each iteration, so the function does not see the value that the loop assigns; "
        f"write {last}reduction(max: {name}) or private({name})"
    )


def method_of(update: ast.AugAssign) -> str:
    """Return the method that an object has if a ``+=`` changes it in place."""
    return _METHODS[type(update.op)]


def pass_store(uses: Uses, name: str, found: Found) -> None:
    """Note in the code around a block that the block gives a name a value, or changes the array that it holds."""
    region: Any = found.inner
    use = region.uses.get(name)
    if use is None or not use.stores:  # an array
        uses.load(name, found.node)
    elif use.updates:
        uses.store(name, BindingKind.AUGMENTED, found.node, use.updates[0])
    else:
        uses.store(name, BindingKind.PLAIN, found.node)


def _takes_default(found: Found) -> bool:
    """Tell whether ``default`` concerns the names of a block: also that of a ``parallel`` around it."""
    return found.form in (Form.LOOP, Form.SECTION) or (found.form is Form.TAKEN and found.row.stands_for == "task")


def _is_device(found: Found) -> bool:
    return found.form is Form.TAKEN and found.row.stands_for != "task"


def _is_of_name(item: Any) -> bool:
    """Tell whether an item is a name, or a section or an element of one."""
    return bool(item.name) and not any(hasattr(step, "name") for step in item.steps)


def _unbinds(stored: Stored) -> bool:
    """Tell whether a place may leave a name without a value: ``del``, the end of ``except``, a nested function."""
    if isinstance(stored.node, ast.Name):
        return isinstance(stored.node.ctx, ast.Del)
    is_scope = isinstance(stored.node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda))
    return isinstance(stored.node, ast.ExceptHandler) or (is_scope and stored.binding is BindingKind.PLAIN)
