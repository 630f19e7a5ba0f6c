"""The 3-D transform over ranks: the example, and ``offload demo fft3d --mpi``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import fft

from tests.mpi.launching import needs_mpi, on_ranks, run, run_tests

pytestmark = needs_mpi

EXAMPLE = Path(__file__).parents[2] / "examples" / "fft3d_mpi.py"


@on_ranks(1, 3, 4)
def test_on_ranks(n_ranks):
    """`ranks/test_fft.py`."""
    run_tests(n_ranks, "test_fft.py")


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("n_ranks", [1, 2, 3, 4])
def test_all_on_ranks(n_ranks):
    """The same, both dtypes forward and back, and a larger field."""
    run_tests(n_ranks, "test_fft.py", limit_s=600, env={"OFFLOAD_TESTS_FFT": "all"})


@pytest.mark.slow
@pytest.mark.parametrize(("n_ranks", "options"), [(3, ()), (4, ("--grid", "2,2"))])
def test_example(n_ranks, options):
    """The example checks itself, and only rank 0 prints."""
    status, printed = run(n_ranks, "-W", "error", str(EXAMPLE), *options)
    assert (status, printed.count("largest relative error")) == (0, 4), printed


def demo(n_ranks, *options, program=""):
    """Run the demo on ranks, after some lines of a program; return the status and what was printed."""
    lines = f"import sys\nfrom mpi4py import MPI\nrank = MPI.COMM_WORLD.rank\n{program}"
    lines += "" if program.endswith("#\n") else "from offload.cli.command import main\nsys.exit(main(sys.argv[1:]))"
    command = ["demo", "fft3d", "--mpi", "--devices", "sim", *map(str, options)]
    return run(n_ranks, "-W", "error", "-c", lines, *command)


@pytest.mark.parametrize(
    ("n_ranks", "options"),
    [
        pytest.param(1, (), marks=pytest.mark.slow),
        (2, ("--inverse", "--planes", "2")),
        pytest.param(4, ("--grid", "2,2", "--pencils", "3"), marks=pytest.mark.slow),
        pytest.param(3, ("--pencils", "2", "--device-memory", "40K"), marks=pytest.mark.slow),
    ],
)
def test_demo(tmp_path, n_ranks, options):
    """Input and output are whole files, each rank reads and writes its part, and one object has the figures."""
    rng = np.random.default_rng(1)
    field = rng.standard_normal((9, 14, 10)) + 1j * rng.standard_normal((9, 14, 10))
    np.save(tmp_path / "in.npy", field)
    options = ("--input", tmp_path / "in.npy", "--output", tmp_path / "out.npy", "--verify", "--json", *options)
    status, printed = demo(n_ranks, *options)
    assert status == 0, printed
    report = json.loads(printed)
    found, expected = np.load(tmp_path / "out.npy"), (fft.ifftn if "--inverse" in options else fft.fftn)(field)
    assert np.abs(found - expected).max() <= 1e-12 * np.abs(expected).max()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.npy", "out.npy"]
    assert set(report["times_s"]) == set(report["errors"]) == {"bulk", "async"}
    assert report["verified"]
    assert (report["ranks"], report["grid"]) == (n_ranks, [2, 2] if "--grid" in options else [n_ranks, 1])
    assert report["decomposition"] == ("pencil" if "--grid" in options else "slab")
    assert report["schedule"] == ("pencils" if "--pencils" in options else "planes")
    assert (report["exchanged_nbytes"] > 0) == (n_ranks > 1)
    assert report["gpu_aware"] is False
    assert report["library"]


@pytest.mark.slow
def test_table():
    """Without --json there is one table, which rank 0 prints; beyond some elements sums are compared."""
    program = "from offload.cli.demo import fft3d_mpi\nfft3d_mpi.GATHERED_ELEMENTS = 10\n"
    status, printed = demo(2, "--shape", "8,9,10", "--verify", "--repeat", 1, program=program)
    assert status == 0, printed
    assert printed.count("bulk-synchronous / asynchronous") == 1
    assert "8 sums a rank" in printed


@pytest.mark.slow
def test_parts_of_different_size():
    """All ranks have as many pieces, where their parts alone suggest other numbers of them."""
    program = "from offload.cli.demo import fft3d_mpi\nfft3d_mpi.PIECE_NBYTES = 15 * 8 * 8\n"
    status, printed = demo(2, "--shape", "15,15,8", "--buffers", 1, "--verify", "--json", program=program)
    assert status == 0, printed
    assert json.loads(printed)["pieces"][0] == 8


@pytest.mark.slow
def test_options_that_mean_nothing():
    """The usage is printed by one rank."""
    status, printed = demo(3, "--plane", 3)
    assert status == 2
    assert printed.count("usage: ") == printed.count("unrecognized arguments: --plane") == 1


def test_without_mpi4py():
    """Without it there is a message that names the extra."""
    status, printed = run(1, "-c", WITHOUT)
    assert status == 2
    assert printed.startswith("offload: error: --mpi needs mpi4py: pip install 'offload[mpi]'")


WITHOUT = """
import sys
sys.modules["mpi4py"] = None
from offload.cli.command import main
sys.exit(main(["demo", "fft3d", "--mpi"]))
"""


@pytest.mark.parametrize("elements", [10, pytest.param(10_000, marks=pytest.mark.slow)])
def test_a_rank_that_is_wrong(tmp_path, elements):
    """What one rank has wrong makes the status 1 on all, and is not written."""
    program = f"""
