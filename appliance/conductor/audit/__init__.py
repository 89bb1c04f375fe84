"""The hash-chained record of every decision."""
