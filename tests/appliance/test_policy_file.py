"""What the policy's file may say: every mistake is one fault with its place."""

from __future__ import annotations

from typing import Any

import pytest

from conductor.errors import ConfigError
from conductor.labels import Label
from support.policies import faults_of, read


def rule(body: dict[str, Any], effect: str = "deny") -> dict[str, Any]:
    return {"rules": [{"id": "r", effect: body}]}


REMOTE = {"kind": "remote", "clearance": {"level": "public", "compartments": []}}


def cleared(level: str, compartments: Any) -> dict[str, Any]:
    """A remote destination with this clearance."""
    clearance = {"level": level, "compartments": compartments}
    return {"destinations": {"x": {"kind": "remote", "clearance": clearance}}}


def classifier(raised: dict[str, Any], **when: Any) -> dict[str, Any]:
    return {"classify": [{"id": "c", "when": when, "raise": raised}]}


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"apiVersion": "conductor/v2"}, "bad-value", "conductor/v1"),
        ({"kind": "RoutingPolcy"}, "bad-value", "did you mean 'RoutingPolicy'"),
        ({"revision": 0}, "bad-value", "from 1"),
        ({"revision": None}, "missing-key", "'revision'"),
        ({"rulez": []}, "unknown-key", "did you mean 'rules'"),
        ({"labels": {"compartments": ["pii", "secret", "payment"]}}, "missing-name", "unscanned"),
        ({"default_label": "public"}, "lowest-default", "lowest"),
        ({"default_label": "internl"}, "unknown-label", "did you mean 'internal'"),
        ({"default_label": "internal+pi"}, "unknown-label", "did you mean 'pii'"),
        ({"default_label": None}, "missing-key", "'default_label'"),
        ({"destinations": {"box": {"kind": "lokal"}}}, "bad-value", "did you mean 'local'"),
        ({"destinations": {"box": {"clearance": None}}}, "missing-key", "'clearance'"),
        (cleared("pulic", []), "unknown-level", "did you mean 'public'"),
        (cleared("public", ["pi"]), "unknown-compartment", "did you mean 'pii'"),
        (cleared("public", "al"), "bad-value", "did you mean 'all'"),
        (cleared("public", "all"), "unscanned-remote", "no remote destination"),
        (cleared("public", ["unscanned"]), "unscanned-remote", "no remote destination"),
        ({"destinations": {"X y": REMOTE}}, "bad-name", "lower case"),
        ({"destinations": {"x": {**REMOTE, "Region": "us"}}}, "bad-name", "lower case"),
        ({"destinations": {"x": {**REMOTE, "not": "us"}}}, "bad-name", "lower case"),
        ({"destinations": {"x": {**REMOTE, "region": ["us"]}}}, "wrong-kind", "not a list"),
        (
            classifier({"level": "internal"}, detector="ibn"),
            "unknown-detector",
            "did you mean 'iban'",
        ),
        (classifier({}, detector="iban"), "missing-key", "level"),
        (classifier({"level": "internal"}, detector="iban", min_count=0), "bad-value", "from 1"),
        (classifier({"level": "internal"}), "exactly-one", "detector"),
        ({"guardrails": [{"id": "g"}]}, "exactly-one", "deny"),
        ({"rules": [{"id": "r"}]}, "exactly-one", "allow, deny"),
        ({"rules": [{"id": "r", "allow": {}, "deny": {}}]}, "exactly-one", "allow, deny"),
        ({"rules": [{"id": "r", "mode": "of", "deny": {}}]}, "bad-value", "did you mean 'off'"),
        ({"rules": [{"id": "R!", "deny": {}}]}, "bad-value", "lower case"),
        ({"rules": [{"id": "no-secret-remote", "deny": {}}]}, "duplicate-id", "line 1"),
        (rule({}, "allow"), "allows-all", "everything"),
        (rule({"to": {}, "if": {}}, "allow"), "allows-all", "everything"),
        (rule({"too": {}}), "unknown-key", "did you mean 'to'"),
        (rule({"to": {"vendr": "x"}}), "unknown-key", "did you mean 'vendor'"),
        (rule({"to": {"dpa": True}}), "unknown-key", "known"),
        (rule({"to": {"vendor": True}}), "wrong-kind", "no destination states"),
        (rule({"to": {"kind": "remot"}}), "unknown-kind", "did you mean 'remote'"),
        (rule({"to": {"id": "fronteer"}}), "unknown-id", "did you mean 'frontier'"),
        (rule({"to": {"any": []}}), "bad-value", "must not be empty"),
        (rule({"to": {"not": {}}}), "bad-value", "at least one"),
        (rule({"to": {"region": {}}}), "wrong-kind", "not a mapping"),
        (rule({"to": {"region": []}}), "bad-value", "must not be empty"),
        (rule({"if": {"level_at_most": "topsecret"}}), "unknown-level", "known"),
        (rule({"if": {"compartments_any": ["secrt"]}}), "unknown-compartment", "'secret'"),
        (rule({"if": {"compartments_any": []}}), "bad-value", "must not be empty"),
        (rule({"if": {"compartment_any": ["pii"]}}), "unknown-key", "'compartments_any'"),
        (rule({"if": {"any": [{"kind": "remote"}]}}), "unknown-key", "known"),
    ],
)
def test_one_mistake_in_a_policy_is_one_fault_that_says_what_to_do(
    changes: dict[str, Any], code: str, words: str
) -> None:
    found = faults_of(changes)
    assert [fault[0] for fault in found] == [code]
    assert words in found[0][1]


