"""The text of a program without its streams: statements that disappear, arguments that are left out, and refusals.

Each statement has a `StatementUse`. Statements that only create streams and events, record, or wait on the device
disappear. In all others, `StreamUses.text` leaves out arguments, parameters and elements of tuples that are streams. A
stream that is used in another way is an obstacle: the program is refused, with the line.
"""

from __future__ import annotations

import ast
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from offload.port.chains import is_pure
from offload.port.program import (
    DEVICE_CLASSES,
    FUNCTIONS,
    MAKES_SYNC,
    NONE,
    OTHER,
    SYNC,
    SYNC_CONSTANTS,
    NameBinding,
    ProgramText,
    SeqOf,
    TupleOf,
    element,
    has_sync,
)

if TYPE_CHECKING:
    from offload.port.modules import ModuleNames
    from offload.port.program import FunctionNode

PINNED: Final = {
    "cupyx.empty_pinned": "empty",
    "cupyx.zeros_pinned": "zeros",
    "cupyx.empty_like_pinned": "empty_like",
    "cupyx.zeros_like_pinned": "zeros_like",
}
"""CuPy's functions for pinned arrays, and NumPy's counterparts, where `offload.empty_pinned` cannot stand."""

_REMOVED_METHODS: Final = frozenset(
    {"record", "wait_event", "append", "appendleft", "extend", "insert", "add", "clear", "pop", "popleft", "remove"}
    | {"rotate", "reverse", "free_all_blocks", "free_all_free", "set_limit"}
)
_REMOVED_CALLS: Final = frozenset({"cupy.cuda.set_allocator", "cupy.cuda.set_pinned_memory_allocator"})
_WAITING_CALLS: Final = frozenset({"cupy.cuda.runtime.deviceSynchronize"})
_REFUSED_METHODS: Final = {
    "use": "`{}` makes a stream current without a `with`; write `with stream:` around the statements",
    "begin_capture": "`{}` captures a stream; a task form cannot contain a capture",
    "end_capture": "`{}` captures a stream; a task form cannot contain a capture",
    "is_capturing": "`{}` captures a stream; a task form cannot contain a capture",
    "launch_host_func": "`{}` calls host code from a stream; synchronize, and call it on the host",
    "add_callback": "`{}` calls host code from a stream; synchronize, and call it on the host",
}
_REFUSED_ATTRIBUTES: Final = {
    "done": "`{}` asks whether work has ended; in a task form, no answer stands for it: use synchronize()",
}
_REFUSED_CALLS: Final = {
    "cupy.cuda.get_elapsed_time": "`{}` measures the time between two events, which a task form does not have",
    "cupy.cuda.runtime.deviceEnablePeerAccess": "`{}` uses peer devices; a task form of one device cannot express it",
    "cupy.cuda.runtime.memcpyPeer": "`{}` uses peer devices; a task form of one device cannot express it",
    "cupy.cuda.runtime.memcpyPeerAsync": "`{}` uses peer devices; a task form of one device cannot express it",
    "cupy.cuda.runtime.setDevice": "`{}` chooses among several devices; a task form is for one device",
}
_KNOWN_CUDA: Final = (
    *MAKES_SYNC, *SYNC_CONSTANTS, *_REMOVED_CALLS, *_WAITING_CALLS, *_REFUSED_CALLS,
    "cupy.cuda.stream", "cupy.cuda.device",
)  # fmt: skip
"""The names of ``cupy.cuda`` that a program may use: they disappear, or have a reason of their own for a refusal."""

_TAKES_STREAM: Final = {"get": 0, "set": 1, "asnumpy": 1}
"""Methods and functions that take a stream, with its position."""

MODULES: Final = {"cupy.get_array_module": "array_namespace"}
"""Functions of CuPy that `offload` has under another name."""


class StatementUse(Enum):
    """How a statement uses streams and events."""

    PLAIN = "plain"  # not at all, or only in arguments that are left out
    REMOVED = "removed"  # it only handles them
    WAIT = "wait"  # the host waits
    CONTEXT = "context"  # `with STREAM:`
    GUARD = "guard"  # an `if` whose condition looks at them
    IMPORT = "import"  # of CuPy


