"""A loop on the host's threads, nest by nest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offload.loops.running.arguments import NestRun
from offload.loops.running.preparation import ALONE, ON_HOST, n_threads_of, prepared

if TYPE_CHECKING:
    from collections.abc import Mapping

    from offload.devices.base import Device
    from offload.loops.running.preparation import OnHost
    from offload.loops.running.specialise import Specialisation
    from offload.runtime.launch import DeviceTask


def host_runs(
    spec: Specialisation,
    values: Mapping[str, Any],
    device: Device | None,
    n_threads: int,
    rng: Any,
    task: DeviceTask | None = None,
    where: OnHost = ON_HOST,
) -> list[NestRun]:
    """Return a run for each nest, on the host or on a device whose memory the host can address."""
    blanks, addresses, _ = prepared(spec, values, device, where, task)
    arrays = {name: values[name] for name in spec.given}
    return [NestRun(blank, arrays, addresses, values, n_threads, rng) for blank in blanks]


def run_in_parallel(spec: Specialisation, values: Mapping[str, Any], *, is_alone: bool = False) -> list[NestRun]:
    """Run the nests on host arrays, in one thread if that ``is_alone``; return their runs, which have succeeded.

    Raises the error of the first nest that fails; later nests do not run.
    """
    is_alone = is_alone or spec.program.words.num_threads == 1
    n_threads, where = (1, ALONE) if is_alone else (n_threads_of(spec.program), ON_HOST)
    runs = host_runs(spec, values, None, n_threads, None, where=where)
    for run in runs:
        run.form.run((run.n_chunks,), run)
        failure = run.failure()
        if failure is not None:
            raise failure
    return runs
