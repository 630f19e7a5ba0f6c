"""``benchmarks/concepts.py``: that its rules find in a small package what they say."""

from __future__ import annotations

import textwrap

import pytest

from offload.cli.demo.examples import load_benchmark

FILES = {
    "data/table.py": """
        class Entry:
            def __init__(self):
                self.dynamic = 0

            def increment(self):
                self.dynamic += 1  # not a way by itself


        class Table:
            def count(self, plan):
                for entry in plan.counted:
                    entry.dynamic += 1

            def again(self, plan):
                self.count(plan)

            def leave(self, plan):
                for entry in plan.counted:
                    entry.dynamic -= 1
    """,
    "data/environment.py": """
        class Plan:
            __slots__ = ("counted",)


        class Environment:
            def enter(self, items):
                return self.table.again(items)

            def enter_other(self, items):
                return 1

            def update(self, items):
                return items
    """,
    "tasks/task.py": """
        class Task:
            pass


        class Step(Task):
            pass


        class Lower:
            def submit(self, task):
                return isinstance(task, Task)


        class Engine(Lower):
            def step(self, task, scope):
                return task.advance(self, scope)
    """,
    "tasks/region.py": """
        class Inherited:
            def __init__(self):
                self.is_plain = True


        class Region:
            def __init__(self, inherited):
                self.inherited = inherited
                self.recorder = None
    """,
    "runtime/generate.py": """
        def generate(engine, recipe):
            return engine.submit(recipe.make())


        def encounter(engine, recipe):
            return generate(engine, recipe)
    """,
    "constructs/call.py": """
        def call(frame, engine):
            if frame.recorder is not None or not frame.inherited.is_plain:
                return None
            return encounter(engine, Step())


        class Step:
            pass
    """,
    "loops/running/memo.py": """
        class Loops:
            def __init__(self):
                self.plans: dict[tuple[int, int], int] = {}
                self.by_name: dict[str, int] = {}
                self.kept = {}
                self.given = {"a": 1}


        class Fields(NamedTuple):
            known: Memo[int, int]
            number: int
    """,
}
FOUND = {
    "ways to enter": ["Table.again", "Environment.enter"],
    "ways to leave": ["Table.leave"],
    "ways to update": ["Environment.update"],
    "plans": ["Plan"],
    "makers of tasks": ["call"],
    "ways to generate": ["generate", "encounter", "call"],
    "drivers of advance": ["Engine.step"],
    "guards": ["call"],
    "stores of loop calls": ["Loops.plans", "Loops.kept", "Fields.known"],
    "class names in several files": ["constructs/call.py, tasks/task.py"],
    "layers": ["Lower"],
}


@pytest.fixture
def package(tmp_path):
    """The program's package of a small tree."""
    for name, text in FILES.items():
        path = tmp_path / "offload" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip())
    return load_benchmark("concepts").Package(tmp_path)


@pytest.mark.parametrize("figure", FOUND)
def test_a_rule_finds_what_it_says(package, figure):
    """Each rule finds the functions, classes and attributes that it is about, and no others."""
    found = [str(getattr(one, "where", one)) for one in load_benchmark("concepts").FIGURES[figure](package)]
    assert len(found) == len(FOUND[figure])
    for one, end in zip(found, FOUND[figure], strict=True):
        assert one.endswith(end)


def test_comments_are_counted_by_room(package):
    """A line with a comment counts, and a line of code does; blank lines do not."""
    found = package.comments_by_room()
    assert found["data"] > 0
    assert found["tasks"] == 0
