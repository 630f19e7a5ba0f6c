"""``offload demo fft3d`` on the simulated device: right results, and every bad input told before anything is lost."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import offload as omp
from offload.cli.command import main
from offload.cli.demo import fft3d
from offload.cli.demo import reference as expect
from offload.cli.demo.examples import load_example
from offload.cli.demo.reference import Expected
from offload.cli.demo.report import share
from tests.profiles import few

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
@pytest.mark.parametrize("options", few(2, [(), ("--buffers", 1), ("--planes", 1), ("--pencils", 1), ("--buffers", 7)]))
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


def test_table_fits_80_columns_and_says_what_is_there(tmp_path, capsys, monkeypatch):
    """On 80 columns no row wraps; one buffer is one; simulated devices have no work areas and are bound by the CPU."""
    monkeypatch.setenv("COLUMNS", "80")
    assert demo("--shape", "4,4,4", "--verify", "--buffers", 1) == 0
    text = capsys.readouterr().out
    assert "1 buffer of " in text
    assert "work" not in text
    assert "a simulated device is bound by the CPU" in text
    assert f"✓ at most 1e-5, against {expect.library()} + 8 sums" in text
    rows = [line.split("│") for line in text.splitlines() if "│" in line]
    assert all(cells[1].strip() for cells in rows)
    assert (share(0.0), share(1e-5), share(0.5)) == ("0%", "< 1%", "50%")


def test_names_are_no_markup(tmp_path, capsys, monkeypatch):
    """A file name that looks like Rich's markup is shown as it is."""
    monkeypatch.chdir(tmp_path)
    np.save("[red]in.npy", random_field((4, 4, 4), "f4"))
    assert demo("--input", "[red]in.npy", "--output", "[blue]out.npy") == 0
    text = capsys.readouterr().out
    assert "[red]in.npy" in text
    assert text.endswith("written to [blue]out.npy\n")


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
    wrong = Expected(np.ones((4, 4, 4), complex), np.zeros((1, 3), int), np.ones(1))
    monkeypatch.setattr(fft3d, "reference", lambda *_: wrong)
    (tmp_path / "out.npy").write_bytes(b"precious")
    assert demo("--shape", "4,4,4", "--verify", "--output", tmp_path / "out.npy") == 1
    assert (tmp_path / "out.npy").read_bytes() == b"precious"
    assert names(tmp_path) == ["out.npy"]


def test_nan_does_not_verify(tmp_path, capsys):
    """A NaN never passes for a right result; it is told in a sentence, and JSON has null."""
    field = random_field((4, 4, 4), "f4")
    field[1, 2, 3] = np.nan
    np.save(tmp_path / "in.npy", field)
    assert demo("--input", tmp_path / "in.npy", "--verify", "--json") == 1
    captured = capsys.readouterr()
    report = json.loads(captured.out, parse_constant=pytest.fail)
    assert (report["errors"], report["max_relative_error"]) == ({"sync": None, "async": None}, None)
    assert captured.err == f"offload: not verified: {report['remark']}\n"
    assert "the field contains NaN" in report["remark"]


def test_overflow_does_not_verify(tmp_path, capsys):
    """A transform that complex64 cannot hold is told as that, not as a fault of the field."""
    np.save(tmp_path / "in.npy", np.full((4, 4, 4), 3e38, "f4"))
    assert demo("--input", tmp_path / "in.npy", "--verify", "--json") == 1
    assert "too large for complex64" in figures(capsys)["remark"]


def test_verify_without_scipy(tmp_path, capsys, monkeypatch):
    """Where SciPy is absent, NumPy's transform is the reference, and is named."""
    monkeypatch.setattr(expect, "find_spec", lambda name: None)
    assert demo("--shape", "4,6,5", "--verify", "--json") == 0
    assert figures(capsys)["reference"] == "numpy.fft + 8 sums"


def test_a_wrong_library_is_noticed(monkeypatch):
    """The sums find a value that the library has wrong in the same way as the simulated device has."""
    field = random_field((4, 6, 5), "c16")
    right = expect.reference(field, field.shape, fft3d.load)
    assert right.relative_error(np.fft.fftn(field)) < 1e-15
    assert right.relative_error(np.conj(right.transform)) > 1e-3
    both = replace(right, transform=np.conj(right.transform))
    assert both.relative_error(both.transform) > 1e-3


