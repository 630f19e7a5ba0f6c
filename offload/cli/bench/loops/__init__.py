"""What loop functions reach, beside the same loops by Numba."""
