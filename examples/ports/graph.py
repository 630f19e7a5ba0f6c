"""Two substances that diffuse and react: some steps as a task graph, recorded once and replayed.

The port of `graph_cupy.py`. The function under ``taskgraph`` runs once, and its tasks are recorded; where all of them
are work of one CUDA device, a replay is one launch of a CUDA graph. The fork and the join are what the dependences say.
Bodies may make temporaries, which belong to the graph. What the graph works on is mapped outside of it, so that it
stays in one place.

Run it: ``python examples/ports/graph.py``.
"""

import numpy as np

import offload as omp
from offload import in_, inout, out, tofrom


@omp.target(nowait=True, depend=[in_("field"), out("result")])
def laplace(field, result):
    inner = field[1:-1, 1:-1]
    result[1:-1, 1:-1] = field[:-2, 1:-1] + field[2:, 1:-1] + field[1:-1, :-2] + field[1:-1, 2:] - 4 * inner


@omp.target(nowait=True, depend=[inout("u", "v"), in_("lu", "lv")])
def react(u, v, lu, lv):
    u, v, lu, lv = (field[1:-1, 1:-1] for field in (u, v, lu, lv))
    made = u * v * v
    u += 0.16 * lu - made + 0.035 * (1 - u)
    v += 0.08 * lv + made - 0.1 * v


@omp.taskgraph
def advance(u, v, lu, lv, steps):
    for _ in range(steps):
        laplace(u, lu)
        laplace(v, lv)  # beside the other one
        react(u, v, lu, lv)


def run(start_u, start_v, calls, steps):
    """Return both substances after ``calls`` times ``steps``."""
    u, v = start_u.copy(), start_v.copy()
    with omp.buffers(2, u.shape, u.dtype) as (lu, lv), omp.target_data(map=[tofrom(u, v)]):
        for _ in range(calls):
            advance(u, v, lu, lv, steps)
    return u, v


def main():
    u, v = np.ones((48, 64)), np.zeros((48, 64))
    u[20:28, 24:40], v[20:28, 24:40] = 0.5, 0.25
    u, v = run(u, v, calls=20, steps=10)
    print(f"u {u.sum():.6f}, v {v.sum():.6f}")
    assert 0 < v.sum() < u.sum() < u.size


if __name__ == "__main__":
    main()
