"""``offload demo fft3d`` on the simulated device: right results, and every bad input told before anything is lost."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import numpy as np
import pytest

import offload as omp
from offload.cli import main
from offload.demo import fft3d
from offload.demo.examples import load_example

TOLERANCE = {np.complex64: 1e-5, np.complex128: 1e-12}


def demo(*options):
    return main(["demo", "fft3d", "--devices", "sim", *map(str, options)])


def random_field(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    field = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        field = field + 1j * rng.standard_normal(shape)
    return field.astype(dtype)


def figures(capsys):
    return json.loads(capsys.readouterr().out)


def names(folder):
    return sorted(path.name for path in Path(folder).iterdir())


def check(tmp_path, field, result, *options):
    """Run the demo on a field and compare its output with NumPy's transform of it."""
    np.save(tmp_path / "in.npy", field)
    assert demo("--input", tmp_path / "in.npy", "--output", tmp_path / "out.npy", "--verify", *options) == 0
    found = np.load(tmp_path / "out.npy")
    expected = np.fft.fftn(field.astype(np.complex128))
    assert found.dtype == result
    assert found.shape == field.shape
    assert found.flags.c_contiguous
    assert np.abs(found - expected).max() <= TOLERANCE[result] * np.abs(expected).max()
    assert names(tmp_path) == ["in.npy", "out.npy"]


# -- right results ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "result"),
    [
        ("f2", np.complex64),
        ("f4", np.complex64),
        (">f4", np.complex64),
        ("c8", np.complex64),
        ("f8", np.complex128),
        ("c16", np.complex128),
        (">c16", np.complex128),
    ],
)
def test_dtypes(tmp_path, dtype, result):
    """Up to 32 bits a number give complex64, 64 bits complex128, in either byte order."""
    check(tmp_path, random_field((6, 10, 8), dtype), result)


@pytest.mark.parametrize("shape", [(5, 7, 9), (1, 13, 11), (17, 1, 3), (3, 5, 1), (1, 1, 1), (16, 16, 16)])
@pytest.mark.parametrize("options", [(), ("--planes", 1), ("--pencils", 1), ("--buffers", 1), ("--buffers", 7)])
def test_shapes(tmp_path, shape, options):
    """Odd shapes, and axes of one element, agree with NumPy for any way to cut them."""
    check(tmp_path, random_field(shape, "c16"), np.complex128, *options)


@pytest.mark.parametrize("pencils", [1, 2, 3, 4, 5, 8, 11])
def test_pencils_that_do_not_divide(tmp_path, pencils):
    """Any number of pencils up to the number of columns will do."""
    check(tmp_path, random_field((6, 5, 11), "c8"), np.complex64, "--pencils", pencils)


@pytest.mark.parametrize("planes", [1, 2, 3, 4, 7])
def test_planes_that_do_not_divide(tmp_path, planes):
    """Any size of the groups up to the number of planes will do."""
    check(tmp_path, random_field((7, 6, 5), "c8"), np.complex64, "--planes", planes)


def test_fortran_order(tmp_path):
    """A Fortran-ordered file is transformed as the array that it is; the output is in C order."""
    check(tmp_path, np.asfortranarray(random_field((9, 8, 7), "f8")), np.complex128)


