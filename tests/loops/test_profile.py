"""`profile_dependences`: what it sees of the loops of the table, what it proposes, files, whose profile it is."""

from __future__ import annotations

import contextlib
import json
import pickle

import numpy as np
import pytest

import offload as omp
from offload.loops.running import plan, runs
from offload.loops.running.build import Builder
from tests.conftest import checked
from tests.loops.speculation import P, Q, S, made
from tests.loops.test_observe import N
from tests.profiles import few

X = np.arange(30.0)

ROWS = [
    ("y[p[i]] = x[i]", P, 0, "probably parallel", {}, (), ()),
    ("y[p[i]] = x[i]", Q, 0, "sequential", {"output": (3, 1, 5)}, ("y",), ()),
    ("a[p[i]] += 1", P, 0, "probably parallel", {}, (), ()),
    ("a[p[i]] += 1", Q, 0, "sequential", dict.fromkeys(("flow", "anti", "output"), (3, 1, 5)), (), ("a",)),
    ("a[i] = a[i - 1]", None, 1, "sequential", {"flow": (11, 1, 1)}, (), ()),
    ("a[i] = a[i + 1]", None, 0, "sequential", {"anti": (11, 1, 1)}, (), ()),
    ("a[i] = a[i - 4]", None, 4, "sequential", {"flow": (8, 4, 4)}, (), ()),
    ("a[i // 2] = x[i]", None, 0, "sequential", {"output": (6, 1, 1)}, ("a",), ()),
    ("t[0] = x[i]; y[i] = 2 * t[0]", None, 0, "sequential", dict.fromkeys(("anti", "output"), (11, 1, 1)), ("t",), ()),
    ("a[i] = 1; a[i] = 2", None, 0, "parallel", {}, (), ()),
    ("a[1 + i] = a[0]", None, 0, "parallel", {}, (), ()),
    ("a[i] = 2 * a[i + 12]", None, 0, "parallel", {}, (), ()),
    ("a[i] = 2 * a[i + 1]", None, 0, "sequential", {"anti": (11, 1, 1)}, (), ()),
    ("a[i] = x[i]; y[i] = a[0] if i == 11 else 0", None, 0, "sequential", {"flow": (1, 11, 11)}, (), ()),
    ("y[i] = a[5] if i == 0 else 0; a[i] = x[i]", None, 0, "sequential", {"anti": (1, 5, 5)}, (), ()),
    ("a[p[i]] = 3", S, 0, "sequential", {"output": (1, 6, 6)}, ("a",), ()),
]


@pytest.mark.parametrize("row", ROWS, ids=[f"{row[0]} {row[1] is Q}" for row in ROWS])
@pytest.mark.parametrize("form", few(1, ["compiled", "python"]))
def test_every_row(row, form, monkeypatch):
    """Verdict, kinds with counts and distances, and remedies are those of the table; arguments keep what they hold."""
    text, p, first, verdict, kinds, privatise, reductions = row
    if form == "python":
        for module in (plan, runs):
            monkeypatch.setattr(module, "builder", Builder({"OFFLOAD_CC": "none"}))
    names = [name for name in "aptxy" if f"{name}[" in text]
    given = [p if name == "p" else X.copy() for name in names]
    profile = omp.profile_dependences(made(text, *names, first=first), (*given, N + first))
    assert profile.verdict == verdict
    found = {one.kind: (one.count, one.min_distance, one.max_distance) for one in profile.dependences}
    assert found == kinds
    assert (profile.privatise, profile.reductions) == (privatise, reductions)
    assert (profile.iterations, profile.inputs) == (N, 1)
    assert all((array == X).all() for name, array in zip(names, given, strict=True) if name != "p")


def scattered(p, x, y):
    for i in range(p.size):
        y[p[i]] = x[i]


def test_an_example_names_iterations_element_and_lines():
    """The first pair of each kind is kept, by the variable of the loop."""
    (one,) = omp.profile_dependences(scattered, (Q, X, X.copy())).dependences
    line = scattered.__code__.co_firstlineno + 2
    assert one.example == ((1, 2), (3,), (line, line))
    assert one.array == "y"


