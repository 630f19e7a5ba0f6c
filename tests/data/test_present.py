"""The present table: map rules, counts, look-ups, messages."""

from __future__ import annotations

from math import inf

import pytest

from offload.arrays.sections import HOST, section_of
from offload.data.entries import Counter, Origin, correspond
from offload.data.items import MapItem
from offload.data.maptypes import EFFECTIVE, MapConstruct, MapType, resolve, types_of
from offload.data.present_table import PresentTable
from offload.errors import ClauseError, ExtensionError, InternalError, MapError, NotPresentError
from offload.graphs.rehearsal import NotCapturableError, ShadowTable

ALLOC, TO, FROM, TOFROM = MapType.ALLOC, MapType.TO, MapType.FROM, MapType.TOFROM
RELEASE, DELETE = MapType.RELEASE, MapType.DELETE
ROW = 160


def view(address, shape, strides, map_type=TOFROM, **more):
    """Return an item of 8-byte elements."""
    section = section_of(HOST, address, shape, strides, 8)
    return MapItem(section, address, shape, strides, 8, map_type, **more)


def x(first, end, map_type=TOFROM, **more):
    """Return ``x[first:end]`` of a vector of 8-byte elements at address 1000."""
    return view(1000 + 8 * first, (end - first,), (8,), map_type, label=f"x[{first}:{end}]", **more)


def a(first_row, n_rows, first_col, n_cols, map_type=TOFROM, **more):
    """Return a tile of a matrix of 20 columns at address 100000."""
    return view(100_000 + ROW * first_row + 8 * first_col, (n_rows, n_cols), (ROW, 8), map_type, **more)


def enter(table, *items):
    """Carry out an entry; return its plan."""
    plan = table.enter(items)
    table.commit(plan, [object() for _ in plan.created])
    return plan


def exit_(table, *items):
    """Carry out an exit; return its plan."""
    plan = table.exit(items)
    table.commit(plan)
    return plan


def copied(plan):
    return [item for item, _ in plan.copies]


def state(table):
    return [(entry.section, entry.count, entry.generation) for entry in table.entries()]


@pytest.fixture
def table():
    return PresentTable(1)


@pytest.mark.parametrize(
    ("construct", "row"),
    [
        (MapConstruct.TARGET, {None: TOFROM, ALLOC: ALLOC, TO: TO, FROM: FROM, TOFROM: TOFROM}),
        (MapConstruct.TARGET_DATA, {None: TOFROM, ALLOC: ALLOC, TO: TO, FROM: FROM, TOFROM: TOFROM}),
        (MapConstruct.TARGET_ENTER_DATA, {None: TO, ALLOC: ALLOC, TO: TO, TOFROM: TO}),
        (MapConstruct.TARGET_EXIT_DATA, {None: FROM, FROM: FROM, TOFROM: FROM, RELEASE: RELEASE, DELETE: DELETE}),
        (MapConstruct.TARGET_UPDATE, {TO: TO, FROM: FROM}),
        (MapConstruct.DECLARE_MAPPER, {None: TOFROM, ALLOC: ALLOC, TO: TO, FROM: FROM, TOFROM: TOFROM}),
    ],
)
def test_types(construct, row):
    """Each construct takes its own types, tofrom decays and a bare item has the default; the rest is refused."""
    assert EFFECTIVE[construct] == row
    for map_type in (None, *MapType):
        if map_type in row:
            assert resolve(construct, map_type) is row[map_type]
        else:
            with pytest.raises(ClauseError):
                resolve(construct, map_type)


@pytest.mark.parametrize("map_type", types_of(MapConstruct.TARGET))
def test_first_and_second_entry(table, map_type):
    """The first entry allocates and copies in to and tofrom; the second one only counts."""
    item = x(0, 10, map_type)
    plan = enter(table, item)
    (entry,) = plan.created
    assert (entry.count, entry.nbytes, entry.is_packed) == (1, 80, False)
    assert copied(plan) == ([item] if map_type in {TO, TOFROM} else [])
    again = enter(table, item)
    assert (again.created, again.copies, again.entries, entry.count) == ([], [], [entry], 2)
    assert table.live() == 1


