"""Task forms of hand-written programs, next to the forms that are expected."""

import pytest

from offload.port.emit import emit
from tests.port.emitting import HEAD, body_of, emitted_of, run_text

RING = '''\
"""A ring of buffers."""
import cupy as cp
import cupyx
import numpy as np

n, chunk, slots = 6, 100, 2
host = cupyx.empty_pinned((n, chunk), np.float64)
result = cupyx.zeros_pinned((n, chunk))
host[...] = np.arange(n * chunk).reshape(n, chunk)

h2d, comp, d2h = (cp.cuda.Stream(non_blocking=True) for _ in range(3))
loaded, done, freed = ([cp.cuda.Event() for _ in range(slots)] for _ in range(3))
buf = [cp.empty(chunk) for _ in range(slots)]
res = [cp.empty(chunk) for _ in range(slots)]
acc = cp.zeros(chunk)  # on the default stream
cp.cuda.Device().synchronize()

# the pipeline
for i in range(n):
    b = i % slots  # the slot
    h2d.wait_event(freed[b])
    buf[b].set(host[i], stream=h2d)  # in
    loaded[b].record(h2d)

    comp.wait_event(loaded[b])
    with comp:
        # two steps
        t = cp.sqrt(buf[b])
        res[b][...] = t + 1  # in place
        acc += res[b]
    done[b].record(comp)

    d2h.wait_event(done[b])
    with d2h:
        res[b].get(out=result[i], blocking=False)
    freed[b].record(d2h)
d2h.synchronize()
comp.synchronize()
print(result.sum(), acc.get().sum())
'''

RING_FORM = '''\
"""A ring of buffers."""
import offload
from offload.pragma import directives, omp
import numpy as np

cp = offload.device(0).namespace()  # line 2

n, chunk, slots = 6, 100, 2
host = offload.empty_pinned((n, chunk), np.float64)
result = offload.empty_pinned((n, chunk))
result[...] = 0  # line 8
host[...] = np.arange(n * chunk).reshape(n, chunk)

buf = [cp.empty(chunk) for _ in range(slots)]
res = [cp.empty(chunk) for _ in range(slots)]
acc = cp.zeros(chunk)  # on the default stream
offload.device(0).synchronize()  # line 15


@directives
def pipeline(acc):  # lines 19-37
    # the pipeline
    for i in range(n):
        b = i % slots  # the slot
        offload.target_memcpy_rect_async(buf[b], host[i], depend=[offload.in_(host[i]), offload.out(buf[b])])  # line 22: in

        # two steps
        with omp("target nowait depend(in: buf[b]) depend(out: res[b]) depend(inout: acc)"):  # line 26
            t = cp.sqrt(buf[b])
            res[b][...] = t + 1  # in place
            acc += res[b]

        offload.target_memcpy_rect_async(result[i], res[b], depend=[offload.in_(res[b]), offload.out(result[i])])  # line 35
    omp("taskwait")  # line 37
    return acc


acc = pipeline(acc)
print(result.sum(), acc.get().sum())
'''

STAGES = '''\
import cupy as cp
import numpy as np


def upload(d, h, stream, event):
    d.set(h, stream=stream)
    event.record(stream)


class Stage:
    """A stage with a stream of its own."""

    def __init__(self, chunk):
        self.stream = cp.cuda.Stream()
        self.out = cp.empty(chunk)

    def run(self, d, *, event=None):
        if event is not None:
            self.stream.wait_event(event)
        with self.stream:
            scale(d, self.out)
        return self.out


def scale(d, out):
    cp.multiply(d, 3, out=out)


def main():
    load, ready = cp.cuda.Stream(), cp.cuda.Event()
    source = np.arange(32.0).reshape(4, 8)
    result = np.empty((4, 8))
    x = cp.empty(8)
    stage = Stage(8)
    for row, target in zip(source, result):
        load.synchronize()
        upload(x, row, load, ready)
        y = stage.run(x, event=ready)
        with stage.stream:
            target[...] = y.get()
    print(result.sum())


if __name__ == "__main__":
    main()
'''

