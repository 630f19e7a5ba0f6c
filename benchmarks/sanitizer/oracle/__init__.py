"""A second opinion on the sanitizer: what a program's constructs ask for, by brute force.

The oracle shares no line with `offload`. It carries out a program with stand-ins for `numpy` and `offload`, one
operation after the other in the order of the text, and notes each access and each order that a construct asks for. At
the end it compares all pairs of accesses, by sets of bytes and the transitive closure of the orders.
"""
