"""Properties of `offload.constructs.clauses.binding`: what the arguments of any call become; no device is needed."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from offload.arrays.items import array_section
from offload.arrays.sections import covers
from offload.constructs.clauses.binding import Binding
from offload.constructs.clauses.mapping import map_item
from offload.data.maptypes import MapType
from offload.data.memo import Layouts

NOWHERE = SimpleNamespace(device=None)
MEMORY = np.zeros((6, 8))
WHOLE = [MEMORY, np.zeros(5), np.zeros(())]


@st.composite
def arrays(draw):
    """Draw an array: a whole one, or a view of the matrix."""
    if draw(st.booleans()):
        return draw(st.sampled_from(WHOLE))
    rows, columns = (sorted(draw(st.tuples(st.integers(0, n), st.integers(0, n)))) for n in MEMORY.shape)
    view = MEMORY[slice(*rows), slice(*columns)]
    return view.T if draw(st.booleans()) else view


values = st.one_of(arrays(), st.integers(), st.floats(), st.none(), st.text(max_size=3))
calls = st.tuples(st.lists(values, max_size=5).map(tuple), st.dictionaries(st.sampled_from("uvw"), values))
mapped = st.lists(arrays(), max_size=3)


def items_of(listed):
    """Return the items of clauses that name these arrays."""
    return [map_item(array, MapType.TOFROM, "the item") for array in listed]


def bound(args, kwargs, listed):
    """Return the complete binding of a call."""
    binding = Binding.of(args, kwargs)
    binding.items = items_of(listed)
    return binding.complete(NOWHERE)


@given(calls, mapped)
def test_each_array_is_in_an_item(call, listed):
    """Each host array is bound once, in order, to an item that holds all of it; scalars are in no list."""
    args, kwargs = call
    binding = bound(args, kwargs, listed)
    given_arrays = [(slot, value) for slot, value in (*enumerate(args), *kwargs.items()) if hasattr(value, "shape")]
    assert [(slot, id(array)) for slot, array, *_ in binding.arrays] == [
        (slot, id(array)) for slot, array in given_arrays
    ]
    assert not binding.others
    for _, array, address, number in binding.arrays:
        held, holds = array_section(array), binding.items[number].section
        assert address == array.__array_interface__["data"][0]
        assert held == holds or (held.run_nbytes and covers(holds, held))


@given(calls, mapped)
def test_no_item_too_many(call, listed):
    """Items of clauses stay, in their order; one without a clause is of an array that none before it holds."""
    binding = bound(*call, listed)
    assert [item.host is array for item, array in zip(binding.items, listed, strict=False)] == [True] * len(listed)
    for number, item in enumerate(binding.items):
        assert item.implicit == (number >= len(listed))
        before = [other.section for other in binding.items[:number]]
        if item.implicit and item.section.run_nbytes:
            assert not any(other == item.section or covers(other, item.section) for other in before)


@given(st.lists(values, max_size=5).map(tuple), mapped)
def test_by_position(args, listed):
    """A call by position is bound alike where its arrays are known: array by array."""
    whole = bound(args, {}, listed)
    short = Binding((), {}, items_of(listed))
    for slot, array in [(slot, value) for slot, value in enumerate(args) if type(value) is np.ndarray]:
        short.add_array(slot, array)
    assert [(slot, address, number) for slot, _, address, number in short.arrays] == [
        (slot, address, number) for slot, _, address, number in whole.arrays
    ]
    assert [item.section for item in short.items] == [item.section for item in whole.items]


@given(calls, mapped)
def test_remembered_is_equal(call, listed):
    """What is to be remembered says of each array what is made anew, and holds as long as nothing has changed."""
    binding = Binding.of(*call)
    binding.items = items_of(listed)
    binding.key = ("the key",)
    binding.complete(NOWHERE)
    assert Layouts(binding.items).are_current()
    if binding.key is not None:
        assert all(binding.items[number].host is array for _, array, _, number in binding.arrays)


@given(calls, mapped)
def test_with_arguments(call, listed):
    """Another call's binding has the items of the clauses, and does not share what it adds."""
    first = Binding.of(*call)
    first.items = items_of(listed)
    n_before = len(first.items)
    first.with_arguments(*call).complete(NOWHERE)
    assert len(first.items) == n_before
    assert not first.arrays
