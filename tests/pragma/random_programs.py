"""Random programs of blocks with directives: one tree, written with strings, as calls of the API, or without either.

A program works on arrays and numbers. Its constructs have clauses that cover what their bodies touch, so memory and
numbers must be afterwards what the text without directives leaves, whatever the schedule. How that is so:

* Each block uses an array by one section. The section is in `depend`; in a region on a device, also in a data clause.
* Two sections of one array in flight on one device must not overlap in part. Therefore a program divides an array for
  its regions either into chunks, or not at all; tasks use any section.
* In a `target data` block the mapped arrays are used by regions, or by tasks between two updates.
* A number that blocks assign is in `shared`, or in a `map` clause, of each block that uses it, and in `depend`.
* Other numbers change in the function between the blocks, which read them by value.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field

SIZE = 12
CHUNK = 4
MODULUS = 101


@dataclass
class Access:
    """A section of an array, with the word of its dependence: ``in``, ``out`` or ``inout``."""

    name: str
    lower: str
    length: int
    word: str

    @property
    def is_whole(self):
        return self.length == SIZE

    def item(self):
        """Return the list item, in OpenMP's notation."""
        return self.name if self.is_whole else f"{self.name}[{self.lower}:{self.length}]"

    def view(self):
        """Return the view, in Python's notation."""
        return self.name if self.is_whole else f"{self.name}[{self.lower}:{self.lower} + {self.length}]"

    def part(self, begin, end, *, is_view):
        """Return a part of the section: of the array, or of the view that a function receives."""
        if is_view:
            return f"p_{self.name}[{begin}:{end}]"
        lower = "0" if self.is_whole else self.lower
        return f"{self.name}[{lower} + {begin}:{lower} + {end}]"

    def element(self, at, *, is_view):
        return f"p_{self.name}[{at}]" if is_view else f"{self.name}[{'0' if self.is_whole else self.lower} + {at}]"


@dataclass
class Op:
    """A statement of a body: a part of one section from itself, and from a part of another section or a number."""

    into: Access
    begin: int
    end: int
    factor: int
    other: Access | None
    begin_of_other: int
    term: str
    overwrites: bool = False

    def line(self, *, is_view):
        into = self.into.part(self.begin, self.end, is_view=is_view)
        terms = [] if self.overwrites else [f"{into} * {self.factor}"]
        if self.other is not None:
            count = self.end - self.begin
            terms.append(self.other.part(self.begin_of_other, self.begin_of_other + count, is_view=is_view))
        terms.append(self.term)
        return f"{into} = ({' + '.join(terms)}) % {MODULUS}"


@dataclass
class Block:
    """A block that is taken.

    Attributes
    ----------
    kind : str
        ``task``, ``target`` or ``acc``.
    accesses : list of Access
    ops : list of Op
    number : str or None
        A number of the function that the block changes.
    number_line : str
        How it does: ``{sum}`` stands for the sum of the first section.
    captured : list of str
        The numbers that the body reads.
    children : list of Block
        Tasks that the body generates; it waits for them.
    words : list of str
        Further clauses.
    """

    kind: str
    accesses: list[Access]
    ops: list[Op]
    captured: list[str]
    number: str | None = None
    number_line: str = ""
    children: list[Block] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    keywords: list[str] = field(default_factory=list)
    is_deferred: bool = True
    has_maps: bool = True


