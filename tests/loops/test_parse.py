"""What a loop function may say, rule by rule: `tests/loops/test_lowering.py` has what is accepted, this what is not."""

# ruff: noqa: B007, B905, C416, F821, F841, PLR1730, PLW0120, PLW0603, PLW2901, RET503, RET504, RUF059
# The loops are as short as what they are about allows.

import inspect
import math
import pickle

import numpy as np
import pytest
import scipy.special

import offload as omp
from offload import acc
from offload.errors import ClauseError, LoopError
from offload.loops.front.parse import NestClauses, check_plain, parse
from offload.loops.front.source import FunctionSource
from offload.loops.tree import ir

TABLE = np.zeros(3)
SIZES = {"n": 3}
HALF = np.float16(0.5)


def refused(function, rule, *words, absent=(), **clauses):
    """Assert that a function breaks a rule at the line that has ``# <-``, and that the message has some words."""
    lines, first = inspect.getsourcelines(function)
    line = first + next(number for number, text in enumerate(lines) if "# <-" in text)
    with pytest.raises(LoopError) as caught:
        parse(FunctionSource.of(function), NestClauses(**clauses), frozenset(absent))
    error = caught.value
    assert (error.rule, error.line, error.file) == (rule, line, __file__), str(error)
    text = lines[line - first].split("# <-")[0].strip()
    quoted = str(error).split("`")[1]
    assert quoted, str(error)
    assert quoted in text or text in quoted, str(error)
    for word in words:
        assert word in str(error), str(error)


def accepted(function, *, absent=(), **clauses):
    """Return the IR of a function."""
    return parse(FunctionSource.of(function), NestClauses(**clauses), frozenset(absent))


def sums(*names, operator="+"):
    return {"reductions": tuple(ir.LoopReduction(operator, name) for name in names)}


# -- argument, name


def test_arguments_are_named():
    """A loop function has a parameter for each argument."""

    def f(*a):  # <-
        for i in range(3):
            a[i] = 0

    refused(f, "argument", "one parameter for each argument")


def test_an_argument_that_is_none_is_not_used():
    """A default that is None is asked for, and nothing else."""

    def f(a, w=None):
        for i in range(len(a)):
            a[i] = w[i]  # <-

    refused(f, "argument", "w is None", "is None", absent=["w"])
    accepted(f)


def test_an_argument_is_a_number_or_an_array():
    """A parameter is not indexed here and a number there."""

    def f(a, b):
        for i in range(len(a)):
            b[i] = a + 1  # <-

    refused(f, "index", "line", "one index for every dimension")


def test_arrays_come_as_arguments():
    """An array of the module is no scalar."""

    def f(a):
        for i in range(len(a)):
            a[i] = TABLE[i]  # <-

    refused(f, "name", "TABLE", "ndarray", "pass it as an argument")


def test_other_objects_come_as_arguments():
    """A dict of a closure is no scalar; nor is a half-precision number."""
    sizes = dict(SIZES)

    def f(a):
        for i in range(len(a)):
            a[i] = sizes  # <-

    def g(a):
        for i in range(len(a)):
            a[i] = HALF  # <-

    refused(f, "name", "of type dict", "pass it as an argument")
    refused(g, "name", "float16")


def test_names_are_defined():
    """A name that nothing defines is refused when the function is decorated."""

    def f(a):
        for i in range(len(a)):
            a[i] = nothing + 1  # <-

    refused(f, "name", "nothing", "define it before")


def test_nothing_global_is_assigned():
    """``global`` and ``nonlocal`` are refused."""
    k = 0

    def f(a):
        global TABLE  # <-
        for i in range(len(a)):
            a[i] = 0
        TABLE = 3

    def g(a):
        nonlocal k  # <-
        for i in range(len(a)):
            a[i] = 0
        k = 3

    refused(f, "name", "pass an array")
    refused(g, "name", "pass an array")
    assert k == 0


# -- range, collapse


def test_the_associated_loop_counts():
    """``while`` and iteration over an array are no associated loops."""

    def f(a):
        i = 0
        while i < len(a):  # <-
            a[i] = i
            i += 1

    def g(a):
        for x in a:  # <-
            x += 1

    def h(a, n):
        if n > 3:  # <-
            for i in range(n):
                a[i] = 0

    def e(a):  # <-
        a = 3

    refused(f, "range", "range(…)")
    refused(g, "range", "range(…)")
    refused(h, "range", "if")
    refused(e, "range", "no loop")


