"""Plans: nodes, their edges, and the segments in which they are sent to workers.

Theory of operation
-------------------
Each piece of work of a task on a device is a *node*. A node joins the open segment of its worker. Edges are of two
kinds: a failure goes along *depends*, and along *follows* only the order. A segment needs the segments of the nodes
that its nodes follow, unless they are known to be over. Before it may need one, that one is closed. So a segment needs
only segments that were closed before it was, and no two can wait for each other.

A node that copies from host memory *awaits* the copies to that memory which are still on their way: the client has to
have written them before it reads. Its segment is sent when they have arrived. Nodes before it are not to wait for that,
so their segment is closed first.

Nodes of one stream pass in order: each follows the one before it, and counts as passed only when that one does.

The caller holds the planner's lock in each call. The planner knows neither Dask nor a clock.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from offload.arrays.sections import overlaps
from offload.devices.dask.wire import Ended

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from offload.arrays.sections import Section
    from offload.devices.dask.wire import End

_PAGE_BITS = 20
"""Copies to the host that are on their way are found by the megabytes that they touch."""

MOST_UNDER_WAY = 2
"""Segments of a worker: one that it carries out, and one that it can begin at once."""

_NONE: Sequence[Any] = ()


class PlannedNode:
    """A run of operations on one stream. It serves as the stream's event: `offload.devices.base.DeviceEvent`.

    Attributes
    ----------
    depends, follows : iterable of PlannedNode
        Earlier nodes; a failure of one in ``depends`` keeps this one from running. Once added, each is in one of them.
    outs : sequence of (section, host array)
        The copies to host memory, in the order of their operations.
    after : set of PlannedNode
        Earlier nodes whose copies to the host go to the same bytes, and are written first.
    end : tuple or None
        How it ended, when the client knows; its copies to the host have been written then.
    done : bool
        Whether the stream has passed it.
    """

    __slots__ = (
        "__weakref__", "after", "blocked", "depends", "device", "done", "end", "follows", "is_awaited", "is_export",
        "keep", "line", "name", "next", "number", "operations", "outs", "planner", "previous", "reported", "segment",
        "site", "wakeups",
    )  # fmt: skip

    def __init__(self, planner: Planner, line: WorkLine, device: int, number: int) -> None:
        self.planner = planner
        self.line = line
        self.device = device  # among the worker's
        self.number = number
        self.operations: Sequence[Any] = _NONE
        self.depends: Iterable[PlannedNode] = _NONE
        self.follows: Iterable[PlannedNode] = _NONE
        self.outs: Sequence[tuple[Section, Any]] = _NONE
        self.after: set[PlannedNode] = set()
        self.keep: Any = None  # the objects that the operations refer to
        self.segment: Segment | None = None
        self.site: tuple[str, str, str] = ("", "", "")
        self.name = ""
        self.is_awaited = False
        self.is_export = False  # another worker needs its result, also when its end is known
        self.end: End | None = None
        self.reported: End | None = None  # the end, perhaps before the nodes that it follows have theirs
        self.done = False
        self.previous: PlannedNode | None = None  # on its stream, until that has passed
        self.next: PlannedNode | None = None
        self.wakeups: list[Any] = []
        self.blocked: list[tuple[PlannedNode, End]] = []  # later nodes, whose ends were reported before its own

    def __repr__(self) -> str:
        return f"<PlannedNode {self.number} {self.name!r} on {self.line.name}>"

    def synchronize(self) -> None:
        """Block until the stream has passed it."""
        self.planner.wait(lambda: self.done, (self,))


class Segment:
    """Nodes that are sent to a worker as one Dask task.

    Attributes
    ----------
    needs : dict of Segment
        The segments that must be over on their workers before this one begins.
    awaits : set of PlannedNode
        Nodes whose copies to the host must have been written before this one is sent.
    exports : dict
        By the number of an export, the worker that imports it; None before one does.
    closed : int
        The order in which segments were closed; 0 while it is open.
    """

    __slots__ = (
        "attempt",
        "awaits",
        "bodies",
        "carrier",
        "closed",
        "dropped",
        "epoch",
        "exports",
        "freed",
        "future",
        "is_carried",
        "is_over",
        "key",
        "line",
        "needs",
        "nodes",
        "number",
        "out_nbytes",
        "own",
        "recalls",
        "sent_s",
        "unended",
    )  # fmt: skip

    def __init__(self, line: WorkLine, number: int) -> None:
        self.line = line
        self.epoch = line.epoch
        self.number = number
        self.nodes: list[PlannedNode] = []
        self.needs: dict[Segment, None] = {}
        self.awaits: set[PlannedNode] = set()
        self.exports: dict[int, WorkLine | None] = {}
        self.closed = 0
        self.is_over = False  # every end is known
        self.unended = 0  # nodes whose end is not known
        self.attempt = 0  # how often it was sent before
        self.key = ""  # of its Dask task
        self.out_nbytes = 0  # of its copies to the host
        self.carrier: Any = None  # carries it
        self.recalls = 0  # questions to its worker, without an answer yet, whether it is to be sent again
        self.is_carried = False  # its report has come, or never will
        self.freed: list[int] = []  # for its worker: blocks to free,
        self.bodies: set[int] = set()  # functions that the worker gets,
        self.dropped: Sequence[int] = _NONE  # and functions to forget
        self.sent_s = 0.0  # when it was sent last, by `perf_counter`
        self.future: Any = None  # of its Dask task; None before it is sent, and when its worker is lost
        self.own: dict[Any, Any] = {}  # futures of parts of its result

    def __repr__(self) -> str:
        return f"<Segment {self.number} of {self.line.name}, {len(self.nodes)} nodes>"

    @property
    def is_gone(self) -> bool:
        """Whether its worker has been lost."""
        return self.epoch != self.line.epoch

    def forget(self) -> None:
        """Drop all that is not needed after the ends are known: the last node of a stream keeps its segment."""
        self.nodes, self.needs = [], {}
        if not self.exports:
            self.future, self.own = None, {}


class WorkLine:
    """The work of one worker: its open segment, and those that are closed and not sent yet.

    Attributes
    ----------
    freed : deque of int
        Blocks whose memory the worker may free, with its next segment. Finalizers append to it.
    n_under_way : int
        Segments that are sent and not over.
    """

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address
        self.incarnation = ""
        self.epoch = 0  # how often a worker of the line was lost
        self.open: Segment | None = None
        self.closed: deque[Segment] = deque()
        self.freed: deque[int] = deque()
        self.n_under_way = 0
        self.live: dict[PlannedNode, None] = {}  # planned, and not over
        self.bodies: set[int] = set()  # that it is known to have
        self.lost: Any = None  # the error of its devices, once they are lost


class Planner:
    """The plans of one runtime.

    ``called`` is called when a worker may have something to be sent. It must not block.
    """

    def __init__(self, called: Callable[[], None]) -> None:
        self.lock = threading.RLock()
        self._ended = threading.Condition(self.lock)
        self._called = called
        self._n_nodes = 0
        self._n_segments = 0
        self._n_closed = 0
        self._n_exports = 0
        self._pages: dict[int, dict[PlannedNode, None]] = {}
        self.gathers = 0  # while it is not 0, segments are closed only if another one needs them

    # -- planning --------------------------------------------------------------------------------------
    def new_node(self, line: WorkLine, device: int) -> PlannedNode:
        """Return a node, to be filled and then given to `add`."""
        self._n_nodes += 1
        return PlannedNode(self, line, device, self._n_nodes)

    def new_export(self) -> int:
        """Return the number of a copy from one worker to another."""
        self._n_exports += 1
        return self._n_exports

    def add(self, node: PlannedNode, reads: Iterable[Section] = ()) -> None:
        """Have a node join its worker's open segment.

        ``reads`` are the parts of host memory that it copies from. A node that depends on one which has failed joins no
        segment.
        """
        depends = node.depends = dict.fromkeys(node.depends)
        node.follows = dict.fromkeys(other for other in node.follows if other not in depends)
        for other in depends:
            end = other.reported
            if end is not None and end[0] != Ended.OK:
                self.resolve(node, (Ended.NOT_RUN, end[1] if end[0] == Ended.NOT_RUN else other))
                return
        awaits = [other for section in reads for other in self._writers(section)]
        for section, _ in node.outs:
            node.after.update(self._writers(section))
        line = node.line
        needs: list[Segment] = []
        for other in (*node.depends, *node.follows):
            segment = other.segment
            if segment is None or segment is line.open or (other.end is not None and not other.is_export):
                continue
            if not segment.closed:
                self.close(segment)
            needs.append(segment)
        for other in awaits:
            segment = other.segment
            if segment is not None and not segment.closed:
                self.close(segment)
        if awaits and line.open is not None:
            self.close(line.open)
            # Its nodes are in a closed segment now, which this one may follow.
            needs += [
                other.segment
                for other in (*node.depends, *node.follows)
                if other.end is None and other.segment is not None and other.segment.line is line
            ]
        open_ = line.open
        if open_ is None:
            self._n_segments += 1
            open_ = line.open = Segment(line, self._n_segments)
        node.segment = open_
        open_.nodes.append(node)
        open_.unended += 1
        for segment in needs:
            open_.needs[segment] = None
        open_.awaits.update(awaits)
        line.live[node] = None
        for section, _ in node.outs:
            for page in _pages(section):
                self._pages.setdefault(page, {})[node] = None
        if line.n_under_way < MOST_UNDER_WAY and not self.gathers:  # else the end of a segment looks again
            self._called()

    def close(self, segment: Segment) -> None:
        """Close a segment: no node joins it any more."""
        line = segment.line
        self._n_closed += 1
        segment.closed = self._n_closed
        line.open = None
        line.closed.append(segment)
        self._called()

    def next_segment(self, line: WorkLine) -> Segment | None:
        """Return the next segment to send to a worker; None while there is none, or it is not to be sent yet."""
        if line.n_under_way >= MOST_UNDER_WAY or line.lost is not None:
            return None
        if not line.closed:
            if line.open is None or self.gathers or not self._is_sendable(line.open):
                return None
            self.close(line.open)
        segment = line.closed[0]
        if not self._is_sendable(segment):
            return None
        line.closed.popleft()
        line.n_under_way += 1
        return segment

    @staticmethod
    def _is_sendable(segment: Segment) -> bool:
        return all(node.end is not None for node in segment.awaits)

    def _writers(self, section: Section) -> list[PlannedNode]:
        """Return the nodes whose copies to host memory meet a section, and are on their way."""
        found: dict[PlannedNode, None] = {}
        for page in _pages(section):
            for node in self._pages.get(page, ()):
                if node not in found and any(overlaps(section, other) for other, _ in node.outs):
                    found[node] = None
        return [*found]

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """In the block, close segments only where another worker needs them, and send those."""
        with self.lock:
            self.gathers += 1
        try:
            yield
        finally:
            with self.lock:
                self.gathers -= 1
            self._called()

    # -- ends ------------------------------------------------------------------------------------------
    def resolve(self, node: PlannedNode, end: End) -> None:
        """Note how a node has ended, once; its copies to the host have been written.

        Workers report in any order. A node ends here only after those that it follows, whose copies to the host have
        been written then.
        """
        pending = [(node, end)]
        while pending:
            node, end = pending.pop()
            if node.end is not None:
                continue
            node.reported = end
            before = next((one for one in (*node.depends, *node.follows) if one.end is None), None)
            if before is not None and end[0] != Ended.LOST:
                before.blocked.append((node, end))
                continue
            self._end(node, end)
            pending += reversed(node.blocked)
            node.blocked = []

    def _end(self, node: PlannedNode, end: End) -> None:
        node.end = end
        segment = node.segment
        if segment is not None:
            segment.unended -= 1
            if not segment.unended and segment.closed:
                segment.is_over = True
                if segment.is_carried:
                    segment.forget()
        node.line.live.pop(node, None)
        for section, _ in node.outs:
            for page in _pages(section):
                nodes = self._pages.get(page)
                if nodes is not None:
                    nodes.pop(node, None)
                    if not nodes:
                        del self._pages[page]
        node.operations = node.depends = node.follows = node.outs = _NONE
        node.after = set()
        node.keep = None
        if node.previous is None:
            self._pass(node)

    def _pass(self, node: PlannedNode | None) -> None:
        """Note that a stream has passed a node, and those after it that have ended."""
        while node is not None and node.end is not None:
            following, node.next = node.next, None
            if following is not None:
                following.previous = None
            node.done = True
            for wakeup in node.wakeups:
                wakeup.post()
            node.wakeups = []
            node = following
        self._ended.notify_all()

    def wait(self, is_over: Callable[[], bool], nodes: Iterable[PlannedNode] = ()) -> None:
        """Block until something is so; the ends of ``nodes`` are reported as soon as they are known."""
        with self.lock:
            for node in nodes:
                node.is_awaited = True
            while not is_over():
                self._ended.wait(1.0)


def _pages(section: Section) -> range:
    return range(section[1] >> _PAGE_BITS, ((section.end - 1) >> _PAGE_BITS) + 1)
