"""The order that a program has asked for in one runtime: stretches of threads, tasks and streams, and edges.

Theory of operation
-------------------
A *course* is one line of control: the code of a host thread outside of any body, one task, or work that the program has
launched on a stream. A course has a present stretch of `offload.sanitizer.clocks.Order`. Something that later work
elsewhere comes after *releases* the present stretch: the next access of the course begins a new one. Something that a
course waits for *joins* it.

* A task begins after the code that has generated it and after the ends of its predecessors. The predecessors come from
  the trackers of the engine, which forget nothing while a runtime is sanitized. The stretch is made when the task
  begins, since the ends of its predecessors are known then.
* A task ends after its body and after its event. A device task ends when all its work has been put on its stream. Work
  that follows a task may be carried out before it, as a part of a stream of the program that a queue has. Such work
  follows the *promise* of the task's end: a stretch that comes after all stretches that the task will have.
* A wait joins the tasks that it has asked for, also those that had ended before. So each set of tasks that can be
  waited for has a list here of the courses that nobody has joined.
* A queue, and a stream of the program, has the ends of its last work.

What happened to run earlier, on one thread, lane or stream of the library, adds no edge. Tasks that exclude each other
have no order either, but common *tokens*, and `Orders.compares` says that they are not compared. It says the same of
courses of different *families*: a host thread, and all tasks that it has generated, directly or not.

`offload.runtime.sanitizing`, and the modules whose classes it concerns, call the methods at the right moments.
"""

from __future__ import annotations

import threading
from itertools import count
from threading import get_ident
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, ref

from offload.events.event import Event
from offload.interrupts.frames import caller, calls_program, is_between
from offload.sanitizer.clocks import Order
from offload.sanitizer.courses import Course, ShieldedLock, StreamLine, ThreadState
from offload.sanitizer.depends import given_by, params_of
from offload.sanitizer.names import is_installed
from offload.tasks.depend import Followed
from offload.tasks.scope import current_scope

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence
    from types import CodeType, FrameType

    from offload.sanitizer.courses import Calls, End
    from offload.tasks.region import TaskSet


