"""docs/conformance.md says what the tests of tests/conformance mirror."""

from __future__ import annotations

import pytest

from tests.conformance import table


@pytest.fixture(scope="module")
def cases():
    return table.Cases()


def test_the_page_is_up_to_date(cases):
    """Made again with the results that it has, the page is what it is: cases, tests and reasons are those of today."""
    text = table.PAGE.read_text(encoding="utf-8")
    results, machine = table.results_in(text)
    assert results.keys() == cases.tests.keys(), "make it again: python -m tests.conformance.table"
    assert text == table.page(cases, results, machine), "make it again: python -m tests.conformance.table"


def test_the_simulated_devices_pass(cases):
    """On the simulated devices every mirrored case passed when the page was made."""
    results, _ = table.results_in(table.PAGE.read_text(encoding="utf-8"))
    wrong = {case: found for case, found in results.items() if {found["sim:1"], found["sim:2"]} != {"passed"}}
    assert not wrong


def test_the_column_for_cuda_is_that_of_the_file():
    """What the page says of CUDA is what the file of the run there says, and nothing without one."""
    results, machine = table.results_in(table.PAGE.read_text(encoding="utf-8"))
    kept = table.cuda_results()
    assert machine == kept["machine"], "make it again: python -m tests.conformance.table"
    assert {case: found["cuda"] for case, found in results.items()} == {
        case: kept["results"].get(case, "not run") for case in results
    }


def test_citations():
    """A docstring cites the files before its first colon, and nothing else."""
    assert table.citations("a/b.c, c/d.cpp: what\nthey say: e.c") == ["a/b.c", "c/d.cpp"]
    assert table.citations("A sentence about x.c and no case.") == []


def test_citations_mean_one_case_each(cases):
    """Braces stand for each of their words, the ellipsis for a part of a path; what means nothing is an error."""
    assert len(cases.cited("offload/…/strided_{partial,multiple}_update_{from,to}.c")) == 4
    for wrong in ("nothing.c", "4.5/…"):
        with pytest.raises(ValueError, match=r"cases\.toml"):
            cases.cited(wrong)
