"""Functions under a directive, pickled: by name where they have one, by value where not; what cannot be says so."""

import copy
import pickle
import subprocess
import sys
import textwrap

import cloudpickle
import numpy as np
import pytest

import offload as omp
from offload import acc, in_, out, tofrom

pytestmark = pytest.mark.timeout(120)

PROGRAM = '''
import numpy as np
import offload as omp
from offload import acc

n = 2


@omp.task
def fibonacci(k):
    return k if k < 2 else fibonacci(k - 1).result() + fibonacci(k - 2).result()


@omp.target(map=[omp.tofrom("x[0:n]")])  # which the body does not mention
def add(x):
    x += 1


@omp.taskgraph
def graph(x):
    add.options(nowait=True)(x)


@omp.taskloop(grainsize=1)
def fill(part, x):
    for i in part:
        x[i] = i


@acc.parallel(copy=["x[0:n]"])
def add_there(x):
    x += 1


def twice(a):
    return n * a


@omp.target_loop
def scale(x):
    for i in range(len(x)):
        x[i] = twice(x[i]) + 1


@omp.parallel_loop(reduction={"+": ["total"]})
def summed(x):
    total = 0.0
    for i in range(len(x)):
        total += twice(x[i])
    return total


class Solver:
    factor = 2

    @omp.task
    def step(self):
        return self.factor

    @omp.taskloop
    def fill(self, part, x):
        for i in part:
            x[i] = self.factor * i


def make():
    @omp.task
    def enclosed():
        return fibonacci(5).result()

    return enclosed


enclosed = make()
solver = Solver()


def everything():
    """Use each function, and return what came of it."""
    x = np.zeros(4)
    found = []
    uses = (add, graph, graph, add_there, lambda x: fill(range(4), x), lambda x: solver.fill(range(4), x), scale)
    for use in (*uses, scale.options(if_=False)):
        use(x)
        found.append([summed(x), *x.tolist()])
    return [found, len(graph.records), fibonacci(7).result(), solver.step().result(), enclosed().result()]
'''

MAIN = """
import sys
import cloudpickle
import pickle

named = fibonacci, add, graph, fill, add_there, scale, summed
functions = everything, *named, scale.options(name="q"), solver.step, solver.fill, enclosed
before = cloudpickle.dumps(functions)
expected = everything()
after = cloudpickle.dumps(functions)
for function in named:
    assert pickle.loads(pickle.dumps(function)) is function
sys.stdout.buffer.write(pickle.dumps((expected, before, after)))
"""

OTHER = """
import pickle, sys

expected, *pickled = pickle.load(sys.stdin.buffer)
for one in pickled:
    everything, *functions = pickle.loads(one)
    for function in functions:
        assert callable(function)
    assert everything() == expected, (everything(), expected)
    assert everything()[1] == 2  # records of its own
"""


@omp.task
def double(x):
    return 2 * x


@omp.target(map=[tofrom("x")])
def add(x):
    x += 1


@omp.taskgraph
def graph(x):
    add.options(nowait=True)(x)


@omp.taskloop
def fill(part, x):
    for i in part:
        x[i] = i


@acc.kernels(copy=["x"])
def add_there(x):
    x += 1


@omp.target_loop
def scale(x):
    for i in range(len(x)):
        x[i] = 2 * x[i]


@omp.parallel_loop
def scale_here(x):
    for i in range(len(x)):
        x[i] = 2 * x[i]


@acc.declare(copyin=["x"])
def around(x):
    add_there(x)


class Solver:
    def __init__(self, factor):
        self.factor = factor

    @omp.task
    def step(self):
        return self.factor

    @omp.taskloop
    def fill(self, part, x):
        for i in part:
            x[i] = self.factor * i


def plain(x):
    return x


under_another_name = omp.task(plain)


def use():
    """Use each function, so that it has all that it keeps in this process."""
    x = np.zeros(3)
    double(1).result()
    for function in (add, graph, graph, add_there, scale, scale_here, around):
        function(x)
    fill(range(3), x)
    under_another_name(1).result()


@pytest.fixture(params=["before use", "after use"])
def used(request, sim):
    """The functions before their first use, and after."""
    if request.param == "after use":
        use()


@pytest.fixture(params=[pickle, cloudpickle], ids=["pickle", "cloudpickle"])
def again(request):
    """What an object is when it has been pickled and unpickled here."""
    return lambda thing: pickle.loads(request.param.dumps(thing))


def test_what_is_found_by_its_name_is_pickled_by_name(used, again):
    """A function that its module has under its name is the same object again."""
    for function in (double, add, graph, fill, add_there, scale, scale_here, around):
        assert again(function) is function


