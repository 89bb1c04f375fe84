"""What holds of every decision, over generated policies with obligations.

Not claimed, because it is not so: that more sensitive data is never freer under any policy. An
allow that asks for `compartments_any: [pii]`, or for a redaction of what holds some, makes it so on
purpose; it holds for policies that ask about sensitivity alone.
"""

from __future__ import annotations

import dataclasses

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from conductor.core import Destination, Obligation, Verdict
from conductor.labels import Clearance, Label
from conductor.policy.conditions import All, Condition, Not, conjunction
from conductor.policy.decide import applying, decide, rule_ids
from conductor.policy.document import Policy
from conductor.policy.rules import Rule
from support.policies import worker_at
from support.policystrategies import (
    FACTS,
    any_rules,
    bound,
    clearances,
    denies,
    destinations,
    discharges,
    facts_asked,
    guardrails,
    labels,
    policies,
    policy_with,
    tame_policies,
)

Done = frozenset[Obligation]
MANY = settings(max_examples=300, deadline=None)


def freedom(verdict: Verdict) -> int:
    """0: denied. 1: promised. 2: allowed."""
    return 2 if verdict.allow else int(bool(verdict.promise))


@MANY
@given(policies, labels, labels, discharges, destinations, clearances)
def test_no_policy_gets_past_the_floor(
    policy: Policy, data: Label, before: Label, done: Done, to: Destination, own: Clearance
) -> None:
    if decide(policy, data, worker_at(to, own), origin=before, discharged=done).allow:
        assert data.flows_to(own)
        assert data.flows_to(to.clearance)
        assert to.kind == "local" or "unscanned" not in data.compartments


@MANY
@given(policies, labels, labels, discharges, destinations, st.sampled_from(sorted(FACTS)))
def test_taking_a_fact_away_never_turns_a_deny_into_an_allow(
    policy: Policy, data: Label, before: Label, done: Done, to: Destination, gone: str
) -> None:
    facts = {key: value for key, value in to.facts.items() if key != gone}
    poorer = worker_at(dataclasses.replace(to, facts=facts))
    if decide(policy, data, poorer, origin=before, discharged=done).allow:
        assert decide(policy, data, worker_at(to), origin=before, discharged=done).allow


@MANY
@given(facts_asked, st.booleans(), destinations, st.sampled_from(sorted(FACTS)))
def test_taking_a_fact_away_never_sheds_an_obligation(
    asked: Condition[Destination], negated: bool, to: Destination, gone: str
) -> None:
    anything: Rule = Rule("a", "allow", All(), All(), "p.yaml:1:1")
    speaks = Not(asked) if negated else asked
    careful = dataclasses.replace(
        anything, id="b", to=speaks, obligations=(Obligation("no_tools"),)
    )
    policy = policy_with((anything, careful), ())
    facts = {key: value for key, value in to.facts.items() if key != gone}
    poorer = decide(policy, Label(0), worker_at(dataclasses.replace(to, facts=facts)))
    assert set(decide(policy, Label(0), worker_at(to)).promise) <= set(poorer.promise)


@MANY
@given(any_rules, guardrails, denies, st.booleans(), labels, labels, discharges, destinations)
def test_adding_a_deny_never_frees_anything(
    rules: tuple[Rule, ...],
    upper: tuple[Rule, ...],
    more: Rule,
    guards: bool,
    data: Label,
    before: Label,
    done: Done,
    to: Destination,
) -> None:
    stricter = policy_with(rules, (*upper, more)) if guards else policy_with((*rules, more), upper)
    worker = worker_at(to)
    was = decide(policy_with(rules, upper), data, worker, origin=before, discharged=done)
    now = decide(stricter, data, worker, origin=before, discharged=done)
    assert freedom(now) <= freedom(was)


@MANY
@given(any_rules, guardrails, bound, labels, destinations)
def test_an_allow_that_asks_for_something_frees_nothing_before_that_is_done(
    rules: tuple[Rule, ...], upper: tuple[Rule, ...], more: Rule, data: Label, to: Destination
) -> None:
    wider = policy_with((*rules, more), upper)
    if decide(wider, data, worker_at(to)).allow:
        assert decide(policy_with(rules, upper), data, worker_at(to)).allow