STAGES_FORM = '''\
import offload
from offload.pragma import directives, omp
import numpy as np

cp = offload.device(0).namespace()  # line 1


def upload(d, h):
    offload.target_memcpy_rect_async(d, h, depend=[offload.in_(h), offload.out(d)])  # line 6


class Stage:
    """A stage with a stream of its own."""

    def __init__(self, chunk):
        self.out = cp.empty(chunk)

    @directives
    def run(self, d):
        with omp("target nowait depend(in: d) depend(out: self.out)"):  # line 20
            scale(d, self.out)
        return self.out


def scale(d, out):
    cp.multiply(d, 3, out=out)


def main():
    source = np.arange(32.0).reshape(4, 8)
    result = np.empty((4, 8))
    x = cp.empty(8)
    stage = Stage(8)
    for row, target in zip(source, result):
        upload(x, row)
        y = stage.run(x)
        offload.target_memcpy_rect_async(target, y, depend=[offload.in_(y), offload.out(target)]).result()  # line 40
    print(result.sum())


if __name__ == "__main__":
    main()
'''

STAGING = """\
import cupy as cp
import cupyx

data = cupyx.zeros_pinned((6, 8))
data += 2
stage = [cupyx.empty_pinned(8) for _ in range(2)]
d = [cp.empty(8) for _ in range(2)]
streams = [cp.cuda.Stream(non_blocking=True) for _ in range(2)]
copied = [cp.cuda.Event() for _ in streams]
if __name__ == "__main__":
    for i, row in enumerate(data):
        k = i % 2
        if i >= 2:
            copied[k].synchronize()  # the host may write
        stage[k][...] = row * i
        with streams[k]:
            d[k].set(stage[k])
            copied[k].record()
            if i % 3 == 0:
                d[k] *= 2
            elif i == 1:
                d[k] += 1
            else:  # no change
                pass
            for _ in range(2):
                d[k] += 1
            d[k].get(out=row, blocking=False)
    for stream in streams:
        stream.synchronize()
    print(data.sum())
"""

STAGING_FORM = """\
import offload
from offload.pragma import directives, omp

cp = offload.device(0).namespace()  # line 1

data = offload.empty_pinned((6, 8))
data[...] = 0  # line 4
data += 2
stage = [offload.empty_pinned(8) for _ in range(2)]
d = [cp.empty(8) for _ in range(2)]
if __name__ == "__main__":

    @directives
    def pipeline():  # lines 11-29
        for i, row in enumerate(data):
            k = i % 2
            offload.taskwait(depend=[offload.out(stage[k])])  # line 14
            stage[k][...] = row * i
            offload.target_memcpy_rect_async(d[k], stage[k], depend=[offload.in_(stage[k]), offload.out(d[k])])  # line 17
            with omp("target nowait depend(inout: d[k])"):  # line 19
                if i % 3 == 0:
                    d[k] *= 2
                elif i == 1:
                    d[k] += 1
                else:  # no change
                    pass
                for _ in range(2):
                    d[k] += 1
            offload.target_memcpy_rect_async(row, d[k], depend=[offload.in_(d[k]), offload.out(row)])  # line 27
        omp("taskwait")  # line 29

    pipeline()
    print(data.sum())
"""


@pytest.mark.parametrize(
    ("program", "form"),
    [(RING, RING_FORM), (STAGES, STAGES_FORM), (STAGING, STAGING_FORM)],
    ids=["ring", "stages", "staging"],
)
def test_a_program_gets_the_form_that_a_person_would_write(tmp_path, program, form):
    """Blocks, copies and waits stand where they stood; everything else keeps its text and its comments."""
    emitted = emitted_of(tmp_path, program)
    assert emitted.reasons == []
    assert emitted.text == form


@pytest.mark.parametrize(
    ("form", "printed"),
    [(RING_FORM, "10385.5"), (STAGES_FORM, "1488.0"), (STAGING_FORM, "392.0")],
    ids=["ring", "stages", "staging"],
)
def test_the_expected_forms_are_right(tmp_path, form, printed):
    """The forms above, run by themselves, compute what the programs do."""
    assert run_text(tmp_path, form).startswith(printed)


