"""Batches through a PyTorch model on a device: a target region for each batch, and no stream, event or device buffer.

Each batch is copied to the device, the model computes on it, and the result is copied back, while the next batch is on
its way in and the one before on its way out. The ``map`` clause makes both copies, with device memory for the time of
the region. A region writes (``out``) one of ``n_slots`` tokens, so at most that many batches are on the device. The
first call records the regions. Each later call, for new contents of the same tensors, launches them as a CUDA graph.

`torch_pipeline_by_hand.py` is the same with streams of PyTorch. On a GPU this program runs both, compares the results,
and prints the times, also of the regions one by one. Without a GPU it runs the regions on the simulated device, with
the same tensors.

Run it: ``python examples/torch_pipeline.py``, or with the number of batches and their rows: ``… 64 4096``.
"""

import inspect
import re
import sys
import time
from functools import partial
from statistics import median

import offload as omp
from offload import from_, out, to

try:
    import torch
    import torch_pipeline_by_hand as by_hand
except ModuleNotFoundError as error:
    sys.exit(f"this example needs PyTorch: {error}")

COLUMNS = 1024
TURNS = 9


@omp.target(nowait=True, map=[to("batch"), from_("result")])
def infer(model, batch, result):
    with torch.inference_mode():
        result.copy_(model(batch))


def pipeline(model, batches, results, n_slots=4):
    """Return a function that writes the model's output for each batch to the result of the same index."""

    @omp.taskgraph
    def run():
        slots = [infer.options(depend=[out(("slot", slot))]) for slot in range(n_slots)]
        for number, (batch, result) in enumerate(zip(batches, results, strict=True)):
            slots[number % n_slots](model, batch, result)

    return run


# -- the comparison --------------------------------------------------------------------------------
ORDER = re.compile(
    r"Stream|Event|stream\(|wait_|record|synchronize|taskgraph|empty|inputs|copy_|map=|depend=|nowait|n_slots"
)
"""A line that makes, uses or orders a stream, an event, a dependence or a buffer, or copies between host and device."""


def lines_for_order(*functions):
    """Return how many lines of the functions match `ORDER`, without those of comments and docstrings."""
    lines = [line.split("#")[0] for function in functions for line in inspect.getsource(function).splitlines()]
    return sum(bool(ORDER.search(line)) for line in lines if '"""' not in line)


def make(device, n_batches, rows, columns=COLUMNS):
    """Return a model on a device, batches in host memory, and tensors for the results."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(columns, columns), torch.nn.ReLU(), torch.nn.Linear(columns, columns))
    is_gpu = device.kind == "cuda"  # without CUDA, PyTorch has no pinned memory
    batches = [torch.empty(rows, columns, pin_memory=is_gpu).normal_() for _ in range(n_batches)]
    results = [torch.zeros(rows, columns, pin_memory=is_gpu) for _ in range(n_batches)]
    return model.to("cuda:0" if is_gpu else "cpu"), batches, results


def is_right(model, batches, results):
    """Tell whether the results are the model's, batch by batch; forget them."""
    device = next(model.parameters()).device
    with torch.inference_mode():
        right = [torch.allclose(model(x.to(device)).cpu(), y, atol=1e-5) for x, y in zip(batches, results, strict=True)]
    for result in results:
        result.zero_()
    return all(right)


def seconds(program):
    torch.cuda.synchronize()
    began = time.perf_counter()
    program()
    return time.perf_counter() - began


def compare(*args):
    """Print how long both programs take, in turn, and the ratios of their medians."""
    run = pipeline(*args)
    programs = run, partial(by_hand.run, *args), run.options(if_=False)
    for program in programs * 3:  # memory is allocated, and libraries choose their algorithms
        program()
    turns = [[seconds(program) for program in programs] for _ in range(TURNS)]
    own, other, one_by_one = (median(column) * 1e3 for column in zip(*turns, strict=True))
    print(f"{own:.1f} ms, by hand {other:.1f} ms: {own / other:.3f} of it (medians of {TURNS} turns)")
    print(f"{one_by_one:.1f} ms with the regions one by one: {one_by_one / other:.3f} of it")


def main():
    device = omp.device(0)
    is_gpu = device.kind == "cuda"
    n_batches, rows = map(int, sys.argv[1:]) if sys.argv[1:] else (64, 4096) if is_gpu else (8, 256)
    args = make(device, n_batches, rows)
    print(f"{n_batches} batches of {args[1][0].nbytes / 2**20:g} MiB through {device.name}")

    run = pipeline(*args)
    for _ in range(3):  # recorded, captured, launched
        run()
        assert is_right(*args)
    if is_gpu:
        by_hand.run(*args)
        assert is_right(*args)
        compare(*args)
    else:
        print("there is no GPU to run the program by hand on")

    own, other = lines_for_order(infer, pipeline), lines_for_order(by_hand.run)
    print(f"{own} lines for streams, events and buffers, by hand {other}: {own / other:.2f} of it")
    assert own <= 0.6 * other


if __name__ == "__main__":
    main()