@pytest.mark.parametrize("options", [("--repeat", 1, "--graph", "g.svg"), ("--repeat", 2)])
def test_nothing_runs_on_what_memory_happens_to_hold(tmp_path, monkeypatch, options):
    """Each run, a warm-up and a recorded one too, starts from the field."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fft3d, "host_slab", lambda shape, dtype: np.full(shape, np.nan, dtype))
    inputs = []
    example = load_example("fft3d")
    plain = example.fft3d
    monkeypatch.setattr(example, "fft3d", lambda slab, *a, **k: (inputs.append(slab.copy()), plain(slab, *a, **k)))
    monkeypatch.setattr(fft3d, "load_example", lambda name: example)
    assert demo("--shape", "4,4,4", *options) == 0
    assert len(inputs) > 2
    assert all(np.isfinite(one).all() for one in inputs)


# -- bad input -------------------------------------------------------------------------------------


def assert_refused(capsys, *options, says):
    """Run the demo: one message on stderr that says so, exit code 2, and nothing on stdout."""
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
        (saved(np.zeros((2, 3, 4))).replace(b"(2, 3, 4)", b"(-2, 3,-4)"), ["header is damaged", "-2"]),
        (
            saved(np.zeros((2, 3, 4))).replace(b"(2, 3, 4), }  ", b"(9999999999, 9999999999, 9999999999), }"),
            ["truncated"],
        ),
    ],
)
def test_bad_file(tmp_path, capsys, content, says):
    """A file that is no 3-D field is refused by name, and for what it is; an output is not touched."""
    path, output = tmp_path / "field.npy", tmp_path / "out.npy"
    path.write_bytes(content)
    output.write_bytes(b"precious")
    assert_refused(capsys, "--input", path, "--output", output, says=[str(path), *says])
    assert output.read_bytes() == b"precious"
    assert names(tmp_path) == ["field.npy", "out.npy"]


def test_missing_file(tmp_path, capsys):
    """A path that leads to no file is refused, and so is a directory."""
    assert_refused(capsys, "--input", tmp_path / "nothing.npy", says=["nothing.npy", "no such file"])
    assert_refused(capsys, "--input", tmp_path, says=["not a regular file"])


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
        (["--shape", "8,8,8", "--device-memory", "much"], ["--device-memory much", "powers of 1024"]),
        (["--shape", "8,8,8", "--device-memory", "0"], ["--device-memory 0", "above 0"]),
        (["--shape", "8,8,8", "--device-memory", "-5"], ["--device-memory -5", "above 0"]),
        (["--shape", "8,8,8", "--graph", "g.gif"], ["'.gif'", "'.svg'"]),
        (["--shape", "8,8,8", "--graph", "/nowhere/g.svg"], ["cannot be written", "'/nowhere' is not a directory"]),
        (["--shape", "8,8,8", "--graph", "-", "--json"], ["--graph"]),
        (["--shape", "8,8,8", "--devices", "none"], ["needs a device"]),
        (["--shape", "8,8,8", "--devices", "gpu"], ["--devices gpu: 'gpu' is not a kind of device"]),
        (["--shape", "8,8,8", "--peer"], ["CUDA"]),
        (["--shape", "5000,5000,5000"], ["host memory"]),
        (["--shape", "99999999999,9999999999,9"], ["memory"]),
    ],
)
def test_bad_option(capsys, options, says):
    """Each option that cannot mean anything is named, with what is allowed."""
    assert_refused(capsys, *options, says=says)


def test_cuda_index_out_of_range(capsys):
    """A CUDA device that does not exist is an error, whether there is any or not."""
    assert_refused(capsys, "--devices", "cuda:99", says=["--devices cuda:99: ", "CUDA"])


def test_error_from_the_environment_names_the_variable(capsys, monkeypatch):
    """Where OFFLOAD_DEVICES is what means nothing, it is named."""
    monkeypatch.setenv("OFFLOAD_DEVICES", "gpu")
    assert main(["demo", "fft3d"]) == 2
    assert capsys.readouterr().err.startswith("offload: error: OFFLOAD_DEVICES=gpu: 'gpu' is not a kind of device")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--planes", 4, "--device-memory", "64K"], "--planes 2 would fit: 3 buffers of 16,384 bytes"),
        (["--planes", 4, "--device-memory", "16K"], "--planes 1 --buffers 2 would fit: 2 buffers of 8,192 bytes"),
        (["--planes", 4, "--device-memory", "1K"], "3 buffers need 24,576, and --buffers 1 8,192:"),
        (["--device-memory", "1K"], "the smallest piece (--planes 1) takes 8,192 bytes"),
    ],
)
def test_memory_advice(capsys, options, says):
    """What does not fit comes with options that do, which are true, or with what it takes."""
    assert_refused(capsys, "--shape", "8,32,32", *options, says=[says])
    if "would" in says:
        memory = options[options.index("--device-memory") + 1]
        assert demo("--shape", "8,32,32", "--device-memory", memory, *says.split(" would")[0].split()) == 0


def test_buffers_too_large(tmp_path, capsys):
    """Buffers that cannot fit say how many bytes they need and how many there are."""
    output = tmp_path / "out.npy"
    options = ("--shape", "8,32,32", "--planes", 4, "--device-memory", "64K", "--output", output)
    assert_refused(capsys, *options, says=[f"{3 * 4 * 32 * 32 * 8:,} bytes", f"{64 << 10:,}"])
    assert names(tmp_path) == []


def test_shape_other_than_the_file(tmp_path, capsys):
    """--shape beside --input must agree with it."""
    np.save(tmp_path / "in.npy", random_field((4, 5, 6), "f4"))
    assert demo("--input", tmp_path / "in.npy", "--shape", "4,5,6") == 0
    capsys.readouterr()
    assert_refused(capsys, "--input", tmp_path / "in.npy", "--shape", "6,5,4", says=["(4, 5, 6)"])


def test_output_that_cannot_be_written(tmp_path, capsys):
    """Checked before the work starts: no directory, a directory, a file as directory."""
    (tmp_path / "file").write_bytes(b"")
    for output in (tmp_path / "nowhere" / "out.npy", tmp_path, tmp_path / "file" / "out.npy"):
        assert_refused(capsys, "--shape", "4,4,4", "--output", output, says=[str(output)])
    assert names(tmp_path) == ["file"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_output_without_permission(tmp_path, capsys):
    """A read-only file and a read-only directory are refused."""
    (tmp_path / "out.npy").write_bytes(b"precious")
    (tmp_path / "out.npy").chmod(0o444)
    assert_refused(capsys, "--shape", "4,4,4", "--output", tmp_path / "out.npy", says=["read-only"])
    (tmp_path / "shut").mkdir(mode=0o555)
    assert_refused(capsys, "--shape", "4,4,4", "--output", tmp_path / "shut" / "out.npy", says=["cannot be written"])


def test_read_only_files_are_not_replaced(tmp_path, capsys, monkeypatch):
    """--graph and --output refuse a file that may not be written, with the reason, and leave it."""
    path = tmp_path / "g.svg"
    path.write_text("precious")
    may = os.access
    monkeypatch.setattr(os, "access", lambda name, mode: not str(name).endswith("g.svg") and may(name, mode))
    for option in ("--graph", "--output"):
        assert_refused(capsys, "--shape", "4,4,4", option, path, says=[f"{option} {path} is read-only"])
    assert path.read_text() == "precious"
    assert_refused(capsys, "--shape", "4,4,4", "--graph", tmp_path / "no" / "g.svg", says=["is not a directory"])


def test_full_disk_names_the_file(tmp_path, capsys, monkeypatch):
    """A disk that is full while the output is written is told with the output's name."""

    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("offload.cli.demo.npy.npy.write_array", fail)
    assert_refused(
        capsys, "--shape", "4,4,4", "--output", tmp_path / "o.npy", says=[f"--output {tmp_path / 'o.npy'}", "No space"]
    )
    assert names(tmp_path) == []


