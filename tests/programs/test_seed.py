"""A seeded runtime: where the seed comes from, and the order that it draws."""

from __future__ import annotations

import pytest

import offload as omp


def order(n_tasks=30, **options):
    """Return the order in which a runtime without workers runs tasks that nothing orders."""
    ran = []
    with omp.Runtime("none", num_threads=0, check=True, **options):
        for k in range(n_tasks):
            omp.task(ran.append)(k)
        omp.taskwait()
    return ran


def test_seed_from_the_environment(monkeypatch):
    """OFFLOAD_SEED seeds as the argument does, in a mapping and in the process's environment; empty it is no seed."""
    by_argument = order(seed=5, env={})
    assert sorted(by_argument) == order(env={}) == order(env={"OFFLOAD_SEED": ""}) != by_argument
    assert order(env={"OFFLOAD_SEED": "5"}) == order(env={"OFFLOAD_SEED": " 5 "}) == by_argument
    assert order(env={"OFFLOAD_SEED": "6"}) != by_argument
    monkeypatch.setenv("OFFLOAD_SEED", "5")
    assert order() == by_argument
    assert order(env={}) == sorted(by_argument)


def test_the_argument_wins():
    """A seed that is given goes over that of the environment, also 0."""
    env = {"OFFLOAD_SEED": "5"}
    assert order(seed=0, env=env) == order(seed=0, env={}) != order(env=env)


@pytest.mark.parametrize("text", ["1.5", "one", "0x10"])
def test_a_seed_that_means_nothing(text):
    """What is no integer is an error when the runtime is made, also where an argument is given."""
    for seed in (None, 1):
        with pytest.raises(omp.ClauseError, match=f"OFFLOAD_SEED='{text}'.*integer"):
            omp.Runtime("none", seed=seed, env={"OFFLOAD_SEED": text})


def test_the_seed_is_displayed(capfd):
    """display_env lists the variable among those of offload alone."""
    with omp.Runtime("none", env={"OFFLOAD_SEED": "-3"}):
        omp.display_env()
        assert "OFFLOAD_SEED" not in capfd.readouterr().err
        omp.display_env(verbose=True)
    assert "  OFFLOAD_SEED = '-3'\n" in capfd.readouterr().err
