"""Mutants of a program: each has one map, dependence, update, wait, detach or queue removed or weakened.

A mutation replaces the text of one node of the program's tree, and leaves the other lines where they are.
"""

from __future__ import annotations

import ast
import random
from dataclasses import dataclass

WEAKER_MAPS = {
    "tofrom": ("to", "from_", "alloc"),
    "to": ("alloc",),
    "from_": ("alloc",),
}
WEAKER_DEPENDENCES = {
    "inout": ("in_",),
    "out": ("in_",),
    "mutexinoutset": ("in_",),
    "inoutset": ("in_",),
}
WEAKER_CLAUSES = {
    "copy": ("copyin", "copyout", "create"),
    "copyin": ("create",),
    "copyout": ("create",),
}
DATA_CALLS = {
    "target_enter_data",
    "target_exit_data",
    "enter_data",
    "exit_data",
    "copyin",
    "create",
    "copyout",
    "delete",
}
UPDATES = {"target_update", "update", "update_self", "update_device", "update_self_async", "update_device_async"}
WAITS = {
    "taskwait",
    "barrier",
    "wait",
    "wait_all",
    "wait_async",
    "wait_all_async",
    "result",
    "synchronize",
    "wait_event",
    "wait_on",
}
COPIES = {"target_memcpy": "target_memcpy_async", "target_memcpy_rect": "target_memcpy_rect_async"}
REGIONS = {"parallel", "kernels", "serial", "parallel_loop", "target", "target_loop"}
KINDS = ("map", "depend", "update", "wait", "detach", "queue")


@dataclass(frozen=True)
class Mutant:
    """A program with one fault planted, perhaps."""

    program: str
    number: int
    kind: str
    line: int
    change: str
    text: str

    @property
    def name(self):
        return f"{self.program}-{self.number}"


