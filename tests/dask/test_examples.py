"""The examples for clusters run, with warnings as errors."""

from __future__ import annotations

import pytest

from tests.test_examples import EXAMPLES, check_run

OF_CLUSTERS = [path for path in EXAMPLES if path.stem.startswith("cluster_")]


@pytest.mark.slow
@pytest.mark.parametrize("path", OF_CLUSTERS, ids=lambda path: path.stem)
def test_example(path, tmp_path):
    """An example ends well on worker processes, checks itself, and leaves nothing behind."""
    check_run(path, "sim", tmp_path)


def test_there_are_examples():
    """A name that finds nothing would pass."""
    assert len(OF_CLUSTERS) == 4
