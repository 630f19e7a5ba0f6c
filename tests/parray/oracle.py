"""What a tree means, index by index, from the rules of the page alone: nothing here is the library's.

A dimension is a dictionary: ``body`` (an integer, a list of dimensions, or None) and ``refs``, a list of pairs,
``("type", T)``, ``("disp", e)``, ``("wrap", n)``, ``("table", values)``, ``("call", f)``. A type is one,
too: ``root``, ``path``, and ``team`` if it is a thread array. Offsets are pairs, threads and memory.
"""

from __future__ import annotations

from itertools import pairwise
from math import prod


class LeavesError(Exception):
    """An index would reach a type or a table out of range."""


def leaf(n):
    return {"body": n, "refs": []}


def make(root, *, team=False):
    return {"root": root, "path": (), "team": team}


def sub(of, j):
    return {**of, "path": (*of["path"], j)}


# -- sizes and sub-dimensions (§3) -----------------------------------------------------------------
def subs_of(dimension):
    """The sub-dimensions of a dimension; of a pure reference those of what it refers to first, with the rest."""
    if dimension["body"] is None:
        kind, first = dimension["refs"][0]
        if kind != "type":
            return []
        return [{"body": None, "refs": [("type", sub(first, j)), *dimension["refs"][1:]]} for j in range(n_subs(first))]
    return dimension["body"] if isinstance(dimension["body"], list) else []


def size_of(dimension):
    if dimension["body"] is None:
        kind, what = dimension["refs"][0]
        return {"type": lambda: size(what), "disp": lambda: 1, "wrap": lambda: what, "table": lambda: len(what)}[kind]()
    if isinstance(dimension["body"], int):
        return dimension["body"]
    return prod(size_of(each) for each in dimension["body"])


def chain(of):
    """The dimensions from the root down to the one that a type is."""
    found = [of["root"]]
    for j in of["path"]:
        found.append(subs_of(found[-1])[j])
    return found


def size(of):
    return size_of(chain(of)[-1])


def n_subs(of):
    return len(subs_of(chain(of)[-1]))


def trees(of):
    """A type and all of its sub-dimensions."""
    yield of
    for j in range(n_subs(of)):
        yield from trees(sub(of, j))


# -- offsets (§4) ----------------------------------------------------------------------------------
def add(*pairs):
    return sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)


def is_threads(of):
    """Everything that a type gives counts threads."""
    return kind(of) == {"threads"}


def through(refs, index):
    """What a chain of references makes of an index: threads and memory."""
    value, place = index, None
    last_types = [what for kind, what in refs if kind == "type"]
    for kind, what in refs:
        assert place is None  # a distributed type is the last
        if kind == "disp":
            value += what
        elif kind == "wrap":
            value -= what * (value // what)
        elif kind == "call":
            value = what(value)
        elif kind == "table":
            if not 0 <= value < len(what):
                raise LeavesError
            value = what[value]
        else:
            if not 0 <= value < size(what):
                raise LeavesError
            found = offset(what, value)
            if is_both(what):
                place = found
            else:
                value = sum(found)
    if place is not None:
        return place
    return (value, 0) if last_types and is_threads(last_types[-1]) else (0, value)


def split(dimension, index):
    """Rule 1: an index for each sub-dimension."""
    found = []
    for each in reversed(subs_of(dimension)):
        n = size_of(each)
        found.insert(0, index % n)
        index //= n
    return found


def parts(dimension, index, weight):
    """Rules 2 to 4: the regular part (a number) and the fixed part (a pair) of a dimension at an index."""
    if dimension["refs"]:
        return 0, own(dimension, index)
    if isinstance(dimension["body"], int):
        return index * weight, (0, 0)
    return body_parts(dimension, index, weight)


def body_parts(dimension, index, weight):
    if not isinstance(dimension["body"], list):
        return index * weight, (0, 0)
    regular, fixed = 0, (0, 0)
    sizes = [size_of(each) for each in dimension["body"]]
    for j, (each, at) in enumerate(zip(dimension["body"], split(dimension, index), strict=True)):
        r, x = parts(each, at, weight * prod(sizes[j + 1 :]))
        regular, fixed = regular + r, add(fixed, x)
    return regular, fixed


def own(dimension, index):
    """Rule 5: the own offset of a dimension with references."""
    if dimension["body"] is None:
        return through(dimension["refs"], index)
    regular, fixed = body_parts(dimension, index, 1)
    return add(through(dimension["refs"], regular), fixed)


def offset(of, index):
    """Rules 6 and 7: threads and memory of an element of a type, or of a sub-dimension by itself."""
    assert 0 <= index < size(of)
    found = by_itself(of, index)
    return (sum(found), 0) if of["team"] else found


def by_itself(of, index):
    down = chain(of)
    this = down[-1]
    if this["refs"]:
        return own(this, index)
    above = max((k for k, each in enumerate(down) if each["refs"]), default=0)
    weight = 1
    for k in range(above, len(down) - 1):
        siblings = subs_of(down[k])[of["path"][k] + 1 :]
        weight *= prod(size_of(each) for each in siblings)
    regular, fixed = body_parts(this, index, weight)
    refs = down[above]["refs"]
    return add(through(refs, regular) if refs else (0, regular), fixed)


# -- kinds (§8) ------------------------------------------------------------------------------------
def kind(of):
    """What the offsets of a type count: a set of "memory" and "threads"."""
    if of["team"]:
        return {"threads"}
    down = chain(of)
    found = counted(down[-1])
    if not down[-1]["refs"]:
        above = [each for each in down if each["refs"]]
        if above:
            found = found | chain_kind(above[-1]["refs"])
        elif has_loose_leaf(down[-1]):
            found = found | {"memory"}
    return found


def is_both(of):
    return len(kind(of)) == 2


def counted(dimension):
    found = chain_kind(dimension["refs"]) if dimension["refs"] else set()
    for each in dimension["body"] if isinstance(dimension["body"], list) else []:
        found = found | counted(each)
    return found


def has_loose_leaf(dimension):
    if dimension["refs"]:
        return False
    if isinstance(dimension["body"], int):
        return True
    return any(has_loose_leaf(each) for each in dimension["body"])


def chain_kind(refs):
    types = [what for kind_of, what in refs if kind_of == "type"]
    return kind(types[-1]) if types else {"memory"}


# -- the manual's properties, from the offsets -----------------------------------------------------
def nest(numbers):
    """The fewest loops: try every way to write the length as a product."""
    if not numbers:
        return 0, ((0, 1),)
    for n_loops in range(8):
        for counts in factors(len(numbers), n_loops):
            steps, stride = [], len(numbers)
            for count in counts:
                stride //= count
                steps.append(numbers[stride] - numbers[0])
            if list(looped(numbers[0], list(zip(counts, steps, strict=True)))) == numbers:
                return numbers[0], tuple(zip(counts, steps, strict=True))
    return None


def factors(n, n_loops):
    if n_loops == 0:
        if n == 1:
            yield ()
        return
    for count in range(2, n + 1):
        if n % count == 0:
            for rest in factors(n // count, n_loops - 1):
                yield (count, *rest)


def looped(base, loops):
    if not loops:
        yield base
        return
    (count, step), *rest = loops
    for k in range(count):
        yield from looped(base + k * step, rest)


def step(numbers):
    if len(numbers) < 2:
        return 1
    differences = {after - before for before, after in pairwise(numbers)}
    return differences.pop() if len(differences) == 1 else 0