def test_a_guardrail_cannot_allow() -> None:
    guardrail = {"id": "g", "deny": {}, "allow": {"to": {"kind": "remote"}}}
    assert [code for code, _ in faults_of({"guardrails": [guardrail]})] == ["unknown-key"]


def test_levels_that_cannot_be_read_are_the_only_fault() -> None:
    assert [code for code, _ in faults_of({"labels": {"levels": []}})] == ["bad-value"]
    assert [code for code, _ in faults_of({"labels": None})] == ["missing-key"]


def test_twin_names_in_the_lattice_are_one_fault() -> None:
    twins = {"levels": ["public", "internal", "public", "restricted", "confidential"]}
    assert [code for code, _ in faults_of({"labels": twins})] == ["duplicate-name"]
    clash = {"compartments": ["internal", "pii", "secret", "payment", "unscanned"]}
    assert [code for code, _ in faults_of({"labels": clash})] == ["duplicate-name"]


def test_a_single_level_may_be_the_default() -> None:
    text = """\
apiVersion: conductor/v1
kind: RoutingPolicy
revision: 1
labels: {levels: [plain], compartments: [unscanned]}
default_label: plain
destinations: {}
"""
    assert read(text).default_label == Label(0)


def test_policy_faults_carry_their_exact_place() -> None:
    text = """\
apiVersion: conductor/v1
kind: RoutingPolicy
revision: 3
labels:
  levels: [low, high]
  compartments: [unscanned, pii]
default_label: low
destinations:
  box: {kind: local, clearance: {level: hihg, compartments: all}}
rules:
  - id: a
    deny: {to: {kind: remote}, if: {compartments_any: [pi]}}
  - id: a
    deny: {to: {regoin: eu}}
"""
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert [f"{f.file}:{f.line}:{f.column} {f.code}" for f in caught.value.faults] == [
        "p.yaml:7:16 lowest-default",
        "p.yaml:9:41 unknown-level",
        "p.yaml:12:56 unknown-compartment",
        "p.yaml:13:9 duplicate-id",
        "p.yaml:14:17 unknown-key",
    ]


# -- sections that a site may leave out -------------------------------------------------------

CUT = {"id": "cut", "kind": "redact", "types": ["email"], "removes": {"compartments": ["pii"]}}
KEY = "A" * 43 + "="


