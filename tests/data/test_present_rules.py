"""The present table against a model: a dictionary from sets of bytes to counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload.arrays.sections import HOST, section_of
from offload.data.entries import correspond
from offload.data.items import MapItem
from offload.data.maptypes import MapConstruct, MapType, types_of
from offload.data.present_table import PresentTable
from offload.errors import ExtensionError, MapError, NotPresentError

ENTRY_TYPES = types_of(MapConstruct.TARGET)
EXIT_TYPES = tuple(MapType)


@st.composite
def items(draw, types):
    """Return an item in a few bytes: dense, a tile of a matrix with rows of 8, or empty."""
    kind = draw(st.sampled_from(["dense", "dense", "tile", "every other", "empty"]))
    if kind == "dense":
        address, shape, strides = draw(st.integers(0, 31)), (draw(st.integers(1, 10)),), (1,)
    elif kind == "tile":
        address, strides = 8 * draw(st.integers(0, 3)) + draw(st.integers(0, 7)), (8, 1)
        shape = (draw(st.integers(1, 3)), draw(st.integers(1, 8 - address % 8)))
        if draw(st.booleans()):
            shape, strides = shape[::-1], strides[::-1]
    elif kind == "every other":
        address, shape, strides = draw(st.integers(0, 31)), (draw(st.integers(1, 6)),), (2,)
    else:
        address, shape, strides = draw(st.integers(0, 31)), (0,), (1,)
    section = section_of(HOST, address, shape, strides, 1)
    flags = draw(st.sampled_from([(False, False)] * 4 + [(True, False), (False, True)]))
    return MapItem(section, address, shape, strides, 1, draw(st.sampled_from(types)), *flags)


def places(item):
    """Return the address of each element and its index."""
    index = [()]
    for n in item.shape:
        index = [(*i, k) for i in index for k in range(n)]
    return {item.address + sum(k * s for k, s in zip(i, item.strides, strict=True)): i for i in index}


def storage_of(item):
    return frozenset(places(item))


def holder(model, item):
    """Return the model's entry that holds the item, and whether one holds a part of it only."""
    wanted = storage_of(item) or frozenset([item.address])
    whole = [key for key in model if wanted <= key]
    return (whole[0] if whole else None), not whole and any(wanted & key for key in model)


def has_place(item, key):
    """Tell whether strides lead through the item's elements where those of an entry lie without its gaps."""
    packed = {byte: place for place, byte in enumerate(sorted(key))}
    found = {index: packed[byte] for byte, index in places(item).items()}
    first = found.get((0,) * len(item.shape), 0)
    strides = [
        found[tuple(int(axis == other) for other in range(len(item.shape)))] - first if n > 1 else 0
        for axis, n in enumerate(item.shape)
    ]
    return all(
        place == first + sum(k * stride for k, stride in zip(index, strides, strict=True))
        for index, place in found.items()
    )


def expected_entry(model, construct):
    """Return the error expected at an entry, else (new model, bytes copied in)."""
    hits = [holder(model, item) for item in construct]
    if any(item.present and key is None for item, (key, _) in zip(construct, hits, strict=True)):
        return NotPresentError
    if any(item.shape != (0,) and is_partial for item, (_, is_partial) in zip(construct, hits, strict=True)):
        return ExtensionError
    if not all(key is None or has_place(item, key) for item, (key, _) in zip(construct, hits, strict=True)):
        return MapError
    new: set[frozenset[int]] = set()
    absent = [storage_of(i) for i, (key, _) in zip(construct, hits, strict=True) if key is None and storage_of(i)]
    for wanted in sorted(absent, key=len, reverse=True):
        if any(wanted <= key for key in new):
            continue
        if any(wanted & key for key in new):
            return MapError
        new.add(wanted)
    inside = [(item, [key for key in new if storage_of(item) <= key]) for item in construct if storage_of(item)]
    if not all(has_place(item, key) for item, keys in inside for key in keys):
        return MapError
    after = {**model, **dict.fromkeys(new, 0)}
    copied: set[int] = set()
    counted = set()
    for item in construct:
        key, _ = holder(after, item)
        if key is None or not storage_of(item):
            continue
        counted.add(key)
        if item.map_type.copies_in and (key in new or item.always):
            copied |= storage_of(item)
    return {key: count + (key in counted) for key, count in after.items()}, copied


