"""``check=True``: what is not proved of a loop is seen in a run on copies, for the arguments of the call."""

from __future__ import annotations

import linecache
from functools import partial
from itertools import count

import numpy as np
import pytest

import offload as omp
from offload.loops.running import plan, runs
from offload.loops.running.build import Builder
from offload.loops.running.observe import copies_of, observe
from offload.loops.running.plan import numbers_of
from offload.loops.running.preparation import view_at
from offload.loops.tree.uses import numbered
from tests.conftest import checked
from tests.profiles import few

pytestmark = pytest.mark.filterwarnings("ignore:.*no C compiler:offload.PerformanceWarning")

N = 12
Q = np.array([0, 3, 3, 5, 1, 0, 7, 3, 8, 9, 10, 11])
P = np.random.default_rng(2).permutation(N)
_NUMBERS = count()


def made(text, *parameters, first=0):
    """Return the function ``for i in range(first, trips): text`` of some parameters."""
    lines = "".join(f"        {line}\n" for line in text.split("; "))
    source = f"def f({', '.join([*parameters, 'trips'])}):\n    for i in range({first}, trips):\n{lines}"
    file = f"<observed {next(_NUMBERS)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    names = {"omp": omp}
    exec(compile(source, file, "exec"), names)
    return names["f"]


def seen(function, arguments, **clauses):
    """Return what is seen of all accesses: kinds with counts and distances by array, and who reads before it writes."""
    program = omp.parallel_loop(function, **clauses)._program
    values = program.bound(arguments, {})
    spec = program.specialise(values)
    numbers = numbers_of(spec, values, partial(view_at, None))
    nest = spec.typed.function.nests[0]
    arrays = {name: values[name] for name in numbers.views}
    before = {name: array.copy() for name, array in arrays.items()}
    every = frozenset(numbered(nest))
    copies = copies_of(nest, arrays, numbers.views)
    findings = observe(spec.typed, nest, {}, every, numbers.scalars[0], copies, numbers.views, numbers.axes[0])
    assert findings.failure is None
    assert all((arrays[name] == before[name]).all() for name in arrays)
    found = {key: (one.count, one.min_distance, one.max_distance) for key, one in findings.found.items()}
    return found, findings


VECTORS = [
    ("y[p[i]] = x[i]", (P, "p"), 0, {}),
    ("y[p[i]] = x[i]", (Q, "p"), 0, {("y", "output"): (3, 1, 5)}),
    ("a[p[i]] += 1", (P, "p"), 0, {}),
    ("a[p[i]] += 1", (Q, "p"), 0, {("a", kind): (3, 1, 5) for kind in ("flow", "anti", "output")}),
    ("a[i] = a[i - 1]", None, 1, {("a", "flow"): (11, 1, 1)}),
    ("a[i] = a[i + 1]", None, 0, {("a", "anti"): (11, 1, 1)}),
    ("a[i] = a[i - 4]", None, 4, {("a", "flow"): (8, 4, 4)}),
    ("a[i // 2] = x[i]", None, 0, {("a", "output"): (6, 1, 1)}),
    ("t[0] = x[i]; y[i] = 2 * t[0]", None, 0, {("t", "anti"): (11, 1, 1), ("t", "output"): (11, 1, 1)}),
    ("a[i] = 1; a[i] = 2", None, 0, {}),
    ("a[1 + i] = a[0]", None, 0, {}),
    ("a[i] = a[i + 12]", None, 0, {}),
    ("a[i] = x[i]; y[0 if i == 11 else i + 1] = a[0] if i == 11 else 0", None, 0, {("a", "flow"): (1, 11, 11)}),
    ("y[i] = a[5] if i == 0 else 0; a[i] = x[i]", None, 0, {("a", "anti"): (1, 5, 5)}),
    ("a[0 if i == 1 or i == 7 else i + 2] = 3", None, 0, {("a", "output"): (1, 6, 6)}),
    ("a[i] = (a[i - 1] + a[i + 1]) / 2", None, 1, {("a", "flow"): (11, 1, 1), ("a", "anti"): (11, 1, 1)}),
    ("a[i] = 2 * x[i]; y[i] = a[(i + 3) % 12]", None, 0, {("a", "flow"): (3, 9, 9), ("a", "anti"): (9, 3, 3)}),
]


