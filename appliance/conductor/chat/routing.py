"""The fields by which a client could try to choose where its request goes, or to weaken a check.

They are those that gateways and client libraries are known to obey. Here they are taken out of
every request, recorded and never obeyed: where data goes is the policy's decision alone.
"""

from __future__ import annotations

_ROUTING_FIELDS = frozenset(
    {
        # other models
        "models",
        "model_list",
        "model_info",
        "fallbacks",
        "fallback_models",
        "default_fallbacks",
        "context_window_fallbacks",
        "content_policy_fallbacks",
        "disable_fallbacks",
        # other places
        "api_base",
        "base_url",
        "api_type",
        "api_version",
        "provider",
        "providers",
        "custom_llm_provider",
        "deployment",
        "deployment_id",
        "engine",
        "organization",
        "project",
        "region",
        "region_name",
        "route",
        "routes",
        "router",
        "routing",
        "order",
        "target",
        "targets",
        "destination",
        "worker",
        "workers",
        # other credentials, headers, bodies
        "api_key",
        "user_config",
        "headers",
        "extra_headers",
        "default_headers",
        "extra_body",
        "extra_query",
        "extra_params",
        "client",
        "proxy",
        "proxies",
        "ssl_verify",
        # another way of trying
        "timeout",
        "stream_timeout",
        "request_timeout",
        "force_timeout",
        "retries",
        "num_retries",
        "max_retries",
        "retry_policy",
        "cache",
        "caching",
        "mock_response",
        "mock_tool_calls",
        "mock_timeout",
        # weaker checks
        "label",
        "clearance",
        "permit",
        "plan",
        "guardrail",
        "guardrails",
        "tags",
        "no_log",
        "drop_params",
        "additional_drop_params",
        "allowed_openai_params",
        "plugins",
        "preset",
        "transforms",
        # a local server's own ways out
        "kv_transfer_params",
        "lora_request",
        # a local server's own state, shared with other callers
        "cache_prompt",
        "id_slot",
        "slot_id",
        "lora",
        "cache_salt",
    }
)
_ROUTING_PREFIXES = ("litellm_", "aws_", "azure_", "vertex_", "x_", "conductor", "portkey_")


def routing_field(name: str) -> str | None:
    """How to record `name` when it tries to choose a route, else None.

    A name that only starts like one is recorded by its beginning: the rest is the client's text.
    """
    plain = name.lower().replace("-", "_")
    if plain in _ROUTING_FIELDS:
        return plain
    return next((prefix + "*" for prefix in _ROUTING_PREFIXES if plain.startswith(prefix)), None)
