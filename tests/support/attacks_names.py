"""Attacks with names and addresses of people, which a small model finds: most of them, never all.

Its recall is measured elsewhere (`test_names.py`). The names here are ones that it knows in a plain
sentence; what is tried is whether one of them arrives by way of another place, or of a part of it.
"""

from __future__ import annotations

from support.attacks import ABROAD, EVERYBODY, Arena
from support.attacks_secrets import Secret
from support.places import PLACES, user

SENTENCES = {
    "Margherita Bellandi": "Il paziente {} è stato ricoverato ieri, scrivi alla famiglia.",
    "Thomas Schneider": "Der Patient {} wurde gestern entlassen, bitte den Brief schreiben.",
    "Geneviève Lacombe": "La patiente {} a été admise hier, rédigez la lettre.",
    "Inmaculada Zurbarán": "La paciente {} ingresó ayer, redacte la carta.",
    "Rosalind Hathersage": "The patient {} was admitted yesterday, write to the family.",
    "Bartholomew Quennell": "Please draft a letter to {} about the invoice.",
}
_AROUND = (
    "user message",
    "system prompt",
    "assistant message",
    "developer message",
    "tool result",
    "tool result as JSON",
    "tool call arguments",
    "tool description",
    "schema description",
    "two text parts",
    "nested JSON, two deep",
    "stop string",
)


async def names(it: Arena) -> None:
    """Sentences with a name, in many places, towards everybody."""
    attacks = []
    for number, (name, sentence) in enumerate(SENTENCES.items()):
        for row, place in enumerate(_AROUND):
            workers = (*EVERYBODY, *ABROAD)
            worker = workers[(number + row) % len(workers)]
            it.hide(f"{name}, {place}, {worker}", Secret("person", name))
            body = PLACES[place](sentence.format(name))
            attacks.append(lambda body=body, worker=worker: it.send(body, worker))
        for worker in ("masked", "cut", "conductor"):
            it.hide(f"{name}, twice, {worker}", Secret("person", name))
            text = f"{sentence.format(name)}\n\n{name.split()[1]}, {name.upper()}"
            attacks.append(lambda text=text, worker=worker: it.send(user(text), worker))
    await it.all(attacks)
