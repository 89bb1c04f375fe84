"""What a finished training leaves: weights, cards, the record of its outcomes, a signed bundle.

    pocket.pt     weights and facts, for whoever goes on in torch
    cards.json    every training worker's card
    bundle/       what the appliance loads

Nothing here holds a question: the bundle knows its prompts by digests (`seen.py`), and their
sentence embeddings in half precision (`record.py`), which baselines are chosen on.
"""

from __future__ import annotations

import io
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import torch
from numpy.typing import NDArray

from conductor.planner import features
from conductor.planner.bundle import Bundle, open_bundle
from conductor.planner.encoder import WIDTH
from conductor.planner.facts import Domain, encode
from conductor.planner.facts import Facts as PlannerFacts
from conductor.planner.lexical import FEATURES
from conductor.planner.manifest import EncoderId, Provenance
from conductor.planner.trust import PURPOSE
from conductor.process.keyfiles import generate, load_private, public_pem
from conductor_build import curves, record
from conductor_build.baselines.plays import Prompts
from conductor_build.bundle import Facts, write_bundle
from conductor_build.cards import Cards
from conductor_build.files import replace_file
from conductor_build.outcomes import Table
from conductor_build.pocket.network import Pocket
from conductor_build.recipe import Recipe
from conductor_build.seen import PATH as SEEN
from conductor_build.seen import Seen
from conductor_build.sources import Sources

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

BUNDLE, KEY = "bundle", "signing.key"
LAST = 50
"""Iterations that the summary is a mean of."""

_FAMILIES = {
    "math": ("gsm", "math-l5", "gsm8k", "math", "agentverse-mgsm"),
    "code": ("crux", "mbpp", "human_eval"),
}
"""Domains that a card's skill in a family stands in for; every other is `general`."""


@dataclass(frozen=True, eq=False)
class Trained:
    """A training that is through. `features` [P, F] are the prompts of `table`."""

    recipe: Recipe
    pocket: Pocket
    cards: Cards
    table: Table
    sources: Sources
    features: NDArray[np.float64]
    encoder: EncoderId


def finish(
    trained: Trained, out: Path, key: Ed25519PrivateKey | None, versions: dict[str, str]
) -> Bundle:
    """Write everything, the bundle last. One that is there already was written by this training,
    and is opened."""
    signing = key or _own_key(out)
    facts, cards = facts_of(trained.recipe, trained.cards), _json(cards_of(trained.cards))
    buffer = io.BytesIO()
    torch.save({"state": trained.pocket.state_dict(), "facts": asdict(facts)}, buffer)
    replace_file(out / "pocket.pt", buffer.getvalue())
    replace_file(out / "cards.json", cards)
    if (out / BUNDLE).exists():
        return open_bundle(out / BUNDLE, [signing.public_key()])
    from conductor_build.pocket.export import export

    files: dict[str, bytes | Path] = {
        **export(trained.pocket, facts),
        SEEN: Seen.of(trained.sources.questions).to_bytes(),
        "pocket/cards.json": cards,
        record.PATH: record.encode(Prompts(trained.table, trained.features[:, :WIDTH])),
        f"report/{curves.LINES}": out / curves.LINES,
        f"report/{curves.PICTURE}": out / curves.PICTURE,
    }
    made = Provenance(
        recipe=trained.recipe.plain(),
        data=trained.sources.data,
        seed=trained.recipe.seed,
        versions=versions,
        summary=_summary(out),
    )
    return write_bundle(
        out / BUNDLE, files, Facts(features.FEATURES, trained.encoder, made), signing
    )


def facts_of(recipe: Recipe, cards: Cards) -> PlannerFacts:
    """What the engine has to know beside the network.

    Raises `BundleError` for what it could not read, such as a task's name.
    """
    measured, draw = cards.counts > 0, recipe.draw
    facts = PlannerFacts(
        sentence=WIDTH,
        lexical=FEATURES,
        domains=tuple(
            Domain(
                name=name,
                family=family(name),
                output_tokens=round(float(cards.tokens[measured[:, place], place].mean()), 3),
                level=round(float(cards.skill[measured[:, place], place].mean()), 6),
            )
            for place, name in enumerate(cards.domains)
        ),
        cost_weights=draw.weights,
        max_calls=draw.max_calls[1],
        max_rounds=draw.max_rounds[1],
    )
    encode(facts)
    return facts


def family(domain: str) -> str:
    """The kind of work a domain is: math, code or general."""
    return next((name for name, own in _FAMILIES.items() if domain in own), "general")


def cards_of(cards: Cards) -> dict[str, Any]:
    """Cards as JSON: facts of every worker, skill and output tokens by domain. None: not known."""

    def known(value: float) -> float | None:
        return round(float(value), 6) if np.isfinite(value) else None

    def by_domain(values: NDArray[np.float32]) -> dict[str, float | None]:
        return {name: known(value) for name, value in zip(cards.domains, values, strict=True)}

    return {
        name: {
            "local": bool(cards.local[place]),
            "params_b": known(cards.params_b[place]),
            "price": known(cards.price[place]),
            "skill": by_domain(cards.skill[place]),
            "output_tokens": by_domain(cards.tokens[place]),
            "outcomes": by_domain(cards.counts[place]),
        }
        for place, name in enumerate(cards.names)
    }


def _summary(out: Path) -> dict[str, float | str]:
    lines = curves.read_lines(out)
    last = lines[-LAST:]

    def mean(values: list[float]) -> float:
        return round(sum(values) / len(values), 4)

    return {
        "iterations": len(lines),
        "episodes": sum(line.episodes for line in lines),
        "minutes": round(sum(line.seconds for line in lines) / 60, 2),
        "reward": mean([line.reward for line in last]),
        "accuracy": mean([line.accuracy for line in last]),
        "cost_usd_per_1k": mean([line.cost_usd_per_1k for line in last]),
    }


def _own_key(out: Path) -> Ed25519PrivateKey:
    """A key for this training alone, made once."""
    private = out / KEY
    public = out / f"{KEY}.pub"
    if not (os.path.lexists(private) and os.path.lexists(public)):
        # A pair of which only one half was written was never used to sign anything.
        private.unlink(missing_ok=True)
        public.unlink(missing_ok=True)
        generate(private, public, PURPOSE)
    key = load_private(private, PURPOSE)
    replace_file(public, public_pem(key.public_key()))  # it may have been cut off half way
    return key


def _json(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2) + b"\n"
