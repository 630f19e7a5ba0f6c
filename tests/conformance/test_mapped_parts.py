"""`declare_mapper`: mappers that name a part of an attribute, by a slice, a property, a method or a field."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
import pytest

import offload as omp
from offload import acc, from_, to, tofrom
from offload.arrays.items import MAPPERS

N = 24


@pytest.fixture(autouse=True)
def _forget_mappers():
    """Mappers are registered for the process: forget those of a test."""
    before = dict(MAPPERS)
    yield
    MAPPERS.clear()
    MAPPERS.update(before)


class Field:
    """A field with a boundary."""

    def __init__(self, shape=N, dtype=float):
        self.data = np.arange(np.prod(shape), dtype=dtype).reshape(shape)
        self.width = 1

    @property
    def interior(self):
        return self.data[(slice(self.width, -self.width),) * self.data.ndim]

    @property
    def inside(self):
        return self.data[tuple(slice(1, n - 1) for n in self.data.shape)]

    def strip(self, start, stop=None, step=None):
        return self.data[start:stop:step]

    def row(self, k):
        return self.data[k, 1:-1]


def double(array):
    assert not isinstance(array, np.ndarray)
    assert not omp.is_initial_device()
    array *= 2


def changed(shape, *parts):
    """Return what a field of the shape holds once parts of it are doubled."""
    field = Field(shape)
    for part in parts:
        view = part(field)
        view.flags.writeable = True  # which those of `diagonal` are not
        view *= 2
    return field.data


EXPRESSIONS = {
    "property": lambda f: f.interior,
    "by shape": lambda f: f.inside,
    "1:-1": lambda f: f.data[1:-1],
    "::2": lambda f: f.strip(None, None, 2),
    "2:": lambda f: f.strip(2),
    ":4": lambda f: f.strip(None, 4),
    ":-3": lambda f: f.strip(0, -3),
    "2:5": lambda f: f.strip(2, 5),
    "backwards": lambda f: f.strip(-2, 2, -1),
    "in two steps": lambda f: f.data[::-1][2:][:-3],
    "half": lambda f: f.data[len(f.data) // 2 :],
    "section": lambda f: omp.section(f.data, (2, 3)),
    "flipped": lambda f: np.flip(f.data)[3:9],
    "swapped by a keyword": lambda f: np.swapaxes(a=f.data.reshape(4, 6), axis1=0, axis2=1)[1:3],  # as CuPy names it
    "one of several": lambda f: np.split(f.data, 3)[1],
    "one of several of the interior": lambda f: np.array_split(f.interior, 5)[2][1:],
    "reshaped": lambda f: f.data.reshape(4, 6)[1:3, ::2],
    "reshaped interior": lambda f: f.interior[:-2].reshape(4, -1)[1:-1],
    "of the interior": lambda f: f.interior[2:-2],
    "empty": lambda f: f.strip(3, 3),
    "one": lambda f: f.data[5:6],
    "of no dimension": lambda f: f.data[5, ...],
}


@pytest.mark.parametrize("expression", EXPRESSIONS.values(), ids=EXPRESSIONS)
def test_expressions(runtime, expression):
    """In the body, the expression of the mapper is the device array of that storage, in all kinds of regions."""
    omp.declare_mapper(Field, lambda f: [tofrom(expression(f))])

    def body(f):
        part = expression(f)
        assert part.shape == shape
        double(part)

    field = Field()
    shape = expression(field).shape
    expected = [changed(N, *[expression] * n) for n in range(8)]
    omp.target(body)(field)
    assert (field.data == expected[1]).all()
    omp.target(body, nowait=True)(field).result()
    omp.target(body, map=[tofrom("f")])(f=field)
    assert (field.data == expected[3]).all()
    acc.parallel(body)(field)
    with omp.target_data(map=[tofrom(field)]):
        omp.target(body)(field)
        assert (field.data == expected[4]).all()
        omp.target_update(from_=[field])
        assert (field.data == expected[5]).all()
        omp.target(body)(field)
    assert (field.data == expected[6]).all()
    with omp.target_data(map=[tofrom(field.data)]):
        omp.target(body)(field)
    assert (field.data == expected[7]).all()


@pytest.mark.parametrize("expression", EXPRESSIONS.values(), ids=EXPRESSIONS)
def test_expressions_on_the_host(runtime, expression):
    """A region that runs on the host gets the same."""
    omp.declare_mapper(Field, lambda f: [tofrom(expression(f))])

    def body(f):
        part = expression(f)
        part *= 2
        return part.shape

    field = Field()
    assert omp.target(body, if_=False)(field) == expression(field).shape
    assert omp.target(body, if_=False, nowait=True)(field).result() == expression(field).shape
    assert (field.data == changed(N, expression, expression)).all()


PLANES = {
    "interior": lambda f: f.interior,
    "by shape": lambda f: f.inside,
    "transposed": lambda f: f.data.T[1:-1, 2:],
    "transposed by a function": lambda f: np.moveaxis(f.data, 0, 1)[1:-1, 2:],
    "column": lambda f: f.data[:, 0],
    "row": lambda f: f.data[2],
    "row inside": lambda f: f.row(3),
    "every other": lambda f: f.data[::2, 1::2],
    "new axis": lambda f: f.data[1:3, None, ::-1],
    "diagonal": lambda f: f.data.diagonal(),
    "flat": lambda f: f.data.reshape(-1)[5:9],
    "real": lambda f: f.data.real[1:],
}


@pytest.mark.parametrize("expression", PLANES.values(), ids=PLANES)
def test_planes(runtime, expression):
    """Parts of two dimensions: interiors, rows, columns, transposes."""
    omp.declare_mapper(Field, lambda f: [to(expression(f))])
    shape = (5, 6)
    field = Field(shape)
    total = np.zeros(1)

    @omp.target
    def body(f, total):
        part = expression(f)
        double(part)
        total += (part * (1 + omp.array_namespace(total).arange(part.shape[-1]))).sum()

    expected = 2 * (expression(field) * (1 + np.arange(expression(field).shape[-1]))).sum()
    body(field, total)
    assert total == expected
    assert (field.data == changed(shape)).all()
    total[0] = 0
    body.options(map=[to(field)], device=omp.get_initial_device())
    with omp.target_data(map=[tofrom(field.data)]):
        body(field, total)
    assert total == expected
    assert (field.data == changed(shape, expression)).all()


@pytest.mark.parametrize("recarray", [False, True])
def test_fields_of_records(runtime, recarray):
    """A field of an array of records is mapped alone."""

    class Cloud:
        def __init__(self):
            self.points = np.zeros(N, [("x", "f8"), ("tag", "i4"), ("y", "f4", 2)])
            self.points["tag"] = 7
            self.points = self.points.view(np.recarray) if recarray else self.points

        @property
        def x(self):
            return self.points.x if recarray else self.points["x"]

    omp.declare_mapper(Cloud, lambda c: [tofrom(c.x), from_(c.points["y"][2:, 1])])
    cloud = Cloud()

    @omp.target
    def body(c):
        c.x[...] += 3
        c.points["y"][2:, 1] = 5
        with pytest.raises(omp.MapError, match="points"):
            c.points["tag"] += 1

    body(cloud)
    assert (cloud.points["x"] == 3).all()
    assert (cloud.points["y"][:2] == 0).all()
    assert (cloud.points["y"][2:] == [0, 5]).all()
    assert (cloud.points["tag"] == 7).all()
    body.options(if_=False)(cloud)
    assert (cloud.points["x"] == 6).all()


@pytest.mark.parametrize("n_fields", [1, 2])
def test_fields_are_assigned(runtime, n_fields):
    """An assignment to a field of records writes the part; an unknown attribute cannot be assigned."""

    class Cloud:
        def __init__(self):
            self.points = np.rec.array([(1.0, 2), (3.0, 4)], dtype=[("x", "f8"), ("n", "i8")])

    omp.declare_mapper(Cloud, lambda c: [tofrom(c.points[name]) for name in ("x", "n")[:n_fields]])
    cloud = Cloud()

    def body(c):
        c.points.x = c.points.x + 1
        with pytest.raises(AttributeError):
            c.points.y = 1

    omp.target(body)(cloud)
    assert cloud.points.x.tolist() == [2, 4]
    omp.target(body, if_=False)(cloud)
    assert cloud.points.x.tolist() == [3, 5]


def test_all_of_several_parts(runtime):
    """A list of views is a list of parts; an element of it that is not mapped refuses."""
    omp.declare_mapper(Field, lambda f: [tofrom(*np.split(f.data, 3)[1:])])
    field = Field()

    @omp.target
    def body(f):
        first, *others = np.split(f.data, 3)
        for part in others:
            double(part)
        with pytest.raises(omp.MapError, match="2 sections of data"):
            first += 1
        with pytest.raises(omp.MapError, match="not mapped"):
            first[0] += 1

    body(field)
    assert (field.data == changed(N, lambda f: f.data[8:])).all()


def test_the_mapper_slices_and_the_body_asks_the_property(runtime):
    """The part is the same storage, whichever expression names it: slice, property, method, and parts of these."""
    omp.declare_mapper(Field, lambda f: [tofrom(f.data[1:-1, 1:-1])])
    field = Field((6, 7))

    @omp.target
    def body(f):
        assert f.interior.shape == (4, 5)
        assert f.data[1:-1, 1:-1].shape == (4, 5)
        f.interior[...] += 1
        f.data[1:-1, 1:-1] += 1
        f.row(2)[...] += 1
        f.data[3, 4] += 1
        f.interior[0, 0] += 1

    expected = Field((6, 7)).data
    expected[1:-1, 1:-1] += 2
    expected[2, 1:-1] += 1
    expected[3, 4] += 1
    expected[1, 1] += 1
    body(field)
    assert (field.data == expected).all()
    body.options(if_=False)(field)
    assert (field.data == 2 * expected - Field((6, 7)).data).all()


def test_the_property_that_uses_the_shape(runtime):
    """A part whose numbers come from the shape of the attribute: the attribute by itself is no array in the body."""
    omp.declare_mapper(Field, lambda f: [tofrom(f.inside)])
    field = Field()

    @omp.target
    def body(f):
        assert f.data.shape == (N,)
        assert len(f.data) == f.data.size == N
        for k in range(1, N - 1):
            f.data[k] += 1
        f.inside[...] += 1
        f.data[2:4] = 9
        for wrong in (lambda: f.data + 1, lambda: f.data.sum() * 1, lambda: np.sin(f.data), lambda: np.sum(f.data)):
            with pytest.raises(omp.MapError, match="no single array"):
                wrong()

    for call in (body, body.options(if_=False)):
        field.data[...] = 0
        call(field)
        assert field.data.tolist() == [0, 2, 9, 9, *[2] * (N - 5), 0]


def test_what_is_not_mapped_is_an_error(runtime):
    """Elements outside of the mapped part can be neither read nor written, also by an index that counts on a shape."""
    omp.declare_mapper(Field, lambda f: [tofrom(f.interior)])
    field = Field()

    def read(f):
        return f.data[0]

    def write(f):
        f.data[-1] = 0

    def widen(f):
        return f.data[1:] + 1

    def iterate(f):
        return [f.data[k] for k in range(len(f.data))]

    def shrink(f):
        return f.data[2 : f.data.shape[0] - 2] + 1

    def gather(f):
        return f.data[[1, 2]]

    def plain(f):
        f.data[:] = 1
        f.data += 1
        f.data[f.data > 0] = 5

    for call in (omp.target, omp.target(if_=False)):
        for wrong in (read, write, widen, iterate, shrink, gather):
            with pytest.raises(omp.MapError, match="Field maps a section of data"):
                call(wrong)(field)
        assert (field.data == np.arange(N)).all()
    omp.target(plain)(field)
    assert field.data.tolist() == [0, *[5] * (N - 2), N - 1]


def test_several_parts(runtime):
    """Several parts of one attribute are mapped each by itself; they are no one array."""

    class Coloured(Field):
        red = property(lambda self: self.data[::2])
        black = property(lambda self: self.data[1::2])

    omp.declare_mapper(Coloured, lambda f: [tofrom(f.red), to(f.black)])
    field = Coloured()

    @omp.target
    def body(f):
        f.red[...] += f.black
        f.black[...] = 0
        with pytest.raises(omp.MapError, match="2 sections of data"):
            f.data += 1

    body(field)
    assert (field.data[::2] == np.arange(0, N, 2) + np.arange(1, N, 2)).all()
    assert (field.data[1::2] == np.arange(1, N, 2)).all()


def test_a_part_that_is_an_attribute_too(runtime):
    """A part that another attribute holds, too, is the device's by both expressions."""

    class Both(Field):
        def __init__(self):
            super().__init__()
            self.held = self.data[1:-1]

    omp.declare_mapper(Both, lambda f: [tofrom(f.interior)])
    field = Both()

    @omp.target
    def body(f):
        double(f.interior)
        double(f.held)

    body(field)
    assert (field.data == changed(N, EXPRESSIONS["property"], EXPRESSIONS["property"])).all()


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    data: np.ndarray

    @property
    def interior(self):
        return self.data[1:-1]


