"""The recorder: turns the calls of a program that runs on the stand-in into the operations of a log.

It knows the storage of each array, the program's line, and the names of arrays and streams. It is also the sink of the
tracked host arrays (`offload.sanitizer.tracked`). All host threads of the program count as one, in the order in which
their calls came, because a lock or a queue between them cannot be seen.
"""

from __future__ import annotations

import hashlib
import sys
import threading
import weakref
from array import array
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from offload.interrupts.frames import caller
from offload.port.extents import AccessPart, part_of, space_of
from offload.port.log import HOST, PortLog, ProgramPlace, StorageRecord, StreamOperation, StreamRecord
from offload.sanitizer.buffers import ARE_SEEN, exporter
from offload.sanitizer.elements import byte_bounds
from offload.sanitizer.imports import is_under

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
    from types import CodeType, FrameType

    from offload.port.log import OperationKind, StorageKind

_MOST_MEMBERS: Final = 64
"""Members of a list or dictionary that are looked at for the name of an array."""

_ATTEMPTS: Final = 3
"""Accesses at which the name of an array is looked for."""


class _HostStorage:
    """The storage of a live host array: the array that owns the memory, and its first address."""

    __slots__ = ("number", "origin", "owner")

    def __init__(self, number: int, origin: int, owner: weakref.ref[Any]) -> None:
        self.number = number
        self.origin = origin
        self.owner = owner


