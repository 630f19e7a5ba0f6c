"""The sanitizer of one runtime: it takes accesses, copies and mappings, and keeps what is wrong.

Theory of operation
-------------------
`Sanitizer` is a sink of tracked arrays. Three parts judge each access:

* `offload.sanitizer.live` compares it with unordered earlier ones, by address: a race.
* `offload.sanitizer.states` knows which side of a mapping is newer, by host address.
* `offload.sanitizer.findings` collects the occurrences.

Events of one byte must come in an order in which they can have happened. The accesses of bodies come while they run.
Copies, new mappings and the ends of mappings come from the stream that carries them out, since other work on the stream
may access the same bytes before them.

A fault counts only if the program has ordered the write, or the construct, before the read. Otherwise the run might as
well have had them the other way round, and a finding would depend on the schedule. A fault in bytes that any access was
in a race on does not count either.
"""

from __future__ import annotations

from contextlib import contextmanager
from traceback import format_exception
from typing import TYPE_CHECKING, Any, NamedTuple

from offload.interrupts.frames import caller
from offload.sanitizer.authors import Author, Authors, Doing, is_unwrapped_by_library, place_of, program_frame
from offload.sanitizer.depends import Need, need_of
from offload.sanitizer.elements import byte_bounds
from offload.sanitizer.findings import FindingStore, ItemPart, LateTasks, Occurrence, Summary
from offload.sanitizer.freed import FreedMemory
from offload.sanitizer.last_uses import last_use, place_after
from offload.sanitizer.live import LiveAccesses
from offload.sanitizer.mappings import DoneAt, MadeBy, Mapped, Mappings
from offload.sanitizer.memory import arrays_over, runs_of_array
from offload.sanitizer.names import FrameNames, part_of, plain_name, variable_at
from offload.sanitizer.remedies import remedy_for_fault, remedy_for_leak, remedy_for_race
from offload.sanitizer.states import Fault, FindingRule, Spans, States, runs_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType

    import numpy as np

    from offload.sanitizer.authors import Place
    from offload.sanitizer.courses import Calls, Course
    from offload.sanitizer.findings import Finding, Side
    from offload.sanitizer.live import Conflict
    from offload.sanitizer.mappings import ListItem
    from offload.sanitizer.orders import Orders
    from offload.sanitizer.states import Run, Runs

_MOST_UNSEEN = 50
"""Places that the report lists as not seen."""

_MOST_WAITS = 100
"""The accesses at a line for which it is worked out whether a wait there would end."""

_NO_THREADING = "locks, events and queues of threading, which may order the host tasks in these races"


