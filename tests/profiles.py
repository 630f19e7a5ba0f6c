"""How much the tests try: little by default, all of it in CI.

A property is tried with 15 examples by default, with 100 by ``--hypothesis-profile=full``, and with 5,000 by
``--hypothesis-profile=soak``. Of long parametrisations a few members run by default, and the others with ``-m slow``
(`few`). A test that takes its number of examples from `examples`, and is not one of Hypothesis's own, has the mark
``hypothesis``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

_QUICK, _FULL = 15, 100
_LEAST = 5

settings.register_profile("quick", deadline=None, print_blob=True, max_examples=_QUICK)  # deadlines measure the machine
settings.register_profile("full", parent=settings.get_profile("quick"), max_examples=_FULL)
settings.register_profile("soak", parent=settings.get_profile("full"), max_examples=5_000)


def is_soak() -> bool:
    """Tell whether the profile is ``soak``."""
    return settings.default.max_examples > 1_000


def examples(full: int, soak: int | None = None) -> int:
    """Return how many examples a test tries that has numbers of its own.

    Parameters
    ----------
    full : int
        With the profile ``full``; by default it is a seventh of these.
    soak : int, optional
        With the profile ``soak``; else as many as with ``full``.
    """
    if is_soak():
        return full if soak is None else soak
    return max(_LEAST, full * settings.default.max_examples // _FULL)


def few(quick: int | Collection[Any], values: Iterable[Any], *, are_rows: bool = False) -> list[Any]:
    """Return values for `parametrize`, of which those that do not run by default have the mark ``slow``.

    Parameters
    ----------
    quick : int or collection
        The values that run by default: the first so many, or these.
    values : iterable
        All values.
    are_rows : bool
        Whether each value is a tuple, for a parametrisation of several names.
    """
    return [
        value if (number < quick if isinstance(quick, int) else value in quick) else _slow(value, is_row=are_rows)
        for number, value in enumerate(values)
    ]


def _slow(value: Any, *, is_row: bool) -> Any:
    """Return a value, or one that has marks already, with the mark ``slow``."""
    if isinstance(value, type(pytest.param())):
        return pytest.param(*value.values, marks=[*value.marks, pytest.mark.slow], id=value.id)
    return pytest.param(*(value if is_row else (value,)), marks=pytest.mark.slow)