def test_a_value_that_the_host_changes_later_is_read_before_the_block(tmp_path):
    """A number of a host array, and an array of a list that is changed, are bound before the block that uses them."""
    text = HEAD + (
        "w = np.array([2.0, 3.0, 4.0])\n"
        "pair = [cp.empty(4), cp.empty(4)]\n"
        "for i in range(3):\n"
        "    pair[0].set(h[i], stream=s)\n"
        "    with s:\n"
        "        pair[1][...] = pair[0] * w[i]\n"
        "    w[i] = 0\n"
        "    pair[1].get(stream=s, out=out[i], blocking=False)\n"
        "    pair[0], pair[1] = pair[1], pair[0]\n"
        "s.synchronize()\n"
        "print(out)\n"
    )
    emitted = emitted_of(tmp_path, text)
    assert emitted.reasons == []
    lines = body_of(emitted.text)
    at = next(k for k, line in enumerate(lines) if line.startswith("with omp"))
    assert lines[at - 3 : at + 2] == [
        "pair_part = pair[1]  # line 15",
        "pair_part_2 = pair[0]  # line 15",
        "w_value = w[i]  # line 15",
        'with omp("target nowait depend(in: pair_part_2) depend(out: pair_part)"):  # line 14',
        "pair_part[...] = pair_part_2 * w_value",
    ]


def test_parts_of_an_array_are_sections(tmp_path):
    """Slices in a clause are lower : length; a slice that a clause cannot spell is bound to a name."""
    text = HEAD + (
        "x, y = np.arange(10.0), np.zeros(10)\n"
        "e, f = cp.empty(10), cp.zeros(10)\n"
        "for lo in range(0, 10, 4):\n"
        "    hi = min(lo + 4, 10)\n"
        "    e[lo:hi].set(x[lo:hi], stream=s)\n"
        "    with s:\n"
        "        e[lo:hi] += 1\n"
        "        f[-2:] *= 1\n"
        "    e[lo:hi].get(stream=s, out=y[lo:hi], blocking=False)\n"
        "s.synchronize()\n"
        "print(y)\n"
    )
    emitted = emitted_of(tmp_path, text)
    assert emitted.reasons == []
    assert "f_part = f[-2:]  # line 17" in emitted.text
    assert 'with omp("target nowait depend(inout: e[lo:hi - lo], f_part)"):  # line 15' in emitted.text


def test_a_copy_of_another_type_stays_and_waits(tmp_path):
    """An assignment that converts is no copy of bytes: the host waits, and assigns."""
    text = HEAD + (
        "f = np.zeros((3, 4), np.float32)\n"
        "with s:\n    d.set(h[1])\n    f[0] = d.get()\n    f[1] = d.get() + 1\n    total = float(d.sum())\n"
        "print(f.sum(), total)\n"
    )
    emitted = emitted_of(tmp_path, text)
    assert emitted.reasons == []
    assert body_of(emitted.text)[1:] == [
        'omp("taskwait")  # line 13',
        "f[0] = d.get()",
        "f[1] = d.get() + 1",
        "total = float(d.sum())",
        "return total",
    ]


def test_elements_and_whole_arrays_are_copied(tmp_path):
    """A number goes to an element, ``d[...] = cp.asarray(h)`` and ``asnumpy`` are copies too."""
    text = HEAD + (
        "sums, part = np.zeros(3), cp.empty(())\n"
        "for i in range(3):\n"
        "    with s:\n"
        "        d[...] = cp.asarray(h[i] * 2)\n"
        "        part[...] = d.sum()\n"
        "        sums[i] = part.get()\n"
        "        cp.asnumpy(d, out=out[i], blocking=False)\n"
        "s.synchronize()\n"
        "print(sums, out)\n"
    )
    emitted = emitted_of(tmp_path, text)
    assert emitted.reasons == []
    call = "offload.target_memcpy_rect_async"
    assert body_of(emitted.text)[1:4] == [
        "source = h[i] * 2  # line 13",
        f"{call}(d, source, depend=[offload.in_(source), offload.out(d)])  # line 13",
        'with omp("target nowait depend(in: d) depend(out: part)"):  # line 14',
    ]
    assert (
        f"{call}(sums[i, ...], part, depend=[offload.in_(part), offload.out(sums[i, ...])])  # line 15" in emitted.text
    )