@pytest.mark.parametrize(
    ("text", "index", "first", "expected"),
    few(9, VECTORS, are_rows=True),
    ids=[vector[0] for vector in VECTORS],
)
def test_what_is_seen(text, index, first, expected):
    """Each loop shows the kinds, counts and distances that a profile of it has; arguments keep what they hold."""
    names = [name for name in ("a", "t", "x", "y") if f"{name}[" in text]
    arrays = [np.arange(30.0) for _ in names]
    if index is not None:
        names.append(index[1])
        arrays.append(index[0])
    found, _ = seen(made(text, *names, first=first), (*arrays, N + first))
    assert found == expected


def test_an_example():
    """The first pair of iterations that depend on each other is kept, with the element and both accesses."""

    def shift(a, p):
        for i in range(2, p.size):
            a[p[i]] = i
            a[-1] = a[p[i] - 2]

    _, findings = seen(shift, (np.zeros(30), np.arange(6)))
    example = findings.found["a", "flow"].example
    assert example.trips == ((0,), (2,))
    assert example.element == (2,)
    assert findings.found["a", "output"].example.element == (29,)


def test_who_fills_what_it_reads():
    """An array is exposed if an iteration reads an element that it has not written, be it after another has."""
    _, findings = seen(made("t[0] = x[i]; y[i] = t[0] + a[0]; a[0] = 1", "t", "x", "y", "a"), (*np.ones((4, N)), N))
    assert findings.exposed == {"x", "a"}


def test_iterations_of_two_loops_are_counted_as_they_run():
    """The distance of iterations of a collapsed nest is that of a serial loop."""

    def left(a):
        for i in range(4):
            for j in range(1, 6):
                a[i, j] = a[i, j - 1]

    def up(a):
        for i in range(1, 4):
            for j in range(6):
                a[i, j] = a[i - 1, j]

    assert seen(left, (np.zeros((4, 6)),), collapse=2)[0] == {("a", "flow"): (16, 1, 1)}
    assert seen(up, (np.zeros((4, 6)),), collapse=2)[0] == {("a", "flow"): (12, 6, 6)}
    assert seen(left, (np.zeros((4, 6)),))[0] == {}


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (lambda z: (z[:12], z[1:13]), {"flow"}),
        (lambda z: (z[1:13], z[:12]), {"anti"}),
        (lambda z: (z[:12], z[11::-1]), {"flow", "anti"}),
        (lambda z: (z[:24:2], z[1:25:2]), set()),
        (lambda z: (z[:12], z[:12].view(np.int64)), set()),
        (lambda z: (z[:12], z.view(np.int32)[:24:2]), set()),
        (lambda z: (z[:12], z.view(np.int32)[1:13]), {"anti"}),
        (lambda z: (z.view(np.int32)[:12], z[:12]), {"flow"}),
    ],
)
def test_views_that_share_memory_share_it_in_the_copies(of, expected):
    """An element that two views have in common is one element, also if their types are not of one size."""
    x, y = of(np.arange(40.0))
    found, _ = seen(made("y[i] = x[i]", "x", "y"), (x, y, N))
    assert {kind for _, kind in found} == expected


# -- through the constructs --------------------------------------------------------------------------------


