"""OpenACC's regions, data constructs and waits as strings, comments and over functions, against `offload.acc`."""

from __future__ import annotations

import numpy as np
import pytest

from tests.conformance.pragma.spelling import dedent

REGIONS = ("parallel", "kernels", "serial")


def arrays():
    return np.arange(8.0), np.ones(8), 3


PRESENT = (
    "api.enter_data(copyin=[x, y])",
    "api.exit_data(delete=[x], copyout=[y])",
)

CLAUSES = {
    "no clause": ("", "", ()),
    "copy": ("copyin(x) copy(y)", 'copyin=["x"], copy=["y"]', ()),
    "copyout": ("copyin(x) copyout(y)", 'copyin=["x"], copyout=["y"]', ()),
    "create": ("create(x) copy(y)", 'create=["x"], copy=["y"]', ()),
    "zero": ("create(zero: x) copy(y)", 'create=[api.zero("x")], copy=["y"]', ()),
    "readonly": ("copyin(readonly: x) copy(y)", 'copyin=["x"], copy=["y"]', ()),
    "present": ("present(x, y)", 'present=["x", "y"]', PRESENT),
    "older spellings": ("pcopyin(x) pcopy(y)", 'copyin=["x"], copy=["y"]', ()),
    "oldest spellings": ("present_or_copyin(x) present_or_copyout(y)", 'copyin=["x"], copyout=["y"]', ()),
    "pcreate": ("pcreate(x) pcopyout(y)", 'create=["x"], copyout=["y"]', ()),
    "present_or_create": ("present_or_create(x) present_or_copy(y)", 'create=["x"], copy=["y"]', ()),
    "no_create": ("no_create(x, y)", 'no_create=["x", "y"]', PRESENT),
    "async": ("async copy(x, y)", 'async_=True, copy=["x", "y"]', ()),
    "async of a queue": ("async(n) copy(x, y)", 'async_=3, copy=["x", "y"]', ()),
    "wait": ("copy(x, y) wait", 'copy=["x", "y"], wait=True', ()),
    "wait for queues": ("copy(x, y) async(1) wait(2, n)", 'copy=["x", "y"], async_=1, wait=[2, 3]', ()),
    "if": ("copy(x, y) if(n > 5)", 'copy=["x", "y"], if_=False', ()),
    "default present": ("default(present)", 'default="present"', PRESENT),
    "default none": (
        "default(none) copy(x, y) firstprivate(n)",
        'default="none", copy=["x", "y"], firstprivate=["n"]',
        (),
    ),
    "private": ("private(x) copy(y)", 'private=["x"], copy=["y"]', ()),
    "firstprivate": ("firstprivate(x) copy(y)", 'firstprivate=["x"], copy=["y"]', ()),
    "sections": ("copyin(x[0:8]) copy(y[0:8])", 'copyin=["x[0:8]"], copy=["y[0:8]"]', ()),
}


@pytest.mark.parametrize("construct", REGIONS)
@pytest.mark.parametrize("name", CLAUSES)
def test_regions(twins, construct, name):
    """Each clause of a compute construct means in a string what the keyword of the decorator means."""
    string, keywords, around = CLAUSES[name]
    before, after = around or ("pass", "pass")
    fill = (
        "x[...] = 2"
        if any(word in name for word in ("private", "create")) and "no_" not in name and name != "firstprivate"
        else "pass"
    )
    block = f"""
        @directives
        def program(x, y, n):
            {before}
            with acc("{construct} {string}"):
                {fill}
                y[...] = x * n
            omp("taskwait")
            {after}
    """
    calls = f"""
        def region(x, y, n):
            {fill}
            y[...] = x * n

        def program(x, y, n):
            {before}
            region(x, y, n)
            offload.taskwait()
            {after}
    """
    call = f"@api.{construct}({keywords})\n{dedent(calls)}"
    function = f'@acc("{construct} {string}")\n{dedent(calls)}'
    outcome = twins.same(dedent(block), call, arrays, functions=function)
    assert outcome.nodes