class Named(NamedTuple):
    data: np.ndarray

    @property
    def interior(self):
        return self.data[1:-1]


@pytest.mark.parametrize("cls", [Slotted, Named])
def test_other_classes(runtime, cls):
    """Dataclasses with slots and named tuples have properties, too."""
    omp.declare_mapper(cls, lambda o: [tofrom(o.interior)])
    item = cls(np.zeros(N))
    omp.target(lambda o: o.interior.__iadd__(1) is None)(item)
    assert item.data.tolist() == [0, *[1] * (N - 2), 0]


def test_nested_objects_and_containers(runtime):
    """Parts of nested objects, each by its own mapper, and of arrays in lists and dictionaries."""

    class Mesh:
        def __init__(self):
            self.field = Field()
            self.levels = [np.zeros(8), np.zeros(16)]
            self.by_name = {"a": (np.zeros(8),), "same": self.field}

        def level(self, k):
            return self.levels[k][1:-1]

    omp.declare_mapper(Field, lambda f: [tofrom(f.interior)])
    omp.declare_mapper(Mesh, lambda m: [m.field, tofrom(m.level(0), m.level(1)), tofrom(m.by_name["a"][0][::3])])
    mesh = Mesh()

    @omp.target
    def body(m):
        assert m.by_name["same"] is m.field
        double(m.field.interior)
        m.level(0)[...] += 1
        m.level(1)[...] += 2
        m.by_name["a"][0][::3] += 3

    body(mesh)
    assert (mesh.field.data == changed(N, EXPRESSIONS["property"])).all()
    assert mesh.levels[0].tolist() == [0, *[1] * 6, 0]
    assert mesh.levels[1].tolist() == [0, *[2] * 14, 0]
    assert mesh.by_name["a"][0].tolist() == [3, 0, 0, 3, 0, 0, 3, 0]


