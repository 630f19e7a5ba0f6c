"""The C form of generated programs against CPython."""

from __future__ import annotations

import os
import shlex
import sys

import pytest

from offload.loops.running import build
from offload.loops.tree import ir
from offload.loops.tree.nodes import walk
from tests.loops import c_form as c_forms
from tests.loops.c_form import c_form
from tests.loops.programs import program
from tests.loops.test_emit_py_rules import check
from tests.profiles import few

pytestmark = pytest.mark.skipif(build.builder.compiler is None, reason="no C compiler")


def unchecked(typed, nest, modes):
    """Return a kernel without checks, for programs whose indices are in range: loops may be vectorised."""
    accesses = [node for node in walk(*nest.body) if isinstance(node, (ir.Load, ir.Store, ir.Atomic))]
    return c_form(typed, nest, {node.at: "wrap" for node in accesses}, is_restricted=True)


@pytest.mark.parametrize("seed", few(2, range(6_000, 6_005)))
def test_the_c_form_gives_what_cpython_gives(seed):
    """A program's arrays and returned values are CPython's, whatever the chunks."""
    check(program(seed), c_form, chunks=1 + seed % 5)


@pytest.mark.parametrize("seed", few(3, range(7_000, 7_010)))
def test_the_c_form_without_checks_gives_what_cpython_gives(seed):
    """The same with reductions in lanes, and arrays that are said not to overlap."""
    check(program(seed), unchecked, chunks=1 + seed % 3)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["clang", f"{sys.executable} -m ziglang cc"], ids=["clang", "zig"])
def test_another_compiler_gives_the_same(command, monkeypatch):
    """What clang makes of programs, or Zig's, is CPython's too, where there is one."""
    builder = build.Builder({**os.environ, "OFFLOAD_CC": command})
    if builder.compiler.command != tuple(shlex.split(command)):
        pytest.skip(f"no {command}")
    monkeypatch.setattr(c_forms, "builder", builder)
    for seed in range(8_000, 8_010):
        check(program(seed), c_form, chunks=1 + seed % 5)
        check(program(seed), unchecked, chunks=1 + seed % 3)
