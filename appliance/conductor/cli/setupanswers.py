"""The answers that `conductor setup` works from: read from a file, or asked one by one.

listen: socket                          # or {port: 8443, clients: [192.0.2.0/24]}
workers:                                # model servers of your own on this machine
  - {id: qwen-32b, unix: /run/vllm/api.sock, skill: 0.85, output_tokens_per_s: 60}
embedded: true                          # the small model that the appliance runs itself
remote: none                            # or air-gapped, or {provider: openai, model: ...}
names: true                             # seek names of persons; takes the model rampart-names
gpu: false                              # let the planner at the GPU
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from conductor.strictyaml import source
from conductor.strictyaml.faults import Faults
from conductor.strictyaml.values import Section, Value

ID = re.compile(r"(?!conductor)[a-z0-9][a-z0-9._-]{0,62}")
PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ./:_@+-]{0,255}")
"""What may stand unquoted in YAML, and in an address."""
SOCKET = re.compile(r"/[A-Za-z0-9._/-]{1,100}")
SMALL_MODEL = "smollm2-135m"

Away = Literal["none", "air-gapped", "vendor"]


@dataclass(frozen=True)
class Listen:
    """Port 0: a Unix socket behind a TLS front. `clients` are ranges that may connect."""

    port: int = 0
    clients: tuple[str, ...] = ()


@dataclass(frozen=True)
class LocalModel:
    """A model server of the site's own on this machine, behind a Unix socket."""

    id: str
    unix: str
    model: str
    skill: float = 0.7
    output_tokens_per_s: float = 40.0
    context_tokens: int = 8192


@dataclass(frozen=True)
class Vendor:
    """A remote model. Its key is read from `key_file`, if one is named, and put among the
    credentials."""

    id: str
    provider: str
    model: str
    base_url: str = ""
    region: str = "eu"
    input_usd_per_mtok: float = 1.0
    output_usd_per_mtok: float = 4.0
    skill: float = 0.9
    output_tokens_per_s: float = 60.0
    key_file: str = ""


@dataclass(frozen=True)
class Answers:
    listen: Listen = Listen()
    workers: tuple[LocalModel, ...] = ()
    embedded: bool = True
    away: Away = "none"
    vendor: Vendor | None = None
    names: bool = False
    gpu: bool = False


def read_answers(path: Path) -> Answers:
    """Raises `ConfigError` with every fault."""
    faults = Faults()
    root = source.read(path, faults).root
    remote = root.find("remote")
    vendor = _vendor(remote.mapping()) if remote and remote.kind == "mapping" else None
    away = "vendor" if vendor else _away(remote)
    answers = Answers(
        listen=_listen(root.find("listen")),
        workers=tuple(_model(item.mapping()) for item in root.items("workers", ())),
        embedded=root.flag("embedded", Answers.embedded),
        away=away,
        vendor=vendor,
        names=root.flag("names", Answers.names),
        gpu=root.flag("gpu", Answers.gpu),
    )
    if not (answers.embedded or answers.workers or answers.vendor):
        root.fault("nobody", "no model would be there to answer: name one", "workers")
    root.done()
    faults.raise_any()
    return answers


def _away(value: Value | None) -> Away:
    if value is None:
        return "none"
    return "air-gapped" if value.choice(("none", "air-gapped")) == "air-gapped" else "none"


def _listen(value: Value | None) -> Listen:
    if value is None:
        return Listen()
    if value.kind == "scalar":
        value.choice(("socket",))
        return Listen()
    section = value.mapping()
    port = section.integer("port", low=1, high=65_535)
    ranges = [item.text() for item in section.items("clients", some=True)]
    for text in ranges:
        if problem := range_problem(text):
            section.fault("bad-value", problem, "clients")
    section.done()
    return Listen(port, tuple(ranges))


def range_problem(text: str) -> str:
    """Why a range of clients' addresses will not do; "" when it will."""
    try:
        found = ipaddress.ip_network(text)
    except ValueError:
        return "clients must be address ranges such as 192.0.2.0/24"
    if found.prefixlen == 0:
        return "everybody is no range: name the clients' networks, narrowly"
    if found.overlaps(ipaddress.ip_network("127.0.0.0/8" if found.version == 4 else "::1/128")):
        return "leave this machine itself out: what it could dial back to would be open"
    return ""


def _model(section: Section) -> LocalModel:
    name = section.text("id", pattern=ID, want="lower case letters, digits and '._-'")
    model = LocalModel(
        id=name,
        unix=section.text("unix", pattern=SOCKET, want="the path of a Unix socket"),
        model=section.text("model", name, pattern=PLAIN, want="a model's name"),
        skill=section.number("skill", LocalModel.skill, high=1.0),
        output_tokens_per_s=section.number("output_tokens_per_s", 40.0, low=0.1),
        context_tokens=section.integer("context_tokens", 8192, low=256),
    )
    section.done()
    return model


def _vendor(section: Section) -> Vendor:
    vendor = Vendor(
        id=section.text("id", "remote", pattern=ID, want="lower case letters, digits and '._-'"),
        provider=section.text("provider", pattern=PLAIN, want="a provider's name"),
        model=section.text("model", pattern=PLAIN, want="a model's name"),
        base_url=section.text("base_url", "", pattern=PLAIN, want="an address"),
        region=section.text("region", Vendor.region, pattern=PLAIN, want="a region"),
        input_usd_per_mtok=section.number("input_usd_per_mtok", Vendor.input_usd_per_mtok),
        output_usd_per_mtok=section.number("output_usd_per_mtok", Vendor.output_usd_per_mtok),
        skill=section.number("skill", Vendor.skill, high=1.0),
        output_tokens_per_s=section.number("output_tokens_per_s", 60.0, low=0.1),
        key_file=section.text("key_file", ""),
    )
    section.done()
    return vendor