from offload.cli.demo import fft3d_mpi
fft3d_mpi.GATHERED_ELEMENTS = {elements}
ours = fft3d_mpi._Job._ours
def wrong(self, *, bulk):
    form = ours(self, bulk=bulk)
    return lambda: form() + (rank == 1)
fft3d_mpi._Job._ours = wrong
"""
    (tmp_path / "out.npy").write_bytes(b"precious")
    options = ("--shape", "6,6,6", "--verify", "--repeat", 1, "--output", tmp_path / "out.npy")
    status, printed = demo(2, *options, program=program)
    assert status == 1, printed
    assert "not at most" in printed
    assert (tmp_path / "out.npy").read_bytes() == b"precious"


# -- bad input -------------------------------------------------------------------------------------------

SHAPE = ["--shape", "8,8,8"]
REFUSED = [
    (["--shape", "3,8,8"], "has 3 planes, too few for 4 parts"),
    (["--shape", "8,3,8"], "has 3 rows, too few for 4 parts"),
    (["--shape", "8,8,1", "--grid", "2,2"], "has 1 columns, too few for 2 parts"),
    ([*SHAPE, "--grid", "2,3"], "--grid 2,3 needs 6 ranks, but there are 4"),
    ([*SHAPE, "--grid", "2"], "write two numbers"),
    ([*SHAPE, "--planes", "3"], "--planes 3"),
    ([*SHAPE, "--output", "/nowhere/out.npy"], "'/nowhere' is not a directory"),
    (["--input", "/nowhere.npy"], "no such file"),
    ([*SHAPE, "--device-memory", "100"], "the buffers need"),
    ([*SHAPE, "--graph", "g.svg"], "--graph works with one process only"),
]


@pytest.mark.slow
def test_refused():
    """What cannot be done is told once, by rank 0, and is the status of all ranks, which may go on."""
    program = f"""
from offload.cli.command import main
for options, _ in {REFUSED!r}:
    status = main([*sys.argv[1:], *options])
    assert MPI.COMM_WORLD.allgather(status) == [2] * 4, status
#
"""
    status, printed = demo(4, program=program)
    assert status == 0, printed
    told = [line for line in printed.splitlines() if line.startswith("offload: ")]
    assert len(told) == len(REFUSED), printed
    for line, (_, says) in zip(told, REFUSED, strict=True):
        assert says in line


ONE_CANNOT_READ = """
from offload.cli.demo import field
opened = field.open_field
def open_field(path):
    if rank == 1:
        raise OSError(13, "Permission denied", path)
    return opened(path)
field.open_field = open_field
"""
ONE_HAS_ANOTHER = """
if rank == 1:
    sys.argv = [one.replace("in.npy", "other.npy") for one in sys.argv]
"""
ONE_HAS_NO_DEVICE = """
from offload.cli.demo import fft3d_mpi
from offload.errors import DeviceUnavailableError
opened = fft3d_mpi.open_runtime
def open_runtime(devices, env):
    if rank == 1:
        raise DeviceUnavailableError("it has gone")
    return opened(devices, env)
fft3d_mpi.open_runtime = open_runtime
"""
ONE_CANNOT_WRITE = """
from offload.cli.demo import fft3d_mpi
def write_box(*_):
    raise OSError(28, "No space left on device")
if rank == 1:
    fft3d_mpi.write_box = write_box
"""
ONE_FAILS_BETWEEN = """
from offload.cli.demo import fft3d_mpi
load = fft3d_mpi.load_example
def load_example(name):
    example = load(name)
    leave = example.leave
    def failing(piece, bulk):
        if piece.number == 1:
            raise OSError(5, "one is broken")
        leave(piece, bulk)
    if rank >= 1:
        example.leave = failing
    return example
fft3d_mpi.load_example = load_example
"""


@pytest.mark.parametrize(
    ("program", "says"),
    [
        pytest.param(ONE_CANNOT_READ, "rank 1: [Errno 13] Permission denied", marks=pytest.mark.slow),
        pytest.param(ONE_HAS_ANOTHER, "rank 1: --input", marks=pytest.mark.slow),
        pytest.param(ONE_HAS_NO_DEVICE, "rank 1: it has gone", marks=pytest.mark.slow),
        pytest.param(ONE_CANNOT_WRITE, "rank 1: [Errno 28] No space left", marks=pytest.mark.slow),
        pytest.param(ONE_FAILS_BETWEEN, "rank 1: [Errno 5] one is broken", marks=pytest.mark.slow),
    ],
    ids=["read", "another", "device", "write", "between"],
)
def test_one_rank_fails(tmp_path, program, says):
    """What one rank cannot do ends all, with one message, and leaves an existing output as it was."""
    np.save(tmp_path / "in.npy", np.ones((8, 8, 8)))
    np.save(tmp_path / "other.npy", np.ones((8, 9, 8)))
    (tmp_path / "out.npy").write_bytes(b"precious")
    options = ("--input", tmp_path / "in.npy", "--output", tmp_path / "out.npy")
    status, printed = demo(3, *options, program=program)
    assert status != 0
    assert printed.count("offload: error") == 1, printed
    assert says in printed
    assert (tmp_path / "out.npy").read_bytes() == b"precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.npy", "other.npy", "out.npy"]