@pytest.mark.parametrize("map_type", types_of(MapConstruct.TARGET))
def test_always(table, map_type):
    """With always, a present item is copied in (to, tofrom) and out (from, tofrom) at every count."""
    enter(table, x(0, 10, ALLOC))
    item = x(2, 5, map_type, always=True)
    assert copied(enter(table, item)) == ([item] if map_type in {TO, TOFROM} else [])
    assert copied(exit_(table, item)) == ([item] if map_type in {FROM, TOFROM} else [])
    assert table.live() == 1


@pytest.mark.parametrize("map_type", MapType)
def test_exit(table, map_type):
    """An exit counts down; only the last one copies from and tofrom back and removes; delete is always the last."""
    (entry,) = enter(table, x(0, 10)).created
    enter(table, x(0, 10))
    item = x(0, 10, map_type)
    first = exit_(table, item)
    assert first.copies == []
    assert entry.count == (0 if map_type is DELETE else 1)
    second = exit_(table, item)
    assert copied(second) == ([item] if map_type in {FROM, TOFROM} else [])
    assert first.removed + second.removed == [entry]
    assert table.live() == 0


def test_plan_changes_nothing(table):
    """Plans that are dropped leave the table as it was."""
    enter(table, x(0, 10))
    before = state(table)
    table.enter([x(0, 10), x(20, 30)])
    table.exit([x(0, 10, DELETE)])
    assert state(table) == before


def test_one_count_a_construct(table):
    """However many items hit an entry, a construct counts it once."""
    plan = enter(table, x(0, 10, TO), x(0, 10, FROM), x(2, 4, TO))
    (entry,) = plan.created
    assert plan.entries == [entry] * 3
    assert entry.count == 1
    assert exit_(table, x(0, 10, RELEASE), x(2, 4, RELEASE)).removed == [entry]


def test_to_and_from_both_apply(table):
    """An item given to and from is copied in at the entry and out at the exit."""
    items = x(0, 10, TO), x(0, 10, FROM)
    assert copied(enter(table, *items)) == [items[0]]
    assert copied(exit_(table, *items)) == [items[1]]


def test_identical_copies_collapse(table):
    """The same bytes are copied once, and parts of what is copied whole are not copied again."""
    items = [x(0, 10, TO), x(0, 10, TOFROM), x(2, 4, TO)]
    assert copied(enter(table, *items)) == [items[0]]
    assert copied(exit_(table, *[x(2, 4, FROM, always=True), x(2, 4, FROM), x(6, 7, FROM)]))[0].label == "x[2:4]"


def test_smaller_item_first(table):
    """An item inside a bigger one of the same construct uses the bigger one's entry, whichever comes first."""
    small, big = x(2, 4, TO), x(0, 10, ALLOC)
    plan = enter(table, small, big)
    (entry,) = plan.created
    assert entry.section == big.section
    assert plan.entries == [entry, entry]
    assert copied(plan) == [small], "only the part that is `to` is copied"


@pytest.mark.parametrize("items", [(x(0, 6), x(4, 10)), (a(0, 4, 0, 5), a(2, 4, 3, 5)), (a(0, 4, 0, 5), x(0, 1))])
def test_overlap_in_one_construct(table, items):
    """Two new items that overlap in part are an error, disjoint ones are not."""
    if items[1].section == x(0, 1).section:
        assert len(enter(table, *items).created) == 2
        return
    with pytest.raises(MapError, match="same construct"):
        table.enter(items)
    assert table.live() == 0


def test_extension(table):
    """An explicit item that is present in part is an error at the entry, also for find, and changes nothing."""
    enter(table, x(0, 50))
    before = state(table)
    for item in (x(0, 100, TO), x(40, 60), x(-5, 5)):
        with pytest.raises(ExtensionError):
            table.enter([x(200, 210), item])
        with pytest.raises(ExtensionError):
            table.find(item.section)
    assert state(table) == before


def test_messages(table):
    """A message says what happened, to which item, where, and what to do."""
    enter(table, x(0, 50))
    with pytest.raises(ExtensionError) as caught:
        table.enter([x(0, 100, TO)])
    assert str(caught.value) == (
        "map(to: x[0:100]) extends x[0:50], already present on device 1; exit that mapping first or map all of it there"
    )
    with pytest.raises(ExtensionError, match="pass the section"):
        table.enter([x(0, 100, TO, implicit=True)])


