"""Hypothesis strategies for policies, labels and destinations, in the small site's words.

Policies have allows with and without obligations, denies, guardrails, and shadow rules, over
conditions of any shape. `tame_policies` are those that ask about nothing but sensitivity.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import strategies as st

from conductor.core import Destination, Obligation
from conductor.labels import Clearance, Label
from conductor.policy import conditions
from conductor.policy.conditions import All, Compartments, Condition, Fact, Level, Not
from conductor.policy.declassifiers import Declassifier, Removes
from conductor.policy.document import Policy
from conductor.policy.rules import Rule
from support.policies import read

POLICY = read({})
LATTICE = POLICY.lattice
NAMES = sorted(LATTICE.compartments)
FACTS: dict[str, list[Any]] = {
    "vendor": ["acme", "other"],
    "region": ["eu", "us"],
    "dpa": [True, False],
}
DECLASSIFIERS = {
    "cut": Declassifier("cut", "redact", Removes(frozenset({"pii", "payment"})), "p"),
    "sign": Declassifier("sign", "approved", Removes(frozenset({"secret"}), 1), "p"),
}
OBLIGATIONS = [Obligation("redact", "cut"), Obligation("approve", "sign"), Obligation("no_tools")]

names = st.frozensets(st.sampled_from(NAMES), max_size=3)
labels = st.builds(Label, st.integers(0, 3), names)
clearances = st.builds(Clearance, st.integers(0, 3), names)
discharges = st.frozensets(st.sampled_from(OBLIGATIONS))
facts = st.fixed_dictionaries({}, optional={k: st.sampled_from(v) for k, v in FACTS.items()})
destinations = st.builds(
    Destination, st.just("d"), st.sampled_from(["local", "remote"]), clearances, facts, st.just("p")
)

facts_asked = st.one_of(
    *(
        st.builds(Fact, st.just(name), st.frozensets(st.sampled_from(values), min_size=1))
        for name, values in {"kind": ["local", "remote"], **FACTS}.items()
    )
)
label_leaves = st.one_of(
    st.builds(Level, st.integers(0, 3), st.integers(0, 3)),
    st.builds(Compartments, st.sampled_from(["any", "all", "none"]), names),
)


def trees(leaves: st.SearchStrategy[Any], *, nots: bool = True) -> st.SearchStrategy[Any]:
    """Conditions of these leaves."""

    def more(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        several = st.lists(inner, max_size=3).map(tuple)
        grown = [st.builds(All, several), st.builds(conditions.Any, several)]
        return st.one_of(*grown, *([st.builds(Not, inner)] if nots else []))

    return st.recursive(leaves, more, max_leaves=3)


to_trees: st.SearchStrategy[Condition[Destination]] = trees(facts_asked)
label_trees: st.SearchStrategy[Condition[Label]] = trees(label_leaves)


NOTHING_ASKED: st.SearchStrategy[tuple[Obligation, ...]] = st.just(())


def rules_of(
    effect: str,
    name: str,
    *,
    obligations: st.SearchStrategy[tuple[Obligation, ...]] = NOTHING_ASKED,
    when: st.SearchStrategy[Condition[Label]] = label_trees,
) -> st.SearchStrategy[Rule]:
    """Rules of one effect and id."""
    return st.builds(
        Rule,
        id=st.just(name),
        effect=st.just(effect),
        to=to_trees,
        when=when,
        position=st.just("p.yaml:1:1"),
        obligations=obligations,
    )


bound = rules_of(
    "allow",
    "b",
    obligations=st.lists(st.sampled_from(OBLIGATIONS), min_size=1, max_size=2, unique=True).map(
        lambda some: tuple(sorted(some))
    ),
)
denies = rules_of("deny", "d")
any_rules = st.lists(rules_of("allow", "a") | bound | denies, max_size=4).map(tuple)
guardrails = st.lists(rules_of("deny", "g"), max_size=2).map(tuple)


def policy_with(rules: tuple[Rule, ...], guardrails: tuple[Rule, ...]) -> Policy:
    """The small policy with other rules."""
    return dataclasses.replace(
        POLICY, rules=rules, guardrails=guardrails, declassifiers=DECLASSIFIERS
    )


policies = st.builds(policy_with, any_rules, guardrails)

_low = trees(
    st.builds(Level, st.just(0), st.integers(0, 3))
    | st.builds(Compartments, st.just("none"), names),
    nots=False,
)
_high = trees(
    st.builds(Level, st.integers(0, 3), st.just(3))
    | st.builds(Compartments, st.sampled_from(["any", "all"]), names),
    nots=False,
)
tame_policies = st.builds(
    policy_with,
    st.lists(rules_of("allow", "a", when=_low) | rules_of("deny", "d", when=_high), max_size=4).map(
        tuple
    ),
    st.lists(rules_of("deny", "g", when=_high), max_size=2).map(tuple),
)
"""Allows for at most so sensitive data, denies from so sensitive data on, and no obligations."""
