"""A plugin of pytest that takes one mark of a conformance test away, and gives another test a wrong one."""

from tests.conformance import findings

PLACE = "test_data.py::test_target_data_map_{}"

for places in findings.STALE.values():
    places.discard(PLACE.format("to"))
findings.RACES["nobody races here"] = {PLACE.format("tofrom")}