def test_present_comes_first(table):
    """An absent item with present is an error before anything else, also when another item would be one."""
    enter(table, x(0, 10))
    before = state(table)
    for item in (x(20, 30, present=True), x(5, 15, present=True)):
        with pytest.raises(NotPresentError):
            table.enter([x(40, 50), x(5, 12), item])
        with pytest.raises(NotPresentError):
            table.exit([x(0, 10), item])
    assert state(table) == before
    assert enter(table, x(2, 4, present=True)).created == []


def test_exit_ignores_absent_and_partial(table):
    """At an exit, absent items and ones present in part are ignored."""
    (entry,) = enter(table, x(0, 10)).created
    plan = exit_(table, x(20, 30, FROM), x(5, 15, DELETE))
    assert (plan.entries, plan.copies, plan.removed, entry.count) == ([None, None], [], [], 1)


def test_copy_back_survives_delete(table):
    """From and delete of one item on one exit copy back, at any count."""
    enter(table, x(0, 10))
    (entry,) = enter(table, x(0, 10)).counted
    back = x(0, 10, FROM)
    plan = exit_(table, x(0, 10, DELETE), back)
    assert copied(plan) == [back]
    assert plan.removed == [entry]


def test_delete_inside_a_region(table):
    """The end of a region finds nothing of what was deleted inside it, and copies nothing."""
    enter(table, x(0, 10))
    exit_(table, x(0, 10, DELETE))
    assert exit_(table, x(0, 10)).copies == []


def test_zero_size(table):
    """An item without elements makes and counts no entry; with present it needs one at its address."""
    plan = enter(table, x(3, 3))
    assert (plan.entries, plan.created) == ([None], [])
    with pytest.raises(NotPresentError):
        table.enter([x(3, 3, present=True)])
    entry = enter(table, x(0, 10), a(0, 4, 0, 5)).entries[0]
    assert enter(table, x(3, 3, present=True)).counted == []
    assert table.find(x(3, 3).section) is entry
    assert table.find(x(10, 10).section) is None, "one past the end is not present"
    assert table.find(a(1, 0, 2, 3).section).is_packed
    assert table.find(a(1, 0, 5, 3).section) is None
    assert exit_(table, x(3, 3, DELETE, present=True)).counts == []
    assert exit_(table, x(3, 3, RELEASE)).removed == []


def test_packed(table):
    """An item with gaps is packed; what lies in it is present, what has an element in a gap is not."""
    (entry,) = enter(table, a(0, 10, 0, 8)).created
    assert (entry.is_packed, entry.nbytes) == (True, 640)
    assert table.find(a(2, 3, 4, 2).section) is entry
    assert table.find(a(2, 3, 8, 2).section) is None
    assert table.find(a(2, 1, 8, 2).section) is None
    for item in (a(2, 3, 6, 4), a(2, 1, 6, 4), a(0, 10, 0, 20)):
        with pytest.raises(ExtensionError):
            table.find(item.section)


def test_interleaved_tiles(table):
    """Tiles of one matrix have entries of their own, found again whatever was removed in between."""
    tiles = [a(i, 5, j, 4) for i in (0, 5) for j in range(0, 20, 4)]
    plan = enter(table, *tiles)
    assert len(plan.created) == 10
    for tile, entry in zip(tiles, plan.entries, strict=True):
        assert table.find(tile.section) is entry
    exit_(table, *tiles[::2])
    assert [table.find(tile.section) for tile in tiles] == [
        entry if k % 2 else None for k, entry in enumerate(plan.entries)
    ]
    exit_(table, *tiles[1::2])
    assert table.live() == 0


def test_packed_entries_of_different_reach(table):
    """A short packed entry that ends before the item does not hide a long one."""
    (long,) = enter(table, a(0, 10, 0, 4)).created
    (short,) = enter(table, a(1, 2, 8, 4)).created
    assert table.find(a(6, 1, 1, 2).section) is long
    assert table.find(a(2, 1, 9, 2).section) is short
    assert table.find(a(6, 1, 8, 2).section) is None


