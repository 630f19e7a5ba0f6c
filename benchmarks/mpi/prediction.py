"""The predicted time of the transform over ranks: numbers in, seconds out.

A *pass* takes all bytes of a rank to the device, transforms them there and takes them back. The copies either way and
the transforms overlap, so the slowest of them counts, and each piece costs some work of the host. An *exchange* sends
all bytes but the rank's own share, and one message for each piece and rank. In pieces along planes, an exchange is
hidden by the pass before it. In pieces along pencils it is hidden by the two passes around it, but those need one pass
more. The first piece's way in and the last one's way out cannot be hidden: one piece of everything in the pipeline.

With passes of one length, planes are never longer than pencils, because pencils hide less than the pass that they add.
So planes are right if a group of them fits the device. The model leaves out that the passes and the network take
bandwidth from each other where both move bytes through one host's memory.
"""

from __future__ import annotations

from dataclasses import dataclass

OVERHEAD_S = 2e-4  # Seconds of the host for a piece: six tasks and a call of MPI, measured on the simulated device

MESSAGE_S = 2e-6  # Seconds for a message, whatever its size, between ranks of one machine; networks have 1 to 2 µs


@dataclass(frozen=True, slots=True)
class Machine:
    """The measured times of a machine, in seconds."""

    transform_s: float  # of the device, for a byte that is transformed
    link_s: float  # for a byte each way, both ways at once
    network_s: float  # for a byte that a rank sends, all ranks sending
    overhead_s: float = OVERHEAD_S  # of the host, for a piece
    message_s: float = MESSAGE_S  # for a message of any size


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of a transform: asynchronous and bulk-synchronous, in planes and in pencils."""

    planes_s: float
    pencils_s: float
    bulk_planes_s: float
    bulk_pencils_s: float


def pass_s(machine: Machine, nbytes: float, pieces: int) -> float:
    """Return the seconds of one pass over ``nbytes`` in ``pieces``."""
    return nbytes * max(machine.transform_s, machine.link_s) + pieces * machine.overhead_s


def exchange_s(machine: Machine, nbytes: float, pieces: int, ranks: int) -> float:
    """Return the seconds of the exchange of a rank's ``nbytes`` among ``ranks``, in ``pieces``."""
    return nbytes * machine.network_s * (ranks - 1) / ranks + pieces * ranks * machine.message_s


def predict(machine: Machine, nbytes: float, pieces: int, ranks: int) -> Times:
    """Return the times of a transform of ``nbytes`` on each rank, in ``pieces`` >= 1, between ``ranks`` >= 1."""
    x, n = pass_s(machine, nbytes, pieces), exchange_s(machine, nbytes, pieces, ranks)
    return Times(
        planes_s=max(x, n) + x + (x + n) / pieces,
        pencils_s=x + max(2 * x, n) + (2 * x + n) / pieces,
        bulk_planes_s=2 * x + n,
        bulk_pencils_s=3 * x + n,
    )