def expected_exit(model, construct):
    """Return the error expected at an exit, else (new model, bytes copied out)."""
    hits = [holder(model, item)[0] for item in construct]
    if any(item.present and key is None for item, key in zip(construct, hits, strict=True)):
        return NotPresentError
    if not all(key is None or has_place(item, key) for item, key in zip(construct, hits, strict=True)):
        return MapError
    pairs = [(i, key) for i, key in zip(construct, hits, strict=True) if key is not None and storage_of(i)]
    after = dict(model)
    for key in {key for _, key in pairs}:
        is_deleted = any(i.map_type is MapType.DELETE for i, k in pairs if k == key)
        after[key] = 0 if is_deleted else after[key] - 1
    copied: set[int] = set()
    for item, key in pairs:
        if item.map_type.copies_out and (after[key] == 0 or item.always):
            copied |= storage_of(item)
    return {key: count for key, count in after.items() if count}, copied


def check(table, model):
    """Hold the table and its index against the model."""
    actual = {frozenset(byte for row in rows(e.section) for byte in row): e.count for e in table.entries()}
    assert actual == model
    assert table.live() == len(model)
    assert all(count > 0 for count in model.values())
    index = table._index
    for entries, starts in ((index.dense, index.dense_starts), (index.packed, index.packed_starts)):
        assert starts == sorted(starts) == [entry.section.address for entry in entries]
    assert len(index.dense) + len(index.packed) == len(model)


def rows(section):
    starts = [section.address]
    for n, stride in section.dims:
        starts = [start + k * stride for start in starts for k in range(n)]
    return [range(start, start + section.run_nbytes) for start in starts]


def check_correspondence(plan):
    """Every element of an item lies in its entry's buffer, two elements in one place only if they are the same byte."""
    for item, entry in zip(plan.items, plan.entries, strict=True):
        if entry is None:
            continue
        packed = [byte for row in sorted(rows(entry.section), key=lambda row: row.start) for byte in row]
        offset, strides = correspond(entry, item.address, item.shape, item.strides, 1)
        for byte, index in places(item).items():
            place = offset + sum(k * s for k, s in zip(index, strides, strict=True))
            assert packed[place] == byte


@given(st.data())
def test_table_follows_the_model(data):
    """After any sequence of entries, exits, undos and releases, counts, copies and errors are the model's."""
    table, model = PresentTable(), {}
    for _ in range(data.draw(st.integers(1, 12))):
        action = data.draw(st.sampled_from(["enter", "enter", "exit", "undo", "release", "find"]))
        if action in {"enter", "undo"}:
            construct = data.draw(st.lists(items(ENTRY_TYPES), max_size=3))
            expected = expected_entry(model, construct)
            if isinstance(expected, type):
                with pytest.raises(expected) as caught:
                    table.enter(construct)
                assert type(caught.value) is expected
            else:
                plan = table.enter(construct)
                check(table, model)  # a plan changes nothing
                table.commit(plan, [object()] * len(plan.created))
                assert set().union(*[storage_of(item) for item, _ in plan.copies]) == expected[1]
                check_correspondence(plan)
                if action == "enter":
                    model = expected[0]
                else:
                    assert set(table.undo(plan)) == set(plan.created)
        elif action == "exit":
            construct = data.draw(st.lists(items(EXIT_TYPES), max_size=3))
            expected = expected_exit(model, construct)
            if isinstance(expected, type):
                with pytest.raises(expected):
                    table.exit(construct)
            else:
                plan = table.exit(construct)
                check(table, model)
                table.commit(plan)
                model, copied = expected
                assert set().union(*[storage_of(item) for item, _ in plan.copies]) == copied
                assert all(entry.count == 0 for entry in plan.removed)
        elif action == "release":
            construct = data.draw(st.lists(items([MapType.RELEASE]), max_size=3))
            for item in construct:
                item.present = False
            plan = table.exit(construct)
            table.commit(plan)
            assert plan.copies == []
            model = expected_exit(model, construct)[0]
        else:
            item = data.draw(items(ENTRY_TYPES))
            key, is_partial = holder(model, item)
            if is_partial:
                with pytest.raises(ExtensionError):
                    table.find(item.section)
            else:
                assert (table.find(item.section) is None) == (key is None)
        check(table, model)


@given(st.lists(st.lists(items(ENTRY_TYPES), max_size=3), max_size=8))
def test_balanced_regions_leave_nothing(constructs):
    """Regions that end in the reverse order, or in the same, leave no entry."""
    for is_nested in (True, False):
        table = PresentTable()
        open_ = []
        for construct in constructs:
            try:
                plan = table.enter(construct)
            except MapError:
                continue
            table.commit(plan, [object()] * len(plan.created))
            open_.append(plan.items)
        for opened in reversed(open_) if is_nested else open_:
            for item in opened:
                item.present = False
            table.commit(table.exit(opened))
        assert table.live() == 0