def test_iterations_run_to_their_end():
    """``break``, ``return`` and ``else`` of the associated loop are refused, and so is changing its variable."""

    def f(a):
        for i in range(len(a)):
            if a[i] > 3:
                break  # <-

    def g(a):
        for i in range(len(a)):
            if a[i] > 3:
                return  # <-

    def h(a):
        for i in range(len(a)):
            a[i] = 0
        else:
            a[0] = 1  # <-

    def e(a):
        for i in range(len(a)):
            i += 1  # <-
            a[i] = 0

    def d(a):
        for i in range(len(a)):
            for i in range(3):  # <-
                a[i] = 0

    refused(f, "range", "continue")
    refused(g, "range", "continue")
    refused(h, "range", "else")
    refused(e, "range", "copy it")
    refused(d, "range", "i counts the iterations")


def test_bounds_are_known_before():
    """The bounds of the associated loops have no elements of arrays, themselves or by way of the prologue."""

    def f(a, n):
        for i in range(n[0]):  # <-
            a[i] = 0

    def g(a, n):
        m = n[0]
        k = m + 1
        for i in range(k):  # <-
            a[i] = 0

    def h(a, n):
        for i in range(0, len(a), n, 4):  # <-
            a[i] = 0

    refused(f, "range", "as an argument")
    refused(g, "range", "as an argument")
    refused(h, "range", "one to three")


def test_one_nest():
    """A second nest, or statements behind the nest, need another function."""

    def f(a):
        for i in range(len(a)):
            a[i] = 0
        for i in range(len(a)):  # <-
            a[i] = 1

    def g(a, b):
        s = 0.0
        for i in range(len(a)):
            s += a[i]
        s = s / len(b)  # <-
        return s

    refused(f, "range", "kernels_loop")
    refused(g, "return", "in the caller", **sums("s"))
    accepted(f, several=True)


def test_collapsed_loops_are_rectangular():
    """Collapsed loops stand in each other with nothing between, and with bounds of their own."""

    def f(a):
        for i in range(a.shape[0]):
            for j in range(i):  # <-
                a[i, j] = 0

    def g(a):
        for i in range(a.shape[0]):
            x = a[i, 0]  # <-
            for j in range(a.shape[1]):
                a[i, j] = x

    def h(a, m):
        for i in range(a.shape[0]):
            for j in range(m):  # <-
                m = 3
                a[i, j] = m

    def e(a):
        for i in range(3):
            for j in omp.loop(range(4), collapse=2):
                a[i, j] = 0  # <-

    refused(f, "collapse", "i is used", collapse=2)
    refused(g, "collapse", "nothing between", collapse=2)
    refused(h, "collapse", "m is used", collapse=2)
    refused(e, "collapse", "nothing between")
    accepted(f)
    accepted(g)


# -- loop, branch


def test_inner_loops_count():
    """Inner loops count by ``range``; there are no comprehensions and no generators."""

    def f(a):
        for i in range(3):
            for k, x in enumerate(a):  # <-
                a[k] = x + i

    def g(a, b):
        for x, y in zip(a, b):  # <-
            a[x] = y

    def h(a):
        for i in range(3):
            for x in a:  # <-
                a[i] += x

    def e(a):
        for i in range(3):
            a[i] = sum([a[k] for k in range(i)])  # <-

    def d(a):
        for i in range(3):
            yield a[i]  # <-

    def c(a):
        for i in range(3):
            a[i] = min(x for x in a)  # <-

    refused(f, "loop", "enumerate", "range(…)")
    refused(g, "loop", "zip", "range(…)")
    refused(h, "loop", "range(…)")
    refused(d, "loop", "generator")
    refused(e, "call", "sum")
    refused(c, "call", "min")


def test_comprehensions_are_loops():
    """A comprehension is refused where a number stands."""

    def f(a):
        for i in range(3):
            a[i] = [k for k in range(i)]  # <-

    refused(f, "loop", "write the loop")


