"""Devices, one file each, against the contract in `base`."""
