"""A loop in order on arrays of the host, nest by nest (`offload.loops.running.runs`)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from offload.loops.running.plan import warn_of_python
from offload.loops.running.preparation import OnHost, prepared
from offload.loops.running.runs import OrderedForm, OrderedRun

if TYPE_CHECKING:
    from collections.abc import Mapping

    from offload.loops.running.plan import NestPlan
    from offload.loops.running.specialise import Specialisation


def run_in_order(spec: Specialisation, values: Mapping[str, Any]) -> dict[str, Any]:
    """Run the nests of a loop in order on the host; return the scalars that come out.

    It changes the host arrays among ``values``, and raises as the serial program does; its writes until then stay. It
    *blocks* as long as the loop takes. Ctrl-C takes effect between slices of about 20 ms, and earlier writes stay.
    """
    results: dict[str, Any] = {}
    for run in ordered_runs(spec, values):
        try:
            run.run_all()
        finally:
            found = run.finish()
        failure = run.failure()
        if failure is not None:
            raise failure
        results |= found
    return results


def ordered_runs(spec: Specialisation, values: Mapping[str, Any]) -> list[OrderedRun]:
    """Return the runs of the nests of a loop in order, none of which has begun. Raises as `prepared`."""
    blanks, addresses, _ = prepared(spec, values, None, IN_ORDER)
    arrays = {name: values[name] for name in spec.given}
    return [OrderedRun(blank, arrays, addresses, values) for blank in blanks]


class _InOrder(OnHost):
    """How nests are prepared to run in order on the host; see `offload.loops.running.preparation.Where`."""

    def form(self, spec: Specialisation, number: int, plan: NestPlan) -> OrderedForm:
        """Return the form of a nest."""
        return ordered_form(spec, number, plan)


IN_ORDER: Final = _InOrder(is_in_order=True)


def ordered_form(spec: Specialisation, number: int, plan: NestPlan) -> OrderedForm:
    """Return the form of a nest in order, by its number in the function, under a plan."""
    variant = replace(plan.variant, is_ordered=True, copies=())

    def made() -> OrderedForm:
        warn_of_python(spec)
        return OrderedForm(spec.typed, plan.nest, variant, spec.program.words)

    return spec.form(("in order", number, variant), made)
