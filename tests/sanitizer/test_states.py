"""The state of each mapped byte, against a model that keeps each byte by itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count, pairwise
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from offload.arrays.sections import HOST, section_of
from offload.sanitizer.states import FindingRule, MappedBytes, PackedRows, Spans, States, runs_of
from tests.profiles import examples

END = 24
ACCESSES = ("device_write", "device_read", "host_write", "host_read")


@dataclass
class OneMapping:
    """A mapping of the model: the condition of each of its bytes."""

    real: MappedBytes
    bytes: dict[int, tuple[str, Any]]


@dataclass
class ByteModel:
    """The rules of the reference, written for single bytes."""

    host: dict[int, tuple[Any, Any]] = field(default_factory=dict)
    live: list[OneMapping] = field(default_factory=list)

    def at(self, byte: int) -> list[OneMapping]:
        return [one for one in self.live if byte in one.bytes]

    def write_host(self, byte: int, by: Any, copied: Any = None) -> None:
        self.host.pop(byte, None)
        for one in self.at(byte):
            if copied is not None and one.bytes[byte] == copied and copied[0] == "device":
                one.bytes[byte] = "same", None
            elif one.bytes[byte][0] != "unwritten":
                one.bytes[byte] = "host", by

    def read_host(self, byte: int) -> set[tuple[Any, ...]]:
        newer = [one for one in self.at(byte) if one.bytes[byte][0] == "device"]
        if newer:
            return {(FindingRule.STALE_HOST, one.bytes[byte][1], None) for one in newer}
        if byte not in self.host:
            return set()
        by, ended = self.host[byte]
        return {(FindingRule.UNINITIALISED if ended is None else FindingRule.STALE_HOST, by, ended)}

    def read_device(self, one: OneMapping, byte: int) -> set[tuple[Any, ...]]:
        kind, by = one.bytes[byte]
        rules = {"unwritten": FindingRule.UNINITIALISED, "host": FindingRule.STALE_DEVICE}
        return {(rules[kind], by, None)} if kind in rules else set()

    def copy_in(self, one: OneMapping, byte: int) -> None:
        one.bytes[byte] = "same", None
        if byte in self.host:
            by, ended = self.host[byte]
            if ended is None:
                one.bytes[byte] = "unwritten", by
            else:
                del self.host[byte]

    def copy_out(self, one: OneMapping, byte: int, by: Any) -> None:
        kind, _ = one.bytes[byte]
        if kind == "unwritten":
            self.host[byte] = by, None
        elif kind != "same":
            self.write_host(byte, by, one.bytes[byte])
            one.bytes[byte] = "same", None

    def end(self, one: OneMapping, by: Any, *, discards: bool) -> None:
        self.live.remove(one)
        for byte, (kind, writer) in one.bytes.items():
            if kind == "device" and not discards:
                self.host[byte] = writer, by


def bytes_of(runs: Any) -> list[int]:
    return [byte for lo, hi in runs for byte in range(lo, hi)]


def runs_from(chosen: set[int]) -> list[tuple[int, int]]:
    runs: list[list[int]] = []
    for byte in sorted(chosen):
        if runs and runs[-1][1] == byte:
            runs[-1][1] = byte + 1
        else:
            runs.append([byte, byte + 1])
    return [(lo, hi) for lo, hi in runs]


some_bytes = st.sets(st.integers(0, END - 1), min_size=1)
events = st.tuples(
    st.sampled_from(("map", "end", "discard", "in", "out", "across", "zero", "free", *ACCESSES)),
    st.integers(0, 5),
    some_bytes,
)


def faults_of(faults: Any) -> dict[int, set[tuple[Any, ...]]]:
    found: dict[int, set[tuple[Any, ...]]] = {}
    for fault in faults:
        for byte in bytes_of(fault.runs):
            found.setdefault(byte, set()).add((fault.rule, fault.first, fault.ended))
    return found


@settings(max_examples=examples(400))
@given(st.lists(events, max_size=30))
def test_states_are_those_of_single_bytes(program):
    """Each access has the faults that the rules say for each of its bytes, on several devices and after mappings."""
    states, model, tick = States(), ByteModel(), count()
    for kind, number, chosen in program:
        by = f"{kind} {next(tick)}"
        one = model.live[number % len(model.live)] if model.live else None
        if kind == "map":
            real = states.mapped(runs_from(chosen), by)
            model.live.append(OneMapping(real, dict.fromkeys(chosen, ("unwritten", by))))
        elif kind == "host_write":
            states.written_host(runs_from(chosen), by)
            for byte in chosen:
                model.write_host(byte, by)
        elif kind == "host_read":
            expected = {byte: found for byte in chosen if (found := model.read_host(byte))}
            found = faults_of(states.read_host(runs_from(chosen)))
            assert found.keys() == expected.keys()
            assert all(len(found[byte]) == 1 and found[byte] <= expected[byte] for byte in found)
        elif kind == "free":
            states.freed(min(chosen), max(chosen) + 1)
            for byte in range(min(chosen), max(chosen) + 1):
                model.host.pop(byte, None)
        elif one is not None:
            on_device(states, model, kind, one, chosen & one.bytes.keys(), by)


def on_device(states, model, kind, one, inside, by):
    if kind in ("end", "discard"):
        states.unmapped(one.real, by, discards=kind == "discard")
        model.end(one, by, discards=kind == "discard")
    elif kind == "zero":
        states.zeroed(one.real)
        one.bytes = dict.fromkeys(one.bytes, ("same", None))
    elif not inside:
        return
    elif kind == "in":
        states.copied_in(one.real, runs_from(inside), by)
        for byte in inside:
            model.copy_in(one, byte)
    elif kind == "out":
        assert bytes_of(states.changed(one.real, runs_from(inside))) == sorted(
            byte for byte in inside if one.bytes[byte][0] in ("device", "host")
        )
        states.copied_out(one.real, runs_from(inside), by)
        for byte in inside:
            model.copy_out(one, byte, by)
    elif kind == "across":
        other = model.live[-1]
        shared = inside & other.bytes.keys()
        if shared:
            states.copied_across(one.real, other.real, runs_from(shared))
            other.bytes.update({byte: one.bytes[byte] for byte in shared})
    elif kind == "device_write":
        states.written_device(one.real, runs_from(inside), by)
        one.bytes.update(dict.fromkeys(inside, ("device", by)))
    elif kind == "device_read":
        found = faults_of(states.read_device(one.real, runs_from(inside)))
        assert found == {byte: faults for byte in inside if (faults := model.read_device(one, byte))}


@settings(max_examples=examples(300))
@given(st.lists(st.tuples(some_bytes, st.integers(0, 3)), max_size=20), some_bytes)
def test_spans_keep_the_last_value_in_as_few_intervals_as_possible(changes, asked):
    """Intervals give each address the value that it was given last, and neighbours have different values."""
    spans: Spans[int] = Spans()
    values: dict[int, int | None] = {}
    for chosen, value in changes:
        spans.set(runs_from(chosen), value or None)
        values.update(dict.fromkeys(chosen, value or None))
    found = {byte: value for lo, hi, value in spans.pieces(runs_from(asked)) for byte in range(lo, hi)}
    assert found == {byte: values[byte] for byte in asked if values.get(byte) is not None}
    lo, hi = min(asked), max(asked) + 1
    assert spans.is_free(lo, hi) == all(values.get(byte) is None for byte in range(lo, hi))
    whole = [values.get(byte) for byte in range(-1, END + 1)]
    assert len(spans) == sum(a != b for a, b in pairwise(whole))


@given(st.lists(st.slices(6), min_size=2, max_size=2), st.booleans())
def test_a_section_is_its_bytes(slices, transposed):
    """The runs of a section are exactly the bytes of the view's elements."""
    whole = np.arange(36, dtype="i2").reshape(6, 6)
    view = whole[tuple(slices)]
    view = view.T if transposed else view
    address = view.__array_interface__["data"][0]
    section = section_of(HOST, address, view.shape, view.strides, view.itemsize)
    start = whole.__array_interface__["data"][0]
    expected = sorted(start + 2 * int(number) + byte for number in view.ravel() for byte in (0, 1))
    assert bytes_of(runs_of(section)) == expected


