"""Mutants of the async queues: each breaks one rule, and the model of test_queues_rules.py must notice."""

from __future__ import annotations

import threading

import pytest
from hypothesis import Phase
from hypothesis.errors import FlakyFailure

from offload.acc import queues
from offload.constructs.queueing import QueueEntry
from offload.devices.streams import POOL_SIZE
from offload.runtime.queues import Queue, Queues
from tests.runtime.test_queues_rules import explore

pytestmark = pytest.mark.mutants

INIT, ENTERED, ENQUEUE_MARKER = QueueEntry.__init__, QueueEntry.entered, queues.enqueue_marker
APPEND, ARE_COMPLETE = Queue.append, queues.are_complete
WAIT_FOR = queues.wait_for


def one_queue_a_stream(patch):
    patch(Queues, "__getitem__", lambda queues, key: dict.__getitem__(queues, (key[0], key[1] % POOL_SIZE)))


def complete_by_stream(patch):
    patch(queues, "are_complete", lambda _, __, queues: all(queue.lane.stream.done for queue in queues))


def complete_by_neighbours(patch):
    def are_complete(scope, frame, queues):
        numbers = {queue.number % POOL_SIZE for queue in queues}
        known = [queue for place in scope.runtime.places for queue in scope.runtime.queues.known(place)]
        return ARE_COMPLETE(scope, frame, [queue for queue in known if queue.number % POOL_SIZE in numbers])

    patch(queues, "are_complete", are_complete)


def lost_mark(patch):
    def append(queue, mark, frame):
        tail = queue.tail
        before = APPEND(queue, mark, frame)
        queue.tail = tail or mark
        return before

    patch(Queue, "append", append)


def forgotten_tail(patch):
    patch(Queue, "append", lambda *given: APPEND(*given) and None)


def follows_later_ones(patch):
    """A queue that follows another one does so for ever."""
    followers = {}

    def enqueue_marker(scope, frame, queue, after):
        for other in after:
            followers.setdefault(other, []).append((scope, frame, queue))
        return ENQUEUE_MARKER(scope, frame, queue, after)

    def entered(entry, scope, task):
        ENTERED(entry, scope, task)
        if task.construct.directive != "acc wait":  # else it is such a marker
            for scope_, frame_, follower in followers.get(entry.queue, ()):
                ENQUEUE_MARKER(scope_, frame_, follower, [entry.queue])

    patch(queues, "enqueue_marker", enqueue_marker)
    patch(QueueEntry, "entered", entered)


def holds_up_later_ones(patch):
    """What follows a queue is followed by that, as with one location for a queue."""

    def enqueue_marker(scope, frame, queue, after):
        task = ENQUEUE_MARKER(scope, frame, queue, after)
        for other in after:
            ENQUEUE_MARKER(scope, frame, other, [queue])
        return task

    patch(queues, "enqueue_marker", enqueue_marker)


def no_marker(patch):
    patch(queues, "enqueue_marker", lambda *_: None)


def first_of_several(patch):
    patch(queues, "enqueue_marker", lambda scope, frame, queue, after: ENQUEUE_MARKER(scope, frame, queue, after[:1]))


def no_wait_clause(patch):
    def init(entry, queue, after=(), orderings=None):
        INIT(entry, queue, () if orderings is not None else after, orderings)

    patch(QueueEntry, "__init__", init)


def no_wait(patch):
    patch(queues, "wait_for", lambda *_: None)


def waits_for_one(patch):
    patch(queues, "wait_for", lambda scope, frame, queues, where: WAIT_FOR(scope, frame, queues[:1], where))


def default_of_all_threads(patch):
    class Shared:
        pass

    patch(threading, "local", Shared)


MUTANTS = [
    one_queue_a_stream,
    complete_by_stream,
    complete_by_neighbours,
    lost_mark,
    forgotten_tail,
    follows_later_ones,
    holds_up_later_ones,
    no_marker,
    first_of_several,
    no_wait_clause,
    no_wait,
    waits_for_one,
    default_of_all_threads,
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_mutants(monkeypatch, mutant):
    """Queues that break one rule do not agree with the model, though perhaps not each time in the same way."""
    with pytest.raises((AssertionError, FlakyFailure)), monkeypatch.context() as patched:
        mutant(patched.setattr)
        explore(1000, 0, 1, limit_s=0.3, phases=[Phase.generate], derandomize=True)
