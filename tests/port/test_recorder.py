"""The recorder: the program's own files, places, names, and storages of the host."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np

import offload
from offload.port.analysis import analyse
from offload.port.recorder import ProgramRecorder
from tests.port.marked import line_of


def test_files_of_the_program(tmp_path):
    """The program's files are those under its folder, apart from installed ones and from the library."""
    recorder = ProgramRecorder(str(tmp_path / "program.py"))

    def is_program(file, name="module"):
        return recorder.is_program_module({"__name__": name, "__file__": str(file)})

    assert is_program(tmp_path / "program.py", "__main__")
    assert is_program(tmp_path / "package" / "module.py")
    assert not is_program(tmp_path / "venv" / "site-packages" / "module.py")
    assert not is_program(Path(np.__file__), "numpy")
    assert recorder.is_program_module({"__name__": "__main__"})
    assert not recorder.is_program_module({"__name__": "other"})
    around = ProgramRecorder(str(Path(offload.__file__).parents[1] / "program.py"))
    assert not around.is_program_module({"__name__": "offload.cli.run", "__file__": str(Path(offload.__file__))})


def test_columns_of_calls(record):
    """A place has the line and the columns of the call, and the name of the function."""
    text = "import cupy as cp\nx = cp.zeros(8)\ndef f(y):\n    return 1, y.sum(\n        axis=0)\nf(x)\n"
    operation = record(text).operations[-1]
    place = operation.place
    assert (place.line, place.end_line, place.function) == (4, 5, "f")
    assert text.splitlines()[3][place.column :] == "y.sum("
    assert text.splitlines()[4][: place.end_column] == "        axis=0)"


NAMES = """\
import numpy as np
import cupy as cp
import cupyx
first = cp.zeros(4)
both = {"p": cupyx.zeros_pinned(4), "q": [1]}
def inner(given):
    local = cp.zeros(4)
    local += given
    return local
made = [inner(first) for _ in range(2)]
made[1] += 1
both["p"][0] = 1
first[1:3] += 1
(first + 1).sum()
"""


def test_names_of_storages(record):
    """A storage has the name of a variable that holds its array, at an access after its creation."""
    log = record(NAMES)
    names = [storage.name for storage in log.storages]
    assert names[:4] == ["given", "both['p']", "local", "local"]
    assert set(names[4:]) == {""}
    assert log.storages[0].label == "given"  # in the frame of its first use
    assert log.storages[4].label == "float64[4]"


def test_threads_have_streams_of_their_own(record):
    """Each host thread has a current stream, and its operations have its name."""
    text = (
        "import threading\nimport cupy as cp\nx = cp.zeros(4)\ns = cp.cuda.Stream()\n"
        "def work():\n    global t\n    t = cp.cuda.get_current_stream()\n    x.sum()\n"
        "with s:\n    one = threading.Thread(target=work, name='helper')\n    one.start()\n    one.join()\n    x.max()\n"
    )
    log = record(text)
    found = {operation.call: (operation.stream, operation.thread) for operation in log.operations}
    assert found["sum"] == (0, "helper")
    assert found["max"] == (1, threading.current_thread().name)


def test_many_threads(record):
    """Operations of several threads at the same time are all in the log, each with a number of its own."""
    text = (
        "import threading\nimport cupy as cp\nx = cp.zeros((4, 8))\n"
        "def work(k):\n    with cp.cuda.Stream(non_blocking=True):\n        for _ in range(50): x[k] += 1\n"
        "threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]\n"
        "for one in threads: one.start()\nfor one in threads: one.join()\n"
    )
    log = record(text)
    assert [operation.number for operation in log.operations] == list(range(201))
    assert len(log.streams) == 5


def test_memory_of_the_host_is_told_apart(report):
    """Two host arrays that had the same memory one after the other are two storages."""
    text = (
        "import numpy as np\nimport cupy as cp\nimport cupyx\ns = cp.cuda.Stream(non_blocking=True)\nx = cp.zeros(1000)\n"
        "s.wait_event(cp.cuda.Stream.null.record())\n"
        "for _ in range(20):\n    p = cupyx.empty_pinned(1000)\n    x.get(stream=s, out=p, blocking=False)\n    del p\n"
        "    q = np.zeros(1000)\n    q[0] = 1\n    del q\n"
    )
    assert report(text)["races"] == []


def test_views_of_one_buffer(report):
    """Two arrays over one buffer of Python share their memory."""
    text = (
        "import numpy as np\nimport cupy as cp\ns = cp.cuda.Stream(non_blocking=True)\nx = cp.zeros(8)\n"
        "s.wait_event(cp.cuda.Stream.null.record())\nmemory = bytearray(64)\n"
        "one, other = np.frombuffer(memory, float), np.frombuffer(memory, float)\n"
        "x.get(stream=s, out=one, blocking=False)  # copy\nother.sum()  # read\n"
    )
    [race] = report(text)["races"]
    assert (race["first"]["line"], race["second"]["line"]) == (line_of(text, "# copy"), line_of(text, "# read"))


def test_memory_that_is_given_away(record, tmp_path):
    """A place where the program gets the memory of an array in another form is named in the report."""
    log = record("import cupyx\np = cupyx.zeros_pinned(4)\np[0] = 1\na = p.ctypes.data\n")
    [sentence] = analyse(log, str(tmp_path / "program.py"), "sim").not_seen
    assert sentence == "Accesses to the memory of p that the program got at line 4 cannot be seen."
