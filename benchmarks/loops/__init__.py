"""What loop functions reach, along with Numba, CUDA by hand and serial C."""
