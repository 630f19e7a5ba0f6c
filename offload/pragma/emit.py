"""The code that stands in a rewritten function in place of its directives.

Each directive has an object in a cell, which holds its construct (`offload.pragma.encounter`). The code evaluates the
clauses, captures values and calls the object. A block that is taken becomes a definition. If it uses no variable of
this activation, the definition stands next to the function and is made once. If it does, the definition stands in
place, and a function next to the rewritten one passes the call on, so the construct is made once all the same.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, Final

from offload.errors import PragmaError
from offload.pragma import trees
from offload.pragma.calls import DirectiveCall
from offload.pragma.meanings import BlockPlan, Meanings, captured_early, method_of, pass_store, question
from offload.pragma.names import BindingKind, Meaning
from offload.pragma.placing import at_node
from offload.pragma.sectioned import bare_uses, path_uses, renamed, with_super
from offload.pragma.tables import Form
from offload.texts import copied

if TYPE_CHECKING:
    from collections.abc import Callable

    from offload.pragma.blocks import Found, FoundDirectives

_WAITS: Final = frozenset({"taskwait", "barrier"})


class Spec:
    """The object that a directive needs at run time."""

    def __init__(self, cell: str, call: DirectiveCall) -> None:
        self.cell = cell  # the name of its cell
        self.call = call
        self.function = ""  # the definition of its block, next to the function
        self.names: dict[str, Any] = {}  # of `BlockNames`
        self.nest: Any = None
        self.lost: PragmaError | None = None  # of a nest that loops accept, although it loses a value


class Reading:
    """The names of the place where a directive stands, for the expressions of its clauses."""

    def __init__(self, emitter: Emitter, found: Found) -> None:
        self._emitter = emitter
        self._found = found
        self.before: list[ast.stmt] = []
        self._guards: dict[str, str] = {}

    @property
    def library(self) -> ast.expr:
        """The module `offload.pragma.items`."""
        return trees.name(trees.LIBRARY)

    def holds(self, name: str) -> None:
        """Note that a statement before the directive gives a name a value."""
        self._guards[name] = name

    def read(self, name: str) -> ast.expr:
        """Return an expression for the value of a name: `UNBOUND` if it has none."""
        if self._emitter.meanings.is_sure(name, self._found):
            return trees.name(name)
        if name not in self._guards:
            self._guards[name] = guard = f".value {name}"
            self.before.append(trees.guarded(guard, name))
        return trees.name(self._guards[name])

    def location(self, name: str) -> ast.expr:
        """Return an expression for the location of a variable in ``depend``."""
        is_variable = self._emitter.meanings.is_variable(name)
        scope = trees.cell_of(name) if is_variable else trees.name(trees.MODULE)
        return trees.call(trees.member(self.library, "variable"), scope, ast.Constant(name))


class Emitter:
    """The replacement of all directives of a function.

    Attributes
    ----------
    specs : list of Spec
        The values that the function needs at run time.
    functions : list of ast.FunctionDef
        The definitions next to the function.
    names : dict of str to str
        The names that definitions have in messages, by their identifiers.
    """

    def __init__(
        self, finding: FoundDirectives, meanings: Meanings, kind: str, is_fixed: Callable[[str], bool]
    ) -> None:
        self._kind = kind  # the class around the function; empty if there is none
        self._is_fixed = is_fixed
        self.finding = finding
        self.meanings = meanings
        self.specs: list[Spec] = []
        self.functions: list[ast.FunctionDef] = []
        self.names: dict[str, str] = {}
        self._nests: dict[int, Any] = {}  # by the identities of directives
        self._lost: dict[int, PragmaError] = {}
        self._is_async = isinstance(finding.definition, ast.AsyncFunctionDef)

    def emit(self) -> None:
        """Replace all directives, the last first; raise the first error in reading order."""
        nests = [found for found in self.finding.directives if found.form is Form.NEST and found.inner is not None]
        self._nests = {id(found): self.nest_for(found) for found in nests}
        self._lost = self.meanings.lost_in([(found, nest) for found in nests if (nest := self._nests[id(found)])])
        for found in reversed(self.finding.directives):
            if found.inner is None and (found.is_team or found.form not in (Form.ALONE, Form.STAYS)):
                continue  # an error has been noted
            made = self._replacement(found)
            at = next(at for at, node in enumerate(found.holder) if node is found.node)
            found.holder[at : at + 1] = made
        self.finding.check()
        self._declare()

    def _replacement(self, found: Found) -> list[ast.stmt]:
        if found.form is Form.ALONE:
            return self._alone(found)
        if found.form is Form.NEST:
            return self._nest(found)
        if found.form is Form.STAYS and not found.is_team:
            return self._staying(found)
        return self._team(found) if found.is_team else self._taken(found)

    def _declare(self) -> None:
        """Make variables of the function that only other definitions bind local, and declare the others."""
        region = self.finding.region
        body = self.finding.definition.body
        first = 1 if ast.get_docstring(self.finding.definition, clean=False) is not None else 0
        added: list[ast.stmt] = []
        if self.meanings.declared_global - region.uses.declared_global:
            added.append(ast.Global(sorted(self.meanings.declared_global)))
        if self.meanings.declared_nonlocal - region.uses.declared_nonlocal:
            added.append(ast.Nonlocal(sorted(self.meanings.declared_nonlocal)))
        own = {name for name, use in region.uses.items() if _is_bound_here(use)}
        hidden = sorted(self.meanings.locals - own)
        if hidden:
            added.append(trees.declaring(hidden))
        like = self.finding.definition
        body[first:first] = [trees.located(one, like) for one in added]

    # -- directives that stay ------------------------------------------------------------------------
    def _spec(self, call: DirectiveCall) -> Spec:
        spec = Spec(f".directive {len(self.specs)}", call)
        self.specs.append(spec)
        return spec

    def clauses(self, found: Found, call: DirectiveCall) -> tuple[Reading, ast.expr]:
        """Return the expression of the clauses' values, with what comes before it."""
        reading = Reading(self, found)
        for name in call.events:
            event = trees.call(trees.member(reading.library, "event_for"), reading.read(name))
            reading.before.append(trees.assign(name, event))
            reading.holds(name)
        values = call.values(reading)
        for node in ast.walk(values) if self._kind else ():
            if isinstance(node, ast.Constant):
                _mangle(node, self._kind)
        return reading, values

    def _alone(self, found: Found) -> list[ast.stmt]:
        call = DirectiveCall(found.directive)
        spec = self._spec(call)
        reading, values = self.clauses(found, call)
        runs_async = self._is_async and found.region.block is None and found.row.name in _WAITS
        run = trees.call(trees.member(trees.name(spec.cell), "run_async" if runs_async else "run"), values)
        made: ast.expr = ast.Await(run) if runs_async else run
        statement: ast.stmt = trees.assign(call.binds[0], made) if call.binds else ast.Expr(made)
        result = [trees.located(one, found.node) for one in (*reading.before, statement)]
        body: list[ast.stmt] = getattr(found.node, "body", [])
        return [*result, *body]

    def _staying(self, found: Found) -> list[ast.stmt]:
        self.meanings.check_listed(found)
        call = DirectiveCall(found.directive)
        spec = self._spec(call)
        reading, values = self.clauses(found, call)
        item = found.node.items[0]
        is_async = self._is_async and found.region.block is None
        manage = trees.member(trees.name(spec.cell), "manage_async" if is_async else "manage")
        item.context_expr = trees.located(trees.call(manage, values), found.node)
        node = found.node
        if is_async and not isinstance(node, ast.AsyncWith):
            node = ast.copy_location(ast.AsyncWith(node.items, node.body), node)
        before = [trees.located(one, found.node) for one in reading.before]
        if not call.binds:
            return [*before, node]
        return [*before, *self._rebinding(found, node, call.binds)]

    def _rebinding(self, found: Found, node: Any, names: tuple[str, ...]) -> list[ast.stmt]:
        """Return a ``with`` in whose block names hold the device arrays.

        Local variables are bound to these, and afterwards to their own values again. Others are renamed in the block,
        since other functions see them.
        """
        region = found.region
        own = [name for name in names if name in self.meanings.locals or region.block is not None]
        targets = [name if name in own else f".device {name}" for name in names]
        for name, new in zip(names, targets, strict=True):
            if new != name:
                node.body = renamed([copied(one) for one in node.body], name, new)
        bound = ast.Tuple([ast.Name(one, ast.Store()) for one in targets], ast.Store())
        node.items[0].optional_vars = trees.located(bound, found.node)
        if not own:
            return [node]
        keep = [trees.located(trees.assign(f".saved {name}", trees.name(name)), found.node) for name in own]
        back = [trees.located(trees.assign(name, trees.name(f".saved {name}")), found.node) for name in own]
        guard = ast.Try([node], [], [], back)
        return [*keep, trees.located(guard, found.node, [node, *back])]

    # -- blocks that are taken -----------------------------------------------------------------------
    def _taken(self, found: Found) -> list[ast.stmt]:
        call = DirectiveCall(found.directive)
        plan = self.meanings.plan(found, call.named)
        spec = self._spec(call)
        return _Block(self, found, call, plan, spec).made()

    def _team(self, found: Found) -> list[ast.stmt]:
        """Return a ``with`` whose block is a function, called at once: its private variables are the function's own."""
        plan = self.meanings.plan(found, ())
        copies = [name for name in plan.parameters if name in plan.copied]
        reading = Reading(self, found)
        given = [trees.call(trees.member(trees.name(trees.RUNTIME), "copied"), reading.read(name)) for name in copies]
        plan.parameters = copies
        self.name_object(found)
        body = self.prologue(found, plan) + found.node.body
        identifier = f".team {len(self.names)}"
        self.name_block(identifier, found)
        definition = trees.function(identifier, copies, body)
        called = ast.Expr(trees.call(trees.name(identifier), *given))
        trees.located(definition, found.node, found.node.body)
        found.node.body = [definition, *(trees.located(one, found.node) for one in (*reading.before, called))]
        return self._staying(found)

    def name_object(self, found: Found) -> None:
        """Have each ``super()`` of a block that is taken name its class and its object."""
        region: Any = found.inner
        first = self.meanings.object_for_super(region)
        if first:
            found.node.body = with_super([copied(one) for one in found.node.body], first)

    def name_block(self, identifier: str, found: Found) -> None:
        """Give the definition of a block its name."""
        self.names[identifier] = f"<{found.directive.language} {found.directive.name}, line {found.where.line}>"

    def prologue(self, found: Found, plan: BlockPlan) -> list[ast.stmt]:
        """Return the first statements of a block's function."""
        uses: Any = found.inner
        added: list[ast.stmt] = []
        if plan.declared_global:
            added.append(ast.Global(list(plan.declared_global)))
        outside = [
            name for name in (*plan.shared, *plan.declared_nonlocal) if name in uses.uses and uses.uses[name].stores
        ]
        if outside:
            added.append(ast.Nonlocal(outside))
        hidden = [name for name in plan.own if name in uses.uses and not _is_bound_here(uses.uses[name])]
        if hidden:
            added.append(trees.declaring(hidden))
        added += [trees.unbinding(name) for name in plan.parameters if name in plan.unsure]
        return [trees.located(one, found.node) for one in added]

    # -- nests ---------------------------------------------------------------------------------------
    def _nest(self, found: Found) -> list[ast.stmt]:
        call = DirectiveCall(found.directive)
        spec = self._spec(call)
        nest = self._nests[id(found)]
        if nest is None:
            return []
        spec.nest, spec.lost = nest, self._lost.get(id(found))
        reading, values = self.clauses(found, call)
        arguments = trees.tuple_of([reading.read(name) for name in nest.parameters])
        meet = trees.member(trees.name(spec.cell), "meet")
        made = self.storing(found, list(nest.results), meet, values, arguments)
        for name in nest.parameters:
            found.region.uses.load(name, found.node)
        for name in nest.results:
            pass_store(found.region.uses, name, found)
        return [trees.located(one, found.node) for one in (*reading.before, *made)]

    def nest_for(self, found: Found) -> Any:
        """Return the nest of a directive; None after an error."""
        from offload.pragma.loops import NestScope, loop_in, nest_of

        meanings = self.meanings
        try:
            loop = loop_in(found.node, found.where)
            scope = NestScope(
                frozenset(meanings.locals | meanings.free),
                frozenset(meanings.free),
                self._is_fixed,
                self.finding.met,
                self._kind,
            )
            return nest_of(loop, found.directive, found.where, self.finding.text, scope)
        except PragmaError as error:
            self.finding.refuse(error, found.node)
            return None

    def storing(self, found: Found, results: list[str], meet: ast.expr, *arguments: ast.expr) -> list[ast.stmt]:
        """Return a call of ``meet`` with a function that gives results to variables."""
        if not results:
            return [ast.Expr(trees.call(meet, *arguments))]
        identifier = f".store {len(self.names)}"
        self.names[identifier] = f"<results, line {found.where.line}>"
        values = [f".value {at}" for at in range(len(results))]
        body: list[ast.stmt] = []
        module = [name for name in results if name in self.meanings.declared_global]
        others = [name for name in results if name not in module]
        if module:
            body.append(ast.Global(module))
        if others:
            body.append(ast.Nonlocal(others))
        for name, value in zip(results, values, strict=True):
            test = trees.is_unbound(trees.name(value), negated=True)
            body.append(ast.If(test, [trees.assign(name, trees.name(value))], []))
        storing = trees.function(identifier, values, body)
        reads: list[ast.stmt] = [trees.guarded(value, name) for name, value in zip(results, values, strict=True)]
        last = ast.Return(trees.tuple_of([trees.name(value) for value in values]))
        reading = trees.function(f".read {len(self.names)}", (), [*reads, last])
        self.names[reading.name] = self.names[identifier]
        variables = trees.tuple_of([trees.name(identifier), trees.name(reading.name)])
        return [storing, reading, ast.Expr(trees.call(meet, *arguments, variables))]


