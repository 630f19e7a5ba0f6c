"""The plots of the performance page: the benches still make what they show, and the page has those with results."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import figures
from benchmarks.loops import device, devices, host, programs
from benchmarks.run import main
from docs.build_site import plots
from tests.benchmarks.test_gpu import small  # noqa: F401 - stand-ins for CuPy, as a fixture

ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "docs/figures"
RECORDED = dict(plots.recorded_figures(FIGURES))
QUICK = ["seeing-a-run"]
ON_GPUS = [name for name, command in figures.COMMANDS.items() if command.gpus]
SLOW = [name for name in figures.COMMANDS if name not in [*QUICK, *ON_GPUS, "host-tasks"]]


def names_of(panels):
    """Return the panels of a figure, each with its rows."""
    return {panel: list(rows) for panel, rows in panels.items()}


def check_columns(name):
    """Run the command of a figure as quickly as it can, and compare with the committed results, if there are some."""
    command, figure = figures.COMMANDS[name], plots.SHOWN[name]
    found = figure.read(command.run(command.quick))
    if name in RECORDED:
        assert names_of(found) == names_of(figure.read(RECORDED[name]["results"]))


@pytest.mark.parametrize("name", QUICK)
def test_the_columns_are_the_bench_s(name):
    """The bench still makes each row and column of the committed results that the figure shows."""
    check_columns(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_the_columns_of_a_longer_bench(name):
    """The same for benches that take longer, if their peers are installed."""
    why = figures.missing(figures.COMMANDS[name], 0)
    if why:
        pytest.skip(why)
    check_columns(name)


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.measures
@pytest.mark.parametrize("name", ON_GPUS)
def test_the_columns_of_a_bench_on_gpus(name):
    """The same for the benches that need a GPU or two."""
    if figures.COMMANDS[name].gpus > len(figures.gpu_names()):
        pytest.skip("needs two GPUs")
    check_columns(name)


@pytest.mark.bench
@pytest.mark.usefixtures("small")
def test_the_figures_of_a_gpu_find_their_columns(capsys):
    """Without a GPU, stand-ins for CuPy make the tables of the study, and the figures find their rows in them."""
    assert main(["gpu", "--section", "tasks", "graph", "pipeline", "--repeat", "1", "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    for name in ("device-tasks", "pipeline"):
        panels = plots.SHOWN[name].read(results)
        assert len({tuple(rows) for rows in panels.values()}) == 1


def test_the_figures_of_loops_name_the_rows_and_columns_of_the_study():
    """Also without a GPU and without Numba, the names of the figures are names in the studies."""
    (on_host,), (kernels,), (steady,) = (
        plots.SHOWN[name].parts for name in ("host-loops", "gpu-loops", "several-gpus")
    )
    assert set(on_host.rows) == {host.CHECKED, host.UNCHECKED, host.PEER}
    assert set(on_host.columns) == {case.name for case in programs.cases(1e-4)}
    assert set(kernels.rows) == {device.PRESENT, device.PEER}
    assert set(kernels.columns) <= set(device.PROMISED)
    assert set(steady.columns) <= set(devices._PROGRAMS)
    assert set(steady.rows) == set(
        re.findall(r'"(one device|all devices|by hand)"', Path(devices.__file__).read_text())
    )


def test_each_figure_has_a_command():
    """The page's figures are ten, and one program measures all of them."""
    assert set(plots.SHOWN) == set(figures.COMMANDS)
    assert len(plots.SHOWN) == 10


@pytest.mark.parametrize("name", RECORDED)
def test_a_file_names_its_machine_date_and_command(name):
    """A committed result has the machine, the date and the command of today's benchmark."""
    recorded = RECORDED[name]
    assert recorded["figure"] == name
    assert "cores" in recorded["machine"]
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", recorded["date"])
    assert recorded["command"] == figures.COMMANDS[name].shown()


def test_the_page_shows_the_figures_that_have_results():
    """A figure without committed results is not on the page, and each with results is there once."""
    page = (ROOT / "docs/performance.md").read_text("utf-8")
    assert sorted(plots.LINK.findall(page)) == sorted(RECORDED)
    assert sorted(path.stem for path in FIGURES.glob("*.json")) == sorted(RECORDED)


