"""Count the concepts of the package from its source, by rules.

    python benchmarks/concepts.py [--tree PATH] [--list NAME] [--json]

Each figure is found by a rule over the syntax trees of the package's files, never by a list of names, so that two trees
can be compared. ``--list NAME`` prints where the counted things stand. The rules:

*ways to enter*
    Functions of ``data/`` and ``runtime/`` that carry out an entry. These are: functions that raise a reference count
    (``x.dynamic += 1``, ``x.dynamic = 1``, likewise ``structured``), or, if other functions of the file call them,
    those; and functions with the word *enter* in their name that call one of these, or a function named *commit*.
*ways to leave*
    The same with counts that are lowered, or set to others, and with the words *exit*, *leave* and *end*.
*ways to update*
    Functions of ``data/`` and ``runtime/`` with the word *update* in their name that take items, or look for known
    ones, without methods of works and functions that only arrange steps in the order of the standard.
*plans*
    Classes of ``data/`` and ``runtime/`` that say what an entry has done: with an attribute ``counted``, or with a
    ``counter`` and ``entries``.
*makers of tasks*
    Functions that construct a task: that call the class ``Task`` or one derived from it, or their ``__new__``.
*ways to generate*
    Functions that give a task to an engine (``engine.submit``), functions of ``runtime/generate`` that call these, and
    functions elsewhere that make a task and give it to either.
*drivers of advance*
    Functions that call ``task.advance(engine, scope)``.
*guards*
    Tests of ``if`` in ``constructs/``, ``loops/`` and ``acc/`` that ask whether only the call's own clauses matter:
    they read an attribute of the region and one of what its tasks inherit, or the region's ``mode``.
*stores of loop calls*
    Attributes of objects of ``loops/running`` and ``loops/speculative`` that begin as an empty dictionary, or as an
    object of a class named *Memo*, and fields of such a class. A dictionary whose keys are annotated as ``str`` does
    not count. It maps the names of a run's arrays or scalars to values, or C sources to libraries. No call is found by
    a name: keys of calls are tuples of layouts and numbers.
*class names in several files*
    Names of classes, wherever they are defined, that are defined in more than one file.
*layers*
    Classes of which one other class of the package alone is derived, and that nothing else uses but annotations: one
    object in several pieces. Protocols, exceptions, and classes with an abstract method or with no method do not count.
*lines*
    Lines of the Python files of the package without ``cli/bench``.
*files a nowait target call visits*
    As ``benchmarks/walk.py`` counts them: of a call that maps an array, with ``depend``, and of the call with its wait.
*comments by room*
    Lines with a comment, for each 100 lines of code. Directives for tools alone (``noqa``, ``type:``) do not count, nor
    do docstrings, which are not code either.
"""

import argparse
import ast
import io
import json
import os
import re
import subprocess
import sys
import tokenize
from collections import Counter, defaultdict
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NAMED = re.compile(r"(dict|Mapping)\[str, ")  # annotations of dictionaries by name
DIRECTIVE = re.compile(r"#\s*(noqa|type:|pragma|fmt:|mypy:)")


class Function:
    """A function of the package: where it stands, what it is called, what it calls."""

    def __init__(self, file, node, owner):
        self.file, self.node, self.owner = file, node, owner
        self.name = node.name
        self.where = f"{file.path}:{node.lineno} {owner + '.' if owner else ''}{node.name}"

    @property
    def words(self):
        return set(self.name.strip("_").split("_"))

    @property
    def is_magic(self):
        return self.name.startswith("__") and self.name.endswith("__")

    @cached_property
    def nodes(self):
        """All nodes, those of functions within included."""
        return list(ast.walk(self.node))

    @cached_property
    def calls(self):
        return [node for node in self.nodes if isinstance(node, ast.Call)]

    @cached_property
    def called(self):
        """The names of what it calls, without leading underscores."""
        return {name.lstrip("_") for name in map(called_name, self.calls) if name}

    @property
    def parameters(self):
        arguments = self.node.args
        return {argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}


class Class:
    """A class of the package."""

    def __init__(self, file, node):
        self.file, self.node, self.name = file, node, node.name
        self.where = f"{file.path}:{node.lineno} {node.name}"

    @cached_property
    def bases(self):
        """The names of its bases, without modules and parameters."""
        bases = [one.value if isinstance(one, ast.Subscript) else one for one in self.node.bases]
        named = [one for one in bases if isinstance(one, (ast.Name, ast.Attribute))]
        return [one.id if isinstance(one, ast.Name) else one.attr for one in named]

    @cached_property
    def attributes(self):
        """The names of its slots, of what its body annotates, and of what its methods assign to ``self``."""
        found = set()
        for node in ast.walk(self.node):
            match node:
                case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                    found.add(name)
                case ast.AnnAssign(target=ast.Name(id=name)):
                    found.add(name)
                case ast.Assign(targets=[ast.Name(id="__slots__")]):
                    found |= {one.value for one in ast.walk(node.value) if isinstance(one, ast.Constant)}
        return found


