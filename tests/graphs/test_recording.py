"""What `record` keeps: nodes, edges and the order that waits impose."""

import io
import threading

import numpy as np
import pytest
import rich
from rich.console import Console

import offload as omp


@omp.task
def step(*_):
    return "ran"


@omp.target(nowait=True)
def double(x):
    x *= 2


def edges(graph):
    """The edges by the positions of their ends."""
    return {(edge.source.index, edge.target.index, edge.kind) for edge in graph.edges}


def directives(graph):
    return [node.directive for node in graph.tasks]


def test_depend_edges_carry_kind_and_item(sim):
    """Flow, anti and output dependences are edges, with the list item that they are about."""
    with omp.record(execute=False) as graph:
        step.options(depend=[omp.out(("x",))])()
        step.options(depend=[omp.in_(("x",))])()
        step.options(depend=[omp.out(("x",))])()
        step.options(depend=[omp.out(("x",))])()
    assert edges(graph) == {(0, 1, "flow"), (1, 2, "anti"), (2, 3, "output")}
    assert all("x" in edge.item for edge in graph.edges)


def test_taskwait_comes_after_what_was_generated_and_before_what_follows(sim):
    """A taskwait is a node between the two parts of the block; what has successors is waited for through them."""
    with omp.record(execute=False) as graph:
        step.options(depend=[omp.out(("x",))])()
        step.options(depend=[omp.in_(("x",))])()
        step()
        omp.taskwait()
        step()
    assert directives(graph) == ["task", "task", "task", "taskwait", "task"]
    assert edges(graph) == {(0, 1, "flow"), (1, 3, "wait"), (2, 3, "wait"), (3, 4, "wait")}


def test_two_taskwaits_chain(sim):
    """The second taskwait waits for the tasks since the first; with none there is no node."""
    with omp.record(execute=False) as graph:
        omp.taskwait()
        step()
        omp.taskwait()
        step()
        omp.taskwait()
    assert directives(graph) == ["task", "taskwait", "task", "taskwait"]
    assert {(0, 1), (1, 2), (2, 3)} <= {edge[:2] for edge in edges(graph)}


def test_taskwait_depend_waits_for_what_it_names_though_others_follow_that(sim):
    """A taskwait with depend orders the named writer before what comes after, even if a reader follows it already."""
    with omp.record(execute=False) as graph:
        step.options(depend=[omp.out(("x",))])()
        step.options(depend=[omp.in_(("x",))])()
        omp.taskwait(depend=[omp.in_(("x",))])
        step()
    assert edges(graph) == {(0, 1, "flow"), (0, 2, "wait"), (2, 3, "wait")}


def test_end_of_taskgroup_waits_for_its_tasks_only(sim):
    """What was generated before the group is not waited for at its end; what follows the group is after the end."""
    with omp.record(execute=False) as graph:
        step()
        with omp.taskgroup():
            step()
            step()
        step()
    assert directives(graph) == ["task", "task", "task", "taskwait", "task"]
    assert edges(graph) == {(1, 3, "wait"), (2, 3, "wait"), (3, 4, "wait")}


def test_taskwait_after_a_group_waits_for_what_was_before_it(sim):
    """A taskwait behind a group is after the group's end and after the tasks from before it."""
    with omp.record(execute=False) as graph:
        step()
        with omp.taskgroup():
            step()
        omp.taskwait()
    assert edges(graph) == {(1, 2, "wait"), (0, 3, "wait"), (2, 3, "wait")}


def test_target_data_is_entry_tasks_wait_exit(sim):
    """A target data region is its entry, what it holds, a wait, and its exit, in this order."""
    x = np.ones(4)
    with omp.record(execute=False) as graph, omp.target_data(map=[omp.tofrom(x)]):
        double.options(depend=[omp.inout(x)])(x)
        double.options(depend=[omp.inout(x)])(x)
    assert len(graph.tasks) == 5
    assert [node.index for node, _ in graph.critical_path()] == [0, 1, 2, 3, 4]
    assert (x == 1).all()
    graph.compute("synchronous")
    assert (x == 4).all()


def test_synchronous_target_is_a_fence(sim):
    """What is generated after a synchronous region comes after it; what was independent before it stays so."""
    x, y, z = np.ones(4), np.ones(4), np.ones(4)
    with omp.record(execute=False) as graph:
        double(x)
        assert double.options(nowait=False)(y) is None
        double(z)
    assert edges(graph) == {(1, 2, "wait")}