def test_field_of_four_times_the_memory(tmp_path, capsys):
    """The device need not hold the field."""
    field = random_field((32, 32, 32), "c8")
    check(tmp_path, field, np.complex64, "--device-memory", field.nbytes // 4, "--json")
    report = figures(capsys)
    assert report["device_memory_nbytes"] * 4 == report["field_nbytes"] == field.nbytes
    assert 0 < report["peak_device_nbytes"] <= field.nbytes // 4


def test_output_onto_the_input(tmp_path):
    """Output may be the input's own file."""
    field = random_field((4, 6, 8), "f8")
    path = tmp_path / "field.npy"
    np.save(path, field)
    assert demo("--input", path, "--output", path) == 0
    assert np.allclose(np.load(path), np.fft.fftn(field))


def test_forms_agree_to_the_bit(tmp_path):
    """The synchronous and the asynchronous form make the same bits."""
    example = load_example("fft3d")
    field = random_field((7, 9, 11), "c16")
    results = []
    with omp.Runtime("sim", check=True):
        buffers = [omp.target_alloc(field.size, field.dtype) for _ in range(3)]
        for nowait in (True, False):
            slab = field.copy()
            example.fft3d(slab, example.passes_over(slab, buffers, planes=4, pencils=5), nowait=nowait)
            results.append(slab)
        for buffer in buffers:
            omp.target_free(buffer)
    assert (results[0] == results[1]).all()


# -- what it shows ---------------------------------------------------------------------------------


def test_json_is_all_there_is(capsys):
    """With --json the standard output is one object with the figures."""
    assert demo("--shape", "8,8,8", "--verify", "--json", "--repeat", 2) == 0
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    assert captured.err == ""
    assert report["shape"] == [8, 8, 8]
    assert report["nbytes_to_device"] == report["nbytes_to_host"] == 2 * 8**3 * 8
    assert report["max_relative_error"] <= report["tolerance"]
    assert len(report["times_s"]["async"]) == len(report["times_s"]["sync"]) == 2
    assert report["sync_s"] > 0
    assert report["share_of_bound"] > 0


def test_table(capsys):
    """Without it there is a table, and no progress bar where there is no terminal."""
    assert demo("--shape", "8,8,8", "--verify") == 0
    captured = capsys.readouterr()
    for words in ("synchronous", "asynchronous", "speed-up", "each way", "bound", "peak device memory", "error"):
        assert words in captured.out
    assert captured.err == ""


@pytest.mark.parametrize("name", ["graph.svg", "graph.dot"])
def test_graph_file(tmp_path, name):
    """--graph writes the picture of the asynchronous form."""
    assert demo("--shape", "8,8,8", "--graph", tmp_path / name) == 0
    assert "fft 0" in (tmp_path / name).read_text(encoding="utf-8")


def test_graph_in_the_terminal(capsys):
    """--graph - draws it."""
    assert demo("--shape", "8,8,8", "--graph", "-") == 0
    assert "fft 0" in capsys.readouterr().out


def test_wrong_result_is_told_and_not_written(tmp_path, capsys, monkeypatch):
    """A result that differs from the reference exits with 1 and replaces no output."""
    monkeypatch.setattr(fft3d, "reference", lambda source, shape: np.ones(shape, complex))
    (tmp_path / "out.npy").write_bytes(b"precious")
    assert demo("--shape", "4,4,4", "--verify", "--output", tmp_path / "out.npy") == 1
    assert (tmp_path / "out.npy").read_bytes() == b"precious"
    assert names(tmp_path) == ["out.npy"]


def test_nan_does_not_verify(tmp_path):
    """A NaN never passes for a right result."""
    field = random_field((4, 4, 4), "f4")
    field[1, 2, 3] = np.nan
    np.save(tmp_path / "in.npy", field)
    assert demo("--input", tmp_path / "in.npy", "--verify") == 1


# -- bad input -------------------------------------------------------------------------------------


def refused(capsys, *options, says):
    """Expect one message on stderr, exit code 2, and nothing on stdout."""
    assert demo(*options) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("offload: error: ")
    assert captured.err.count("\n") == 1
    for words in says:
        assert words in captured.err


def saved(array, **kwargs):
    file = io.BytesIO()
    np.save(file, array, **kwargs)
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", ["not a .npy file"]),
        (b"PK\x03\x04 and so on", ["not a .npy file"]),
        (b"\x93NUMPY\x01\x00\x10\x00{'descr': '<f4'}", ["header is damaged"]),
        (b"\x93NUMPY\x01\x00\xff", ["header is damaged"]),
        (saved(np.zeros((4, 4, 4)))[:-8], ["truncated", "512 bytes", "504"]),
        (saved(np.zeros((4, 4))), ["2 dimensions"]),
        (saved(np.zeros(())), ["0 dimensions"]),
        (saved(np.full((2, 2, 2), "text")), ["strings"]),
        (saved(np.full((2, 2, 2), b"text")), ["strings"]),
        (saved(np.full((2, 2, 2), None), allow_pickle=True), ["Python objects"]),
        (saved(np.zeros((2, 2, 2), "i4")), ["integers", "astype"]),
        (saved(np.zeros((2, 2, 2), bool)), ["booleans", "astype"]),
        (saved(np.zeros((2, 2, 2), "M8[s]")), ["dates"]),
        (saved(np.zeros((2, 2, 2), [("x", "f4")])), ["records"]),
        (saved(np.zeros((2, 2, 2), np.longdouble)), ["long doubles", "astype"]),
        (saved(np.zeros((3, 0, 5))), ["no element"]),
    ],
)
def test_bad_file(tmp_path, capsys, content, says):
    """A file that is no 3-D field is refused by name, and for what it is; an output is not touched."""
    path, output = tmp_path / "field.npy", tmp_path / "out.npy"
    path.write_bytes(content)
    output.write_bytes(b"precious")
    refused(capsys, "--input", path, "--output", output, says=[str(path), *says])
    assert output.read_bytes() == b"precious"
    assert names(tmp_path) == ["field.npy", "out.npy"]