def test_dense_entries_meet_strided_items(table):
    """Dense entries are found under, and beside, items with gaps."""
    (row,) = enter(table, a(3, 1, 0, 8)).created
    assert table.find(view(row.section.address, (4,), (16,)).section) is row
    assert table.find(a(0, 10, 8, 8).section) is None
    for item in (a(0, 10, 0, 8), a(3, 4, 7, 3)):
        with pytest.raises(ExtensionError):
            table.find(item.section)


def test_interleaving_rows(table):
    """An item whose rows interleave cannot be packed."""
    with pytest.raises(MapError, match="interleave"):
        table.enter([view(0, (3, 2), (16, 24))])


def test_undo(table):
    """Undoing an entry gives back its counts and removes what it made, without copies."""
    (old,) = enter(table, x(0, 10)).created
    plan = enter(table, x(0, 10), x(20, 30))
    assert table.undo(plan) == plan.created
    assert (old.count, table.live()) == (1, 1)


def test_undo_after_removal(table):
    """An entry removed meanwhile, and its successor of the same section, are left alone by undo."""
    plan = enter(table, x(0, 10))
    exit_(table, x(0, 10, DELETE))
    (new,) = enter(table, x(0, 10)).created
    assert new.generation > plan.created[0].generation
    assert table.undo(plan) == []
    assert new.count == 1


def test_release(table):
    """Release counts down once an entry however many items name it, copies nothing, and ignores what is absent."""
    (entry,) = enter(table, x(0, 10)).created
    enter(table, x(0, 10))
    assert exit_(table, x(0, 10, RELEASE), x(2, 3, RELEASE)).removed == []
    plan = exit_(table, x(0, 10, RELEASE), x(2, 3, RELEASE), x(20, 30, RELEASE))
    assert (plan.removed, plan.copies, table.live()) == ([entry], [], 0)


def test_stale_plans(table):
    """A plan is committed once, and only to the state of the table that it was made for."""
    first, second = table.enter([x(0, 10)]), table.enter([x(0, 10)])
    with pytest.raises(InternalError):
        table.undo(first)
    with pytest.raises(InternalError):
        table.commit(first, [])
    table.commit(first, [object()])
    with pytest.raises(InternalError):
        table.commit(first, [object()])
    with pytest.raises(InternalError):
        table.commit(second, [object()])
    leaving = table.exit([x(0, 10)])
    table.commit(leaving)
    with pytest.raises(InternalError):
        table.commit(leaving)
    assert table.live() == 0


def test_host_and_buffer_are_kept(table):
    """An entry keeps the item's host array and the buffer it was committed with."""
    host, buffer = object(), object()
    plan = table.enter([x(0, 10, host=host)])
    (entry,) = plan.created
    assert entry.buffer is None
    table.commit(plan, [buffer])
    assert entry.host is host
    assert entry.buffer is buffer
    assert repr(entry) == "<Entry x[0:10] at 0x3e8, 80 bytes, count 1>"


def test_correspond(table):
    """A view's place in the buffer is the same offset in a dense entry, and the packed one in a packed entry."""
    dense, packed = enter(table, x(0, 10), a(0, 10, 0, 8)).entries
    assert correspond(dense, 1016, (3,), (-8,), 8) == (16, (-8,))
    assert correspond(dense, 1016, (3, 2), None, 4) == (16, (8, 4))
    assert correspond(packed, 100_000 + ROW + 16, (3, 2), (ROW, 8), 8) == (80, (64, 8))
    assert correspond(packed, 100_000 + 16, (2, 3), (8, 2 * ROW), 8) == (16, (8, 128))
    assert correspond(packed, 100_000, (8,), None, 8) == (0, (8,))
    with pytest.raises(InternalError):
        correspond(packed, 100_000, (9,), None, 8)
    with pytest.raises(MapError, match="no strides"):
        correspond(enter(table, view(0, (4, 3), (32, 8))).entries[0], 0, (8,), (16,), 8)