@pytest.mark.parametrize(
    "statement",
    [
        "match a[i]:\n            case 1: pass",
        "with a: pass",
        "try: pass\n        except ValueError: pass",
        "raise ValueError",
        "del i",
        "import os",
        "a[i] = (lambda x: x)(3)",
        "a[i] = f'{i}'",
        "print(a[i])",
        "assert a[i], f'{i}'",
        "def g(): pass",
    ],
)
def test_statements_without_a_device_form(statement, tmp_path):
    """What has no device form is refused by its first line."""
    file = tmp_path / "program.py"
    file.write_text(f"def f(a):\n    for i in range(len(a)):\n        {statement}\n")
    names: dict = {}
    exec(compile(file.read_text(), str(file), "exec"), names)
    with pytest.raises(LoopError) as caught:
        parse(FunctionSource.of(names["f"]), NestClauses())
    assert (caught.value.line, caught.value.file) == (3, str(file))
    assert caught.value.rule == "branch"
    assert statement.split("\n")[0].split(" = ")[-1].strip("()")[:5] in str(caught.value)


# -- index


def test_indices_are_integers():
    """Slices, masks, lists and missing dimensions are refused, with the remedy."""

    def f(a):
        for i in range(3):
            a[i, :] = 0  # <-

    def g(a):
        for i in range(3):
            a[a > 0] = i  # <-

    def h(a):
        for i in range(3):
            a[[1, 2]] = i  # <-

    def e(a):
        for i in range(3):
            a[i, None] = 0  # <-

    def d(a):
        for i in range(3):
            a[i] = a.T[i]  # <-

    def c(a):
        for i in range(3):
            t = np.zeros((3, 3))
            a[i] = t[i]  # <-

    def b(a, k):
        for i in range(3):
            a[i] = a.shape[k]  # <-

    def j(a):
        for i in range(3):
            s = 1
            a[i] = s[i]  # <-

    for function in (f, g, h, e):
        refused(function, "index", "write the loop over")
    refused(d, "index", "attribute of the argument")
    refused(c, "index", "t[i] is a row of t", "range(t.shape[1])")
    refused(b, "index", "constant")
    refused(j, "index", "s is a number")


# -- assign, operator


def test_assignments_are_flat():
    """Starred, nested, walrus and attribute targets are refused."""

    def f(a):
        for i in range(3):
            x, *y = a[i], i  # <-
            a[i] = x

    def g(a):
        for i in range(3):
            x, (y, z) = 1, 2  # <-

    def h(a):
        for i in range(3):
            a[i] = (k := i) + 1  # <-

    def e(a):
        for i in range(3):
            a.flags = i  # <-

    def d(a):
        for i in range(3):
            x, y = a[i]  # <-

    def c(a):
        for i in range(3):
            x, y = 1, 2, 3  # <-

    def b(a):
        n = 3
        a[0] = n  # <-
        for i in range(3):
            a[i] = 0

    def j(a):
        for i in range(3):
            s: str = 3  # <-
            a[i] = s

    refused(f, "assign", "*")
    refused(g, "assign", "flat")
    refused(h, "assign", "a statement before")
    refused(e, "assign", "attribute")
    refused(d, "assign", "divmod")
    refused(c, "assign", "3 values for 2")
    refused(b, "assign", "loop")
    refused(j, "assign", "np.float64")


def test_operators():
    """``@`` and ``is`` have no device form."""

    def f(a, b):
        for i in range(3):
            a[i] = a[i] @ b[i]  # <-

    def g(a, b):
        for i in range(3):
            a[i] = a[i] is b  # <-

    def h(a, b):
        for i in range(3):
            a[i] @= b[i]  # <-

    refused(f, "operator", "product")
    refused(h, "operator", "product")
    refused(g, "operator", "==")


# -- call


def recursive(x):
    if x > 0:
        return recursive(x - 1)
    return 0


def early(x):
    if x > 0:
        return 1
    x = -x
    return x


def in_a_loop(x):
    for k in range(3):
        if k > x:
            return k
    return 0


def takes_any(*x):
    return x[0]


def returns_nothing(a):
    a[0] = 1


def half_returns(x):
    if x > 0:
        return 1