def test_missing_file(tmp_path, capsys):
    """A path that leads to no file is refused, and so is a directory."""
    refused(capsys, "--input", tmp_path / "nothing.npy", says=["nothing.npy", "no such file"])
    refused(capsys, "--input", tmp_path, says=["not a regular file"])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--shape", "8,8"], ["--shape 8,8", "three numbers"]),
        (["--shape", "8,x,8"], ["three numbers"]),
        (["--shape", "8,0,8"], ["at least 1"]),
        (["--shape", "8,8,8", "--pencils", 9], ["--pencils 9", "8 columns"]),
        (["--shape", "8,8,8", "--pencils", 0], ["1 to 8"]),
        (["--shape", "8,8,8", "--planes", 9], ["--planes 9", "8 planes"]),
        (["--shape", "8,8,8", "--planes", 0], ["1 to 8"]),
        (["--shape", "8,8,8", "--buffers", 0], ["--buffers 0"]),
        (["--shape", "8,8,8", "--repeat", 0], ["--repeat 0"]),
        (["--shape", "8,8,8", "--device-memory", "much"], ["--device-memory"]),
        (["--shape", "8,8,8", "--graph", "g.png"], [".svg or .dot"]),
        (["--shape", "8,8,8", "--graph", "/nowhere/g.svg"], ["cannot be written"]),
        (["--shape", "8,8,8", "--graph", "-", "--json"], ["--graph"]),
        (["--shape", "8,8,8", "--devices", "none"], ["needs a device"]),
        (["--shape", "8,8,8", "--devices", "gpu"], ["gpu"]),
        (["--shape", "8,8,8", "--peer"], ["CUDA"]),
        (["--shape", "5000,5000,5000"], ["host memory"]),
    ],
)
def test_bad_option(capsys, options, says):
    """Each option that cannot mean anything is named, with what is allowed."""
    refused(capsys, *options, says=says)


def test_cuda_index_out_of_range(capsys):
    """A CUDA device that does not exist is an error, whether there is any or not."""
    refused(capsys, "--devices", "cuda:99", says=["CUDA"])


def test_buffers_too_large(tmp_path, capsys):
    """Buffers that cannot fit say how many bytes they need and how many there are."""
    output = tmp_path / "out.npy"
    options = ("--shape", "8,32,32", "--planes", 4, "--device-memory", "64K", "--output", output)
    refused(capsys, *options, says=[f"{3 * 4 * 32 * 32 * 8:,} bytes", f"{64 << 10:,}"])
    assert names(tmp_path) == []


def test_shape_other_than_the_file(tmp_path, capsys):
    """--shape beside --input must agree with it."""
    np.save(tmp_path / "in.npy", random_field((4, 5, 6), "f4"))
    assert demo("--input", tmp_path / "in.npy", "--shape", "4,5,6") == 0
    capsys.readouterr()
    refused(capsys, "--input", tmp_path / "in.npy", "--shape", "6,5,4", says=["(4, 5, 6)"])


def test_output_that_cannot_be_written(tmp_path, capsys):
    """Checked before the work starts: no directory, a directory, a file as directory."""
    (tmp_path / "file").write_bytes(b"")
    for output in (tmp_path / "nowhere" / "out.npy", tmp_path, tmp_path / "file" / "out.npy"):
        refused(capsys, "--shape", "4,4,4", "--output", output, says=[str(output)])
    assert names(tmp_path) == ["file"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_output_without_permission(tmp_path, capsys):
    """A read-only file and a read-only directory are refused."""
    (tmp_path / "out.npy").write_bytes(b"precious")
    (tmp_path / "out.npy").chmod(0o444)
    refused(capsys, "--shape", "4,4,4", "--output", tmp_path / "out.npy", says=["read-only"])
    (tmp_path / "shut").mkdir(mode=0o555)
    refused(capsys, "--shape", "4,4,4", "--output", tmp_path / "shut" / "out.npy", says=["cannot be written"])


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_output_survives_a_failed_run(tmp_path, capsys, monkeypatch, failure):
    """A failure, or Ctrl-C, while the output is written leaves the former one and no other file."""

    def fail(*_, **__):
        raise failure

    monkeypatch.setattr("offload.demo.npy.npy.write_array", fail)
    (tmp_path / "out.npy").write_bytes(b"precious")
    code = demo("--shape", "4,4,4", "--output", tmp_path / "out.npy")
    assert code == (130 if isinstance(failure, KeyboardInterrupt) else 2)
    assert "Traceback" not in capsys.readouterr().err
    assert (tmp_path / "out.npy").read_bytes() == b"precious"
    assert names(tmp_path) == ["out.npy"]
