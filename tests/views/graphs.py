"""Graphs of the usual shapes, at any size, for tests of pictures. Their tasks have run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

from offload.tasks.graph import Graph, Node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class _Builder:
    """Adds tasks that read and write items: edges are flow dependences."""

    def __init__(self) -> None:
        self.graph = Graph()
        self._writer: dict[object, Node] = {}

    def add(
        self, name: str, directive: str, device: int | None, reads: Iterable[object] = (), writes: Iterable[object] = ()
    ) -> None:
        number = len(self.graph)
        node = self.graph.add_node(
            Node(f"{name}-{number}", name, directive, device_num=device, location="program.py:12")
        )
        sources = {self._writer[item]: item for item in reads if item in self._writer}
        for source, item in sources.items():
            self.graph.add_edge(source, node, "flow", str(item))
        start_s = max((source.run.end_s for source in sources if source.run and source.run.end_s), default=0.0)
        node.run = SimpleNamespace(state="complete", start_s=start_s, end_s=start_s + (number * 7 % 31 + 1) * 1e-4)
        self._writer.update((item, node) for item in writes)

    def wait(self) -> None:
        number = len(self.graph)
        node = self.graph.add_node(Node(f"taskwait-wait-{number}", "taskwait", "taskwait"))
        for source in self.graph.nodes[:-1]:
            if not self.graph.successors(source):
                self.graph.add_edge(source, node, "wait")


def chain(count: int) -> Graph:
    """Return tasks that wait for each other in turn."""
    builder = _Builder()
    for _ in range(count):
        builder.add("step", "target", 0, ["x"], ["x"])
    return builder.graph


def flat(count: int) -> Graph:
    """Return tasks that a taskwait waits for, each with a name of its own."""
    builder = _Builder()
    for i in range(count - 1):
        builder.add(f"load-{i}", "task", None, [], [i])
    builder.wait()
    return builder.graph


def layers(count: int) -> Graph:
    """Return wide layers of copies and regions on two devices, and a taskwait."""
    builder, width = _Builder(), max(4, 3 * round(count**0.5))
    for i in range(count - 1):
        layer, k = divmod(i, width)
        name = ("copy in", "scale", "fold", "copy out")[layer % 4]
        reads = [(layer - 1, (k + d) % width) for d in (0, 1)]
        builder.add(name, "target_memcpy" if layer % 4 in {0, 3} else "target", k % 2, reads, [(layer, k)])
    builder.wait()
    return builder.graph


def grid(count: int) -> Graph:
    """Return the cells of a square grid, each of which waits for its left and its upper neighbour."""
    builder, side = _Builder(), round(count**0.5)
    for i in range(side):
        for j in range(side):
            builder.add("cell", "task", None, [(i - 1, j), (i, j - 1)], [(i, j)])
    return builder.graph


def fft(count: int) -> Graph:
    """Return the butterflies of a fast Fourier transform of a power of 2."""
    builder, log = _Builder(), 1
    while (1 << log) * (log + 1) < count:
        log += 1
    for i in range(1 << log):
        builder.add("copy in", "target_memcpy", i % 2, [], [(0, i)])
    for level in range(log):
        for i in range(1 << log):
            builder.add("butterfly", "target", i % 2, [(level, i), (level, i ^ 1 << level)], [(level + 1, i)])
    return builder.graph


def cholesky(count: int) -> Graph:
    """Return the tasks of a Cholesky factorisation by tiles."""
    builder, tiles = _Builder(), 1
    while tiles * (tiles + 1) * (tiles + 2) // 6 < count:
        tiles += 1
    for k in range(tiles):
        builder.add("factor", "target", 0, [(k, k)], [(k, k)])
        for i in range(k + 1, tiles):
            builder.add("solve", "target", 0, [(k, k), (i, k)], [(i, k)])
        for i in range(k + 1, tiles):
            builder.add("update", "target", 0, [(i, k), (i, i)], [(i, i)])
            for j in range(k + 1, i):
                builder.add("multiply", "target", 0, [(i, k), (j, k), (i, j)], [(i, j)])
    return builder.graph


SHAPES: dict[str, Callable[[int], Graph]] = {
    "chain": chain,
    "flat": flat,
    "layers": layers,
    "grid": grid,
    "fft": fft,
    "cholesky": cholesky,
}