def custom(**more: Any) -> dict[str, Any]:
    return {"detectors": [{"id": "custom.x", **more}]}


def declassifier(**changes: Any) -> dict[str, Any]:
    tree = {key: value for key, value in {**CUT, **changes}.items() if value is not None}
    return {"declassifiers": [tree]}


def promised(*obligations: Any, **more: Any) -> dict[str, Any]:
    body = {"to": {"kind": "remote"}}
    return {
        "declassifiers": [CUT],
        "rules": [{"id": "r", "allow": body, "obligations": list(obligations), **more}],
    }


def case(given: dict[str, Any] | None = None, **expect: Any) -> dict[str, Any]:
    data = {"label": "internal", "to": "box"} if given is None else given
    return {"tests": [{"name": "t", "given": data, "expect": {"decision": "allow", **expect}}]}


def caller(declared: dict[str, Any], raised: dict[str, Any]) -> dict[str, Any]:
    return {"classify": [{"id": "c", "when": {"declared": declared}, "raise": raised}]}


HEADER = {"from": ["header"], "caller": "app"}


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        (custom(), "exactly-one", "words, pattern"),
        (custom(words=["a"], pattern="b"), "exactly-one", "words, pattern"),
        (custom(words=[]), "bad-value", "must not be empty"),
        (custom(words=["--"]), "bad-value", "letter or digit"),
        (custom(pattern="(?=look)ahead"), "bad-pattern", "RE2"),
        (custom(pattern="x*"), "bad-pattern", "empty"),
        (custom(words=["a"], likelihood="often"), "bad-value", "known"),
        (custom(words=["a"], without_hotword="unlikely"), "unknown-key", "known"),
        (custom(words=["a"], hotwords={"any": []}), "bad-value", "must not be empty"),
        ({"detectors": [{"id": "mine", "words": ["a"]}]}, "bad-value", "custom."),
        ({"phone_regions": ["it"]}, "bad-value", "capital"),
        (declassifier(kind="cut"), "bad-value", "known"),
        (declassifier(types=["emial"]), "unknown-detector", "did you mean 'email'"),
        (declassifier(types=None), "missing-key", "types"),
        (declassifier(removes={}), "missing-key", "compartments"),
        (declassifier(removes={"compartments": ["unscanned"]}), "removes-unscanned", "cut out"),
        (declassifier(approvers=["a"]), "unknown-key", "known"),
        (declassifier(kind="constrained", types=None), "missing-key", "domain"),
        (
            declassifier(kind="constrained", types=None, domain={"enum": ["yes"]}),
            "bad-value",
            "2 to",
        ),
        (
            declassifier(kind="constrained", types=None, domain={"enum": ["yes", "YES"]}),
            "duplicate-name",
            "case",
        ),
        (
            declassifier(kind="constrained", types=None, domain={"integer": [3, 3]}),
            "bad-value",
            "LOW, HIGH",
        ),
        (
            declassifier(kind="constrained", types=None, domain={"bool": False}),
            "bad-value",
            "no other value",
        ),
        (
            declassifier(kind="approved", types=None, approvers=["bert"]),
            "unknown-approver",
            "known: none",
        ),
        (promised("no_tool"), "bad-value", "did you mean 'no_tools'"),
        (promised("no_tools", "no_tools"), "duplicate-obligation", "already"),
        (promised({"redact": {"by": "cat"}}), "unknown-declassifier", "did you mean 'cut'"),
        (promised({"pseudonymise": {"by": "cut"}}), "unknown-declassifier", "known: none"),
        (promised({"redact": {}}), "missing-key", "by"),
        (promised(), "bad-value", "must not be empty"),
        (promised("no_tools", since="2026-01-31"), "unknown-key", "known"),
        (promised("no_tools", mode="shadow", since="2026-02-30"), "bad-value", "calendar"),
        (
            {"rules": [{"id": "r", "deny": {}, "obligations": ["no_tools"]}]},
            "unknown-key",
            "known",
        ),
        (caller({**HEADER, "from": ["body"]}, {"from_declared": True}), "bad-value", "header"),
        (caller({"from": ["header"]}, {"from_declared": True}), "missing-key", "caller"),
        (caller(HEADER, {"from_declared": False}), "bad-value", "true"),
        (caller(HEADER, {"level": "internal"}), "missing-key", "from_declared"),
        (
            classifier({"level": "internal", "from_declared": True}, detector="iban"),
            "unknown-key",
            "known",
        ),
        ({"approvers": [{"id": "a", "public_key": "AAAA"}]}, "bad-value", "32 bytes"),
        (
            {"approvers": [{"id": "a", "public_key": KEY}, {"id": "b", "public_key": KEY}]},
            "duplicate-id",
            "public_key",
        ),
        ({"activation": {"guardrail_approvals": 1}}, "too-few-approvers", "nobody"),
        ({"leak_budget_bits": -1}, "wrong-kind", "plain decimal"),
        (case({"label": "internal", "text": "x", "to": "box"}), "exactly-one", "text, label"),
        (case({"label": "internal"}), "missing-key", "'to'"),
        (case({"label": "internal", "to": "bax"}), "unknown-destination", "did you mean 'box'"),
        (case(rule="no-secret-remot"), "unknown-rule", "did you mean 'no-secret-remote'"),
        (case(shadow="no-secret-remote"), "unknown-rule", "known: none"),
        (case(label="internall"), "unknown-label", "did you mean 'internal'"),
        (case(decision="permit"), "bad-value", "'promise'"),
    ],
)
def test_one_mistake_in_an_optional_section_is_one_fault_too(
    changes: dict[str, Any], code: str, words: str
) -> None:
    found = faults_of(changes)
    assert [fault[0] for fault in found] == [code]
    assert words in found[0][1]