class ProgramRecorder:
    """Records a run.

    Parameters
    ----------
    program : str
        The program's file; a place is the innermost line in its folder, if there is one.
    wants_digests : bool
        Whether to keep a digest of the bytes that each copy brings to the host.
    """

    def __init__(self, program: str, *, wants_digests: bool = False) -> None:
        self.log = PortLog(sees_buffers=ARE_SEEN)
        self.lock = threading.RLock()
        self._folder = Path(program).resolve().parent
        self.wants_digests = wants_digests
        # By the identity of a code object, whose hash takes long: the object, its table of positions, and its places.
        self._codes: dict[int, tuple[CodeType, array[int], dict[int, ProgramPlace]]] = {}
        self._files: dict[str, bool] = {}
        self._hosts: dict[int, _HostStorage] = {}
        self._unnamed: dict[int, int] = {}  # storages without a name, and how often one has been looked for
        self._in_callback = threading.local()
        self._in_block = threading.local()
        self._threads: dict[int, str] = {}
        self._shared_names: set[str] = set()  # variables that have held several streams

    # -- places and names ----------------------------------------------------------------------------
    def frame(self) -> FrameType:
        """Return the frame of the program that has called the stand-in."""
        innermost: FrameType = caller(2)
        frame: FrameType | None = innermost
        while frame is not None:
            if self._is_program(frame):
                return frame
            frame = frame.f_back
        return innermost

    def _is_program(self, frame: FrameType) -> bool:
        code = frame.f_code
        found = self._files.get(code.co_filename)
        if found is None:
            found = self._files[code.co_filename] = self._is_program_file(code.co_filename, frame.f_globals)
        return found

    def _is_program_file(self, file: str, names: Mapping[str, Any]) -> bool:
        is_library = str(names.get("__name__")).partition(".")[0] == "offload"
        return is_under(self._folder, file) and not is_library

    def is_program_module(self, names: Mapping[str, Any]) -> bool:
        """Tell whether a module, of which these are the globals, is one of the program's."""
        file = names.get("__file__")
        return names.get("__name__") == "__main__" if file is None else self._is_program_file(str(file), names)

    def place(self, frame: FrameType | None = None) -> ProgramPlace:
        """Return the call that the program is carrying out."""
        frame = frame or self.frame()
        code = frame.f_code
        known = self._codes.get(id(code))
        if known is None:
            table = array("i", [-1 if part is None else part for where in code.co_positions() for part in where])
            known = self._codes[id(code)] = (code, table, {})
        found = known[2].get(frame.f_lasti)
        if found is None:
            found = known[2][frame.f_lasti] = _place_of(frame, known[1])
        return found

    def name_storages(self, parts: Iterable[AccessPart], frame: FrameType) -> None:
        """Look for variables of the program that hold the storages of an access."""
        for part in parts:
            number: Any = part.space
            attempts = self._unnamed.get(number)
            if attempts is None or self.log.storages[number].place == self.place(frame):
                continue

            def is_it(value: Any, number: int = number) -> bool:
                return self._number_of(value) == number

            name = _name_in(frame, is_it)
            if name:
                self.log.storages[number].name = name
            if name or attempts + 1 == _ATTEMPTS:
                del self._unnamed[number]
            else:
                self._unnamed[number] = attempts + 1

    def _number_of(self, value: Any) -> int | None:
        number = getattr(type(value), "storage_number", None)
        if number is not None:
            return value.storage_number  # type: ignore[no-any-return]  # a device array of the stand-in
        if not isinstance(value, np.ndarray):
            return None
        found = self._hosts.get(id(_memory_of(value)[1]))
        return None if found is None else found.number

    # -- storages ------------------------------------------------------------------------------------
    def add_storage(self, kind: StorageKind, array: np.ndarray[Any, Any], call: str, nbytes: int) -> StorageRecord:
        """Add an allocation that ``array`` lies in; an empty ``call`` is memory that the stand-in has not made."""
        storages = self.log.storages
        place = self.place() if call else None
        shape = tuple(array.shape)
        record = StorageRecord(
            len(storages), kind, nbytes, array.itemsize, place, call, shape=shape, dtype=str(array.dtype)
        )
        storages.append(record)
        self._unnamed[record.number] = 0
        return record

    def add_pinned(self, array: np.ndarray[Any, Any], call: str) -> None:
        """Add pinned host memory that the program has allocated through the stand-in."""
        with self.lock:
            self._add_host(*_memory_of(array), "pinned", call)

    def _add_host(self, owner: np.ndarray[Any, Any], memory: Any, kind: StorageKind, call: str) -> _HostStorage:
        low, high = byte_bounds(owner)
        record = self.add_storage(kind, owner, call, high - low)
        key, hosts = id(memory), self._hosts

        def forget(reference: object) -> None:
            if key in hosts and hosts[key].owner is reference:
                del hosts[key]

        found = hosts[key] = _HostStorage(record.number, low, weakref.ref(owner, forget))
        return found

    def host_storage(self, array: np.ndarray[Any, Any]) -> _HostStorage:
        """Return the storage of a host array."""
        owner, memory = _memory_of(array)
        found = self._hosts.get(id(memory))
        if found is None or (known := found.owner()) is None or _memory_of(known)[1] is not memory:
            found = self._add_host(owner, memory, "host", "")
        return found

    def host_part(self, array: np.ndarray[Any, Any]) -> AccessPart:
        """Return the bytes of a host array."""
        storage = self.host_storage(array)
        return part_of(array, storage.number, storage.origin)

    def is_pinned(self, array: np.ndarray[Any, Any]) -> bool:
        """Tell whether a host array lies in pinned memory."""
        return self.log.storages[self.host_storage(array).number].kind == "pinned"

    # -- streams -------------------------------------------------------------------------------------
    def add_stream(self, *, non_blocking: bool) -> StreamRecord:
        """Add a stream that the program opens."""
        with self.lock:
            number = len(self.log.streams)
            record = StreamRecord(number, non_blocking, self.place(), f"stream {number}")
            self.log.streams.append(record)
            return record

    def name_stream(self, stream: StreamRecord, frame: FrameType, number_of: Callable[[Any], int | None]) -> None:
        """Look for a variable of the program that holds a stream.

        A variable that holds several streams in turn names none of them; an element of a list may.
        """
        if stream.variable or stream.place is None:
            return
        with self.lock:
            name = _name_in(frame, lambda value: number_of(value) == stream.number, self._shared_names)
            others = [one for one in self.log.streams if name and one.variable == name]
            if others:
                self._shared_names.add(name)
            for one in (*others, stream):
                if others:
                    name = _name_in(frame, lambda value, one=one: number_of(value) == one.number, self._shared_names)  # type: ignore[misc]
                one.variable, one.name = name, name or f"stream {one.number}"

    # -- operations ----------------------------------------------------------------------------------
    def add(
        self,
        kind: OperationKind,
        call: str,
        stream: int,
        reads: Sequence[AccessPart] = (),
        writes: Sequence[AccessPart] = (),
        **fields: Any,
    ) -> StreamOperation:
        """Append an operation, at the program's line; ``fields`` are those of `StreamOperation`."""
        with self.lock:
            frame = self.frame()
            operation = StreamOperation(
                len(self.log.operations),
                kind,
                call,
                self.place(frame),
                stream,
                _distinct(reads),
                _distinct(writes),
                thread=self._thread(),
                **fields,
            )
            self.log.operations.append(operation)
            operation.block = self._block_of(operation)
            if self.log.unchecked:
                self._pass_on_doubt(operation)
            if self._unnamed:
                self.name_storages((*operation.reads, *operation.writes, *operation.host_reads), frame)
            return operation

    @property
    def blocks(self) -> list[tuple[int, ProgramPlace]]:
        """The streams that this thread has made current by ``with``, and where, innermost last."""
        try:
            return self._in_block.stack  # type: ignore[no-any-return]
        except AttributeError:
            self._in_block.stack = []
            return self._in_block.stack  # type: ignore[no-any-return]

    def _block_of(self, operation: StreamOperation) -> ProgramPlace | None:
        """Return where another function has made the operation's stream current."""
        if operation.stream == HOST or not self.blocks:
            return None
        stream, place = self.blocks[-1]
        is_same = (place.file, place.function) == (operation.place.file, operation.place.function)
        return None if is_same or stream != operation.stream else place

    def _pass_on_doubt(self, operation: StreamOperation) -> None:
        """Mark the data that an operation computes from unchecked data; its writes may also replace such data."""
        unchecked = self.log.unchecked
        sources = [part for part in (*operation.reads, *operation.host_reads) if space_of(part) in unchecked]
        for part in operation.writes:
            space = space_of(part)
            if sources:
                unchecked.add(space)
            elif part[1:4] == (0, (), self.log.storages[space].nbytes):
                unchecked.discard(space)
        if sources and operation.kind in {"to host", "host"}:
            self.log.unchecked_places.setdefault(operation.place, self.log.storage_of(sources[0]).label)

    def _thread(self) -> str:
        number = threading.get_ident()
        name = self._threads.get(number)
        if name is None:
            name = self._threads[number] = threading.current_thread().name
        return name

    def refuse(self, reason: str) -> None:
        """Note a call that the task form cannot express."""
        with self.lock:
            self.log.obstacles.setdefault(self.place(), reason)

    def arrived(self, operation: StreamOperation, array: np.ndarray[Any, Any]) -> None:
        """Note the bytes that a copy has brought to the host."""
        if self.wants_digests:
            plain = np.ascontiguousarray(array.view(np.ndarray))
            self.log.arrived[operation.number] = hashlib.blake2b(plain.tobytes(), digest_size=16).digest()

    # -- the sink of tracked host arrays -------------------------------------------------------------
    def note(self, reads: Sequence[Any], writes: Sequence[Any], device: Any) -> None:
        """Note an access of the host to tracked arrays; see `offload.sanitizer.tracked.Sink`."""
        if device is not None or sys.is_finalizing():
            return
        with self.lock:
            read = [self.host_part(array) for array in reads if array.size]
            written = [self.host_part(array) for array in writes if array.size]
            if not read and not written:
                return
            operation = getattr(self._in_callback, "operation", None)
            if operation is None:
                self.add("host", "", HOST, read, written)
                return
            operation.reads = _distinct((*operation.reads, *read))
            operation.writes = _distinct((*operation.writes, *written))

    def ignores(self, array: Any) -> bool:
        """Return False: the log has every access."""
        return False

    def given_away(self, storage: Any, device: Any) -> None:
        """Note that the program has received the memory of a tracked array in a form that cannot be seen."""
        if device is None and not sys.is_finalizing():
            with self.lock:
                part = self.host_part(storage)
                self._give_away(part, self.place())

    def lent(self, storage: Any) -> Callable[[], None]:
        """Note that compiled code has received the memory of a tracked array; see `offload.sanitizer.tracked.Sink`."""
        log = self.log
        if sys.is_finalizing():
            return lambda: None
        with self.lock:
            part, place = self.host_part(storage), self.place()
            was_known = place in log.given_away, space_of(part) in log.out_of_sight
            self._give_away(part, place)

        def take_back() -> None:
            with self.lock:
                if not was_known[0]:
                    del log.given_away[place]
                if not was_known[1]:
                    log.out_of_sight.discard(space_of(part))

        return take_back

    def _give_away(self, part: AccessPart, place: ProgramPlace) -> None:
        self.log.given_away.setdefault(place, self.log.storage_of(part).label)
        self.log.out_of_sight.add(space_of(part))

    @contextmanager
    def callback(self, operation: StreamOperation) -> Iterator[None]:
        """Let the accesses of the block belong to a callback that runs on a stream."""
        self._in_callback.operation = operation
        try:
            yield
        finally:
            self._in_callback.operation = None


