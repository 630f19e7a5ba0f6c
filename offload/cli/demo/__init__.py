"""The programs of ``offload demo``: programs of `examples`, on real input and with their figures."""
