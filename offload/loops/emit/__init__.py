"""From the typed tree to text: C, CUDA, Python."""
