"""What lowering makes of a function says what the function says: both are carried out, on equal arguments."""

# ruff: noqa: PLR0133, PLW2901, RET505, SIM108, SIM201
# The loops are as short as what they are about allows.

import inspect
import math
import math as mathematics
from math import sqrt as root

import numpy as np
import pytest

import offload as omp
from offload import acc
from offload.errors import LoopError
from offload.loops.front.parse import NestClauses, parse
from offload.loops.front.source import FunctionSource
from offload.loops.tree import ir
from tests.loops.serial import carried_out

SCALE = 3
WEIGHT = np.float32(0.25)


class _Atomic:
    """What ``omp.atomic`` does outside of loops, for functions that are run as they are."""

    @staticmethod
    def add(a, index, value):
        old = a[index]
        a[index] += value
        return old

    @staticmethod
    def cas(a, index, expected, value):
        old = a[index]
        if old == expected:
            a[index] = value
        return old


@pytest.fixture(autouse=True)
def _constructs(monkeypatch):
    """Functions that are run as they are find what their text names."""
    monkeypatch.setattr(omp, "atomic", _Atomic, raising=False)
    for module in (omp, acc):
        monkeypatch.setattr(module, "loop", lambda counted, **clauses: counted, raising=False)


def agrees(function, *arguments, **clauses):
    """Carry a function and its IR out on copies, assert that they agree; return the IR."""
    bound = inspect.signature(function).bind(*arguments)
    bound.apply_defaults()
    absent = frozenset(name for name, value in bound.arguments.items() if value is None)
    parsed = parse(FunctionSource.of(function), NestClauses(**clauses), absent)
    ours, theirs = (
        {name: np.copy(value) if isinstance(value, np.ndarray) else value for name, value in bound.arguments.items()}
        for _ in range(2)
    )
    returned = carried_out(parsed, {name: value for name, value in ours.items() if name not in absent})
    expected = function(**theirs)
    assert returned == expected
    for name in set(ours) - absent:
        np.testing.assert_array_equal(ours[name], theirs[name])
    return parsed


def numbers(*shape):
    """Return small numbers that are sums of halves, so that nothing is rounded."""
    return np.random.default_rng(7).integers(-20, 20, shape).astype(float) / 2


def sums(*names, operator="+"):
    return {"reductions": tuple(ir.LoopReduction(operator, name) for name in names)}


# -- expressions