def test_names_of_the_program_are_not_hidden(tmp_path):
    """A program that has variables called omp and offload keeps them."""
    text = HEAD + (
        "omp, offload, pipeline = 1, 2, 3\n"
        "with s:\n    d.set(h[0])\n    d *= omp + offload + pipeline\n"
        "d.get(out=out[0], stream=s)\nprint(out[0], omp, offload, pipeline)\n"
    )
    emitted = emitted_of(tmp_path, text)
    assert emitted.reasons == []
    assert "import offload as offload_\nfrom offload.pragma import directives, omp as omp_" in emitted.text
    assert run_text(tmp_path, emitted.text) == "[ 0.  6. 12. 18.] 1 2 3\n"


def test_names_of_the_module_that_other_code_uses_are_handed_on(tmp_path):
    """What the pipeline reads from before is a parameter, and what later code reads is returned."""
    text = HEAD + (
        "count = 10\n"
        "for i in range(3):\n"
        "    with s:\n        d.set(h[i])\n        d *= 2\n"
        "    count += 1\n"
        "    last = h[i]\n"
        "    d.get(out=out[i], stream=s, blocking=False)\n"
        "s.synchronize()\n"
        "print(out.sum(), count, last, i)\n"
    )
    emitted = emitted_of(tmp_path, text)
    assert emitted.reasons == []
    assert "def pipeline(d, count):  # lines 11-18\n" in emitted.text
    assert "    return i, count, last\n\n\ni, count, last = pipeline(d, count)\n" in emitted.text


def test_a_global_that_functions_change_stays_global(tmp_path):
    """A function that counts in a global variable does so in the form."""
    text = HEAD + (
        "count = 0\n\n\ndef note():\n    global count\n    count += 1\n\n\n"
        "for i in range(3):\n    with s:\n        d.set(h[i])\n        note()\n"
        "    count += 1\n"
        "    d.get(out=out[i], stream=s, blocking=False)\n"
        "s.synchronize()\nprint(out.sum(), count)\n"
    )
    emitted = emitted_of(tmp_path, text)
    assert emitted.reasons == []
    assert run_text(tmp_path, emitted.text).split()[1] == "6"


def test_default_arguments_and_several_statements_on_a_line_are_kept(tmp_path):
    """Statements separated by semicolons are taken apart; multi-line strings keep their lines."""
    text = HEAD + (
        "for i in range(3):\n"
        '    text = """a\n  b"""; d.set(h[i], stream=s)\n'
        "    with s: d += 1; d *= 2\n"
        "    d.get(out=out[i], stream=s, blocking=False)  # back\n"
        "s.synchronize(); print(out.sum(), text)\n"
    )
    emitted = emitted_of(tmp_path, text)
    assert emitted.reasons == []
    assert '        text = """a\n  b"""\n' in emitted.text
    assert "            d += 1\n            d *= 2\n" in emitted.text
    assert "# line 14: back\n" in emitted.text


def test_arrays_of_a_called_function_are_items(tmp_path):
    """Arrays that only the called functions name are spelled in the names of the block."""
    text = HEAD + (
        "tmp, ring = cp.empty(4), [d, cp.empty(4)]\n\n\n"
        "class Step:\n    def __init__(self):\n        self.x = cp.ones(4)\n\n"
        "    def run(self, k):\n        twice(ring[k])\n        ring[k] += self.x\n\n\n"
        "def twice(x):\n    tmp[...] = x\n    x += tmp\n\n\n"
        "step = Step()\n"
        "for i in range(3):\n    with s:\n        ring[i % 2].set(h[i])\n        step.run(i % 2)\n"
        "        ring[i % 2].get(out=out[i], blocking=False)\n"
        "s.synchronize()\nprint(out)\n"
    )
    emitted = emitted_of(tmp_path, text)
    assert emitted.reasons == []
    clauses = "depend(in: step.x) depend(out: tmp) depend(inout: ring[i % 2])"
    assert f'with omp("target nowait {clauses}"):' in emitted.text


