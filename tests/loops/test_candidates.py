"""The verdict of `profile_dependences` about each loop of a plain function."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import numpy as np
import pytest

import offload as omp
from offload import acc
from tests.conftest import checked
from tests.loops.candidate_programs import Generated
from tests.loops.nas_programs import PROGRAMS
from tests.profiles import few

CHUNK = 10


def verdicts(report):
    return [one.verdict for one in report.loops]


@pytest.mark.parametrize("first", few(1, range(0, 500, CHUNK)))
def test_generated_functions_agree_with_brute_force(first):
    """A verdict is the one that a comparison of all pairs of accesses of a loop gives."""
    n_seen = 0
    for seed in range(first, first + CHUNK):
        made = Generated(seed)
        given = made.arguments()
        report = omp.profile_dependences(made.function, tuple(given))
        if isinstance(report, omp.DependenceProfile):  # loops that are one inside the other
            continue
        for loop, expected in zip(report.loops, made.expected(given), strict=True):
            n_seen += 1
            found = "parallel" if loop.verdict == "probably parallel" else loop.verdict
            found = "private" if found == "parallel" and set(loop.lastprivate) & set("abcm") else found
            assert found == expected, (seed, loop.line, loop.why)
    assert n_seen > CHUNK


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_loops_that_openmp_versions_annotate(name):
    """Each loop that a published OpenMP version annotates is parallel; none that depends is called so."""
    function, arguments = PROGRAMS[name]
    report = omp.profile_dependences(function, arguments())
    lines = Path(report.file).read_text(encoding="utf-8").split("\n")
    marked = 0
    for loop in report.loops:
        text = lines[loop.line - 1]
        if text.endswith(("# omp", "# order")):
            marked += 1
            assert loop.is_parallel == text.endswith("# omp"), (text, loop.why)
        assert bool(loop.write) <= loop.is_parallel
    first, last = report.line - 1, max(loop.line for loop in report.loops)
    assert marked == sum(line.endswith(("# omp", "# order")) for line in lines[first:last])


def test_the_clauses_of_ep():
    """The loop of EP has its sums, its histogram and its scratch array in clauses."""
    function, arguments = PROGRAMS["ep"]
    loop = next(one for one in omp.profile_dependences(function, arguments()).loops if one.variable == "k")
    assert (loop.reductions, loop.atomic, loop.lastprivate) == ((("+", "sx"), ("+", "sy")), ("q",), ("x",))
    write = '@omp.target_loop(reduction={"+": ["sx", "sy"]}, atomic=["q"], lastprivate=["x"], speculate=True)'
    assert loop.write == write


# -- the report --------------------------------------------------------------------------------------------


def several(a, p, y, n):
    for i in range(n):
        a[i] = 2 * a[i]
    total = 0.0
    for i in range(n):
        total += a[i]
    for i in range(n):
        y[p[i]] = a[i]
    for i in range(1, n):
        y[i] = y[i - 1] + total
    for i, value in enumerate(a):
        y[i] = value
    if n > 100:
        for i in range(n):
            a[i] = 0.0
    return total


def arguments(n=6):
    return np.arange(n + 0.0), np.arange(n)[::-1].copy(), np.zeros(n), n


def test_the_text_of_a_report():
    """The report has a line for each loop, with the reason, and below it the line to write."""
    report = omp.profile_dependences(several, arguments(), arguments(4))
    first = several.__code__.co_firstlineno
    expected = f"""
    several ({__file__}:{first}), 2 inputs
      {first + 1}, for i: parallel; proved independent
          @omp.target_loop
      {first + 4}, for i: parallel with a reduction; + of total; proved independent
          @omp.target_loop(reduction={{"+": ["total"]}})
      {first + 6}, for i: probably parallel; no dependence in 10 iterations in 2 runs of it
          @omp.target_loop(speculate=True)
      {first + 8}, for i: in order; flow dependence by y, from line {first + 9} to line {first + 9}, distance 1; for """
    expected += f"""example by y[1], i=1 and i=2
      {first + 10}, for (i, value): not in the subset; line {first + 10}: `for i, value in enumerate(a):`: """
    expected += f"""`enumerate` has no device form; count by range(…) and index the arrays
      {first + 13}, for i: not run; no input reaches it"""
    assert str(report) == textwrap.dedent(expected).strip()
    assert report.__rich__().count(r"\[") == str(report).count("[")
    assert json.loads(json.dumps(report.to_dict()))["loops"][0]["verdict"] == "parallel"
    assert report.loops[3].dependences[0].example == ((1, 2), (1,), (first + 9, first + 9))


def test_arguments_keep_their_contents_and_share_memory():
    """The function runs on copies, which share memory as the arguments do."""

    def shifted(x, y):
        for i in range(y.size):
            y[i] = x[i]
        for i in range(y.size):
            y[i] = 2 * y[i]

    x = np.arange(8.0)
    assert verdicts(omp.profile_dependences(shifted, (x[1:], x[:-1]))) == ["sequential", "parallel"]
    assert verdicts(omp.profile_dependences(shifted, {"x": x, "y": np.zeros(8)})) == ["parallel", "parallel"]
    assert (x == np.arange(8.0)).all()


def test_one_loop_with_statements_next_to_it():
    """A function with one loop that is no loop function, as it computes before or after it, has a verdict for it."""

    def total_of(x):
        y = x * 2
        total = 0.0
        for i in range(y.size):
            total += y[i]
        return abs(total) + 1

    def filled(x):
        for i in range(x.size):
            x[i] = i
        x.sort()

    report = omp.profile_dependences(total_of, (np.arange(4.0),))
    assert [(one.verdict, one.reductions) for one in report.loops] == [("reduction", (("+", "total"),))]
    assert verdicts(omp.profile_dependences(filled, (np.zeros(4),))) == ["parallel"]


def test_one_loop_outside_of_the_subset_is_refused():
    """A function with one loop whose error is in the loop raises that error."""

    def viewed(x):
        for i in range(x.size):
            with memoryview(x):
                x[i] = i

    with pytest.raises(omp.LoopError) as caught:
        omp.profile_dependences(viewed, (np.zeros(4),))
    assert caught.value.line == viewed.__code__.co_firstlineno + 2


def test_one_input_that_depends_is_enough():
    """A loop is in order if any input shows a dependence."""

    def both(p, y):
        for i in range(p.size):
            y[p[i]] = i
        for i in range(p.size):
            y[i] += y[p[i]]

    good, bad = (np.arange(4), np.zeros(4)), (np.array([0, 1, 1, 2]), np.zeros(4))
    assert verdicts(omp.profile_dependences(both, good)) == ["probably parallel", "probably parallel"]
    found = omp.profile_dependences(both, good, bad)
    assert verdicts(found) == ["sequential", "sequential"]


def test_scalars():
    """A scalar that passes between iterations orders them; one that is read afterwards is lastprivate."""

    def scalars(x, y):
        s = 0.0
        for i in range(x.size):
            s = s * 0.5 + x[i]
        for i in range(x.size):
            t = x[i] + 1
            y[i] = t
        for i in range(x.size):
            t = x[i] * 2
            y[i] = t
        best = x[0]
        for i in range(x.size):
            best = max(best, x[i])
        return s + t + best

    found = omp.profile_dependences(scalars, (np.arange(5.0), np.zeros(5)))
    assert verdicts(found) == ["sequential", "parallel", "parallel", "reduction"]
    assert found.loops[0].why == "s passes a value from one iteration to the next"
    assert [one.lastprivate for one in found.loops] == [(), ("t",), ("t",), ()]  # a loop may have no iteration
    assert found.loops[2].write == '@omp.target_loop(lastprivate=["t"])'
    assert found.loops[3].reductions == (("max", "best"),)


def test_two_operators_are_no_reduction():
    """An array that is updated by sums and by products depends on the order."""

    def mixed(q, h):
        for i in range(q.size):
            h[q[i]] += 2
            h[q[i]] *= 3
        for i in range(q.size):
            h[q[i]] += 1
            h[q[i]] -= 2

    found = omp.profile_dependences(mixed, (np.array([0, 1, 1]), np.ones(3)))
    assert verdicts(found) == ["sequential", "reduction"]
    assert found.loops[1].atomic == ("h",)


def test_loops_in_a_while_in_functions_and_with_local_arrays():
    """Loops in a ``while`` have verdicts; helper functions and arrays of the function are seen through."""

    def rows(a, k, scratch):
        for j in range(scratch.size):
            scratch[j] = a[k, j]
        for j in range(scratch.size):
            a[k, j] = scratch[scratch.size - 1 - j]

    def relaxed(a):
        scratch = np.zeros(a.shape[1])
        n = 0
        while n < 3:
            for k in range(a.shape[0]):
                rows(a, k, scratch)
            n += 1

    (loop,) = omp.profile_dependences(relaxed, (np.arange(12.0).reshape(3, 4),)).loops
    assert (loop.verdict, loop.private, loop.entries, loop.iterations) == ("probably parallel", ("scratch",), 3, 9)


def test_inner_loops():
    """An inner loop of a parallel one has a line of `acc.loop`; in a sequential one it has a construct of its own."""

    def nests(a, y):
        for i in range(a.shape[0]):
            s = 0.0
            for k in range(a.shape[1]):
                s += a[i, k]
            y[i] = s
        for i in range(1, a.shape[0]):
            for k in range(a.shape[1]):
                a[i, k] = a[i - 1, k] + 1

    found = omp.profile_dependences(nests, (np.ones((3, 4)), np.zeros(3)))
    assert verdicts(found) == ["parallel", "reduction", "sequential", "parallel"]
    assert found.loops[1].write == 'for k in acc.loop(range(a.shape[1]), vector=True, reduction={"+": ["s"]}):'
    assert found.loops[3].write == "@omp.target_loop"


def test_the_lines_are_what_the_library_takes():
    """The proposed constructs compile, and compute what the plain loop does."""
    report = omp.profile_dependences(several, arguments())

    def first(a, n):
        for i in range(n):
            a[i] = 2 * a[i]

    def second(a, n):
        total = 0.0
        for i in range(n):
            total += a[i]
        return total

    def third(a, p, y, n):
        for i in range(n):
            y[p[i]] = a[i]

    a, p, y, n = arguments()
    for loop, function, given in zip(
        report.loops, (first, second, third), ((a, n), (a, n), (a, p, y, n)), strict=False
    ):
        construct = eval(loop.write.removeprefix("@"), {"omp": omp})
        made = construct(function)
        assert made.python is function
        with checked("sim:1"):
            made.compile(*given)


# -- what is wrong -----------------------------------------------------------------------------------------


def test_bad_input():
    """Inputs are tuples or dictionaries; there has to be one."""
    with pytest.raises(omp.UsageError, match="no input"):
        omp.profile_dependences(several)
    with pytest.raises(omp.UsageError, match="is not a tuple"):
        omp.profile_dependences(several, np.zeros(3))
    with pytest.raises(TypeError, match="argument"):
        omp.profile_dependences(several, (1, 2))


def test_an_error_of_the_program_is_raised():
    """What the function raises comes out, and arguments keep their contents."""
    given = arguments()
    with pytest.raises(IndexError):
        omp.profile_dependences(several, (*given[:3], 7))
    assert (given[0] == np.arange(6.0)).all()


def test_a_loop_function_with_several_nests():
    """A decorated function with several nests is refused; the message names the plain function."""
    with pytest.raises(omp.UnsupportedError, match=r"both\.python"):

        @acc.kernels_loop
        def both(x):
            for i in range(x.size):
                x[i] = 1.0
            for i in range(x.size):
                x[i] += 1.0

        omp.profile_dependences(both, (np.zeros(3),))
    assert verdicts(omp.profile_dependences(both.python, (np.zeros(3),))) == ["parallel", "parallel"]


def test_a_plain_function_with_one_nest_has_a_profile():
    """Loops that are one inside the other are one nest, whose profile can be saved and used."""

    def one(a):
        for i in range(a.shape[0]):
            for j in range(a.shape[1]):
                a[i, j] = 1.0

    assert isinstance(omp.profile_dependences(one, (np.zeros((2, 3)),)), omp.DependenceProfile)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("if a[i] > 3:\n            break", "break"),
        ("a[i:i + 1] = 2", "slice"),
        ("outside[i] = a[i]", "argument"),
        ("t = np.zeros(3); a[i] = t[0]", "t is an array of each iteration"),
        ("kept.append(a[i])", "kept"),
    ],
)
def test_text_outside_the_subset(text, words, tmp_path):
    """A loop that no loop function can be has the reason, and no line to write."""
    source = f"def f(a, kept):\n    for i in range(3):\n        {text}\n    for i in range(3):\n        a[i] = 1\n"
    source += f"    return {'t' if 't =' in text else None}\n"
    file = tmp_path / "f.py"
    file.write_text(source)
    names = {"outside": np.zeros(3), "np": np}
    exec(compile(source, str(file), "exec"), names)
    found = omp.profile_dependences(names["f"], (np.arange(3.0), []))
    assert verdicts(found) == ["outside the subset", "parallel"]
    assert words in found.loops[0].why
    assert not found.loops[0].write


def test_whole_uses_aliases_globals_and_loop_variables():
    """The report knows uses of whole arrays, objects that hold an argument, and loop variables that are read later."""

    def whole(a, y, n):
        t = np.zeros(3)
        for i in range(n):
            for k in range(3):
                t[k] = a[i] * k
            y[i] = t[0] + t[1] + t[2]
        y[:3] += t
        for i in range(n):
            y[i] += 1

    assert omp.profile_dependences(whole, (np.arange(5.0), np.zeros(5), 5)).loops[0].private == ()

    def held(a, holder, n):
        b = holder[0]
        for i in range(1, n):
            a[i] = b[i - 1]
        for i in range(1, n):
            a[i] = 1

    a = np.zeros(5)
    assert verdicts(omp.profile_dependences(held, (a, [a], 5)))[0] == "sequential"

    def later(a, b, n):
        i = -1
        for i in range(n):
            a[i] = 1
        for j in range(n):
            b[j] = i

    found = omp.profile_dependences(later, (np.zeros(3), np.zeros(3), 3)).loops[0]
    assert found.verdict == "outside the subset"
    assert "i is read after the loop" in found.why

    def update(h, k, n):
        for i in range(n):
            h[k[i]] = h[k[i]] + 2
        for i in range(n):
            h[i] += 1

    found = omp.profile_dependences(update, (np.zeros(3), np.array([0, 1, 1]), 3)).loops[0]
    assert (found.verdict, found.atomic, found.write) == ("reduction", ("h",), "")
    assert "write each update as `h[…] += value`" in found.why