def test_a_family_stands_for_all_its_detectors() -> None:
    policy = read(declassifier(types=["secret", "id.it", "email"]))
    types = policy.declassifiers["cut"].types
    assert {"secret.aws", "secret.token", "id.it.codicefiscale", "email"} <= types
    assert not any(name.startswith("id.de") for name in types)


def test_the_model_for_names_runs_only_where_the_policy_speaks_of_persons() -> None:
    assert not read({}).profile.names
    assert read(declassifier(types=["person"])).profile.names
    person = classifier({"compartments": ["pii"]}, detector="address")
    assert read(person).profile.names


def test_own_detectors_reach_the_scanner_as_they_are_written() -> None:
    policy = read(
        {
            "detectors": [
                {
                    "id": "custom.staff",
                    "pattern": "E[0-9]{6}",
                    "likelihood": "very_likely",
                    "hotwords": {"any": ["staff"], "within_chars": 40},
                    "without_hotword": "unlikely",
                    "exclude": ["E000000"],
                }
            ],
            "phone_regions": ["IT"],
            "classify": [
                {"id": "c", "when": {"detector": "custom"}, "raise": {"compartments": ["pii"]}}
            ],
        }
    )
    (staff,) = policy.profile.custom
    assert (staff.pattern, staff.exclude, staff.likelihood.word) == (
        "E[0-9]{6}",
        ("E000000",),
        "very_likely",
    )
    assert staff.hotwords is not None and staff.hotwords.within_chars == 40
    assert staff.without_hotword is not None and staff.without_hotword.word == "unlikely"
    assert policy.profile.phone_regions == ("IT",)
    assert policy.classifiers.mentioned == {"custom.staff"}


def test_a_reveal_has_as_many_answers_as_its_domain_says() -> None:
    domains: list[tuple[dict[str, Any], int]] = [
        ({"enum": ["yes", "no"]}, 2),
        ({"bool": True}, 2),
        ({"integer": [0, 7]}, 8),
    ]
    for domain, size in domains:
        policy = read(declassifier(kind="constrained", types=None, domain=domain))
        answers = policy.declassifiers["cut"].domain
        assert answers is not None and answers.size == size