class Sanitizer:
    """The sanitizer of one runtime.

    Parameters
    ----------
    orders : Orders
        The order that the program asks for.
    scope : callable
        Returns the scope of the calling thread for the runtime, or None on a thread that the runtime does not know.
    """

    def __init__(self, orders: Orders, scope: Any) -> None:
        self.orders = orders
        self.authors = Authors()
        self.accesses = 0
        self.failure: Exception | None = None
        # Where code reads or writes without a wait for what another line does: its stretches there, and the tasks.
        self._unwaited: dict[tuple[Side, Side | None], set[tuple[int, Course]]] = {}
        self._scope = scope
        self._lock = orders.lock  # one for both: each asks the other
        self._live = LiveAccesses(orders.order, compares=orders.compares)
        # A construct's copies to its new storage are compared with updates: a map that finds the storage follows them.
        self._beginnings, self._updates = (LiveAccesses(orders.order, compares=orders.compares) for _ in range(2))
        # The writes of devices, by the host memory that corresponds: they race with no access of the host, but one that
        # reads there is stale.
        self._newer = LiveAccesses(orders.order)
        self._newer_sides: dict[tuple[Author, MadeBy, bool], NewerOnDevice] = {}
        self._states = States()
        self._store = FindingStore()
        self._freed = FreedMemory()
        self._raced: Spans[bool] = Spans()
        self._raced_copies: set[frozenset[Course]] = set()
        self._names = FrameNames()
        self._not_seen: dict[str, None] = {}
        self._mappings = Mappings()

    @contextmanager
    def judging(self) -> Iterator[None]:
        """Let one thread in; keep a mistake of ours from the program."""
        with self._lock:
            try:
                for lo, hi in self._freed.take():
                    for run in ((lo, hi), *self._mappings.freed(lo, hi)):
                        for live in (self._live, self._beginnings, self._updates):
                            live.freed(*run)
                    self._newer.freed(lo, hi)
                    self._states.freed(lo, hi)
                    self._names.forget((lo, hi))
                yield
            except Exception as error:  # noqa: BLE001  # the program goes on
                if self.failure is None:
                    self.failure = error
                    self._leave_out(f"accesses that the sanitizer has failed to judge: {error!r:.200}")

    # -- the sink ------------------------------------------------------------------------------------
    def note(self, reads: Sequence[np.ndarray[Any, Any]], writes: Sequence[np.ndarray[Any, Any]], device: Any) -> None:
        """Note one operation of the program, on the thread that carries it out (`offload.sanitizer.tracked.Sink`)."""
        with self.judging():
            stretch = self.orders.here()
            self.accesses += 1
            is_alone = device is None and self.orders.is_alone(stretch)
            if is_alone and all(self._states.is_quiet(*byte_bounds(array)) for array in (*reads, *writes)):
                return
            frame, scope = program_frame(), self._scope()
            course = self.orders.course_of(stretch)
            stream = course.name if course.kind == "stream" else ""
            number, of_frame = None if device is None else device.number, self.authors.of_frame
            for is_write, arrays in ((False, reads), (True, writes)):
                if arrays:
                    done = DoneAt(of_frame(frame, scope, writes=is_write, stream=stream, device=number), stretch)
                    for array in arrays:
                        self._access(array, done, frame, on_device=device is not None, is_alone=is_alone)

    def ignores(self, array: np.ndarray[Any, Any]) -> bool:
        """Count an access to some elements of a host array, if it can be in no finding (`Sink`)."""
        with self._lock:
            if not (self.orders.is_alone(self.orders.here()) and self._states.is_quiet(*byte_bounds(array))):
                return False
            self.accesses += 1
            return True

    def given_away(self, storage: np.ndarray[Any, Any], device: Any) -> None:
        """Note that the program has received memory whose accesses cannot be seen from now on."""
        if is_unwrapped_by_library():
            return
        frame = program_frame() or caller()
        with self.judging():
            run = byte_bounds(storage)
            mapped = self.mapping_at(run[0])
            if mapped is not None:
                mapped.is_seen = False
            found = variable_at(frame, run)
            name = found.name if found is not None else mapped.label if mapped is not None else "an array"
            self._leave_out(f"{name} was given away at {frame.f_code.co_filename}:{frame.f_lineno}")

    def lent(self, storage: np.ndarray[Any, Any]) -> Callable[[], None]:
        """Note that compiled code has received the buffer of a host array; see `offload.sanitizer.tracked.Sink`."""
        frame = program_frame() or caller()
        with self.judging():
            found = variable_at(frame, byte_bounds(storage))
            name = found.name if found is not None else "an array"
            text = f"the buffer of {name} was given away at {frame.f_code.co_filename}:{frame.f_lineno}"
            if text in self._not_seen:
                return lambda: None
            self._leave_out(text)

        def take_back() -> None:
            self._not_seen.pop(text, None)

        return take_back

    def _leave_out(self, text: str) -> None:
        """Note something that cannot be seen, for the report."""
        if len(self._not_seen) < _MOST_UNSEEN:
            self._not_seen[text] = None

    # -- mappings, on the thread of the stream that carries them out -----------------------------------
    def watch_memory(self, array: np.ndarray[Any, Any]) -> None:
        """Note when memory of the host is freed."""
        with self._lock:
            self._freed.watch(array)

    def begin_mapping(self, mapped: Mapped) -> None:
        """Note that new storage for host memory is there."""
        with self.judging():
            for old in self._mappings.add(mapped):
                if old.is_present:
                    self._end(old, old.made, discards=True)
            self._live.freed(mapped.start, mapped.end)
            mapped.bytes = self._states.mapped(runs_of(mapped.section), mapped.made)
            mapped.bytes.owner = mapped
            if not mapped.is_tracked:
                side = mapped.made.author.side
                self._leave_out(f"the host array {mapped.label}, mapped at {side.file}:{side.line}, is not tracked")

    def initialise(self, mapped: Mapped) -> None:
        """Note that new storage begins with zeros, or with the host's values."""
        with self.judging():
            self._states.zeroed(mapped.bytes)

    def end_mapping(self, mapped: Mapped, done: DoneAt, *, discards: bool = False) -> None:
        """Note that a mapping has ended; if it ``discards``, its construct has failed."""
        with self.judging():
            if mapped.is_present:
                self._end(mapped, done, discards=discards)

    def find(self, mapped: Mapped, done: DoneAt, item: ListItem) -> None:
        """Note that a region has found storage; under another schedule it may have to make some."""
        with self._lock:
            course = self.orders.course_of(done.stretch)
            if course.finds(self.orders.course_of(mapped.made.stretch)):
                mapped.note_user(course, done, item)
            else:
                mapped.finders[course] = done, item

    def keep(self, mapped: Mapped, host: np.ndarray[Any, Any], done: DoneAt) -> None:
        """Note that a construct would end a mapping, perhaps with a copy, if no region in flight kept the storage."""
        with self.judging():
            self._compare(mapped.device_layout(host), self._updating(done), None, mapped)
            self._note_end(mapped, done)

    def miss(self, mapped: Mapped, host: np.ndarray[Any, Any], done: DoneAt) -> None:
        """Note a copy that an update would make under another schedule, with storage that is not there now."""
        with self.judging():
            self._mappings.place(mapped)
            self._compare(
                mapped.device_layout(host), done if done.author.writes else self._updating(done), None, mapped
            )

    def _end(self, mapped: Mapped, done: DoneAt, *, discards: bool) -> None:
        mapped.ended, mapped.is_present = done, False
        if mapped.is_seen and not discards:
            self._note_end(mapped, done)
        self._states.unmapped(mapped.bytes, done, discards=discards or not mapped.is_seen)
        if not mapped.is_tracked:
            self._forget_host(mapped)

    def _forget_host(self, mapped: Mapped) -> None:
        """Forget the state of host memory whose accesses cannot be seen."""
        for lo, hi in runs_of(mapped.section):
            self._states.freed(lo, hi)

    def mapping_at(self, address: int) -> Mapped | None:
        """Return the present mapping whose storage an address of a device is in."""
        mapped = self._mappings.find(address)
        return mapped if mapped is not None and mapped.is_present else None

    # -- copies, likewise ----------------------------------------------------------------------------
    def copy(self, dst: CopiedArray, src: CopiedArray, reads: DoneAt, writes: DoneAt) -> None:
        """Note that the library copies from one array to another one.

        Parameters
        ----------
        dst, src : CopiedArray
            The arrays.
        reads, writes : DoneAt
            The construct, as it reads and as it writes.
        """
        if not dst.array.size:
            return  # a box of no elements
        with self.judging():
            to, at = dst.mapped(self), src.mapped(self)
            runs_to, runs_at = runs_of_array(dst.array), runs_of_array(src.array)
            host_to = to.host_runs(runs_to) if to is not None else runs_to
            host_at = at.host_runs(runs_at) if at is not None else runs_at
            corresponds = [*host_to] == [*host_at]
            if corresponds and to is None and at is not None:
                if at.is_seen:
                    self._compare(src.array, self._updating(reads), None, at)
                self._copy_back(at, dst.array, host_at, writes)
                return
            # Storage of a mapping that has ended meanwhile stands for the same host memory.
            known = src.found(self)
            if known is None or known.is_seen:
                self._compare(src.array, reads, None, known)
            known = dst.found(self)
            if known is None or known.is_seen:
                self._compare(dst.array, writes, None, known, is_own=to is not None and self._is_own(to, writes))
            if to is None:
                if not dst.on_device:
                    self._states.written_host(runs_to, writes)
            elif not corresponds:
                self._states.written_device(to.bytes, host_to, writes)
            elif at is None:
                self._states.copied_in(to.bytes, host_to, writes)
            else:
                self._states.copied_across(at.bytes, to.bytes, host_to)

    def _updating(self, reads: DoneAt) -> DoneAt:
        return DoneAt(self.authors.updating(reads.author), reads.stretch)

    def _copy_back(self, mapped: Mapped, host: np.ndarray[Any, Any], runs: Runs, done: DoneAt) -> None:
        """Note a copy to the host memory that a mapping is of; it writes only what the device has changed."""
        if mapped.is_seen:
            # A write that nothing orders with the copy comes later under another schedule, and is in a race with it.
            changed = self._states.changed(mapped.bytes, runs, lambda by: self._is_earlier(by, done))
            for array in [host] if [*changed] == [*runs] else arrays_over(changed):
                self._compare(array, done, None, None)
            self._states.copied_out(mapped.bytes, runs, done)
            if not mapped.is_tracked:
                self._forget_host(mapped)
        if mapped.copies_left:
            mapped.copies_left -= 1
            if not mapped.copies_left and mapped.is_present:
                assert mapped.ended is not None
                self._end(mapped, mapped.ended, discards=False)

    def access(self, array: np.ndarray[Any, Any], done: DoneAt, *, on_device: bool) -> None:
        """Judge an access that a call of the library has for the program; in `judging`."""
        self._access(array, done, None, on_device=on_device)

    def free(self, storage: np.ndarray[Any, Any], frame: FrameType, shown: str) -> None:
        """Note that a call at a frame frees storage of a device: that conflicts with every access."""
        with self.judging():
            scope, file, line = self._scope(), frame.f_code.co_filename, frame.f_lineno
            task = None if scope is None else scope.task
            author = self.authors.of_line(task, file, line, writes=True, what="map", shown=shown)
            self._access(storage, DoneAt(author, self.orders.here()), frame, on_device=True)

    def copied(self, array: np.ndarray[Any, Any], done: DoneAt, *, on_device: bool) -> None:
        """Note one side of a copy by the library whose other side is other memory; in `judging`.

        A copy reads old data as it is: only its races count.
        """
        if done.author.writes:
            self._access(array, done, None, on_device=on_device)
        elif array.size:
            self._compare(array, done, None, self._mappings.find(byte_bounds(array)[0]) if on_device else None)

    def fill(self, array: CopiedArray, done: DoneAt) -> None:
        """Note that the library sets all elements of a device's array."""
        with self.judging():
            self._access(array.array, done, None, on_device=True)

    def _is_earlier(self, one: DoneAt, other: DoneAt) -> bool:
        """Tell whether the program orders one access before the other."""
        return one.stretch == other.stretch or self.orders.order.is_before(one.stretch, other.stretch)

    def _is_own(self, mapped: Mapped, done: DoneAt) -> bool:
        """Tell whether a construct has made the mapping itself."""
        return self.orders.course_of(mapped.made.stretch) is self.orders.course_of(done.stretch)

    # -- judging -------------------------------------------------------------------------------------
    def _access(
        self,
        array: np.ndarray[Any, Any],
        done: DoneAt,
        frame: FrameType | None,
        *,
        on_device: bool,
        is_alone: bool = False,
    ) -> None:
        """Judge an access by the program; one that ``is_alone`` is ordered with all others (`Orders.is_alone`)."""
        if not array.size:
            return
        mapped = self._mappings.find(byte_bounds(array)[0]) if on_device else None
        if mapped is not None and not mapped.is_seen:
            return
        self._freed.watch(array)
        if not is_alone:
            self._compare(array, done, frame, mapped)
        if on_device and (mapped is None or not mapped.is_present):
            return
        runs = runs_of_array(array)
        if not runs:
            return
        faults: list[Fault] = []
        if mapped is None:
            if done.author.writes:
                self._states.written_host(runs, done)
            else:
                faults = self._states.read_host(runs)
                if not is_alone:
                    self._look_for_newer(array, done, frame)
        else:
            runs = mapped.host_runs(runs)
            if done.author.writes:
                self._states.written_device(mapped.bytes, runs, done)
                self._note_newer(mapped, runs, done)
            else:
                faults = self._states.read_device(mapped.bytes, runs)
        for fault in faults:
            self._note_fault(fault, done, frame, runs, is_on_device=on_device)

    def _note_fault(
        self,
        fault: Fault,
        done: DoneAt,
        frame: FrameType | None,
        accessed: Runs,
        *,
        is_on_device: bool,
    ) -> None:
        first: DoneAt = fault.first
        if not self._is_earlier(first, done):
            return  # the run might have had them the other way round
        mapped: Mapped = fault.mapping.owner
        ended: DoneAt | None = fault.ended
        part = self._part(fault.runs, frame, mapped if is_on_device else None, names_reader=True)
        by = None if ended is None else ended.author
        place = MadeBy(mapped.made.author, mapped.item, mapped.on)
        remedy = remedy_for_fault(fault, done.author, place, by, part.name)
        self._store.add(Occurrence(fault.rule, part, first.author.side, done.author.side, remedy, tuple(accessed)))

    def _note_newer(self, mapped: Mapped, runs: Runs, done: DoneAt) -> None:
        """Note a write on a device for host memory that nothing orders with it; report reads that come later."""
        course = self.orders.course_of(done.stretch)
        made, item = mapped.finders.get(course, (mapped.made, mapped.item))
        is_own = self._is_own(mapped, done) or course in mapped.finders
        side = self._newer_side(done.author, MadeBy(made.author, item, mapped.on), is_own=is_own)
        write = done.stretch, side, tuple(runs)
        if write == mapped.latest:  # reads of the host since then have met it
            return
        mapped.latest = write
        self._note_newer_at(side, runs, done)
        if course in mapped.users:
            mapped.users[course][2][done, tuple(runs)] = None
            for end in mapped.ends:
                self._note_end_for(course, mapped, end)

    def _note_end(self, mapped: Mapped, end: DoneAt) -> None:
        """Note that a construct ends a mapping. Regions that it does not follow copy back themselves if it is first."""
        mapped.ends.append(end)
        for course in mapped.users:
            self._note_end_for(course, mapped, end)

    def _note_end_for(self, course: Course, mapped: Mapped, end: DoneAt) -> None:
        found, item, writes = mapped.users[course]
        for write, runs in writes:
            if not self._is_earlier(write, end) and self.orders.compares(write.stretch, end.stretch):
                side = self._newer_side(write.author, MadeBy(found.author, item, mapped.on), is_own=True)
                self._note_newer_at(side, runs, write)

    def _newer_side(self, author: Author, by: MadeBy, *, is_own: bool) -> NewerOnDevice:
        key = author, by, is_own
        side = self._newer_sides.get(key)
        if side is None:
            side = self._newer_sides[key] = NewerOnDevice(author, by, is_own=is_own)
        return side

    def _note_newer_at(self, side: NewerOnDevice, runs: Runs, done: DoneAt) -> None:
        """Compare a write on a device with the reads of host memory, those so far and later ones."""
        for array in arrays_over(runs):
            for other, _, stretch, shared in self._live.unordered(done.stretch, array, writes=True):
                if not other.writes and other.doing is not Doing.COPY:
                    self._note_unordered(side, done.stretch, DoneAt(other, stretch), shared, None)
            self._newer.conflicts(done.stretch, array, True, side)

    def _look_for_newer(self, array: np.ndarray[Any, Any], done: DoneAt, frame: FrameType | None) -> None:
        """Report a read of the host that nothing orders with an earlier write on a device."""
        for side, _, stretch, runs in self._newer.unordered(done.stretch, array, writes=False):
            self._note_unordered(side, stretch, done, runs, frame)

    def _note_unordered(
        self, side: NewerOnDevice, stretch: int, read: DoneAt, runs: Runs, frame: FrameType | None
    ) -> None:
        """Report a read of the host, if the program has generated it after the write on a device."""
        if not self.orders.compares(stretch, read.stretch):
            return
        first, second, waits = self._in_order(DoneAt(side.author, stretch), read)
        if second is not read:
            return
        part = self._part(runs, frame, None)
        if side.copies_back:  # this run has not come to the copy, or another mapping has kept the storage
            copy = DoneAt(self.authors.copy_of(side.by.author), stretch)
            self._raced.set(runs, value=True)
            # The copy itself counts, if it comes.
            self._note_race(copy, read, part, runs, waits=waits, count=0)
            return
        fault = Fault(FindingRule.STALE_HOST, runs, first, None, None)
        ended = side.by.author if side.is_own else None
        remedy = remedy_for_fault(fault, read.author, side.by, ended, part.name)
        self._store.add(
            Occurrence(FindingRule.STALE_HOST, part, first.author.side, read.author.side, remedy, tuple(runs))
        )

    def _compare(
        self,
        array: np.ndarray[Any, Any],
        done: DoneAt,
        frame: FrameType | None,
        mapped: Mapped | None,
        *,
        is_own: bool = False,
    ) -> None:
        """Compare an access with unordered earlier ones; ``is_own`` of a construct's copy to its own new storage."""
        for other, count, stretch, shared in self._conflicts(array, done, mapped, is_own=is_own):
            shift = mapped.shift if mapped is not None else 0
            runs: Runs = [(lo - shift, hi - shift) for lo, hi in shared]
            if mapped is not None:
                runs = mapped.host_runs(runs)
            if not self._matters(DoneAt(other, stretch), done, runs):
                continue
            self._raced.set(runs, value=True)
            first, second, waits = self._in_order(DoneAt(other, stretch), done)
            if first.author.doing is second.author.doing is Doing.COPY:
                count = self._count_of_copies(stretch, done.stretch)  # noqa: PLW2901
            self._note_race(first, second, self._part(runs, frame, mapped), runs, waits=waits, count=count)

    def _matters(self, one: DoneAt, other: DoneAt, runs: Runs) -> bool:
        """Tell whether a conflict changes anything.

        The end of a mapping without a copy only matters to a region that copies back what it has written: whether it
        does so depends on which of the two comes last.
        """
        for end, access in ((one, other), (other, one)):
            if end.author.side.what == "map" and not end.author.writes:
                copied = self.orders.course_of(access.stretch).copied_back
                return any(lo < end_ and start < hi for lo, hi in copied for start, end_ in runs)
        return True

    def _note_race(
        self, first: DoneAt, second: DoneAt, part: ItemPart, runs: Runs, *, waits: bool, count: int = 1
    ) -> None:
        """Note a race; ``waits`` says whether the second can wait for the first."""
        courses = [self.orders.course_of(each.stretch) for each in (first, second)]
        lines = [course.lineage() for course in courses]
        depth = sum(1 for a, b in zip(*lines, strict=False) if a is b)
        is_child = len(lines[0]) > depth + 1
        left = self._leaver(first.stretch, second.stretch)
        remedy = remedy_for_race(first.author, second.author, left=left, waits=waits, is_child=is_child)
        sides = first.author.side, second.author.side
        needs: list[Need] = []
        if remedy.kind == "depend" or (remedy.text == "taskwait()" and not is_child):
            for side, (done, line) in enumerate(zip((first, second), lines, strict=True)):
                writes = done.author.changes
                if len(line) > depth:
                    task = line[depth]
                    if task.construct is None:
                        continue
                    is_inner = len(line) > depth + 1
                    place = place_of(task.construct.location) if is_inner else done.author.clauses
                    needs.append(need_of(task, place, runs, side=side, writes=writes, is_child=is_inner))
                else:
                    needs.append(Need(side, sides[side].file, sides[side].line, "", "", False, writes))
                    self._unwaited.setdefault(sides, set()).add((done.stretch, lines[0][depth]))
        self._store.add(Occurrence(FindingRule.RACE, part, *sides, remedy, (), tuple(needs)), count)

    def _count_of_copies(self, *stretches: int) -> int:
        """Return 1 at the first race between the copies of two constructs, else 0.

        The schedule says in which memories they meet: on the device, on the host, or both.
        """
        pair = frozenset(map(self.orders.course_of, stretches))
        is_new = pair not in self._raced_copies
        self._raced_copies.add(pair)
        return int(is_new)

    def _conflicts(
        self, array: np.ndarray[Any, Any], done: DoneAt, mapped: Mapped | None, *, is_own: bool
    ) -> list[Conflict]:
        """Note an access, and return the earlier ones that it conflicts with."""
        author, shift = done.author, mapped.shift if mapped is not None else 0
        access = done.stretch, array, author.writes
        if is_own:
            self._beginnings.conflicts(*access, author, shift)
            return self._updates.unordered(*access, shift)
        found = self._live.conflicts(*access, author, shift)
        if mapped is not None and author.is_update:
            self._updates.conflicts(*access, author, shift)
            found += self._beginnings.unordered(*access, shift)
        return found

    def _leaver(self, *stretches: int) -> Place | None:
        """Return the clauses of the task that has left work on a stream, if one of the stretches is such work."""
        for stretch in stretches:
            task = self.orders.course_of(stretch).leaver
            if task is not None:
                return place_of(task.construct.location)
        return None

    def _in_order(self, one: DoneAt, other: DoneAt) -> tuple[DoneAt, DoneAt, bool]:
        """Return two accesses as the program has generated their work, and whether the second can wait for the first.

        Code that has generated a task accesses something after that, or it would be ordered with the task.
        """
        mine, others = self.orders.course_of(one.stretch), self.orders.course_of(other.stretch)
        first, second = (one, other) if mine.precedes(others) else (other, one)
        return first, second, mine.descends(others) or others.descends(mine)

    def _part(
        self, runs: Runs, frame: FrameType | None, mapped: Mapped | None, *, names_reader: bool = False
    ) -> ItemPart:
        """Return the name and the box of memory, by the variable that holds it, or by its list item.

        ``frame`` is at the access that comes later in this run. Only if that is always the read, its names are the
        first choice.
        """
        whole = runs[0][0], runs[-1][1]
        found = None if names_reader else self._names.variable_at(whole, None)
        if found is None:
            found = self._names.variable_at(whole, frame)
        if found is not None:
            return part_of(found.name, found.array, runs)
        if mapped is None:
            mapped = next((one for one in self._mappings if one.holds(whole)), None)
        if mapped is not None:
            return part_of(plain_name(mapped.label), mapped.host, runs)
        return ItemPart("an array", ((0, whole[1] - whole[0]),), whole[0])

    # -- the end -------------------------------------------------------------------------------------
    def leak_of(self, mapped: Mapped, part: ItemPart) -> None:
        """Note a mapping that is left when the runtime ends."""
        made = mapped.made.author
        calls = self.orders.course_of(mapped.made.stretch).calls
        run = mapped.start + mapped.shift, mapped.end + mapped.shift
        self._leak(made.side, calls, run, part, mapped.on, is_mapped=True, is_acc=made.is_acc)

    def leak(self, made: Side, calls: Calls, storage: np.ndarray[Any, Any], part: ItemPart) -> None:
        """Note allocated storage of a device that is left when the runtime ends."""
        self._leak(made, calls, byte_bounds(storage), part, None, is_mapped=False, is_acc=False)

    def _leak(
        self, made: Side, calls: Calls, run: Run, part: ItemPart, on: int | None, *, is_mapped: bool, is_acc: bool
    ) -> None:
        with self._lock:
            courses = map(self.orders.course_of, self._live.stretches(*run))
            use = last_use(courses, self.orders.order.is_before)
            place = (made.file, made.line) if use is None else place_after(calls, use.calls)
            waits = use is not None and not use.is_waited_for
            remedy = remedy_for_leak(place, on, is_mapped=is_mapped, is_acc=is_acc, waits=waits)
            self._store.add(Occurrence(FindingRule.LEAK, part, made, None, remedy, ()))

    def summary(self) -> Summary:
        """Return the findings so far."""
        with self._lock:
            findings, more, silenced = self._store.settled(self._counts, self._late)
            not_seen = [*self._not_seen]
            if any(_is_of_host(finding) for finding in findings):
                not_seen.append(_NO_THREADING)
            error = self.failure
            failure = "" if error is None else "".join(format_exception(error)).rstrip()
            return Summary(findings, more, silenced, self.accesses, tuple(not_seen), failure)

    def _late(self, occurrence: Occurrence) -> LateTasks:
        """Return the tasks that a wait before the second side of a race would wait for in vain."""
        found = LateTasks.NONE
        waits = sorted(self._unwaited.get((occurrence.first, occurrence.second), ()), key=lambda one: one[0])
        for stretch, task in waits[:_MOST_WAITS]:
            late = self.orders.late_children(stretch)
            if late:
                found = max(found, LateTasks.FIRST if task in late else LateTasks.OTHERS)
        return found

    def _counts(self, occurrence: Occurrence) -> bool:
        """Tell whether an occurrence is a finding: no other rule reports bytes that are in a race."""
        return next(self._raced.pieces(occurrence.runs), None) is None


