"""All detectors: their names, and their rules compiled once."""

from __future__ import annotations

from collections import OrderedDict
from functools import cache

from conductor.detect.custom import custom_rules
from conductor.detect.identifiers import iban_rules, identifier_rules
from conductor.detect.markings import MARKINGS, marking_rules
from conductor.detect.national import NATIONAL, national_rules, spelled_rules
from conductor.detect.network import network_rules
from conductor.detect.phones import phone_rules, regional_rules
from conductor.detect.profile import Profile
from conductor.detect.rules import Rule, RuleSet
from conductor.detect.secrets import secret_rules

NAMES = frozenset({"person", "address"})
"""What `names.py` finds, with a model instead of rules."""

DETECTORS: frozenset[str] = (
    frozenset(
        {
            "secret.aws",
            "secret.private_key",
            "secret.token",
            "secret.generic",
            "iban",
            "payment_card",
            "email",
            "phone",
            "ip",
        }
    )
    | NATIONAL
    | MARKINGS
    | NAMES
)
"""Every name that a finding can carry, save those that a policy defines."""

_KEPT = 4
"""Policies whose rules stay compiled: the active one, a candidate, and those of old requests."""

_profiles: OrderedDict[bytes, RuleSet] = OrderedDict()


def known(detector: str, profile: Profile) -> bool:
    """Whether a finding can carry this name under a policy with this profile."""
    return detector in DETECTORS or any(custom.id == detector for custom in profile.custom)


@cache
def rule_set() -> RuleSet:
    """All built-in rules, compiled on first use (some tens of milliseconds)."""
    return RuleSet(_rules())


@cache
def distinct_rule_set() -> RuleSet:
    """The rules for what no sentence turns into when its spaces are removed."""
    return RuleSet([*(rule for rule in _rules() if rule.distinct), *spelled_rules()])


def _rules() -> tuple[Rule, ...]:
    return (
        *secret_rules(),
        *identifier_rules(),
        *national_rules(),
        *network_rules(),
        *phone_rules(),
        *marking_rules(),
    )


@cache
def grouped_rule_set() -> RuleSet:
    """The rules for numbers that stand out however they are grouped."""
    return RuleSet(iban_rules())


def profile_rules(profile: Profile) -> RuleSet | None:
    """The rules that a policy adds, compiled on first use; None if it adds none."""
    if not profile.custom and not profile.phone_regions:
        return None
    rules = _profiles.get(profile.digest)
    if rules is None:
        own = (*custom_rules(profile.custom), *regional_rules(profile.phone_regions))
        rules = _profiles[profile.digest] = RuleSet(own, "utf8")
        while len(_profiles) > _KEPT:
            _profiles.popitem(last=False)
    return rules
