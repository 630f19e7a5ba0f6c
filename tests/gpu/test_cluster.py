"""Workers of a Dask cluster whose devices are CUDA's: one GPU that two workers share, or a GPU each."""

from __future__ import annotations

import numpy as np
import pytest

import offload as omp
from offload import in_, inout, out, to, tofrom
from offload.cli.demo.examples import load_example
from tests import cluster

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def client():
    """Two workers with a CUDA device each, which is the same one where there is only one."""
    with cluster.local_cluster(2, env={"OFFLOAD_DEVICES": "cuda:0"}) as client:
        yield client


@pytest.fixture
def on_workers(client):
    with omp.Runtime(client, check=True) as runtime:
        yield runtime
    assert not any(client.run(cluster.live_leases).values())


def test_regions(on_workers):
    """Bodies get CuPy's arrays and streams on both workers, and values stay there."""
    kind = omp.target(lambda x: (type(x).__module__.partition(".")[0], hasattr(omp.current_stream(), "ptr")))
    x, y = np.arange(1e6), np.ones(1_000_000)
    for number in range(2):
        assert kind.options(device=number)(x) == ("cupy", True)
        saxpy = omp.target(lambda a, x, y: y.__iadd__(a * x) is None)
        saxpy.options(device=number, map=[to("x"), tofrom("y")])(2.0, x, y)
    assert np.array_equal(y, 1 + 4 * x)
    kept = omp.target(lambda x: x[::2] * 3).options(device=1)(x)
    assert np.array_equal(kept.get(), x[::2] * 3)


def test_copies_between_workers(on_workers):
    """They follow the work on both devices."""
    a, b = (omp.target_alloc(1_000_000, "f8", device=number) for number in range(2))
    host = np.arange(1e6)
    omp.copy(a, host, depend=[out(a)], nowait=True)
    for _ in range(5):
        omp.target(lambda a: a.__iadd__(1) is None).options(device=0, nowait=True, depend=[inout(a)])(a)
        omp.copy(b, a, depend=[in_(a), out(b)], nowait=True)
        omp.target(lambda b: b.__imul__(2) is None).options(device=1, nowait=True, depend=[inout(b)])(b)
        omp.copy(a, b, depend=[in_(b), out(a)], nowait=True)
    omp.taskwait()
    for _ in range(5):
        host = (host + 1) * 2
    assert np.array_equal(a.get(), host)
    for array in (a, b):
        omp.target_free(array)


def test_failures_and_loops(on_workers):
    """An exception of a body arrives, and a loop function is compiled on the worker."""
    x = np.arange(1000.0)
    with pytest.raises(ZeroDivisionError):
        omp.target(lambda x: 1 // 0)(x)

    @omp.target_loop(reduction={"+": ["s"]})
    def dot(x, y):
        s = 0.0
        for i in range(x.size):
            s += x[i] * y[i]
        return s

    assert dot.options(device=1)(x, x) == pytest.approx(x @ x)


def test_cholesky(client, capsys):
    """The example factors a matrix whose tiles live on both workers."""
    load_example("cluster_cholesky").check(client, 512, 128)
    assert "dask:1/" in capsys.readouterr().out