def test_calls_of_other_things():
    """What has no device form is named as the program names it."""

    def f(a):
        for i in range(3):
            a[i] = scipy.special.jv(0, a[i])  # <-

    def g(a):
        for i in range(3):
            a[i] = a.sum()  # <-

    def h(a):
        for i in range(3):
            a[i] = max(a[i], key=3)  # <-

    def e(a):
        for i in range(3):
            a[i] = round(a[i], 2)  # <-

    def d(a):
        for i in range(3):
            a[i] = np.linalg.norm(a)  # <-

    def c(a):
        for i in range(3):
            a[i] = divmod(a[i], 2)  # <-

    refused(f, "call", "`scipy.special.jv` has no device form")
    refused(g, "call", "a.sum", "no device form")
    refused(h, "call", "by position")
    refused(e, "call", "round", "2 arguments")
    refused(d, "call", "np.linalg.norm")
    refused(c, "call", "q, r = divmod(a, b)")


def test_functions_return_at_their_end():
    """Functions that are called end in a return, in each branch of a final ``if``, or in none."""

    def f(a):
        for i in range(3):
            a[i] = recursive(a[i])

    def g(a):
        for i in range(3):
            a[i] = early(a[i])

    def h(a):
        for i in range(3):
            a[i] = in_a_loop(a[i])

    def e(a):
        for i in range(3):
            a[i] = takes_any(a[i])  # <-

    def d(a):
        for i in range(3):
            a[i] = returns_nothing(a)  # <-

    def c(a):
        for i in range(3):
            a[i] = early(a[i], 3)  # <-

    def b(a):
        for i in range(3):
            a[i] = half_returns(a[i])

    for function, line in ((f, 2), (g, 2), (h, 3), (b, 1)):
        with pytest.raises(LoopError) as caught:
            parse(FunctionSource.of(function), NestClauses())
        called = {f: recursive, g: early, h: in_a_loop, b: half_returns}[function]
        assert caught.value.rule == "call"
        assert caught.value.line == inspect.getsourcelines(called)[1] + line
        assert called.__name__ in str(caught.value)
    refused(e, "call", "takes * or **")
    refused(d, "call", "returns nothing")
    refused(c, "call", "do not match the parameters")


def test_plain_functions_are_checked_alone():
    """A function that loops are to call is checked without a loop."""
    for function in (recursive, early, in_a_loop):
        with pytest.raises(LoopError) as caught:
            check_plain(FunctionSource.of(function))
        assert caught.value.rule == "call"
    check_plain(FunctionSource.of(returns_nothing))

    def unassigned(x):
        if x > 0:
            y = 1
        return y

    with pytest.raises(LoopError) as caught:
        check_plain(FunctionSource.of(unassigned))
    assert caught.value.rule == "unbound"


# -- return


def test_returns_are_of_scalars_in_clauses():
    """Expressions, and scalars that no clause has, are not returned."""

    def f(a):
        s = 0.0
        for i in range(len(a)):
            s += a[i]
        return s / 2  # <-

    def g(a):
        for i in range(len(a)):
            t = a[i]
            a[i] = t + 1
        return t  # <-

    refused(f, "return", "in the caller", **sums("s"))
    refused(g, "return", "lastprivate=['t']")
    assert accepted(g, lastprivate=("t",)).nests[0].last == ("t",)


def test_what_is_returned_has_its_form():
    """One name is one value, a tuple of one a tuple."""

    def f(a):
        s = 0.0
        for i in range(len(a)):
            s += a[i]
        return (s,)

    parsed = accepted(f, **sums("s"))
    assert parsed.returns == ("s",)
    assert parsed.returns_tuple


# -- reduction, atomic, private, local


