"""`workers.yaml`: the models that steps can be given to, and how each is reached.

A worker has exactly one way of being reached: `embedded` (run by the appliance itself), `unix` or
`tcp` (a server on this machine), or `remote` (a vendor, through egress). The first three need a
destination of kind `local`, the last one of kind `remote`: a local worker can never leave the box,
since its address is a socket or a literal loopback address.

`cards: FILE` beside `workers` names what `conductor-build probe` measured: it counts in place of
the `card` of a worker that is in it, which then may be left out.
"""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import cast, get_args
from urllib.parse import urlsplit

from conductor.appliancefile import Base, read_socket_path
from conductor.core import (
    VERBOSITY,
    Card,
    CardSource,
    Destination,
    Price,
    RemoteEndpoint,
    SecretRef,
    TcpEndpoint,
    UnixEndpoint,
    Worker,
    WorkerLimits,
)
from conductor.labels import Clearance
from conductor.policy.document import Policy
from conductor.policy.vocabulary import read_clearance
from conductor.process.unixsocket import MAX_PATH_BYTES
from conductor.secretrefs import read_ref
from conductor.strictyaml.values import REQUIRED, Required, Section, Unique, Value
from conductor.workers.cardsfile import NONE, Cards, CardsError, read_cards

WAYS = ("embedded", "unix", "tcp", "remote")

_ID = re.compile(r"(?!conductor)[a-z0-9]([a-z0-9._/-]{0,62}[a-z0-9._-])?")
_ID_IN_WORDS = (
    "lower case letters, digits and '._/-', at most 64, not starting with 'conductor' or ending "
    "with a slash, which an address may or may not have"
)
_EMBEDDED = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_TCP = re.compile(r"(?:\[([0-9a-f:]+)\]|([0-9.]+|localhost)):([1-9][0-9]{0,4})")
_BASE_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)*")
_PROVIDER = re.compile(r"[a-z][a-z0-9_]{0,31}")
_DOMAIN = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_ENTIRE_URL = re.compile(r"https?://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._~/-]*)?")

_NOWHERE = Destination("", "local", Clearance(0), {}, "")
"""Stands in for a destination that has been reported as faulty."""
_NO_CARD = Card({}, 1.0, "declared")
"""Likewise for a card that the faulty file of cards might have had."""


def read_pool(root: Section, policy: Policy | None, base: Base) -> tuple[Worker, ...]:
    """Every worker. Without a policy, which then has been reported, no destination is looked up."""
    ids = Unique()
    workers = []
    cards = _cards(root, base)
    for item in root.items("workers", some=True):
        section = item.mapping()
        workers.append(_worker(section, policy, base, cards))
        ids.check(section, "id", workers[-1].id)
    root.done()
    return tuple(workers)


def cards_path(root: Section, base: Base) -> Path | None:
    """The file of measured cards that `workers.yaml` names; None: it names none."""
    value = root.find("cards")
    return None if value is None else base.root / value.text()


def _cards(root: Section, base: Base) -> Cards | None:
    """What was measured; None when that cannot be used, which has been reported."""
    path = cards_path(root, base)
    try:
        return NONE if path is None else read_cards(path)
    except CardsError as error:
        root.fault("bad-cards", str(error), "cards")
        return None


def _worker(section: Section, policy: Policy | None, base: Base, cards: Cards | None) -> Worker:
    name = section.text("id", pattern=_ID, want=_ID_IN_WORDS)
    destination = _destination(section, policy)
    way = section.exactly_one(*WAYS)
    embedded = section.text("embedded", None, pattern=_EMBEDDED, want="a catalogue id")
    if way:
        _match(section, way, destination, base)
    model = section.text("model") if embedded is None else section.text("model", embedded)
    worker = Worker(
        id=name,
        model=model,
        destination=destination,
        clearance=_clearance(section, destination, policy),
        endpoint=_endpoint(section, way, name, base),
        card=_card(section, name, model, cards),
        price=_price(section.mapping("price", optional=way != "remote"), local=way != "remote"),
        limits=_limits(section.mapping("limits", optional=True)),
        embedded_model=embedded,
        threads=section.integer("threads", 1, low=1, high=256) if embedded else 1,
    )
    section.done()
    return worker


def _destination(section: Section, policy: Policy | None) -> Destination:
    value = section.require("destination")
    if value is None or policy is None:
        return _NOWHERE
    name = value.choice(policy.destinations, "unknown-destination")
    return policy.destinations.get(name, _NOWHERE)


def _match(section: Section, way: str, destination: Destination, base: Base) -> None:
    """A worker must be where its destination says that it is."""
    wanted = "remote" if way == "remote" else "local"
    if destination.kind and destination.kind != wanted and destination is not _NOWHERE:
        message = f"{way!r} needs a destination of kind {wanted}, this one is {destination.kind}"
        section.fault("wrong-destination", message, way)
    if way == "remote" and base.mode == "local-only":
        message = "appliance.yaml says mode: local-only; remove this worker, or say connected there"
        section.fault("local-only", message, way)


def _clearance(section: Section, destination: Destination, policy: Policy | None) -> Clearance:
    """The destination's; a worker's own only narrows it."""
    if section.find("clearance") is None or policy is None:
        return destination.clearance
    own = read_clearance(section.mapping("clearance"), policy.lattice)
    return destination.clearance.meet(own)


