"""`parallel`, `masked`, `single` and `sections` have a team of one thread; `critical` and `atomic` are locks."""

from __future__ import annotations

import numpy as np
import pytest

import offload
from tests.conformance.pragma.spelling import dedent

PARALLEL = {
    "no clause": "",
    "num_threads": " num_threads(4)",
    "num_threads of an expression": " num_threads(n + 1)",
    "if": " if(n > 5)",
    "if with the directive": " if(parallel: n > 5)",
    "proc_bind": " proc_bind(close)",
    "shared": " shared(log)",
    "default": " default(shared)",
    "default none": " default(none) shared(log, n)",
}


def same(twins, strings, calls, make=lambda: ([], 3), **kwargs):
    return twins.same(dedent(strings), dedent(calls), make, **kwargs)


@pytest.mark.parametrize("name", PARALLEL)
def test_parallel(twins, name):
    """A parallel block runs once, where it stands, and waits for its tasks and their descendants at its end."""
    strings = f"""
        @directives
        def program(log, n):
            with omp("parallel{PARALLEL[name]}"):
                log.append("block")
                with omp("task shared(log)"):
                    with omp("task shared(log)"):
                        log.append("inner")
                n += 1
            return log, n
    """
    calls = """
        def program(log, n):
            with offload.taskgroup():
                log.append("block")

                def outer():
                    offload.task(log.append)("inner")

                offload.task(outer)()
                n += 1
            return log, n
    """
    assert same(twins, strings, calls).value == (["block", "inner"], 4)


@pytest.mark.parametrize(
    "string", ["parallel masked", "parallel master", "parallel masked filter(0) num_threads(2)", "parallel_masked"]
)
def test_parallel_masked(twins, string):
    """`parallel masked` is a parallel block whose code runs once."""
    strings = f"""
        @directives
        def program(log, n):
            with omp("{string}"):
                with omp("task"):
                    log.append(n)
            return list(log)
    """
    calls = """
        def program(log, n):
            with offload.taskgroup():
                offload.task(log.append)(n)
            return list(log)
    """
    assert same(twins, strings, calls).value == [3]


@pytest.mark.parametrize("string", ["masked", "master", "masked filter(0)", "single nowait"])
def test_blocks_that_do_not_wait(twins, string):
    """`masked`, and `single` with `nowait`, run in place and wait for nothing."""
    strings = f"""
        @directives
        def program(log, n):
            event = offload.Event()
            with omp("{string}"):
                with omp("task detach(event)"):
                    log.append(1)
                n += 1
            event.fulfill()
            omp("taskwait")
            return log, n
    """
    calls = """
        def program(log, n):
            event = offload.Event()
            offload.task(log.append, detach=event)(1)
            event.fulfill()
            offload.taskwait()
            return log, n + 1
    """
    assert same(twins, strings, calls).value == ([1], 4)


@pytest.mark.parametrize("string", ["single", "single private(k)", "single firstprivate(n)", "single copyprivate(n)"])
def test_single(twins, string):
    """`single` without `nowait` ends by waiting for the tasks generated in the block."""
    strings = f"""
        @directives
        def program(log, n):
            with omp("parallel"):
                with omp("{string}"):
                    with omp("task"):
                        log.append(n)
                found = list(log)
            return found
    """
    calls = """
        def program(log, n):
            with offload.taskgroup():
                with offload.taskgroup():
                    offload.task(log.append)(n)
                found = list(log)
            return found
    """
    assert same(twins, strings, calls).value == [3]


def test_parallel_can_be_left(twins):
    """A parallel block without `private` is left like any `with`, after its tasks."""
    strings = """
        @directives
        def program(log, n):
            for i in range(n):
                with omp("parallel"):
                    with omp("task"):
                        log.append(i)
                    if i == 1:
                        return log
    """
    calls = """
        def program(log, n):
            for i in range(n):
                with offload.taskgroup():
                    offload.task(log.append)(i)
                    if i == 1:
                        break
            return log
    """
    assert same(twins, strings, calls).value == [0, 1]


