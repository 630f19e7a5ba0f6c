"""Where an array of another library is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from offload.constructs.clauses.binding import is_at


@pytest.mark.parametrize(("kind", "index", "found"), [(2, 1, True), (13, 1, True), (2, 0, False), (10, 1, False)])
def test_where_an_array_is_makes_no_view(kind: int, index: int, found: bool) -> None:
    """DLPack's device says it; to export the array might have streams wait for each other."""
    place: Any = SimpleNamespace(device=SimpleNamespace(space=("cuda", 1)))
    assert is_at(place, SimpleNamespace(__dlpack_device__=lambda: (kind, index))) is found
