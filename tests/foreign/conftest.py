"""The libraries that tests import, or are skipped without."""

from __future__ import annotations

from collections.abc import Iterator  # noqa: TC003  # pytest looks
from pathlib import Path
from typing import Any

import pytest

from offload.data.declarations import declarations
from tests.foreign.kinds import HAS, LIBRARIES, library


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of libraries that are not installed, but for the one that says so."""
    missing = {name for name, has in HAS.items() if not has}
    here = Path(__file__).parent
    left_out = [item for item in items if here in item.path.parents and missing & set(_fixtures(item))]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def _fixtures(item: pytest.Item) -> list[str]:
    return [name for mark in item.iter_markers("usefixtures") for name in mark.args]


def imported(module: str) -> Any:
    """Import a library; skip the test if it is not installed."""
    if not HAS[module]:
        pytest.skip(f"{LIBRARIES[module]} is not installed")
    return library(module)


@pytest.fixture
def torch() -> Any:
    """PyTorch."""
    return imported("torch")


@pytest.fixture
def jax() -> Any:
    """JAX."""
    return imported("jax")


@pytest.fixture(autouse=True)
def _declarations() -> Iterator[None]:
    """Arrays of other libraries that a test declares are not there for the next one."""
    yield
    declarations._kept.clear()
