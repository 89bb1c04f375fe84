"""YAML without guesses: every value asked for by kind, every fault with its position."""