@pytest.fixture(params=["sim", "host", "threads", "python"])
def check(request, monkeypatch):
    """Makes a loop function that checks: on a device, the initial device, the host's threads, without a compiler."""
    if request.param == "python":
        for module in (plan, runs):
            monkeypatch.setattr(module, "builder", Builder({"OFFLOAD_CC": "none"}))
    with checked("sim:1"):
        if request.param == "threads":
            yield lambda function, **clauses: omp.parallel_loop(function, check=True, **clauses)
        else:
            where = request.param != "host"
            yield lambda function, **clauses: omp.target_loop(function, check=True, if_=where, **clauses)


def rotated(a, b, c, n):
    for i in range(n):
        a[i] = 2 * c[i]
        b[i] = a[(i + 3) % n]


def scattered(p, x, y):
    for i in range(p.size):
        y[p[i]] = x[i]


def counted(h, q):
    for i in range(q.size):
        h[q[i]] += 1


def scratch(t, p, x, y):
    for i in range(x.size):
        t[p[i]] = x[i]
        y[i] = 2 * t[p[i]]


def inside(a, b):
    for i in range(a.shape[0]):
        for j in range(1, a.shape[1]):
            b[i, j] = a[i, j]
            a[i, j] = b[i, j - 1]


def bounded(x, y):
    for i in range(x.size):
        assert x[i] < 3, "x is too great"
        y[i] = x[i]


def refused(loop, *arguments):
    """Return the LoopError of a call, which has changed nothing."""
    before = [array.copy() for array in arguments if isinstance(array, np.ndarray)]
    with pytest.raises(omp.LoopError) as caught:
        loop(*arguments)
    assert caught.value.rule == "dependence"
    assert caught.value.file == __file__
    arrays = [array for array in arguments if isinstance(array, np.ndarray)]
    assert all((array == old).all() for array, old in zip(arrays, before, strict=True))
    return caught.value


def test_a_flow_that_nothing_proves(check):
    """A value that another iteration reads is a LoopError with array, kind, distance, iterations and both lines."""
    error = refused(check(rotated), *np.ones((3, 24)), 24)
    line = rotated.__code__.co_firstlineno
    assert error.line == line + 3
    text = str(error)
    assert "flow dependence of distance 21," in text
    assert f"from line {line + 2} at i=0 to line {line + 3} at i=21, by a[0]" in text
    assert "seq=True" in text


def test_the_verdict_is_that_of_the_arguments(check):
    """A scatter by a permutation runs, one whose indices collide is refused, and the next one runs again."""
    loop = check(scattered)
    y = np.zeros(N)
    for _ in range(2):
        loop(P, np.arange(N), y)
        assert (y[P] == np.arange(N)).all()
        error = refused(loop, Q, np.arange(N), y)
        assert 'private=["y"]' in str(error)
    loop.options(seq=True)(Q, np.arange(N), y)
    assert y[3] == 7


def test_updates_are_to_be_atomic(check):
    """An array that iterations update is one for `atomic`, with which the same loop runs."""
    h = np.zeros(N, int)
    assert 'atomic=["h"]' in str(refused(check(counted), h, Q))
    check(counted)(h, P)
    assert (h == 1).all()
    check(counted, atomic=["h"])(h, Q)
    assert (h == 1 + np.bincount(Q, minlength=N)).all()


def test_a_scratch_array_is_to_be_private(check):
    """An array that each iteration fills before it reads it is one for `private`, with which the same loop runs."""
    t, p, x, y = np.zeros(2), np.zeros(N, int), np.arange(N), np.zeros(N)
    assert 'private=["t"]' in str(refused(check(scratch), t, p, x, y))
    check(scratch, private=["t"])(t, p, x, y)
    assert (y == 2 * x).all()


