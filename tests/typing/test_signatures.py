"""`inspect.signature` and `help` show the clauses; they are those that the constructs take at run time."""

from __future__ import annotations

import functools
import inspect
import pickle
import pydoc
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import offload as omp
from offload import acc
from offload.acc import clauses as acc_clauses
from offload.acc import signatures as acc_signatures
from offload.acc.compute import ComputeFunction
from offload.acc.declare import _STATIC, DeclaredFunction
from offload.acc.loops import ComputeLoop
from offload.constructs.clauses import signatures
from offload.constructs.target import TargetFunction
from offload.constructs.task import TaskFunction
from offload.constructs.taskgraph import TaskgraphFunction
from offload.constructs.taskloop import TaskloopFunction
from offload.loops import signatures as loop_signatures
from offload.loops.functions import TargetLoop
from offload.loops.host_functions import HostLoop

X = np.zeros(4)


def body(x: Any) -> None:
    pass


def loop_body(x: Any) -> None:
    for i in range(4):
        x[i] += 1


DECORATORS: dict[str, tuple[Any, Any, Any]] = {
    "target": (omp.target, TargetFunction._checks, body),
    "task": (omp.task, TaskFunction._checks, body),
    "taskgraph": (omp.taskgraph, TaskgraphFunction._checks, body),
    "taskloop": (omp.taskloop, TaskloopFunction._checks, body),
    "target_loop": (omp.target_loop, TargetLoop._checks, loop_body),
    "parallel_loop": (omp.parallel_loop, HostLoop._checks, loop_body),
    "acc parallel": (acc.parallel, ComputeFunction._checks, body),
    "acc kernels": (acc.kernels, ComputeFunction._checks, body),
    "acc serial": (acc.serial, ComputeFunction._checks, body),
    "acc parallel loop": (acc.parallel_loop, ComputeLoop._checks, loop_body),
    "acc kernels loop": (acc.kernels_loop, ComputeLoop._checks, loop_body),
    "acc declare": (acc.declare, {**acc_clauses.SPELLINGS, **dict.fromkeys((*_STATIC, "deviceptr"))}, body),
}


def clauses_of(construct: Any) -> dict[str, inspect.Parameter]:
    """Return what a signature shows by keyword only."""
    parameters = inspect.signature(construct).parameters
    return {name: one for name, one in parameters.items() if one.kind is one.KEYWORD_ONLY}


@pytest.mark.parametrize("name", DECORATORS)
def test_decorators_show_their_clauses(name: str) -> None:
    """The signature of a decorator has each clause of the table of checks, with a type and a default, and no other."""
    construct, checks, _ = DECORATORS[name]
    shown = clauses_of(construct)
    assert shown.keys() == checks.keys()
    assert all(isinstance(one.annotation, str) for one in shown.values())
    assert not any(one.kind is one.VAR_KEYWORD for one in inspect.signature(construct).parameters.values())
    text = pydoc.render_doc(construct)
    assert all(f"{clause}: " in text.splitlines()[2] for clause in checks)


def keys(kind: Any) -> set[str]:
    """Return the keys of a `TypedDict`."""
    return {*kind.__annotations__}


CALLS: dict[str, tuple[Any, set[str]]] = {
    "target_enter_data": (omp.target_enter_data, keys(signatures.DataKeywords) | {"map", "nowait"}),
    "target_exit_data": (omp.target_exit_data, keys(signatures.DataKeywords) | {"map", "nowait"}),
    "target_update": (omp.target_update, keys(signatures.UpdateKeywords) | {"nowait"}),
    "acc enter_data": (acc.enter_data, keys(acc_signatures.EnterKeywords) | {"async_"}),
    "acc exit_data": (acc.exit_data, keys(acc_signatures.ExitKeywords) | {"async_"}),
    "acc update": (acc.update, keys(acc_signatures.MoveKeywords) | {"async_"}),
}


@pytest.mark.parametrize("name", CALLS)
def test_overloads_have_the_same_clauses(name: str) -> None:
    """What type checkers see of a construct that is a call is what the function takes."""
    construct, clauses = CALLS[name]
    assert {*inspect.signature(construct).parameters} == clauses


def test_data_clauses() -> None:
    """The data clauses of OpenACC are those of the tables of spellings."""
    for kind, spellings in (
        (acc_signatures.RegionClauses, acc_clauses.SPELLINGS),
        (acc_signatures.CopyinClauses, acc_clauses.ENTER_SPELLINGS),
        (acc_signatures.ExitClauses, acc_clauses.EXIT_SPELLINGS),
    ):
        assert keys(kind) == spellings.keys()
    assert keys(acc_signatures.NamedClauses) == keys(acc_signatures.ParameterClauses) == DeclaredFunction._checks.keys()
    assert clauses_of(acc.data).keys() >= acc_clauses.SPELLINGS.keys() | {"deviceptr", "async_"}


