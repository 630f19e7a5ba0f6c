"""What strided copies reach, and what a look-up of mapped storage costs."""
