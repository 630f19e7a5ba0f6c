"""``pytest --sanitize``: tests/conformance under the sanitizer.

Every runtime is sanitized, and the files of tests/conformance have tracked arrays. A test that has findings needs a
mark: ``looks_at_stale_data(reason)`` or ``races_on_purpose(reason)``. At the end each mark needs a finding.
`OFFLOAD_SEED` gives a schedule.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

import pytest

import offload as omp
from offload.runtime import sanitized
from offload.sanitizer import report
from offload.sanitizer.imports import tracked_imports
from tests.conformance.findings import always_has_findings, why_findings, why_not_sanitized

FOLDER = Path(__file__).parents[1] / "conformance"
MARKS = {
    "race": "races_on_purpose",
    "stale-host": "looks_at_stale_data",
    "stale-device": "looks_at_stale_data",
    "uninitialised": "looks_at_stale_data",
    "leak": "looks_at_stale_data",
}
"""The mark of a test that has a finding of a rule."""


def is_simulated(item):
    """Tell whether a test can run under the sanitizer: on simulated devices, or on none."""
    given = item.callspec.params if hasattr(item, "callspec") else {}
    devices = str(given.get("devices", "sim"))
    return item.get_closest_marker("gpu") is None and all(
        part.startswith(("sim", "none")) for part in devices.split(",")
    )


class SanitizedTests:
    """Holds the findings of each test against its marks."""

    def __init__(self):
        self.marked = set()
        self.rules = {}  # of the findings, by the test
        self.stack = ExitStack()

    def begin(self):
        """Sanitize all runtimes from now on, without their reports: tests look at what is printed."""
        patch = self.stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(omp.Runtime, "sanitizes_always", True)
        patch.setattr(sanitized, "keeps_summaries", True)
        patch.setattr(report, "show", lambda *_: None)
        self.stack.enter_context(tracked_imports(FOLDER))
        self.stack.callback(sanitized.summaries.clear)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config, items):
        """Keep the tests that can run here, and mark them."""
        kept = [item for item in items if FOLDER in item.path.parents and is_simulated(item)]
        kept = [item for item in kept if why_not_sanitized(place_of(item)) is None]
        chosen = set(kept)
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = kept
        for item in items:
            for name, reason in why_findings(place_of(item)):
                item.add_marker(getattr(pytest.mark, name)(reason))

    def pytest_collection_finish(self, session):
        for item in session.items:
            marks = {name for name in MARKS.values() if item.get_closest_marker(name) is not None}
            place = place_of(item)
            self.marked |= {(name, place) for name in marks if always_has_findings(name, place)}

    def pytest_runtest_setup(self, item):
        sanitized.summaries.clear()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item):
        """Fail a test with findings that it has no mark for."""
        yield
        findings = [finding for summary in sanitized.summaries for finding in summary.findings]
        sanitized.summaries.clear()
        unmarked = []
        for finding in findings:
            self.rules.setdefault(place_of(item), set()).add(finding.rule)
            if item.get_closest_marker(MARKS[finding.rule]) is None:
                unmarked.append(f"{finding.rule} of {finding.item}: {finding.first}, {finding.second}")
        if unmarked:
            pytest.fail("findings of a test that has no mark for them:\n" + "\n".join(unmarked), pytrace=False)

    def pytest_terminal_summary(self, terminalreporter):
        for name, place in self._without():
            terminalreporter.write_line(f"{place} has the mark {name}, and no finding for it")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session):
        if self._without() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _without(self):
        """Return the marks without a finding, where this process has run all tests."""
        if "PYTEST_XDIST_WORKER" in os.environ:
            return []
        return [
            (name, place)
            for name, place in sorted(self.marked)
            if name not in {MARKS[rule] for rule in self.rules.get(place, ())}
        ]


def place_of(item):
    """Return the file and the function of a test, as ``openacc/test_wait.py::test_wait``."""
    return f"{item.path.relative_to(FOLDER).as_posix()}::{item.originalname}"