def _is_of_host(finding: Finding) -> bool:
    """Tell whether a finding is a race between the code of host tasks, or of one and the code around it."""
    sides = (finding.first, finding.second)
    return finding.rule == "race" and all(
        side is not None and side.what in ("read", "write") and not side.shown for side in sides
    )


class NewerOnDevice:
    """The side of a write on a device, for the host memory that corresponds. Equal ones are the same object.

    Attributes
    ----------
    author : Author
        The write.
    by : MadeBy
        The construct that has made the mapping.
    is_own : bool
        Whether that is the construct whose body writes.
    """

    __slots__ = ("author", "by", "is_own")

    def __init__(self, author: Author, by: MadeBy, *, is_own: bool) -> None:
        self.author = author
        self.by = by
        self.is_own = is_own

    @property
    def copies_back(self) -> bool:
        """Whether the construct whose body writes copies back itself."""
        return self.is_own and self.by.item.map_type in ("from", "tofrom")


class CopiedArray(NamedTuple):
    """An array of a copy, and whether it is hidden storage of a device."""

    array: np.ndarray[Any, Any]
    on_device: bool

    def found(self, sanitizer: Sanitizer) -> Mapped | None:
        """Return the mapping whose storage it lies in, also one that has ended."""
        return sanitizer._mappings.find(byte_bounds(self.array)[0]) if self.on_device else None  # noqa: SLF001  # of this file

    def mapped(self, sanitizer: Sanitizer) -> Mapped | None:
        """Return the mapping that it lies in."""
        return sanitizer.mapping_at(byte_bounds(self.array)[0]) if self.on_device else None
