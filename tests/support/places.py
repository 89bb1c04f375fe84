"""Where a secret can stand in a request, and in which disguise."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

Body = dict[str, Any]
Place = Callable[[str], Body]
"""From a secret to the fields of a request that hold it, beside `model` and `stream`."""

SECRETS = {
    "iban": "IT60X0542811101000000123456",
    "aws": "AKIAQ3EGRLTN7Y2MZPKD",
    "card": "4539578763621486",
    "email": "giulia.bianchi@example.org",
}
HARMLESS = "Wednesday"
"""Takes a secret's place in the twin of a request that may leave."""


def user(text: str) -> Body:
    return {"messages": [{"role": "user", "content": text}]}


def _talk(*messages: Body) -> Body:
    return {"messages": [*messages, {"role": "user", "content": "And now?"}]}


def _tool(function: Body) -> Body:
    tool = {"type": "function", "function": {"name": "pay", **function}}
    return {**user("Use the tool."), "tools": [tool]}


def _call(arguments: str) -> Body:
    calls = [{"id": "c1", "type": "function", "function": {"name": "pay", "arguments": arguments}}]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def _result(content: Any) -> Body:
    return {"role": "tool", "tool_call_id": "c1", "content": content}


def _schema(schema: Body) -> Body:
    named = {"name": "answer", "schema": schema}
    return {**user("Fill it in."), "response_format": {"type": "json_schema", "json_schema": named}}


def _function_call(arguments: str) -> Body:
    function_call = {"name": "pay", "arguments": arguments}
    return {"role": "assistant", "content": None, "function_call": function_call}


def halves(secret: str) -> tuple[str, str]:
    middle = len(secret) // 2
    return secret[:middle], secret[middle:]


def _parts(*texts: str) -> Body:
    parts = [{"type": "text", "text": text} for text in texts]
    return {"messages": [{"role": "user", "content": parts}]}


def _data_url(secret: str) -> Body:
    url = "data:text/plain;base64," + base64.b64encode(f"pay {secret} now".encode()).decode()
    return user(f"Read {url} and answer.")


PLACES: dict[str, Place] = {
    "user message": lambda s: user(f"Pay {s} please."),
    "end of a long message": lambda s: user("word " * 5000 + s),
    "first of many messages": lambda s: _talk(
        {"role": "user", "content": s}, *({"role": "assistant", "content": "yes"},) * 40
    ),
    "system prompt": lambda s: _talk({"role": "system", "content": f"The account is {s}."}),
    "developer message": lambda s: _talk({"role": "developer", "content": f"Account {s}"}),
    "assistant message": lambda s: _talk({"role": "assistant", "content": f"It is {s}."}),
    "refusal": lambda s: _talk({"role": "assistant", "refusal": f"Not {s}.", "content": None}),
    "name": lambda s: {"messages": [{"role": "user", "name": s, "content": "Hello"}]},
    "unknown message field": lambda s: {
        "messages": [{"role": "user", "content": "Hello", "note": s}]
    },
    "tool call arguments": lambda s: _talk(_call(json.dumps({"to": s})), _result("done")),
    "tool call arguments, two deep": lambda s: _talk(
        _call(json.dumps({"raw": json.dumps({"to": [s]})})), _result("done")
    ),
    "tool call id": lambda s: _talk({**_call("{}"), "tool_calls": [
        {"id": s, "type": "function", "function": {"name": "pay", "arguments": "{}"}}
    ]}, {**_result("done"), "tool_call_id": s}),
    "function call arguments": lambda s: _talk(_function_call(json.dumps({"to": s}))),
    "tool result": lambda s: _talk(_call("{}"), _result(f"paid to {s}")),
    "tool result as JSON": lambda s: _talk(_call("{}"), _result(json.dumps({"iban": s}))),
    "tool result as parts": lambda s: _talk(
        _call("{}"), _result([{"type": "text", "text": f"paid to {s}"}])
    ),
    "tool description": lambda s: _tool({"description": f"Pays {s}."}),
    "tool schema enum": lambda s: _tool(
        {"parameters": {"type": "object", "properties": {"to": {"enum": ["nobody", s]}}}}
    ),
    "tool schema key": lambda s: _tool(
        {"parameters": {"type": "object", "properties": {s: {"type": "string"}}}}
    ),
    "function description": lambda s: {
        **user("Use it."), "functions": [{"name": "pay", "description": f"Pays {s}."}]
    },
    "tool choice": lambda s: {
        **_tool({}), "tool_choice": {"type": "function", "function": {"name": s}}
    },
    "schema description": lambda s: _schema({"type": "string", "description": f"Like {s}"}),
    "schema default": lambda s: _schema({"type": "object", "properties": {"a": {"default": s}}}),
    "stop string": lambda s: {**user("Count."), "stop": s},
    "stop list": lambda s: {**user("Count."), "stop": ["END", s]},
    "prediction": lambda s: {
        **user("Rewrite."), "prediction": {"type": "content", "content": f"Pay {s}"}
    },
    "logit bias key": lambda s: {**user("Count."), "logit_bias": {s: 1}},
    "metadata": lambda s: {**user("Hello"), "metadata": {"account": s}},
    "metadata key": lambda s: {**user("Hello"), "metadata": {s: "account"}},
    "user": lambda s: {**user("Hello"), "user": s},
    "unknown field": lambda s: {**user("Hello"), "documents": [{"deep": [{"deeper": s}]}]},
    "unknown field's name": lambda s: {**user("Hello"), f"note {s}": True},
    "nested JSON, two deep": lambda s: user(json.dumps({"a": json.dumps({"b": s})})),
    "base64": lambda s: user("decode " + base64.b64encode(f"pay {s} now".encode()).decode()),
    "base64 of base64": lambda s: user(
        "decode " + base64.b64encode(base64.b64encode(f"pay {s} now".encode())).decode()
    ),
    "hexadecimal": lambda s: user("decode " + s.encode().hex()),
    "percent": lambda s: user("decode " + "".join(f"%{byte:02X}" for byte in s.encode())),
    "HTML entities": lambda s: user("decode " + "".join(f"&#{ord(c)};" for c in s)),
    "backslash escapes": lambda s: user("decode " + "".join(f"\\u{ord(c):04x}" for c in s)),
    "zero width": lambda s: user("Pay " + "\u200b".join(s) + " now"),
    "full width": lambda s: user(
        "Pay " + "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in s)
    ),
    "data URL": _data_url,
    "two text parts": lambda s: _parts("Pay " + halves(s)[0], halves(s)[1] + " now"),
    "one letter a part": lambda s: _parts(*s),
    "two messages": lambda s: {
        "messages": [{"role": "user", "content": half} for half in halves(s)]
    },
    "system and user message": lambda s: {
        "messages": [
            {"role": role, "content": half}
            for role, half in zip(("system", "user"), halves(s), strict=True)
        ]
    },
    "call and result": lambda s: {
        "messages": [
            {"role": "user", "content": "Look it up."},
            _call(halves(s)[0]),
            _result(halves(s)[1]),
        ]
    },
}  # fmt: skip
"""By name. With `HARMLESS` in the secret's place each of them may leave."""
