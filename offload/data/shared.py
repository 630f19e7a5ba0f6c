"""Plain constructs on replicated data: what a construct on one device does about the replicas on others.

Theory of operation
-------------------
A construct on one device that finds an entry of a replica set plans again, under the locks of all places of the set.
What it uses is made current here first, by copies on its own lane. Then it goes on as on any entry. What it writes is
current here alone from then on: that is every item but one that is mapped ``to`` without ``always``, since nobody looks
into a body. A copy of the host's values to the device needs the rest of its box only where it does not cover that.

No construct on one device ends an entry of a set: the others would be left behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from offload.data.exchanges import complete, mark_written
from offload.data.maptypes import MapType
from offload.data.replicas import asked, replicas_of
from offload.data.steps import Steps, entry_steps, exit_steps, update_steps
from offload.data.storage import Storage
from offload.errors import MapError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from offload.data.entries import Counter, Entry
    from offload.data.items import MapItem
    from offload.data.plans import Plan
    from offload.devices.streams import Lane

    Copy: TypeAlias = tuple[MapItem, Entry]


class Shared(Storage):
    """What `DataEnvironment` does where an entry is in a replica set: each method what its namesake does under a lock.

    They return the plan, and the steps that are left.
    """

    def _commit(self, steps: Steps, lane: Lane, staged: list[Any]) -> None:
        raise NotImplementedError

    def _enter_shared(
        self, items: Sequence[MapItem], lane: Lane, staged: list[Any], counter: Counter
    ) -> tuple[Plan, Steps]:
        steps = Steps()

        def act(plan: Plan) -> None:
            nonlocal steps
            used = [(item, entry) for item, entry in zip(plan.items, plan.entries, strict=True) if entry is not None]
            complete(self, used, lane)
            steps = entry_steps(plan, self.ledger)
            self._commit(steps, lane, staged)
            mark_written(self, [copy for copy in used if copy[0].always or copy[0].map_type is not MapType.TO])

        return asked(self, lambda: self.table.enter(items, counter), lambda plan: plan.counted, act), steps

    def _exit_shared(
        self, make: Callable[[], Plan], lane: Lane, staged: list[Any], *, ends_region: bool, may_be_put_off: bool
    ) -> tuple[Plan, Steps]:
        steps = Steps()

        def act(plan: Plan) -> None:
            nonlocal steps
            _refuse_to_remove(plan.removed)
            if not ends_region:
                for item, _ in plan.copies:
                    check_writeable(item)
            complete(self, plan.copies, lane, may_be_put_off=may_be_put_off)
            steps = exit_steps(plan, self.ledger, may_be_put_off=may_be_put_off)
            self._commit(steps, lane, staged)

        return asked(self, make, lambda plan: _entries_of(plan.copies), act), steps

    def _update_shared(self, items: Sequence[MapItem], lane: Lane, staged: list[Any]) -> tuple[list[Copy], Steps]:
        steps = Steps()

        def act(copies: list[Copy]) -> None:
            nonlocal steps
            complete(self, [copy for copy in copies if not _is_overwritten(*copy)], lane)
            steps = update_steps(copies, self.ledger)
            self._commit(steps, lane, staged)
            mark_written(self, [copy for copy in copies if copy[0].map_type.copies_in])

        return asked(self, lambda: self.table.update(items), _entries_of, act), steps

    def expose(self, item: MapItem, lane: Lane) -> None:
        """Make the device current in an item that the program is given, and may write to from now on.

        Raises
        ------
        PutOffError
            Nothing has changed.
        """

        def act(copies: list[Copy]) -> None:
            complete(self, copies, lane)
            mark_written(self, copies)

        def make() -> list[Copy]:
            entry, _ = self.table.search(item.section)
            return [] if entry is None else [(item, entry)]

        asked(self, make, _entries_of, act)


def check_writeable(item: MapItem) -> None:
    """Raise `MapError` if the array of an item that is to be copied back cannot be written any more."""
    host: Any = item.host
    if not host.flags.writeable:
        raise MapError(
            f"{item.label} cannot be copied back: the array is read-only now; "
            "make it writeable, or release it without a copy"
        )


def _entries_of(copies: Iterable[Copy]) -> list[Entry]:
    return [entry for _, entry in copies]


def _is_overwritten(item: MapItem, entry: Entry) -> bool:
    """Tell whether a copy of an item to the device writes all of its box."""
    replicas = entry.replicas
    return item.map_type.copies_in and replicas is not None and replicas.is_all(item, replicas.box(item))


def _refuse_to_remove(entries: Iterable[Entry]) -> None:
    """Raise `MapError` if a construct on one device is about to remove an entry of a replica set."""
    for replicas in replicas_of(entries):
        raise MapError(
            f"{replicas.label} has a replica on each of devices {replicas.devices}, and this construct would take away "
            f"one of them; end the mapping with devices=[{replicas.devices}]"
        )