def test_numbers_from_host_arrays_are_computed_before_the_block(tmp_path):
    """A call on a host array, its length and its elements are evaluated where the program evaluated them."""
    text = HEAD + (
        "w = np.ones(3)\n"
        "for i in range(3):\n"
        "    row = h[i]\n"
        "    with s:\n"
        "        d.set(row)\n"
        "        d *= float(row.max()) + len(row)\n"
        "        for k in range(2):\n"
        "            d += w[k] * np.sum(h[0])\n"
        "        d.get(out=out[i], blocking=False)\n"
        "    w[1] += 1\n"
        "s.synchronize()\nprint(out)\n"
    )
    emitted = emitted_of(tmp_path, text)
    assert emitted.reasons == []
    lines = body_of(emitted.text)
    at = lines.index("row_value = float(row.max())  # line 15")
    assert lines[at : at + 9] == [
        "row_value = float(row.max())  # line 15",
        "row_value_2 = len(row)  # line 15",
        'with omp("target nowait depend(inout: d)"):  # line 15',
        "d *= row_value + row_value_2",
        "for k in range(2):",
        "w_value = w[k]  # line 17",
        "h_value = np.sum(h[0])  # line 17",
        'with omp("target nowait depend(inout: d)"):  # line 17',
        "d += w_value * h_value",
    ]


def test_pinned_arrays_are_arrays_of_numpy_that_a_gpu_copies_by_itself(tmp_path):
    """`offload.empty_pinned` returns a NumPy array; where its two lines cannot stand, NumPy makes the zeros."""
    text = (
        "import cupy as cp\nimport cupyx\n"
        "a = cupyx.empty_pinned((2, 3), 'f4')\n"
        "b = cupyx.zeros_like_pinned(a)\n"
        "c = [cupyx.zeros_pinned(3) for _ in range(2)]\n"
        "a[...] = 2\nd, s = cp.empty((2, 3), 'f4'), cp.cuda.Stream()\n"
        "d.set(a, stream=s)\nd.get(out=b, stream=s)\nprint(b, c)\n"
    )
    emitted = emitted_of(tmp_path, text)
    assert emitted.reasons == []
    assert emitted.text.startswith(
        "import numpy as np\nimport offload\n\n"
        "cp = offload.device(0).namespace()  # line 1\n"
        "a = offload.empty_pinned((2, 3), 'f4')\n"
        "b = offload.empty_pinned(a.shape, a.dtype)\n"
        "b[...] = 0  # line 4\n"
        "c = [np.zeros(3) for _ in range(2)]\n"
    )


def test_an_array_stands_for_three_of_its_parts(tmp_path):
    """A stencil reads its array; the function that computes it is called with the array, which is the item."""
    text = (
        "import cupy as cp\nimport numpy as np\n\n\n"
        "def diffuse(old, new):\n"
        "    new[1:-1] = old[1:-1] + 0.2 * (old[:-2] + old[2:] - 2 * old[1:-1])\n\n\n"
        "u, v = cp.zeros(12), cp.zeros(12)\n"
        "u[4:6] = 1\n"
        "out = np.empty(12)\n"
        "s = cp.cuda.Stream(non_blocking=True)\n"
        "cp.cuda.Device().synchronize()\n"
        "with s:\n    diffuse(u, v)\n"
        "    v[1:11] += u[:-2] + u[1:-1] + u[2:]\n"
        "v.get(out=out, stream=s)\nprint(out)\n"
    )
    emitted = emitted_of(tmp_path, text)
    assert emitted.reasons == []
    assert 'with omp("target nowait depend(in: u) depend(out: v[1:10])"):  # line 14' in emitted.text
    assert "offload.device(0).synchronize()  # line 10\nout = " in emitted.text


