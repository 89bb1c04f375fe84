"""Times as auditors write them: ISO 8601, or a duration back from now such as `7d`. All UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_DURATION = re.compile(r"([0-9]{1,6})(s|m|h|d|w)\Z")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def moment(text: str, now: datetime) -> str:
    """The time that `text` means, as records write it: `2026-08-01T12:00:00.000Z`.

    A date is its midnight; a time without a zone is UTC; `7d` is seven days before `now`.

    Raises:
        ValueError: it is neither; the message says what is.
    """
    duration = _DURATION.match(text)
    try:
        if duration:
            when = now - timedelta(**{_UNITS[duration[2]]: int(duration[1])})
        else:
            when = datetime.fromisoformat(text)
        return as_recorded(when)
    except (ValueError, OverflowError):
        raise ValueError(
            "a time is ISO 8601 (2026-08-01, 2026-08-01T12:00Z) or a duration back from now: "
            "30s, 15m, 12h, 7d, 4w"
        ) from None


def as_recorded(when: datetime) -> str:
    """UTC with milliseconds, the form in which times of records compare as text."""
    utc = when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)
    return f"{utc:%Y-%m-%dT%H:%M:%S}.{utc.microsecond // 1000:03d}Z".rjust(24, "0")


def epoch_ms(ts: str) -> int:
    """Milliseconds since 1970 of a record's `ts`; 0 for what is no time."""
    try:
        return round(datetime.fromisoformat(ts).timestamp() * 1000)
    except ValueError:
        return 0