def test_correspond_turned(table):
    """A packed item that is turned round or repeated is stored once, lowest address first."""
    item = view(100_000 + 9 * ROW, (5, 10, 8), (0, -ROW, 8))
    (entry,) = enter(table, item).created
    assert entry.nbytes == 640
    assert correspond(entry, item.address, item.shape, item.strides, 8) == (9 * 64, (0, -64, 8))


def test_present_at_the_end_of_a_region(table):
    """At the end of a region, an item with present that was deleted inside is ignored; on exit data it is an error."""
    item = x(0, 10, present=True)
    plan = table.exit([item], ends_region=True)
    assert (plan.entries, plan.counts) == ([None], [])
    with pytest.raises(NotPresentError):
        table.exit([item])


# -- two counters -----------------------------------------------------------------------------------
def test_openmp_counts_dynamically(table):
    """Without further words a construct counts in the dynamic counter."""
    (entry,) = enter(table, x(0, 10)).created
    enter(table, x(0, 10))
    assert (entry.dynamic, entry.structured, entry.count) == (2, 0, 2)


def test_structured_count_survives(table):
    """Neither exits nor delete touch the structured counter; the data goes when both are 0."""
    (entry,) = enter(table, x(0, 10)).created
    plan = table.enter([x(2, 4)], Counter.STRUCTURED)
    table.commit(plan, [])
    assert (entry.dynamic, entry.structured) == (1, 1)
    plan = exit_(table, x(0, 10, DELETE), x(0, 10, FROM))
    assert (plan.copies, plan.removed) == ([], [])
    assert exit_(table, x(0, 10, FROM)).removed == [], "a counter at 0 stays there"
    assert (entry.dynamic, entry.structured) == (0, 1)
    plan = table.exit([x(0, 10, FROM)], Counter.STRUCTURED)
    table.commit(plan)
    assert (len(plan.copies), plan.removed) == (1, [entry])


def test_dynamic_count_survives(table):
    """The end of a structured region leaves what was entered dynamically; so does its undo."""
    plan = table.enter([x(0, 10)], Counter.STRUCTURED)
    table.commit(plan, [object()])
    (entry,) = plan.created
    enter(table, x(0, 10))
    assert table.undo(plan) == []
    assert (entry.dynamic, entry.structured) == (1, 0)
    table.commit(table.exit([x(0, 10, DELETE)], Counter.STRUCTURED))
    assert entry.count == 1
    assert exit_(table, x(0, 10, FROM)).removed == [entry]


# -- storage that no construct ends -----------------------------------------------------------------
def test_infinite_count(table):
    """Nothing that a construct does ends an inserted entry, or copies without always."""
    buffer = object()
    entry = table.insert(x(0, 10), buffer, Origin.DECLARED)
    assert (entry.dynamic, entry.buffer, entry.origin) == (inf, buffer, Origin.DECLARED)
    assert enter(table, x(0, 10, TO)).copies == []
    assert copied(enter(table, x(0, 10, TO, always=True))) != []
    plan = exit_(table, x(0, 10, DELETE), x(0, 10, FROM), x(0, 10, RELEASE))
    assert (plan.copies, plan.removed, entry.count) == ([], [], inf)
    assert copied(exit_(table, x(0, 10, FROM, always=True))) != []
    assert table.undo(enter(table, x(2, 3))) == exit_(table, x(2, 3, RELEASE)).removed == []
    assert entry.count == inf
    table.discard(entry)
    assert (table.live(), entry.count) == (0, 0)


def test_infinite_and_structured(table):
    """A structured region over an inserted entry counts beside the infinite count."""
    entry = table.insert(x(0, 10), object(), Origin.ASSOCIATED)
    table.commit(table.enter([x(0, 10)], Counter.STRUCTURED), [])
    assert (entry.dynamic, entry.structured) == (inf, 1)
    table.commit(table.exit([x(0, 10, DELETE)], Counter.STRUCTURED))
    assert (entry.dynamic, entry.structured) == (inf, 0)


@pytest.mark.parametrize("item", [x(0, 10), x(2, 4), x(5, 15), x(-5, 20), view(1000, (3,), (16,))])
def test_insert_over_something(table, item):
    """An inserted entry shares no byte with others; the error changes nothing."""
    enter(table, x(0, 10))
    before = state(table)
    with pytest.raises(MapError):
        table.insert(item, object(), Origin.ASSOCIATED)
    assert state(table) == before


