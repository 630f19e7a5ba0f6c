"""The tables of directives and clauses: they agree with the constructs, and each word stands in one place."""

import ast
import inspect

import numpy as np
import pytest

import offload
from offload import acc
from offload.pragma import expressions, mistakes, parser, readers, refused, scanner, tables
from offload.pragma.parser import parse
from offload.pragma.tables import (
    CLAUSE_ALIASES,
    CLAUSES,
    DIRECTIVES,
    MAP_KINDS,
    OPERATORS,
    WORD_ALIASES,
    Form,
    Takes,
    row_of,
)

LANGUAGES = ("omp", "acc")
ROWS = list(DIRECTIVES.values())

# Python's keywords have an underscore in calls.
IN_CALLS = {"if": "if_", "from": "from_", "self": "self_", "async": "async_"}

# Keywords of calls that are no clauses of the standards, and those that OpenACC writes in another way.
OWN = {"name", "arrays", "devices", "filter", "exchange", "speculate", "bounds", "fastmath", "reassociate", "check"}
SPELLINGS = {f"{prefix}{name}" for prefix in ("p", "present_or_") for name in ("copy", "copyin", "copyout", "create")}
OTHER_LANGUAGE = {
    "omp": {"gang", "worker", "vector", "seq", "independent", "auto", "tile", "cache"}
    | {"num_gangs", "num_workers", "vector_length"},
    "acc": {"depend", "device", "lastprivate", "num_teams", "num_threads", "thread_limit", "schedule"} | SPELLINGS,
}
NOT_IN_STRINGS = {
    "target_update": {"present"},  # a modifier
    "target_loop": {"atomic"},  # a directive inside of the nest
    "parallel_loop": {"atomic"},
    "acc.parallel_loop": {"atomic", "cache"},
    "acc.kernels_loop": {"atomic", "cache"},
    "taskloop": {"iterable", "body", "strict"},  # the block, and a modifier
    "cancel": {"construct"},  # a part of the directive's name
    "cancellation_point": {"construct"},
    "depobj": {"dependence"},  # `depend`
    "interop": {"stream", "targetsync"},
    "acc.update": {"device_num", "host"},
    "acc.wait": {"device"},  # `devnum`
    "acc.loop": {"iterations"},
    "acc.set_default_async": {"queue"},
}
# Clauses of strings that `offload.pragma` carries out, or gives to other routines.
NOT_IN_CALLS = {
    "task": {"shared", "private", "firstprivate", "default"},
    "taskloop": {"shared", "private", "firstprivate", "default"},
    "target_loop": {"shared", "default", "bind", "order"},
    "parallel_loop": {"shared", "default", "bind", "order"},
    "depobj": {"depend", "update", "destroy"},
    "interop": {"init", "use", "destroy"},
    "acc.parallel": {"attach"},
    "acc.kernels": {"attach"},
    "acc.serial": {"attach"},
    "acc.parallel_loop": {"attach"},
    "acc.kernels_loop": {"attach"},
    "acc.data": {"attach", "default"},
    "acc.enter_data": {"attach"},
    "acc.exit_data": {"detach"},
    "acc.init": {"device_num", "if_"},
    "acc.shutdown": {"device_num", "if_"},
    "acc.set_default_async": {"default_async", "device_num", "device_type", "if_"},
}


def construct_of(row):
    """Return the construct or routine of `offload` that a directive stands for."""
    return found_in({"acc": acc}, row.stands_for)


def found_in(modules, name):
    """Return the attribute of `offload`, or of one of its modules, that a dotted name means."""
    first, *others = name.split(".")
    found = modules.get(first) or getattr(offload, first)
    for other in others:
        found = getattr(found, other)
    return found


def keywords_of(row):
    """Return the names of the arguments of the call that a directive stands for."""
    kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(construct_of(row)).parameters.values()
    return {parameter.name for parameter in parameters if parameter.kind in kinds}


STANDING = [row for row in ROWS if row.stands_for and row.form is not Form.SECTION]


@pytest.mark.parametrize("row", STANDING, ids=lambda row: f"{row.language} {row.name}")
def test_clauses_are_those_of_the_construct(row):
    """A directive takes each clause of the construct that it stands for, and of others only those listed here."""
    keywords = keywords_of(row)
    clauses = {IN_CALLS.get(name, name) for name, clause in row.clauses.items() if clause.has_effect}
    not_in_strings = OWN | OTHER_LANGUAGE[row.language] | NOT_IN_STRINGS.get(row.stands_for, set())
    assert keywords - clauses - not_in_strings == set()
    assert clauses - keywords - NOT_IN_CALLS.get(row.stands_for, set()) == set()


def test_exceptions_are_needed():
    """Each exception of this file concerns a clause or keyword that exists, so none is out of date."""
    for name, words in NOT_IN_CALLS.items():
        rows = [row for row in ROWS if row.stands_for == name]
        assert words <= {IN_CALLS.get(clause, clause) for row in rows for clause in row.clauses}
    for name, words in NOT_IN_STRINGS.items():
        assert words <= keywords_of(next(row for row in ROWS if row.stands_for == name))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.language} {row.name}")
