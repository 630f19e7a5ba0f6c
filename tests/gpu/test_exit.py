"""Processes that end while the GPU works: in time, by their own status, and without complaints."""

from __future__ import annotations

import pytest

from tests.gpu.conftest import complaints, python

pytestmark = pytest.mark.gpu

# The handlers are registered before the library's own, so that they run after that one, and before CuPy's.
FIRST = """
atexit.register(lambda: latch.release())
atexit.register(lambda: print("at exit", *pinned[:2], flush=True))
"""

HELD = """
latch = Latch()
warm()
pinned = cupyx.zeros_pinned(1000)

@omp.target(nowait=True, map=[tofrom("x")])
def held(x):
    latch.hold(omp.current_stream())
    x += 1
"""

DONE = "at exit 1.0 1.0\n"

PROGRAMS = {
    # The default runtime waits for its tasks, after handlers that were registered later than the library's.
    "released at exit": ("held(pinned); atexit.register(latch.release)", 0, DONE),
    "callback": (
        "held(pinned).add_done_callback(lambda task: print(task.state)); atexit.register(latch.release)",
        0,
        "complete\n" + DONE,
    ),
    "status": ("held(pinned); atexit.register(latch.release); sys.exit(3)", 3, DONE),
    "exception": ("held(pinned); atexit.register(latch.release); raise KeyError('mine')", 1, DONE),
    # Nobody releases the latch while the library waits, which then gives up. (CUDA itself waits for ever.)
    "given up": ("held(pinned)", 0, "at exit 0.0 0.0\n"),
    "at once": ("held(pinned); os._exit(5)", 5, ""),
    "open runtime": ("Runtime('cuda:0').__enter__(); held(pinned); latch.release()", 0, None),
    "leaving a block": (
        """
with Runtime("cuda:0", check=True):
    held(pinned)
    threading.Timer(0.2, latch.release).start()
    sys.exit(3)
""",
        3,
        DONE,
    ),
    "threads that go on": (
        """
def produce():
    while True:
        omp.target(nowait=True)(lambda x: None)(cupy.zeros(10))
for _ in range(2):
    threading.Thread(target=produce, daemon=True).start()
time.sleep(0.5)
""",
        0,
        None,
    ),
    "a thread that ends": (
        """
def produce(d):
    for _ in range(2000):
        omp.target(nowait=True, depend=[inout(d)])(lambda x: None)(d)
    omp.taskwait()
    print("produced", flush=True)
threading.Thread(target=produce, args=(cupy.zeros(10),)).start()
""",
        0,
        "produced\nat exit 0.0 0.0\n",
    ),
    "interrupt": (
        """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
held(pinned)
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    omp.taskwait()
except KeyboardInterrupt:
    latch.release()
    raise
""",
        -2,
        DONE,
    ),
    "lost device": (
        """
trap = cupy.RawKernel('extern "C" __global__ void trap() { __trap(); }', "trap")
omp.target(nowait=True)(lambda: trap((1,), (1,), ()))()
""",
        1,
        None,
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_process_ends(name):
    """With device work outstanding a process ends, its results are there if they can be, and no finaliser complains."""
    program, status, printed = PROGRAMS[name]
    stdout, stderr = python(
        HELD + program, status=status, first=FIRST, OFFLOAD_HANG_S="2" if name == "given up" else "15"
    )
    assert printed in (None, stdout)
    assert complaints(stderr) == []
    assert ("was given up" in stderr) == (name == "given up")