def test_packed_rows_lie_where_the_rows_of_the_host_lie():
    """A byte of a packed buffer has the host address of the same byte of the section."""
    section = section_of(HOST, 1000, (3, 2, 4), (100, 20, 2), 2)
    host = bytes_of(runs_of(section))
    rows = PackedRows(section)
    for lo in range(len(host)):
        for hi in range(lo + 1, len(host) + 1):
            assert bytes_of(rows.host_runs([(lo, hi)])) == host[lo:hi]


def test_a_copy_back_that_changes_nothing_leaves_the_host_alone():
    """Bytes that the device has not changed are not written on the host, nor newer there for another device."""
    states = States()
    one, other = states.mapped([(0, 8)], "first"), states.mapped([(0, 8)], "second")
    for mapping in one, other:
        states.copied_in(mapping, [(0, 8)], "in")
    states.written_device(one, [(4, 8)], "write")
    assert states.changed(one, [(0, 8)]) == [(4, 8)]
    states.copied_out(one, [(0, 8)], "out")
    assert [(fault.runs, fault.first) for fault in states.read_device(other, [(0, 8)])] == [([(4, 8)], "out")]


def test_a_write_on_the_host_does_not_hide_what_the_device_has_changed():
    """A copy back after the write on the device has bytes to write, whoever has written on the host since."""
    states, runs = States(), [(0, 8)]
    mapping = states.mapped(runs, "construct")
    states.copied_in(mapping, runs, "in")
    states.written_device(mapping, [(4, 8)], "earlier")
    for by in "once", "again":
        states.written_host([(2, 8)], by)
        assert states.changed(mapping, runs, lambda by: by == "earlier") == [(4, 8)]
        assert states.changed(mapping, runs, lambda by: by == "later") == []
    states.copied_out(mapping, runs, "out")
    states.written_host(runs, "at last")
    assert states.changed(mapping, runs, lambda by: by == "earlier") == []
