"""Live names: texts written by hand, and random programs against all their paths."""

import ast
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload.pragma.liveness import BlockFlow, Liveness, live_before, reads_of


def before(text, out=""):
    """Return the names that are live before a text, given those after it."""
    return set(Liveness({}).block(ast.parse(dedent(text)).body, frozenset(out.split())))


BEFORE = {
    # text: names after it, names before it
    "x = 1": ("x y", "y"),
    "x = x + 1": ("x", "x"),
    "x += 1": ("", "x"),
    "x: int = y": ("x", "y"),
    "x: int": ("x", "x"),
    "x[i] = y": ("", "x i y"),
    "x.a = 1": ("", "x"),
    "x, *y = z": ("x y", "z"),
    "del x": ("x", ""),
    "if c: x = 1": ("x", "c x"),
    "if c: x = 1\nelse: x = 2": ("x", "c"),
    "for x in y: use(x)": ("", "use y"),
    "for x in y: pass": ("x", "x y"),
    "for i in y:\n  use(x)\n  x = 1": ("", "use x y"),
    "for i in y:\n  x = 1\n  use(x)": ("", "use y"),
    "for i in y: break\nelse: x = 1": ("x", "x y"),
    "for i in y: continue\nelse: x = 1": ("x", "y"),
    "for a[i] in y: pass": ("", "a i y"),
    "while c: x = 1": ("x", "c x"),
    "while True:\n  x = 1\n  if c: break": ("x", "c"),
    "while c:\n  if d: continue\n  x = 1": ("x", "c d x"),
    "with f() as x: use(x)": ("x", "f use"),
    "with f(x) as x: pass": ("", "f x"),
    "try:\n  x = f()\nexcept E as e: use(x, e)": ("", "E f use x"),
    "try:\n  x = f()\nexcept E: raise": ("x", "E f"),
    "try:\n  x = f()\nfinally: use(x)": ("", "f use x"),
    "try: f()\nexcept E: x = 1\nelse: x = 2": ("x", "E f"),
    "try: f()\nfinally: x = 1": ("x", "f"),
    "for i in y:\n  try:\n    x = 1\n    if c: break\n  finally: use(x)": ("", "c use x y"),
    "match x:\n  case A(y) if y: x = 1\n  case _: x = 2": ("x", "A x y"),
    "return x": ("y", "x"),
    "raise x": ("y", "x"),
    "def f(a=x): return y + a": ("f", "x y"),
    "f = lambda a: a + x": ("f", "x"),
    "y = [x for x in z]": ("x", "x z"),
    "y = [(x := z) for z in w]": ("x", "x w"),
    "import x": ("x", ""),
    "from y import x as z": ("x z", "x"),
    "class x(y): pass": ("x", "y"),
    "c and (x := 1)": ("x", "c x"),
}


@pytest.mark.parametrize("text", BEFORE)
def test_live_before_a_statement(text):
    """Each statement takes away the names that it surely assigns, and adds those that it may read."""
    after, expected = BEFORE[text]
    assert before(text, after) == set(expected.split())


def test_live_before_statements():
    """Names that some path reads first are live before the statements."""
    text = ast.parse("t = a[i]\nb[i] = t + u\nu = 1").body
    assert live_before(text) == {"a", "i", "b", "u"}
    assert reads_of(text) == {"a", "i", "b", "t", "u"}


DIRECTIVES = {
    "stays": (BlockFlow(reads=frozenset("r")), "x", "r"),
    "binds": (BlockFlow(binds=frozenset("z")), "z", ""),
    "own": (BlockFlow(own=frozenset("x")), "x", "x"),
    "deferred": (BlockFlow(is_sure=False), "x", "x"),
    "nest": (BlockFlow(is_nest=True), "x", "x"),
}


@pytest.mark.parametrize("kind", DIRECTIVES)
def test_blocks_of_directives(kind):
    """A block that stays assigns variables of the function; others have variables of their own, or run later."""
    flow, after, expected = DIRECTIVES[kind]
    body = ast.parse("with omp():\n  x = 1\nuse(w)").body
    liveness = Liveness({id(body[0]): flow})
    assert liveness.block(body, frozenset(after)) - {"use", "w"} == set(expected)
    assert liveness.after[id(body[0])] == {*after, "use", "w"}


def test_after_a_directive_in_a_try():
    """An exception may follow a directive, so names that a handler reads are live after it."""
    body = ast.parse("try:\n  with omp(): pass\n  x = 1\nexcept E: use(x)").body
    at = id(body[0].body[0])
    liveness = Liveness({at: BlockFlow()})
    liveness.block(body, frozenset())
    assert "x" in liveness.after[at]


# -- all paths of random programs --------------------------------------------------------------------------
NAMES = "xyz"
simple = st.builds("{} = {}".format, st.sampled_from(NAMES), st.sampled_from([*NAMES, "1"])) | st.sampled_from(
    ["break", "continue", "return x", "x += y", "use(z)", "raise E"]
)


