"""Which task follows which, until the last one that it follows makes it ready.

Theory of operation
-------------------
*Counting.* A task for which the tracker found n predecessors has n + 1 counters in a `bytearray`: one for each, one for
its producer. Each takes its own by ``pop``, the producer those of predecessors that have finished; the last of them,
taken by any thread, is a 1 and makes the task ready. No lock is held: under the GIL ``pop`` is one step. (A bytearray
is half the size of an `itertools.count` with its bound ``__next__``, and the cyclic collector does not look at it.)

*Releasing.* The producer appends a task to its predecessor's list and then looks whether the predecessor
has finished; a predecessor first says that it has finished and then empties its list. Both take from the
list by ``pop``, which is one step, so each edge is released exactly once, whichever order these happen in.

*Orderings* hold until a task has been launched, or has ended: a later task finds the changes of this one. So a task
has to be entered with orderings only if an earlier one has not been launched (`holds_up`), or if it is not launched
itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import ref

from offload.tasks.states import TaskState
from offload.tasks.task import Task
from offload.tasks.troubles import Trouble, poison

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offload.tasks.depend import Tracker
    from offload.tasks.protocols import Runner

_FEW = 32
_COUNTERS = [bytearray(b"\1" + bytes(n)) for n in range(_FEW)]
"""What the counters of a task with few predecessors begin as; a copy takes half the time of a new one."""


# -- orderings -------------------------------------------------------------------------------------
def holds_up(tracker: Tracker) -> bool:
    """Tell whether a task that was entered with orderings has not been launched; forget the first that have."""
    ordered = tracker.ordered
    while ordered:
        task = ordered[0]()
        if task is not None and not (task.launched or task.finished):
            return True
        ordered.popleft()
    return False


def order(task: Task, orderings: Sequence[Any]) -> list[Any]:
    """Enter a task with orderings; return the weak references that it has to follow along them."""
    tracker = task.frame.tracker
    reference = ref(task)
    found = tracker.add(reference, orderings)
    tracker.ordered.append(reference)
    return found


# -- counting --------------------------------------------------------------------------------------
def follow(engine: Runner[Task], task: Task, found: Sequence[Any]) -> bool:
    """Have a task counted down by its predecessors, given by weak references; return whether it is ready.

    Most are plain tasks; to see that by the class takes a tenth of the time of an attribute that the class has.
    """
    n = len(found)
    counters = task.counters = _COUNTERS[n].copy() if n < _FEW else bytearray(b"\1" + bytes(n))
    for reference in found:
        other = reference()
        if other is None or other.finished or other is task:
            counters.pop()
            # Not before: it has noted its trouble, and then that it has finished.
            if other is not None and other.failure is not None:  # perhaps it is of another region
                if not (other.past or is_only_ordered(task, reference)):
                    poison(task, other, Trouble.of(other))
            elif troubles := task.frame.children.troubles:
                _heed(task, reference, troubles.get(id(reference)))
            continue
        if other.special or other.__class__ is not Task:
            _follow_special(engine, task, other)
            continue
        successors = other.successors
        if successors is None:
            other.successors = [task]
        else:
            try:
                is_known = successors[-1] is task  # found by another item before
            except IndexError:
                is_known = False  # another thread has emptied it meanwhile
            if is_known:
                counters.pop()
            else:
                successors.append(task)
        if other.finished:
            release_all(engine, other.successors, other)  # type: ignore[unreachable]  # by another thread, since above
    return counters.pop() == 1


def follows_launched(task: Task, found: Sequence[Any]) -> bool:
    """Tell whether all that a device task follows is on a stream that it can wait for, or complete: it is ready."""
    predecessors: tuple[Task, ...] = ()
    place = task.place
    for reference in found:
        other = reference()
        if other is None or other is task:
            continue
        if other.failure is not None:
            return False
        if not other.finished:
            if not (other.launched and (other.place is place or other.orders(task))):
                return False
            if other.special and other.poison is not None:
                return False
            if other not in predecessors:  # what is read from one and written to another may be of the same task
                predecessors += (other,)
    if task.frame.children.troubles:
        return False  # perhaps of one of them
    task.predecessors = predecessors
    return True


def _follow_special(engine: Runner[Task], task: Task, other: Task) -> None:
    """Have a task counted down by a predecessor of any kind: on a stream, or with its event promised there."""
    if task.waits_in_stream_order:
        task.predecessors = (*task.predecessors, other)  # for its point on the stream
        if other.orders(task):
            if other.launched:
                if other.failure is not None or other.poison is not None:
                    _heed(task, ref(other), Trouble.of(other))
                task.counters.pop()
                return
            if other.early is None:
                other.early = []
            other.early.append(task)
            if other.launched or other.finished:  # type: ignore[redundant-expr]  # by another thread, since above
                release_all(engine, other.early, other)
            return
    if other.waits_in_stream_order or other.event is not None:
        other.watch()
    if other.successors is None:
        other.successors = []
    other.successors.append(task)
    if other.finished:
        release_all(engine, other.successors, other)


# -- releasing -------------------------------------------------------------------------------------
def release(engine: Runner[Task], successors: list[Task], task: Task) -> Task | None:
    """Count down the successors of a task; return the first that is ready, for this thread to run."""
    following = None
    failed = task.failure is not None and task.state_ is not TaskState.CANCELLED
    if task.special and task.poison is not None:
        failed = True  # also of one that has run all the same
    successors.reverse()  # the oldest first
    while successors:
        try:
            successor = successors.pop()
        except IndexError:
            break  # the producer took the rest
        if failed and not is_only_ordered(successor, ref(task)):
            poison(successor, task, Trouble.of(task))
        if successor.counters.pop():
            if following is None and not engine.max_priority and not (successor.special and successor.owner):
                following = successor
            else:
                engine.make_ready(successor)
    return following


def release_all(engine: Runner[Task], successors: list[Task], task: Task) -> None:
    """Count down the successors of a task, and hand those that are ready to other threads."""
    following = release(engine, successors, task)
    if following is not None:
        engine.make_ready(following)


def _heed(task: Task, reference: ref[Task], trouble: Trouble | None) -> None:
    """Keep a task from running that follows one with this trouble, unless all of that is over."""
    source = trouble.unseen() if trouble is not None else None
    if source is not None and not is_only_ordered(task, reference):
        poison(task, source, trouble)  # type: ignore[arg-type]  # it has a source


def is_only_ordered(task: Task, reference: ref[Task]) -> bool:
    """Tell whether a task follows another one, which may be gone, in a way along which no failure goes."""
    return bool(task.ordered_after) and reference in task.ordered_after