class File:
    """A file of the package, parsed."""

    def __init__(self, package, path):
        self.path = str(path.relative_to(package))
        self.text = path.read_text()
        self.tree = ast.parse(self.text)
        self.functions, self.classes = [], []
        self._gather(self.tree, None)

    def _gather(self, node, owner):
        """Note the functions of modules and classes; those within functions belong to these."""
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self.functions.append(Function(self, child, owner))
            elif isinstance(child, ast.ClassDef):
                self.classes.append(Class(self, child))
                self._gather(child, child.name)
            else:
                self._gather(child, owner)

    @property
    def room(self):
        parts = self.path.split("/")
        return parts[0] if len(parts) > 1 else "(top)"

    def comments(self):
        """Return how many lines have a comment, and how many have code."""
        comments, code = set(), set()
        docstrings = set()
        for node in ast.walk(self.tree):
            match node:
                case ast.Expr(value=ast.Constant(value=str())):
                    docstrings |= set(range(node.lineno, node.end_lineno + 1))
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type == tokenize.COMMENT:
                if not DIRECTIVE.match(token.string) or token.string.count("#") > 1:
                    comments.add(token.start[0])
            elif token.type not in LAYOUT:
                code |= set(range(token.start[0], token.end[0] + 1))
        return len(comments), len(code - docstrings)


LAYOUT = {
    *(tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER, tokenize.ENCODING),
}


def called_name(call):
    """Return the last name of what a call calls."""
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return None