def test_expressions_that_cannot_be_given(sim):
    """A mapper whose expression is something else in the body is an error at the construct, and changes nothing."""
    omp.declare_mapper(Field, lambda f: [tofrom(np.asarray(f.data)[1:-1])])
    field = Field()
    ran = []
    for call in (omp.target(ran.append), omp.target(ran.append, nowait=True), omp.target(ran.append, if_=False)):
        with pytest.raises(omp.MapError, match="write slices of the attribute"):
            call(field)

    class Mesh:
        def __init__(self):
            self.field = field

    omp.declare_mapper(Field, lambda f: [tofrom(f.interior)])
    omp.declare_mapper(Mesh, lambda m: [m.field, to(m.field.data)])
    with pytest.raises(omp.MapError, match="do not give the same elements"):
        omp.target(ran.append)(Mesh())
    assert ran == []
    assert sim.places[0].table.entries() == ()


def test_the_advice_for_a_member(runtime):
    """The error for a string that names a property recommends a mapper: with it, the body gets the part."""
    field = Field()

    @omp.target(map=[tofrom("f.interior")])
    def body(f):
        double(f.interior)

    with pytest.raises(omp.ClauseError, match="declare_mapper"):
        body(field)
    omp.declare_mapper(Field, lambda f: [tofrom(f.interior)])
    body(field)
    omp.target(lambda f: double(f.interior))(field)
    body.options(map=[])(field)
    body.options(if_=False, map=[])
    assert (field.data == changed(N, *[EXPRESSIONS["property"]] * 3)).all()


def test_a_part_kept_beyond_the_region(sim):
    """What a body keeps of an object refuses when the mapping has ended."""
    omp.declare_mapper(Field, lambda f: [tofrom(f.interior)])
    kept = []
    omp.target(kept.append)(Field())
    with pytest.raises(omp.RegionClosedError):
        kept[0].interior + 1
    with pytest.raises(omp.RegionClosedError):
        kept[0].data + 1
    kept.clear()
