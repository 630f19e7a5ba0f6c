"""Clauses and names that do not exist: the error names what was probably meant."""

from __future__ import annotations

import inspect
import pickle
from typing import Any

import numpy as np
import pytest

import offload as omp
from offload import acc, in_, parray, to, tofrom

X = np.zeros(4)


def loop_body(x: Any) -> None:
    for i in range(4):
        x[i] += 1


def body(x: Any, n: Any = 0) -> None:
    pass


DECORATORS = {
    "target": (omp.target, body),
    "task": (omp.task, body),
    "taskgraph": (omp.taskgraph, body),
    "taskloop": (omp.taskloop, body),
    "target_loop": (omp.target_loop, loop_body),
    "parallel_loop": (omp.parallel_loop, loop_body),
    "acc parallel": (acc.parallel, body),
    "acc kernels": (acc.kernels, body),
    "acc serial": (acc.serial, body),
    "acc parallel loop": (acc.parallel_loop, loop_body),
    "acc kernels loop": (acc.kernels_loop, loop_body),
}


@pytest.mark.parametrize("name", DECORATORS)
def test_decorators(name: str) -> None:
    """A decorator, and `.options`, says which clause was meant, and which there are."""
    decorator, function = DECORATORS[name]
    for wrong, meant in (("nam", "name"), ("if", "if_")):
        if name == "taskgraph" and wrong == "nam":
            wrong, meant = "graphid", "graph_id"  # noqa: PLW2901  # it has no name
        for make in (lambda clauses: decorator(**clauses), lambda clauses: decorator(function).options(**clauses)):
            with pytest.raises(omp.ClauseError, match=rf"has no clause '{wrong}'; did you mean '{meant}'\? It takes "):
                make({wrong: 1})
    with pytest.raises(omp.ClauseError, match="has no clause 'qqqqq'; it takes "):
        decorator(qqqqq=1)


def test_methods() -> None:
    """A method under a directive says it, too."""

    class Solver:
        @omp.task
        def step(self) -> None:
            pass

    with pytest.raises(omp.ClauseError, match="did you mean 'depend'"):
        Solver().step.options(dpend=[in_(X)])


CALLS: dict[str, tuple[Any, dict[str, Any], str, str]] = {
    "target_data": (omp.target_data, {"map": [to(X)]}, "devcie", "device"),
    "target_enter_data": (omp.target_enter_data, {"map": [to(X)]}, "nowiat", "nowait"),
    "target_exit_data": (omp.target_exit_data, {"map": [to(X)]}, "dpend", "depend"),
    "target_update": (omp.target_update, {"to": [X]}, "from", "from_"),
    "taskwait": (omp.taskwait, {}, "dependent", "depend"),
    "taskgroup": (omp.taskgroup, {}, "task_reductions", "task_reduction"),
    "interop": (omp.interop, {}, "target_sync", "targetsync"),
    "record": (omp.record, {}, "executes", "execute"),
    "buffers": (omp.buffers, {"n": 2, "shape": 3}, "dtpye", "dtype"),
    "target_alloc": (omp.target_alloc, {"shape": 4}, "devcie", "device"),
    "target_memcpy": (omp.target_memcpy, {"dst": X, "src": X}, "nbyte", "nbytes"),
    "target_memcpy_async": (omp.target_memcpy_async, {"dst": X, "src": X}, "depends", "depend"),
    "target_memcpy_rect": (omp.target_memcpy_rect, {"dst": X, "src": X}, "dst_offset", "dst_offsets"),
    "target_memset": (omp.target_memset, {"d": X, "value": 0}, "nbyte", "nbytes"),
    "copy": (omp.copy, {"dst": X, "src": X}, "no_wait", "nowait"),
    "target_is_present": (omp.target_is_present, {"a": X}, "devices", "device"),
    "to": (to, {}, "allways", "always"),
    "tofrom": (tofrom, {}, "presents", "present"),
    "Runtime": (omp.Runtime, {}, "num_thread", "num_threads"),
    "acc declare": (acc.declare, {"copyin": [X]}, "device_residents", "device_resident"),
    "acc data": (acc.data, {}, "copy_in", "copyin"),
    "acc enter_data": (acc.enter_data, {"copyin": [X]}, "asycn_", "async_"),
    "acc exit_data": (acc.exit_data, {"copyout": [X]}, "finalise", "finalize"),
    "acc update": (acc.update, {"device": [X]}, "self", "self_"),
    "acc host_data": (acc.host_data, {"use_device": [X]}, "ifpresent", "if_present"),
    "acc wait": (acc.wait, {}, "async", "async_"),
    "acc copyin_async": (acc.copyin_async, {"a": X}, "async", "async_"),
    "parray.for_each": (parray.for_each, {}, "no_wait", "nowait"),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls(name: str) -> None:
    """A construct or routine that is a call says which clause was meant, and does nothing."""
    call, given, wrong, meant = CALLS[name]
    with omp.Runtime("sim", check=True):
        with pytest.raises(
            omp.ClauseError, match=rf"has no clause '{wrong}'; did you mean '{meant}'\? It takes"
        ) as raised:
            found = call(**given, **{wrong: 1})
            with found:  # a block whose clauses are looked at as it is entered
                pass
        if name != "Runtime":
            assert str(raised.value).startswith(name)
        assert " self" not in str(raised.value).replace(" self_", "")
        assert not omp.target_is_present(X)


def test_errors_of_other_kinds_stay() -> None:
    """A call that misses an argument, or gives one twice, is a `TypeError`, as an unknown clause is, too."""
    with pytest.raises(TypeError) as raised:
        omp.target_update(nowiat=True)  # type: ignore[call-arg]
    assert isinstance(pickle.loads(pickle.dumps(raised.value)), omp.ClauseError)
    with pytest.raises(TypeError, match="missing"):
        omp.target_enter_data()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="multiple values"):
        omp.target_data([to(X)], map=[to(X)])  # type: ignore[misc]
    assert "device" in inspect.signature(omp.target_data).parameters


