"""How a process ends: with 1 if a task has failed and nobody has seen that, and with its own status otherwise."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from tests.profiles import few

PREAMBLE = """
import atexit, logging, os, signal, sys, threading, time
from offload import *
@task
def fails(): raise ValueError("on purpose")
"""


def run(program, *options, preamble=PREAMBLE, **env):
    """Run a program in a fresh interpreter; return its status, and what it wrote to stdout and stderr."""
    text = preamble + textwrap.dedent(program)
    command = [sys.executable, *options, *([] if options else ["-c", text])]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "OFFLOAD_DEVICES": "sim", **env},
    )
    return done.returncode, done.stdout, done.stderr


def ends(program, status, *options, **env):
    """Check the status of a program, and that its failure is printed once; return what it wrote to stdout."""
    found, stdout, stderr = run(program, *options, **env)
    assert found == status, stderr
    assert stderr.count("ValueError: on purpose") == 1, stderr
    return stdout


UNSEEN = {
    "the end": "fails()",
    "sys.exit": "fails(); sys.exit()",
    "sys.exit(0)": "fails(); sys.exit(0)",
    "sys.exit(main())": "def main(): fails()\nsys.exit(main())",
    "SystemExit": "fails(); raise SystemExit",
    "exit": "fails(); exit()",
    "an exit that is caught": "fails()\ntry: sys.exit(3)\nexcept SystemExit: pass",
    "the exit of a thread": "fails()\nt = threading.Thread(target=lambda: sys.exit(3)); t.start(); t.join()",
    "a task of a thread": "t = threading.Thread(target=fails); t.start(); t.join()",
    "a target region": "target(nowait=True)(lambda: fails._function())()",
    "a coroutine": "async def later(): fails._function()\ntask(later)()",
    "an open runtime": "Runtime('sim').__enter__(); fails()",
    "one of two runtimes": "Runtime('sim').__enter__(); fails(); Runtime('sim').__enter__()",
    "a dependent task": "fails.options(depend=[out(1)])(); task(depend=[in_(1)])(print)()",
    "a function of atexit": "atexit.register(fails)",
    "a thread that goes on": "threading.Thread(target=lambda: (time.sleep(0.1), fails())).start()",
    "one failure of two": "fails().exception(); fails()",
    "a task that is given up too": "fails(); task(detach=Event())(lambda: None)()",
}


@pytest.mark.parametrize("program", few(2, UNSEEN.values()), ids=UNSEEN)
def test_an_unseen_failure_ends_the_process_with_1(program):
    """A process whose task has failed unseen prints the failure once and ends with 1."""
    ends(program, 1, OFFLOAD_HANG_S="2")


@pytest.mark.parametrize(
    "program", few(1, ["fails()", "fails(); raise SystemExit", "Runtime('sim').__enter__(); fails()"])
)
def test_a_report_alone(program):
    """With ``OFFLOAD_UNSEEN=report`` it prints the failure and keeps its status."""
    ends(program, 0, OFFLOAD_UNSEEN="report")


@pytest.mark.parametrize(
    "program",
    few(
        2,
        [
            "fails().exception(); sys.exit()",
            "fails()\ntry: taskwait()\nexcept* ValueError: pass",
            "task(detach=Event())(lambda: None)()",
            "target_alloc(3)",
            "try:\n    with Runtime('sim'): fails()\nexcept* ValueError: pass",
            "task(lambda: None)()",
            "fails().exception()",
        ],
    ),
)
def test_a_failure_that_was_seen_does_not_count(program):
    """A process without an unseen failure ends as ever, whatever else it leaves."""
    status, _, stderr = run(program, OFFLOAD_HANG_S="2")
    assert status == 0, stderr
    assert "on purpose" not in stderr


@pytest.mark.parametrize(
    ("program", "status"),
    few(
        2,
        [
            ("fails(); sys.exit(3)", 3),
            ("fails(); 1 / 0", 1),
            ("try: sys.exit(4)\nexcept SystemExit: pass\nfails(); sys.exit(3)", 3),
            ("with Runtime('sim'): fails()", 1),
            ("fails(); sys.exit('a message')", 1),
            ("def main():\n    fails()\n    return 5\nsys.exit(main())", 5),
            ("try: sys.exit(3)\nfinally: fails()", 3),
            ("fails()\ntry: sys.exit(3)\nexcept SystemExit: raise", 3),
            ("atexit.register(fails); sys.exit(3)", 3),
        ],
        are_rows=True,
    ),
)
def test_a_status_of_the_program_stays(program, status):
    """What the program ends with by `sys.exit`, or by an exception, it ends with."""
    ends(program, status)


def test_a_process_that_ends_at_once():
    """`os._exit` ends the process at once, with its status and without a report."""
    assert run("fails(); os._exit(0)") == (0, "", "")


@pytest.mark.parametrize("way", few(1, ["module", "script", "-c"]))
def test_ways_to_run(way, tmp_path):
    """The status does not depend on how the program is started."""
    script = tmp_path / "program.py"
    text = PREAMBLE + "fails()\n"
    script.write_text(text)
    options = {"script": [str(script)], "module": ["-m", "program"], "-c": ["-c", text]}[way]
    path = os.pathsep.join([str(tmp_path), *sys.path])
    ends("", 1, *options, PYTHONPATH=path)
    script.write_text(text + "sys.exit(7)\n")
    if way != "-c":
        ends("", 7, *options, PYTHONPATH=path)


def test_everything_else_still_ends(tmp_path):
    """Functions of `atexit` and of the C library, logging, finalizers, open files and buffers come to their end."""
    log = tmp_path / "log"
    before = f"""
    import atexit, ctypes, sys, logging
    sys.stdout.reconfigure(write_through=False)
    atexit.register(print, "registered before")
    logging.basicConfig(filename={str(log)!r} + ".logging", level="INFO")
    library = ctypes.CDLL(None)
    library.puts.argtypes = [ctypes.c_char_p]
    in_c = ctypes.create_string_buffer(b"C")
    library.__cxa_atexit(library.puts, in_c, None)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(in_c))
    """
    stdout = ends(
        f"""
        atexit.register(print, "registered after")
        atexit.register(logging.info, "logged at the end")
        class Last:
            def __del__(self, print=print): print("finalized")
        last = Last()
        file = open({str(log)!r}, "w")
        file.write("written, not flushed")
        fails()
        print("the end")
        """,
        1,
        preamble=textwrap.dedent(before) + PREAMBLE,
    )
    lines = ["the end", "registered after", "registered before", "finalized", "C"]
    assert stdout.split("\n") == [*lines, ""]
    assert log.read_text() == "written, not flushed"
    assert "logged at the end" in (tmp_path / "log.logging").read_text()


@pytest.mark.parametrize("method", few(1, ["spawn", "fork", "forkserver"]))
def test_children(method, tmp_path):
    """A child that fails unseen ends with 1 where it ends as a program does; its parent keeps its own status."""
    script = tmp_path / "program.py"
    script.write_text(
        textwrap.dedent(f"""
        import multiprocessing, sys
        def child(fails):
            import offload as omp
            def body():
                if fails: raise ValueError("on purpose")
            task = omp.task(body)()
            if not fails: omp.taskwait()
        if __name__ == "__main__":
            context = multiprocessing.get_context({method!r})
            for fails in (True, False):
                process = context.Process(target=child, args=(fails,))
                process.start()
                process.join()
                print(process.exitcode)
        """)
    )
    status, stdout, stderr = run("", str(script))
    assert status == 0, stderr
    assert stdout.split()[1:] == ["0"]
    if method == "spawn":
        assert stdout.split()[0] == "1"
        assert "ValueError: on purpose" in stderr


@pytest.mark.parametrize(("fails_here", "fails_there"), [(True, False), (False, True)])
def test_a_forked_child_has_its_own_status(fails_here, fails_there):
    """Parent and child of a fork each end with the status of their own tasks."""
    status, stdout, stderr = run(f"""
        if {fails_here}: fails()
        time.sleep(0.1)
        child = os.fork()
        if child:
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        elif {fails_there}:
            fails()
    """)
    assert (status, stdout) == (int(fails_here), f"{int(fails_there)}\n"), stderr


def test_a_pool_of_processes_ends():
    """Workers of a pool that have unseen failures return their results, and the pool ends."""
    status, stdout, stderr = run("""
        from concurrent.futures import ProcessPoolExecutor
        import multiprocessing
        def work(number):
            import offload as omp
            omp.task(int)("no number")
            return number
        if __name__ == "__main__":
            with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as pool:
                print(sum(pool.map(work, range(6))))
    """)
    assert (status, stdout) == (0, "15\n"), stderr


def test_a_prompt_keeps_its_status():
    """An interactive session, where a person reads the report, ends with 0."""
    done = subprocess.run(
        [sys.executable, "-i", "-q"],
        input=PREAMBLE.replace("@task\ndef fails(): ", "def fails(): ") + "\n\nof_task = task(fails)()\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "OFFLOAD_DEVICES": "sim"},
    )
    assert done.returncode == 0
    assert "ValueError: on purpose" in done.stderr


def test_the_word_is_checked():
    """`OFFLOAD_UNSEEN` is ``fail`` or ``report``; anything else is refused with the words."""
    status, _, stderr = run("fails()", OFFLOAD_UNSEEN="ignore")
    assert status == 1
    assert "OFFLOAD_UNSEEN='ignore'" in stderr
    assert "FAIL, REPORT" in stderr


# -- work that begins while the interpreter ends -------------------------------------------------------
WORK = """
import atexit, threading, time, weakref
class Some: pass
def work():
    import offload as omp
    @omp.task
    def body():
        time.sleep(0.05)
        print("ran", flush=True)
    body()