def test_items_of_reductions_are_updated_only():
    """An item is read, assigned or updated by another operator nowhere in the nest, and is returned."""

    def f(a):
        s = 0.0
        for i in range(len(a)):
            s += a[i]
            a[i] = s  # <-
        return s

    def g(a):
        s = 0.0
        for i in range(len(a)):
            s = a[i]  # <-
        return s

    def h(a):
        s = 0.0
        for i in range(len(a)):
            s *= a[i]  # <-
        return s

    def e(a):  # <-
        s = 0.0
        for i in range(len(a)):
            s += a[i]

    def d(a):
        s = 0.0
        for i in range(len(a)):
            s += s * a[i]  # <-
        return s

    def c(a, total):
        for i in range(len(a)):
            total = total + a[i]  # <-

    def b(a, total):
        for i in range(len(a)):
            total[1] += a[i]  # <-

    def j(a):
        s = a[0]
        for i in range(len(a)):  # <-
            s = max(s, a[i])
        return s

    for function in (f, g, d):
        refused(function, "reduction", "updates by '+'", **sums("s"))
    refused(h, "reduction", "'*'", "one operator", **sums("s"))
    refused(e, "reduction", "return s", **sums("s"))
    refused(c, "reduction", "total[()]", **sums("total"))
    refused(b, "reduction", "updates by '+'", **sums("total"))
    refused(j, "reduction", "before the loop", **sums("s", operator="max"))


def test_reductions_of_inner_loops():
    """The item of an inner loop's clause is updated only while that runs, and is a variable after it."""

    def f(a):
        for i in range(3):
            s = 0.0
            for k in acc.loop(range(3), vector=True, reduction={"+": ["s"]}):
                s += a[k]
                a[i] = s  # <-

    def g(a):
        for i in range(3):
            s = 0.0
            for k in acc.loop(range(3), vector=32, reduction={"+": "s"}):
                s += a[k]
            a[i] = s

    refused(f, "reduction", "updates by '+'")
    loop = accepted(g).nests[0].body[1]
    assert isinstance(loop, ir.For)
    assert loop.clauses == ir.LoopClauses(
        level="vector", sizes=(("vector", 32),), reductions=(ir.LoopReduction("+", "s"),)
    )


def test_atomic_arrays_are_updated_only():
    """An array in ``atomic`` is updated by the operators that have an atomic form, and in no other way."""

    def f(h, x):
        for i in range(len(x)):
            h[x[i]] += 1
            x[i] = h[0]  # <-

    def g(h, x):
        for i in range(len(x)):
            h[x[i]] //= 2  # <-

    def e(h, x):
        for i in range(len(x)):
            h[x[i]] = 2  # <-

    def d(h, x):
        for i in range(len(x)):
            omp.atomic.add(h, x[i])  # <-

    refused(f, "atomic", "only in updates", atomic=("h",))
    refused(g, "atomic", "//=", "+ - * & | ^", atomic=("h",))
    refused(e, "atomic", "only in updates", atomic=("h",))
    refused(d, "atomic", "(a, index, value)")


def test_private_arrays():
    """Arrays of which each iteration has its own are in the nest, by the clause that says so."""

    def f(t, u, x):
        for i in range(len(x)):
            t[0] = x[i]
            u[0] += t[0]

    nest = accepted(f, private=("t",), lastprivate=("u",)).nests[0]
    assert nest.privates == {"t": "private", "u": "lastprivate"}
    assert nest.last == ()


def test_local_arrays():
    """Local arrays have constant shapes, are made in an iteration, and are small."""

    def f(a, n):
        for i in range(n):
            t = np.zeros(n)  # <-
            a[i] = t[0]

    def g(a):
        t = np.zeros(3)  # <-
        for i in range(3):
            a[i] = t[0]

    def h(a):
        for i in range(3):
            t = np.zeros((100, 100))  # <-
            a[i] = t[0, 0]

    def e(a):
        for i in range(3):
            t = np.zeros(3, "float16")  # <-
            a[i] = t[0]

    def d(a):
        for i in range(3):
            t = np.empty(2 * 3, np.int16)
            t[i] = 3
            a[i] = t[i]

    refused(f, "local", "give a constant")
    refused(g, "local", "in an iteration")
    refused(h, "private", "80000", "16384")
    refused(e, "local", "float16")
    local = accepted(d).nests[0].body[0]
    assert (local.shape, local.dtype, local.fill) == ((6,), "int16", None)


# -- carried, unbound


