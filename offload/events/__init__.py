"""Events, their sources, and the gate that finds out which of them have completed."""