class Mutations(ast.NodeVisitor):
    """Collects the mutations of a program: a node, the text in its place, and what is removed by that."""

    def __init__(self, text):
        self.text = text
        self.found = []
        tree = ast.parse(text)
        self.exits = [call for call in ast.walk(tree) if called(call) == "target_exit_data"]
        self.decorators_of_values = {
            decorator
            for function in ast.walk(tree)
            if isinstance(function, ast.FunctionDef)
            and any(isinstance(node, ast.Return) and node.value for node in ast.walk(function))
            for decorator in function.decorator_list
        }
        self.visit(tree)

    def source(self, node):
        return ast.get_source_segment(self.text, node)

    def library_call(self, call):
        """Return the name that a statement calls, if the library has it: a method, or a routine of it."""
        name = called(call)
        is_routine = isinstance(call, ast.Call) and self.source(call.func) in {f"omp.{name}", f"acc.{name}"}
        return name if is_routine or name in WAITS & {"result", "synchronize", "wait_event", "wait_on"} else None

    def add(self, kind, node, new, what):
        self.found.append((kind, node, new, what))

    # -- statements

    def visit_Expr(self, node):
        call = node.value.value if isinstance(node.value, ast.Await) else node.value
        name = self.library_call(call)
        if name == "result":
            self.add("wait", call, self.source(call.func.value), "result removed")
        elif name in DATA_CALLS or name == "target_free":
            self.add("map", node, "pass", f"{name} removed")
        elif name in UPDATES:
            self.add("update", node, "pass", f"{name} removed")
        elif name in WAITS:
            self.add("wait", node, "pass", f"{name} removed")
        elif isinstance(node.value, ast.Await):
            self.add("wait", node, "pass", "await removed")
        self.generic_visit(node)

    def visit_With(self, node):
        names = [called(item.context_expr) for item in node.items]
        if names == ["taskgroup"] and not isinstance(node, ast.AsyncWith):
            self.add("wait", node.items[0].context_expr, "__import__('contextlib').nullcontext()", "taskgroup removed")
        for item, name in zip(node.items, names, strict=True):
            if name in {"target_data", "data"} and item.optional_vars is None:
                self.add("map", item.context_expr, "__import__('contextlib').nullcontext()", f"{name} removed")
            if name == "target_data":
                self.add("wait", item.context_expr.keywords, "nogroup=True, ", "target_data without its group")
        self.generic_visit(node)

    visit_AsyncWith = visit_With  # noqa: N815  # the name that `ast` calls

    # -- calls and their clauses

    def visit_Call(self, node):
        name = called(node)
        for keyword in node.keywords:
            self._keyword(node, name, keyword)
        if name in UPDATES and name not in {"target_update", "update"} and node.args:
            self._narrow("update", node.args[0])
        if name in COPIES and isinstance(node.func, ast.Attribute):
            self.add("wait", node.func, f"{self.source(node.func.value)}.{COPIES[name]}", f"{name} made asynchronous")
        self._asynchronous(node, name)
        if name == "fulfill_on":
            self.add("detach", node, f"{self.source(node.func.value)}.fulfill()", "fulfilled at once")
        if name == "zero":
            self.add("map", node, ", ".join(map(self.source, node.args)), "zero: removed")
        if name == "wait" and node.args:
            for arg in node.args:
                self.add("wait", arg, "77", "waits for another queue")
        if name in WEAKER_MAPS and isinstance(node.func, ast.Name):
            self._map(node, name)
        if name in WEAKER_DEPENDENCES | {"in_": ()} and isinstance(node.func, ast.Name):
            self._depend(node, name)
        self.generic_visit(node)

    def valued(self, call):
        """Return ``{"target"}`` for the decorator of a function that returns a value, which a task is not."""
        return {"target"} if call in self.decorators_of_values else set()

    def _map(self, node, name):
        for weaker in ("release",) if self._is_exit(node) else WEAKER_MAPS[name]:
            self.add("map", node.func, f"omp.{weaker}", f"{name} -> {weaker}")
        for keyword in node.keywords:
            if keyword.arg == "always":
                self.add("map", keyword.value, "False", "always removed")

    def _is_exit(self, node):
        return any(node in ast.walk(call) for call in self.exits)

    def _depend(self, node, name):
        for weaker in WEAKER_DEPENDENCES.get(name, ()):
            self.add("depend", node.func, f"omp.{weaker}", f"{name} -> {weaker}")
        if len(node.args) > 1:
            for arg in node.args:
                self.add("depend", arg, "()", "one item removed")
        for arg in node.args:
            if isinstance(arg, ast.Constant) and isinstance(arg.value, str) and "[" not in arg.value:
                self.add("depend", arg, f'"{arg.value}[0:1]"', "item narrowed")
            elif isinstance(arg, ast.Name):
                self.add("depend", arg, f"{arg.id}[:1]", "item narrowed")

    def _keyword(self, call, name, keyword):
        value = keyword.value
        if keyword.arg == "depend" and name != "taskwait":
            self._elements("depend", value)
            self.add("depend", value, "()", "depend removed")
        elif keyword.arg == "map":
            self._elements("map", value)
        elif keyword.arg in WEAKER_CLAUSES and isinstance(value, ast.List):
            for weaker in ("delete",) if name == "exit_data" else WEAKER_CLAUSES[keyword.arg]:
                self.add("map", keyword, f"{weaker}={self.source(value)}", f"{keyword.arg} -> {weaker}")
            self._elements("map", value)
        elif self.source(call.func) in {"omp.target_update", "acc.update"} and keyword.arg in {
            "to",
            "from_",
            "self_",
            "host",
            "device",
        }:
            if isinstance(value, ast.List):
                self._elements("update", value)
                for item in value.elts:
                    self._narrow("update", item)
        elif keyword.arg == "detach":
            self.add("detach", value, "None", "detach removed")
        elif keyword.arg == "async_" and name not in {"wait", "wait_async"}:
            self.add("queue", value, f"({self.source(value)}) + 40", "another queue")
        elif keyword.arg == "wait":
            self.add("queue", value, "None", "wait clause removed")
        elif keyword.arg == "nowait" and isinstance(value, ast.Constant) and value.value is False:
            self.add("wait", value, "True", "made asynchronous")

    def _elements(self, kind, value):
        """Remove one element of a list at a time."""
        if isinstance(value, ast.List) and len(value.elts) > 1:
            for item in value.elts:
                if kind == "map" and "[" in self.source(item):
                    continue  # the body would get another array
                rest = [self.source(other) for other in value.elts if other is not item]
                self.add(kind, value, f"[{', '.join(rest)}]", f"{self.source(item)} removed")

    def _narrow(self, kind, item):
        self.add(kind, item, f"{self.source(item)}[1:]", "item narrowed")

    def _asynchronous(self, node, name):
        """Make a synchronous construct asynchronous."""
        given = {keyword.arg for keyword in node.keywords}
        if not node.keywords or None in given:
            return
        names = {"target_update", "target_enter_data", "target_exit_data", "copy", "target"}
        if name in names - self.valued(node) and "nowait" not in given:
            if not (isinstance(node.func, ast.Attribute) and self.source(node.func.value) != "omp"):
                self.add("wait", node.keywords, "nowait=True, ", f"{name} made asynchronous")
        elif self.source(node.func) in {"acc.update", "acc.enter_data", "acc.exit_data"} and "async_" not in given:
            self.add("queue", node.keywords, "async_=77, ", f"{name} made asynchronous")


def called(node):
    """Return the last name of the function that a node calls, or None."""
    if not isinstance(node, ast.Call):
        return None
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)


def edited(text, node, new):
    """Return the text with other text for a node; for a list of nodes, with text before the first of them."""
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode()))
    data = text.encode()
    is_before = isinstance(node, list)
    node = node[0] if is_before else node
    first = starts[node.lineno - 1] + node.col_offset
    last = first if is_before else starts[node.end_lineno - 1] + node.end_col_offset
    return (data[:first] + new.encode() + data[last:]).decode()


def unchanged(program):
    """Return a program itself as a mutant, with the number -1."""
    return Mutant(program.name, -1, "none", 0, "the program itself", program.text)


def mutants(program, limit=None, seed=0):
    """Return the mutants of a program, all of them or a random choice of `limit` that has all kinds."""
    found, texts = [], {program.text}
    for kind, node, new, what in Mutations(program.text).found:
        line = node[0].lineno if isinstance(node, list) else node.lineno
        if line > program.n_lines:
            continue
        text = edited(program.text, node, new)
        if text in texts:
            continue
        try:
            compile(text, program.name, "exec")
        except SyntaxError:
            continue
        texts.add(text)
        found.append(Mutant(program.name, len(found), kind, line, what, text))
    if limit is None or len(found) <= limit:
        return found
    generator = random.Random(f"{seed} {program.name}")  # no secret
    generator.shuffle(found)
    chosen = []
    while len(chosen) < limit:  # one of each kind in turn, so that rare kinds are there
        for kind in KINDS:
            one = next((m for m in found if m.kind == kind), None)
            if one is not None and len(chosen) < limit:
                chosen.append(one)
                found.remove(one)
    return sorted(chosen, key=lambda mutant: mutant.number)
