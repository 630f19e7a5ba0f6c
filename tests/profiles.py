"""How much the tests try: little by default, all of it in CI.

A property is tried with 10 examples by default, with 50 by ``--hypothesis-profile=full``, and with 5,000 by
``--hypothesis-profile=soak``. Of long parametrisations a few members run by default, and the others with ``-m slow``
(`few`). A test that takes its number of examples from `examples`, and is not one of Hypothesis's own, has the mark
``hypothesis``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

_QUICK, _FULL = 10, 50
_BASE = 100  # the examples of a profile that would try as many as `examples` is given
_LEAST = 5

_NO_TIMES = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}  # times measure the machine
settings.register_profile("quick", print_blob=True, max_examples=_QUICK, **_NO_TIMES)
settings.register_profile("full", parent=settings.get_profile("quick"), max_examples=_FULL)
settings.register_profile("soak", parent=settings.get_profile("full"), max_examples=5_000)


def is_quick() -> bool:
    """Tell whether the profile is the default one."""
    return settings.default.max_examples == _QUICK


def is_soak() -> bool:
    """Tell whether the profile is ``soak``."""
    return settings.default.max_examples > 1_000


def examples(many: int, soak: int | None = None) -> int:
    """Return how many examples a test tries that has numbers of its own.

    Parameters
    ----------
    many : int
        Their number where a property without one of its own is tried with 100. The profile ``full`` tries a half of
        these, and the default a tenth.
    soak : int, optional
        With the profile ``soak``; else ``many``.
    """
    if is_soak():
        return many if soak is None else soak
    return max(_LEAST, many * settings.default.max_examples // _BASE)


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
