"""Loop nests as kernels: from a Python function to what a device, or the host's threads, carry out."""
