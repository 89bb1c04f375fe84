"""Attacks by whoever the appliance talks to: vendors, local workers, a planner; and by clients that
send back what these have said.

Each function makes its attacks in an arena and returns when all are answered. `it.wrong` names
answers that held what their request had not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from support.attacks import MASKED, Arena
from support.attacks_disguises import DISGUISES
from support.attacks_secrets import KINDS, LETTERS
from support.configs import KEY, TRUSTED_KEY
from support.places import user
from support.planner import FakePlanner, http

TOKEN = re.compile("⟦[A-Z]+:[a-z]+⟧")
_REDACTIONS = (
    "redact q -\n{veiled} 0 -\n",
    "redact q -\n{veiled} 0 -\n{home} q,1 -\n",
    "{home} q -\nredact 0 -\n{veiled} 1 -\n",
    "{home} q -\nredact 0 -\n{veiled} 1 -\n{home} q,2 -\n",
    "{home} q -\nredact q,0 -\n{veiled} 1 -\n",
)
_LEAKY = (
    "{veiled} q -\n",
    "{home} q -\n{veiled} 0 -\n",
    "redact q -\n{veiled} q,0 -\n",
    "redact q -\n{veiled} 0 Mind {secret}.\n",
    "redact q -\n{veiled} 0 -\n{veiled} q,1 -\n",
    "{home} q Mind {secret}.\nredact 0 -\n{veiled} 0,1 -\n",
)


def _saying(text: str) -> Callable[[dict[str, Any]], str]:
    return lambda body: text


async def planned_redactions(it: Arena) -> None:
    """Plans by way of the step `redact`, good and bad ones, and what a worker at home adds."""
    for plan in (*_REDACTIONS, *_LEAKY):
        name = plan.replace("\n", " / ")
        for kind in KINDS:
            for stream in (False, True):
                secret, more = it.mint.make(kind), it.mint.make(kind)
                it.hide(f"{kind} by {name}", secret)
                it.hide(f"{kind} said at home by {name}", more)
                it.lines.say["home"] = _saying(f"It is {more.text}, and 5.")
                it.engine.script = [(plan.replace("{secret}", secret.text), False)]
                asked = {**user(f"Pay {secret.text} now"), "stream": stream}
                await it.send(asked, "conductor")
    it.engine.script.clear()
    it.lines.say.clear()


async def rounds(it: Arena) -> None:
    """A look at an answer from home that holds a secret, and a further round with a vendor."""
    further = ("{abroad} * -\n", "{abroad} q,0 -\n", "{abroad} 0 Mind it.\n", "{veiled} q -\n")
    for plan in further:
        for kind in KINDS:
            for question in ("Which is it?", None):
                secret = it.mint.make(kind)
                it.hide(f"{kind} heard, then {plan.strip()}", secret)
                said = f"It is {secret.text}."
                it.lines.say["home"] = _saying(said)
                it.engine.script = [("{home} q -\n", True), (plan, False)]
                await it.send(user(question or said), "conductor")
    it.engine.script.clear()
    it.lines.say.clear()


async def hostile_planner(it: Arena) -> None:
    """A planner that has seen another question puts its secret into instructions, in disguise."""
    planner = FakePlanner(None)
    kept, it.engine.script = it.engine.script, []
    async with planner.serving(it.box.site.appliance.paths.planner_socket):
        for kind in KINDS:
            for disguise, spell in DISGUISES.items():
                if "\n" in (told := spell(it.mint.make(kind).text)):
                    continue  # a plan has a line for each step
                secret = it.mint.make(kind)
                told = spell(secret.text)
                it.hide(f"{kind}, {disguise}, told by the planner", secret, told)
                plan = f"2 q Mind {told} and answer.\n"
                fields = {"plan": plan, "engine": "rogue", "alternates": [2, 3, 4, 5, 6]}
                reply = json.dumps({**fields, "look": False, "insight": None}).encode()
                planner.reply = http(reply)
                await it.send(user("What is the capital of Italy?"), "conductor")
    it.engine.script = kept


# -- labels that clients try to wash off ------------------------------------------------------

_QUOTED: dict[str, Callable[[str], str]] = {
    "whole": str,
    "a part of 100 letters": lambda s: _part(s, 100),
    "reflowed": lambda s: re.sub(r"(\S+ \S+ \S+) ", r"\1\n", s),
    "in capitals": str.upper,
    "as quotations": lambda s: "\n".join(f"> {line}" for line in s.split(" ")),
    "as a list": lambda s: "\n".join(f"* **{word}**" for word in s.split(" ")),
    "full of zero width": lambda s: "\u200b".join(s),
    "with typographic quotes": lambda s: f"\u201c{s}\u201d",
}
_BACK: dict[str, Callable[[str], dict[str, Any]]] = {
    "to be worked on": lambda s: user(f"Translate this: {s}"),
    "as history": lambda s: {"messages": [
        {"role": "user", "content": "Go on."}, {"role": "assistant", "content": s},
        {"role": "user", "content": "Translate it."}]},
    "as a system prompt": lambda s: {"messages": [
        {"role": "system", "content": s}, {"role": "user", "content": "Translate it."}]},
    "as two messages": lambda s: {"messages": [
        {"role": "user", "content": s[: len(s) // 2]},
        {"role": "user", "content": s[len(s) // 2 :]}]},
    "as parts": lambda s: {"messages": [{"role": "user", "content": [
        {"type": "text", "text": s[: len(s) // 2]}, {"type": "text", "text": s[len(s) // 2 :]}]}]},
    "as a tool's result": lambda s: {"messages": [
        {"role": "user", "content": "Look it up."},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c", "content": json.dumps({"text": s})}]},
    "as a call's arguments": lambda s: {"messages": [
        {"role": "user", "content": "Look it up."},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function",
            "function": {"name": "f", "arguments": json.dumps({"q": s})}}]},
        {"role": "tool", "tool_call_id": "c", "content": "done"}]},
    "as a tool's description": lambda s: {**user("Use it."), "tools": [
        {"type": "function", "function": {"name": "f", "description": s}}]},
    "as a schema": lambda s: {**user("Fill it in."), "response_format": {"type": "json_schema",
        "json_schema": {"name": "a", "schema": {"type": "string", "description": s}}}},
}  # fmt: skip


def _part(text: str, letters: int) -> str:
    """From the second word on, words with so many letters."""
    part: list[str] = []
    for word in text.split(" ")[1:]:
        if sum(map(len, part)) >= letters:
            break
        part.append(word)
    return " ".join(part)


async def washed_answers(it: Arena) -> None:
    """An answer to a sensitive question comes back, and is to go to a vendor."""

    async def learnt() -> str:
        phrase, mail = it.mint.make("phrase"), it.mint.make("email")
        it.lines.say["home"] = lambda body: phrase.text
        await it.send({**user(f"What of {mail.text}?"), "stream": it.made % 2 == 0}, "home")
        return phrase.text

    await _come_back(it, "an answer", ("floor", "shadowed"), learnt)
    it.lines.say.clear()


async def washed_documents(it: Arena) -> None:
    """A part of a document that came with a marking, or that a caller has labelled."""

    async def marked() -> str:
        phrase = it.mint.make("phrase").text
        await it.send(user(f"TLP:RED\n\n{phrase}\n"), "home")
        return phrase

    async def declared() -> str:
        phrase = it.mint.make("phrase").text
        labelled = {"x-conductor-label": "confidential"}
        await it.send(user(phrase), "home", key=TRUSTED_KEY, **labelled)
        return phrase

    everybody = ("floor", "shadowed", MASKED, "cut", "conductor")
    await _come_back(it, "a declared document", everybody, declared)
    await _come_back(it, "a marked document", ("floor", "shadowed"), marked)


async def _come_back(
    it: Arena, what: str, towards: Sequence[str], learnt: Callable[[], Any]
) -> None:
    for how, quote in _QUOTED.items():
        for place, back in _BACK.items():
            text = quote(await learnt())
            name = f"{what}, {how}, {place}"
            it.made += 1
            it.oracle.seek(name, _part(re.sub("[^a-z ]", "", text.lower()), 40), text)
            for worker in towards:
                await it.send(back(text), worker, key=KEY)


# -- tokens -----------------------------------------------------------------------------------


async def forged_tokens(it: Arena) -> None:
    """A client writes tokens: guesses, those of an earlier request, mangled ones."""
    values, tokens = [], []
    for kind in ("iban", "email", "card", "id"):
        secret = it.mint.make(kind)
        it.hide(f"{kind} behind a token", secret)
        values.append(secret.text)
        before = len(it.box.vendor.requests)
        await it.send(user(f"Pay {secret.text} now"), MASKED)
        for request in it.box.vendor.requests[before:]:
            tokens += TOKEN.findall(request.body.decode())
    kinds = ("IBAN", "EMAIL", "CARD", "ID")
    guesses = [f"⟦{kind}:{letter * 6}⟧" for kind in kinds for letter in LETTERS[:3]]
    mangled = [
        one
        for t in tokens
        for one in (t.upper(), t.replace(":", " : "), t[:-2] + "x⟧", t[:-2] + "⟧")
    ]
    for written in (*tokens, *guesses, *mangled):
        for worker in (MASKED, "conductor", "home"):
            own = it.mint.make("iban")
            it.hide(f"beside {written}", own)
            for stream in (False, True):
                body = {**user(f"What of {written} and {own.text}?"), "stream": stream}
                answer = await it.send(body, worker)
                if any(value in answer.text for value in values):
                    it.wrong.append(f"{written} at {worker}")


async def hostile_vendor(it: Arena) -> None:
    """A vendor that answers with tokens: seen earlier, guessed, of another kind, cut anywhere."""
    seen: list[str] = []
    earlier: list[str] = []

    def says(body: dict[str, Any]) -> Any:
        here = TOKEN.findall(json.dumps(body, ensure_ascii=False))
        seen.extend(here)
        guesses = [f"⟦{kind}:{one[-7:-1]}⟧" for one in here for kind in ("IBAN", "EMAIL", "ID")]
        text = " ".join([*seen[-8:], *guesses])
        arguments = json.dumps({"to": [*seen[-8:], *guesses]}, ensure_ascii=it.lines.cut % 2 == 0)
        call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
        return {"content": text, "tool_calls": [call]}

    it.lines.say["abroad"] = says
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    for cut in (1, 2, 3, 5, 7, 13, 29, 1000):
        it.lines.cut = cut
        for stream in (False, True):
            for kind in ("iban", "email", "card", "id"):
                secret = it.mint.make(kind)
                it.hide(f"{kind} at a vendor that cuts by {cut}", secret)
                body = {**user(f"Pay {secret.text} now"), "stream": stream, "tools": [tool]}
                answer = await it.send(body, MASKED)
                if any(value in answer.text for value in earlier):
                    it.wrong.append(f"{kind}, cut {cut}, stream {stream}: of another request")
                if answer.text.count(secret.text) < 2:
                    what = f"own value not restored ({answer.status})"
                    it.wrong.append(f"{kind}, cut {cut}, stream {stream}: {what}")
                earlier.append(secret.text)
    it.lines.say.clear()
    it.lines.cut = 3


async def tokens_between_steps(it: Arena) -> None:
    """What one vendor was shown as a token, another step must not get as a value."""
    plans = (
        "{abroad} q -\n{veiled} 0 -\n",
        "{abroad} q -\nredact 0 -\n{veiled} 1 -\n",
        "redact q -\n{veiled} 0 -\n{veiled} 1 -\n",
        "redact q -\n{veiled} 0 -\n{abroad} q,1 -\n",
        "redact q -\n{veiled} 0 -\nredact 1 -\n{veiled} 2 -\n",
    )
    it.lines.say["abroad"] = lambda body: " ".join(
        TOKEN.findall(json.dumps(body, ensure_ascii=False))
    )
    for plan in plans:
        for kind in ("iban", "email", "card", "id"):
            for stream in (False, True):
                secret = it.mint.make(kind)
                it.hide(f"{kind}, {plan}", secret)
                it.engine.script = [(plan, False)]
                await it.send({**user(f"Pay {secret.text} now"), "stream": stream}, "conductor")
    it.engine.script.clear()
    it.lines.say.clear()