class _Block:
    """The code of one block that is taken: its definition, and the encounter."""

    def __init__(self, emitter: Emitter, found: Found, call: DirectiveCall, plan: BlockPlan, spec: Spec) -> None:
        self._emitter = emitter
        self._found = found
        self._call = call
        self._plan = plan
        self._spec = spec
        region: Any = found.inner
        self._taken_names = {*region.uses, *plan.parameters}
        self._is_loop = found.form is Form.LOOP
        self._state = trees.unused("encounter", self._taken_names)
        self._part = trees.unused("part", self._taken_names)
        meanings = emitter.meanings
        self._in_place = any(name not in meanings.free or found.region.block is not None for name in plan.shared)
        self._bare: dict[str, PragmaError] = {}
        self._elements: list[str] = []  # parameters for list items with subscripts or members
        self._items: list[str] = []  # the same, with those of clauses with iterators, which are not parameters
        self._more = ""  # the parameter that takes the arrays of the latter
        self._prologue: list[ast.stmt] = []
        self._section_items()

    def made(self) -> list[ast.stmt]:
        """Return the statements in place of the block."""
        emitter, found, plan = self._emitter, self._found, self._plan
        needs_state = bool(plan.results or self._items)
        needs_look = needs_state or bool(plan.in_place or plan.copied or plan.private or plan.late) or self._is_loop
        reading, values = emitter.clauses(found, self._call)
        arguments = [reading.read(name) for name in plan.parameters]
        arguments += [ast.Constant(None) for _ in self._elements]
        definition = self._definition(needs_state)
        before: list[ast.stmt] = list(reading.before)
        if self._in_place:
            before.append(definition)
            arguments.insert(0, trees.name(definition.name))
            passing = self._passing(definition)
            emitter.functions.append(passing)
            self._spec.function = passing.name
        else:
            emitter.functions.append(definition)
            self._spec.function = definition.name
        cell = trees.name(self._spec.cell)
        if needs_look:
            given: list[ast.expr] = [values, trees.tuple_of(arguments)]
            if self._is_loop:
                given.insert(1, found.node.body[0].iter)
            made = emitter.storing(found, plan.results, trees.member(cell, "meet"), *given)
        else:
            made = [ast.Expr(trees.call(trees.call(trees.member(cell, "at"), values), *arguments))]
        self._note(needs_state)
        stop = [definition] if self._in_place else []
        if self._is_loop:
            stop.append(found.node.body[0].iter)
        return [trees.located(one, found.node, stop) for one in (*before, *made)]

    def _note(self, needs_state: bool) -> None:
        """Enter what the object of the block needs."""
        plan = self._plan
        region: Any = self._found.inner
        in_place = {}
        for name in plan.in_place:
            update = region.uses[name].updates[0]
            message = question(self._found, name, Meaning.IN_PLACE)
            in_place[name] = method_of(update), at_node(update.target, message, self._emitter.finding.text)
        late = {}
        for name, later in plan.late.items():
            message = captured_early(self._found, name, later)
            late[name] = at_node(region.uses[name].loads[0], message, self._emitter.finding.text)
        passed = ("block",) if self._in_place else ()
        self._spec.names = {
            "parameters": (*passed, *plan.parameters, *self._elements),
            "results": tuple(plan.results),
            "in_place": in_place,
            "late": late,
            "copied": tuple(plan.copied),
            "private": tuple(plan.private),
            "bare": self._bare,
            "rebound": tuple(plan.mapped),
            "reads": frozenset(plan.read),
            "elements": tuple(self._items),
        }

    # -- the definition ------------------------------------------------------------------------------
    def _parameters(self, needs_state: bool) -> list[str]:
        found = [*self._plan.parameters, *self._elements]
        if self._is_loop:
            found.insert(0, self._part)
        return [*found, self._state] if needs_state else found

    def _definition(self, needs_state: bool) -> ast.FunctionDef:
        """Return the definition of the block's function."""
        emitter, found, plan = self._emitter, self._found, self._plan
        emitter.name_object(found)
        body: list[ast.stmt] = found.node.body
        first = emitter.prologue(found, plan)
        added = list(self._prologue)
        copy = trees.member(trees.name(trees.RUNTIME), "copied")
        if self._is_loop:
            loop = found.node.body[0]
            own = ast.copy_location(
                ast.For(loop.target, trees.located(trees.name(self._part), loop.iter), loop.body, []), loop
            )
            body = [own]
            added += [trees.assign(name, trees.call(copy, trees.name(name))) for name in plan.copied]
        last = self._leaving() if plan.results else []
        if needs_state and not self._is_loop:
            arrays: list[ast.expr] = [trees.name(one) for one in self._elements]
            arrays += [ast.Starred(trees.name(self._more), ast.Load())] if self._more else []
            run = trees.call(trees.member(trees.name(self._state), "run"), *arrays)
            added.insert(0, trees.assign(self._state, run))
        if plan.results and self._is_loop:
            added.append(trees.assign(".first", trees.tuple_of([trees.name(name) for name in plan.results])))
        elif plan.results:
            added += self._entering()
        like = found.node
        whole = [
            *first,
            *(trees.located(one, like) for one in added),
            *body,
            *(trees.located(one, like) for one in last),
        ]
        identifier = f".block {len(emitter.names)}"
        emitter.name_block(identifier, found)
        definition = trees.function(identifier, self._parameters(needs_state), whole)
        definition.args.vararg = ast.arg(self._more) if self._more else None
        return trees.located(definition, like, whole)  # type: ignore[no-any-return]  # the same

    def _entering(self) -> list[ast.stmt]:
        """Return the first statements of a block with results: those that are numbers begin with the values of now."""
        plan = self._plan
        reads: list[ast.stmt] = []
        values: list[ast.expr] = []
        for at, name in enumerate(plan.results):
            reads.append(trees.guarded(f".first {at}", name))
            values.append(trees.name(f".first {at}"))
        targets: list[ast.expr] = [ast.Name(name, ast.Store()) for name in plan.results]
        first = trees.call(trees.member(trees.name(self._state), "first"), *values)
        return [
            *reads,
            ast.Assign([ast.Tuple(targets, ast.Store())], first),
            *(trees.unbinding(name) for name in plan.results),
        ]

    def _leaving(self) -> list[ast.stmt]:
        """Return the last statements of a block with results, which hand over the values of names."""
        statements: list[ast.stmt] = []
        values: list[ast.expr] = []
        for at, name in enumerate(self._plan.results):
            statements.append(trees.guarded(f".last {at}", name))
            values.append(trees.name(f".last {at}"))
        leave = trees.member(trees.name(self._state), "leave")
        first = [trees.name(self._part), trees.name(".first")] if self._is_loop else []
        return [*statements, ast.Return(trees.call(leave, *first, *values))]

    def _passing(self, definition: ast.FunctionDef) -> ast.FunctionDef:
        """Return a definition that calls the block's function, which each encounter makes, with the other arguments."""
        names = [argument.arg for argument in definition.args.args]
        block = trees.unused("block", self._taken_names | set(names))
        identifier = f".pass {len(self._emitter.names)}"
        self._emitter.name_block(identifier, self._found)
        given: list[ast.expr] = [trees.name(one) for one in names]
        given += [ast.Starred(trees.name(self._more), ast.Load())] if self._more else []
        body: list[ast.stmt] = [ast.Return(trees.call(trees.name(block), *given))]
        at = 1 if self._is_loop else 0
        made = trees.function(identifier, [*names[:at], block, *names[at:]], body)
        made.args.vararg = ast.arg(self._more) if self._more else None
        return trees.located(made, self._found.node)  # type: ignore[no-any-return]  # the same

    # -- sections ------------------------------------------------------------------------------------
    def _section_items(self) -> None:
        """Find the list items with subscripts or members: each has a parameter, and its name stands for the section."""
        found, text = self._found, self._emitter.finding.text
        if found.form is not Form.TAKEN or found.row.stands_for == "task":
            return
        for at, (item, is_iterated) in enumerate(_part_items(found)):
            element = trees.unused(f"item_{at}", self._taken_names)
            self._items.append(element)
            if is_iterated:
                self._more = trees.unused("more", self._taken_names)
            else:
                self._elements.append(element)
            for step in item.steps:
                for entry in getattr(step, "dimensions", ()):
                    stride = getattr(entry, "stride", None)
                    if stride is not None and stride.text.strip() != "1":
                        message = f"{item.text}: a section in a block has no stride; bind the view first and map that"
                        self._emitter.finding.refuse(found.where.refusal(message, item.span), found.node)
            path = path_uses(item)
            name = item.name
            if path is None:
                if name not in self._plan.parameters and name not in self._plan.own:
                    continue
                for node in bare_uses(found.node.body, name)[:1]:
                    message = (
                        f"{name} is a section in {item.text} and is used here without a subscript; bind the view "
                        f"before the block (`part = …`), map it, and use that"
                    )
                    self._bare[name] = at_node(node, message, text)
                target: ast.expr = ast.Name(name, ast.Store())
            else:
                if is_iterated and name not in self._plan.parameters:
                    continue  # the block does not use it
                bound = path.first_binding(found.node.body)
                if bound is not None:
                    words = ".".join((path.name, *path.members))
                    message = (
                        f"{words} is mapped, so the block cannot bind it to another object; write {words}[...] = …"
                    )
                    self._emitter.finding.refuse(at_node(bound, message, text), bound)
                found.node.body = path.replaced([copied(one) for one in found.node.body], element)
                target = ast.Name(element, ast.Store())
            part = trees.member(trees.name(self._state), "part")
            given: list[ast.expr] = [ast.Constant(element)]
            if is_iterated:  # the iterators may give no array
                given.append(trees.name(name) if path is None else path.expression())
            self._prologue.append(ast.Assign([target], trees.call(part, *given)))


def _mangle(node: Any, kind: str) -> None:
    """Give private names of a class in the form of a list item the spelling that Python gives them in its body."""
    if isinstance(node.value, tuple):
        node.value = trees.mangled(node.value, kind)


def _part_items(found: Found) -> list[tuple[Any, bool]]:
    """Return the list items with subscripts or members in the data clauses of a block, in the order of the string.

    Each comes with whether its clause has iterators.
    """
    return [
        (item, bool(clause.iterators))
        for clause in found.directive.clauses
        if clause.name not in ("depend", "affinity")
        for item in clause.items
        if item.steps
    ]


_ELSEWHERE: Final = (ast.With, ast.AsyncWith, ast.Expr, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
"""The nodes of blocks that have been taken, and of nested functions and classes, which bind names by ``nonlocal``."""


def _is_bound_here(use: Any) -> bool:
    """Tell whether the remaining text of a function binds a name, and not only a block that has been taken."""
    return any(not isinstance(stored.node, _ELSEWHERE) or _binds(stored) for stored in use.stores)


def _binds(stored: Any) -> bool:
    return stored.binding not in (BindingKind.PLAIN, BindingKind.AUGMENTED)
