"""Configuration of the whole suite: Hypothesis profiles, tracebacks of crashes, the count of GPU tests."""

from __future__ import annotations

import faulthandler
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import settings

if TYPE_CHECKING:
    import pytest

# `pytest --hypothesis-profile=soak` takes the other one.
settings.register_profile("ci", deadline=None, print_blob=True)  # a deadline measures the machine, not the code
settings.register_profile("soak", parent=settings.get_profile("ci"), max_examples=5_000)
settings.load_profile("ci")

if not faulthandler.is_enabled():  # pytest's own plugin may be off
    faulthandler.enable()


class GpuCount:
    """Counts the GPU tests that ran and those that were skipped, for a line at the end."""

    def __init__(self) -> None:
        self.selected: set[str] = set()
        self.n_skipped = 0
        self.n_files_skipped = 0

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        # A module-level importorskip("cupy") leaves no test to count.
        if report.skipped and "gpu" in Path(report.nodeid).parts:
            self.n_files_skipped += 1

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.selected = {item.nodeid for item in session.items if item.get_closest_marker("gpu")}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and report.nodeid in self.selected and not hasattr(report, "wasxfail"):
            self.n_skipped += 1

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.selected or self.n_files_skipped:
            n_run = len(self.selected) - self.n_skipped
            files = f", {self.n_files_skipped} whole file(s) skipped" if self.n_files_skipped else ""
            why = "" if n_run or not (self.n_skipped or files) else " (no GPU here)"
            terminalreporter.write_line(f"GPU tests: {n_run} run, {self.n_skipped} skipped{files}{why}")


def pytest_configure(config: pytest.Config) -> None:
    """Attach the count to this run."""
    config.pluginmanager.register(GpuCount(), "offload-gpu-count")