def every_operator(a, i, k):
    for t in range(a.size):
        a[t] = (a[t] + 2) * 3 - a[t] / 4
        i[t] = ((i[t] // 3) % 5) ** 2 & 7 | 8 ^ k
        i[t] = (i[t] << 2) >> 1
        i[t] += -i[t] + +i[t] - ~i[t]


def comparisons(a, b):
    for i in range(len(a)):
        b[i] = 1.0 if (0 <= a[i] < 5 != 7 and not a[i] == 2) or a[i] > 8 >= i else -1.0


def calls(a, b):
    for i in range(a.size):
        x = abs(a[i]) + 1
        b[i] = math.sin(x) + np.sqrt(x) + mathematics.pi + root(x) + np.arctan2(x, 2.0) + math.hypot(x, 1)
        b[i] += (
            min(x, 3.0, a[i]) - max(x, a[i]) + round(x) + int(x) + float(i) + bool(i) + np.float32(x) + np.minimum(x, 2)
        )


def shapes(a, b):
    for i in range(a.shape[0]):
        b[i] = a.shape[1] * 100 + a.ndim * 10 + a.shape[-1] + len(b) + b.size + a[i][0] + a[i, 1] + a[-1][-1]


def frozen(a):
    for i in range(len(a)):
        a[i] = a[i] * SCALE + WEIGHT


def zero_dimensions(a, b):
    for i in range(len(a)):
        a[i] = b[()]


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (every_operator, (numbers(9), np.arange(1, 10), 5)),
        (comparisons, (numbers(30), numbers(30))),
        (calls, (numbers(9), numbers(9))),
        (shapes, (numbers(4, 3), numbers(4))),
        (frozen, (numbers(5).astype(np.float32),)),
        (zero_dimensions, (numbers(5), np.array(2.5))),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_expressions(function, arguments):
    """Expressions keep their meaning."""
    agrees(function, *arguments)


# -- assignments


def swaps(a):
    for i in range(a.size // 2):
        a[2 * i], a[2 * i + 1] = a[2 * i + 1], a[2 * i]


def swaps_of_scalars(a):
    for i in range(len(a)):
        x, y = i, a[i]
        x, y = y, x
        x, y, z = y + x, x, x - y
        a[i] = x * 100 + y * 10 + z


def an_index_of_the_same_tuple(a, b):
    for i in range(len(a)):
        j = 0
        j, b[j] = i, a[i]
        a[i] = j


def chains(a, b):
    for i in range(len(a)):
        x = y = a[i] + 1
        x += 1
        a[i] = b[i] = x * y
        s: np.float64 = 0
        s -= x
        b[i] *= s


def quotients(a, b):
    for i in range(len(a)):
        q, r = divmod(a[i], 3)
        q, r = divmod(r, q + 20)
        b[i] = q * 100 + r


def locals_of_an_iteration(a):
    for i in range(len(a)):
        t = np.zeros(3)
        u = np.full((2, 2), 5, np.int32)
        v = np.ones(SCALE, dtype=np.float32)
        for k in range(t.shape[0]):
            t[k] = a[i] * k
            u[k % 2, 0] += k
        a[i] = t[2] + u[1, 0] + u[0][0] + v[0] + len(t) + u.size + u.ndim


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (swaps, (numbers(10),)),
        (swaps_of_scalars, (numbers(10),)),
        (an_index_of_the_same_tuple, (numbers(5), numbers(5))),
        (chains, (numbers(5), numbers(5))),
        (quotients, (np.arange(-6, 6), np.zeros(12, int))),
        (locals_of_an_iteration, (numbers(5),)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_assignments(function, arguments):
    """Assignments happen in Python's order."""
    agrees(function, *arguments)


# -- control flow


def searches(a, found):
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            if a[i, j] > 4:
                where = j
                break
            if a[i, j] < -4:
                continue
            a[i, j] += 1
        else:
            where = -1
        found[i] = where


def waits(a, n):
    for i in range(len(a)):
        k = 0
        while k < n and a[i] < 100:
            k += 1
            if k == 3:
                continue
            if a[i] > 50:
                break
            a[i] = a[i] * 2 + 7
        else:
            k = -1
        a[i] += k


def continues(a):
    for i in range(len(a)):
        if a[i] < 0:
            continue
        a[i] = 1.0


def reuses_a_variable(a):
    for i in range(len(a)):
        j = 2
        for j in range(i):
            j += 1
            a[i] += j
        for k in range(2):
            a[i] += k
        for k in range(3):
            a[i] -= k
        a[i] += j


def counts_down(a, step):
    for i in range(len(a) - 1, -1, step):
        for k in range(6, 0, -2):
            a[i] += k * i


def collapses(a):
    for i in range(1, a.shape[0]):
        for j in range(0, a.shape[1], 2):
            a[i, j] += 10 * i + j


@pytest.mark.parametrize(
    ("function", "arguments", "clauses"),
    [
        (searches, (numbers(9, 4), np.zeros(9, int)), {}),
        (waits, (numbers(20), 6), {}),
        (continues, (numbers(9),), {}),
        (reuses_a_variable, (numbers(5),), {}),
        (counts_down, (numbers(9), -2), {}),
        (collapses, (numbers(5, 6),), {"collapse": 2}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_control_flow(function, arguments, clauses):
    """Loops in an iteration, their ends and what follows them keep their meaning."""
    agrees(function, *arguments, **clauses)


# -- functions that are called


def scaled(x, factor=SCALE, offset=None):
    """Return a number."""
    if offset is not None:
        x += offset
    return x * factor


def signed(x):
    if x > 0:
        one = 1
        return one, x
    elif x < 0:
        return -1, -x
    else:
        return 0, 0.0


def adds(row, i, value):
    row[i] += value


def takes(counts, k):
    counts[k] -= 1
    return counts[k]


def norm(v, n):
    s = 0.0
    for k in range(n):
        s += abs(v[k])
    return s


def is_near(x, y):
    d = x - y
    return abs(d) < 3


def calls_functions(a, b):
    for i in range(len(a)):
        x = scaled(a[i])
        s = scaled(x, offset=1.5) + scaled(factor=2, x=a[i])
        sign, size = signed(s)
        adds(b, i, sign * size)
        t = np.zeros(4)
        adds(t, 1, a[i])
        adds(t, 2, -3)
        b[i] += norm(t, len(t)) + x


def orders_effects(c, b):
    for i in range(len(b)):
        b[i] = c[0] + 10 * takes(c, 0) + 100 * c[0] + takes(c, 0) * c[0]
        b[i] += takes(c, 1)
        c[takes(c, 0) % 2 + 1] += takes(c, 2) + c[1]
        b[i] += 1 if takes(c, 0) % 2 else takes(c, 1)
        b[i] += 1 if (takes(c, 1) % 2 and takes(c, 0) % 3) or takes(c, 2) % 2 else 0
        b[i] += 1 if i < i + 1 <= takes(c, 1) != takes(c, 2) >= i > takes(c, 1) else 0
        b[i] += 1 if c[2] < takes(c, 2) + 2 <= takes(c, 2) + 5 < takes(c, 0) else 0


def calls_in_conditions(a, b, c):
    for i in range(len(a)):
        k = 0
        while is_near(a[i] + k, b[i]) and norm(b, 3) > 0:
            k += 1
        b[i] = k
        for j in range(takes(c, i) % 2, 3):
            b[i] += j


def in_a_prologue(a, n):
    m = scaled(n, 2)
    if m > 5:
        k = 1
    else:
        k = 2
    for i in range(k, len(a)):
        a[i] += m


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (calls_functions, (numbers(9), numbers(9))),
        (orders_effects, (np.arange(30, 33), np.zeros(7, int))),
        (calls_in_conditions, (numbers(9), numbers(9) - 1, np.arange(9))),
        (in_a_prologue, (numbers(9), 2)),
        (in_a_prologue, (numbers(9), 5)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_functions_are_inlined(function, arguments):
    """Functions of numbers and arrays are called as Python calls them, effects in Python's order."""
    agrees(function, *arguments)


def test_inlined_nodes_have_their_own_lines():
    """A node of an inlined function has the line where that function's text has it."""
    parsed = agrees(calls_functions, numbers(3), numbers(3))
    lines = {node.place.line for node in parsed.nests[0].body if isinstance(node, ir.Store)}
    first = inspect.getsourcelines(adds)[1]
    assert first + 1 in lines


# -- reductions and atomics


def sums_up(x):
    s = 1.0
    t = 2.0
    for i in range(len(x)):
        s = s + x[i] - 2 * x[i] + 1
        t -= x[i]
        if x[i] > 0:
            s += x[i]
            continue
        t = x[i] * 2 + t
    return s, t


def multiplies(x):
    s = 1.0
    for i in range(len(x)):
        s *= 2
        s = s * x[i] * 2
    return s


def least(x):
    s = math.inf
    for i in range(len(x)):
        s = min(s, x[i])
        s = min(x[i] + 3, s, 9)
        s = min(s, x[i] - 1)
        s = min(x[i], s)
        s = min(x[i], s)
        s = min(x[i], s)
    return s


def bits(m):
    s = 0
    for i in range(len(m)):
        s |= m[i]
        s = s | m[i] | 4
    return s


def all_positive(x):
    s = True
    for i in range(len(x)):
        s = s and x[i] > -9
        s = x[i] > -9 and s
    return s


def in_place(x, total, most):
    for i in range(len(x)):
        total += x[i]
        total[()] -= 2 * x[i]
        total[()] = total[()] + 1
        most[0] = max(most[0], x[i])


@pytest.mark.parametrize(
    ("function", "arguments", "clauses"),
    [
        (sums_up, (numbers(9),), sums("s", "t")),
        (multiplies, (numbers(3),), sums("s", operator="*")),
        (least, (numbers(9),), sums("s", operator="min")),
        (bits, (np.arange(9),), sums("s", operator="|")),
        (all_positive, (numbers(9),), sums("s", operator="and")),
        (
            in_place,
            (numbers(9), np.array(1.0), np.zeros(1)),
            {"reductions": (ir.LoopReduction("+", "total"), ir.LoopReduction("max", "most"))},
        ),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_reductions(function, arguments, clauses):
    """Every form of an update becomes one of the reduction."""
    parsed = agrees(function, *arguments, **clauses)
    assert parsed.nests[0].reductions == clauses["reductions"]


def counts(h, x, least):
    for i in range(len(x)):
        h[x[i]] += 1
        h[x[i]] -= 3
        least[0] = min(least[0], x[i])
        least[1] = max(x[i], least[1])


def draws(c, x, y):
    for i in range(len(x)):
        k = omp.atomic.add(c, 0, 1)
        y[k] = x[i]
        omp.atomic.add(c, 1, k)
        y[0] += c[1] + omp.atomic.cas(c, 1, k, 100)


def test_atomic_updates():
    """Updates of an array in ``atomic`` become atomic ones, calls of ``omp.atomic`` too."""
    parsed = agrees(counts, np.zeros(9, int), np.arange(9) % 4, np.zeros(2, int), atomic=("h", "least"))
    assert all(isinstance(node, ir.Atomic) for node in parsed.nests[0].body)
    agrees(draws, np.zeros(2, int), numbers(9), numbers(9))


# -- parts


def defaults(a, w=None, v=None):
    if w is None:
        w = 2.0
    for i in range(len(a)):
        a[i] *= w
        if v is not None and v[i] > 0:
            a[i] = v[i]
        a[i] += 1 if v is None else v[0]


def two_ways(a, v=None):
    if v is None:
        for i in range(len(a)):
            a[i] = 0
    else:
        for i in range(len(a)):
            a[i] = v[i]


def reads_before(a, b, k):
    w = a[0]
    v = w + k
    k = 5
    if v > 3:
        u = a[1]
    else:
        u = k
    for i in range(len(b)):
        b[i] = w + v * u + k


def reads_what_the_loop_assigns(a, b, k):
    w = a[0] + k
    for i in range(len(b)):
        k = i
        b[i] = w + k


def reads_between(a, b):
    w = b[0]
    for i in range(len(a)):
        a[i] += w
    v = a[0]
    for i in range(len(b) - 1):
        b[i + 1] += v


def leaves_the_last(x, y):
    t = 0.0
    for i in range(len(x)):
        t = 2 * x[i]
        y[i] = t
    return t


def several(a, b, n):
    s = 0.0
    k = n + 1
    for i in range(len(a)):
        s += a[i]
    k += 1
    for i in range(len(b)):
        t = b[i] * k
        b[i] = t
    return s


@pytest.mark.parametrize(
    ("function", "arguments", "clauses"),
    [
        (defaults, (numbers(5),), {}),
        (defaults, (numbers(5), 3.0, numbers(5)), {}),
        (two_ways, (numbers(5),), {}),
        (two_ways, (numbers(5), numbers(6)), {}),
        (reads_before, (numbers(5), numbers(5), 2), {}),
        (reads_what_the_loop_assigns, (numbers(5), numbers(5), 2), {}),
        (reads_between, (numbers(5), numbers(5)), {"several": True}),
        (leaves_the_last, (numbers(5), numbers(5)), {"lastprivate": ("t",)}),
        (several, (numbers(5), numbers(6), 3), {"several": True}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_parts(function, arguments, clauses):
    """Defaults, statements before a nest, several nests and what is returned keep their meaning."""
    agrees(function, *arguments, **clauses)


def test_a_variable_before_the_loop_may_have_the_name_of_the_loops():
    """What a name holds before the loop has its own type; the loop's variable counts in integers."""
    parsed = agrees(named_twice, np.zeros(300))
    assert parsed.nests[0].axes[0].variable != "i"
    with pytest.raises(LoopError, match="assigned by the loop"):
        parse(FunctionSource.of(read_behind), NestClauses(several=True))


def named_twice(a):
    i = 0.5
    w = i * 2
    for i in range(a.size):
        a[i] = w * i


def read_behind(a):
    i = 0.5
    for i in range(a.size):
        a[i] = 1
    w = i
    for k in range(a.size):
        a[k] = w
