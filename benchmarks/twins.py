"""Time loops that gain nothing by several devices, on one GPU that plays two.

``python benchmarks/twins.py [--repeat 7] [--scale 0.25]`` prints a Markdown table: 300 calls of each loop from the
first on, on one device, split by force, and as ``devices="all"`` has them, which is to take at most 1.05 times the
better one. ``offload bench loops --section devices`` measures the same where there are two GPUs. The devices are those
of `tests/gpu/twins.py`, which share the GPU's memory: a split gains nothing there, and copies are cheap.
"""

import argparse
import sys
from pathlib import Path

import offload as omp
from offload.cli.bench import sections, showing
from offload.cli.bench.loops import devices

sys.path.insert(0, str(Path(__file__).parents[1]))

import tests.gpu.twins  # noqa: F401  # registers the kind


def main():
    """Measure and print."""
    form = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sections.add_repeat(form)
    form.add_argument("--scale", type=float, default=0.25, help="of the sizes (default: 0.25)")
    args = form.parse_args()
    with omp.Runtime("twin:2"):
        cuda = omp.devices()[0].namespace().cuda.runtime
        machine = {"GPU": cuda.getDeviceProperties(0)["name"].decode()}
        measures = {"bad": lambda: devices.measure_bad(args.repeat, args.scale, None)}
        figures = sections.measure_each(measures, machine, args.repeat)
    print(showing.markdown(figures))


if __name__ == "__main__":
    main()
