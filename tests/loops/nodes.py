"""Nodes of the loop IR in few words, for tests."""

from __future__ import annotations

from offload.loops.tree import ir

HERE = ir.SourceLine("here.py", 7)
I = ir.Name(place=HERE, name="i")  # noqa: E741


def constant(value, of=None):
    return ir.Constant(place=HERE, value=value, type=ir.Type(of) if of else None)


def name(text):
    return ir.Name(place=HERE, name=text)


def load(array, *indices, at=0):
    return ir.Load(place=HERE, array=array, indices=indices or (I,), at=at)


def store(array, value, *indices, at=1):
    return ir.Store(place=HERE, array=array, indices=indices or (I,), value=value, at=at)


def binary(operator, left, right):
    return ir.Binary(place=HERE, operator=operator, left=left, right=right)


def compare(operator, left, right):
    return ir.Compare(place=HERE, operator=operator, left=left, right=right)


def call(function, *arguments):
    return ir.FunctionCall(place=HERE, function=function, arguments=arguments)


def assign(target, value, annotation=None):
    return ir.Assign(place=HERE, name=target, value=value, annotation=annotation)


def axis(variable, stop, start=0, step=1):
    start, stop, step = (constant(bound) if isinstance(bound, int) else bound for bound in (start, stop, step))
    return ir.LoopAxis(variable=variable, start=start, stop=stop, step=step, place=HERE)


def function_of(*body, prologue=(), arrays=("x", "y"), axes=None, returns=(), parameters=None, **nest):
    """Return a function of one nest, over the first dimension of ``x`` if nothing is said."""
    axes = axes or (axis("i", ir.Extent(place=HERE, array="x", dimension=0)),)
    part = ir.Nest(axes=axes, body=body, clauses=ir.LoopClauses(), place=HERE, **nest)
    return ir.ParsedFunction(
        name="f",
        place=HERE,
        parameters=parameters or arrays,
        absent=frozenset(),
        arrays=arrays,
        parts=(*prologue, part),
        returns=returns,
        returns_tuple=len(returns) > 1,
    )
