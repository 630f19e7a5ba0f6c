"""The engine alone: readiness, order, failures, waits, with tasks of no runtime; under seeds and threads."""

import random
import threading
from types import SimpleNamespace

import pytest

from offload.errors import DependError, RuntimeClosedError
from offload.interrupts.frames import frames_of_threads
from offload.tasks.depend import DependType
from offload.tasks.engine import Engine
from offload.tasks.failures import raise_failures
from offload.tasks.goals import Emptied, Until
from offload.tasks.parker import Parker
from offload.tasks.region import Inherited, Region, TaskSet
from offload.tasks.scope import Scope
from offload.tasks.site import Site
from offload.tasks.task import Task
from tests.conftest import our_threads


class FakeRuntime:
    """What the engine and its tasks need of a runtime."""

    def __init__(self, num_threads=0, seed=None):
        self.engine = Engine(num_threads, None if seed is None else random.Random(seed), 30.0, self.new_scope)
        self.frame = Region(None, Inherited(0))
        self.scope = Scope(self, self.frame)
        self.site = Site("task", "body", "here:1", self)

    def new_scope(self):
        return Scope(self, Region(None, Inherited(0)))

    def submit(self, body, *accesses, frame=None):
        task = Task(self.site, body, (), None, frame or self.frame)
        if self.engine.submit(task, accesses):
            self.engine.make_ready(task)
        return task

    def wait(self):
        self.engine.wait(self.scope, Emptied("the test", self.frame.children))

    def close(self):
        self.engine.close("closed")


class Access:
    def __init__(self, key, *, writes=True):
        self.keys = (key,)
        self.type = DependType.INOUT if writes else DependType.IN
        self.joins = None if writes else DependType.IN


@pytest.fixture(params=[(0, None), (0, 1), (0, 2), (1, None), (4, None), (4, 3)], ids=str)
def runtime(request):
    runtime = FakeRuntime(*request.param)
    yield runtime
    runtime.close()
    assert not our_threads()


def test_a_chain_runs_in_order(runtime):
    """A chain of 5,000 tasks runs in its order and without recursion."""
    log = []
    for number in range(5_000):
        runtime.submit(lambda number=number: log.append(number), Access("x"))
    runtime.wait()
    assert log == list(range(5_000))
    assert not runtime.frame.children.live


def test_random_graphs_keep_their_order(runtime):
    """Every task of a random graph runs once, after all that it follows."""
    rng = random.Random(5)
    position, log, expected = {}, [], []
    last = {}
    for number in range(2_000):
        keys = rng.sample(range(20), rng.randint(1, 3))
        accesses = [Access(key, writes=rng.random() < 0.5) for key in keys]
        expected.append({last[key] for key in keys if key in last})
        runtime.submit(lambda number=number: log.append(number), *accesses)
        for access in accesses:
            if access.joins is None:
                last[access.keys[0]] = number
    runtime.wait()
    assert sorted(log) == list(range(2_000))
    position = {number: place for place, number in enumerate(log)}
    assert all(position[before] < position[number] for number in range(2_000) for before in expected[number])


def test_failures_poison(runtime):
    """What depends on a failure does not run and has it as its cause; a seen failure poisons nothing more."""
    ran = []
    first = runtime.submit(lambda: 1 / 0, Access("x"))
    second = runtime.submit(lambda: ran.append(2), Access("x"))
    third = runtime.submit(lambda: ran.append(3), Access("x"))
    other = runtime.submit(lambda: ran.append("other"), Access("y"))
    runtime.wait()
    assert ran == ["other"]
    assert other.failure is None
    assert isinstance(first.failure, ZeroDivisionError)
    for task in (second, third):
        assert isinstance(task.failure, DependError)
        assert task.failure.__cause__ is first.failure
    late = runtime.submit(lambda: ran.append("late"), Access("x"))
    runtime.wait()
    assert isinstance(late.failure, DependError)
    with pytest.raises(ExceptionGroup) as caught:
        raise_failures(runtime.frame.children.failures, "here")
    assert caught.value.exceptions == (first.failure,)
    runtime.submit(lambda: ran.append("after"), Access("x"))
    runtime.wait()
    assert ran == ["other", "after"]


