"""`offload.constructs.clauses.mappers`: the table of types, and what a mapper makes of an object; no device is
needed."""

from __future__ import annotations

import numpy as np
import pytest

from offload import alloc, from_, to, tofrom
from offload.arrays.items import MAPPERS, mapper_of
from offload.constructs.clauses.mappers import Leaf, Modifiers, declare_mapper, expand, expand_object
from offload.data.maptypes import DECAY, MapConstruct, MapType, types_of
from offload.errors import ClauseError, MapError

REGION_TYPES = types_of(MapConstruct.DECLARE_MAPPER)


@pytest.fixture(autouse=True)
def _forget_mappers():
    """Mappers are registered for the process: forget those of a test."""
    before = dict(MAPPERS)
    yield
    MAPPERS.clear()
    MAPPERS.update(before)


class Thing:
    def __init__(self, *parts):
        self.x, self.y, self.z = np.zeros(3), np.zeros(4), np.zeros(5)
        self.parts = list(parts)


def things(item):
    yield to(item.x)
    yield from_(item.y, always=True)
    yield alloc(item.z, close=True)
    if item.parts:
        yield tofrom(*item.parts)


@pytest.mark.parametrize("outer", REGION_TYPES)
@pytest.mark.parametrize("inner", REGION_TYPES)
def test_decay_copies_where_both_copy(outer, inner):
    """The table of OpenMP 5.2, 5.8.8: an item is copied in a direction only if both types copy in it."""
    effective = DECAY[outer][inner]
    assert effective in REGION_TYPES
    assert effective.copies_in == (outer.copies_in and inner.copies_in)
    assert effective.copies_out == (outer.copies_out and inner.copies_out)


@pytest.mark.parametrize("outer", [MapType.RELEASE, MapType.DELETE])
def test_decay_of_release_and_delete(outer):
    """On exit data the object's type holds for all, and none of them is a type of a mapper's item."""
    assert DECAY[outer] == dict.fromkeys(REGION_TYPES, outer)
    assert not any(outer in row for row in DECAY.values())


def test_decay_is_associative():
    """It does not matter in which order nested mappers are taken."""
    for a in REGION_TYPES:
        for b in REGION_TYPES:
            for c in REGION_TYPES:
                assert DECAY[DECAY[a][b]][c] is DECAY[a][DECAY[b][c]]


def test_expand():
    """The leaves of an object, in order, with types decayed and modifiers united; an array is its own leaf."""
    declare_mapper(Thing, things)
    item = Thing(Thing())
    leaves = expand(item, MapType.TO)
    assert [leaf.map_type.word for leaf in leaves] == ["to", "alloc", "alloc"] * 2
    assert [leaf.modifiers for leaf in leaves[:3]] == [Modifiers(), Modifiers(always=True), Modifiers(close=True)]
    assert leaves[0].array is item.x
    assert leaves[3].array is item.parts[0].x
    assert [leaf.map_type.word for leaf in expand(item, MapType.DELETE)] == ["delete"] * 6
    assert expand(item.x, MapType.FROM) == [Leaf(item.x, MapType.FROM, Modifiers())]


def test_modifiers_of_the_clause_go_down():
    """What the outermost clause says holds for nested objects as well."""
    declare_mapper(Thing, things)
    expansion = expand_object(Thing(Thing()), MapType.TOFROM, None, Modifiers(present=True))
    assert all(leaf.modifiers.present for leaf in expansion.leaves())


def test_rebuilt_leaves_the_object_alone():
    """The copy has what corresponds in place of the mapped arrays; lists without mapped things are the same ones."""
    declare_mapper(Thing, things)
    item, inner = Thing(), Thing()
    item.parts = [inner]
    item.plain = [1, 2]
    copied = expand_object(item, MapType.TOFROM).rebuilt(lambda array: ("device", array.size))
    assert (copied.x, copied.y, copied.z) == (("device", 3), ("device", 4), ("device", 5))
    assert copied.parts[0].x == ("device", 3)
    assert copied.parts is not item.parts
    assert copied.plain is item.plain
    assert item.parts == [inner]
    assert isinstance(inner.x, np.ndarray)


def test_parts_of_what_is_mapped():
    """An attribute that lies in an array which the mapper maps corresponds to its part."""

    class Wide:
        def __init__(self):
            self.part = np.zeros(10)[2:4]

    declare_mapper(Wide, lambda wide: tofrom(wide.part.base))
    assert expand_object(Wide(), MapType.TO).rebuilt(lambda array: array.shape).part == (2,)


def test_look_up():
    """Without a declaration there is no mapper; a name is looked up for the nearest class that has it."""
    assert mapper_of(Thing()) is None

    class Child(Thing):
        pass

    declare_mapper(Thing, things)
    declare_mapper(Thing, lambda _: [], "empty")
    assert mapper_of(Child()) is things
    assert expand(Child(), MapType.TO, "empty") == []
    with pytest.raises(ClauseError, match="nope"):
        expand(Child(), MapType.TO, "nope")
    with pytest.raises(ClauseError):
        expand(3, MapType.TO)


def test_cycles():
    """An object that leads back to itself names the way; one that is reached twice does not."""
    declare_mapper(Thing, things)
    shared = Thing()
    assert len(expand(Thing(Thing(shared), Thing(shared)), MapType.TO)) == 15
    item = Thing()
    item.parts = [Thing(item)]
    with pytest.raises(MapError, match="Thing → Thing → Thing"):
        expand(item, MapType.TO)