def _endpoint(
    section: Section, way: str, name: str, base: Base
) -> UnixEndpoint | TcpEndpoint | RemoteEndpoint:
    if way == "remote":
        return _remote(section.mapping("remote"), base)
    if way == "embedded":
        return _embedded(section, name, base)
    base_path = section.text("base_path", "/v1", pattern=_BASE_PATH, want="a path such as /v1")
    value = section.find(way) if way else None
    if value is None:
        return UnixEndpoint(base.paths.run, base_path)
    if way == "unix":
        return UnixEndpoint(read_socket_path(value, base.root), base_path)
    return TcpEndpoint(*_loopback(value, base), base_path)


def _embedded(section: Section, name: str, base: Base) -> UnixEndpoint:
    if "/" in name:
        section.fault("bad-value", "an embedded worker's id may not hold '/'", "id")
    path = base.paths.worker_socket(name)
    if len(bytes(path)) > MAX_PATH_BYTES:
        message = "its socket 'workers/<id>.sock' below paths.run would have too long a path"
        section.fault("bad-value", message, "id")
    return UnixEndpoint(path)


def _loopback(value: Value, base: Base) -> tuple[str, int]:
    """`127.0.0.1:8000` or `[::1]:8000`, and not one of the appliance's own ports."""
    host, port = "127.0.0.1", 0
    text = value.text()
    if not text:
        return host, port
    found = _TCP.fullmatch(text)
    if found:
        host, port = found[1] or found[2].replace("localhost", host), int(found[3])
    try:
        good = ipaddress.ip_address(host).is_loopback and 0 < port < 65_536
    except ValueError:
        good = False
    if not good:
        value.fault(
            "not-loopback",
            "tcp must be a loopback address and a port, 127.0.0.1:8000 or [::1]:8000: a local "
            "worker cannot be on another machine",
        )
    if port in (base.api.port, base.api.admin_port) and port:
        value.fault("own-port", "this is the appliance itself: it would call itself for ever")
    return host, port


def _remote(section: Section, base: Base) -> RemoteEndpoint:
    base_url = section.find("base_url")
    key = section.require("key")
    reference = read_ref(key, base.root) if key else None
    endpoint = RemoteEndpoint(
        provider=section.text("provider", pattern=_PROVIDER, want="a provider's name"),
        base_url=_url(base_url) if base_url else None,
        key=reference or SecretRef("env", ""),
    )
    section.done()
    return endpoint


def _url(value: Value) -> str:
    """An https URL; plain http only to this machine."""
    text = value.text(_ENTIRE_URL, "an https:// URL without user, query or fragment")
    if not text:
        return ""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or port == 0:
        value.fault("bad-value", "base_url has no valid host and port")
        return ""
    if parts.scheme == "http" and not _is_loopback(host):
        value.fault("not-https", "base_url must be https, except on a loopback address")
    return text.rstrip("/")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _card(section: Section, name: str, model: str, cards: Cards | None) -> Card:
    """The measured one, else the one that stands here, which then has to."""
    measured = cards.workers.get(name) if cards else None
    if measured and model and measured.model != model:
        section.fault(
            "bad-cards",
            "this worker was measured with another model: run `conductor-build probe` again",
            "model",
        )
    found = measured.card if measured else None
    needed = cards is not None and found is None
    if not needed and "card" not in section:
        return found or _NO_CARD
    declared = _declared(section.mapping("card"))
    return found or declared


def _declared(section: Section) -> Card:
    skills = section.mapping("skill")
    skill = {}
    for domain, position, value in skills.entries():
        if not _DOMAIN.fullmatch(domain):
            skills.fault("bad-name", "a domain is a lower case word", position)
        skill[domain] = value.number(0.0, 1.0)
    if skills.empty and "skill" in section:
        section.fault("bad-value", "skill needs at least one domain, such as general", "skill")
    card = Card(
        skill=skill,
        output_tokens_per_s=section.number("output_tokens_per_s", low=0.001, high=1e6),
        source=cast(CardSource, section.choice("source", get_args(CardSource), "declared")),
        verbosity=section.number("verbosity", Card.verbosity, low=VERBOSITY[0], high=VERBOSITY[1]),
    )
    section.done()
    return card


def _price(section: Section, *, local: bool) -> Price:
    """Required of remote workers: one that seems free would pass every budget."""
    default: float | Required = 0.0 if local else REQUIRED
    price = Price(
        section.number("input_usd_per_mtok", default, high=1e6),
        section.number("output_usd_per_mtok", default, high=1e6),
    )
    section.done()
    return price


def _limits(section: Section) -> WorkerLimits:
    def seconds(key: str, default: float) -> float:
        return section.number(key, default, low=0.001, high=86_400.0)

    limits = WorkerLimits(
        max_in_flight=section.integer("max_in_flight", WorkerLimits.max_in_flight, low=1),
        max_queued=section.integer("max_queued", WorkerLimits.max_queued),
        queue_wait_s=section.number("queue_wait_s", WorkerLimits.queue_wait_s, high=86_400.0),
        context_tokens=section.integer("context_tokens", WorkerLimits.context_tokens, low=1),
        max_output_tokens=section.integer(
            "max_output_tokens", WorkerLimits.max_output_tokens, low=1
        ),
        connect_s=seconds("connect_s", WorkerLimits.connect_s),
        first_byte_s=seconds("first_byte_s", WorkerLimits.first_byte_s),
        idle_s=seconds("idle_s", WorkerLimits.idle_s),
        total_s=seconds("total_s", WorkerLimits.total_s),
    )
    section.done()
    return limits