def test_carried_scalars_name_their_clause():
    """A scalar that an iteration reads before it assigns it is refused, with the clause that it takes."""

    def f(a):
        s = 0.0
        for i in range(len(a)):
            s += a[i]  # <-
        return s

    def g(a):
        s = 0.0
        for i in range(len(a)):
            if a[i] > s:  # <-
                s = a[i]
        return s

    def h(a):
        s = 0.0
        for i in range(len(a)):
            a[i] = s  # <-
            s = i

    def e(a, n):
        for i in range(len(a)):
            if a[i] > 0:
                n = 3
            a[i] = n  # <-

    def d(a):
        w = a[0]
        for i in range(len(a)):
            w = w + 2 * w * a[i]  # <-
            a[i] = w

    refused(f, "carried", 'reduction={"+": ["s"]}')
    refused(g, "carried", 'reduction={"max": ["s"]}')
    refused(h, "carried", "firstprivate")
    refused(e, "carried", "n")
    refused(d, "carried", "w")


def test_what_trips_of_a_shared_loop_carry():
    """Trips of an inner loop that threads share carry a scalar in its reduction alone; in order they may carry any."""

    def f(a):
        for i in range(3):
            s = 0.0
            for k in acc.loop(range(3), vector=True):
                s += a[k]  # <-
            a[i] = s

    def g(a):
        for i in range(3):
            s = 0.0
            for k in acc.loop(range(3), independent=True):
                if a[k] > 0:
                    t = a[k]
                    s = t + s * 2  # <-
            a[i] = s

    def h(a):
        for i in range(3):
            s = 0.0
            for k in acc.loop(range(3), seq=True):
                t = a[k]
                s = t + s * 2
            for k in acc.loop(range(3), vector=True, reduction={"max": ["s"]}):
                t = a[k] + i
                s = max(s, t)
            a[i] = s

    refused(f, "carried", 'reduction={"+": ["s"]}', "this loop")
    refused(g, "carried", "s")
    accepted(h)


def test_kernels_loop_finds_reductions():
    """With several nests the reductions that an iteration carries are added."""

    def f(a, b):
        s = 0.0
        t = 1
        for i in range(len(a)):
            s += a[i]
        for i in range(len(b)):
            t = max(b[i], t)
            b[i] = 0
        return s, t

    parsed = accepted(f, several=True)
    assert [nest.reductions for nest in parsed.nests] == [
        (ir.LoopReduction("+", "s"),),
        (ir.LoopReduction("max", "t"),),
    ]


def test_scalars_stay_in_their_nest():
    """What a nest has assigned is not read behind it."""

    def f(a):
        s = 0.0
        for i in range(len(a)):
            s += a[i]
        for i in range(len(a)):
            a[i] = s  # <-
        return s

    def g(a, n):
        for i in range(len(a)):
            n = i
            a[i] = n
        for i in range(len(a)):
            a[i] = n  # <-

    def h(a):
        i = 0
        for i in range(len(a)):
            a[i] = 0
        for k in range(i):  # <-
            a[k] = 0

    for function in (f, g, h):
        refused(function, "unbound", "the loop at line", several=True)


def test_variables_are_assigned_on_each_path():
    """A variable is assigned on every path to where it is read."""

    def f(a):
        for i in range(len(a)):
            if a[i] > 0:
                t = 1
            a[i] = t  # <-

    def g(a, n):
        for i in range(len(a)):
            for k in range(n):
                t = k
            a[i] = t  # <-

    def h(a):
        for i in range(len(a)):
            for k in range(3):
                a[i] = 0
            a[i] = k  # <-

    def e(a):
        for i in range(len(a)):
            s += a[i]  # <-

    def d(a):
        for i in range(len(a)):
            if a[i] > 0:
                t = np.zeros(3)
            a[i] = t[0]  # <-

    def c(a, n):
        if n > 3:
            m = 2
        for i in range(m):  # <-
            a[i] = 0

    def b(a, n):
        for i in range(len(a)):  # <-
            if a[i] > 0:
                t = n
                continue
            if a[i] < 0:
                continue
            t = 3
        return t

    for function in (f, g, h, e, d, c):
        refused(function, "unbound", "assign it before")
    refused(b, "unbound", "on each path", lastprivate=("t",))


def test_paths_that_assign():
    """What every path assigns is found to be assigned: constant trips, both branches, ``else``, endless loops."""

    def f(a):
        for i in range(len(a)):
            for k in range(3):
                t = k
            if a[i] > 0:
                u = t
            elif a[i] < 0:
                continue
            else:
                u = 3
            while True:
                v = u
                if v > a[i]:
                    break
                u += 1
            for k in range(i):
                if k > 3:
                    w = k
                    break
            else:
                w = 3
            a[i] = u + v + w

    accepted(f)