class Obstacle(NamedTuple):
    """A reason for which a program has no task form."""

    line: int
    text: str


class StreamUses:
    """How the statements of a program use streams.

    Attributes
    ----------
    use : dict
        For each statement, its `StatementUse`.
    obstacles : list of Obstacle
        The uses that a task form cannot express.
    names : ModuleNames
        The names of modules in the task form.
    """

    def __init__(self, program: ProgramText, names: ModuleNames) -> None:
        self.program = program
        self.names = names
        self.use: dict[ast.stmt, StatementUse] = {}
        self.obstacles: list[Obstacle] = []
        self.texts: dict[ast.AST, str] = {}  # the replaced text of nodes, for a while
        self._is_checking = True
        for node in ast.walk(program.tree):
            if isinstance(node, ast.stmt):
                self.use[node] = self._use(node)
        self._check()
        self._is_checking = False

    def refuse(self, node: ast.AST, text: str) -> None:
        """Note an obstacle."""
        obstacle = Obstacle(getattr(node, "lineno", 0), text)
        if obstacle not in self.obstacles:
            self.obstacles.append(obstacle)

    # -- statements --------------------------------------------------------------------------------
    def _use(self, node: ast.stmt) -> StatementUse:
        program = self.program
        match node:
            case ast.Import(names=names) if any(_is_of_cupy(alias.name) for alias in names):
                return StatementUse.IMPORT
            case ast.ImportFrom(module=str() as module, level=0) if _is_of_cupy(module):
                return StatementUse.IMPORT
            case (
                ast.Assign(value=value)
                | ast.AnnAssign(value=ast.expr() as value)
                | ast.Return(value=ast.expr() as value)
            ) if self.working_call(value) is not None:
                return StatementUse.PLAIN
            case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value) | ast.AugAssign(value=value) if (
                self._is_sync_assignment(node, value) or (program.dotted(value) or "").startswith("cupy.cuda")
            ):
                return StatementUse.REMOVED
            case ast.Expr(value=value):
                return self._use_of_expression(value)
            case ast.With(items=items):
                kinds = [program.kind(item.context_expr) for item in items]
                return StatementUse.CONTEXT if SYNC in kinds else StatementUse.PLAIN
            case ast.Delete(targets=targets) if all(program.kind(target) == SYNC for target in targets):
                return StatementUse.REMOVED
            case ast.Return(value=ast.expr() as value) if program.kind(value) == SYNC:
                return StatementUse.REMOVED
            case ast.AnnAssign(target=ast.Name(id=name)) if self._is_sync_field(node, name):
                return StatementUse.REMOVED
            case ast.If(test=test) | ast.While(test=test) if self._mentions_sync(test):
                return StatementUse.GUARD
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                scope = program.scopes[node]
                if all(self._is_sync_name(scope, name) for name in names):
                    return StatementUse.REMOVED
            case ast.FunctionDef() if self._makes_only_streams(node):
                return StatementUse.REMOVED
        return StatementUse.PLAIN

    def _is_sync_field(self, node: ast.stmt, name: str) -> bool:
        """Tell whether an annotation declares a field that holds streams or events."""
        is_field = isinstance(self.program.parents[node], ast.ClassDef)
        bound = self.program.attributes.get(name)
        return is_field and bool(bound) and self.program.attribute(name) == SYNC

    def _is_sync_name(self, scope: object, name: str) -> bool:
        home = scope.home_of(name)  # type: ignore[attr-defined]
        return home is not None and self.program.variable(home, name) == SYNC

    def _is_sync_assignment(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign, value: ast.expr) -> bool:
        kind = self.program.kind(value)
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if kind == NONE:  # an empty list that streams come into, or a name that holds a stream later
            return all(isinstance(one, (ast.Name, ast.Attribute)) and self.program.kind(one) == SYNC for one in targets)
        return kind == SYNC

    def _use_of_expression(self, value: ast.expr) -> StatementUse:
        program = self.program
        if not isinstance(value, ast.Call):
            return StatementUse.REMOVED if program.kind(value) == SYNC else StatementUse.PLAIN
        name = program.dotted(value.func)
        if name in _REMOVED_CALLS:
            return StatementUse.REMOVED
        if name in _WAITING_CALLS:
            return StatementUse.WAIT
        func = value.func
        if isinstance(func, ast.Attribute) and program.kind(func.value) == SYNC:
            if func.attr == "synchronize":
                return StatementUse.WAIT
            if func.attr in _REMOVED_METHODS:
                return StatementUse.REMOVED
            if func.attr == "use" and self._is_first_device(func.value):
                return StatementUse.REMOVED
        return StatementUse.PLAIN

    def _makes_only_streams(self, node: FunctionNode) -> bool:
        """Tell whether a function only creates streams and events, and returns them."""
        program = self.program
        returned = program.returned.get(node, [])
        if not returned or any(program.kind(value) != SYNC for value in returned) or node.decorator_list:
            return False
        inner = [part for part in ast.walk(node) if isinstance(part, ast.stmt) and part is not node]
        plain = (ast.For, ast.If, ast.Pass)
        return all(
            self._use(part) is StatementUse.REMOVED or isinstance(part, plain) or is_docstring(part) for part in inner
        )

    def working_call(self, value: ast.expr) -> ast.Call | None:
        """Return a call whose result is a stream or an event, if the function also does other work."""
        if isinstance(value, ast.Call) and self.program.kind(value) == SYNC:
            called = self.program.called(value)
            if called is not None and called.name != "__init__" and not self._makes_only_streams(called):
                return value
        return None

    def _mentions_sync(self, test: ast.expr) -> bool:
        return any(isinstance(part, ast.expr) and self.program.kind(part) == SYNC for part in ast.walk(test))

    def _is_first_device(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Call) and self.program.dotted(node.func) in DEVICE_CLASSES:
            return not node.args or (isinstance(node.args[0], ast.Constant) and node.args[0].value == 0)
        return True

    # -- obstacles ---------------------------------------------------------------------------------
    def _check(self) -> None:
        """Find the uses that a task form cannot express."""
        program = self.program
        removed = {node for node, use in self.use.items() if use is StatementUse.REMOVED}
        for node in ast.walk(program.tree):
            if isinstance(node, ast.Call):
                self._check_call(node)
            elif isinstance(node, ast.Attribute):
                self._check_attribute(node)
            elif isinstance(node, FUNCTIONS):
                self._check_parameters(node)
        for node, use in self.use.items():
            if use in (StatementUse.PLAIN, StatementUse.CONTEXT) and removed.isdisjoint(program.ancestors(node)):
                self.head(node)

    def _check_call(self, node: ast.Call) -> None:
        program = self.program
        name = program.dotted(node.func)
        text = program.segment(node.func)
        if name in _REFUSED_CALLS:
            self.refuse(node, _REFUSED_CALLS[name].format(text))
        elif name in DEVICE_CLASSES and not self._is_first_device(node):
            self.refuse(node, f"`{program.segment(node)}` chooses among several devices; a task form is for one device")
        elif isinstance(node.func, ast.Attribute) and node.func.attr in _REFUSED_METHODS:
            of = node.func.value
            is_device = isinstance(of, ast.Call) and program.dotted(of.func) in DEVICE_CLASSES
            if program.kind(of) == SYNC and not is_device:
                self.refuse(node, _REFUSED_METHODS[node.func.attr].format(text))

    def _check_attribute(self, node: ast.Attribute) -> None:
        program = self.program
        if node.attr in _REFUSED_ATTRIBUTES and program.kind(node.value) == SYNC:
            self.refuse(node, _REFUSED_ATTRIBUTES[node.attr].format(program.segment(node)))
        name = program.dotted(node) or ""
        if name == "cupy.fuse":
            self.refuse(node, f"`{program.segment(node)}` has no counterpart in a task form; leave the decorator out")
        is_whole = not isinstance(program.parents[node], ast.Attribute)
        is_foreign = name.startswith("cupyx.") and name not in PINNED
        is_foreign |= name.startswith("cupy.cuda.") and not name.startswith(_KNOWN_CUDA)
        if is_whole and is_foreign and self.use[program.statement(node)] is not StatementUse.REMOVED:
            self.refuse(node, f"`{program.segment(node)}` has no counterpart in a task form")

    def _check_parameters(self, node: FunctionNode) -> None:
        scope = self.program.inner[node]
        for name, bound in scope.bound.items():
            if bound[0].parameter is not None and name != "self":
                kind = self.program.variable(scope, name)
                if has_sync(kind) and kind != SYNC:
                    self.refuse(node, f"`{name}` of `{node.name}` holds streams, and also other values")

    # -- texts -------------------------------------------------------------------------------------
    def text(self, node: ast.AST) -> str:
        """Return the text of an expression or a simple statement without streams; note obstacles."""
        given = self.texts.get(node)
        if given is not None:
            return given
        special = self._special(node)
        if special is not None:
            return special
        if isinstance(node, ast.expr) and self.program.kind(node) == SYNC:
            self._refuse_use(node)
            return self.program.segment(node)
        return self._with_children(node, [*ast.iter_child_nodes(node)])

    def _refuse_use(self, node: ast.expr) -> None:
        if node.lineno not in {obstacle.line for obstacle in self.obstacles}:
            self.refuse(node, f"`{self.program.segment(node)}` is used in a way that a task form cannot express")

    def _with_children(self, node: ast.AST, children: list[ast.AST]) -> str:
        """Return the source text of a node, with the new texts of these children."""
        return self._changed(self.program.segment(node), self.offset(node), children)

    def _changed(self, text: str, base: int, children: list[ast.AST]) -> str:
        """Return a text that begins at an offset, with the new texts of these children."""
        found = []
        for child in _positioned(children):
            old, new = self.program.segment(child), self.text(child)
            if old != new:
                found.append((self.offset(child) - base, old, new))
        for start, old, new in sorted(found, reverse=True):
            text = text[:start] + new + text[start + len(old) :]
        return text

    def offset(self, node: ast.AST) -> int:
        """Return where a node begins, in characters of the file."""
        return self.program.offset(node.lineno, node.col_offset)  # type: ignore[attr-defined]  # it has a place

    def _special(self, node: ast.AST) -> str | None:
        program = self.program
        match node:
            case ast.Call():
                return self._call(node)
            case ast.JoinedStr():  # before Python 3.12, the parts have no places in the text
                for part in ast.walk(node):
                    if isinstance(part, ast.expr) and program.kind(part) == SYNC:
                        self._refuse_use(node)
                return program.segment(node)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                return self._comprehension(node)
            case ast.Tuple(elts=elts) if any(map(self._is_dropped, elts)):
                kept = [self.text(elt) for elt in elts if not self._is_dropped(elt)]
                inner = f"{kept[0]}," if len(kept) == 1 else ", ".join(kept)
                return f"({inner})" if program.segment(node).startswith("(") else inner
            case ast.Attribute() | ast.Name():
                name = program.dotted(node)
                if name == "cupyx.empty_pinned":
                    return f"{self.names.offload}.empty_pinned"
                if name in PINNED:
                    return f"{self.names.numpy}.{PINNED[name]}"
                if name in MODULES:
                    return f"{self.names.offload}.{MODULES[name]}"
        return None

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> str | None:
        """Return a comprehension that iterates over streams without them; None for all others."""
        if not any(self._mentions_sync_in(one.target) or self._mentions_sync_in(one.iter) for one in node.generators):
            return None
        loops = []
        for one in node.generators:
            target, values = self.loop(one.target, one.iter)
            loops.append(f" for {target} in {values}" + "".join(f" if {self.text(test)}" for test in one.ifs))
        if isinstance(node, ast.DictComp):
            return f"{{{self.text(node.key)}: {self.text(node.value)}{''.join(loops)}}}"
        text = self.text(node.elt) + "".join(loops)
        brackets = {ast.ListComp: "[]", ast.SetComp: "{}"}.get(type(node), "()")
        return f"{brackets[0]}{text}{brackets[1]}"

    def _is_dropped(self, node: ast.expr) -> bool:
        return self.program.kind(node) == SYNC

    def pinned(self, node: ast.Call) -> str | None:
        """Return the call of `offload.empty_pinned` for an array like one that CuPy pins; None for other calls."""
        name = self.program.dotted(node.func)
        if name in {"cupyx.empty_pinned", "cupyx.zeros_pinned"}:
            rest = self._with_children(node, [*node.args, *node.keywords])[len(self.program.segment(node.func)) :]
            return f"{self.names.offload}.empty_pinned{rest}"
        if name in PINNED and len(node.args) == 1 and not node.keywords and is_pure(node.args[0]):
            like = self.text(node.args[0])
            return f"{self.names.offload}.empty_pinned({like}.shape, {like}.dtype)"
        return None

    def _call(self, node: ast.Call) -> str | None:
        program = self.program
        name = (program.dotted(node.func) or "").removeprefix("builtins.")
        if name == "cupyx.empty_like_pinned":
            return self.pinned(node)
        if name == "len" and len(node.args) == 1 and self._is_dropped(node.args[0]):
            return self.length(node.args[0])
        if name == "enumerate" and node.args and self._is_dropped(node.args[0]):
            return f"enumerate(range({self.length(node.args[0])}))"
        if not self._has_arguments_to_drop(node):
            return None
        if name != "zip" and not self._may_drop(node):
            return None
        kept = [self.text(arg) for arg in node.args if not self._is_dropped(arg)]
        kept += [
            self._with_children(keyword, [keyword.value])
            for keyword in node.keywords
            if not self._is_dropped(keyword.value) and not self._is_blocking(node, keyword)
        ]
        return f"{self.text(node.func)}({', '.join(kept)})"

    def _has_arguments_to_drop(self, node: ast.Call) -> bool:
        return any(map(self._is_dropped, node.args)) or any(
            self._is_dropped(keyword.value) or self._is_blocking(node, keyword) for keyword in node.keywords
        )

    def _is_blocking(self, node: ast.Call, keyword: ast.keyword) -> bool:
        """Tell whether a keyword is the ``blocking`` of a copy, which says nothing once the host has waited."""
        return keyword.arg == "blocking" and self._stream_position(node) is not None

    def _stream_position(self, node: ast.Call) -> int | None:
        name = self.program.dotted(node.func)
        if name is not None:
            return _TAKES_STREAM["asnumpy"] if name == "cupy.asnumpy" else None
        return _TAKES_STREAM.get(node.func.attr) if isinstance(node.func, ast.Attribute) else None

    def _may_drop(self, node: ast.Call) -> bool:
        """Tell whether the streams among the arguments of a call may be left out."""
        program = self.program
        called = program.called(node)
        fields = program.fields_of(node)
        if fields is not None:
            dropped = self._dropped_arguments(node)
            names = [name for name, value in fields.items() if value in dropped]
            if all(program.attribute(name) == SYNC for name in names):
                return True
        elif called is not None:
            if all(self._is_sync_parameter(called, node, arg) for arg in self._dropped_arguments(node)):
                return True
        elif not any(map(self._is_dropped, node.args)) and all(
            keyword.arg in {"stream", "blocking"} for keyword in node.keywords if self._is_dropped(keyword.value)
        ):
            return True  # of a copy or a launch
        else:
            position = self._stream_position(node)
            if position is not None and not any(map(self._is_dropped, node.args[:position])):
                return len(node.args) == position + 1
        if node.lineno not in {obstacle.line for obstacle in self.obstacles}:
            name = program.segment(node.func)
            text = f"a stream is passed to `{name}`, which this file does not define; a task form has no streams"
            self.refuse(node, text)
        return False

    def _dropped_arguments(self, node: ast.Call) -> list[ast.expr]:
        return [value for value in (*node.args, *(k.value for k in node.keywords)) if self._is_dropped(value)]

    def _is_sync_parameter(self, function: FunctionNode, call: ast.Call, argument: ast.expr) -> bool:
        program = self.program
        scope = program.inner[function]
        return any(
            argument in program.passed(call, function, name) and program.variable(scope, name) == SYNC
            for name, bound in scope.bound.items()
            if bound[0].parameter is not None
        )

    # -- lengths -----------------------------------------------------------------------------------
    def length(self, node: ast.expr) -> str:
        """Return the text of the number of streams in a container."""
        found = self._length(node, (), 0)
        if found is None and not self._is_checking:  # a loop of waits needs no number
            self.refuse(node, f"the number of streams in `{self.program.segment(node)}` cannot be read from the text")
        return found or "0"

    def _length(self, node: ast.expr | None, way: tuple[int, ...], depth: int) -> str | None:
        program = self.program
        if depth > 20:
            return None
        match node:
            case ast.Name():
                home = program.scopes[node].home_of(node.id)
                bound: list[NameBinding] = [] if home is None else home.bound[node.id]
                return self._length(bound[0].value, bound[0].way + way, depth + 1) if len(bound) == 1 else None
            case ast.GeneratorExp(elt=elt) | ast.ListComp(elt=elt) if way:
                return self._length(elt, way[1:], depth + 1)
            case ast.Tuple(elts=elts) | ast.List(elts=elts) if way:
                return self._length(elts[way[0]], way[1:], depth + 1) if 0 <= way[0] < len(elts) else None
            case ast.ListComp(generators=[one]) | ast.GeneratorExp(generators=[one]) if not one.ifs:
                return self._count(one.iter, depth)
            case ast.Tuple(elts=elts) | ast.List(elts=elts) if not any(isinstance(e, ast.Starred) for e in elts):
                return str(len(elts))
            case ast.BinOp(left=ast.List(elts=[_]), op=ast.Mult(), right=right):
                return self.text(right)
            case ast.Call(func=ast.Name(id="list" | "tuple"), args=[one]):
                return self._length(one, way, depth + 1)
            case ast.Call():
                return self._returned_length(node, way, depth)
        return None

    def _returned_length(self, node: ast.Call, way: tuple[int, ...], depth: int) -> str | None:
        """Return the length of the result of a function of the file, if it is a number or a parameter."""
        program = self.program
        called = program.called(node)
        returned = [] if called is None else program.returned.get(called, [])
        text = self._length(returned[0], way, depth + 1) if len(returned) == 1 else None
        if called is None or text is None or text.isdigit():
            return text
        given = program.passed(node, called, text)
        return self.text(given[0]) if given else None

    def _count(self, node: ast.expr, depth: int) -> str | None:
        if isinstance(node, ast.Call) and self.program.dotted(node.func) == "builtins.range" and len(node.args) == 1:
            return self.text(node.args[0])
        if has_sync(self.program.kind(node)):
            return self._length(node, (), depth + 1)
        return f"len({self.text(node)})"

    # -- heads of statements -----------------------------------------------------------------------
    def head(self, node: ast.stmt) -> str:
        """Return the text of a simple statement, or of a compound statement up to its colon, without streams."""
        match node:
            case ast.For() | ast.AsyncFor():
                target, values = self.loop(node.target, node.iter)
                word = "async for" if isinstance(node, ast.AsyncFor) else "for"
                new = f"{word} {target} in {values}:"
                is_changed = self._mentions_sync_in(node.target) or self._mentions_sync_in(node.iter)
                return new if is_changed else self.colon_head(node)
            case ast.With():
                kept = [item for item in node.items if self.program.kind(item.context_expr) != SYNC]
                if len(kept) == len(node.items):
                    return self.colon_head(node)
                return f"with {', '.join(self._item(item) for item in kept)}:" if kept else ""
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                return self._definition(node)
            case ast.Delete():
                kept_targets = [self.text(target) for target in node.targets if not self._is_dropped(target)]
                return f"del {', '.join(kept_targets)}"
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                word = "global" if isinstance(node, ast.Global) else "nonlocal"
                scope = self.program.scopes[node]
                return f"{word} {', '.join(name for name in names if not self._is_sync_name(scope, name))}"
            case (
                ast.Assign(value=value)
                | ast.AnnAssign(value=ast.expr() as value)
                | ast.Return(value=ast.expr() as value)
            ) if (call := self.working_call(value)) is not None:
                text = self._special(call) or self._with_children(call, [*ast.iter_child_nodes(call)])
                return f"return {text}" if isinstance(node, ast.Return) else text
            case ast.Assign(value=value, targets=targets):
                self._check_tuple(node, targets, value)
                single = self._single_assignment(targets, value)
                if single is not None:
                    return single
        return self.colon_head(node)

    def _single_assignment(self, targets: list[ast.expr], value: ast.expr) -> str | None:
        """Return ``a = b`` for ``a, s = b, stream``; None for other assignments."""
        if len(targets) != 1 or not isinstance(targets[0], ast.Tuple) or not isinstance(value, ast.Tuple):
            return None
        pairs = list(zip(targets[0].elts, value.elts, strict=False))
        kept = [pair for pair in pairs if not self._is_dropped(pair[1])]
        if len(kept) == len(pairs) or len(kept) != 1 or len(targets[0].elts) != len(value.elts):
            return None
        return f"{self.text(kept[0][0])} = {self.text(kept[0][1])}"

    def _mentions_sync_in(self, node: ast.expr) -> bool:
        return any(isinstance(part, ast.expr) and has_sync(self.program.kind(part)) for part in ast.walk(node))

    def _check_tuple(self, node: ast.stmt, targets: list[ast.expr], value: ast.expr) -> None:
        """Refuse a name for a tuple with streams: its other elements would have other indices."""
        kind = self.program.kind(value)
        if isinstance(kind, (TupleOf, SeqOf)) or kind not in (SYNC, NONE, OTHER):
            is_kept = isinstance(kind, TupleOf) and all(isinstance(one, (ast.Tuple, ast.List)) for one in targets)
            if not is_kept and not (isinstance(kind, SeqOf) and element(kind, -1) != kind):
                self.refuse(
                    node, "a container holds streams together with other values; keep them in separate variables"
                )

    def source_head(self, node: ast.stmt) -> str:
        """Return the source text of a compound statement up to its colon."""
        first = _first_in(node)
        start = self.offset(node)
        text = self.program.text[start : start if first is None else self.offset(first)]
        ends = [self.offset(part) - start + len(self.program.segment(part)) for part in _positioned(_heads(node))]
        return text[: text.index(":", max([0, *ends])) + 1]

    def colon_head(self, node: ast.stmt) -> str:
        """Return the text of a compound statement up to its colon, with changed expressions."""
        if not hasattr(node, "body") and not isinstance(node, ast.Match):
            return self.text(node)
        return self._changed(self.source_head(node), self.offset(node), _heads(node))

    def _item(self, item: ast.withitem) -> str:
        text = self.text(item.context_expr)
        return text if item.optional_vars is None else f"{text} as {self.text(item.optional_vars)}"

    def loop(self, target: ast.expr, values: ast.expr) -> tuple[str, str]:
        """Return target and iterable of a `for` without streams."""
        found = self._pair(target, values)
        if found is None:
            return "_", f"range({self._number_of(values)})"
        return found

    def _number_of(self, values: ast.expr) -> str:
        if isinstance(values, ast.Call) and self.program.dotted(values.func) == "builtins.zip" and values.args:
            return self.length(values.args[0])
        return self.length(values)

    def _pair(self, target: ast.expr, values: ast.expr) -> tuple[str, str] | None:
        program = self.program
        name = program.dotted(values.func) if isinstance(values, ast.Call) else None
        if isinstance(values, ast.Call) and isinstance(target, ast.Tuple):
            if name == "builtins.enumerate" and len(values.args) == 1 and len(target.elts) == 2:
                inner = self._pair(target.elts[1], values.args[0])
                number = self.text(target.elts[0])
                if inner is None:
                    return number, f"range({self._number_of(values.args[0])})"
                element_text = f"({inner[0]})" if _is_bare_tuple(inner[0]) else inner[0]
                return f"{number}, {element_text}", f"enumerate({inner[1]})"
            if name == "builtins.zip" and len(values.args) == len(target.elts) and not values.keywords:
                pairs = [self._pair(*pair) for pair in zip(target.elts, values.args, strict=True)]
                kept = [pair for pair in pairs if pair is not None]
                if len(kept) < 2:
                    return kept[0] if kept else None
                targets = [f"({one})" if _is_bare_tuple(one) else one for one, _ in kept]
                return ", ".join(targets), f"zip({', '.join(other for _, other in kept)})"
        if program.kind(values) == SYNC:
            return None
        return self.text(target), self.text(values)

    def _definition(self, node: FunctionNode) -> str:
        scope = self.program.inner[node]
        dropped = {
            name
            for name, bound in scope.bound.items()
            if bound[0].parameter is not None and self.program.variable(scope, name) == SYNC
        }
        names = [] if node.returns is None else [self.program.dotted(part) for part in ast.walk(node.returns)]
        returns_stream = any(name is not None and name.startswith("cupy.cuda") for name in names)
        if not dropped and not returns_stream:
            return self.colon_head(node)
        arguments = node.args
        args = [*arguments.posonlyargs, *arguments.args]
        defaults = [*[None] * (len(args) - len(arguments.defaults)), *arguments.defaults]
        kept = [self._parameter(*pair) for pair in zip(args, defaults, strict=True) if pair[0].arg not in dropped]
        only = [
            self._parameter(arg, default)
            for arg, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
            if arg.arg not in dropped
        ]
        if arguments.vararg:
            kept.append(f"*{arguments.vararg.arg}")
        elif only:
            kept.append("*")
        kept += only
        if arguments.kwarg:
            kept.append(f"**{arguments.kwarg.arg}")
        returns = f" -> {self.program.segment(node.returns)}" if node.returns and not returns_stream else ""
        return f"def {node.name}({', '.join(kept)}){returns}:"

    def _parameter(self, arg: ast.arg, default: ast.expr | None) -> str:
        text = self.program.segment(arg)
        if default is None:
            return text
        return f"{text} = {self.text(default)}" if arg.annotation else f"{text}={self.text(default)}"


