"""``offload bench gpu``: what the CUDA device reaches, beside the same work written by hand with CuPy."""
