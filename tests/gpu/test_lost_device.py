"""Kernels that go wrong: the right tasks fail, by name, and nothing hangs.

An error of a kernel poisons the process's context for good, so that each of these programs has a process of its own,
which prints the stacks of its threads where it hangs.
"""

from __future__ import annotations

import pytest

import offload as omp
from offload import inout
from tests.gpu.conftest import complaints, cupy, device_array, python

pytestmark = pytest.mark.gpu

BAD = """
extern "C" __device__ void __assertfail(const char*, const char*, unsigned, const char*, size_t);
extern "C" __global__ void bad(float* x, int kind) {
    if (kind == 0) x[1ull << 40] = 1;
    if (kind == 1) *(double*)((char*)x + 4) = 1;
    if (kind == 2) __trap();
    if (kind == 3) __assertfail("never", "a test", 1, "bad", 1);
}
"""
KINDS = ["illegal address", "misaligned address", "trap", "assertion"]

SETUP = f"""
import traceback
bad = cupy.RawKernel({BAD!r}, "bad")
bad((1,), (1,), (cupy.zeros(10, "f4"), -1))

@omp.target(nowait=True)
def add(x):
    x += 1

@omp.target(nowait=True, name="culprit")
def culprit(x, kind=0):
    bad((1,), (1,), (x, kind))

def outcome(call, *args):  # what a construct comes to: it may fail at the call, or as a task
    try:
        task = call(*args)
    except DeviceLostError as error:
        return error
    return task.exception(timeout=20) if isinstance(task, Task) else None

def is_lost(error, what=""):
    assert isinstance(error, DeviceLostError), (what, error, *traceback.format_exception(error))

def lost():  # a runtime whose device is lost
    runtime = Runtime("cuda:0").__enter__()
    d = omp.target_alloc(10, "f4")
    assert isinstance(culprit(d).exception(timeout=20), DeviceLostError)
    return runtime, d

def close(runtime):
    import warnings
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CleanupWarning)  # what is mapped or allocated there is lost with the device
        runtime.__exit__(None, None, None)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("offload-")]
    print("closed")
"""


def lost(program, **kwargs):
    """Run a program with the kernels and functions above; check that it ran to its end, and return its output."""
    stdout, stderr = python(SETUP + program + "\nprint('end')\n", **kwargs)
    assert stdout.endswith("end\n")
    assert complaints(stderr) == []
    return stdout


# -- who fails --------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", range(len(KINDS)), ids=KINDS)
def test_an_error_fails_its_task_and_what_follows(kind):
    """The kernel's task fails and is named; what follows in the stream or depends on it fails too, and nothing else."""
    lost(f"""
runtime = Runtime("cuda:0", num_threads=2).__enter__()
latch = Latch()
warm()
d = omp.target_alloc(10, "f4")
omp.target_memset(d, 0)
before = add.options(depend=[inout(d)])(d)
assert before.result(timeout=20) is None
other = omp.task(lambda: 7)()

@omp.target(nowait=True)
def hold(x):
    latch.hold(omp.current_stream())

ran = []
held = hold.options(depend=[inout(d)])(d)
first = culprit.options(depend=[inout(d)])(d, {kind})
after = [add.options(depend=[inout(d)])(d) for _ in range(3)]
host = omp.task(depend=[in_(d)])(ran.append)(1)
latch.release()

error = first.exception(timeout=20)
assert isinstance(error, DeviceLostError), repr(error)
assert first.key in str(error) and first.key.startswith("culprit"), str(error)
assert any("culprit" in note for note in error.__notes__), error.__notes__
assert isinstance(error.__cause__, Exception), error.__cause__
for task in after:
    error = task.exception(timeout=20)
    assert isinstance(error, (DeviceLostError, DependError)), repr(error)
    assert isinstance(error, DependError) or task.key in str(error), str(error)
    assert "fail" in task.state or task.state == "not run", task.state
assert isinstance(host.exception(timeout=20), DependError) and not ran, host.exception()
held.exception(timeout=20)  # CUDA tells no more whether it was done when the device was lost
assert before.exception() is None and other.result() == 7
omp.taskwait()  # each failure has been seen
omp.target_free(d)
close(runtime)
""")


def test_a_construct_that_waits_raises():
    """A synchronous target raises what lost the device, and names itself."""
    lost("""
with Runtime("cuda:0") as runtime:
    x = cupy.zeros(10, "f4")
    try:
        culprit.options(nowait=False)(x)
    except DeviceLostError as error:
        assert "culprit" in str(error), error
    else:
        raise AssertionError("no error")
""")


def test_the_end_of_the_runtime_raises_what_nobody_saw():
    """It comes as a group with the failure of each task; the process ends by it, with status 1."""
    _, stderr = python(
        SETUP
        + """
with Runtime("cuda:0"):
    x = cupy.zeros(10, "f4")
    culprit(x)
""",
        status=1,
    )
    assert "ExceptionGroup" in stderr
    assert "DeviceLostError: culprit-" in stderr
    assert complaints(stderr) == []


