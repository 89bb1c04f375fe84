"""What a process of ours needs around its work: sockets, signals, supervision, limits."""
