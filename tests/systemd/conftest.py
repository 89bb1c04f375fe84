"""The checks of `booted/` run inside a booted guest (`make test-system`), not here."""

collect_ignore = ["booted"]
