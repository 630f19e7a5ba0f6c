"""Regions that map storage of their own one after the other, on a device of real memory whose bodies do not block."""

import threading

import numpy as np
import pytest

import offload as omp
import tests.eager_device  # noqa: F401  # registers the kind
from offload import inout, tofrom

N_TURNS = 60


@pytest.fixture
def eager():
    with omp.Runtime("eager", check=True) as runtime:
        yield runtime


def bump(x):
    x.storage[...] += 1


def double(x):
    x.storage[...] *= 2


def wrap(x):
    x.storage[...] %= 1000


def fail(x):
    x.storage[...] = 99
    raise ArithmeticError


def test_threads_with_chains_of_their_own(eager):
    """Chains of regions of several functions give what they should, also beside failing ones and present data."""
    wrong = []

    def chains(number):
        hosts = [np.full(n, float(number)) for n in (10, 1000)]
        expected = [host.copy() for host in hosts]
        clauses = [{"nowait": True, "map": [tofrom(host)], "depend": [inout(host)]} for host in hosts]
        for turn in range(N_TURNS):
            for host, wanted, words in zip(hosts, expected, clauses, strict=True):
                omp.target(bump, **words)(host)
                omp.target(double, nowait=True, depend=words["depend"])(host)  # mapped by default
                wanted[:] = (wanted + 1) * 2 % 1000
                omp.target(wrap, **words)(host)
                if turn % 10 == 3:
                    with pytest.raises(ArithmeticError):
                        omp.target(fail, **words)(host).result()
                if turn % 10 == 7:
                    omp.taskwait()
                    with omp.target_data(map=[tofrom(host)]):
                        omp.target(bump, **words)(host)
                        omp.taskwait()
                    wanted[:] += 1
        omp.taskwait()
        if not all((host == wanted).all() for host, wanted in zip(hosts, expected, strict=True)):
            wrong.append(number)

    threads = [threading.Thread(target=chains, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_arrays_that_bodies_keep_stay_as_they_are_and_refuse(eager):
    """What a body keeps is not written to by the regions after it, and refuses when its mapping has ended."""
    host, kept = np.zeros(10), []

    def keep(x):
        bump(x)
        kept.append(x)

    region = omp.target(keep, nowait=True, map=[tofrom(host)], depend=[inout(host)])
    for _ in range(5):
        region(host)
    omp.taskwait()
    assert (host == 5).all()
    assert [array._storage[0] for array in kept] == [1, 2, 3, 4, 5]
    for array in kept:
        with pytest.raises(omp.RegionClosedError):
            bump(array)
    kept.clear()