def test_rows_are_consistent(row):
    """A row names only clauses that it takes, and no clause is both taken and refused."""
    assert DIRECTIVES[row.language, row.name] is row
    assert all(clause.name == name for name, clause in row.clauses.items())
    named = {
        *row.needs,
        *row.clause_needs,
        *row.clause_needs.values(),
        *(name for group in row.exclusive for name in group),
    }
    assert named <= set(row.clauses)
    assert not set(row.refused) & set(row.clauses)
    assert row.name not in refused.DIRECTIVE_REMEDIES[row.language]
    assert not row.needs_argument or row.argument is not None
    assert vars(row).keys() <= {"language", "name", "form", "clauses", *tables.DirectiveRow.__annotations__}
    for clause in row.clauses.values():
        assert vars(clause).keys() <= {"name", "takes", *tables.ClauseRow.__annotations__}
        assert not set(clause.refused) & {*clause.kinds, *clause.modifiers, *clause.aliases}
        assert set(clause.aliases.values()) <= {*clause.kinds, *(MAP_KINDS if clause.name == "map" else ())}
        assert bool(clause.kinds) == (clause.takes is Takes.WORD or clause.name in ("map", "depend", "init"))


def test_each_clause_is_taken_somewhere():
    """No clause stands in the tables that no directive takes."""
    for language in LANGUAGES:
        taken = {name for row in ROWS if row.language == language for name in row.clauses}
        assert taken == set(CLAUSES[language])
        assert set(CLAUSE_ALIASES[language].values()) <= taken
        assert not set(CLAUSE_ALIASES[language]) & taken


def test_rows_of_parsed_directives():
    """`row_of` finds the row of a parsed directive, also under another spelling."""
    assert row_of(parse("master", "omp")) is DIRECTIVES["omp", "masked"]
    assert row_of(parse("target_update to(x)", "omp")) is DIRECTIVES["omp", "target update"]
    assert row_of(parse("enter data create(x)", "acc")) is DIRECTIVES["acc", "enter data"]


@pytest.mark.parametrize(
    ("form", "names"),
    [
        (Form.TAKEN, "target task"),
        (Form.LOOP, "taskloop"),
        (Form.CALLED, "taskgraph"),
        (Form.SECTION, "section"),
        (Form.INNER, ""),
    ],
)
def test_forms(form, names):
    """The forms of OpenMP's directives are those of the reference."""
    assert {row.name for row in ROWS if row.form is form and row.language == "omp"} == set(names.split())


def test_directives_with_a_function_form():
    """Exactly seven directives can stand over a ``def``."""
    found = {(row.language, row.name) for row in ROWS if row.makes_function}
    omp = {("omp", name) for name in ("target", "task", "taskloop", "taskgraph")}
    assert found == omp | {("acc", name) for name in ("parallel", "kernels", "serial")}


def test_combined_constructs():
    """A nest's name is made of the parts that OpenMP combines, in its order, and each part of OpenMP is there."""
    order = ["target", "teams", "distribute", "parallel", "for", "loop", "simd"]
    names = {row.name for row in ROWS if row.form is Form.NEST and row.language == "omp"}
    for name in names:
        places = [order.index(word) for word in name.split()]
        assert places == sorted(set(places))
        words = name.split()
        assert not {"for", "loop"} <= set(words)
        assert DIRECTIVES["omp", name].stands_for == ("target_loop" if words[0] == "target" else "parallel_loop")
    assert {name.removeprefix("target ") for name in names if name.startswith("target teams d")} <= names


def test_operators_are_those_of_the_constructs():
    """Each spelling of an operator means one that constructs and loops know."""
    assert set(OPERATORS.values()) == {"+", "*", "min", "max", "&", "|", "^", "and", "or"}
    for operator in set(OPERATORS.values()):
        offload.taskloop(reduction={operator: [np.ones(1, int)]})(lambda part: None)


def test_map_kinds():
    """The rows of ``map`` have no other kinds than all of them together."""
    kinds = {kind for row in ROWS if "map" in row.clauses for kind in row.clauses["map"].kinds}
    assert kinds == set(MAP_KINDS)


def test_remedies_name_what_exists():
    """A remedy that names an attribute of `offload` or of NumPy names one that is there."""
    remedies = [
        *(remedy for table in refused.DIRECTIVE_REMEDIES.values() for remedy in table.values()),
        *(remedy for table in refused.CLAUSE_REMEDIES.values() for remedy in table.values()),
    ]
    named = {
        word.strip("@,") for remedy in remedies for word in remedy.split() if word.strip("@").startswith("offload.")
    }
    assert len(named) > 5
    for name in named:
        assert callable(found_in({"acc": acc}, name.removeprefix("offload.")))


def test_aliases_of_words():
    """An alias of a word is a word that no directive has."""
    for language in LANGUAGES:
        words = {word for row in ROWS if row.language == language for word in row.name.split()}
        assert not set(WORD_ALIASES[language]) & words
        assert set(WORD_ALIASES[language].values()) <= words


def test_the_tables_are_pure():
    """The tables and the parser import nothing at run time but each other and the errors."""
    allowed = {"offload.errors", "ast", "enum", "keyword", "re", "dataclasses", "functools", "types", "typing"}
    for module in (expressions, mistakes, parser, readers, refused, scanner, tables):
        for node in ast.parse(inspect.getsource(module)).body:
            if isinstance(node, ast.ImportFrom) and not node.module.startswith("offload.pragma"):
                assert node.module in allowed | {"__future__"}
            elif isinstance(node, ast.Import):
                assert {name.name for name in node.names} <= allowed