def test_names_in_strings() -> None:
    """A string that names no parameter says which one was meant."""
    field = np.zeros(4)
    with omp.Runtime("sim", check=True):
        for make in (
            lambda: omp.target(map=[tofrom("feild")])(lambda field: None),
            lambda: omp.target(firstprivate=["feild"])(lambda field: None),
            lambda: omp.task(depend=[in_("feild")])(lambda field: None)(field),
            lambda: omp.task(depend=[in_("field[0:feild]")])(lambda field: None)(field),
            lambda: acc.parallel(copy=["feild"])(lambda field: None),
        ):
            with pytest.raises(omp.ClauseError, match="did you mean 'field'"):
                make()
        with pytest.raises(omp.ClauseError, match="did you mean 'x'"):
            omp.target_loop(private=["xx"])(loop_body)


# -- default(none) --------------------------------------------------------------------------------------
class Pair:
    """An object with a mapper."""

    def __init__(self) -> None:
        self.data = np.zeros(4)


@pytest.mark.parametrize("value", [3, 2.5, True, np.float32(1), np.int64(2)])
def test_default_none_of_a_scalar(value: Any) -> None:
    """Under default(none) a number is listed as the error says; no error recommends a clause that refuses it."""
    forms: tuple[tuple[Any, dict[str, Any]], ...] = (
        (omp.target, {"defaultmap": "none", "map": [tofrom("x")]}),
        (omp.target, {"defaultmap": {"scalar": "none"}}),
        (acc.parallel, {"default": "none", "copy": ["x"]}),
        (acc.kernels, {"default": "none", "copy": ["x"]}),
        (acc.serial, {"default": "none", "copy": ["x"]}),
    )
    with omp.Runtime("sim", check=True):
        for construct, clauses in forms:
            with pytest.raises(
                omp.ClauseError, match=r"\(none\): argument 'n', a scalar.*put it into firstprivate or private$"
            ):
                construct(**clauses)(body)(X, value)
            for clause in ("firstprivate", "private"):
                construct(**clauses, **{clause: ["n"]})(body)(X, value)
        with pytest.raises(omp.MapError, match="name it in firstprivate or in no clause"):
            omp.target(defaultmap="none", map=[tofrom("x"), to("n")])(body)(X, value)
        with pytest.raises(omp.MapError, match="name it in firstprivate or in no clause"):
            acc.parallel(default="none", copy=["x"], copyin=["n"])(body)(X, value)


def test_default_none_of_other_kinds() -> None:
    """An array may be mapped or private; an object with a mapper is mapped."""
    omp.declare_mapper(Pair, lambda pair: [tofrom(pair.data)])
    with omp.Runtime("sim", check=True):
        for construct, default, word in ((omp.target, "defaultmap", "map"), (acc.parallel, "default", "a data clause")):
            with pytest.raises(omp.ClauseError, match=f"an array.*put it into {word}, firstprivate or private$"):
                construct(**{default: "none"})(body)(X)
            for clauses in ({"firstprivate": ["x"]}, {"private": ["x"]}):
                construct(**{default: "none"}, **clauses)(body)(X)
            with pytest.raises(omp.ClauseError, match=f"an object with a mapper.*put it into {word}$"):
                construct(**{default: "none"})(body)(Pair())
        omp.target(defaultmap="none", map=[tofrom("x")])(body)(Pair())
        acc.parallel(default="none", copy=["x"])(body)(Pair())
