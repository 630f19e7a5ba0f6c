"""What ``offload demo`` runs: programs of `examples`, on real input and with their figures."""
