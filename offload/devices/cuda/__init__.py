"""CUDA devices, through CuPy. The only package that imports it; `kind` and `methods` do without."""
