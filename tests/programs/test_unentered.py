"""Mistakes that would have no effect: blocks that are never entered, Dask collections as arguments of regions."""

from __future__ import annotations

import contextlib
import gc
import warnings
from typing import Any

import dask
import dask.array
import numpy as np
import pytest

import offload as omp
from offload import acc, inout, to, tofrom

X = np.zeros(4)
BLOCKS = {
    "target_data": lambda: omp.target_data(map=[tofrom(X)]),
    "taskgroup": lambda: omp.taskgroup({"+": [X]}),
    "acc.data": lambda: acc.data(copy=[X]),
    "acc.host_data": lambda: acc.host_data([X], if_=False),
    "record": lambda: omp.record(execute=True),
    "interop": lambda: omp.interop(depend=[inout(X)]),
}


@pytest.fixture(autouse=True)
def sim() -> Any:
    """A runtime with one simulated device."""
    with omp.Runtime("sim", num_threads=1, check=True) as runtime:
        yield runtime


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_that_is_discarded(name: str) -> None:
    """A block without `with` is a warning at the line that made it, once it is discarded."""
    with pytest.warns(omp.DirectiveWarning, match="discarded without being entered") as caught:
        BLOCKS[name]()
    (one,) = caught
    assert one.filename == __file__
    assert str(one.message).startswith(f"{name}(…) was")
    assert f"`with {name}(…):`" in str(one.message)


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_that_is_kept_and_dropped(name: str) -> None:
    """The warning names the line of the call also if the block goes later, by the collector."""

    def drop() -> None:
        cycle: list[Any] = [BLOCKS[name]()]
        cycle.append(cycle)
        del cycle
        gc.collect()  # unless it has come by itself

    with pytest.warns(omp.DirectiveWarning, match="discarded") as caught:
        drop()
    assert caught[0].lineno == BLOCKS[name].__code__.co_firstlineno


def test_a_statement_of_a_loop_warns_once() -> None:
    """By Python's default filters a line is told of once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            omp.target_data(map=[to(X)])
    assert [one.category for one in caught].count(omp.DirectiveWarning) == 1


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_that_is_entered(name: str) -> None:
    """A block that is entered by `with`, by an exit stack or with others is no warning, also if it raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with BLOCKS[name]():
            pass
        with contextlib.ExitStack() as stack:
            stack.enter_context(BLOCKS[name]())
        with pytest.raises(KeyError), BLOCKS[name]():
            raise KeyError
        block = BLOCKS[name]()
        with block:
            pass
        del block
        gc.collect()


def test_a_block_whose_entry_raises() -> None:
    """An entry that raises has told of the block."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(omp.NotPresentError), omp.target_data(map=[to(X, present=True)]):
            pass
        with pytest.raises(omp.ClauseError), omp.target_data(map=[to(X)], device="x"):  # type: ignore[arg-type]
            pass
        with pytest.raises(omp.NotPresentError), acc.data(present=[X]):
            pass
        gc.collect()


def test_blocks_as_decorators() -> None:
    """A block may decorate a function, which enters one of its own in each call, or in none."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for make in (BLOCKS["target_data"], BLOCKS["acc.data"]):

            @make()
            def work() -> bool:
                return omp.target_is_present(X)

            assert work()
            assert work()

            @make()
            def never() -> None:
                pass

            del work, never
        gc.collect()


async def enter_all() -> None:
    """Enter the blocks that have a form for coroutines."""
    async with omp.target_data(map=[tofrom(X)]):
        pass
    async with omp.taskgroup():
        pass


def test_blocks_of_coroutines() -> None:
    """`async with` enters a block."""
    import asyncio

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(enter_all())
        gc.collect()


# -- Dask collections -----------------------------------------------------------------------------------
def body(x: Any, *others: Any, **named: Any) -> None:
    x += 1


@pytest.mark.parametrize("kind", ["target", "nowait", "acc", "async"])
def test_a_dask_collection(kind: str) -> None:
    """A Dask collection that a region is passed is a warning that says `.compute()`, at the line of the call."""
    call: Any = {
        "target": omp.target(body),
        "nowait": omp.target(nowait=True)(body),
        "acc": acc.parallel(body),
        "async": acc.parallel(async_=1)(body),
    }[kind]
    x = np.zeros(4)
    for collection in (dask.array.ones(4), dask.delayed(sum)([1, 2])):
        with pytest.warns(omp.DirectiveWarning, match=r"argument 1 is a Dask collection.*\.compute\(\)") as caught:
            call(x, collection)
        assert caught[0].filename == __file__
        with pytest.warns(omp.DirectiveWarning, match=r"argument y is a Dask collection"):
            call(x, y=collection)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call(x, dask.array.ones(4).compute())
        call(x, dask.array.Array)
    omp.taskwait()
    acc.wait()
    assert (x == 6).all()
