"""From answers to files: pure. The texts are the package's own, with what was answered put in."""

from __future__ import annotations

from collections.abc import Mapping

from conductor.cli.setupanswers import Answers, Listen, LocalModel, Vendor
from conductor.errors import StartError

NO_KEY = "0" * 64
LISTEN_DROPIN = "conductor.socket.d/listen.conf"
CREDENTIALS = "credentials"
"""Below it `sealed/NAME`, encrypted, or `vendor/NAME`, in the clear: `conductor-egress.service`."""
LISTENER_MARK = 0xC04D
"""Of packets by a TCP listener that systemd makes: `conductor-airgap.nft` rejects what it dials."""

_NAMES = """  - id: people-and-places               # takes the model `rampart-names`
    when: {detector: [person, address]}
    raise: {compartments: [pii]}
"""
_RULES = """rules:
  - id: ordinary-work-may-go-out
    allow: {to: {kind: remote}, if: {level_at_most: internal}}
"""
_REFUSED = """  - name: an ordinary question goes nowhere else
    given: {text: "Plan a birthday party for ten children.", to: vendor}
    expect: {decision: deny, rule: baseline.remote}
"""
_ALLOWED = """  - name: an ordinary question may go out
    given: {text: "Plan a birthday party for ten children.", to: vendor}
    expect: {decision: allow, rule: ordinary-work-may-go-out}
"""


def composed(
    answers: Answers,
    templates: Mapping[str, str],
    key_sha256: str,
    *,
    pocket: bool,
    sealed: bool = False,
) -> dict[str, str]:
    """The three files, by name. `templates` are those of the package; `pocket`: the trained planner
    has its model; `sealed`: the vendor's key is kept encrypted. Raises `StartError` when the
    package is another one than this program's."""
    return {
        "appliance.yaml": _appliance(answers, templates["appliance.yaml"], key_sha256, pocket),
        "workers.yaml": _workers(answers, templates["workers.yaml"], kept(sealed=sealed)),
        "policy.yaml": _policy(answers, templates["policy.yaml"]),
    }


def _put(text: str, old: str, new: str) -> str:
    if text.count(old) != 1:
        raise StartError("the package's example files are not those of this version: install again")
    return text.replace(old, new)


def _appliance(answers: Answers, text: str, key_sha256: str, pocket: bool) -> str:
    text = _put(text, NO_KEY, key_sha256)
    if answers.vendor:
        text = _put(text, "\nmode: local-only\n", "\nmode: connected\n")
    if answers.listen.port:
        where = f"  host: 0.0.0.0\n  port: {answers.listen.port}\n"
        text = _put(text, "  host: 127.0.0.1\n  port: 8080\n", where)
    return _put(text, "  engine: default ", "  engine: pocket  ") if pocket else text


def kept(*, sealed: bool) -> str:
    """How a vendor's key is kept: the folder's name, and what its credential's begins with."""
    return "sealed" if sealed else "vendor"


def _workers(answers: Answers, text: str, folder: str) -> str:
    head, _, small = text.partition("workers:\n")
    parts = [small.strip("\n")] if answers.embedded else []
    parts += [_local(one) for one in answers.workers]
    parts += [_remote(answers.vendor, folder)] if answers.vendor else []
    return head + "workers:\n" + "\n\n".join(parts) + "\n"


def _local(one: LocalModel) -> str:
    return f"""  - id: {one.id}
    destination: box
    unix: {one.unix}
    model: "{one.model}"
    card: {{skill: {{general: {one.skill:g}}}, output_tokens_per_s: {one.output_tokens_per_s:g}}}
    limits: {{context_tokens: {one.context_tokens}}}"""


def _remote(one: Vendor, folder: str) -> str:
    address = f'"{one.base_url}"' if one.base_url else ""
    base_url = f"\n      base_url: {address}" if address else ""
    return f"""  - id: {one.id}
    destination: vendor
    model: "{one.model}"
    remote:
      provider: "{one.provider}"{base_url}
      key: credential:{folder}_{one.id}     # /etc/conductor/{CREDENTIALS}/{folder}/{one.id}
    card: {{skill: {{general: {one.skill:g}}}, output_tokens_per_s: {one.output_tokens_per_s:g}}}
    price:
      input_usd_per_mtok: {one.input_usd_per_mtok:g}
      output_usd_per_mtok: {one.output_usd_per_mtok:g}"""


def _policy(answers: Answers, text: str) -> str:
    if answers.names:
        text = _put(
            text, "  - id: addresses-of-machines\n", _NAMES + "  - id: addresses-of-machines\n"
        )
    if answers.vendor:
        text = _put(text, "rules: []\n", _RULES)
        text = _put(text, _REFUSED, _ALLOWED)
        text = _put(text, "    region: eu\n", f'    region: "{answers.vendor.region}"\n')
    return text


def listen_dropin(listen: Listen) -> str:
    """What makes the API's socket a TCP port for these clients."""
    ranges = " ".join(listen.clients)
    return f"""# Written by `conductor setup`: applications connect by TCP, without TLS.
# Name the clients narrowly: a broken-into service could dial these ranges, and nothing else.
# By the mark the rules of an air gap know such a listener, so that there it cannot dial at all.
[Socket]
ListenStream=
ListenStream=0.0.0.0:{listen.port}
IPAddressAllow={ranges}
Mark={LISTENER_MARK:#x}
"""