def test_exit_exceptions_are_kept_too(runtime):
    """KeyboardInterrupt and SystemExit in a body do not end a worker; the group says that it is no Exception."""

    def leave():
        raise SystemExit(3)

    runtime.submit(leave)
    runtime.wait()
    with pytest.raises(BaseExceptionGroup) as caught:
        raise_failures(runtime.frame.children.failures, "here")
    assert not isinstance(caught.value, ExceptionGroup)
    ran = []
    runtime.submit(lambda: ran.append(1))
    runtime.wait()
    assert ran == [1]


def test_a_closed_engine_refuses(runtime):
    """Nothing is entered once the engine is closed."""
    runtime.engine.closed = "why"
    with pytest.raises(RuntimeClosedError, match="why"):
        runtime.submit(lambda: None)
    assert not runtime.frame.children.live


def test_two_threads_wait_for_one_set(runtime):
    """Several threads may wait for the same tasks; the last completion wakes them all."""
    for _ in range(50):
        latch = threading.Event()
        runtime.engine.ready.clear()
        task = Task(runtime.site, lambda: None, (), None, runtime.frame)
        runtime.engine.submit(task, ())
        children = runtime.frame.children
        started = threading.Barrier(3)

        def wait(started=started, children=children):
            scope = Scope(runtime, Region(None, Inherited(0)))
            started.wait()
            runtime.engine.wait(scope, Emptied("a thread", children), helps=False)

        threads = [threading.Thread(target=wait) for _ in range(2)]
        for thread in threads:
            thread.start()
        started.wait()
        latch.set()
        runtime.engine.finish_elsewhere(task)
        for thread in threads:
            thread.join()
        assert children.waiters == ()


