"""The pocket conductor: its network, what is fitted, what is exported."""
