"""`offload.constructs.clauses.sharing`: the arguments of a call under its clauses; without runtime and device."""

from __future__ import annotations

import numpy as np
import pytest

from offload import to
from offload.constructs.clauses.binding import Binding
from offload.constructs.clauses.mapping import map_items
from offload.constructs.clauses.names import VisibleNames
from offload.constructs.clauses.sharing import (
    CATEGORIES,
    ArgumentRules,
    check_defaultmap,
    check_sharing,
    has_rules,
)
from offload.data.maptypes import BEHAVIOURS, MapConstruct, MapType
from offload.errors import ClauseError


def body(a, b, *rest, k=None):
    """A function whose parameters the clauses name."""


def decide(args, kwargs=None, *, on_host=False, **clauses):
    names = VisibleNames(body)
    rules = ArgumentRules(clauses, names)
    visible = names.at_call(args, kwargs or {})
    binding = Binding.of(args, kwargs or {})
    binding.items = map_items(MapConstruct.TARGET, clauses.get("map", ()), visible)
    n_mapped = len(binding.items)
    rules.decide(binding, visible, on_host=on_host)
    del binding.items[:n_mapped]
    return binding


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_check_defaultmap(behaviour):
    """One behaviour stands for each category; a dictionary names them one by one."""
    everywhere = dict.fromkeys(CATEGORIES[:-1], behaviour)
    assert check_defaultmap(behaviour) == check_defaultmap({"all": behaviour}) == everywhere
    assert check_defaultmap({"aggregate": behaviour}) == {"aggregate": behaviour}


@pytest.mark.parametrize(
    "wrong", ["TO", "", None, 1, {"scalars": "to"}, {"scalar": "two"}, {"all": "to", "scalar": "to"}]
)
def test_check_defaultmap_refuses(wrong):
    """Unknown words, and a category that is named twice, are refused."""
    with pytest.raises(ClauseError):
        check_defaultmap(wrong)


def test_has_rules():
    """Only clauses that say something make rules; an empty list says nothing."""
    assert not has_rules({"map": [to("a")], "nowait": True, "private": ()})
    assert has_rules({"private": ("a",)})
    assert has_rules({"defaultmap": {"scalar": "none"}})


def test_check_sharing():
    """One item stands for a list of one; anything but strings and arrays is refused."""
    a = np.zeros(2)
    assert check_sharing("a") == ("a",)
    assert check_sharing([a, "b"])[0] is a
    for wrong in (3, None, [to("a")], [[a]], "a b"):
        with pytest.raises(ClauseError):
            check_sharing(wrong)


def test_slots():
    """Arguments are found by position and by keyword, strings by parameter and arrays by storage."""
    a, b = np.arange(4.0), np.zeros(3)
    decision = decide((a, b, a[:]), {"k": b}, firstprivate=("a", "k"))
    assert set(decision.privates) == {0, "k"}
    assert decision.privates[0].is_first
    assert decision.privates[0].host is not a
    assert set(decide((a, b, a[:]), {"k": a}, private=(a,)).privates) == {0, 2, "k"}
    assert decide((a, b), private=("k",)).privates == {}
    square = np.zeros((2, 3))
    assert decide((square.T, b), private=(square,)).privates[0].host.shape == (3, 2)


def test_contents_are_captured():
    """The copy of a firstprivate argument is C-ordered and does not follow the array."""
    a = np.arange(6.0).reshape(2, 3)
    private = decide((a.T, 0), firstprivate=("a",)).privates[0]
    a[...] = -1
    assert private.host.flags.c_contiguous
    assert (private.host == np.arange(6.0).reshape(2, 3).T).all()
    assert private.on_host() is not private.host


@pytest.mark.parametrize("behaviour", ["alloc", "to", "from", "tofrom", "present"])
def test_implicit_types(behaviour):
    """A behaviour maps what is in no clause, with its type; what a clause holds is left to it."""
    a, b = np.zeros(4), np.zeros(4)
    (item,) = decide((a[:2], b), map=(to("a"),), defaultmap=check_defaultmap(behaviour)).items
    assert item.host is b
    assert item.map_type is BEHAVIOURS[behaviour]
    assert item.present == (behaviour == "present")
    assert decide((a, b), defaultmap={"scalar": behaviour}).items == []


def test_read_only_arguments():
    """What cannot be written is mapped `to` where `tofrom` is the rule."""
    a = np.zeros(4)
    a.flags.writeable = False
    (item,) = decide((a, 0), defaultmap={"aggregate": "tofrom"}).items
    assert item.map_type is MapType.TO


def test_device_arrays():
    """A host array is a device array on the host only."""
    a = np.zeros(4)
    assert decide((a, 0), on_host=True, is_device_ptr=("a[1:2]",)).sections[0].shape == (2,)
    with pytest.raises(ClauseError, match="'a'"):
        decide((a, 0), is_device_ptr=("a",))


def test_names_at_the_call():
    """Errors at the call name the parameter, and the number of what a `*` parameter takes."""
    a = np.zeros(4)
    with pytest.raises(ClauseError, match="'b'"):
        decide((a, a + 1), map=(to("a"),), defaultmap={"aggregate": "none"})
    with pytest.raises(ClauseError, match=r"argument 'rest\[1\]'"):
        decide((1, 2, 3, a), defaultmap={"aggregate": "none"})
