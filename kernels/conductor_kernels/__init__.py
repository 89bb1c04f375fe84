"""Ops and runners for the GPU. Empty so far: the package holds its place in the import contracts."""
