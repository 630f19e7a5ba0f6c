"""The order that a program asked for: stretches of work, and which of them come before which.

Theory of operation
-------------------
A *stretch* is work that one thread, task or stream carries out in order, with no synchronisation in it. An edge says
that one stretch ends before another begins. `Order.is_before` asks for a path.

*Chains.* Most stretches continue another one: the host's next construct, the next operation of a stream, a task after
the task that it depends on. Each stretch therefore belongs to a chain, at a position; each position of a chain comes
before the next. A stretch continues the chain of the first stretch before it, if that is the last of its chain. Edges
between two chains are kept as a *frontier*: an edge that starts no later and ends no earlier than another one says
nothing more, and is dropped. So "the first position of this chain that comes after that position of that chain" is one
bisection.

*Search.* A path from ``a`` to ``b`` is searched from both ends at once, chain by chain, always at the end where the
next step is cheaper. Chains with very many edges, such as a host thread that joins 100,000 tasks, are thereby entered
from the side of the task, which has two. The search fails as soon as one end has nothing left. A chain that has more
edges than neighbours is passed by its frontiers.

*Ranks.* Each stretch has a rank that is higher than the ranks of all stretches before it, so neither search leaves the
ranks between ``a`` and ``b``. The ranks are the order of creation, until an edge is added whose end is older than its
start: then the end gets a new highest rank, and so does everything after it, which is usually nothing yet.

Vector clocks for each stretch were rejected. In a program of 100,000 tasks they take too much memory even as sparse or
shared maps: a wavefront of tiles knows a position of each of its rows in each tile.

Nothing here takes a lock: the caller lets one thread in at a time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from heapq import heappop, heappush


class _Frontier:
    """The edges from one chain to another that no other edge implies, by rising positions in both."""

    __slots__ = ("ends", "starts")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []

    def add(self, start: int, end: int) -> bool:
        """Add an edge between two positions; return whether it says something new."""
        starts, ends = self.starts, self.ends
        at = bisect_left(starts, start)
        if at < len(starts) and ends[at] <= end:
            return False  # a later position ends no later
        first = bisect_left(ends, end)
        stop = at + 1 if at < len(starts) and starts[at] == start else at
        starts[first:stop] = [start]
        ends[first:stop] = [end]
        return True

    def last_before(self, end: int) -> int:
        """Return the last position of the one chain that comes before a position of the other; -1 for none."""
        at = bisect_right(self.ends, end)
        return self.starts[at - 1] if at else -1

    def first_after(self, start: int) -> int:
        """Return the first position of the other chain that comes after a position of the one; -1 for none."""
        at = bisect_left(self.starts, start)
        return self.ends[at] if at < len(self.starts) else -1


class _Chain:
    """Stretches, each before the next, and the edges that begin and end in the chain."""

    __slots__ = ("from_chains", "ins", "members", "outs", "to_chains")

    def __init__(self) -> None:
        self.members: list[int] = []
        # Edges that end here, as (position here, the stretch that they come from), and that begin here.
        self.ins: list[tuple[int, int]] = []
        self.outs: list[tuple[int, int]] = []
        self.from_chains: dict[int, _Frontier] = {}
        self.to_chains: dict[int, _Frontier] = {}


class Order:
    """Stretches of work, which are numbers from 0 on, and the order that is known among them.

    Examples
    --------
    >>> from offload.sanitizer.clocks import Order
    >>> order = Order()
    >>> host = order.stretch()
    >>> task = order.fork(host)
    >>> goes_on = order.stretch(host)
    >>> joined = order.stretch(goes_on, task)
    >>> order.is_before(task, goes_on), order.is_before(task, joined)
    (False, True)
    """

    __slots__ = ("_chain_of", "_chains", "_is_by_number", "_position", "_rank", "_top")

    def __init__(self) -> None:
        self._chains: list[_Chain] = []
        self._chain_of: list[int] = []
        self._position: list[int] = []
        self._rank: list[int] = []
        self._top = -1
        # Whether each rank is the number of its stretch.
        self._is_by_number = True

    def __len__(self) -> int:
        return len(self._rank)

    # -- making --------------------------------------------------------------------------------------
    def stretch(self, *before: int) -> int:
        """Make a stretch that comes after these, and goes on where the first one ends."""
        return self._make(before, before)

    def fork(self, parent: int, *before: int) -> int:
        """Make a stretch that comes after the parent, which goes on itself, and after some others."""
        return self._make(before, (parent, *before))

    def _make(self, continued: tuple[int, ...], before: tuple[int, ...]) -> int:
        chain_of, position = self._chain_of, self._position
        stretch = len(chain_of)
        number = -1
        for other in continued:
            at = chain_of[other]
            if position[other] == len(self._chains[at].members) - 1:
                number = at
                break
        if number < 0:
            number = len(self._chains)
            self._chains.append(_Chain())
        members = self._chains[number].members
        chain_of.append(number)
        position.append(len(members))
        members.append(stretch)
        self._top += 1
        self._rank.append(self._top)
        for other in before:
            if chain_of[other] != number:
                self._link(other, stretch)
        return stretch

    def add(self, before: int, after: int) -> None:
        """Add an edge between two stretches, the first of which may be the younger one.

        An edge that would close a circle is dropped: no run can have carried that out.
        """
        if before == after or self.is_before(before, after):
            return
        if self._rank[before] > self._rank[after]:
            moved = self._from(after)
            if before in moved:
                return
            for stretch in sorted(moved, key=self._rank.__getitem__):
                self._top += 1
                self._rank[stretch] = self._top
            self._is_by_number = False
        elif self._chain_of[before] == self._chain_of[after]:
            return  # a circle
        self._link(before, after)

    def _link(self, before: int, after: int) -> None:
        """Note an edge between two chains, unless another one implies it."""
        source, target = self._chain_of[before], self._chain_of[after]
        start, end = self._position[before], self._position[after]
        outer, inner = self._chains[source], self._chains[target]
        frontier = inner.from_chains.get(source)
        if frontier is None:
            frontier = inner.from_chains[source] = outer.to_chains[target] = _Frontier()
        if not frontier.add(start, end):
            return
        edges = inner.ins
        if not edges or edges[-1][0] <= end:
            edges.append((end, before))
        else:
            insort(edges, (end, before))
        edges = outer.outs
        if not edges or edges[-1][0] <= start:
            edges.append((start, after))
        else:
            insort(edges, (start, after))

    def _from(self, first: int) -> set[int]:
        """Return a stretch and everything after it."""
        found: set[int] = set()
        front = [first]
        while front:
            stretch = front.pop()
            chain, at = self._chains[self._chain_of[stretch]], self._position[stretch]
            while at < len(chain.members) and chain.members[at] not in found:
                found.add(chain.members[at])
                at += 1
            edges = chain.outs
            for number in range(bisect_left(edges, (self._position[stretch], -1)), len(edges)):
                if edges[number][0] >= at:
                    break
                if edges[number][1] not in found:
                    front.append(edges[number][1])
        return found

    # -- asking --------------------------------------------------------------------------------------
    def chain(self, stretch: int) -> int:
        """Return the number of a stretch's chain: of two stretches of one chain, the older one comes before."""
        return self._chain_of[stretch]

    def is_before(self, before: int, after: int) -> bool:
        """Tell whether one stretch ends before the other begins; false for a stretch and itself."""
        chain_of = self._chain_of
        source, target = chain_of[before], chain_of[after]
        if source == target:
            return self._position[before] < self._position[after]
        if self._rank[before] >= self._rank[after]:
            return False
        frontier = self._chains[target].from_chains.get(source)
        if frontier is not None and frontier.last_before(self._position[after]) >= self._position[before]:
            return True
        return self._search(before, after)

    def is_ordered(self, one: int, other: int) -> bool:
        """Tell whether two stretches are the same, or one comes before the other."""
        return one == other or self.is_before(one, other) or self.is_before(other, one)

    def _search(self, before: int, after: int) -> bool:
        """Search for a path from both ends; see above."""
        chain_of, position, rank, chains = self._chain_of, self._position, self._rank, self._chains
        low, high = rank[before], rank[after]
        ahead = {chain_of[before]: position[before]}
        back = {chain_of[after]: position[after]}
        # What can be looked at next, by its cost: a chain, and the edges or the neighbours that matter there.
        forward: list[tuple[int, int, int, int]] = []
        backward: list[tuple[int, int, int, int]] = []
        self._push_forward(forward, chain_of[before], position[before], high, 1 << 62)
        self._push_backward(backward, chain_of[after], position[after], low, -1)
        costs_ahead = costs_back = 0
        while forward and backward:
            if costs_ahead + forward[0][0] <= costs_back + backward[0][0]:
                cost, number, first, stop = heappop(forward)
                costs_ahead += cost
                for other, at in self._targets(chains[number], first, stop):
                    until = ahead.get(other)
                    if until is None or at < until:
                        reached = back.get(other)
                        if reached is not None and at <= reached:
                            return True
                        if rank[chains[other].members[at]] < high:
                            ahead[other] = at
                            self._push_forward(forward, other, at, high, 1 << 62 if until is None else until)
            else:
                cost, number, first, stop = heappop(backward)
                costs_back += cost
                for other, at in self._sources(chains[number], first, stop):
                    until = back.get(other)
                    if until is None or at > until:
                        reached = ahead.get(other)
                        if reached is not None and at >= reached:
                            return True
                        if rank[chains[other].members[at]] > low:
                            back[other] = at
                            self._push_backward(backward, other, at, low, -1 if until is None else until)
        return False

    def _push_forward(self, heap: list[tuple[int, int, int, int]], number: int, at: int, high: int, until: int) -> None:
        """Have the edges looked at that begin between two positions of a chain, and below a rank."""
        chain = self._chains[number]
        edges = chain.outs
        if not edges:
            return
        members = chain.members
        stop = min(until, bisect_left(members, high) if self._is_by_number else self._at_rank(members, high))
        first, last = bisect_left(edges, (at, -1)), bisect_left(edges, (stop, -1))
        if first < last:
            heappush(heap, (min(last - first, len(chain.to_chains)), number, first, last))

    def _push_backward(self, heap: list[tuple[int, int, int, int]], number: int, at: int, low: int, until: int) -> None:
        """Have the edges looked at that end between two positions of a chain, and above a rank."""
        chain = self._chains[number]
        edges = chain.ins
        if not edges:
            return
        members = chain.members
        start = max(until + 1, bisect_right(members, low) if self._is_by_number else self._at_rank(members, low + 1))
        first, last = bisect_left(edges, (start, -1)), bisect_left(edges, (at + 1, -1))
        if first < last:
            heappush(heap, (min(last - first, len(chain.from_chains)), number, first, last))

    def _at_rank(self, members: list[int], rank: int) -> int:
        return bisect_left(members, rank, key=self._rank.__getitem__)

    def _targets(self, chain: _Chain, first: int, stop: int) -> list[tuple[int, int]]:
        """Return where the edges end that begin in a part of a chain, as chains and positions."""
        if stop - first <= len(chain.to_chains):
            return [(self._chain_of[other], self._position[other]) for _, other in chain.outs[first:stop]]
        start = chain.outs[first][0]
        found = [(number, frontier.first_after(start)) for number, frontier in chain.to_chains.items()]
        return [pair for pair in found if pair[1] >= 0]

    def _sources(self, chain: _Chain, first: int, stop: int) -> list[tuple[int, int]]:
        """Return where the edges begin that end in a part of a chain, as chains and positions."""
        if stop - first <= len(chain.from_chains):
            return [(self._chain_of[other], self._position[other]) for _, other in reversed(chain.ins[first:stop])]
        end = chain.ins[stop - 1][0]
        found = [(number, frontier.last_before(end)) for number, frontier in chain.from_chains.items()]
        return [pair for pair in found if pair[1] >= 0]