def test_every_wait_ends():
    """Threads that wait for a task, children, a group, dependences, a future, a callback or an event: all return."""
    lost("""
runtime = Runtime("cuda:0", num_threads=2).__enter__()
latch = Latch()
warm()
d = omp.target_alloc(10, "f4")
stream = omp.stream(3)
event = omp.Event()
detached = omp.task(detach=event)(lambda: None)()
latch.hold(stream)
event.fulfill_on(stream)

@omp.target(nowait=True)
def hold(x):
    latch.hold(omp.current_stream())

def generate():
    hold.options(depend=[inout(d)])(d)
    return culprit.options(depend=[inout(d)])(d)

def by_result():
    generate().result()
def by_timeout():
    generate().result(timeout=30)
def by_taskwait():
    generate()
    omp.taskwait()
def by_group():
    with omp.taskgroup():
        generate()
def by_depend():
    task = generate()
    omp.taskwait(depend=[in_(d)])
    task.result()
def by_future():
    generate().as_future().result(timeout=30)
def by_callback():
    told = threading.Event()
    task = generate()
    task.add_done_callback(lambda _: told.set())
    assert told.wait(30)
    task.result()

raised = {}
def wait(how):
    try:
        how()
    except BaseException as error:
        raised[how.__name__] = error
hows = [by_result, by_timeout, by_taskwait, by_group, by_depend, by_future, by_callback]
threads = [threading.Thread(target=wait, args=(how,)) for how in hows]
for thread in threads:
    thread.start()
time.sleep(0.3)  # most of them wait by now; those that do not, find the device lost
latch.release()
for thread in threads:
    thread.join(30)
    assert not thread.is_alive(), thread
assert set(raised) == {how.__name__ for how in hows}, raised
def kinds(error):
    if isinstance(error, BaseExceptionGroup):
        return {kind for one in error.exceptions for kind in kinds(one)}
    return {type(error)}
for how, error in raised.items():
    assert kinds(error) <= {DeviceLostError, DependError}, (how, error)
assert isinstance(detached.exception(timeout=20), (DeviceLostError, type(None))), detached.exception()
try:
    close(runtime)
except BaseExceptionGroup as group:
    assert kinds(group) <= {DeviceLostError, DependError}, group
assert not [thread for thread in threading.enumerate() if thread.name.startswith("offload-")]
""")


def test_constructs_on_a_lost_device():
    """Each construct that needs the device fails with `DeviceLostError`; tasks of the host go on."""
    lost("""
a = np.zeros(10, "f4")
pinned = cupyx.zeros_pinned(10, "f4")
runtime, d = lost()
tried = {
    "target": lambda: add.options(nowait=False)(d),
    "target nowait": lambda: add(d),
    "target, mapped": lambda: add(a),
    "target, mapped, pinned": lambda: add(pinned),
    "enter": lambda: omp.target_enter_data(map=[to(a)]),
    "memcpy to": lambda: omp.target_memcpy(d, a),
    "memcpy from": lambda: omp.target_memcpy(pinned, d),
    "memcpy async": lambda: omp.target_memcpy_async(d, pinned),
    "memcpy rect": lambda: omp.target_memcpy_rect_async(d, a),
    "memset": lambda: omp.target_memset(d, 0),
    "memset async": lambda: omp.target_memset_async(d, 0),
    "synchronize": lambda: omp.device(0).synchronize(),
}
for name, call in tried.items():
    error = outcome(call)
    is_lost(error, name)
assert omp.task(lambda: 5)().result() == 5
omp.taskwait()
omp.target_free(d)
close(runtime)
""")


def test_other_devices_go_on():
    """What is lost is the GPU: the other device of the runtime, and the runtime's host tasks, work as before."""
    lost("""
runtime = Runtime("cuda:0,sim:1", num_threads=2).__enter__()
d = omp.target_alloc(10, "f4", device=0)
assert isinstance(culprit.options(device=0)(d).exception(timeout=20), DeviceLostError)
x = np.zeros(10)
for _ in range(3):
    add.options(device=1, depend=[inout(x)])(x)
omp.task(depend=[inout(x)])(lambda: np.add(x, 1, out=x))()
omp.taskwait()
assert (x == 4).all(), x
omp.target_free(d)
close(runtime)
""")


def test_a_second_runtime_says_so():
    """The loss is the process's: a runtime opened after it fails by `DeviceLostError`, and closes."""
    lost("""
runtime, d = lost()
omp.target_free(d)
close(runtime)
try:
    second = Runtime("cuda:0").__enter__()
except DeviceError as error:
    print(error)
else:
    is_lost(outcome(add, np.zeros(3, "f4")))
    close(second)
""")


def test_a_refused_launch_loses_nothing(gpu):
    """A launch that CUDA refuses is the failure of that body alone: the device works on."""
    kernel = cupy.RawKernel('extern "C" __global__ void idle(double* x) { x[threadIdx.x] += 1; }', "idle")

    @omp.target(nowait=True)
    def launch(x, n_threads):
        kernel((1,), (n_threads,), (x,))

    d = device_array([0] * 4)
    refused = launch.options(depend=[inout(d)])(d, 1 << 16)
    assert isinstance(refused.exception(timeout=20), cupy.cuda.driver.CUDADriverError)
    assert launch(d, 4).exception(timeout=20) is None
    assert (d.get() == 1).all()
    omp.target_free(d)