@pytest.mark.parametrize("construct", REGIONS)
@pytest.mark.parametrize(
    "clause", ["num_gangs(2)", "num_workers(4)", "vector_length(32)", "num_gangs(2) num_workers(1)"]
)
def test_sizes(twins, construct, clause):
    """The sizes of a region are the keywords of the decorator."""
    block = f"""
        @directives
        def program(x, y, n):
            with acc("{construct} copy(y) {clause}"):
                y[...] = x * n
    """
    calls = f"""
        @api.{construct}(copy=["y"], {clause.replace("(", "=").replace(") ", ", ").replace(")", "")})
        def region(x, y, n):
            y[...] = x * n

        def program(x, y, n):
            region(x, y, n)
    """
    twins.same(dedent(block), dedent(calls), arrays)


def test_deviceptr(twins):
    """`deviceptr` passes device memory to the block."""
    block = """
        @directives
        def program(y):
            block = api.malloc(64)
            d = block.view("f8")
            with acc("parallel deviceptr(d) copyout(y)"):
                d[...] = 4
                y[...] = d + 1
            api.free(block)
    """
    calls = """
        @api.parallel(deviceptr=["d"], copyout=["y"])
        def region(d, y):
            d[...] = 4
            y[...] = d + 1

        def program(y):
            block = api.malloc(64)
            d = block.view("f8")
            region(d, y)
            api.free(block)
    """
    assert twins.same(dedent(block), dedent(calls), lambda: (np.zeros(8),)).arguments[0].tolist() == [5] * 8


def test_wait_of_a_device(twins):
    """`wait(devnum: d: queues: …)` and `wait(1, 2)` are the queues of the call."""
    block = """
        @directives
        def program(x, y):
            with acc("parallel async(1) copy(x)"):
                x += 1
            with acc("parallel async(2) copy(y)"):
                y += 1
            acc("wait(devnum: 0: queues: 1, 2)")
            found = api.async_test(1), api.async_test(2)
            with acc("parallel async(1) copy(x)"):
                x += 1
            acc("wait(1) async(2)")
            with acc("parallel async(2) wait(1) copy(x)"):
                x *= 2
            acc("wait(queues: 2)")
            acc("wait")
            acc("wait(2, 1) if(False)")
            return found
    """
    calls = """
        @api.parallel
        def add(x):
            x += 1

        @api.parallel
        def double(x):
            x *= 2

        def program(x, y):
            add.options(async_=1, copy=[x])(x)
            add.options(async_=2, copy=[y])(y)
            api.wait(1, 2, device=0)
            found = api.async_test(1), api.async_test(2)
            add.options(async_=1, copy=[x])(x)
            api.wait(1, async_=2)
            double.options(async_=2, wait=1, copy=[x])(x)
            api.wait(2)
            api.wait()
            api.wait(2, 1, if_=False)
            return found
    """
    outcome = twins.same(dedent(block), dedent(calls), lambda: (np.ones(4), np.ones(4)))
    assert outcome.value == (True, True)
    assert outcome.arguments[0].tolist() == [6] * 4


REGION = """
    @api.parallel
    def region(x, y, n):
        y[...] = x * n

"""


def same(twins, strings, calls):
    head = dedent(REGION) + "\n"
    body = "\n".join("    " + line for line in strings)
    other = "\n".join("    " + line for line in calls)
    define = "def program(x, y, n):\n"
    return twins.same(f"{head}@directives\n{define}{body}\n", f"{head}{define}{other}\n", arrays)


DATA = {
    "copy": ("copyin(x) copyout(y)", "copyin=[x], copyout=[y]"),
    "create": ("copyin(x) create(zero: y)", "copyin=[x], create=[api.zero(y)]"),
    "no_create": ("no_create(x) copy(y)", "no_create=[x], copy=[y]"),
    "async": ("copy(x, y) async(1)", "copy=[x, y], async_=1"),
    "wait": ("copy(x, y) wait(1)", "copy=[x, y], wait=1"),
    "if": ("copy(x, y) if(n > 5)", "copy=[x, y], if_=False"),
    "sections": ("copyin(x[0:8]) copy(y[0:n], y[n:8-n])", "copyin=[x], copy=[y[:3], y[3:]]"),
}


