"""Updates that nothing orders with the beginning or the end of a mapping."""

from __future__ import annotations

import pytest

from tests.sanitizer.runs import marked

SEEDS = (None, *range(4))
ENTERS = "omp.target_enter_data(map=[to(a)], nowait=True, depend=[out(x)])"
UPDATES = "omp.target_update(to=[a], nowait=True, depend=[out(y)])"
BRINGS = "omp.target_update(from_=[a], nowait=True, depend=[out(y)])"
EXITS = "omp.target_exit_data(map=[from_(a)], nowait=True, depend=[out(x)])"
PAIRS = {
    "enter, update": ("", ENTERS, UPDATES),
    "enter, update from": ("", ENTERS, BRINGS),
    "update, enter": ("", UPDATES, ENTERS),
    "update, exit": ("omp.target_enter_data(map=[to(a)])", UPDATES, EXITS),
    "exit, update": ("omp.target_enter_data(map=[to(a)])", EXITS, UPDATES),
}


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("part", ["a", "a[2:6]", "a[:, 1:3]"])
def test_update(findings, tmp_path, pair, part):
    """An update races with a copy that begins or ends the mapping, also where it finds nothing present."""
    before, first, second = PAIRS[pair]
    text = f"""
        a, x, y = np.ones((8, 4)), np.ones(1), np.ones(1)
        {before}
        {first.replace("[a]", f"[{part}]")}  # first
        {second.replace("[a]", f"[{part}]")}  # second, fix
        omp.taskwait()
        omp.target_exit_data(map=[release(a)])
        """
    for seed in SEEDS:
        (found,) = findings(text, seed=seed)
        written = (tmp_path / "program.py").read_text()
        assert (found.rule, found.fix.kind, found.item, found.count) == ("race", "depend", "a", 1)
        assert (found.first.line, found.second.line) == (marked(written, "first"), marked(written, "second"))
        assert (found.first.what, found.second.what) == ("copy", "copy")
        assert found.fix.line == marked(written, "fix")


def test_update_that_is_ordered(clean):
    """An update in the order of the mapping's beginning and end is in no race, and neither are maps that find it."""
    clean(
        """
        @omp.target(nowait=True)
        def total(a):
            a.sum()
        a, x = np.ones(8), np.ones(1)
        omp.target_update(to=[a], nowait=True, depend=[out(x)])
        omp.target_enter_data(map=[to(a)], nowait=True, depend=[out(x)])
        omp.target_update(to=[a], nowait=True, depend=[out(x)])
        omp.target_exit_data(map=[from_(a)], nowait=True, depend=[out(x)])
        omp.target_update(to=[a], nowait=True, depend=[out(x)])
        omp.taskwait()
        omp.target_enter_data(map=[to(a)], nowait=True)
        total(a)
        omp.taskwait()
        omp.target_exit_data(map=[release(a)])
        """
    )