def test_result_is_a_wait_for_one_task():
    """`result()` orders the task that it waited for before what follows, also if another follows that task."""
    with omp.Runtime("sim:1", num_threads=0, check=True):  # nothing runs before somebody waits
        with omp.record() as graph:
            first = step.options(depend=[omp.out(("x",))])()
            step.options(depend=[omp.in_(("x",))])()
            step()
            assert first.result() == "ran"
            step()
        omp.taskwait()
    assert edges(graph) == {(0, 1, "flow"), (0, 3, "wait"), (3, 4, "wait")}


@pytest.mark.parametrize("ask", [omp.Task.result, omp.Task.exception])
@pytest.mark.parametrize("is_complete", [False, True])
def test_a_wait_for_a_task_is_recorded_whether_or_not_the_task_is_complete(ask, is_complete):
    """The graph of a program with `result()` in it does not depend on how far the task has come by then."""
    with omp.Runtime("none", num_threads=1 if is_complete else 0):
        done = threading.Event()
        with omp.record() as graph:
            first = step()
            first.add_done_callback(lambda _: done.set())
            if is_complete:
                assert done.wait(20)
            ask(first)
            step()
        omp.taskwait()
    assert directives(graph) == ["task", "taskwait", "task"]
    assert edges(graph) == {(0, 1, "wait"), (1, 2, "wait")}


def test_a_task_that_has_been_waited_for_is_waited_for_once(sim):
    """`result()` behind a taskwait, behind an undeferred task's end or a second time adds no node."""
    with omp.record() as graph:
        first, second = step(), step()
        assert [first.result(), first.result()] == ["ran"] * 2
        omp.taskwait()
        second.result()
        assert step.options(if_=False)().result() == "ran"
    assert directives(graph) == ["task", "task", "taskwait", "taskwait", "task"]


def test_a_wait_that_timed_out_orders_nothing(sim):
    """`result(timeout)` that ends in TimeoutError is no node; one that does not is."""
    event = omp.Event()
    with omp.record() as graph:
        task = omp.task(detach=event)(lambda: "ran")()
        with pytest.raises(TimeoutError):
            task.result(timeout=0)
        step()
        event.fulfill()
        assert task.result(timeout=20) == "ran"
    omp.taskwait()
    assert directives(graph) == ["task", "task", "taskwait"]


def test_a_complete_task_can_be_asked_where_nobody_may_wait(sim):
    """In the body of a target region a recorded task that is complete gives its result."""
    with omp.record():
        task = step()
        omp.taskwait()
    assert omp.target(task.result)() == "ran"


def test_waits_have_a_state(sim):
    """A wait is recorded, waiting or complete as what it waits for; a finished graph has nothing left to wait for."""
    event = omp.Event()
    with omp.record() as graph:
        step().result()
        with omp.taskgroup():
            omp.task(detach=event)(lambda: None)()
            event.fulfill()
        omp.taskwait()
    assert [node.state for node in graph.tasks] == ["complete"] * 5
    text = io.StringIO()
    Console(file=text, width=200).print(graph)
    assert "5 done;" in text.getvalue()
    with omp.record(execute=False) as graph:
        step()
        omp.taskwait()
    assert [node.state for node in graph.tasks] == ["recorded"] * 2
    graph.compute("synchronous")
    assert [node.state for node in graph.tasks] == ["complete"] * 2


def test_nothing_runs_when_only_recorded(sim):
    """With execute=False no body runs, host memory stays, waits return, and `result()` is a UsageError."""
    x = np.ones(4)
    ran = []
    with omp.record(execute=False) as graph:
        task = omp.task(lambda: ran.append(1))()
        double(x)
        assert omp.target_memcpy_rect(x[:2], np.zeros(2)) is None
        omp.target_enter_data(map=[omp.to(x)])
        omp.target_exit_data(map=[omp.from_(x)])
        omp.taskwait()
        with pytest.raises(omp.UsageError):
            task.result()
    with pytest.raises(omp.UsageError):
        task.result(1)
    assert not ran
    assert (x == 1).all()
    assert task.state == "recorded"
    assert len(graph.tasks) == 6


def test_recording_and_running_keeps_times(sim):
    """After record(), tasks have a state and a duration, and the critical path is the slowest chain."""
    with omp.record() as graph:
        step.options(depend=[omp.out(("x",))])()
        step.options(depend=[omp.inout(("x",))])()
        omp.taskwait()
    assert [node.state for node in graph.tasks[:2]] == ["complete"] * 2
    assert all(node.duration_s >= 0 for node in graph.tasks[:2])
    path = graph.critical_path()
    assert [node.index for node, _ in path] == [0, 1, 2]


def test_nested_tasks_are_no_nodes(sim):
    """Tasks that a recorded body generates belong to that body."""

    @omp.task
    def outer():
        step()
        omp.taskwait()

    with omp.record() as graph:
        outer()
    omp.taskwait()
    assert [node.name for node in graph.tasks] == ["outer"]


