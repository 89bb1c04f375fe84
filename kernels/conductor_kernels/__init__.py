"""Ops and runners for the GPU. Empty so far: it holds its place in the import contracts."""