def test_private_of_parallel(twins):
    """With `private` or `firstprivate` the block has variables of its own, and arrays are copied for `firstprivate`."""
    strings = """
        @directives
        def program(a, n):
            with omp("parallel private(k) firstprivate(a, n)"):
                k = n + 1
                n = 10 * k
                a[0] = n
            k = 0
            return k, n, a.tolist()
    """
    assert twins.string(dedent(strings))(np.ones(2), 3) == (0, 3, [1, 1])


@pytest.mark.parametrize("string", ["sections", "parallel sections", "parallel sections num_threads(2)"])
def test_sections(twins, string):
    """Each section is a task, and the end of the block waits for all of them."""
    strings = f"""
        @directives
        def program(log, n):
            with omp("{string}"):
                with omp("section"):
                    log.append(n)
                with omp("section"):
                    with omp("task"):
                        log.append(n + 1)
            log.sort()
            return log
    """
    calls = """
        def program(log, n):
            with offload.taskgroup():
                offload.task(lambda: log.append(n))()
                offload.task(lambda: offload.task(log.append)(n + 1) and None)()
            log.sort()
            return log
    """
    outcome = same(twins, strings, calls)
    assert outcome.value == [3, 4]


def test_sections_nowait(twins):
    """With `nowait`, the end of `sections` waits for no section; the next wait does."""
    strings = """
        @directives
        def program(log, n):
            with omp("parallel"):
                with omp("sections nowait"):
                    with omp("section"):
                        log.append(n)
                    with omp("section"):
                        log.append(n)
            return list(log)
    """
    calls = """
        def program(log, n):
            with offload.taskgroup():
                offload.task(log.append)(n)
                offload.task(log.append)(n)
            return list(log)
    """
    assert same(twins, strings, calls).value == [3, 3]


def test_shared_in_sections(twins):
    """A section is taken, and its `shared` names are those of the function by `default(shared)` around it."""
    strings = """
        @directives
        def program():
            a = b = 0
            with omp("parallel sections default(shared)"):
                with omp("section"):
                    a = 1
                with omp("section"):
                    b = 2
            return a, b
    """
    assert twins.string(dedent(strings))() == (1, 2)


# -- locks ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "string",
    ["critical", "critical (sum)", "critical(sum)", "atomic", "atomic update", "atomic capture", "atomic write"],
)
def test_locks(twins, string):
    """Blocks under one lock exclude each other: a counter that tasks change this way loses nothing."""
    strings = f"""
        @directives
        def program(n):
            total = [0]
            inside = [0]
            with omp("taskloop grainsize(1)"):
                for i in range(n):
                    with omp("{string}"):
                        inside[0] += 1
                        value = total[0]
                        worst.append(inside[0])
                        total[0] = value + 1
                        inside[0] -= 1
            return total[0], max(worst)

        worst = []
    """
    assert twins.string(dedent(strings))(50) == (50, 1)


def test_a_lock_block_can_be_left(twins):
    """`return` and exceptions leave a critical block and release its lock."""
    strings = """
        @directives
        def program(fails):
            with omp("critical (one)"):
                if fails:
                    raise ValueError
                return 1
    """
    program = twins.string(dedent(strings))
    for _ in range(2):
        with pytest.raises(ValueError):
            program(True)
        assert program(False) == 1


@pytest.mark.parametrize("string", ["critical", "critical (name)", "atomic"])
@pytest.mark.parametrize("wait", ["taskwait", "taskyield", "barrier"])
def test_waits_under_a_lock(twins, string, wait):
    """A wait in a block that holds a lock is a PragmaError, since other tasks could run there."""
    strings = f"""
        @directives
        def program():
            with omp("{string}"):
                omp("{wait}")
    """
    with pytest.raises(offload.errors.PragmaError):
        twins.string(dedent(strings))()


def test_different_names_do_not_exclude(twins):
    """Critical blocks of two names are two locks: one may stand in the other."""
    strings = """
        @directives
        def program():
            with omp("critical (one)"):
                with omp("critical (two)"):
                    with omp("critical"):
                        with omp("atomic"):
                            return 1
    """
    assert twins.string(dedent(strings))() == 1
