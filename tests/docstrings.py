"""The examples in the docstrings of public names: which names there are, and how an example runs."""

from __future__ import annotations

import doctest
import inspect
import re
import warnings

import numpy as np

import offload as omp
from offload import acc, atomic, parray
from offload.constructs.clauses.dependences import DepObj
from offload.constructs.taskgraph import TaskgraphFunction
from offload.loops.functions import TargetLoop

MODULES = {"offload": omp, "offload.acc": acc, "offload.atomic": atomic, "offload.parray": parray}

CONSTANTS = {
    "offload": {"all_memory", "atomic", "initial_device", "invalid_device"},
    "offload.acc": {
        *("async_default", "async_noval", "async_sync"),
        *("device_default", "device_host", "device_none", "device_not_host", "device_nvidia", "device_sim"),
        *("property_driver", "property_free_memory", "property_memory", "property_name"),
        *("property_shared_memory_support", "property_vendor"),
    },
}
"""Exports without a docstring of their own: integers, members of an enumeration, the single object of a class, and a
module. Python has nowhere to put their text, so the docstring of the module that exports them names each of them. Their
classes, and the names in the module, have docstrings and examples."""

_SHAPE_OF_TYPES = "comm dims kind ndim offsets ravel shape size threads tree unravel view"
_FACTS_OF_TYPES = "axes bounds is_contiguous is_identity is_injective least nest span step"

MEMBERS = {
    "offload.Runtime": (omp.Runtime, "close devices"),
    "offload.Task": (
        omp.Task,
        "add_done_callback as_future dependencies device_num done elapsed exception key name result state wait_on",
    ),
    "offload.Event": (omp.Event, "failure fulfill fulfill_on is_fulfilled value"),
    "offload.Interop": (omp.Interop, "device stream use"),
    "offload.TaskGraph": (
        omp.TaskGraph,
        "compute critical_path edges layers node predecessors successors tasks transitive_reduction_edges visualize",
    ),
    "offload.DepObj": (DepObj, "destroy update"),  # `depobj` makes them
    "offload.DependenceProfile": (omp.DependenceProfile, "dependences iterations load save verdict"),
    "offload.TargetLoop": (TargetLoop, "compile explain options python source"),  # `target_loop` makes them
    "offload.TaskgraphFunction": (TaskgraphFunction, "options records"),
    "offload.parray.ArrayType": (parray.ArrayType, f"{_SHAPE_OF_TYPES} {_FACTS_OF_TYPES}"),
    "offload.parray.Box": (parray.Box, "digits size"),
    "offload.parray.Plan": (parray.Plan, "boxes kind size"),
    "offload.parray.Tile": (parray.Tile, "index origin shape type"),
}
"""What a program may use of an object. These classes have other names without an underscore, which the rooms of the
library share; docs/reference.md does not mention them."""

NEEDS_MPI = re.compile(r"\b(?:mpi|MPI)\.")


def exports(module_name, module):
    """Give the name and the docstring of all exports of a module, and of the module itself."""
    yield module_name, inspect.getdoc(module)
    for name in module.__all__:
        if name not in CONSTANTS.get(module_name, ()):
            yield f"{module_name}.{name}", inspect.getdoc(getattr(module, name))


def members():
    """Give the name and the docstring of the public members of classes."""
    for owner, (kind, names) in MEMBERS.items():
        for name in names.split():
            yield f"{owner}.{name}", inspect.getdoc(inspect.getattr_static(kind, name, None)) or ""


def examples_of(name, docstring):
    """Return the examples of a docstring as a doctest, which has none if there are none."""
    names = {"__name__": "__main__", "np": np, "omp": omp, "acc": acc, "parray": parray}
    return doctest.DocTestParser().get_doctest(docstring or "", names, name, None, 0)


def documented():
    """Return the docstring of each public name that has one."""
    found = dict(pair for name, module in MODULES.items() for pair in exports(name, module))
    found |= {name: text for name, text in members() if ">>>" in text}
    found["offload.all_memory"] = inspect.getdoc(omp.all_memory)
    return found


def needs_mpi(docstring):
    """Tell whether the examples of a docstring call MPI."""
    return any(NEEDS_MPI.search(example.source) for example in examples_of("", docstring).examples)


def failures(name, docstring, **more):
    """Run the examples of a docstring on a simulated device of their own; return what they should have printed."""
    test, printed = examples_of(name, docstring), []
    test.globs.update(more)
    with warnings.catch_warnings(), omp.Runtime("sim:1", check=True):
        doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=printed.append)
    return "".join(printed)


def failures_with_mpi():
    """Run the examples that call MPI, in one process of MPI; return what they should have printed."""
    from mpi4py import MPI

    from offload import mpi

    every = {**documented(), **dict(exports("offload.mpi", mpi))}
    printed = [f"{name} has no example\n" for name, _ in exports("offload.mpi", mpi) if ">>>" not in every[name]]
    printed += [failures(name, every[name], mpi=mpi, MPI=MPI) for name in every if needs_mpi(every[name])]
    return "".join(printed)
