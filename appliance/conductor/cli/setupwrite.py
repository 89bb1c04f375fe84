"""Putting a first configuration in place: checked before it is written, never over another one."""

from __future__ import annotations

import hashlib
import os
import secrets
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from conductor.box.airgap import AIR_GAPPED
from conductor.box.command import Run
from conductor.box.machine import GPU_DROPIN
from conductor.box.modeswitch import switch
from conductor.box.place import Place
from conductor.box.sealing import sealed
from conductor.box.wholefile import READERS, put
from conductor.cli.mode import who_asks
from conductor.cli.setupanswers import SMALL_MODEL, Answers, Vendor
from conductor.cli.setupfiles import CREDENTIALS, LISTEN_DROPIN, composed, kept, listen_dropin
from conductor.config import load
from conductor.errors import ConfigError, StartError

FILES = ("appliance.yaml", "workers.yaml", "policy.yaml")


@dataclass(frozen=True)
class Done:
    """`key` is the first API key: it is kept nowhere."""

    key: str
    said: tuple[str, ...]


def set_up(place: Place, answers: Answers, run: Run, *, force: bool) -> Done:
    """Write everything. Raises `ConfigError` and `StartError`; then nothing has been written, but
    for what `OSError` says."""
    key = f"ck-{secrets.token_urlsafe(32)}"
    secret = _secret(answers.vendor) if answers.vendor else b""
    box = sealed(run, f"sealed_{answers.vendor.id}", secret) if answers.vendor else None
    texts = composed(
        answers,
        _templates(place),
        _sha256(key),
        pocket=_has_encoder(place),
        sealed=box is not None,
    )
    _check(texts)
    there = [name for name in FILES if (place.config / name).exists()]
    if there and not force:
        raise StartError(
            f"{place.named(place.config)} has a configuration ({', '.join(there)}): --force writes "
            "over it and keeps it beside"
        )
    said = [*_backed_up(place, there)]
    for name, text in texts.items():
        put(place.config / name, text.encode(), 0o640, READERS)
        said.append(f"wrote {place.named(place.config / name)}")
    said += _around(place, answers)
    if answers.vendor:
        said += _credential(place, answers.vendor, secret, box)
    if place.running:
        run(["systemctl", "daemon-reload"])
    if answers.away == AIR_GAPPED:
        said += switch(place, AIR_GAPPED, run, _now("%Y-%m-%dT%H:%M:%SZ"), who_asks(os.environ))
        said.append("this machine is air-gapped: see 'conductor mode'")
    said.append("administrators join the group conductor-admin: usermod -aG conductor-admin NAME")
    return Done(key, tuple(said))


def _templates(place: Place) -> dict[str, str]:
    folder = place.share / "configs"
    try:
        return {name: (folder / name).read_text("utf-8") for name in FILES}
    except OSError:
        raise StartError(f"{folder} is not whole: install the package again") from None


def _sha256(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def _has_encoder(place: Place) -> bool:
    from conductor.workers.catalogue import ENCODER_ID, load_catalogue, with_needed
    from conductor.workers.fetch import locate

    folder = place.at("/var/lib/conductor-models")
    needed = with_needed(load_catalogue(), ENCODER_ID)
    return all(locate(folder, model) is not None for model in needed)


def _check(texts: dict[str, str]) -> None:
    """Raises `ConfigError` for answers that no configuration can be made of, at their places in the
    files that are not written."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in texts.items():
            (Path(folder) / name).write_text(text, "utf-8")
        try:
            load(Path(folder))
        except ConfigError as error:
            named = [replace(fault, file=Path(fault.file).name) for fault in error.faults]
            raise ConfigError(named) from None


def _backed_up(place: Place, names: list[str]) -> Iterator[str]:
    stamp = _now("%Y%m%dT%H%M%SZ")
    for name in names:
        kept = place.config / f"{name}.bak-{stamp}"
        put(kept, (place.config / name).read_bytes(), 0o640, READERS)
        yield f"kept {place.named(kept)}"


def _around(place: Place, answers: Answers) -> Iterator[str]:
    """What stands around the configuration: listener, worker instances, credentials, devices."""
    dropin = place.overrides / LISTEN_DROPIN
    if answers.listen.port:
        put(dropin, listen_dropin(answers.listen).encode(), 0o644)
        yield f"applications connect to port {answers.listen.port}, without TLS"
    else:
        dropin.unlink(missing_ok=True)
        yield "applications connect to /run/conductor/api.sock: see examples for nginx with TLS"
    if answers.embedded:
        _enable(place, f"conductor-worker@{SMALL_MODEL}.service")
        yield f"conductor-worker@{SMALL_MODEL} starts with the appliance"
    if answers.gpu:
        example = place.share / "examples" / "planner-gpu.conf"
        put(place.overrides / GPU_DROPIN, example.read_bytes(), 0o644)
        yield "the planner's unit opens the GPU"


def _enable(place: Place, unit: str) -> None:
    """As `systemctl enable` does for an instance wanted by conductor.target."""
    link = place.overrides / "conductor.target.wants" / unit
    link.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    if not link.is_symlink():
        template = unit.partition("@")[0] + "@.service"
        link.symlink_to(f"/usr/lib/systemd/system/{template}")


def _secret(vendor: Vendor) -> bytes:
    """The vendor's key, on one line; nothing where it comes later."""
    if not vendor.key_file:
        return b""
    try:
        return Path(vendor.key_file).read_bytes().strip() + b"\n"
    except OSError as error:
        file = vendor.key_file
        raise StartError(f"the key cannot be read from {file}: {error.strerror}") from None


def _credential(place: Place, vendor: Vendor, secret: bytes, box: bytes | None) -> Iterator[str]:
    """`box` is the key encrypted for this machine. Without one it lies there for root alone: no
    weaker against whoever is root here, but readable on a stolen disk and in a backup."""
    path = place.config / CREDENTIALS / kept(sealed=box is not None) / vendor.id
    named = place.named(path)
    if secret:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        put(path, box or secret, 0o600)
        how = "encrypted for this machine" if box else "in the clear: there is no systemd-creds"
        yield f"put the vendor's key into {named}, {how}: remove {vendor.key_file}"
    elif box is not None:
        yield f"the vendor's key: systemd-creds encrypt --name=sealed_{vendor.id} FILE {named}"
    else:
        yield f"put the vendor's key into {named}, mode 0600"


def _now(form: str) -> str:
    return datetime.now(UTC).strftime(form)
