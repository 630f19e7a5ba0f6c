"""What the CUDA device reaches, along with the same work written by hand with CuPy."""
