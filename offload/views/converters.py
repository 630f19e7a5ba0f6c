"""SVG as PNG or PDF, by a program that is installed. The library itself draws no pixels."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal, NamedTuple

from offload.errors import UnsupportedError
from offload.views.drawing import MAX_PX

if TYPE_CHECKING:
    from collections.abc import Callable

Format = Literal["png", "pdf"]

_TIMEOUT_S = 120
_SCALE = 2  # pixels of a PNG for each of the SVG at most, for dense screens


def _zoom(size: tuple[int, int]) -> float:
    return min(_SCALE, MAX_PX / max(*size, 1))


class Converter(NamedTuple):
    """A program that converts, and its command for a source, a target and their sizes in pixels."""

    name: str
    package: str  # what to install
    find: Callable[[], list[str]]  # the beginning of the command; empty if the program is not installed
    arguments: Callable[[Path, Path, Format, tuple[int, int]], list[str]]


def _program(*names: str) -> Callable[[], list[str]]:
    def find() -> list[str]:
        paths = filter(None, map(shutil.which, names))
        return [path] if (path := next(paths, None)) else []

    return find


def _cairosvg() -> list[str]:
    return [sys.executable, "-m", "cairosvg"] if find_spec("cairosvg") else []


def _chromium(source: Path, target: Path, kind: Format, size: tuple[int, int]) -> list[str]:
    out = f"--print-to-pdf={target}" if kind == "pdf" else f"--screenshot={target}"
    sandbox = [] if not hasattr(os, "geteuid") or os.geteuid() else ["--no-sandbox"]  # root has none
    return [
        "--headless",
        "--disable-gpu",
        "--hide-scrollbars",
        "--no-pdf-header-footer",
        f"--user-data-dir={target.parent / 'profile'}",
        *sandbox,
        f"--window-size={size[0]},{size[1]}",
        f"--force-device-scale-factor={_zoom(size):.4f}",
        out,
        source.as_uri(),
    ]


CONVERTERS = (
    Converter(
        "rsvg-convert",
        "librsvg2-bin",
        _program("rsvg-convert"),
        lambda source, target, kind, size: [
            *(["--format=pdf"] if kind == "pdf" else [f"--zoom={_zoom(size):.4f}"]),
            f"--output={target}",
            str(source),
        ],
    ),
    Converter(
        "cairosvg",
        "cairosvg (pip)",
        _cairosvg,
        lambda source, target, kind, size: [
            str(source), "--format", kind, "--output", str(target),
            *(["--scale", f"{_zoom(size):.4f}"] if kind == "png" else []),
        ],
    ),
    Converter(
        "inkscape",
        "inkscape",
        _program("inkscape"),
        lambda source, target, kind, size: [
            f"--export-type={kind}", f"--export-dpi={96 * _zoom(size):.2f}", f"--export-filename={target}", str(source)
        ],
    ),
    Converter(
        "chromium",
        "chromium",
        _program("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"),
        _chromium,
    ),
)  # fmt: skip
"""In this order: the first two are small and quick, and the last starts a browser."""


def convert(svg: str, kind: Format) -> bytes:
    """Return an SVG document as PNG or PDF.

    Raises
    ------
    UnsupportedError
        No converter is installed, or it failed.
    """
    for converter in CONVERTERS:
        command = converter.find()
        if command:
            return _run(converter, command, svg, kind)
    raise UnsupportedError(
        f"visualize: to write .{kind}, offload needs a program that converts SVG, and none is installed; install "
        "librsvg2-bin (rsvg-convert), cairosvg, inkscape or chromium, or write .svg"
    )


def _run(converter: Converter, command: list[str], svg: str, kind: Format) -> bytes:
    with TemporaryDirectory(prefix="offload-", ignore_cleanup_errors=True) as folder:
        source, target = Path(folder) / "graph.svg", Path(folder) / f"graph.{kind}"
        found = re.search(r'width="([\d.]+)" height="([\d.]+)"', svg)
        size = (round(float(found[1])), round(float(found[2]))) if found else (0, 0)
        # A page of a browser has the size of paper, unless the picture says its own.
        page = f"@page{{size:{size[0]}px {size[1]}px;margin:0}}"
        source.write_text(svg.replace("<style>", f"<style>{page}", 1), encoding="utf-8", newline="\n")
        try:
            done = subprocess.run(  # noqa: S603  # the converter by its path, and no shell
                [*command, *converter.arguments(source, target, kind, size)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_TIMEOUT_S,
                check=False,
            )
            if target.exists() and target.stat().st_size:
                return target.read_bytes()
            why = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or [f"status {done.returncode}"]
        except (OSError, subprocess.TimeoutExpired) as error:
            why = [str(error)]
    raise UnsupportedError(
        f"visualize: {converter.name} did not convert the picture to .{kind}: {why[0][:200]}; write .svg instead"
    )