def test_several_inputs():
    """Of several inputs counts are added, distances joined, and one that depends is enough; names are allowed."""
    clash = np.array([4, 9, 2, 4])
    profile = omp.profile_dependences(
        omp.target_loop(scattered), (P, X, X.copy()), {"y": X.copy(), "x": X, "p": Q}, (clash, X, X.copy())
    )
    (one,) = profile.dependences
    assert (one.count, one.min_distance, one.max_distance) == (4, 1, 5)
    assert (profile.verdict, profile.iterations, profile.inputs) == ("sequential", 28, 3)


def test_clauses_of_the_loop_count():
    """What is atomic, private or reduced is no dependence."""

    def counted(h, p):
        for i in range(p.size):
            h[p[i]] += 1

    assert omp.profile_dependences(counted, (np.zeros(N, int), Q)).reductions == ("h",)
    loop = omp.target_loop(counted, atomic=["h"])
    assert omp.profile_dependences(loop, (np.zeros(N, int), Q)).verdict == "parallel"


def test_a_profile_goes_through_a_file(tmp_path):
    """What was saved is what is loaded, and a loop takes it."""
    profile = omp.profile_dependences(scattered, (P, X, X.copy()), (Q, X, X.copy()))
    profile.save(tmp_path / "profile.json")
    other = omp.DependenceProfile.load(tmp_path / "profile.json")
    assert {name: getattr(other, name) for name in profile.__slots__} == {
        name: getattr(profile, name) for name in profile.__slots__
    }
    assert pickle.loads(pickle.dumps(profile)).dependences == profile.dependences
    assert other == profile == pickle.loads(pickle.dumps(profile))
    assert hash(other) == hash(profile)
    assert profile != omp.profile_dependences(scattered, (P, X, X.copy()))
    omp.target_loop(scattered, speculate=other)


def test_a_profile_stands_for_the_first_call():
    """With a profile the first call is not profiled; one that saw dependences has the loop run in order."""
    last = []
    for p in (P, Q):
        with checked("sim:1"):
            loop = omp.target_loop(scattered, speculate=omp.profile_dependences(scattered, (p, X, X.copy())))
            y = np.zeros(30)
            loop(P, X, y)
            assert (y[P] == X[:N]).all()
            last.append(loop.explain(P, X, y).to_dict()["speculation"]["last"])
    assert last == ["device", "host"]


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", "{", '{"version": 2}', '{"version": 1, "verdict": "fine"}', "null"),
        pytest.param("[" * 100_000, id="nested"),
        pytest.param('{"version": ' * 100_000, id="nested objects"),
        pytest.param('{"version": 1, "verdict": ' + "9" * 5_000 + "}", id="many digits"),
    ],
)
def test_a_broken_file(tmp_path, text):
    """A file that holds no profile is a ClauseError; one that is not there says so."""
    path = tmp_path / "profile.json"
    path.write_text(text)
    with pytest.raises(omp.ClauseError, match="holds no profile"):
        omp.DependenceProfile.load(path)
    with pytest.raises(FileNotFoundError):
        omp.DependenceProfile.load(tmp_path / "nothing.json")


def test_a_file_with_wrong_parts(tmp_path):
    """So is one whose parts are of other kinds."""
    path = tmp_path / "profile.json"
    omp.profile_dependences(scattered, (Q, X, X.copy())).save(path)
    facts = json.loads(path.read_text())
    for name, value in (("dependences", 3), ("types", [1]), ("iterations", "x"), ("dependences", [{"array": "y"}])):
        path.write_text(json.dumps({**facts, name: value}))
        with pytest.raises(omp.ClauseError):
            omp.DependenceProfile.load(path)


WRONG = (None, True, -1.5, 1e400, "x", [], ["x"], [[1]], [[[[1]]]], {}, {"x": []}, [{"x": 1}], [{}], [None])
"""What may stand in a file in place of anything."""