def test_overloads_of_decorators() -> None:
    """The overloads of a decorator name one clause, which says what a call returns, and take all others."""
    for some, every, clause in (
        (signatures.TargetKeywords, signatures.TargetRegionClauses, "nowait"),
        (signatures.TaskloopKeywords, signatures.TaskloopClauses, "nogroup"),
        (loop_signatures.TargetLoopKeywords, loop_signatures.TargetLoopClauses, "nowait"),
        (loop_signatures.HostLoopKeywords, loop_signatures.HostLoopClauses, "nowait"),
        (acc_signatures.ComputeKeywords, acc_signatures.AllComputeClauses, "async_"),
        (acc_signatures.ComputeLoopKeywords, acc_signatures.ComputeLoopClauses, "async_"),
    ):
        assert keys(every) - keys(some) == {clause}
    assert keys(signatures.TaskloopKeywords) - keys(signatures.SplitKeywords) == {"reduction", "in_reduction"}


@pytest.mark.parametrize("name", [name for name in DECORATORS if name != "acc declare"])
def test_defaults(name: str) -> None:
    """To give a clause the default that the signature shows changes nothing."""
    construct, _, function = DECORATORS[name]
    with omp.Runtime("sim", check=True):
        for clause, shown in clauses_of(construct).items():
            x = np.zeros(4)
            decorated = construct(**{clause: shown.default})(function)
            found = decorated(range(2)) if name == "taskloop" else decorated(x)
            assert isinstance(found, omp.Task) == (name == "task"), clause
            omp.taskwait()
            assert x.tolist() == [float(function is loop_body)] * 4, clause


@pytest.mark.parametrize("name", DECORATORS)
def test_misspelled_clauses(name: str) -> None:
    """A clause that is misspelled is an error that names the clause, for each clause of each construct."""
    construct, checks, function = DECORATORS[name]
    for clause in checks if name != "acc declare" else acc_clauses.SPELLINGS:  # others are for arrays
        wrong = {f"{clause}q": ["x"]}
        with pytest.raises(omp.ClauseError, match=f"no clause '{clause}q'; did you mean '{clause}'"):
            construct(**wrong) if name != "acc declare" else construct(**wrong)(function)


BLOCKS = (omp.target_data, omp.taskgroup, omp.interop, omp.record, acc.data, acc.host_data)
OTHERS = (omp.target_enter_data, omp.target_exit_data, omp.target_update, omp.taskwait, omp.copy)
OF_ACC = (acc.enter_data, acc.exit_data, acc.update, acc.wait)


@pytest.mark.parametrize("construct", [*BLOCKS, *OTHERS, *OF_ACC])
def test_misspelled_clauses_of_calls(construct: Any) -> None:
    """So it is for constructs that are calls, each once and named once in the list of all."""
    for clause, one in inspect.signature(construct).parameters.items():
        if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            continue
        required = {"map": X, "use_device": [X], "dst": X, "src": X}
        known = inspect.signature(construct).parameters
        given = {name: value for name, value in required.items() if name in known}
        with omp.Runtime("sim", check=True), pytest.raises(omp.ClauseError) as raised:  # noqa: SIM117
            with construct(**given, **{f"{clause}q": 1}):  # a block looks at its clauses as it is entered
                pass
        text = str(raised.value)
        assert f"did you mean {clause!r}" in text
        listed = text.rpartition("It takes ")[2].split(", ")
        assert len(listed) == len({*listed})


def test_functions_keep_their_signature() -> None:
    """A function under a directive has the signature of the function."""

    def function(a: float, *, b: int = 3) -> float:
        return a

    for construct in (omp.target, omp.task, omp.taskgraph, omp.taskloop, acc.parallel, acc.serial):
        assert inspect.signature(construct(function)) == inspect.signature(function)


def test_signatures_are_like_others() -> None:
    """The signature of a construct can be bound, compared, changed and pickled, and a partial construct has one."""
    shown = inspect.signature(omp.target)
    assert shown.bind(body, nowait=True).arguments == {"function": body, "nowait": True}
    with pytest.raises(TypeError, match="nowiat"):
        shown.bind(body, nowiat=True)
    assert pickle.loads(pickle.dumps(shown)) == shown == shown.replace()
    assert hash(shown) == hash(shown.replace())
    assert str(shown.replace(parameters=())) == "() -> 'Any'"
    assert inspect.signature(functools.partial(omp.target, nowait=True)).parameters["nowait"].default is True


def test_programs_do_not_import_the_signatures() -> None:
    """What only signatures and type checkers need is imported by the first question, not by programs."""
    program = """
import inspect, sys, offload as omp
from offload import acc
omp.task(len, name="a")([]).result()
assert not [name for name in sys.modules if name.endswith("signatures")], "imported too early"
assert "nowait" in inspect.signature(omp.target).parameters
assert "offload.constructs.clauses.signatures" in sys.modules
assert str(omp.Task[int]) == "offload.tasks.task.Task[int]"
"""
    subprocess.run([sys.executable, "-c", program], check=True)