class Package:
    """The files of a tree's package, and what is counted in them."""

    def __init__(self, tree):
        self.tree = Path(tree).resolve()
        package = self.tree / "offload"
        self.files = [File(package, path) for path in sorted(package.rglob("*.py"))]
        self.functions = [function for file in self.files for function in file.functions]
        self.classes = [one for file in self.files for one in file.classes]

    def of_rooms(self, *rooms):
        return [function for function in self.functions if function.file.path.startswith(rooms)]

    # -- data ------------------------------------------------------------------------------------------
    def counting(self, kind):
        """Return the ways that change counts upwards or downwards."""
        owners = {one.name for one in self.classes if "dynamic" in one.attributes and one.file.room == "data"}
        functions = [one for one in self.of_rooms("data/", "runtime/") if not one.is_magic]
        direct = [one for one in functions if one.owner not in owners and any(changes(n, kind) for n in one.nodes)]
        found = []
        for one in direct:
            callers = [
                other
                for other in one.file.functions
                if other is not one and one.name.lstrip("_") in other.called and other not in direct
            ]
            found += callers or [one]
        words = {"up": {"enter", "reenter"}, "down": {"exit", "leave", "end"}}[kind]
        while True:
            names = {one.name.lstrip("_") for one in found}
            more = [
                one
                for one in functions
                if one not in found
                and one.words & words
                and (one.called & names or any(name.startswith("commit") for name in one.called))
            ]
            if not more:
                return list(dict.fromkeys(found))
            found += more

    def ways_to_enter(self):
        return self.counting("up")

    def ways_to_leave(self):
        return self.counting("down")

    def ways_to_update(self):
        return [
            one
            for one in self.of_rooms("data/", "runtime/")
            if "update" in one.words
            and not one.is_magic
            and one.parameters & {"items", "known", "given"}
            and not (one.owner or "").endswith("Work")
        ]

    def plans(self):
        rooms = ("data/", "runtime/")
        return [
            one
            for one in self.classes
            if one.file.path.startswith(rooms)
            and ("counted" in one.attributes or {"counter", "entries"} <= one.attributes)
        ]

    # -- tasks -----------------------------------------------------------------------------------------
    @cached_property
    def task_classes(self):
        """The names of the class of tasks and of those that are derived from it."""
        names = {"Task"}
        while True:
            more = {one.name for one in self.classes if names & set(one.bases)} - names
            if not more:
                return names
            names |= more

    def makers_of_tasks(self):
        return [one for one in self.functions if one.file.room != "cli" and any(map(self.constructs, one.calls))]

    def constructs(self, call):
        """Tell whether a call constructs a task."""
        match call.func:
            case ast.Name(id=name):
                return name in self.task_classes or (name in NEW and self.has_task(call.args))
            case ast.Attribute(value=ast.Name(id=name), attr="__new__"):
                return name in self.task_classes
        return False

    def makes(self, call):
        """Tell whether a call constructs a task, by itself or by a method of the class."""
        match call.func:
            case ast.Attribute(value=ast.Name(id=name), attr=method) if name in self.task_classes:
                return method in self.class_methods
        return self.constructs(call)

    @cached_property
    def class_methods(self):
        """The names of the class methods and static methods of tasks."""
        return {
            one.name
            for one in self.functions
            if one.owner in self.task_classes and any(map(needs_no_object, one.node.decorator_list))
        }

    def has_task(self, arguments):
        return any(isinstance(one, ast.Name) and one.id in self.task_classes for one in arguments)

    def ways_to_generate(self):
        by_engine = [one for one in self.functions if any(map(is_given_to_engine, one.calls))]
        names = {one.name for one in by_engine if one.file.path == GENERATE}
        while True:
            within = [
                one
                for one in self.functions
                if one.file.path == GENERATE and one not in by_engine and names & set(map(called_name, one.calls))
            ]
            if {one.name for one in within} <= names:
                break
            names |= {one.name for one in within}
        makers = [
            one
            for one in self.functions
            if one not in by_engine
            and one.file.path != GENERATE
            and any(map(self.makes, one.calls))
            and names & set(map(called_name, one.calls))
        ]
        return [*by_engine, *within, *makers]

    def drivers_of_advance(self):
        return [
            one
            for one in self.functions
            if any(called_name(call) == "advance" and len(call.args) == 2 for call in one.calls)
        ]

    # -- constructs ------------------------------------------------------------------------------------
    def guards(self):
        regions = [one for one in self.classes if one.file.path == REGION]
        fields = [one.attributes for name in ("Region", "Inherited") for one in regions if one.name == name]
        return [
            one
            for one in self.of_rooms("constructs/", "loops/", "acc/")
            for node in one.nodes
            if isinstance(node, (ast.If, ast.IfExp, ast.While)) and is_guard(node.test, fields)
        ]

    def stores_of_loop_calls(self):
        found = []
        for one in self.classes:
            if one.file.path.startswith(("loops/running/", "loops/speculative/")):
                found += [f"{one.where}.{name}" for name in begun_empty(one.node)]
        return list(dict.fromkeys(found))

    # -- names, files ----------------------------------------------------------------------------------
    def class_names_in_several_files(self):
        files = defaultdict(set)
        for one in self.classes:
            files[one.name].add(one.file.path)
        return [f"{name}: {', '.join(sorted(where))}" for name, where in sorted(files.items()) if len(where) > 1]

    def layers(self):
        derived, used = Counter(), set()
        for one in self.classes:
            derived.update(set(one.bases))
        for file in self.files:
            used |= used_names(file.tree)
        names = Counter(one.name for one in self.classes)
        return [
            one
            for one in self.classes
            if derived[one.name] == 1
            and names[one.name] == 1
            and one.name not in used
            and not {"Protocol", "ABC", "Exception", "BaseException", "Warning"} & set(one.bases)
            and any(isinstance(node, ast.FunctionDef) for node in one.node.body)
            and not any(is_abstract(node) for node in ast.walk(one.node))
        ]

    def lines(self):
        return sum(file.text.count("\n") for file in self.files if not file.path.startswith("cli/bench/"))

    def files_of_a_nowait_call(self):
        """Return how many files the call visits, and how many the call and its wait."""
        command = [sys.executable, str(ROOT / "benchmarks" / "walk.py"), "--json", "--repeat", "3"]
        env = {**os.environ, "PYTHONPATH": str(self.tree)}
        done = subprocess.run(command, capture_output=True, text=True, env=env, check=True)
        rows = json.loads(done.stdout)["rows"]
        names = "target nowait that maps, depend", "target nowait that maps, taskwait"
        return tuple(rows[name]["settled"]["files"] for name in names)

    def comments_by_room(self):
        """Return for each room comment lines for 100 lines of code, and for the package."""
        rooms = defaultdict(lambda: [0, 0])
        for file in self.files:
            if file.path.startswith("cli/bench/"):
                continue
            for room in (file.room, "all"):
                for k, count in enumerate(file.comments()):
                    rooms[room][k] += count
        return {room: round(100 * comments / max(code, 1), 1) for room, (comments, code) in sorted(rooms.items())}