def test_elements_before_the_loop():
    """An element that is read before the loop is not written by the loop."""

    def f(a):
        w = a[0]  # <-
        for i in range(len(a)):
            a[i] = w

    def g(a, t):
        w = t[0]  # <-
        for i in range(len(a)):
            t[0] = i
            a[i] = w + t[0]

    refused(f, "range", "a is read before the loop", "as an argument")
    refused(g, "range", "t is read before the loop", private=("t",))


# -- clauses


def test_clauses_around_ranges():
    """``omp.loop`` and ``acc.loop`` say what they say of a loop."""

    def f(a):
        for i in omp.loop(range(3), bind="teams", collapse=2):
            for j in range(4):
                for k in acc.loop(range(4), worker=SIZE, vector=True, tile=(8,), auto=True):
                    a[i, j, k] = 0
                for k in omp.loop(range(4), bind="thread"):
                    a[i, j, k] = 1

    nest = accepted(f).nests[0]
    assert nest.clauses == ir.LoopClauses(level="gang", collapse=2)
    assert [axis.variable for axis in nest.axes] == ["i", "j"]
    assert nest.body[0].clauses == ir.LoopClauses(
        level="worker vector", sizes=(("worker", 16),), order="auto", tile=(8,)
    )
    assert nest.body[1].clauses.order == "seq"


SIZE = 16


def test_wrong_clauses_around_ranges():
    """What they do not know, or cannot read, they refuse."""

    def f(a):
        for i in omp.loop(range(3), bind="warp"):  # <-
            a[i] = 0

    def g(a):
        for i in acc.loop(range(3), bind="teams"):  # <-
            a[i] = 0

    def h(a, n):
        for i in acc.loop(range(3), gang=n):  # <-
            a[i] = 0

    def e(a):
        for i in acc.loop(range(3), seq=True, auto=True):  # <-
            a[i] = 0

    def d(a):
        for i in acc.loop(range(3), reduction={"-": ["s"]}):  # <-
            a[i] = 0

    refused(f, "loop", "'thread'")
    refused(g, "loop", "vector")
    refused(h, "loop", "constant")
    refused(e, "loop", "one of")
    refused(d, "loop", "operators")


def test_clauses_name_what_is_there():
    """A clause that names nothing of the function is a `ClauseError`."""

    def f(a):
        for i in range(3):
            a[i] = 0

    for clauses in (sums("s"), {"private": ("t",)}, {"atomic": ("i",)}):
        with pytest.raises(ClauseError) as caught:
            accepted(f, **clauses)
        assert "'" + {"reductions": "s", "private": "t", "atomic": "i"}[next(iter(clauses))] + "'" in str(caught.value)


def test_firstprivate_scalars():
    """Each iteration starts from the value before the loop."""

    def f(a):
        t = 2
        for i in range(3):
            a[i] = t
            t = 5

    head, store, assign = accepted(f, firstprivate=("t",)).nests[0].body
    assert (head.name, head.value.name) == ("t_1", "t")
    assert (store.value.name, assign.name) == ("t_1", "t_1")


def test_assertions_are_kept_where_the_call_checks():
    """``assert`` is there with checks, and nowhere else."""

    def f(a):
        for i in range(3):
            assert a[i] > 0, "positive"

    assert accepted(f).nests[0].body == ()
    (kept,) = accepted(f, checks=True).nests[0].body
    assert kept.text == "positive"


# -- errors


def test_the_error_travels():
    """`LoopError` keeps its fields where it is pickled."""

    def f(a):
        for i in range(3):
            a[i] = {}

    with pytest.raises(LoopError) as caught:
        accepted(f)
    error = caught.value
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.file, again.line, again.rule) == (str(error), error.file, error.line, "types")


def test_accesses_are_numbered():
    """Each access of an element has a number of its own."""

    def f(a, b):
        for i in range(3):
            a[i] += b[i] + b[i + 1]
            a[i] = math.sin(a[i])

    (first, second) = accepted(f).nests[0].body
    loads = [first.value.left.at, first.value.right.left.at, first.value.right.right.at, second.value.arguments[0].at]
    assert len({*loads, first.at, second.at}) == 6
