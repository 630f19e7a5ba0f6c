"""What a task says of itself, and what cannot be a task."""

from __future__ import annotations

from typing import Any

import pytest

import offload as omp
from offload import inout, out


@pytest.fixture(autouse=True)
def runtime() -> Any:
    """A runtime without devices, so that every task is the host's."""
    with omp.Runtime("none", num_threads=1) as runtime:
        yield runtime


def test_a_dependent_of_a_failure_is_not_run() -> None:
    """The task that fails says so, and the ones that depend on it say that they did not run."""

    @omp.task(depend=[inout(("x",))])
    def fail() -> None:
        raise ValueError

    @omp.task(depend=[inout(("x",))])
    def after() -> None:
        raise AssertionError

    first, second = fail(), after()
    with pytest.raises(ExceptionGroup):
        omp.taskwait()
    assert (first.state, second.state) == ("failed", "not run")


def test_bodies_that_run_nothing_when_called_are_refused() -> None:
    """Generators cannot be bodies, coroutines no target bodies; they are refused where they are decorated."""

    async def coroutine() -> None:
        raise AssertionError

    async def asynchronous() -> Any:
        yield

    def generator() -> Any:
        yield

    for decorate in (omp.task, omp.target, omp.task(name="x")):
        for body in (generator, asynchronous):
            with pytest.raises(omp.UnsupportedError, match=body.__name__):
                decorate(body)
    with pytest.raises(omp.UnsupportedError, match=coroutine.__name__):
        omp.target(coroutine)


def test_a_task_cannot_wait_for_itself() -> None:
    """Waiting in a body for the task that runs it, or for an ancestor, is an error and no hang."""

    @omp.task
    def outer() -> None:
        me = omp.current_task()
        assert me is not None
        with pytest.raises(omp.UsageError, match="waits for itself"):
            me.result()

        @omp.task
        def inner() -> None:
            with pytest.raises(omp.UsageError, match="waits for itself"):
                me.result()

        inner().result()

    outer().result()


@pytest.mark.parametrize("value", [omp.Event, 3, "event"])
def test_what_is_no_event_cannot_be_attached_or_fulfilled(value: Any) -> None:
    """`detach` takes an event, not the class or anything else; so does `fulfill_event`."""
    with pytest.raises(omp.EventError, match="Event"):
        omp.task(detach=value)
    with pytest.raises(omp.EventError, match="Event"):
        omp.fulfill_event(value)


def test_times_are_from_the_predecessors_end_to_completion() -> None:
    """A recorded task's time includes its event and none of what it waited for, so that a path adds up."""
    event = omp.Event()

    @omp.task(depend=[out(("a",))], detach=event)
    def detached() -> None:
        """Leave the rest to the event."""

    @omp.task(depend=[inout(("a",))])
    def after() -> None:
        """Follow."""

    with omp.record() as graph:
        detached()
        after()
        event.fulfill()
        omp.taskwait()
    first, second = graph.tasks[:2]
    assert first.start_s <= first.end_s <= second.start_s <= second.end_s
    assert first.duration_s + second.duration_s <= second.end_s - first.start_s
