"""Random expressions on device arrays give what they give on NumPy arrays."""

import gc
import warnings

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from offload.devices.sim.array import SimArray
from offload.devices.sim.device import SimDevice

SHAPE = (3, 4)
UNARY = (np.negative, np.abs, np.sqrt, np.sin, np.exp, np.square, np.conj, np.isfinite, np.logical_not)
BINARY = (np.add, np.subtract, np.multiply, np.true_divide, np.maximum, np.less, np.equal, np.logical_and)
REDUCE = ("sum", "prod", "min", "max", "mean", "any", "all", "argmin", "cumsum")
INDICES = (
    np.s_[:], np.s_[0], np.s_[-1], np.s_[::-1], np.s_[1:],
    np.s_[..., 0], np.s_[..., None], np.s_[..., ::2], np.s_[[0, 0]],
)  # fmt: skip
SCALARS = (2, -1.5, 1 + 2j, True, np.float32(0.5), np.int16(3), np.array(4.0))

expressions = st.recursive(
    st.tuples(st.just("leaf"), st.integers(0, 3)),
    lambda inner: st.one_of(
        st.tuples(st.just("unary"), st.sampled_from(UNARY), inner),
        st.tuples(st.just("binary"), st.sampled_from(BINARY), inner, inner),
        st.tuples(st.just("scalar"), st.sampled_from(BINARY), inner, st.sampled_from(SCALARS)),
        st.tuples(st.just("reduce"), st.sampled_from(REDUCE), st.sampled_from([None, -1]), inner),
        st.tuples(st.just("index"), st.sampled_from(INDICES), inner),
        st.tuples(st.just("stack"), st.lists(inner, min_size=1, max_size=3)),
        st.tuples(st.just("mask"), inner),
        st.tuples(st.just("where"), inner, inner),
    ),
    max_leaves=6,
)
LEAVES = (
    np.linspace(-2, 3, 12).reshape(SHAPE),
    np.arange(12).reshape(SHAPE),
    np.arange(12, dtype=np.float32).reshape(SHAPE) % 5,
    (np.arange(12) * (1 - 1j)).reshape(SHAPE)[::-1],
)


def evaluate(expression, leaves):
    match expression:
        case ("leaf", number):
            return leaves[number]
        case ("scalar", function, inner, scalar):
            return function(evaluate(inner, leaves), scalar)
        case ("unary", function, inner):
            return function(evaluate(inner, leaves))
        case ("binary", function, left, right):
            return function(evaluate(left, leaves), evaluate(right, leaves))
        case ("reduce", name, axis, inner):
            return getattr(np, name)(evaluate(inner, leaves), axis=axis)
        case ("index", index, inner):
            return evaluate(inner, leaves)[index]
        case ("stack", parts):
            return np.stack([evaluate(part, leaves) for part in parts])
        case ("mask", inner):
            value = evaluate(inner, leaves)
            return value[value == value]  # noqa: PLR0124  # drops NaN
        case ("where", left, right):
            a, b = evaluate(left, leaves), evaluate(right, leaves)
            return np.where(a != 0, a, b)


def outcome(expression, leaves):
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return evaluate(expression, leaves), None
        except (TypeError, ValueError, IndexError) as error:
            return None, type(error)


@given(expressions)
def test_expressions_agree_with_numpy(expression):
    """Value, shape, dtype and error of an expression are NumPy's, the result is on the device, and nothing leaks."""
    device = SimDevice(0)
    expected, error = outcome(expression, LEAVES)
    result, device_error = outcome(expression, [device.namespace().asarray(leaf) for leaf in LEAVES])
    assert device_error is error
    if error is None:
        assert isinstance(result, SimArray)
        expected = np.asarray(expected)
        assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_array_equal(result.get(), expected)
    del result
    gc.collect(0)
    assert device.live_nbytes() == 0
