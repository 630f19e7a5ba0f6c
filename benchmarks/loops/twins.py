"""Time loops that gain nothing by several devices, on one GPU that plays two.

``python benchmarks/run.py twins [--repeat 7] [--scale 0.25]`` prints a Markdown table: 300 calls of each loop from the
first on, on one device, split by force, and as ``devices="all"`` has them, which is to take at most 1.05 times the
better one. ``benchmarks/run.py loops --section devices`` measures the same where there are two GPUs. The devices are
those of `tests/gpu/twins.py`, which share the GPU's memory: a split gains nothing there, and copies are cheap.
"""

import sys

import offload as omp
from benchmarks.harness import sections, showing
from benchmarks.harness.programs import ROOT
from benchmarks.loops import devices

sys.path.insert(0, str(ROOT))

import tests.gpu.twins  # noqa: F401  # registers the kind


def add_arguments(form):
    """Declare the options."""
    form.description = __doc__
    sections.add_repeat(form)
    form.add_argument("--scale", type=float, default=0.25, help="of the sizes (default: 0.25)")


def run(args):
    """Measure and print."""
    with omp.Runtime("twin:2"):
        cuda = omp.devices()[0].namespace().cuda.runtime
        machine = {"GPU": cuda.getDeviceProperties(0)["name"].decode()}
        measures = {"bad": lambda: devices.measure_bad(args.repeat, args.scale, None)}
        figures = sections.measure_each(measures, machine, args.repeat)
    print(showing.markdown(figures))
