"""Tasks that exclude each other: who has which mutexes, and who is next.

Theory of operation
-------------------
A task of a ``mutexinoutset`` takes all mutexes that it needs in one step when it is about to begin, or
stands in line at one that is taken. A task that gives one back hands it to the first in line that can have all that it
needs; one that cannot moves to the line of the mutex that is taken. No task holds a mutex while it waits, so there is
no deadlock, and no worker is held.

The engine's lock is held by the callers of all that stands here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from offload.tasks.task import Task


def take_mutexes(task: Task) -> bool:
    """Take all that a task needs, or stand in line at the first that is taken."""
    for mutex in task.mutexes:
        if mutex.holder is not None:
            mutex.waiting.append(task)
            return False
    for mutex in task.mutexes:
        mutex.holder = task
    return True


def give_back_mutexes(task: Task) -> list[Task]:
    """Return the tasks in line that get all their mutexes when this one gives back its own."""
    granted = []
    held = [mutex for mutex in task.mutexes if mutex.holder is task]
    for mutex in held:
        mutex.holder = None
    for mutex in held:
        while mutex.holder is None and mutex.waiting:
            other = mutex.waiting.popleft()
            if take_mutexes(other):
                granted.append(other)
    return granted