def _distinct(parts: Sequence[AccessPart]) -> tuple[AccessPart, ...]:
    return tuple(parts) if len(parts) < 2 else tuple(dict.fromkeys(parts))


def _memory_of(array: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], Any]:
    """Return the array at the end of the chain of bases, and the object that has the memory: mostly that array."""
    owner: np.ndarray[Any, Any] = array
    base: Any = _base_of(array)
    while base is not None:
        if isinstance(base, memoryview):
            base = exporter(base)
        if not isinstance(base, np.ndarray):
            return owner, base
        owner, base = base, _base_of(base)
    return owner, owner


_base_of = np.ndarray.base.__get__  # a tracked array says that it has no base


def _place_of(frame: FrameType, table: array[int]) -> ProgramPlace:
    """Return the call of a frame; the table has four positions for each instruction, of two bytes."""
    code = frame.f_code
    name = code.co_filename
    at = frame.f_lasti * 2
    # Not the frame's line number, for which Python reads the table of a long module from its beginning.
    line, end_line, column, end_column = table[at : at + 4] if 0 <= at < len(table) else (-1, -1, -1, -1)
    line = code.co_firstlineno if line < 0 else line
    file = name if name.startswith("<") else str(Path(name).absolute())
    return ProgramPlace(file, line, column, max(line, end_line), end_column, code.co_qualname)


def _name_in(frame: FrameType, is_it: Callable[[Any], bool], without: Container[str] = ()) -> str:
    """Return the expression by which a frame's variables hold an object, such as ``buf[1]``; ``""`` if none does.

    The expressions ``without`` do not count.
    """
    scopes: list[Mapping[str, Any]] = [frame.f_locals]
    if frame.f_globals is not frame.f_locals:
        scopes.append(frame.f_globals)
    for scope in scopes:
        for name, value in list(scope.items()):
            if not name.startswith("__") and name not in without and is_it(value):
                return name
    for scope in scopes:
        for name, value in list(scope.items()):
            members: Iterable[tuple[Any, Any]]
            if name.startswith("__"):
                continue
            if type(value) in {list, tuple}:  # no class of the program, whose methods would run
                members = enumerate(value[:_MOST_MEMBERS])
            elif type(value) is dict and len(value) <= _MOST_MEMBERS:
                members = list(value.items())
            else:
                continue
            for key, member in members:
                if is_it(member) and (found := f"{name}[{key!r}]") not in without:
                    return found
    return ""