def test_callbacks_added_by_many_threads_all_run(runtime):
    """A callback added while the task completes runs exactly once."""
    for _ in range(50):
        task = Task(runtime.site, lambda: None, (), None, runtime.frame)
        runtime.engine.submit(task, ())
        counts = [0] * 4
        started = threading.Barrier(5)

        def add(number, counts=counts, task=task, started=started):
            def bump(_):
                counts[number] += 1

            started.wait()
            task.add_done_callback(bump)

        threads = [threading.Thread(target=add, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        started.wait()
        runtime.engine.finish_elsewhere(task)
        for thread in threads:
            thread.join()
        assert counts == [1] * 4


def test_a_callback_that_raises_is_reported(runtime, monkeypatch):
    """An exception of a callback goes to threading.excepthook, and the others run."""
    seen, ran = [], []
    monkeypatch.setattr(threading, "excepthook", seen.append)
    task = runtime.submit(lambda: 5)
    runtime.wait()
    task.add_done_callback(lambda _: 1 / 0)
    task.add_done_callback(lambda task: ran.append(task.value))
    runtime.close()  # a worker that is at the end of the task may be the one that calls
    assert ran == [5]
    assert [args.exc_type for args in seen] == [ZeroDivisionError]


def test_nested_waits_run_descendants_only():
    """A thread that waits inside of a task runs what that task generated, and nothing else."""
    runtime = FakeRuntime(0)
    log = []

    def outer():
        frame = runtime.scope.frame("task")
        runtime.submit(lambda: log.append("inner"), frame=frame)
        runtime.engine.wait(runtime.scope, Emptied("outer", frame.children))
        log.append("outer")

    runtime.submit(outer)
    runtime.submit(lambda: log.append("sibling"))
    runtime.wait()
    assert log.index("inner") < log.index("outer") < log.index("sibling")
    runtime.close()


def test_disowned_tasks_run_elsewhere(runtime):
    """A task whose owner was interrupted is run by others, whether it was ready already or becomes so later."""
    ran = []
    parker = Parker()
    for ready_before in (True, False):
        task = Task(runtime.site, lambda: ran.append(1), (), None, runtime.frame)
        task.owner = parker
        task.special = True
        runtime.engine.submit(task, ())
        if ready_before:
            runtime.engine.make_ready(task)
            runtime.engine.disown(task)
        else:
            runtime.engine.disown(task)
            runtime.engine.make_ready(task)
        runtime.wait()
    assert ran == [1, 1]


def test_failures_in_a_set_come_before_its_end():
    """A waiter that sees a set empty sees its failures."""
    tasks = TaskSet()
    assert not tasks.live
    tasks.failures[None] = None
    parker = Parker()
    tasks.waiters = (parker.unpark,)
    tasks.leave(None)
    assert parker.park(0)


def test_a_wake_up_without_room_for_it_is_tried_again():
    """A RecursionError is not taken for a thread that is awake: the thread stays listed for the next wake-up."""

    class Deep(Parker):
        __slots__ = ()

        def unpark(self):
            raise RecursionError

    engine, deep = Engine(0, None, 60.0, lambda: None), Deep()
    engine.parked.append(deep)
    with pytest.raises(RecursionError):
        engine.wake_one()
    assert list(engine.parked) == [deep]
    assert not engine.woken

    def no_room():
        raise RecursionError

    parker = Parker()
    parker._lock = SimpleNamespace(release=no_room, locked=lambda: True)
    with pytest.raises(RecursionError):
        parker.unpark()


def has_parked(thread):
    """Tell whether a thread sleeps, or is about to: it has looked for tasks before."""
    return frames_of_threads()[thread.ident].f_code.co_name == "park"


class Completions:
    """What a waiting thread looks at: it does something once, when the engine's worker has gone to sleep."""

    def __init__(self, happens):
        self.happens = happens
        self.engine = None

    def look(self):
        if self.happens is not None and self.engine.parked and all(map(has_parked, self.engine.threads)):
            happens, self.happens = self.happens, None
            happens()

    def arrives(self, point):
        return True

    def hurry(self):
        pass

    relax = hurry


@pytest.fixture
def looking():
    """Return what makes a runtime with one worker, whose waits look, and by looking have something happen."""
    made = []

    def make(happens):
        runtime = FakeRuntime()
        completions = Completions(happens)
        runtime.engine = Engine(
            1, None, 30.0, runtime.new_scope, completions=completions, waits_look=True,
            attends_s=60.0,  # the worker of a busy machine may not go to sleep in the usual moment
        )  # fmt: skip
        completions.engine = runtime.engine
        made.append(runtime)
        return runtime

    yield make
    for runtime in made:
        runtime.close()


def test_who_looks_runs_what_it_makes_ready(looking):
    """A task that a look makes ready is run by the thread that has looked, and no worker is woken for it."""
    ran = []
    runtime = looking(lambda: runtime.submit(lambda: ran.append(threading.current_thread())))
    first = Task(runtime.site, lambda: None, (), None, runtime.frame)
    runtime.engine.submit(first, ())
    runtime.engine.wait(runtime.scope, Until("the test", lambda: bool(ran)))
    assert ran == [threading.main_thread()]
    assert not runtime.engine.woken
    runtime.engine.make_ready(first)
    runtime.wait()


def test_who_looks_and_goes_leaves_the_task_to_another(looking):
    """A task that is made ready by the look that ends the wait is run by a worker."""
    ran = threading.Event()
    runtime = looking(lambda: runtime.submit(ran.set))
    runtime.engine.wait(runtime.scope, Until("the test", lambda: bool(runtime.engine.ready) or ran.is_set()))
    assert ran.wait(60)
    runtime.wait()


@pytest.mark.parametrize("submits", ["the look", "the callback"])
def test_a_callback_in_a_look_may_block_until_a_task_has_run(looking, submits):
    """A worker runs what has been made ready if the thread that looks is held up by a callback."""
    ran, called = threading.Event(), []

    def happens():
        if submits == "the look":
            runtime.submit(ran.set)
        runtime.engine.finish_elsewhere(ended)

    def call(_):
        if submits == "the callback":
            runtime.submit(ran.set)
        called.append(ran.wait(60))

    runtime = looking(happens)
    ended = Task(runtime.site, lambda: None, (), None, runtime.frame)
    runtime.engine.submit(ended, ())
    ended.callbacks, ended.special = [call], True
    runtime.wait()
    assert called == [True]
