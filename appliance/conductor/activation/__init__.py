"""How a policy comes to count, and stops: checked, approved, kept on disk, swapped in."""