def test_an_assignment_to_a_part_fills_the_name_of_the_part(tmp_path):
    """A part that a clause cannot spell has a name; an assignment fills it, and does not bind the name again."""
    text = HEAD + (
        "e = cp.zeros(4)\n"
        "for i in range(3):\n"
        "    d.set(h[i], stream=s)\n"
        "    with s:\n        e[1:-1] = d[1:-1] + 1\n        e[0] = 5\n"
        "    d, e = e, d\n"
        "    d.get(stream=s, out=out[i], blocking=False)\n"
        "s.synchronize()\nprint(out)\n"
    )
    emitted = emitted_of(tmp_path, text)
    assert emitted.reasons == []
    lines = body_of(emitted.text)
    at = lines.index("e_part = e[1:-1]  # line 14")
    assert "e_part[...] = d_part + 1" in lines[at:]


def test_a_match_around_blocks(tmp_path):
    """The blocks in the cases of a `match` become regions of their own."""
    text = HEAD + (
        "d.set(h[0], stream=s)\n"
        "for i in range(4):\n"
        "    match i % 2:\n"
        "        case 0:\n"
        "            with s:\n"
        "                d += 1\n"
        "        case _:\n"
        "            with s: d *= 2\n"
        "s.synchronize()\n"
        "print(d.get(stream=s))\n"
    )
    emitted = emitted_of(tmp_path, text)
    assert emitted.reasons == []
    lines = body_of(emitted.text)
    assert lines[2:8] == [
        "match i % 2:",
        "case 0:",
        *('with omp("target nowait depend(inout: d)"):  # line 14', "d += 1"),
        "case _:",
        'with omp("target nowait depend(inout: d)"):  # line 17',
    ]


def test_a_program_in_another_encoding(tmp_path):
    """The form is UTF-8, and its line about the encoding says so."""
    path = tmp_path / "program.py"
    text = (
        f"# by hand\n# -*- coding: latin-1 -*-\n{HEAD}d.set(h[0], stream=s)\ns.synchronize()\nprint('Größe', d.get())\n"
    )
    path.write_bytes(text.encode("latin-1"))
    emitted = emit(str(path), [])
    assert emitted.text.startswith("# by hand\n# -*- coding: utf-8 -*-\n")
    assert run_text(tmp_path, emitted.text) == "Größe [0. 1. 2. 3.]\n"


def test_compound_statements_around_parts_are_kept(tmp_path):
    """`match`, `try` with all its clauses, `while` with `else` and `with` of a file keep their heads and comments."""
    text = HEAD + (
        "for i in range(3):\n"
        "    # by number\n"
        "    match i % 2:\n"
        "        case 0:  # even\n"
        "            d.set(h[i], stream=s)\n"
        "        case _ if i:\n"
        "            d.set(h[0], stream=s)\n"
        "    try:\n"
        "        with s, open(np.__file__) as file:\n"
        "            d *= 2\n"
        "    except* MemoryError as error:\n"
        "        print(error)\n"
        "    # otherwise\n"
        "    else:\n"
        "        with s:\n            d += 1\n"
        "    finally:\n"
        "        d.get(out=out[i], stream=s, blocking=False)\n"
        "k = 0\n"
        "while k < 2:\n    k += 1; s.synchronize()\nelse:\n    print(k)\n"
        "print(out)\n"
    )
    emitted = emitted_of(tmp_path, text)
    assert emitted.reasons == []
    call = "offload.target_memcpy_rect_async"
    assert body_of(emitted.text)[:19] == [
        "for i in range(3):",
        "# by number",
        "match i % 2:",
        "case 0:  # even",
        f"{call}(d, h[i], depend=[offload.in_(h[i]), offload.out(d)])  # line 14",
        "case _ if i:",
        f"{call}(d, h[0], depend=[offload.in_(h[0]), offload.out(d)])  # line 16",
        "try:",
        "with open(np.__file__) as file:",
        'with omp("target nowait depend(inout: d)"):  # line 18',
        "d *= 2",
        "except* MemoryError as error:",
        "print(error)",
        "# otherwise",
        "else:",
        'with omp("target nowait depend(inout: d)"):  # line 24',
        "d += 1",
        "finally:",
        f"{call}(out[i], d, depend=[offload.in_(d), offload.out(out[i])])  # line 27",
    ]