class Programs:
    """Draws one program of a seed.

    Parameters
    ----------
    seed : int
    n_devices : int
        The devices that regions name.
    """

    def __init__(self, seed, n_devices=2):
        self.draw = random.Random(seed)
        self.n_devices = n_devices
        self.n_blocks = 0

    def is_so(self, probability):
        return self.draw.random() < probability

    def text(self, mode):
        """Return the text of the program: ``strings``, ``calls`` or ``serial``."""
        return Writer(mode).program(self.tree())

    def tree(self):
        if not hasattr(self, "_tree"):
            self.granularity = {}
            helpers = [self.function(f"helper_{k}", ["a", "b"], depth=1) for k in range(self.draw.randint(0, 2))]
            main = self.function("program", ["a", "b", "c"], depth=0, helpers=[one.name for one in helpers])
            self._tree = [*helpers, main]
        return self._tree

    # -- functions -------------------------------------------------------------------------------------
    def function(self, name, arrays, *, depth, helpers=()):
        self.granularity = {array: self.draw.choice(("chunks", "whole")) for array in arrays}
        self.present = frozenset()
        self.helpers = helpers
        self.has_inner = depth == 0 and self.is_so(0.4)
        count = self.draw.randint(3, 7) if depth == 0 else self.draw.randint(1, 3)
        groups = [self.step(arrays, loops=2, scope=[]) for _ in range(count)]
        inner = None
        if self.has_inner:
            array = self.draw.choice(arrays)
            inner = Block("task", [self.section(array, "j", "inout")], [], ["j"])
            inner.ops = [self.op(inner.accesses, inner.captured)]
            for _ in range(self.draw.randint(1, 3)):
                groups.insert(self.draw.randint(0, len(groups)), [("inner", str(self.draw.randrange(3)))])
        return Function(name, arrays, [step for group in groups for step in group], inner)

    def steps(self, arrays, count, *, loops, scope):
        return [step for _ in range(count) for step in self.step(arrays, loops=loops, scope=scope)]

    def step(self, arrays, *, loops, scope):
        """Return the steps of one draw: most often one."""
        kinds = ["task"] * 4 + ["target"] * 4 + ["number"] * 2 + ["taskloop", "acc", "loop", "loop", "plain", "plain"]
        kinds += ["group", "wait", "if", "sum"]
        if not self.present:
            kinds += ["data", "data"]
            kinds += ["helper"] * 2 if self.helpers else []
        kind = self.draw.choice(kinds)
        if (kind == "loop" and not loops) or (kind in {"data", "group", "if"} and loops < 2):
            kind = "target"
        return getattr(self, f"draw_{kind}")(arrays, loops, scope)

    # -- steps -----------------------------------------------------------------------------------------
    def draw_plain(self, arrays, loops, scope):
        return [("plain", f"k = (k * {self.draw.randint(2, 5)} + {self.draw.randint(1, 5)}) % 7")]

    def draw_wait(self, arrays, loops, scope):
        return [("wait",)]

    def draw_loop(self, arrays, loops, scope):
        name = "ij"[2 - loops]
        count = self.draw.randint(1, 3)
        steps = self.steps(arrays, self.draw.randint(1, 3), loops=loops - 1, scope=[*scope, name])
        return [("for", name, count, steps)]

    def draw_if(self, arrays, loops, scope):
        return [("if", f"k % 2 == {self.draw.randrange(2)}", self.steps(arrays, 2, loops=loops - 1, scope=scope))]

    def draw_group(self, arrays, loops, scope):
        word = self.draw.choice(("taskgroup", "parallel", "parallel masked", "single"))
        return [("group", word, self.steps(arrays, self.draw.randint(1, 3), loops=loops - 1, scope=scope))]

    def draw_data(self, arrays, loops, scope):
        mapped = self.draw.sample(arrays, self.draw.randint(1, len(arrays)))
        self.present = frozenset(mapped)
        steps = self.steps(arrays, self.draw.randint(2, 4), loops=loops - 1, scope=scope)
        self.present = frozenset()
        return [("wait",), ("data", mapped, self.draw.choice(("tofrom: ", "")), steps)]

    def draw_helper(self, arrays, loops, scope):
        name = self.draw.choice(self.helpers)
        given = self.draw.sample(arrays, 2)
        line = f"s = (s + {name}({', '.join(given)}, k)) % {MODULUS}"
        if self.is_so(0.5):
            return [("wait",), ("plain", line)]
        block = Block("task", [Access(array, "0", SIZE, "inout") for array in given], [], ["k"], "s", line)
        return [block]

    def draw_task(self, arrays, loops, scope):
        usable = [array for array in arrays if array not in self.present]
        if not usable:
            array = self.draw.choice(arrays)
            section = self.section(array, self.draw.choice(scope) if scope else None, "inout")
            block = self.filled(Block("task", [section], [], []), scope)
            return [("update", "from", section), block, ("update", "to", section)]
        block = self.filled(Block("task", self.any_sections(usable, scope), [], []), scope)
        writes = [one for one in block.accesses if one.word != "in"]
        if self.is_so(0.25):
            for _ in range(self.draw.randint(1, 2)):
                child = Block("task", [self.draw.choice(writes)], [], [])
                child.accesses = [Access(one.name, one.lower, one.length, "inout") for one in child.accesses]
                block.children.append(self.filled(child, scope))
                block.captured += [name for name in child.captured if name not in block.captured]
        block.words, block.keywords = self.task_clauses()
        return [block]

    def task_clauses(self):
        drawn = self.draw.random()
        if drawn < 0.15:
            return ["if(k > 3)"], ["if_=k > 3"]
        if drawn < 0.25:
            return ["priority(k)"], ["priority=k"]
        if drawn < 0.35:
            return ["untied"], []
        return [], []

    def draw_target(self, arrays, loops, scope):
        absent = [array for array in arrays if array not in self.present]
        pool = absent if absent and not (self.present and self.is_so(0.8)) else sorted(self.present)
        block = Block("target", self.device_sections(pool, scope), [], [])
        self.filled(block, scope)
        block.is_deferred = self.is_so(0.75)
        are_present = self.present.issuperset(pool)
        if are_present:
            block.has_maps = self.is_so(0.5)
        elif self.n_devices > 1 and self.is_so(0.4):
            device = self.draw.randrange(self.n_devices)
            block.words, block.keywords = [f"device({device})"], [f"device={device}"]
        elif self.is_so(0.1):
            block.words, block.keywords = ["if(k > 3)"], ["if_=k > 3"]
        return [block]

    def draw_acc(self, arrays, loops, scope):
        pool = sorted(self.present) or arrays
        block = self.filled(Block("acc", self.device_sections(pool, scope), [], []), scope)
        block.is_deferred = self.is_so(0.3)
        return [("wait",), block, *([("acc wait",)] if block.is_deferred else [])]

    def draw_number(self, arrays, loops, scope):
        name = self.draw.choice(("s", "t"))
        line = f"{name} = ({name} * {self.draw.randint(2, 4)} + k) % {MODULUS}"
        return [Block("task", [], [], ["k"], name, line)]

    def draw_sum(self, arrays, loops, scope):
        pool = sorted(self.present) or [a for a in arrays if a not in self.present]
        name = self.draw.choice(("s", "t"))
        section = self.device_sections(pool, scope)[0]
        section.word = "in"
        line = f"{name} = ({name} + {{sum}}) % {MODULUS}"
        block = Block("target", [section], [], [], name, line)
        block.is_deferred = self.is_so(0.7)
        return [block]

    def draw_taskloop(self, arrays, loops, scope):
        usable = [array for array in arrays if array not in self.present]
        if not usable:
            return [("wait",)]
        array = self.draw.choice(usable)
        clause, keyword = self.draw.choice(
            (
                ("", ""),
                ("grainsize(3)", "grainsize=3"),
                ("num_tasks(3)", "num_tasks=3"),
                ("grainsize(strict: 5)", "grainsize=5, strict=True"),
            )
        )
        number = self.draw.choice((None, "s", "t"))
        return [("wait",), ("taskloop", array, self.draw.randint(2, 4), clause, keyword, number)]

    # -- sections and bodies ---------------------------------------------------------------------------
    def section(self, array, variable, word):
        """Return the chunk of a variable, or a drawn chunk."""
        if self.granularity[array] == "whole":
            return Access(array, "0", SIZE, word)
        lower = f"{CHUNK} * {variable}" if variable else str(CHUNK * self.draw.randrange(SIZE // CHUNK))
        return Access(array, lower, CHUNK, word)

    def any_sections(self, arrays, scope):
        """Return sections of some arrays for a task."""
        found = []
        for array in self.draw.sample(arrays, self.draw.randint(1, min(2, len(arrays)))):
            length = self.draw.randint(1, SIZE)
            if scope and length <= CHUNK and self.is_so(0.6):
                lower = f"{CHUNK} * {self.draw.choice(scope)}"
            else:
                lower = str(self.draw.randint(0, SIZE - length))
            found.append(Access(array, lower if length < SIZE else "0", length, "in"))
        found[0].word = self.draw.choice(("inout", "inout", "out"))
        return found

    def device_sections(self, arrays, scope):
        """Return sections of some arrays for a region."""
        names = self.draw.sample(arrays, self.draw.randint(1, min(2, len(arrays))))
        variable = self.draw.choice(scope) if scope and self.is_so(0.6) else None
        found = [self.section(name, variable, "in") for name in names]
        found[0].word = self.draw.choice(("inout", "inout", "out"))
        return found

    def op(self, accesses, captured, *, overwrites=False):
        into = accesses[0]
        begin = 0 if overwrites else self.draw.randrange(into.length)
        end = into.length if overwrites else self.draw.randint(begin + 1, into.length)
        others = [one for one in accesses if one is not into and one.length >= end - begin]
        other = self.draw.choice(others) if others and self.is_so(0.8) else None
        at = self.draw.randint(0, other.length - (end - begin)) if other is not None else 0
        term = self.draw.choice([str(self.draw.randint(1, 9)), *captured])
        return Op(into, begin, end, self.draw.randint(2, 5), other, at, term, overwrites)

    def filled(self, block, scope):
        """Give a block its body, and return it."""
        block.captured = [name for name in ("k", *scope) if self.is_so(0.7)]
        for access in block.accesses:
            if access.word == "out":
                others = [one for one in block.accesses if one is not access]
                block.ops.append(self.op([access, *others], block.captured, overwrites=True))
        block.ops += [self.op(block.accesses, block.captured) for _ in range(self.draw.randint(1, 2))]
        return block


@dataclass
class Function:
    """A function of a program: steps, and the block of its nested function."""

    name: str
    arrays: list[str]
    steps: list
    inner: Block | None


class Writer:
    """Writes a tree in one of the modes."""

    def __init__(self, mode):
        self.mode = mode
        self.n_names = 0
        self.depth = 0

    def program(self, functions):
        return "\n".join(line for function in functions for line in self.function(function))

    def function(self, function):
        decorator = ["@directives"] if self.mode == "strings" else []
        lines = [*decorator, f"def {function.name}({', '.join(function.arrays)}, k):"]
        body = ["s, t = 1, 2"]
        if self.mode == "calls":
            body += ["at_s, at_t = ('s', object()), ('t', object())"]
        if function.inner is not None:
            body += [*decorator, "def inner(j):", *indented(self.block(function.inner)), ""]
        body += self.steps(function.steps)
        body += [*self.statement("taskwait", "offload.taskwait()"), "return s + t + k"]
        return [*lines, *indented(body), "", ""]

    def statement(self, string, call):
        return {"strings": [f'omp("{string}")'], "calls": [call], "serial": []}[self.mode]

    def steps(self, steps):
        return [line for step in steps for line in (self.block(step) if isinstance(step, Block) else self.step(*step))]

    def step(self, kind, *rest):
        if kind == "plain":
            (line,) = rest
            return [line]
        if kind == "wait":
            return self.statement("taskwait", "offload.taskwait()")
        if kind == "acc wait":
            return {"strings": ['acc("wait(1)")'], "calls": ["api.wait(1)"], "serial": []}[self.mode]
        if kind == "inner":
            return [f"inner({rest[0]})"]
        if kind == "for":
            name, count, steps = rest
            return [f"for {name} in range({count}):", *indented([*self.steps(steps), "pass"])]
        if kind == "if":
            condition, steps = rest
            return [f"if {condition}:", *indented(self.steps(steps)), *indented(["pass"])]
        if kind == "group":
            word, steps = rest
            return self.around(f'omp("{word}")', "offload.taskgroup()", steps)
        if kind == "data":
            mapped, word, steps = rest
            items = ", ".join(mapped)
            call = f"offload.target_data(map=[tofrom({items})])"
            return self.around(f'omp("target data map({word}{items})")', call, steps)
        if kind == "update":
            word, section = rest
            keyword = "from_" if word == "from" else "to"
            clauses = f"nowait=True, depend=[inout({section.view()})]"
            return self.statement(
                f"target update {word}({section.item()}) nowait depend(inout: {section.item()})",
                f"offload.target_update({keyword}=[{section.view()}], {clauses})",
            )
        assert kind == "taskloop"
        return self.taskloop(*rest)

    def around(self, string, call, steps):
        lines = self.steps(steps) or ["pass"]
        if self.mode == "serial":
            return ["if True:", *indented([*lines, "pass"])]
        return [f"with {string if self.mode == 'strings' else call}:", *indented([*lines, "pass"])]

    def taskloop(self, array, factor, clause, keyword, number):
        lines = [f"{array}[v] = ({array}[v] * {factor} + v + k) % {MODULUS}"]
        if number:
            lines.append(f"{number} += int({array}[v])")
        loop = [f"for v in range({SIZE}):", *indented(lines)]
        reduce = [f"{number} %= {MODULUS}"] if number else []
        if self.mode == "serial":
            return [*loop, *reduce]
        if self.mode == "strings":
            words = f"{clause} reduction(+: {number})" if number else clause
            return [f'with omp("taskloop {words}"):', *indented(loop), *reduce]
        name = self.name()
        if not number:
            body = [f"def {name}(part):", *indented([loop[0].replace(f"range({SIZE})", "part"), *loop[1:]])]
            return [*body, f"offload.taskloop(range({SIZE}), {name}, {keyword})"]
        part = f"part_{number}"
        inside = [f"{part} = 0", loop[0].replace(f"range({SIZE})", "part"), loop[1], f"    {part} += int({array}[v])"]
        body = [f"def {name}(part, total):", *indented([*inside, f"total += part_{number}"])]
        total = f"total_{name}"
        return [
            *body,
            f"{total} = np.array({number})",
            f'offload.taskloop(range({SIZE}), {name}, reduction={{"+": [{total}]}}{", " + keyword if keyword else ""})',
            f"{number} = int({total})",
            *reduce,
        ]

    # -- blocks ----------------------------------------------------------------------------------------
    def name(self):
        self.n_names += 1
        return f"block_{self.n_names}"

    def block(self, block):
        if self.mode == "calls":
            return self.call(block)
        body = [op.line(is_view=False) for op in block.ops]
        if block.number:
            first = f"{block.accesses[0].view()}.sum()" if block.accesses else ""
            body.append(block.number_line.replace("{sum}", first))
        for child in block.children:
            body += self.block(child)
        if block.children:
            body += self.statement("taskwait", "")
        if self.mode == "serial":
            return body
        return [f"with {self.head(block)}:", *indented(body)]

    def head(self, block):
        if block.kind == "acc":
            words = {"in": "copyin", "inout": "copy", "out": "copyout"}
            clauses = [f"{words[one.word]}({one.item()})" for one in block.accesses]
            clauses += ["async(1)"] if block.is_deferred else []
            return f'acc("parallel {" ".join(clauses)}")'
        clauses = [f"depend({one.word}: {one.item()})" for one in block.accesses]
        if block.kind == "target":
            words = {"in": "to", "inout": "tofrom", "out": "from"}
            clauses += [f"map({words[one.word]}: {one.item()})" for one in block.accesses if block.has_maps]
            clauses += ["nowait"] if block.is_deferred else []
        if block.number:
            clauses.append(f"depend(inout: {block.number})")
            clauses.append(f"map(tofrom: {block.number})" if block.kind == "target" else f"shared({block.number})")
        return f'omp("{block.kind} {" ".join([*clauses, *block.words])}")'

    def call(self, block, *, is_child=False):
        """Write a block as a function and its call; a child is called with the views that its parent has."""
        name = self.name()
        body = [f"nonlocal {block.number}"] if block.number else []
        body += [op.line(is_view=True) for op in block.ops]
        if block.number:
            first = f"float(p_{block.accesses[0].name}.sum())" if block.accesses else ""
            line = block.number_line.replace("{sum}", first)
            for one in block.accesses if "helper" in line else ():
                line = re.sub(rf"(?<=[( ]){one.name}(?=, )", f"p_{one.name}", line)
            body.append(line)
        for child in block.children:
            body += self.call(child, is_child=True)
        body += ["offload.taskwait()"] if block.children else []
        parameters = [f"p_{one.name}" for one in block.accesses] + block.captured
        views = [f"p_{one.name}" if is_child else one.view() for one in block.accesses]
        lines = [f"def {name}({', '.join(parameters)}):", *indented(body or ["pass"])]
        return [*lines, f"{self.decorator(block, views)}({name})({', '.join([*views, *block.captured])})"]

    def decorator(self, block, views):
        if block.kind == "acc":
            words = {"in": "copyin", "inout": "copy", "out": "copyout"}
            merged = {}
            for one in block.accesses:
                merged.setdefault(words[one.word], []).append(f'"p_{one.name}"')
            keywords = [f"{word}=[{', '.join(names)}]" for word, names in merged.items()]
            keywords += ["async_=1"] if block.is_deferred else []
            return f"api.parallel({', '.join(keywords)})"
        words = {"in": "in_", "inout": "inout", "out": "out"}
        depends = [f"{words[one.word]}({view})" for one, view in zip(block.accesses, views, strict=True)]
        depends += [f"inout(at_{block.number})"] if block.number else []
        keywords = [f"depend=[{', '.join(depends)}]", *block.keywords]
        if block.kind == "target":
            words = {"in": "to", "inout": "tofrom", "out": "from_"}
            maps = [f'{words[one.word]}("p_{one.name}")' for one in block.accesses if block.has_maps]
            keywords += [f"map=[{', '.join(maps)}]"] if maps else []
            keywords += ["nowait=True"] if block.is_deferred else []
        return f"offload.{block.kind}({', '.join(keywords)})"


def indented(lines):
    return ["    " + line if line else line for line in lines]
