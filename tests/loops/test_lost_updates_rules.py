"""Generated loops: which of them warn of updates that may be lost."""

import warnings

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import offload as omp
from offload import acc
from offload.loops.running import build, plan, runs
from tests.conftest import checked
from tests.loops.oracle import function_of_text

UPDATES = {
    "in place": ["h[E] += V"],
    "assigned": ["h[E] = h[E] + V"],
    "from the right": ["h[E] = V - h[E]"],
    "greatest": ["h[E] = max(h[E], V)"],
    "by a scalar": ["t = h[E]", "h[E] = t * V"],
    "by two scalars": ["k = E", "t = h[k]", "u = t + V", "h[k] = u"],
    "by a local array": ["t = np.zeros(2)", "t[1] = h[E]", "h[E] = t[1] + V"],
    "by an array": ["y[i] = h[E]", "h[E] = y[i] + V"],
    "by a function": ["bump(h, E, V)"],
    "by a function of two": ["h[E] = plus(h, E, V)"],
    "least, by a branch": ["if V < h[E]:", "    h[E] = V"],
    "chosen": ["h[E] = V if V < h[E] else h[E]"],
    "by a loop": ["for r in range(2):", "    h[E] += V"],
}
OTHERS = {
    "written": ["h[E] = V"],
    "read": ["y[i] = h[E] + V"],
    "another read": ["h[E] = g[E] + V"],
    "marked": ["if h[E] == 0:", "    h[E] = 1"],
    "filled before": ["h[E] = 0", "for r in range(2):", "    h[E] += V"],
    "atomic": ["omp.atomic.add(h, E, 1)"],
}
AROUND = {
    "nothing": ["@"],
    "if": ["if x[i] > 2:", "    @"],
    "else": ["if x[i] > 2:", "    y[i] = 0", "else:", "    @"],
    "continue": ["if x[i] > 2:", "    continue", "@"],
    "triangle": ["for j in range(i):", "    @"],
    "break": ["for j in range(3):", "    if x[i] < j:", "        break", "    @"],
    "while": ["n = 0", "while n < x[i]:", "    n += 1", "    @"],
}
DIRECTIVES = {
    "target_loop": (omp.target_loop, {}, True),
    "parallel_loop": (omp.parallel_loop, {}, True),
    "acc.parallel_loop": (acc.parallel_loop, {}, True),
    "independent": (omp.target_loop, {"independent": True}, False),
    "check": (omp.parallel_loop, {"check": True}, False),
    "speculate": (omp.target_loop, {"speculate": True}, False),
    "seq": (acc.parallel_loop, {"seq": True}, False),
    "auto": (omp.target_loop, {"auto": True}, False),
    "kernels_loop": (acc.kernels_loop, {}, False),
    "alone": (omp.parallel_loop, {"if_": False}, False),
    "one thread": (omp.parallel_loop, {"num_threads": 1}, False),
}
HEAD = """import numpy as np
import offload as omp

def bump(a, k, v):
    a[k] = a[k] + v

def plus(a, k, v):
    return a[k] + v

def f(h, g, x, y, col):
"""


@st.composite
def elements(draw):
    """Return the text of an index, its values, and whether a call can tell which elements differ."""
    trips = draw(st.integers(2, 6))
    match draw(st.sampled_from(["affine", "from the end", "data", "fixed", "rest"])):
        case "affine":
            by, first = draw(st.integers(-2, 3)), draw(st.integers(0, 2))
            values = [by * i + first - min(0, by * (trips - 1)) for i in range(trips)]
            return f"{by} * i + {values[0]}", values, True
        case "from the end":
            by = draw(st.integers(0, 2))
            return f"{by} * i - 20", [by * i for i in range(trips)], True
        case "data":
            return "col[i]", draw(st.lists(st.integers(0, 9), min_size=trips, max_size=trips)), True
        case "fixed":
            return "3", [3] * trips, True
        case _:
            return "(i * 7) % 5", [i * 7 % 5 for i in range(trips)], False


def text_of(around, lines, element):
    """Return the text of a loop function."""
    found = ["for i in range(x.size):"]
    for line in AROUND[around]:
        head, is_here, _ = line.partition("@")
        found += [f"    {head}{one}" for one in lines] if is_here else [f"    {line}"]
    return HEAD + "\n".join(f"    {line}" for line in found).replace("E", element).replace("V", "x[i]") + "\n"


@pytest.fixture(scope="module")
def as_python():
    """Loops become Python, which takes less time than a compiler."""
    with pytest.MonkeyPatch.context() as patch, checked("sim:1"):
        for module in (plan, runs):
            patch.setattr(module, "builder", build.Builder({"OFFLOAD_CC": "none"}))
        yield


@given(
    element=elements(),
    form=st.sampled_from([*UPDATES, *UPDATES, *OTHERS]),
    around=st.sampled_from([*AROUND]),
    directive=st.sampled_from(["target_loop", "parallel_loop", "acc.parallel_loop", *DIRECTIVES]),
)
@pytest.mark.usefixtures("as_python")
def test_a_loop_warns_once_if_updates_of_two_iterations_may_meet(element, form, around, directive):
    """There is one warning, at an update, if two iterations update one element or nobody can tell."""
    index, values, is_provable = element
    text = text_of(around, UPDATES.get(form) or OTHERS[form], index)
    construct, clauses, is_asserted = DIRECTIVES[directive]
    loop = construct(**clauses)(function_of_text(text))
    is_expected = is_asserted and form in UPDATES and (not is_provable or len(set(values)) < len(values))
    refusals = []
    with warnings.catch_warnings(record=True) as given_:
        warnings.simplefilter("always")
        for _ in range(2):
            h, x = np.arange(20.0), np.array([1, 3, 2, 4, 0, 5])[: len(values)]
            try:
                loop(h, h.copy(), x, np.zeros(len(values)), np.array(values))
            except omp.LoopError as error:
                refusals.append(error.rule)
    assert set(refusals) <= {"dependence"}
    found = [one for one in given_ if issubclass(one.category, omp.DirectiveWarning)]
    event("refused" if refusals else "warned" if found else "neither")
    assert len(found) == (is_expected and not refusals), text
    for one in found:
        line = text.splitlines()[one.lineno - 1]
        assert "h[" in line or "a[k] = " in line, text
        assert all(word in str(one.message) for word in ('atomic=["h"]', "reduction=", "check=True")), text
