"""The conductor appliance: label, judge, plan, run and answer one request at a time.

The tour in numbered steps is `docs/architecture.md`; `core.py` holds the nouns.
"""

__version__ = "0.1.0"