@MANY
@given(policies, labels, destinations)
def test_a_promise_is_kept_once_its_obligations_are_carried_out(
    policy: Policy, data: Label, to: Destination
) -> None:
    verdict = decide(policy, data, worker_at(to))
    if verdict.promise:
        assert not verdict.allow
        after = policy.lowered(data, verdict.promise)
        done = frozenset(verdict.promise)
        assert decide(policy, after, worker_at(to), origin=data, discharged=done).allow


@MANY
@given(policies, labels, labels, discharges, discharges, destinations)
def test_carrying_out_more_never_takes_an_allow_away(
    policy: Policy, data: Label, before: Label, done: Done, more: Done, to: Destination
) -> None:
    worker = worker_at(to)
    if decide(policy, data, worker, origin=before, discharged=done).allow:
        assert decide(policy, data, worker, origin=before, discharged=done | more).allow


@MANY
@given(tame_policies, labels, labels, destinations)
def test_more_sensitive_data_is_never_freer_where_rules_ask_about_sensitivity_alone(
    policy: Policy, data: Label, more: Label, to: Destination
) -> None:
    if decide(policy, data.join(more), worker_at(to)).allow:
        assert decide(policy, data, worker_at(to)).allow


@given(policies, labels, labels, discharges, destinations)
def test_the_order_of_rules_decides_nothing(
    policy: Policy, data: Label, before: Label, done: Done, to: Destination
) -> None:
    turned = policy_with(policy.rules[::-1], policy.guardrails[::-1])
    one = decide(policy, data, worker_at(to), origin=before, discharged=done)
    other = decide(turned, data, worker_at(to), origin=before, discharged=done)
    assert (one.allow, one.promise) == (other.allow, other.promise)


@given(policies, st.lists(st.one_of(bound, denies), max_size=3), labels, destinations)
def test_shadow_rules_and_rules_that_are_off_change_no_decision(
    policy: Policy, more: list[Rule], data: Label, to: Destination
) -> None:
    plain = decide(policy, data, worker_at(to))
    off = tuple(dataclasses.replace(rule, mode="off") for rule in more)
    shadow = tuple(dataclasses.replace(rule, id="s", mode="shadow") for rule in more)
    with_off = policy_with((*off, *policy.rules), policy.guardrails)
    assert decide(with_off, data, worker_at(to)) == plain
    with_shadow = decide(
        policy_with((*shadow, *policy.rules), policy.guardrails), data, worker_at(to)
    )
    assert dataclasses.replace(with_shadow, shadow=()) == plain
    assert len(with_shadow.shadow) <= len(more)


@given(policies, labels, destinations)
def test_every_rule_that_a_verdict_names_is_among_the_rule_ids(
    policy: Policy, data: Label, to: Destination
) -> None:
    assert decide(policy, data, worker_at(to)).rule in rule_ids(policy)


@MANY
@given(policies, labels, destinations)
def test_the_masks_say_of_each_rule_what_its_conditions_say(
    policy: Policy, data: Label, to: Destination
) -> None:
    masks = policy.masks
    speaking, of_label = masks.of_destination(to), masks.of_label(data)
    for number, rule in enumerate(policy.guardrails + policy.rules):
        says = conjunction((rule.to.holds(to), rule.when.holds(data)))
        bits = (
            (of_label & speaking.surely) >> number & 1,
            (of_label & speaking.perhaps) >> number & 1,
        )
        assert bits == (says is True, says is None)


@given(policies, labels, destinations, destinations)
def test_what_was_decided_before_changes_no_answer(
    policy: Policy, data: Label, to: Destination, other: Destination
) -> None:
    """Both destinations have one id, so that the second must not get the answer of the first."""
    assume(to != other)
    fresh = policy_with(policy.rules, policy.guardrails)
    decide(policy, data, worker_at(to)), applying(policy, data, worker_at(to))
    for place in (other, to):
        assert decide(policy, data, worker_at(place)) == decide(fresh, data, worker_at(place))
        fresh = policy_with(policy.rules, policy.guardrails)
