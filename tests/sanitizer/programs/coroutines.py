"""Coroutines as tasks, with host tasks between them, and waits by await."""

import asyncio

import numpy as np

import offload as omp
from offload import in_, inout, out


@omp.task(depend=[out("x")])
async def fetch(x, value):
    await asyncio.sleep(0)
    x[...] = value


@omp.task(depend=[inout("x")])
def double(x):
    x *= 2


@omp.task(depend=[in_("x")])
async def total(x):
    return float(x.sum())


async def main():
    x, y = np.zeros(4), np.zeros(4)
    async with omp.taskgroup():
        fetch(x[:2], 1)
        fetch(x[2:], 2)
    print(x.tolist())
    fetch(y, 3)
    double(y)
    print(await total(y))
    fetch(x, 5)
    await omp.taskwait()
    print(x.tolist())
    last = double(x)
    await last
    print(x.tolist())


asyncio.run(main())
