"""Directive strings: OpenMP's and OpenACC's own spelling, in blocks, on functions, over loops and in comments."""