@pytest.mark.parametrize("name", DATA)
def test_data(twins, name):
    """Each clause of `data` means in a string what the keyword means."""
    string, keywords = DATA[name]
    inside = "x = x" if name == "sections" else "region(x, y, n)"
    rest = [f"    {inside}", "    found = api.is_present(x)", "offload.taskwait()", "return found"]
    same(twins, [f'with acc("data {string}"):', *rest], [f"with api.data({keywords}):", *rest])


def test_default_of_data(twins):
    """`default(present)` of `data` is the call's, if that has it, and `present` clauses work in nested blocks."""
    strings = [
        'with acc("data copyin(x) copy(y)"):',
        '    with acc("data present(x, y)"):',
        '        with acc("parallel present(x, y)"):',
        "            y[...] = x * n",
    ]
    calls = [
        "with api.data(copyin=[x], copy=[y]):",
        "    with api.data(present=[x, y]):",
        "        region.options(present=[x, y])(x, y, n)",
    ]
    same(twins, strings, calls)


HOST_DATA = {
    "use_device": ("use_device(x, y)", "use_device=[x, y]"),
    "if": ("use_device(x, y) if(n > 5)", "use_device=[x, y], if_=False"),
    "if_present": ("use_device(x, y) if_present", "use_device=[x, y], if_present=True"),
}


@pytest.mark.parametrize("name", HOST_DATA)
def test_host_data(twins, name):
    """In a `host_data` block the names of `use_device` are the device arrays."""
    string, keywords = HOST_DATA[name]
    strings = [
        'with acc("data copyin(x)"):' if name == "if_present" else 'with acc("data copyin(x) create(y)"):',
        f'    with acc("host_data {string}"):',
        "        found = isinstance(x, np.ndarray), isinstance(y, np.ndarray)",
        "return found, isinstance(x, np.ndarray)",
    ]
    calls = [
        strings[0]
        .replace('acc("data ', "api.data(")
        .replace("copyin(x)", "copyin=[x], ")
        .replace("create(y)", "create=[y]")
        .replace('"):', "):"),
        f"    with api.host_data({keywords}) as (dx, dy):",
        "        found = isinstance(dx, np.ndarray), isinstance(dy, np.ndarray)",
        "return found, isinstance(x, np.ndarray)",
    ]
    outcome = same(twins, strings, calls)
    assert outcome.value == (
        {"use_device": (False, False), "if": (True, True), "if_present": (False, True)}[name],
        True,
    )


ENTER = {
    "copyin": ("copyin(x) create(y)", "copyin=[x], create=[y]"),
    "zero": ("copyin(x) create(zero: y)", "copyin=[x], create=[api.zero(y)]"),
    "async": ("copyin(x, y) async(1)", "copyin=[x, y], async_=1"),
    "wait": ("copyin(x, y) async(1) wait(2)", "copyin=[x, y], async_=1, wait=2"),
    "if": ("copyin(x, y) if(n)", "copyin=[x, y]"),
    "pcopyin": ("pcopyin(x) pcreate(y)", "copyin=[x], create=[y]"),
}
EXIT = {
    "copyout": ("copyout(y) delete(x)", "copyout=[y], delete=[x]"),
    "finalize": ("copyout(y) delete(x) finalize", "copyout=[y], delete=[x], finalize=True"),
    "async": ("copyout(y) delete(x) async(1)", "copyout=[y], delete=[x], async_=1"),
    "wait": ("copyout(y) delete(x) async(1) wait(1, 2)", "copyout=[y], delete=[x], async_=1, wait=[1, 2]"),
    "if": ("copyout(y) delete(x) if(n)", "copyout=[y], delete=[x]"),
}


@pytest.mark.parametrize("name", ENTER)
def test_enter_data(twins, name):
    """Each clause of `enter data` means in a string what the keyword means."""
    string, keywords = ENTER[name]
    rest = ["offload.taskwait()", "region(x, y, n)", "api.exit_data(delete=[x], copyout=[y])"]
    same(twins, [f'acc("enter data {string}")', *rest], [f"api.enter_data({keywords})", *rest])


@pytest.mark.parametrize("name", EXIT)
def test_exit_data(twins, name):
    """Each clause of `exit data` means in a string what the keyword means."""
    string, keywords = EXIT[name]
    first = ["api.enter_data(copyin=[x, y])", "region(x, y, n)"]
    last = ["offload.taskwait()", "return api.is_present(x), api.is_present(y)"]
    outcome = same(twins, [*first, f'acc("exit data {string}")', *last], [*first, f"api.exit_data({keywords})", *last])
    assert outcome.value == (False, False)
    assert (outcome.arguments[1] == 3 * np.arange(8.0)).all()


