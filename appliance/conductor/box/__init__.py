"""What the box itself is like: its network, its units, its disks, and how it was closed."""
