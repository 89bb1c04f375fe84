"""What the benchmark of a GPU box is made of: one part a file, and what they share.

Needs torch, Triton and numpy, and of the appliance only what the standard library can import: such
a box often has no more. `../run.py` is the command.
"""