def regions():
    import numpy as np, offload as omp
    x = np.zeros(3)
    @omp.target(nowait=True, depend=[omp.inout(x)])
    def body(x):
        x += 1
    with omp.target_data(map=[x]):
        body(x)
        body(x)
    assert (x == 2).all()
    async def later(): work()
    omp.task(later)()
def loop():
    import offload as omp
    omp.taskloop(lambda part: work(), num_tasks=1)(range(3))
def own():
    import offload as omp
    with omp.Runtime("sim"):
        work()
"""


AT_THE_END = [
    "atexit.register({work})",
    "atexit.register(lambda: (t := threading.Thread(target={work}), t.start(), t.join()))",
    "some = Some(); weakref.finalize(some, {work})",
    "import multiprocessing.util; multiprocessing.util.Finalize(None, {work}, exitpriority=1)",
    "import offload; atexit.register({work})",
    "threading._register_atexit({work})",
    "threading.Thread(target=lambda: (time.sleep(0.1), {work}())).start()",
    "import offload; threading.Thread(target=lambda: (time.sleep(0.1), {work}())).start()",
    "from concurrent.futures import ThreadPoolExecutor; ThreadPoolExecutor().submit({work})",
]
OTHER_WORK = ["regions", "loop", "own"]


@pytest.mark.parametrize(
    "program",
    few(
        2,
        [program.format(work="work") for program in AT_THE_END]
        + [AT_THE_END[0].format(work=work) for work in OTHER_WORK],
    ),
)
def test_work_at_the_end_is_done(program):
    """Work that begins while the interpreter ends runs, also where the library is first imported then."""
    if sys.version_info >= (3, 12) and "atexit.register" in program and "Thread" in program:
        pytest.skip("Python starts no thread then")
    status, stdout, stderr = run(program, preamble=WORK)
    assert (status, stdout) == (0, "ran\n"), stderr


@pytest.mark.parametrize(
    "program",
    few(
        2,
        [
            "atexit.register(work); import offload; offload.task(int)()",
            "some = Some(); weakref.finalize(some, work); import offload",
            "atexit.register(regions); import offload",
            "atexit.register(loop); import offload",
            "atexit.register(own); import offload",
            "atexit.register(work); import offload",
            "import multiprocessing.util as u; u.Finalize(None, work, exitpriority=1); import offload",
        ],
    ),
)
def test_work_after_the_end_is_refused(program):
    """Work that begins when the runtimes have been closed is refused with an error that says so."""
    _, stdout, stderr = run(program, preamble=WORK)
    assert not stdout
    assert "RuntimeClosedError: the process ends, and its runtimes have been closed" in stderr
