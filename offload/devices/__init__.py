"""Devices, one room a kind, against the contract in `base`."""