def is_docstring(node: ast.stmt) -> bool:
    """Tell whether a statement is a string alone."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_of_cupy(module: str) -> bool:
    return module.partition(".")[0] in {"cupy", "cupyx"}


def _is_bare_tuple(text: str) -> bool:
    return "," in text and not text.startswith("(")


def _positioned(nodes: list[ast.AST]) -> list[ast.AST]:
    """Return the nodes that have a place in the text; nodes without one are replaced by their children."""
    found: list[ast.AST] = []
    for node in nodes:
        if hasattr(node, "lineno"):
            found.append(node)
        else:
            found += _positioned([*ast.iter_child_nodes(node)])
    return found


def _heads(node: ast.AST) -> list[ast.AST]:
    """Return the nodes in the head of a compound statement."""
    found: list[ast.AST] = []
    for name, value in ast.iter_fields(node):
        if name in {"body", "orelse", "finalbody", "handlers", "cases", "decorator_list"}:
            continue
        found += [child for child in (value if isinstance(value, list) else [value]) if isinstance(child, ast.AST)]
    return found


def _first_in(node: ast.stmt) -> ast.AST | None:
    body = getattr(node, "body", None) or getattr(node, "cases", None)
    if not body:
        return None
    first = body[0].pattern if isinstance(node, ast.Match) else body[0]
    decorators = getattr(first, "decorator_list", None)
    return decorators[0] if decorators else first  # type: ignore[no-any-return]