def test_a_copy_with_other_clauses_is_one_again(used, again):
    """What options made is a copy of the same function, with those clauses, which shares its records."""
    dependence = in_(("a", 1))
    found = again(double.options(name="label", depend=[dependence]))
    assert found(1).name == "label"
    assert found(2).result() == 4
    assert again(add.options(nowait=True, name="q"))(np.zeros(2)).name == "q"
    reset = again(graph.options(graph_reset=True, if_=False))
    x = np.zeros(2)
    graph(x)
    n_records = len(graph.records)
    reset(x)
    assert len(graph.records) == n_records - 1
    assert again(add_there.options(async_=1))(x).result() is None
    y = np.ones(2)
    again(scale.options(speculate=True))(y)
    again(scale_here.options(check=True))(y)
    assert y.tolist() == [4, 4]


def test_methods_and_functions_under_another_name(used, again):
    """A bound method comes with its object; a function of another name with what it decorates."""
    x = np.zeros(3)
    assert again(Solver(3).step)().result() == 3
    again(Solver(3).fill)(range(3), x)
    assert x.tolist() == [0, 3, 6]
    found = again(under_another_name)
    assert found is not under_another_name
    assert found(5).result() == 5


def test_a_copy_in_this_process_is_one_by_name(sim):
    """copy.deepcopy of an object with functions in it copies none of those that have a name."""
    assert copy.deepcopy([double])[0] is double


def test_by_value_from_a_script_and_from_closures(tmp_path):
    """cloudpickle takes functions of a script and of closures by value, to a process that has no such file."""
    script = tmp_path / "script.py"
    script.write_text(PROGRAM + textwrap.dedent(MAIN))
    found = subprocess.run([sys.executable, script], capture_output=True, timeout=60, check=True)
    script.unlink()
    subprocess.run([sys.executable, "-c", OTHER], input=found.stdout, timeout=60, check=True)


TYPED = """
import sys
import cloudpickle
import numpy as np
import offload as omp


def third(x):
    part: np.TYPE = x / 3
    return part


@omp.parallel_loop
def thirds(y, x):
    for i in range(len(y)):
        part: np.TYPE = third(x[i])
        y[i] = part


sys.stdout.buffer.write(cloudpickle.dumps(thirds))
"""


def test_types_of_variables_are_those_of_the_script_that_sends(tmp_path, sim):
    """A process may get functions of two versions of a script that differ in a type, which is in no code."""
    functions = []
    for name in ("float32", "float64"):
        script = tmp_path / "script.py"
        script.write_text(TYPED.replace("TYPE", name))
        found = subprocess.run([sys.executable, script], capture_output=True, timeout=60, check=True)
        functions.append(pickle.loads(found.stdout))
    again = [pickle.loads(cloudpickle.dumps(function)) for function in functions]
    for single, double in (functions, again):
        for function, kind in ((single, np.float32), (double, np.float64)):
            y = np.zeros(1)
            function(y, np.ones(1))
            assert y[0] == kind(1 / 3)


def test_by_name_in_another_process(tmp_path):
    """A program that imports the functions gets those of its own module."""
    (tmp_path / "functions_of_a_module.py").write_text(PROGRAM)
    code = (
        "import sys, pickle; sys.path.insert(0, sys.argv[1])\n"
        "import functions_of_a_module as m\n"
        "if len(sys.argv) == 2:\n"
        "    m.everything()\n"
        "    sys.stdout.buffer.write(pickle.dumps([m.add, m.graph, m.solver.step]))\n"
        "else:\n"
        "    assert pickle.load(sys.stdin.buffer)[:2] == [m.add, m.graph]\n"
    )
    run = [sys.executable, "-c", code, str(tmp_path)]
    found = subprocess.run(run, capture_output=True, timeout=60, check=True)
    assert len(found.stdout) < 400
    subprocess.run([*run, "load"], input=found.stdout, timeout=60, check=True)


def test_a_closure_that_calls_a_function_under_a_directive(sim):
    """cloudpickle takes a function that calls others of an enclosing one, which have been used."""

    @omp.task
    def one():
        return 1

    @omp.taskgraph(graph_id=5)
    def region(x):
        add.options(nowait=True, depend=[out("x")])(x)

    def call(x):
        region(x)
        region(x)
        return one().result()

    x = np.zeros(2)
    assert call(x) == 1
    found = pickle.loads(cloudpickle.dumps(call))
    y = np.zeros(2)
    assert found(y) == 1
    assert y.tolist() == [2, 2]


def test_what_cannot_be_pickled_says_so(sim):
    """A task, an event and a recorded graph belong to this process; the message says what to do."""
    task = double(1)
    event = omp.Event()
    with omp.record(execute=False) as recorded:
        double(2)
    for thing in (task, event, recorded, double.options(detach=event)):
        with pytest.raises(TypeError, match="and cannot be pickled; "):
            pickle.dumps(thing)
        with pytest.raises(TypeError, match="and cannot be pickled; "):
            cloudpickle.dumps(thing)
    task.result()
    assert pickle.loads(pickle.dumps(omp.depobj(in_(("a", 1))))).resolved({}).items == (("a", 1),)