def test_the_site_shows_pictures_with_their_text():
    """On the site, a link to results follows two pictures, for light and for dark pages, with the numbers in words."""
    page = plots.with_pictures((ROOT / "docs/performance.md").read_text("utf-8"), FIGURES)
    for name, recorded in RECORDED.items():
        for mode in plots.MODES:
            directive = page[page.index(f"```{{image}} figures/generated/{name}-{mode}.svg") :].split("```")[1]
            assert f":class: only-{mode}" in directive
            for said in (recorded["machine"], recorded["date"], recorded["command"], plots.SHOWN[name].unit):
                assert said in directive


@pytest.mark.parametrize("names", [["host-tasks"], pytest.param(list(RECORDED), marks=pytest.mark.slow)], ids=len)
def test_the_pictures(names, tmp_path):
    """One command draws two pictures of each figure, with a title and a description, the same in each run."""
    pytest.importorskip("matplotlib")
    for name in names:
        shutil.copy(FIGURES / f"{name}.json", tmp_path)
    drawn = plots.draw_all(tmp_path, tmp_path / "one")
    assert sorted(path.stem for path in drawn) == sorted(f"{name}-{mode}" for name in names for mode in plots.MODES)
    for path, again in zip(drawn, plots.draw_all(tmp_path, tmp_path / "other"), strict=True):
        assert path.read_text("utf-8") == again.read_text("utf-8")
        root = ET.fromstring(path.read_text("utf-8"))
        title, text = (root.find(f"{{http://www.w3.org/2000/svg}}{tag}").text for tag in ("title", "desc"))
        name = path.stem.rpartition("-")[0]
        assert title == plots.SHOWN[name].title
        assert RECORDED[name]["machine"] in text


@pytest.mark.parametrize("mode", plots.MODES)
def test_the_colours_can_be_read(mode):
    """Text and marks have a contrast of at least 4.5 to 1 against the page."""
    colours = plots.MODES[mode]

    def luminance(colour):
        parts = (int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5))
        linear = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    for colour in (colours.text, colours.quiet, colours.ours):
        low, high = sorted((luminance(colour), luminance(colours.page)))
        assert (high + 0.05) / (low + 0.05) >= 4.5


def test_one_command_measures(monkeypatch, tmp_path):
    """The program writes the results of a bench with machine, date and command, in the committed file's columns."""
    command = replace(figures.COMMANDS["host-tasks"], words=("bench", "tasks", "--quick", "--repeat", "1"))
    monkeypatch.setitem(figures.COMMANDS, "host-tasks", command)
    monkeypatch.setattr(sys, "argv", ["figures.py", "host-tasks", "--into", str(tmp_path)])
    assert figures.main() == 0
    ((name, found),) = plots.recorded_figures(tmp_path)
    assert found.keys() == RECORDED[name].keys()
    assert found["command"] == "offload bench tasks --quick --repeat 1"
    assert found["machine"].startswith(f"{len(os.sched_getaffinity(0))} cores, load ")
    panels, committed = (plots.SHOWN[name].read(one["results"]) for one in (found, RECORDED[name]))
    assert names_of(panels) == names_of(committed)


def test_a_command_that_fails_is_told(monkeypatch, capsys, tmp_path):
    """A bench that fails writes nothing; the program goes on, and ends with status 1 and the error of the bench."""
    command = replace(figures.COMMANDS["host-tasks"], words=("bench", "nonsense"))
    monkeypatch.setitem(figures.COMMANDS, "host-tasks", command)
    monkeypatch.setattr(sys, "argv", ["figures.py", "host-tasks", "--into", str(tmp_path)])
    assert figures.main() == 1
    assert "host-tasks: FAILED: " in (told := capsys.readouterr().out)
    assert "there is no such part" in told
    assert not list(tmp_path.iterdir())


def test_a_figure_that_cannot_be_measured_is_left_out(monkeypatch, capsys, tmp_path):
    """Without a GPU, the program says which figures it leaves out and why, and writes no file for them."""
    monkeypatch.setattr(figures, "gpu_names", list)
    monkeypatch.setattr(sys, "argv", ["figures.py", "pipeline", "several-gpus", "--into", str(tmp_path)])
    assert figures.main() == 0
    told = capsys.readouterr().out
    assert "pipeline: left out: it needs 1 CUDA GPU, and CuPy sees none here" in told
    assert "several-gpus: left out: it needs 2 CUDA GPUs" in told
    assert not list(tmp_path.iterdir())