def test_sigterm_cleans_up(tmp_path):
    """SIGTERM ends the demo with 143, and nothing of the output is left."""
    program = (
        "import os, signal, sys; from offload.cli.demo import fft3d; from offload.cli import main\n"
        "plain, calls = fft3d.load, []\n"
        "def load(*args):\n"
        "    plain(*args); calls.append(1)\n"
        "    if len(calls) == 2: assert len(os.listdir('.')) == 1; os.kill(os.getpid(), signal.SIGTERM)\n"
        "fft3d.load = load\n"
        "sys.exit(main(['demo', 'fft3d', '--devices', 'sim', '--shape', '8,8,8', '--output', 'out.npy']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (128 + signal.SIGTERM, "offload: terminated\n")
    assert names(tmp_path) == []


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_output_survives_a_failed_run(tmp_path, capsys, monkeypatch, failure):
    """A failure, or Ctrl-C, while the output is written leaves the former one and no other file."""

    def fail(*_, **__):
        raise failure

    monkeypatch.setattr("offload.cli.demo.npy.npy.write_array", fail)
    (tmp_path / "out.npy").write_bytes(b"precious")
    code = demo("--shape", "4,4,4", "--output", tmp_path / "out.npy")
    assert code == (130 if isinstance(failure, KeyboardInterrupt) else 2)
    assert "Traceback" not in capsys.readouterr().err
    assert (tmp_path / "out.npy").read_bytes() == b"precious"
    assert names(tmp_path) == ["out.npy"]