def test_insert_interleaving_rows(table):
    """Rows that interleave cannot be packed, by insert neither."""
    with pytest.raises(MapError, match="interleave"):
        table.insert(view(0, (3, 2), (16, 24)), object(), Origin.ASSOCIATED)
    assert table.live() == 0


def test_insert_outdates_plans(table):
    """A plan made before an insertion, or a removal, is refused."""
    plan = table.enter([x(0, 10)])
    entry = table.insert(x(0, 10), object(), Origin.ASSOCIATED)
    with pytest.raises(InternalError):
        table.commit(plan, [object()])
    plan = table.enter([x(0, 10)])
    table.discard(entry)
    with pytest.raises(InternalError):
        table.commit(plan, [])


def test_at_and_search(table):
    """`at` finds the very section, `search` what holds all or a part of one."""
    (entry,) = enter(table, x(0, 10)).created
    assert table.at(x(0, 10).section) is entry
    assert table.at(x(0, 9).section) is None
    assert table.search(x(0, 9).section) == (entry, None)
    assert table.search(x(0, 11).section) == (None, entry)
    assert table.search(x(10, 11).section) == (None, None)


# -- update -----------------------------------------------------------------------------------------
def test_update(table):
    """An update copies what is present, whatever the counts, and ignores the rest; nothing changes."""
    (entry,) = enter(table, x(0, 10)).created
    enter(table, x(0, 10))
    before = state(table)
    inside, absent, partial, empty = x(2, 4, TO), x(20, 30, TO), x(5, 15, FROM), x(3, 3, TO)
    back = x(6, 8, FROM)
    assert table.update([inside, absent, partial, empty, back]).copies == [(inside, entry), (back, entry)]
    assert state(table) == before


def test_update_once(table):
    """The same bytes are copied once."""
    enter(table, x(0, 10))
    assert [item.label for item, _ in table.update([x(0, 10, TO), x(2, 4, TO), x(0, 10, TO)]).copies] == ["x[0:10]"]


@pytest.mark.parametrize("item", [x(20, 30, TO, present=True), x(5, 15, FROM, present=True), x(20, 20, present=True)])
def test_update_present(table, item):
    """With present, an item that is not wholly present is an error that names the construct."""
    enter(table, x(0, 10))
    with pytest.raises(NotPresentError, match="target_update"):
        table.update([x(0, 10, TO), item])
    assert table.update([x(3, 3, TO, present=True)]).copies == []


# -- OpenACC's clauses ------------------------------------------------------------------------------
def enter_structured(table, *items):
    """Carry out the entry of a structured region; return its plan."""
    plan = table.enter(items, Counter.STRUCTURED)
    table.commit(plan, [object() for _ in plan.created])
    return plan


@pytest.mark.parametrize("item", [x(20, 30, ALLOC), x(5, 15, ALLOC), a(0, 2, 0, 3, ALLOC)])
def test_if_present(table, item):
    """An item with if_present that is absent, or present in part, is ignored; the others of its construct are not."""
    enter(table, x(0, 10))
    item.if_present = True
    plan = enter_structured(table, item, x(0, 10))
    assert plan.entries[0] is None
    assert (plan.created, plan.copies, len(plan.counted)) == ([], [], 1)
    assert table.live() == 1


def test_if_present_is_counted(table):
    """An item with if_present that is present counts, and the end of its region ends that."""
    (entry,) = enter(table, x(0, 10)).created
    item = x(2, 4, ALLOC, if_present=True)
    assert enter_structured(table, item).entries == [entry]
    assert (entry.dynamic, entry.structured) == (1, 1)
    table.commit(table.exit([item], Counter.STRUCTURED, ends_region=True))
    assert (entry.dynamic, entry.structured) == (1, 0)


def test_if_present_without_a_place(table):
    """An item with if_present whose elements have no strides in an entry is ignored, where others are an error."""
    enter(table, view(0, (4, 3), (32, 8)))
    assert enter(table, view(0, (8,), (16,), ALLOC, if_present=True)).counted == []
    with pytest.raises(MapError, match="no strides"):
        table.enter([view(0, (8,), (16,), ALLOC)])