def used_names(tree):
    """Return the names that a file uses, elsewhere than in annotations and as bases of classes."""
    found, left = set(), [tree]
    while left:
        node = left.pop()
        if isinstance(node, (ast.Name, ast.Attribute)):
            found.add(node.id if isinstance(node, ast.Name) else node.attr)
        for field, value in ast.iter_fields(node):
            if field not in {"annotation", "returns", "bases"}:
                left += [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, ast.AST)]
    return found


GENERATE, REGION = "runtime/generate.py", "tasks/region.py"
COUNTS = {"dynamic", "structured"}
NEW = {"new", "_new"}


def changes(node, kind):
    """Tell whether a statement changes a reference count upwards or downwards."""
    match node:
        case ast.AugAssign(target=ast.Attribute(attr=name), op=operator) if name in COUNTS:
            return isinstance(operator, ast.Add if kind == "up" else ast.Sub)
        case ast.Assign(targets=targets, value=value):
            names = {one.attr for target in targets for one in ast.walk(target) if isinstance(one, ast.Attribute)}
            if not names & COUNTS:
                return False
            is_one = isinstance(value, ast.Constant) and value.value == 1
            return is_one if kind == "up" else not is_one
    return False


def is_given_to_engine(call):
    """Tell whether a call is ``engine.submit`` of some engine."""
    match call.func:
        case ast.Attribute(value=ast.Name(id="engine") | ast.Attribute(attr="engine"), attr="submit"):
            return True
    return False


def is_guard(test, fields):
    """Tell whether a test reads attributes of the region and of what it hands down, or its mode."""
    nodes = [node for node in ast.walk(test) if isinstance(node, ast.Attribute)]
    read = {node.attr for node in nodes}
    of_region, inherited = fields
    if any(node.attr == "mode" and is_region(node.value) for node in nodes):
        return True
    return bool(read & (of_region - {"inherited"}) and read & (inherited - of_region))


def is_region(node):
    """Tell whether an expression is a region by its name: other objects have modes as well."""
    name = node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")
    return name.strip("_") in {"frame", "region"}


def begun_empty(node):
    """Yield the attributes that a class's methods assign an empty dictionary, or a memo, and its fields of memos.

    Attributes whose annotation says that their keys are strings are left out.
    """
    for one in ast.walk(node):
        annotation = ""
        match one:
            case ast.AnnAssign(target=ast.Attribute(value=ast.Name(id="self"), attr=name), value=value):
                annotation = ast.unparse(one.annotation)
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)], value=value):
                pass
            case ast.AnnAssign(target=ast.Name(id=name), value=None) if ast.unparse(one.annotation).startswith("Memo["):
                yield name
                continue
            case _:
                continue
        if NAMED.match(annotation):
            continue
        is_memo = isinstance(value, ast.Call) and "Memo" in (called_name(value) or "")
        if is_memo or (isinstance(value, ast.Dict) and not value.keys):
            yield name


def needs_no_object(decorator):
    return isinstance(decorator, ast.Name) and decorator.id in {"classmethod", "staticmethod"}


def is_abstract(node):
    match node:
        case ast.Name(id="abstractmethod") | ast.Attribute(attr="abstractmethod"):
            return True
    return False


FIGURES = {
    "ways to enter": Package.ways_to_enter,
    "ways to leave": Package.ways_to_leave,
    "ways to update": Package.ways_to_update,
    "plans": Package.plans,
    "makers of tasks": Package.makers_of_tasks,
    "ways to generate": Package.ways_to_generate,
    "drivers of advance": Package.drivers_of_advance,
    "guards": Package.guards,
    "stores of loop calls": Package.stores_of_loop_calls,
    "class names in several files": Package.class_names_in_several_files,
    "layers": Package.layers,
    "lines": Package.lines,
    "files a nowait target call visits": Package.files_of_a_nowait_call,
    "comments by room": Package.comments_by_room,
}
LISTED = list(FIGURES)[:-3]
"""The figures that count things, which ``--list`` prints."""


def main():
    """Print the figures of a tree."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--tree", default=ROOT, help="the tree whose package is counted; by default this one")
    parser.add_argument("--list", choices=[*LISTED, "all"], help="print where the counted things stand")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    package = Package(options.tree)
    if options.list is not None:
        for name in LISTED if options.list == "all" else [options.list]:
            found = FIGURES[name](package)
            print(f"{name}: {len(found)}", *(f"    {getattr(one, 'where', one)}" for one in found), sep="\n")
        return
    figures = {name: count(package) for name, count in FIGURES.items()}
    figures |= {name: len(figures[name]) for name in LISTED}
    if options.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:36} {value}")


if __name__ == "__main__":
    main()
