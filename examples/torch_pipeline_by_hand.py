"""Batches through a PyTorch model on a GPU, by hand: three streams, a ring of input buffers, three events a buffer.

Each batch is copied to the GPU, the model computes on it, and the result is copied back, while the next batch is on its
way in and the one before on its way out. `torch_pipeline.py` is the same in tasks, and runs both.
"""

import torch


def run(model, batches, results, n_slots=4):
    """Write the model's output for each batch to the result of the same index; all of them are pinned tensors."""
    device = next(model.parameters()).device
    into, compute, back = (torch.cuda.Stream(device) for _ in range(3))
    inputs = [torch.empty_like(batches[0], device=device) for _ in range(n_slots)]
    arrived, computed, left = ([torch.cuda.Event() for _ in inputs] for _ in range(3))
    into.wait_stream(torch.cuda.current_stream(device))  # which has allocated the buffers
    compute.wait_stream(torch.cuda.current_stream(device))  # which has made the model

    for number, (batch, result) in enumerate(zip(batches, results, strict=True)):
        slot = number % n_slots

        with torch.cuda.stream(into):
            into.wait_event(computed[slot])  # the buffer is free
            inputs[slot].copy_(batch, non_blocking=True)
            arrived[slot].record(into)

        with torch.cuda.stream(compute), torch.inference_mode():
            compute.wait_event(arrived[slot])
            compute.wait_event(left[slot])  # no more than so many outputs at a time
            output = model(inputs[slot])
            computed[slot].record(compute)

        with torch.cuda.stream(back):
            back.wait_event(computed[slot])
            result.copy_(output, non_blocking=True)
            output.record_stream(back)  # else the memory may be used again too early
            left[slot].record(back)

    back.synchronize()