def places(facts, path=()):
    """Yield the path of each value in nested lists and dicts."""
    for key, value in facts.items() if isinstance(facts, dict) else enumerate(facts):
        yield (*path, key)
        if isinstance(value, (dict, list)):
            yield from places(value, (*path, key))


def test_a_file_with_anything_in_it(tmp_path):
    """Whatever stands in place of whichever part, it is a ClauseError, or a profile that can be used."""
    path = tmp_path / "profile.json"
    omp.profile_dependences(scattered, (Q, X, X.copy())).save(path)
    text = path.read_text()
    n_refused = 0
    for place in [*places(json.loads(text))]:
        for wrong in WRONG:
            facts = json.loads(text)
            inner = facts
            for key in place[:-1]:
                inner = inner[key]
            inner[place[-1]] = wrong
            path.write_text(json.dumps(facts))
            try:
                profile = omp.DependenceProfile.load(path)
            except omp.ClauseError as refused:
                assert "holds no profile" in str(refused)  # noqa: PT017  # one outcome of two
                n_refused += 1
                continue
            assert isinstance(hash(profile), int)
            profile.save(tmp_path / "again.json")
            assert omp.DependenceProfile.load(tmp_path / "again.json") == profile
            with checked("sim:1"), contextlib.suppress(omp.ClauseError):
                omp.target_loop(scattered, speculate=profile)(P, X, X.copy())
    assert n_refused > 200


def other(p, x, y):
    for i in range(p.size):
        y[p[i]] = x[i]


def test_a_profile_of_another_function():
    """A profile of another function, or of another text under that name, is a ClauseError of the decorator."""
    profile = omp.profile_dependences(scattered, (P, X, X.copy()))
    with pytest.raises(omp.ClauseError, match="'scattered'"):
        omp.target_loop(other, speculate=profile)
    with pytest.raises(omp.ClauseError, match="'scattered'"):
        omp.target_loop(other).options(speculate=profile)

    def scattered_(p, x, y):
        for i in range(p.size):
            y[p[i]] = x[i] + 1

    scattered_.__name__ = "scattered"
    with pytest.raises(omp.ClauseError, match="changed after it was profiled"):
        omp.target_loop(scattered_, speculate=profile)


def test_a_profile_of_other_types(sim):
    """Arguments of types that were not profiled are a ClauseError of the call, before anything has changed."""
    loop = omp.target_loop(scattered, speculate=omp.profile_dependences(scattered, (P, X, X.copy())))
    y = np.zeros(30, np.float32)
    with pytest.raises(omp.ClauseError, match="float32"):
        loop(P, X, y)
    assert not y.any()


def test_inputs_that_are_none(sim):
    """No input, and one that is no tuple, are a UsageError; arguments that are missing a TypeError."""
    with pytest.raises(omp.UsageError):
        omp.profile_dependences(scattered)
    with pytest.raises(omp.UsageError):
        omp.profile_dependences(scattered, P)
    with pytest.raises(TypeError):
        omp.profile_dependences(scattered, (P, X))
    with pytest.raises(omp.LoopError):
        omp.profile_dependences(scattered, (P, X, {}))


def test_what_the_serial_run_raises():
    """An error of the serial run is that of the profile; the input keeps what it holds."""
    y = np.zeros(5)
    with pytest.raises(IndexError, match="i=3"):
        omp.profile_dependences(scattered, (np.array([0, 1, 2, 7]), X, y))
    assert not y.any()


def test_private_loops_of_two_axes():
    """Iterations of two loops are named by both variables."""

    def left(a, z):
        for i in range(4):
            for j in range(1, 6):
                a[i + z[0], j] = a[i + z[0], j - 1]

    profile = omp.profile_dependences(omp.target_loop(left, collapse=2), (np.zeros((4, 6)), np.zeros(1, int)))
    (one,) = profile.dependences
    assert (one.kind, one.count, one.example.iterations) == ("flow", 16, ((0, 1), (0, 2)))
