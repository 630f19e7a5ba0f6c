"""Programs that have no task form: each reason of the reference, with the line that it names."""

import pytest

from offload.port.emit import obstacles_in
from tests.port.emitting import HEAD, emitted_of, lines_of

AFTER = "s.synchronize()\nprint(out)\n"

REFUSED = {
    "a new array that another stream uses": (
        (
            "for i in range(3):\n    d.set(h[i], stream=s)\n    with s:\n        x = d * 2\n    ev.record(s)\n"
            "    t.wait_event(ev)\n    x.get(stream=t, out=out[i], blocking=False)\n    t.synchronize()\n"
        ),
        [13],
        "`x` is bound to a new array in a stream's block and used outside of it (line 16)",
    ),
    "a name that is bound again": (
        "with s:\n    d.set(h[0])\n    d = d * 2\ns.synchronize()\nprint(d.get())\n",
        [12],
        "`d` is bound to a new array",
    ),
    "a new array from the host": (
        "with s:\n    x = cp.asarray(h[0])\n    x *= 2\n    x.get(out=out[0])\n",
        [11],
        "`x` is bound to a new array in a stream's block; allocate it before",
    ),
    "a new array in a list": (
        "x = [d, d]\nwith s:\n    d.set(h[0])\n    x[0] = d * 2\nx[0].get(out=out[0], stream=s)\n",
        [13],
        "`x[0]` is bound to a new array",
    ),
    "a new array that is kept": (
        "kept = []\nwith s:\n    d.set(h[0])\n    x = d * 2\n    kept.append(x)\n" + AFTER,
        [13],
        "`x` is bound to a new array",
    ),
    "an array of the host in a computation": (
        "with s:\n    d.set(h[0])\n    d += cp.asarray(h[1])\n    d.get(out=out[0], blocking=False)\n" + AFTER,
        [12],
        "a host array is copied to the device within an expression",
    ),
    "stream.use()": ("s.use()\nd.set(h[0])\ns.synchronize()\nprint(d.get())\n", [10], "`s.use` makes a stream current"),
    "a stream for another file": (
        "import other\nother.work(d, s)\n" + AFTER,
        [11],
        "a stream is passed to `other.work`, which this file does not define",
    ),
    "a stream for a function that is not known": ("f = print\nf(s)\n", [11], "a stream is passed to `f`"),
    "a fused function": (
        "@cp.fuse()\ndef f(x):\n    x += 1\nwith s:\n    f(d)\n" + AFTER,
        [10],
        "`cp.fuse` has no counterpart in a task form; leave the decorator out",
    ),
    "capture": ("with s:\n    s.begin_capture()\n    d *= 2\n    g = s.end_capture()\n", [11, 13], "captures a stream"),
    "launch_host_func": (
        "d.set(h[0], stream=s)\ns.launch_host_func(print, None)\n" + AFTER,
        [11],
        "`s.launch_host_func` calls host code from a stream",
    ),
    "peer devices": ("cp.cuda.runtime.deviceEnablePeerAccess(1)\nd.set(h[0], stream=s)\n", [10], "peer devices"),
    "several devices": ("with cp.cuda.Device(1), s:\n    d.set(h[0])\n", [10], "several devices"),
    "a chosen device": ("for k in range(2):\n    cp.cuda.Device(k).use()\n", [11], "several devices"),
    "a kernel": (
        'f = cp.RawKernel("extern \\"C\\" __global__ void f(double* x) { x[0] = 1; }", "f")\n'
        "d.set(h[0], stream=s)\nwith s:\n    f((1,), (1,), (d,))\n    d.get(out=out[0], blocking=False)\n" + AFTER,
        [13],
        "kernel `f` is not carried out on the simulated device",
    ),
    "work on the default stream in between": (
        (
            "for i in range(3):\n    d.set(h[i], stream=s)\n    s.synchronize()\n    d += 1\n"
            "    cp.cuda.Device().synchronize()\n    d.get(stream=s, out=out[i])\n"
        ),
        [13],
        "`add` works on the default stream between the streams' work",
    ),
    "random numbers": (
        "with s:\n    d[...] = cp.random.random(4)\n    d *= 0\n    d.get(out=out[0], blocking=False)\n" + AFTER,
        [11],
        "random numbers are drawn on a stream",
    ),
    "a loop until a value on the device": (
        "d.set(h[2], stream=s)\nwith s:\n    while float(d.max()) > 1:\n        d *= 0.5\n",
        [12],
        "this loop depends on device data without a synchronize",
    ),
    "a loop that a value on the device ends": (
        (
            "with s:\n    d.set(h[2])\n    for k in range(10):\n        d *= 0.5\n        top = float(d.max())\n"
            "        if top < 1:\n            break\n"
        ),
        [15],
        "this loop depends on device data without a synchronize",
    ),
    "a branch that a copy decides": (
        (
            "for i in range(3):\n    with s:\n        d.set(h[i])\n        out[i] = d.get()\n"
            "    if out[i, 0] > 3:\n        print(i)\n"
        ),
        [14],
        "this loop depends on device data without a synchronize",
    ),
    "a question whether work has ended": (
        "d.set(h[0], stream=s)\nwhile not s.done:\n    pass\nprint(1)\n",
        [11],
        "`s.done` asks whether work has ended",
    ),
    "the time between events": (
        (
            "ev.record(s)\nd.set(h[0], stream=s)\nend = s.record()\ns.synchronize()\n"
            "print(cp.cuda.get_elapsed_time(ev, end) < 9)\n"
        ),
        [14],
        "measures the time between two events",
    ),
    "a block that did not run": (
        "d.set(h[0], stream=s)\nif h[0, 0] > 5:\n    with s:\n        d *= 2\nd.get(out=out[0], stream=s)\n",
        [12],
        "this block did not run",
    ),
    "a generator": (
        (
            "def rows(d):\n    for i in range(3):\n        with s:\n            d.set(h[i])\n        yield i\n"
            "for k in rows(d):\n    s.synchronize()\n"
        ),
        [10],
        "a generator, a coroutine",
    ),
    "streams and other values in one variable": (
        "x = s if h[0, 0] else 3\nprint(x)\n",
        [10],
        "streams together with other",
    ),
    "a tuple with a stream that keeps its name": (
        "pair = (s, d)\nwith pair[0]:\n    pair[1].set(h[0])\n",
        [10],
        "streams together",
    ),
    "a number of streams that is not in the text": (
        "ss = [s]\nss.append(t)\nfor i, one in enumerate(ss):\n    d.set(h[i], stream=one)\n    one.synchronize()\n",
        [12],
        "the number of streams",
    ),
    "a stream that is printed": ("print(s)\n", [10], "`print`"),
    "another call of cupy.cuda": ("print(cp.cuda.is_available())\n", [10], "no counterpart"),
    "another module of CuPy": ("import cupyx.scipy.fft\nprint(cupyx.scipy.fft.rfft)\n", [11], "no counterpart"),
    "no streams": ("d *= 1\nprint(d.size)\n", [1], "the program uses no stream"),
    "several threads": (
        (
            "import threading\n\ndef work():\n    with s:\n        d.set(h[0])\n        d.get(out=out[0])\n\n"
            "one = threading.Thread(target=work)\none.start()\none.join()\nprint(out)\n"
        ),
        [14],
        "several threads",
    ),
    "an array that the block does not name": (
        "box = [cp.zeros(4)]\nwith s:\n    (lambda: box)()[0][...] = 1\nbox[0].get(out=out[0], stream=s)\n",
        [12],
        "no expression of the stream's block names",
    ),
    "arrays that the block reads from a list": (
        "box = [cp.zeros(4), cp.ones(4)]\nwith s:\n    d[...] = cp.stack(box)[0]\nd.get(out=out[0], stream=s)\n",
        [12],
        "`stack` reads an array that no expression of the stream's block names",
    ),
    "a number that changes, read by a function": (
        (
            "class Box:\n    k = 0\n\n    def scale(self):\n        d[...] *= self.k\n\nbox = Box()\n"
            "for i in range(3):\n    box.k = i\n    with s:\n        d.set(h[i])\n        box.scale()\n"
            "        d.get(out=out[i])\nbox.k = 7\n"
        ),
        [14],
        "`self.k` changes, and a block of `box.scale()` reads it later",
    ),
    "a variable that changes, read by a function": (
        (
            "def scale(x):\n    x *= i\n\nfor i in range(3):\n    with s:\n        d.set(h[i])\n        scale(d)\n"
            "        d.get(out=out[i])\n"
        ),
        [11],
        "`i` changes, and a block of `scale(d)` reads it later",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_program_is_refused_with_the_line(tmp_path, name):
    """There is no form, and the reason names the line of the obstacle."""
    text, lines, reason = REFUSED[name]
    emitted = emitted_of(tmp_path, HEAD + text)
    assert emitted.text is None
    assert lines_of(emitted.reasons) == lines, emitted.reasons
    assert reason in emitted.reasons[0]


def test_streams_in_another_file_are_named(tmp_path):
    """A form replaces one file, so the file that uses streams is named."""
    (tmp_path / "other.py").write_text(
        "import cupy\n\n\ndef work(d, h):\n    s = cupy.cuda.Stream()\n    d.set(h, stream=s)\n    s.synchronize()\n"
    )
    emitted = emitted_of(tmp_path, HEAD + "import other\nother.work(d, h[0])\nprint(d.get())\n")
    assert emitted.text is None
    assert any("other.py:7: streams are used in another file" in reason for reason in emitted.reasons)


def test_a_program_that_prints_another_text_is_refused(tmp_path):
    """The printed text is compared, and the first difference is shown."""
    text = HEAD + "d.set(h[0], stream=s)\nd.get(out=out[0], stream=s)\nprint(1)\nprint(type(d).__module__)\n"
    emitted = emitted_of(tmp_path, text)
    assert emitted.text is None
    assert lines_of(emitted.reasons) == [13]
    assert "line 2 of the output" in emitted.reasons[0]


def test_a_form_that_fails_is_named_with_the_line(tmp_path):
    """The form fails when it runs, and the reason has the line of the program."""
    text = HEAD + "assert __file__.endswith('program.py')\nd.set(h[0], stream=s)\nd.get(out=out[0], stream=s)\n"
    emitted = emitted_of(tmp_path, text)
    assert emitted.text is None
    assert emitted.reasons == ["line 10: the task form fails: AssertionError: "]


def test_a_program_that_fails_the_second_time_is_refused(tmp_path):
    """A program whose run cannot be repeated has no form."""
    text = HEAD + "d.set(h[0], stream=s)\ns.synchronize()\nraise ValueError('no')\n"
    emitted = emitted_of(tmp_path, text)
    assert emitted.text is None
    assert emitted.reasons == ["line 12: the program fails when it runs again on sim: ValueError: no"]


def test_text_that_is_not_python_is_refused(tmp_path):
    """The line of a mistake in the text is named."""
    emitted = emitted_of(tmp_path, HEAD + "x = (\n")
    assert emitted.text is None
    assert lines_of(emitted.reasons) == [10]


def test_the_obstacles_of_the_text_are_known_without_a_run(tmp_path):
    """A program that the stand-in cannot run is told what stands in the way of a form."""
    path = tmp_path / "program.py"
    path.write_text(HEAD + "s.begin_capture()\n")
    assert lines_of(obstacles_in(str(path))) == [10]
    assert obstacles_in(str(tmp_path / "none.py")) == []