class Orders:
    """The order of one runtime.

    Attributes
    ----------
    order : Order
        The stretches.
    lock : ShieldedLock
        Held by each method, and to be held by whoever asks ``order`` itself.
    """

    def __init__(self, runtime: Any) -> None:
        self.order = Order()
        self.lock = ShieldedLock()
        self._runtime = runtime
        self._local = ThreadState()
        self._next_number = count().__next__
        self._course_of: list[Course] = []  # of each stretch
        self._threads: list[Course] = []
        self._tasks: dict[ref[Any], Course] = {}
        # The courses that nobody has joined, by the sets of tasks that can be waited for. The set is kept, for its id.
        self._sets: dict[int, tuple[TaskSet, list[Course]]] = {}
        self._events: WeakKeyDictionary[Any, Course] = WeakKeyDictionary()
        self._lines: WeakKeyDictionary[Any, StreamLine] = WeakKeyDictionary()
        self._queues: dict[Any, StreamLine] = {}
        self._points: dict[Any, list[End]] = {}  # where the program has recorded events of devices
        self._entries: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._fulfilled: list[Course] = []  # the events that code of the program has fulfilled
        self._of_program: dict[CodeType, bool] = {}
        self._known_calls: dict[Calls, Calls] = {}  # equal ones are the same object
        self._locks: dict[Any, int] = {}
        # Of graphs that are computed: the tasks of nodes, and the groups that end at nodes.
        self._nodes: dict[Any, Course] = {}
        self._group_ends: dict[str, TaskSet] = {}

    # -- for the sanitizer ---------------------------------------------------------------------------
    def here(self) -> int:
        """Return the stretch of an access by the code that runs on the calling thread."""
        with self.lock:
            stretch = self._local.stretch
            return stretch if stretch >= 0 else self._now(self._code())

    def of_copy(self, task: Any = None) -> int:
        """Return the stretch of a copy that the launch of a task enqueues; without one, of the task launched here."""
        with self.lock:
            if task is None:
                task = self._local.launching
            return self.here() if task is None else self._now(self._begun(self.course(task)))

    def course_of(self, stretch: int) -> Course:
        """Return the course that a stretch belongs to."""
        return self._course_of[stretch]

    def compares(self, one: int, other: int) -> bool:
        """Tell whether unordered accesses of two stretches are a race: they do not exclude each other.

        Code of two host threads is not compared, as their locks and queues cannot be seen.
        """
        mine, others = self._course_of[one], self._course_of[other]
        if mine.family is not others.family:
            return False
        return not mine.tokens or mine.tokens.isdisjoint(others.tokens)

    def is_alone(self, stretch: int) -> bool:
        """Tell whether a stretch is a host thread's present one, and comes after all that its family has generated.

        Then an access there is ordered with every other one that it could be compared with, also with later ones.
        """
        course = self._course_of[stretch]
        if course.family is not course or course.stretch != stretch:
            return False
        if course.open and course.looked_at != (stretch, len(course.open)):
            is_before = self.order.is_before
            course.open = [
                one for one in course.open if one.end < 0 or one.end != one.stretch or not is_before(one.end, stretch)
            ]
            course.looked_at = stretch, len(course.open)
        return not course.open

    def late_children(self, stretch: int) -> list[Course]:
        """Return the children before a stretch that end because of an event which is fulfilled after it."""
        is_before, code = self.order.is_before, self._course_of[stretch]
        late = [event.end for event in self._fulfilled if is_before(stretch, event.end)]
        if not late:
            return []
        return [
            course
            for course in self._tasks.values()
            if course.parent is code
            and course.end >= 0
            and is_before(course.start, stretch)
            and any(is_before(end, course.end) for end in late)
        ]

    # -- courses and their stretches -----------------------------------------------------------------
    def _stretch(self, course: Course, *before: int) -> int:
        self._course_of.append(course)
        return self.order.stretch(*before)

    def _now(self, course: Course) -> int:
        """Return the present stretch of a course, for an access."""
        if course.is_released:
            self._go_on(course, self._stretch(course, course.stretch))
        return course.stretch

    def _go_on(self, course: Course, stretch: int) -> None:
        """Have a course go on with a new stretch."""
        course.stretch = stretch
        course.is_released = False
        if course.promise >= 0:
            self.order.add(stretch, course.promise)

    def _release(self, course: Course) -> int:
        """Return the stretch that has all that the course has done so far."""
        course.is_released = True
        return course.stretch

    def _join(self, course: Course, ends: Iterable[End]) -> None:
        """Have all that a course does from now on come after some ends."""
        is_before, now = self.order.is_before, course.stretch
        known = [self._end_of(end) for end in ends if end is not course]
        found = [end for end in dict.fromkeys(known) if end != now and not is_before(end, now)]
        if found:
            self._go_on(course, self._stretch(course, now, *found))

    def _end_of(self, end: End) -> int:
        """Return the stretch at the end of a course, or one that will come after it."""
        if not isinstance(end, Course):
            return end
        if end.end >= 0:
            return end.end
        return end.promise if end.promise >= 0 else self._promise(end)

    def _promise(self, course: Course) -> int:
        """Return a stretch that comes after all that a course will do; all courses before it are begun."""
        front = [course]
        while front:
            last = front[-1]
            unknown = [end for end in last.before if isinstance(end, Course) and end.end < 0 and end.promise < 0]
            if unknown:
                front += unknown
                continue
            front.pop()
            if last.promise < 0:
                self._begun(last)
                last.promise = self.order.fork(last.stretch)
                self._course_of.append(last)
                last.is_released = True
        return course.promise

    def _code(self) -> Course:
        """Return the course of the code that runs on the calling thread."""
        scope = current_scope.get()
        if scope is None or scope.runtime is not self._runtime or scope.thread != get_ident():
            scope = getattr(self._runtime.local, "scope", None)
        task = None if scope is None else scope.task
        acting = self._local.acting
        if acting is not None and acting[1] is task:
            return acting[0]
        return self._thread() if task is None else self._begun(self.course(task))

    def _thread(self) -> Course:
        """Return the course of the calling thread outside of any body."""
        course = self._local.course
        if course is None:
            name = threading.current_thread().name
            course = self._local.course = Course("thread", name, None, None, self._next_number())
            course.stretch = self._stretch(course)
            self._threads.append(course)
        return course

    def course(self, task: Any) -> Course:
        """Return the course of a task; one that is not known is generated here."""
        reference = ref(task)
        course = self._tasks.get(reference)
        if course is None:
            parent = self._code()
            course = Course("task", str(task.name), parent.family, parent, self._next_number())
            course.construct = task.construct
            course.start = self._release(parent)
            course.before = [*self._local.extra]
            course.params = params_of(task)
            if parent.kind == "thread":
                course.calls = self._calls_here()
            self._local.extra = ()
            course.family.open.append(course)
            self._local.created = self._tasks[reference] = course
        return course

    def _calls_here(self) -> Calls:
        """Return the program's lines on the stack of the calling thread, the innermost one first."""
        frame: FrameType | None = caller()
        found, known = [], self._of_program
        while frame is not None and frame.f_globals.get("__name__") != "offload.cli.run":  # which is the outermost then
            code = frame.f_code
            is_of_program = known.get(code)
            if is_of_program is None:
                is_of_program = known[code] = not (is_between(frame) or is_installed(code.co_filename))
            if is_of_program:
                found.append((code, frame.f_lineno))
            frame = frame.f_back
        calls = tuple(found)
        return self._known_calls.setdefault(calls, calls)

    def _begun(self, course: Course) -> Course:
        """Give a task its first stretch, if it has none."""
        if course.stretch < 0:
            before, course.before = course.before, []
            ends = dict.fromkeys(map(self._end_of, before))
            stretch = self.order.stretch(*ends) if course.start < 0 else self.order.fork(course.start, *ends)
            self._course_of.append(course)
            course.stretch = stretch
        return course

    # -- tasks ---------------------------------------------------------------------------------------
    def created(self, task: Any, follows: Sequence[Any] = ()) -> None:
        """Note that the calling code has generated a task; ``follows`` has handles of tasks that it follows."""
        with self.lock:
            course = self.course(task)
            course.before += self._ends_of(follows)
            for members in (task.frame.children, task.inherited.group):
                if members is not None:
                    self._members(members).append(course)
            course.family.unjoined.append(course)
            if task.mutexes:
                course.tokens.update(task.mutexes)

    def depends(self, task: Any, accesses: Sequence[Any], found: Sequence[Any], tokens: Iterable[Hashable]) -> None:
        """Note the predecessors of a task that its tracker has found, and the things of which it excludes others."""
        with self.lock:
            course = self.course(task)
            course.before += [end for end in self._ends_named(accesses, found) if end is not course]
            course.tokens.update(tokens)
            course.given = given_by(accesses)

    def named(self, accesses: Sequence[Any], found: Sequence[Any]) -> None:
        """Note the tasks that a wait with these dependences would follow."""
        with self.lock:
            self._local.named = (*self._ends_named(accesses, found),)

    def begins(self, task: Any) -> None:
        """Note that a task begins."""
        with self.lock:
            self._begun(self.course(task))

    def ends(self, task: Any) -> None:
        """Note that a task is complete, or has put all its work on its stream."""
        with self.lock:
            course = self.course(task)
            if course.end >= 0:
                return
            self._begun(course)
            event = task.event
            if isinstance(event, Event) and event in self._events:
                self._join(course, (self._events[event],))
            course.end = self._release(course)

    def encountered(self, task: Any) -> None:
        """Note that the calling code has waited for the body of an undeferred task."""
        with self.lock:
            course = self.course(task)
            course.is_waited_for = True
            self._join(self._code(), [course if course.end >= 0 else self._release(self._begun(course))])

    def made(self, tasks: Sequence[Any], edges: Iterable[tuple[int, int]]) -> None:
        """Note the tasks of a graph that runs again, and its edges as pairs of positions."""
        with self.lock:
            for task in tasks:
                self.created(task)
            courses = [self.course(task) for task in tasks]
            for before, after in edges:
                courses[after].before.append(courses[before])

    def prepared(self, node: Any, task: Any) -> None:
        """Note the task of a node of a recorded graph that is computed: it follows those of the nodes before it."""
        with self.lock:
            course = self._nodes[node] = self.course(task)
            front, seen = [*node.before], set()
            while front:
                other = front.pop()
                if other in seen:
                    continue
                seen.add(other)
                if other in self._nodes:
                    course.before.append(self._nodes[other])
                    continue
                if (group := self._group_ends.get(other.key)) is not None:
                    course.before += self._members(group)
                front += other.before

    def ends_group(self, key: str, group: TaskSet) -> None:
        """Note that a node of a graph that is computed is the end of a group."""
        with self.lock:
            self._group_ends[key] = group

    def _ends_of(self, handles: Iterable[Any]) -> list[End]:
        """Return the courses of the tasks of weak references."""
        return [course for handle in handles if (course := self._tasks.get(handle)) is not None]

    def _ends_named(self, accesses: Sequence[Any], found: Sequence[Any]) -> list[End]:
        """Return what clauses follow: the tasks that a tracker has found, and the tasks and events that they name."""
        ends = self._ends_of([handle for handle in found if isinstance(handle, ref)])
        for access in accesses:
            for key in access.keys or ():
                if isinstance(key, Followed):
                    what = key.what
                    ends.append(self._event(what) if isinstance(what, Event) else self.course(what))
        return ends

    # -- waits ---------------------------------------------------------------------------------------
    def _members(self, members: TaskSet) -> list[Course]:
        found = self._sets.get(id(members))
        if found is None:
            found = self._sets[id(members)] = members, []
        return found[1]

    def joins(self, *ends: End) -> None:
        """Have the calling code come after some ends."""
        with self.lock:
            self._join(self._code(), ends)

    def joins_task(self, task: Any) -> None:
        """Have the calling code come after a task that is complete."""
        if self._local.unasked is not task:
            with self.lock:
                self._join(self._code(), [self.course(task)])

    def waits_unasked(self, task: Any) -> Any:
        """Say which task the calling thread waits for without being asked to; return the one before."""
        outer, self._local.unasked = self._local.unasked, task
        return outer

    def joins_set(self, members: TaskSet) -> None:
        """Have the calling code come after all tasks of a set."""
        with self.lock:
            found = self._sets.pop(id(members), None)
            if found is not None:
                self._join(self._code(), found[1])

    def joins_all(self) -> None:
        """Have the calling code come after all tasks of its family."""
        with self.lock:
            code = self._code()
            found, code.family.unjoined = code.family.unjoined, []
            self._join(code, found)

    def joins_named(self) -> None:
        """Have the calling code come after the tasks that its last question to a tracker has found."""
        with self.lock:
            found, self._local.named = self._local.named, ()
            self._join(self._code(), found)

    def ends_set(self, task: Any, members: TaskSet) -> None:
        """Have a task, whose body is the wait for a set, come after all tasks of the set."""
        with self.lock:
            found = self._sets.pop(id(members), None)
            if found is not None:
                self._join(self._begun(self.course(task)), found[1])

    # -- events --------------------------------------------------------------------------------------
    def _event(self, event: Any) -> Course:
        """Return the course that ends with the fulfilment of an event."""
        course = self._events.get(event)
        if course is None:
            course = self._events[event] = Course("event", "event", None, None, -1)
        return course

    def _fulfil(self, event: Any, *ends: End) -> None:
        """Note that an event is fulfilled after some ends."""
        course = self._event(event)
        if course.end < 0:
            if course.stretch < 0:
                course.stretch = self._stretch(course)
            self._join(course, ends)
            course.end = self._release(course)

    def fulfilled(self, event: Any) -> None:
        """Note that the calling code fulfils an event."""
        with self.lock:
            self._fulfil(event, self._release(self._code()))
            self._fulfilled.append(self._event(event))

    def fulfilled_by_others(self, event: Any) -> None:
        """Note that a source other than a stream fulfils an event: after all that host threads have done so far."""
        with self.lock:
            codes = dict.fromkeys((self._code(), *self._threads))
            self._fulfil(event, *[self._release(code) for code in codes])

    def fulfilled_on(self, event: Any, stream: Any) -> None:
        """Note that an event is fulfilled when a stream has got to the end of its present work."""
        with self.lock:
            self._fulfil(event, *self._line(stream).last)

    def rearmed(self, event: Any) -> None:
        """Forget who has fulfilled an event, as its graph runs again."""
        with self.lock:
            self._events.pop(event, None)

    # -- streams -------------------------------------------------------------------------------------
    def _line(self, stream: Any) -> StreamLine:
        """Return the line of a stream, as the calling code has it.

        The library gives streams of a pool to threads, tasks and blocks; two that happen to have the same one are not
        in order because of that.
        """
        code = self._code()
        if code.lines is not None and stream in code.lines:
            return code.lines[stream]
        scope = self._runtime.here()
        lane = scope.user_lane
        if lane is not None and lane.stream is stream:
            return self._give(code, stream)
        line = self._lines.get(stream)
        if line is None:
            line = self._lines[stream] = StreamLine(f"a stream of {stream.device.name}")
        return line

    def _give(self, code: Course, stream: Any) -> StreamLine:
        line = self._lines[stream] = StreamLine(f"the stream of {code.name}")
        if code.lines is None:
            code.lines = {}
        code.lines[stream] = line
        return line

    def _after_line(self, line: StreamLine, *others: End) -> int:
        """Return a stretch of the line's own that comes after its last work and some ends, and is its last work."""
        code = self._code()
        course = Course("stream", line.name, code.family, code, self._next_number())
        course.family.open.append(course)
        course.before = [*line.last, *others]
        course.start = self._release(code)
        self._begun(course)
        course.end = self._release(course)
        line.last = [course.end]
        return course.end

    def launched(self, stream: Any) -> int:
        """Return the stretch of work that the calling code puts on a stream."""
        with self.lock:
            code, task = self._code(), self._running_target()
            if task is not None and task.lane is not None and task.lane.stream is stream:
                return self._now(code)  # a part of the region
            return self._after_line(self._line(stream))

    def _running_target(self) -> Any:
        task = self._runtime.here().task
        return task if task is not None and task.construct.is_target else None

    @calls_program
    def carries_out(self, stretch: int, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Call a function that the program has launched on a stream, in its stretch."""
        local = self._local
        outer, local.stretch = local.stretch, stretch
        try:
            return function(*args)
        finally:
            local.stretch = outer

    def recorded(self, event: Any, stream: Any) -> None:
        """Note that the calling code records an event of a device on a stream."""
        with self.lock:
            task = self._running_target()
            if task is not None and task.lane is not None and task.lane.stream is stream:
                self._points[event] = [self._release(self._code())]
            else:
                self._points[event] = [*self._line(stream).last]

    def fired(self, event: Any) -> None:
        """Note that the calling code fires an event of a device by hand."""
        with self.lock:
            self._points[event] = [self._release(self._code())]

    def waits_in_stream(self, stream: Any, event: Any) -> None:
        """Note that the calling code has a stream wait for an event of a device."""
        with self.lock:
            found, task = self._points.get(event), self._running_target()
            if not found:
                return
            if task is not None and task.lane is not None and task.lane.stream is stream:
                self._join(self._code(), found)
            else:
                self._after_line(self._line(stream), *found)

    def joins_event(self, event: Any) -> None:
        """Have the calling code come after an event of a device that has passed."""
        with self.lock:
            self._join(self._code(), self._points.get(event, ()))

    def joins_stream(self, stream: Any) -> None:
        """Have the calling code come after all that the program has put on a stream."""
        with self.lock:
            self._join(self._code(), self._line(stream).last)

    def joins_device(self, device: Any) -> None:
        """Have the calling code come after all that the program has put on the streams of a device."""
        with self.lock:
            code = self._code()
            for stream, line in [*self._lines.items()]:
                if stream.device is device:
                    self._join(code, line.last)
            for line in (code.lines or {}).values():
                self._join(code, line.last)

    def waits_for_task(self, stream: Any, task: Any) -> None:
        """Note that later work on a stream waits for a task."""
        with self.lock:
            self._after_line(self._line(stream), self.course(task))

    # -- blocks of interop ---------------------------------------------------------------------------
    def enters_stream(self, stream: Any, *, is_new: bool) -> None:
        """Have the next task of the calling code follow the work on a stream; a new block has no work there."""
        with self.lock:
            code = self._code()
            if is_new and not (code.lines and stream in code.lines) and stream not in self._queue_streams():
                self._give(code, stream)
            self._local.extra = (*self._line(stream).last,)

    def leaves_stream(self, stream: Any) -> None:
        """Have later work on a stream follow the last task that the calling code has generated."""
        with self.lock:
            created = self._local.created
            if created is not None:
                self._after_line(self._line(stream), created)

    # -- queues --------------------------------------------------------------------------------------
    def _queue(self, queue: Any) -> StreamLine:
        line = self._queues.get(queue)
        if line is None:
            line = self._queues[queue] = StreamLine(repr(queue))
        return line

    def _queue_streams(self) -> list[Any]:
        queues = self._queues
        return [stream for stream, line in self._lines.items() if any(line is other for other in queues.values())]

    def queued(self, queue: Any, task: Any, others: Iterable[Any]) -> None:
        """Note that a task is the next operation of a queue, and follows the last ones of others."""
        with self.lock:
            course, line = self.course(task), self._queue(queue)
            lines = (line, *[self._queue(other) for other in others])
            course.before += [end for each in lines for end in each.last if end is not course]
            line.last = [course]

    def counted(self, queue: Any, task: Any) -> None:
        """Note that a queue is not complete before a task is, which has no place in it."""
        with self.lock:
            self._queue(queue).counted.append(self.course(task))

    def joins_queue(self, queue: Any) -> None:
        """Have the calling code come after a queue that is complete."""
        with self.lock:
            line = self._queue(queue)
            counted, line.counted = line.counted, []
            self._join(self._code(), (*line.last, *counted))

    def exposed(self, queue: Any, stream: Any) -> None:
        """Note that the program has the stream of a queue, or has given it its own."""
        with self.lock:
            line, former = self._queue(queue), self._lines.get(stream)
            if former is not None and former is not line:
                line.last += former.last
            self._lines[stream] = line

    # -- mappings ------------------------------------------------------------------------------------
    def launches(self, task: Any) -> Any:
        """Note that the calling thread launches a device task; return the one before."""
        outer, self._local.launching = self._local.launching, task
        return outer

    def mapped(self, created: Iterable[Any], present: Iterable[Any]) -> None:
        """Note the entries that the launch in progress has made, with their copies, and those that it has found.

        It comes after the constructs that have made them. If the program has generated one later than this, the order
        is not asked for: under another schedule there is no entry yet.
        """
        with self.lock:
            task = self._local.launching
            course = self._code() if task is None else self._begun(self.course(task))
            makers = [made for entry in present if (made := self._entries.get(entry)) is not None]
            found = [made for made in makers if course.finds(self._course_of[made])]
            if found:
                self._join(course, found)
            for entry in created:
                self._entries[entry] = self._release(course)

    # -- critical sections, and computations ---------------------------------------------------------
    def takes(self, lock: Any) -> None:
        """Note that the calling code has taken a lock of the library."""
        with self.lock:
            given = self._locks.get(lock)
            if given is not None:
                self._join(self._code(), (given,))

    def gives(self, lock: Any) -> None:
        """Note that the calling code gives a lock of the library back."""
        with self.lock:
            self._locks[lock] = self._release(self._code())

    def acts_for(self, course: Course) -> Any:
        """Have the calling thread act as a part of other code, until `acts_no_more` with what this returns."""
        with self.lock:
            local, scope = self._local, self._runtime.here()
            outer, local.acting = local.acting, (course, scope.task)
            return outer

    def acts_no_more(self, outer: Any) -> None:
        """Take back an `acts_for`."""
        self._local.acting = outer

    @calls_program
    def calls_back(self, function: Callable[[Any], Any], task: Any) -> None:
        """Call a function that the program wants to be called at the end of a task: it comes after the task."""
        with self.lock:
            course = Course("thread", threading.current_thread().name, None, None, self._next_number())
            course.stretch = self._stretch(course, self._release(self._code()), self._end_of(self.course(task)))
        outer = self.acts_for(course)
        try:
            function(task)
        finally:
            self.acts_no_more(outer)
            del task, outer  # a failure keeps this frame

    def code(self) -> Course:
        """Return the course of the code that runs on the calling thread."""
        with self.lock:
            return self._code()
