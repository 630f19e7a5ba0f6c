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


@pytest.mark.parametrize("direction", ["to", "from_"])
def test_update_beside_a_region(findings, tmp_path, direction):
    """An update races with the copies and the body of a region that maps its item, in whichever order they come."""
    text = f"""
        @omp.target(nowait=True, map=[tofrom("a")])  # region
        def double(a):
            a *= 2  # body
        a = np.ones(8)
        double(a)
        omp.target_update({direction}=[a], nowait=True)  # update
        omp.taskwait()
        """
    for seed in SEEDS:
        found = findings(text, seed=seed)
        written = (tmp_path / "program.py").read_text()
        line = {name: marked(written, name) for name in ("region", "body", "update")}
        pairs = {(one.first.line, one.second.line): one.count for one in found}
        n_accesses = 2 if direction == "to" else 1  # of the body that conflict
        assert pairs == {(line["region"], line["update"]): 1, (line["body"], line["update"]): n_accesses}