def test_zeroes(table):
    """Only an entry that an item with zeroes makes begins with zeros."""
    plan = enter(table, x(0, 10, ALLOC, zeroes=True), x(20, 30, ALLOC))
    assert plan.zeroed == [plan.entries[0]]
    assert enter(table, x(0, 10, ALLOC, zeroes=True)).zeroed == []
    assert enter(table, x(40, 50, FROM, zeroes=True), x(42, 44, ALLOC)).zeroed == [table.at(x(40, 50).section)]


def test_zeroes_with_an_ignored_item(table):
    """An item that is ignored makes nothing that could begin with zeros."""
    assert enter(table, x(0, 10, ALLOC, zeroes=True, if_present=True)).zeroed == []


@pytest.mark.parametrize("map_type", [FROM, RELEASE])
def test_finalizes(table, map_type):
    """With finalizes an exit takes all dynamic references at once, and copies back if nothing holds the data then."""
    enter(table, x(0, 10))
    (entry,) = enter(table, x(0, 10)).counted
    plan = table.exit([x(0, 10, map_type)], finalizes=True)
    table.commit(plan)
    assert plan.removed == [entry]
    assert len(plan.copies) == (1 if map_type is FROM else 0)


def test_finalizes_in_a_region(table):
    """With finalizes an exit leaves the structured references, and then copies nothing; what is absent is ignored."""
    (entry,) = enter_structured(table, x(0, 10)).created
    enter(table, x(0, 10))
    plan = table.exit([x(0, 10, FROM), x(20, 30, FROM), x(3, 3, FROM)], finalizes=True)
    table.commit(plan)
    assert (plan.entries, plan.copies, plan.removed) == ([entry, None, None], [], [])
    assert (entry.dynamic, entry.structured) == (0, 1)


def test_finalizes_what_nothing_ends(table):
    """With finalizes an exit leaves an infinite count as it is."""
    entry = table.insert(x(0, 10), object(), Origin.ASSOCIATED)
    table.commit(table.exit([x(0, 10, FROM)], finalizes=True))
    assert entry.count == inf


@pytest.mark.parametrize("counter", list(Counter))
def test_an_entry_that_only_counts(table, counter):
    """What finds everything present only counts, in its own counter, and so does its end while something is left."""
    (entry,) = enter(table, x(0, 10)).created
    plan = table.enter([x(0, 10), x(2, 4)], counter)
    assert plan.only_counts
    table.commit(plan)
    assert (entry.dynamic, entry.structured) == ((2, 0) if counter is Counter.DYNAMIC else (1, 1))
    assert table.stays(plan)
    assert table.leave(plan)
    assert (entry.dynamic, entry.structured) == (1, 0)
    plan = table.enter([x(0, 10)], counter)
    table.commit(plan)
    table.commit(table.exit([x(0, 10, DELETE)]))
    if counter is Counter.STRUCTURED:
        assert not table.stays(plan)
        assert not table.leave(plan), "the end of the region removes it"
        assert (entry.structured, table.live()) == (1, 1)


@pytest.mark.parametrize(
    "item", [x(20, 30), x(20, 30, if_present=True), x(0, 10, always=True), x(3, 3), x(0, 10, DELETE)]
)
def test_an_entry_that_does_more_than_count(table, item):
    """An entry with more to do than to count, or to ignore, says so, and its end is planned."""
    enter(table, x(0, 10))
    plan = table.enter([x(0, 10), item], Counter.STRUCTURED)
    table.commit(plan, [object()] * len(plan.created))
    assert not plan.only_counts
    before = state(table)
    assert not table.stays(plan)
    assert state(table) == before


def test_messages_of_clauses(table):
    """A message calls an item as its clause does."""
    with pytest.raises(NotPresentError, match=r"present\(x\[0:10\]\) is not present on device 1.*data region"):
        table.enter([x(0, 10, ALLOC, present=True, clause="present")])
    enter(table, x(0, 10))
    with pytest.raises(ExtensionError, match=r"copyin\(x\[5:15\]\) extends x\[0:10\]"):
        table.enter([x(5, 15, TO, clause="copyin")])
    with pytest.raises(NotPresentError, match=r"update self\(x\[5:15\]\) is present in part only"):
        table.update([x(5, 15, FROM, present=True, clause="update self")])


