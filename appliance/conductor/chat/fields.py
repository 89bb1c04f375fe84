"""The top-level fields of a chat completion request, and what each may hold.

Fields unknown here go on to local workers unseen, never to remote ones. Source: the OpenAI API
reference for chat completions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from conductor.core import Body
from conductor.errors import BadRequest

MAX_CHOICES = 8
MAX_TOOLS = 512

REMOTE_FIELDS = frozenset(
    {
        # what is asked
        "messages",
        "tools",
        "tool_choice",
        "functions",
        "function_call",
        "parallel_tool_calls",
        "response_format",
        # how to sample
        "temperature",
        "top_p",
        "n",
        "seed",
        "stop",
        "max_tokens",
        "max_completion_tokens",
        "logit_bias",
        "presence_penalty",
        "frequency_penalty",
        "logprobs",
        "top_logprobs",
        "reasoning_effort",
    }
)
"""What may leave for a vendor, besides `model`, `stream` and `stream_options`, which are ours.
Who asks (`user`, `metadata`, `safety_identifier`) and what to keep (`store`) stay here."""


WORDLESS_FIELDS = frozenset(
    {"temperature", "top_p", "seed", "presence_penalty", "frequency_penalty"}
)
"""What of a request holds numbers alone, and says nothing of what is asked."""


def check_fields(body: Body) -> None:
    """Check every known top-level field but `messages`. None counts as not given.

    Raises:
        BadRequest: with `param` naming the field.
    """
    for name, value in body.items():
        check = _CHECKS.get(name)
        if check is not None:
            check(name, value)
    if body.get("stream_options") is not None and not body.get("stream"):
        raise invalid("stream_options", "is only allowed when 'stream' is true")
    if body.get("top_logprobs") is not None and not body.get("logprobs"):
        raise invalid("top_logprobs", "needs 'logprobs' to be true")


def invalid(param: str, what: str) -> BadRequest:
    """The 400 for a field that holds the wrong thing. `what` never repeats the value."""
    return BadRequest(f"'{param}' {what}.", param=param, code="invalid_value")


def _text(param: str, value: Any) -> None:
    if not isinstance(value, str):
        raise invalid(param, "must be a string")


def _model(param: str, value: Any) -> None:
    if not isinstance(value, str) or not 0 < len(value) <= 256 or not value.isprintable():
        raise invalid(param, "must be a string of 1 to 256 printable characters")


def _flag(param: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise invalid(param, "must be true or false")


def _number(low: float, high: float, param: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise invalid(param, f"must be a number from {low:g} to {high:g}")


def _integer(low: int, high: int, param: str, value: Any) -> None:
    if type(value) is not int or not low <= value <= high:
        raise invalid(param, f"must be an integer from {low} to {high}")


def _object(param: str, value: Any) -> None:
    if not isinstance(value, dict):
        raise invalid(param, "must be an object")


def _stop(param: str, value: Any) -> None:
    items = [value] if isinstance(value, str) else value
    if (
        not isinstance(items, list)
        or len(items) > 16
        or not all(isinstance(item, str) for item in items)
    ):
        raise invalid(param, "must be a string or a list of up to 16 strings")


def _stream_options(param: str, value: Any) -> None:
    _object(param, value)
    if value.get("include_usage") is not None:
        _flag(f"{param}.include_usage", value["include_usage"])


def _logit_bias(param: str, value: Any) -> None:
    _object(param, value)
    if len(value) > 1024:
        raise invalid(param, "may name up to 1024 tokens")
    for bias in value.values():
        _number(-100, 100, param, bias)


def _response_format(param: str, value: Any) -> None:
    _object(param, value)
    kind = value.get("type")
    if kind not in ("text", "json_object", "json_schema"):
        raise invalid(f"{param}.type", "must be 'text', 'json_object' or 'json_schema'")
    if kind == "json_schema":
        schema = value.get("json_schema")
        if not isinstance(schema, dict) or not isinstance(schema.get("name"), str):
            raise invalid(f"{param}.json_schema", "must be an object with a 'name'")


def _tools(param: str, value: Any) -> None:
    for place, tool in enumerate(_objects(param, value)):
        if not isinstance(tool.get("type"), str):
            raise invalid(f"{param}[{place}].type", "must be a string, such as 'function'")
        if tool["type"] == "function":
            _function(f"{param}[{place}].function", tool.get("function"))


def _functions(param: str, value: Any) -> None:
    for place, function in enumerate(_objects(param, value)):
        _function(f"{param}[{place}]", function)


def _function(param: str, value: Any) -> None:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise invalid(param, "must be an object with a 'name'")


def _objects(param: str, value: Any) -> list[Body]:
    if not isinstance(value, list) or len(value) > MAX_TOOLS:
        raise invalid(param, f"must be a list of up to {MAX_TOOLS} objects")
    for place, item in enumerate(value):
        _object(f"{param}[{place}]", item)
    return value


def _choice(param: str, value: Any) -> None:
    if not isinstance(value, str | dict):
        raise invalid(param, "must be a string or an object")


_CHECKS: Mapping[str, Callable[[str, Any], None]] = {
    "model": _model,
    "stream": _flag,
    "stream_options": _stream_options,
    "n": partial(_integer, 1, MAX_CHOICES),
    "max_tokens": partial(_integer, 1, 10_000_000),
    "max_completion_tokens": partial(_integer, 1, 10_000_000),
    "temperature": partial(_number, 0, 2),
    "top_p": partial(_number, 0, 1),
    "presence_penalty": partial(_number, -2, 2),
    "frequency_penalty": partial(_number, -2, 2),
    "seed": partial(_integer, -(1 << 63), (1 << 63) - 1),
    "logprobs": _flag,
    "top_logprobs": partial(_integer, 0, 20),
    "logit_bias": _logit_bias,
    "stop": _stop,
    "response_format": _response_format,
    "tools": _tools,
    "functions": _functions,
    "tool_choice": _choice,
    "function_call": _choice,
    "parallel_tool_calls": _flag,
    "reasoning_effort": _text,
    "user": _text,
}