UPDATE = {
    "self": ("self(y)", "self_=[y]"),
    "host": ("host(y)", "self_=[y]"),
    "device": ("device(x)", "device=[x]"),
    "both": ("self(y) device(x)", "self_=[y], device=[x]"),
    "sections": ("self(y[0:n], y[n + 1:2])", "self_=[y[:3], y[4:6]]"),
    "if_present": ("self(y) device(z) if_present", "self_=[y], device=[z], if_present=True"),
    "async": ("self(y) async(1)", "self_=[y], async_=1"),
    "wait": ("self(y) async(1) wait(2)", "self_=[y], async_=1, wait=2"),
    "if": ("self(y) if(n > 5)", "self_=[y], if_=False"),
}


@pytest.mark.parametrize("name", UPDATE)
def test_update(twins, name):
    """Each clause of `update` means in a string what the keyword means."""
    string, keywords = UPDATE[name]
    first = ["z = np.zeros(3)", "api.enter_data(copyin=[x, y])", "region(x, y, n)", "x[...] = 7", "y[...] = 8"]
    last = ["offload.taskwait()", "before = y.copy()", "api.exit_data(copyout=[x, y])", "return before"]
    same(twins, [*first, f'acc("update {string}")', *last], [*first, f"api.update({keywords})", *last])


def test_queues_and_devices(twins):
    """`set`, `init` and `shutdown` are the routines."""
    strings = [
        'acc("init")',
        'acc("set default_async(n)")',
        "found = api.get_default_async()",
        'acc("set device_num(0)")',
        "api.set_default_async(0)",
        "where = api.get_device_num(api.get_device_type())",
        "return found, where",
    ]
    calls = [
        "api.init()",
        "api.set_default_async(n)",
        "found = api.get_default_async()",
        "api.set_device_num(0, api.device_default)",
        "api.set_default_async(0)",
        "where = api.get_device_num(api.get_device_type())",
        "return found, where",
    ]
    outcome = same(twins, strings, calls)
    assert outcome.value == (3, 0)


def test_the_same_object_as_the_decorator(twins):
    """A string over a function gives a region with ``options``; with `async` it returns a task."""
    module = twins.string(
        dedent("""
        @acc("parallel copyin(x) copy(y) async(1)")
        def program(x, y):
            y += x
            return 5
        """)
    )
    x, y = np.ones(3), np.ones(3)
    assert module(x, y).result() == 5
    assert module.options(async_=None)(x, y) == 5
    assert y.tolist() == [3] * 3


def test_self_clause(twins):
    """`self` of a region runs it on the host, as the keyword does."""
    block = """
        @directives
        def program(x, seen):
            with acc("parallel self copy(x)"):
                x += 1
                seen.append(offload.is_initial_device())
            with acc("parallel self(False) copy(x)"):
                x += 1
                seen.append(offload.is_initial_device())
    """
    calls = """
        def body(x, seen):
            x += 1
            seen.append(offload.is_initial_device())

        def program(x, seen):
            api.parallel(self_=True, copy=[x])(body)(x, seen)
            api.parallel(self_=False, copy=[x])(body)(x, seen)
    """
    assert twins.same(dedent(block), dedent(calls), lambda: (np.zeros(2), [])).arguments[1] == [True, False]


@pytest.mark.parametrize("construct", ["parallel", "serial", "kernels"])
def test_reduction_of_a_region(twins, construct):
    """`reduction` of a region means what the keyword of the decorator means, errors included."""
    block = f"""
        @directives
        def program(x, s):
            with acc("{construct} copyin(x) reduction(+: s)"):
                s += x.sum()
            return float(s)
    """
    calls = f"""
        @api.{construct}(copyin=["x"], reduction={{"+": ["s"]}})
        def region(x, s):
            s += x.sum()

        def program(x, s):
            region(x, s)
            return float(s)
    """
    make = lambda: (np.arange(4.0), np.array(1.0))  # noqa: E731
    twins.same(dedent(block), dedent(calls), make)