def nested(inner):
    """Return a strategy for compound statements."""
    body = st.lists(inner, min_size=1, max_size=3)
    heads = st.sampled_from([("if c:",), ("if c:", "else:"), ("for x in s:",), ("while c:",), ("while c:", "else:")])
    tries = st.sampled_from([("try:", "except:"), ("try:", "finally:"), ("try:", "except:", "else:", "finally:")])
    return st.tuples(heads | tries, st.lists(body, min_size=4, max_size=4)).map(
        lambda one: "\n".join(
            f"{head}\n" + "\n".join("  " + line for text in part for line in text.split("\n"))
            for head, part in zip(one[0], one[1], strict=False)
        )
    )


programs = st.lists(st.recursive(simple, nested, max_leaves=6), min_size=1, max_size=4)
FUEL = 7  # decisions on a path


class Paths:
    """All paths of a program, as the names that each reads before it assigns them."""

    def __init__(self):
        self.read_first = set()

    def run(self, nodes, states):
        """Follow statements from states (assigned names, fuel); return the states at the end by how it was reached."""
        ends = {}
        for node in nodes:
            found = {}
            for state in states:
                for how, more in self.statement(node, state).items():
                    found.setdefault(how, set()).update(more)
            states = found.pop("next", set())
            for how, more in found.items():
                ends.setdefault(how, set()).update(more)
        ends.setdefault("next", set()).update(states)
        return ends

    def read(self, names, state):
        self.read_first |= names - state[0]

    def statement(self, node, state):
        assigned, fuel = state
        if fuel == 0:
            return {}
        kind = type(node).__name__
        ends = getattr(self, kind)(node, state)
        if kind not in ("Break", "Continue", "Return", "Raise"):
            ends.setdefault("raise", set()).add((assigned, fuel - 1))  # before it did anything
        return ends

    def Assign(self, node, state):  # the name of the class of nodes; as below
        self.read({node.value.id} if isinstance(node.value, ast.Name) else set(), state)
        return {"next": {(state[0] | {node.targets[0].id}, state[1])}}

    def AugAssign(self, node, state):
        self.read({"x", "y"}, state)
        return {"next": {(state[0] | {"x"}, state[1])}}

    def Expr(self, node, state):
        self.read({"z"}, state)
        return {"next": {state}}

    def Break(self, node, state):
        return {"break": {state}}

    def Continue(self, node, state):
        return {"continue": {state}}

    def Return(self, node, state):
        self.read({"x"}, state)
        return {"return": {state}}

    def Raise(self, node, state):
        return {"raise": {state}}

    def If(self, node, state):
        state = state[0], state[1] - 1
        return joined(self.run(node.body, {state}), self.run(node.orelse, {state}))

    def For(self, node, state):
        return self.loop(node, state, {"x"})

    def While(self, node, state):
        return self.loop(node, state, set())

    def loop(self, node, state, bound):
        ends, heads, seen = {}, {state}, set()
        while heads:
            state = heads.pop()
            if state in seen or state[1] == 0:
                continue
            seen.add(state)
            ends = joined(ends, self.run(node.orelse, {state}))
            inside = self.run(node.body, {(state[0] | bound, state[1] - 1)})
            heads |= inside.pop("next", set()) | inside.pop("continue", set())
            ends = joined(ends, {"next": inside.pop("break", set())}, inside)
        return ends

    def Try(self, node, state):
        ends = self.run(node.body, {state})
        raised = ends.pop("raise", set())
        if node.handlers:
            ends = joined(self.run(node.orelse, ends.pop("next", set())), ends)
            ends = joined(ends, self.run(node.handlers[0].body, raised))
        else:
            ends = joined(ends, {"raise": raised})
        if not node.finalbody:
            return ends
        found = {}
        for how, states in ends.items():
            last = self.run(node.finalbody, states)
            found = joined(found, {how: last.pop("next", set())}, last)
        return found


def joined(*ends):
    found = {}
    for one in ends:
        for how, states in one.items():
            found.setdefault(how, set()).update(states)
    return found


@given(programs)
def test_every_name_that_a_path_reads_first_is_live(lines):
    """No path reads a name first that is not live at the begin."""
    text = "\n".join(lines)
    whole = "def f():\n  for _ in r:\n" + "\n".join("    " + line for line in text.split("\n"))
    try:
        compile(whole, "", "exec")
    except SyntaxError:  # `continue` outside of a loop in `finally` of old versions, and the like
        return
    body = ast.parse(whole).body[0].body
    paths = Paths()
    paths.run(body[0].body, {(frozenset(), FUEL)})
    assert paths.read_first <= before("\n".join(ast.unparse(one) for one in body[0].body)) | set("_")


def branches(inner):
    """Return a strategy for an `if` with two branches."""
    return st.tuples(inner, inner).map(
        lambda two: "\n".join(
            f"{head}\n" + "\n".join("  " + line for line in part.split("\n"))
            for head, part in zip(("if c:", "else:"), two, strict=True)
        )
    )


straight = simple.filter(lambda line: line not in ("break", "continue"))


@given(st.lists(st.recursive(straight, branches, max_leaves=5), min_size=1, max_size=4))
def test_without_loops_exactly_these_are_live(lines):
    """In branches without loops and `try`, a live name is read first on some path."""
    body = ast.parse("\n".join(lines)).body
    paths = Paths()
    paths.run(body, {(frozenset(), 50)})
    assert live_before(body) & set(NAMES) == paths.read_first
