"""Loop nests as kernels: from a Python function to code for a device, or for the host's threads."""
