"""Heat on all devices: loops that go by rows, one that goes by columns and a reduction, in one time loop, unchanged.

Each device holds the whole plate. A loop is divided by what it writes: by rows where the outermost loop goes over
rows, by columns where it goes over columns. What a device needs and another one has written is copied, and nothing
else: a row a neighbour and a sweep, and most of the plate where the loop by columns follows one by rows.

Nothing in the loops speaks of devices. With OpenMP in C this takes a loop over the devices, a range of rows for each,
and copies of the rows at their ends; with one device `sweep` is the loop of loops_heat.py.

Run it: ``python examples/loops_devices.py [N]``; on simulated devices: ``OFFLOAD_DEVICES=sim:4``.
"""

import sys

import numpy as np

import offload as omp
from offload import tofrom

N, STEPS = 512, 20


@omp.target_loop(collapse=2)
def sweep(a, b):
    for i in range(1, a.shape[0] - 1):
        for j in range(1, a.shape[1] - 1):
            b[i, j] = 0.25 * (a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1])


@omp.target_loop
def flow_down(a):
    for j in range(a.shape[1]):  # columns are independent, rows are not
        for i in range(1, a.shape[0] - 1):
            a[i, j] += 0.125 * (a[i - 1, j] - a[i, j])


@omp.target_loop(collapse=2, reduction={"max": ["change"]})
def largest_change(a, b):
    change = 0.0
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            change = max(change, abs(a[i, j] - b[i, j]))
    return change


def plate(n):
    """A cold plate with one hot edge."""
    a = np.zeros((n, n))
    a[0] = 100.0
    return a, a.copy()


def steps(a, b, **words):
    """Go through the time loop; return the last change, and the bytes that travelled between devices by loops."""
    loops = {loop: loop.options(**words) for loop in (sweep, flow_down, largest_change)}
    sent_nbytes = dict.fromkeys((loop.__name__ for loop in loops), 0)
    change = 0.0

    def run(loop, *args):
        result = loops[loop](*args)
        if words:
            sent_nbytes[loop.__name__] += loops[loop].explain(*args).to_dict()["filter"].get("sent_nbytes") or 0
        return result

    for _ in range(STEPS // 2):
        run(sweep, a, b)
        run(sweep, b, a)
        run(flow_down, a)
        change = run(largest_change, a, b)
    return change, sent_nbytes


def main(n=N):
    n_devices = omp.get_num_devices()
    a, b = plate(n)
    c, d = a.copy(), b.copy()
    with omp.target_data(map=[tofrom(a), tofrom(b)], devices="all"):
        change, sent_nbytes = steps(a, b, devices="all", filter="always")
    with omp.target_data(map=[tofrom(c), tofrom(d)]):
        expected, _ = steps(c, d)
    assert (a == c).all()  # bit for bit, on any number of devices
    assert (b == d).all()
    assert change == expected

    print(f"{STEPS} steps of {n} x {n} on {n_devices} device{'s' * (n_devices != 1)}: the last change is {change:.3g}")
    full_nbytes = (n_devices - 1) * a.nbytes  # each device sends what it has written to all others
    for name, calls in (("sweep", STEPS), ("flow_down", STEPS // 2), ("largest_change", STEPS // 2)):
        full = f", full exchange {calls * full_nbytes:,}" if name != "largest_change" else ""
        print(f"{name}: {sent_nbytes[name]:,} bytes from device to device{full}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