def test_what_is_proved_is_not_observed(check, monkeypatch):
    """A loop that is proved parallel runs at once; one that is proved to depend is refused as without `check`."""
    monkeypatch.delattr("offload.loops.running.observe.observe")
    a, b = np.arange(30.0).reshape(5, 6), np.zeros((5, 6))
    c, d = a.copy(), b.copy()
    check(inside)(a, b)
    inside(c, d)
    assert (a == c).all()
    assert (b == d).all()

    def in_place(a):
        for i in range(1, a.size - 1):
            a[i] = (a[i - 1] + a[i + 1]) / 2

    def one(t, x, y):
        for i in range(x.size):
            t[0] = x[i]
            y[i] = 2 * t[0]

    refused(check(in_place), np.ones(24))
    refused(check(one), np.ones(1), np.ones(24), np.ones(24))


def test_what_a_run_finds_wrong_changes_nothing(check):
    """An error of the observed run is the call's, before anything has changed."""
    y = np.zeros(N)
    p = P.copy()
    p[3] = N
    with pytest.raises(IndexError, match="i=3"):
        check(scattered)(p, np.arange(N), y)
    assert not y.any()


def test_assertions_count(check):
    """``assert`` is active with `check`, and only then."""
    y = np.zeros(5)
    with pytest.raises(AssertionError, match="x is too great at iteration i=3"):
        check(bounded)(np.arange(5), y)
    check(bounded).options(check=False)(np.arange(5), y)
    assert (y == np.arange(5)).all()


@pytest.mark.parametrize("construct", [omp.target_loop, omp.parallel_loop])
def test_deferred_calls_have_the_error_in_their_task(sim, construct):
    """With ``nowait`` a dependence that was seen is the task's; contents count when the task runs."""
    loop = construct(scattered, check=True, nowait=True, depend=[omp.inout("p")])
    p, y = Q.copy(), np.zeros(N)

    def permute():
        p[:] = P

    omp.task(permute, depend=[omp.inout(p)])()
    good = loop(p, np.arange(N), y)
    good.result()
    assert (y[P] == np.arange(N)).all()
    bad = construct(scattered, check=True, nowait=True)(Q, np.arange(N), y)
    with pytest.raises(omp.LoopError) as caught:
        bad.result()
    assert caught.value.rule == "dependence"
    assert (y[P] == np.arange(N)).all()


def test_in_a_target_body(sim):
    """A loop in a target body sees what the loops before it have written, and its error is the region's."""
    filled, scatter = omp.target_loop(counted, check=True), omp.target_loop(scattered, check=True)

    @omp.target(map=[omp.tofrom("p", "y"), omp.to("q", "x")])
    def body(p, q, x, y):
        filled(p, q)
        scatter(p, x, y)

    y = np.zeros(N + 1)
    body(np.arange(N), np.arange(N), np.arange(N), y)
    assert (y[1:] == np.arange(N)).all()
    with pytest.raises(omp.LoopError):
        body(np.array([0, 1, 1, 2]), np.array([0, 1]), np.arange(4), y)
    with pytest.raises(omp.LoopError):
        body(np.zeros(N, int), np.arange(0), np.arange(N), y)


def test_plain_accesses_beside_atomics(check):
    """Atomic steps are no dependences: slots that are drawn by one are each iteration's own."""

    def draw(c, x, y):
        for i in range(x.size):
            k = omp.atomic.add(c, 0, 1)
            y[k] = x[i]

    c, y = np.zeros(1, int), np.zeros(N)
    check(draw)(c, np.arange(N), y)
    assert c[0] == N
    assert sorted(y) == list(range(N))


@pytest.mark.parametrize("seed", range(6))
def test_what_passes_is_right_in_any_order(seed):
    """A loop that has passed the check gives the serial result in any order; one that has not depends on the order."""
    values = np.random.default_rng(seed)
    p = values.permutation(20) if seed % 2 else values.integers(0, 20, 20)
    x, y, expected = np.arange(20), np.zeros(20, int), np.zeros(20, int)
    scattered(p, x, expected)
    with checked("sim:1", seed=seed):
        loop = omp.target_loop(scattered, check=True)
        if len(set(p)) == 20:
            loop(p, x, y)
            assert (y == expected).all()
        else:
            refused(loop, p, x, y)
