"""Plain Python with comments as directives, as Pythran and Pyccel read them: one file for all."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from offload import LoopError
from offload.pragma import directives

_FILE = Path(__file__).parent / "peers" / "comment_programs.py"


def _load(file):
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


programs = _load(_FILE)
_random = np.random.default_rng(7)

CALLS = {
    "distances": lambda: (_random.random((7, 3)),),
    "stencil": lambda: (_random.random((9, 8)),),
    "escape_times": lambda: (12, 30),
    "sums": lambda: (40,),
    "last_index": lambda: (50,),
    "permuted": lambda: (_random.random(6), np.array([1, 0, 3, 2, 5, 4])),
    "atomic_histogram": lambda: (np.arange(50) * 7, 6),
    "product": lambda: (_random.random((4, 3)), _random.random((3, 5)), np.zeros((4, 5))),
    "two_loops": lambda: (30,),
    "in_else": lambda: (40,),
    "three_sections": lambda: (8,),
    "one_block": lambda: (_random.random((4, 3)), _random.random((3, 5)), np.zeros((4, 5))),
    "waited": lambda: (12,),
    "shared_count": lambda: (25,),
    "long_line": lambda: (_random.random(9), _random.random(9)),
}


def _copies(arguments):
    return [one.copy() if isinstance(one, np.ndarray) else one for one in arguments]


def _agree(one, other):
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(_agree, one, other))
    return bool(np.allclose(one, other, rtol=1e-12))


@pytest.mark.parametrize("name", CALLS)
def test_the_result_is_cpythons(name, runtime):
    """A function whose comments are directives gives the result that CPython gives without them."""
    function = getattr(programs, name)
    arguments = CALLS[name]()
    plain = _copies(arguments)
    expected = function(*plain)
    rewritten = directives(function)
    given = _copies(arguments)
    assert _agree(rewritten(*given), expected)
    assert all(map(_agree, given, plain))


def test_the_comments_count(tmp_path, runtime):
    """The comments are taken: without its clause, a loop that carries a sum is refused, at its line."""
    clause = " reduction(+:total)"
    text = _FILE.read_text()
    assert clause in text
    file = tmp_path / "without_a_clause.py"
    file.write_text(text.replace(clause, ""))
    with pytest.raises(LoopError, match="total") as caught:
        directives(_load(file).last_index)
    assert f"{file}:{text[: text.index('total += i')].count(chr(10)) + 1}" in str(caught.value)


def test_every_program_is_tested():
    """Each function of the programs' file is called here."""
    made = [name for name, value in vars(programs).items() if getattr(value, "__module__", "") == "comment_programs"]
    assert sorted(made) == sorted(CALLS)
