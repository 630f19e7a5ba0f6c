"""``benchmarks/run.py loops``: loop functions beside Numba, and what compiling takes."""

from __future__ import annotations

import importlib.util
import json
import shutil

import numpy as np
import pytest

from benchmarks.loops import complexes, failing, host, layouts, nests, probably, programs, rows, scans, speculation
from benchmarks.run import main
from offload.errors import InternalError
from offload.loops.running.build import builder

pytestmark = pytest.mark.bench


def test_every_sample_is_in_json(capsys):
    """JSON has a sample for each loop and turn, beside Numba's if that is here, and says how a short call is priced."""
    assert main(["loops", "--section", "host", "--repeat", "2", "--quick", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    tables = figures["sections"]["host"]["tables"]
    rows = tables["host"]["rows"]
    names = {case.name for case in programs.cases(0.001)}
    assert all(len(rows[name][one]) == 2 for name in (host.UNCHECKED, host.CHECKED) for one in names)
    assert (host.PEER in rows) == (importlib.util.find_spec("numba") is not None)
    call = tables["host_call"]["rows"]
    beyond = [ours - null for ours, null in zip(*(call[name]["µs"] for name in host.CALLS), strict=True)]
    assert call[host.BEYOND]["µs"] == pytest.approx(beyond)


def test_compiling_is_measured_with_an_empty_cache(capsys, tmp_path, monkeypatch):
    """A first process compiles, a second one finds what that has made; the user's own cache is not touched."""
    assert builder.compiler is None or builder.pool  # chosen by now: the command says which
    monkeypatch.setenv("OFFLOAD_CACHE_DIR", str(tmp_path))
    assert main(["loops", "--section", "compile", "--repeat", "1", "--json"]) == 0
    tables = json.loads(capsys.readouterr().out)["sections"]["compile"]["tables"]
    rows = tables["compile"]["rows"]
    assert all(us[0] > 0 for us in tables["hits"]["rows"]["found again"].values())
    assert {len(row) for row in rows.values()} == {len(programs.cases(0.001))}
    assert not list(tmp_path.iterdir())


def test_types_are_measured_beside_digits_by_hand(capsys):
    """Each pair of loops has the same result and a ratio for each turn."""
    assert main(["loops", "--section", "types", "--repeat", "2", "--quick", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["sections"]["types"]["tables"]["types_host"]["rows"]
    assert set(found) == {layouts.TYPES, layouts.BY_HAND, f"{layouts.BY_HAND} / {layouts.TYPES}"}
    assert all(len(samples) == 2 for row in found.values() for samples in row.values())


def test_both_texts_of_a_solve_are_measured(capsys):
    """Helpers that take rows, and indices written out, are compiled and run next to each other."""
    assert main(["loops", "--section", "rows", "--repeat", "1", "--quick", "--json"]) == 0
    tables = json.loads(capsys.readouterr().out)["sections"]["rows"]["tables"]
    assert tables["compile"]["rows"].keys() == rows.LOOPS.keys()
    assert tables["host"]["rows"].keys() > rows.LOOPS.keys()


def test_a_wrong_result_is_no_figure(monkeypatch):
    """Results are compared before anything is timed."""
    wrong = programs.cases(0.001)[0]
    monkeypatch.setattr(
        programs, "cases", lambda _: [programs.Case(wrong.function, wrong.arguments, wrong.expected + 1)]
    )
    with pytest.raises(InternalError, match="saxpy"):
        host.measure(1, 0.001)


def test_cases_are_what_numpy_computes():
    """What a case expects is not what a loop that does nothing leaves."""
    for case in programs.cases(0.001):
        assert not case.is_right(lambda *_: None)
        assert case.is_right(lambda *arguments, case=case: np.copyto(arguments[-1], case.expected))


@pytest.mark.skipif(builder.compiler is None, reason="the peer is C")
def test_loops_of_complex_numbers_are_checked_beside_c(capsys):
    """Each loop gives the result of C by hand; on a machine without CUDA that section is left out."""
    assert main(["loops", "--section", "complex", "--repeat", "1", "--quick", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["sections"]["complex"]["tables"]["complex"]["rows"]
    assert list(rows[complexes.OURS]) == list(rows[complexes.PEER]) == list(complexes.cases(0.001))


def test_what_cannot_be_measured(capsys):
    """A mistake in an option is an error that names it."""
    assert main(["loops", "--repeat", "0"]) == 2
    assert "--repeat" in capsys.readouterr().err


@pytest.mark.skipif(shutil.which("gcc") is None, reason="serial C is compiled by gcc")
def test_programs_that_are_probably_parallel_are_checked_and_told_as_they_come(capsys):
    """All forms of all six programs give one result; what is measured of one is printed before the next."""
    assert main(["loops", "--section", "speculation", "--scale", "0.0003", "--repeat", "1", "--json"]) == 0
    said = capsys.readouterr()
    figures = json.loads(said.out)
    whole = figures["sections"]["speculation"]["tables"]["speculation"]["rows"]
    names = [program.name for program in probably.programs(0.0003)]
    assert {row: list(of) for row, of in whole.items()} == dict.fromkeys(
        (speculation.PLAIN, speculation.LOGGED, speculation.REMEMBERED, speculation.SERIAL), names
    )
    failed = figures["sections"]["speculation"]["tables"]["failing"]["rows"]
    columns = ["inspected", "inspected, first call", "raced", "raced, first call"]
    assert {row: list(of) for row, of in failed.items()} == dict.fromkeys(
        (failing.OURS, failing.IN_ORDER, failing.COPIES), columns
    )
    places = [said.err.index(f"speculation: {name}, ") for name in names]
    assert places == sorted(places)


def test_functions_with_several_nests_are_measured(capsys):
    """Each function has a figure for each choice, and the best single choice is compared with ours."""
    assert main(["loops", "--section", "nests", "--scale", "0.00001", "--repeat", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    rows = found["sections"]["nests"]["tables"]["nests"]["rows"]
    assert {len(of) for of in rows.values()} == {10, 4}
    assert len(rows[nests.OURS]) == 10
    assert found["targets"][0]["figure"] > 0


def test_a_log_that_writes_something_else_is_no_figure(monkeypatch):
    """A form whose result differs ends the benchmark."""
    right = speculation._whole_s

    def wrong(program, name, loops, n_steps):
        took_s = right(program, name, loops, n_steps)
        if name == speculation.LOGGED:
            program.arrays[program.written[0]][0] += 1
        return took_s

    monkeypatch.setattr(speculation, "_whole_s", wrong)
    with pytest.raises(InternalError, match=speculation.LOGGED):
        speculation.measure(1, 0.0001)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="serial C is compiled by gcc")
def test_loops_that_carry_scalars_are_beside_serial_c(capsys):
    """Each loop has a figure in order, and the scan of integers one in parallel."""
    assert main(["loops", "--section", "scans", "--repeat", "1", "--quick", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["sections"]["scans"]["tables"]["in_order"]["rows"]
    assert rows[scans.IN_ORDER].keys() == rows[scans.SERIAL].keys() > rows[scans.PARALLEL].keys()
