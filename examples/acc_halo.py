"""Jacobi's iteration on a plate in two halves, of which only rows at the cut move between the iterations.

Each half is an array with one row more at the cut, a halo, which holds the edge of the other half. The halves stay on
their devices in a data region; with one device both are on that. In OpenACC:

    #pragma acc set device_num(device[0])
    #pragma acc enter data copyin(u[0][0:rows][0:m], v[0][0:rows][0:m])
    #pragma acc set device_num(device[1])
    #pragma acc enter data copyin(u[1][0:rows][0:m], v[1][0:rows][0:m])

    for (int k = 0; k < sweeps; k++) {
        for (int h = 0; h < 2; h++) {
            #pragma acc set device_num(device[h])
            #pragma acc parallel loop collapse(2) present(u[h][0:rows][0:m], v[h][0:rows][0:m]) async(h)
            for (int i = 1; i < rows - 1; i++)
                for (int j = 1; j < m - 1; j++)
                    v[h][i][j] = 0.25 * (u[h][i-1][j] + u[h][i+1][j] + u[h][i][j-1] + u[h][i][j+1]);
            #pragma acc update self(v[h][edge[h]:1][0:m]) async(h)
        }
        for (int h = 0; h < 2; h++) {
            #pragma acc set device_num(device[h])
            #pragma acc wait(h)
        }
        memcpy(v[0][halo[0]], v[1][edge[1]], m * sizeof(double));
        memcpy(v[1][halo[1]], v[0][edge[0]], m * sizeof(double));
        for (int h = 0; h < 2; h++) {
            #pragma acc set device_num(device[h])
            #pragma acc update device(v[h][halo[h]:1][0:m]) async(h)
            swap(&u[h], &v[h]);
        }
    }
    // exit data copyout(u[h]) delete(v[h]) on each device

Below, the device is an argument of each construct, and the rows are views.

Run it: ``python examples/acc_halo.py``.
"""

import numpy as np

import offload as omp
from offload import acc

ROWS, COLUMNS = 64, 80
SWEEPS = 40


@acc.parallel(present=["old", "new"])
def jacobi(old, new):
    new[1:-1, 1:-1] = 0.25 * (old[:-2, 1:-1] + old[2:, 1:-1] + old[1:-1, :-2] + old[1:-1, 2:])


class Half:
    """Half of the plate on a device, before and after a sweep; ``edge`` and ``halo`` are numbers of rows."""

    def __init__(self, rows, device, queue, *, edge, halo):
        self.old, self.new = rows.copy(), rows.copy()
        self.device, self.queue = device, queue
        self.edge, self.halo = edge, halo

    def data(self):
        return acc.data(copy=[self.old, self.new], device=self.device)

    def sweep(self):
        jacobi.options(device=self.device, async_=self.queue)(self.old, self.new)
        acc.update(self_=[self.new[self.edge]], device_num=self.device, async_=self.queue)

    def wait(self):
        acc.wait(self.queue, device=self.device)

    def take_halo(self, other):
        self.new[self.halo] = other.new[other.edge]
        acc.update(device=[self.new[self.halo]], device_num=self.device, async_=self.queue)

    def swap(self):
        self.old, self.new = self.new, self.old


def iterate(plate, sweeps, devices):
    """Return the plate after that many sweeps; its border stays as it is. ``devices`` are the numbers of two."""
    cut = len(plate) // 2
    top = Half(plate[: cut + 1], devices[0], 0, edge=-2, halo=-1)
    bottom = Half(plate[cut - 1 :], devices[1], 1, edge=1, halo=0)

    with top.data(), bottom.data():
        for _ in range(sweeps):
            for half in (top, bottom):
                half.sweep()
            for half in (top, bottom):
                half.wait()
            top.take_halo(bottom)
            bottom.take_halo(top)
            for half in (top, bottom):
                half.swap()
        for half in (top, bottom):
            half.wait()
    return np.concatenate([top.old[:-1], bottom.old[1:]])


def main():
    rng = np.random.default_rng(1)
    plate = rng.uniform(0, 1, (ROWS, COLUMNS))
    last = omp.get_num_devices() - 1
    result = iterate(plate, SWEEPS, devices=(0, min(last, 1)))

    expected = plate.copy()
    for _ in range(SWEEPS):
        u = expected.copy()
        expected[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
    error = abs(result - expected).max()
    print(f"{SWEEPS} sweeps in two halves on {min(last, 1) + 1} device(s), largest error {error:.1e}")
    assert error < 1e-12


if __name__ == "__main__":
    main()