# -- what a rehearsal notes of both counters ----------------------------------------------------------
@pytest.fixture
def shadow(table):
    """A rehearsal over a table with one entry that both counters hold."""
    enter(table, x(0, 10))
    enter_structured(table, x(0, 10))
    return ShadowTable(table, lambda entry: entry.section)


def test_shadow_region(shadow):
    """A structured region over what is present may be repeated; an update of the host writes nothing there."""
    enter_structured(shadow, x(0, 10), x(2, 4), x(53, 53), x(50, 60, if_present=True))
    assert shadow.update([x(2, 4, FROM), x(0, 10, FROM)]) != []
    shadow.commit(shadow.exit([x(0, 10), x(2, 4)], Counter.STRUCTURED, ends_region=True))
    noted = shadow.noted()
    assert [(use.writes, use.follows_users) for use in noted.uses] == [(False, False)]
    assert noted.absent == [x(50, 60).section], "what if_present found absent has to be so again"
    assert noted.copied_back == []


def test_shadow_with_storage_of_its_own(shadow):
    """What the region maps itself may be copied back by an update, and both are noted."""
    enter_structured(shadow, x(20, 30, zeroes=True))
    assert shadow.update([x(20, 30, FROM)]) != []
    shadow.commit(shadow.exit([x(20, 30, ALLOC)], Counter.STRUCTURED))
    noted = shadow.noted()
    assert (noted.uses, noted.absent, noted.copied_back) == ([], [x(20, 30).section], [x(20, 30).section])


@pytest.mark.parametrize(
    ("counter", "more"),
    [(Counter.DYNAMIC, {}), (Counter.DYNAMIC, {"finalizes": True}), (Counter.STRUCTURED, {"ends_region": True})],
)
def test_shadow_refuses_to_end_either_counter(shadow, counter, more):
    """A region that takes a reference of either counter that was there before cannot be repeated."""
    with pytest.raises(NotCapturableError, match="ends a mapping"):
        shadow.exit([x(0, 10)], counter, **more)


class Remembered:
    """A work to be remembered."""

    is_forgotten = False

    def __init__(self, key="key"):
        self.key = key

    def forget(self):
        self.is_forgotten = True


def test_remembered_until_an_entry_goes():
    """What is remembered holds while no entry goes; then it is told, and goes with that entry."""
    table = PresentTable()
    enter(table, x(0, 4), x(8, 12))
    first, second = Remembered(), Remembered()
    assert table.remember(first) == []
    assert table.remember(second) == [first]
    assert first.is_forgotten
    state = table.state
    enter(table, x(0, 4))
    exit_(table, x(0, 4))
    assert table.remembered == {"key": second}
    assert table.state is state
    assert not second.is_forgotten
    (gone,) = exit_(table, x(8, 12)).removed
    assert table.remembered == {}
    assert table.state is not state
    assert second.is_forgotten
    assert gone.outlived == {"key": second}


def test_an_entry_is_counted_again_until_one_goes():
    """What has found everything present is carried out again as it was, until an entry goes; then it counts nothing."""
    table = PresentTable()
    enter(table, x(0, 10), x(20, 30))
    plan = enter(table, x(0, 10), x(2, 4))
    (entry,) = plan.counted
    assert entry.dynamic == 2
    table.commit(plan)
    assert entry.dynamic == 3
    assert table.leave(plan)
    assert table.leave(plan)
    exit_(table, x(20, 30))
    with pytest.raises(InternalError):
        table.commit(plan)
    assert entry.dynamic == 1


def test_remembered_is_little():
    """A table with many things to remember forgets them all from time to time."""
    table = PresentTable()
    dropped = [table.remember(Remembered(key)) for key in range(5000)]
    assert len(table.remembered) <= 1024
    assert sum(len(some) for some in dropped if some) + len(table.remembered) == 5000