def test_views(sim, tmp_path):
    """A recorded graph prints in the terminal and is written as SVG, as a page, and for Graphviz and Mermaid."""
    with omp.record(execute=False) as graph:
        step.options(depend=[omp.out(("x",))])()
        step.options(depend=[omp.in_(("x",))])()
        omp.taskwait()
    text = io.StringIO()
    rich.print(graph, file=text)
    Console(file=text, width=200).print(graph)
    assert text.getvalue().count("step") >= 4
    graph.visualize(tmp_path / "g.svg")
    graph.visualize(tmp_path / "g.dot")
    assert "<svg" in (tmp_path / "g.svg").read_text()
    assert "digraph" in (tmp_path / "g.dot").read_text()
    for name, start in (("g.mmd", "flowchart"), ("g.html", "<!DOCTYPE html>")):
        graph.visualize(tmp_path / name)
        assert (tmp_path / name).read_text().startswith(start)
    with pytest.raises(omp.UnsupportedError):
        graph.visualize(tmp_path / "g.bmp")


def test_views_of_sets_and_of_what_was_cancelled(tmp_path):
    """Pictures draw edges of kind "set" in their own way, and show a discarded task as one that did not run."""
    with omp.Runtime("none", num_threads=0, env={"OMP_CANCELLATION": "true"}):
        with omp.record() as graph, omp.taskgroup():
            step.options(depend=[omp.out(("x",))])()
            step.options(depend=[omp.inoutset(("x",))])()
            step.options(depend=[omp.mutexinoutset(("x",))])()
            omp.task(depend=[omp.out(("y",))])(lambda: omp.cancel("taskgroup"))()
            step.options(depend=[omp.in_(("y",)), omp.in_(omp.section(np.zeros(4), (0, 2)))], name="lost")()
        omp.taskwait()
    assert {edge[:3] for edge in edges(graph)} == {
        (0, 1, "set"), (1, 2, "set"), (3, 4, "flow"), (2, 5, "wait"), (4, 5, "wait")
    }  # fmt: skip
    assert graph.tasks[4].state == "cancelled"
    assert graph.tasks[5].state == "complete"
    text = io.StringIO()
    Console(file=text, width=200).print(graph)
    assert "⊘ cancelled" in text.getvalue()
    assert "5 done, 1 not run" in text.getvalue()
    graph.visualize(tmp_path / "g.svg")
    svg = (tmp_path / "g.svg").read_text()
    assert "set: (&#x27;x&#x27;,)" in svg or "set: ('x',)" in svg
    assert "inoutset, mutexinoutset" in svg  # the legend
    graph.visualize(tmp_path / "g.dot")
    dot = (tmp_path / "g.dot").read_text()
    assert dot.count("set: ('x',)") == 2
    assert "cancelled" in dot


def test_all_memory_and_depend_objects(sim):
    """The edges of all_memory name it; those of a depobj name its list item."""
    x = np.zeros(4)
    with omp.record(execute=False) as graph:
        step.options(depend=[omp.depobj(omp.out(x))])()
        step.options(depend=[omp.inout(omp.all_memory)])()
        omp.taskwait(depend=[omp.in_(x)], nowait=True)
    assert directives(graph) == ["task", "task", "taskwait"]
    assert [(edge.source.index, edge.target.index, edge.kind, edge.item) for edge in graph.edges] == [
        (0, 1, "flow", "all_memory"),
        (1, 2, "flow", "float64[4]"),
    ]


def test_recording_twice_is_an_error(sim):
    """A region records one graph at a time, and another afterwards."""
    with omp.record(execute=False), pytest.raises(omp.UsageError), omp.record():
        pass
    with omp.record(execute=False) as graph:
        step()
    assert len(graph.tasks) == 1


def test_the_default_device_is_the_recorded_one(runtime):
    """A task that a recorded body generates inherits the default device of the recording region."""
    host = omp.get_initial_device()
    omp.set_default_device(host)
    try:
        with omp.record(execute=False) as graph:
            omp.task(omp.get_default_device)()
    finally:
        omp.set_default_device(0)
    assert list(graph.compute("synchronous").values()) == [host]


def test_a_graph_that_is_being_computed(sim):
    """A graph is computed once at a time, whether it has events or not; the error says what to do."""
    said = []

    @omp.task
    def again():
        with pytest.raises(omp.UsageError, match="wait for that computation, or record another") as caught:
            graph.compute("synchronous")
        said.append(str(caught.value))

    with omp.record(execute=False) as graph:
        again()
    graph.compute("synchronous")
    assert "event" not in said[0]
