"""Question size: what a provider documents that it refuses is known before anything is sent."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import pytest

from sessiontree.contracts.errors import ContextOverflow
from sessiontree.contracts.values.messages import (
    AssistantMessage,
    ImageContent,
    Message,
    TextContent,
    ToolCall,
    UserMessage,
)
from sessiontree.models.providers.provider_failures import check_size
from sessiontree.models.providers.provider_model import PROVIDERS, ProviderModel
from tests.unit.models.test_provider_models import question

PICTURES = UserMessage((ImageContent("iVBORw0KGgo=", "image/png"),) * 4, 0)
LONG = UserMessage((TextContent("w" * 400),), 0)
CALL = AssistantMessage((ToolCall("c1", "read", {"where": "w" * 400}),))


@pytest.mark.parametrize(
    ("bounds", "message", "said"),
    [
        ({"most_images": 3}, PICTURES, "too many images: 4, and openai takes 3"),
        ({"most_images": 4}, PICTURES, ""),
        ({"most_bytes": 400}, LONG, "too large: 409 bytes, and openai takes 400"),
        ({"most_bytes": 409}, LONG, ""),
        ({"most_bytes": 400}, CALL, r"too large: 4\d\d bytes, and"),
        ({"most_bytes": 40}, PICTURES, "too large: 57 bytes, 48 of them images, and"),
        ({}, LONG, ""),
    ],
)
def test_what_a_provider_refuses_for_certain_is_an_overflow(
    bounds: dict[str, int], message: Message, said: str
) -> None:
    """Too many images or too many bytes; the limits of a server at another address are not known."""
    model = ProviderModel("openai:gpt-5", api_key="k")
    other = ProviderModel("openai:gpt-5", base_url="http://127.0.0.1:1/v1")
    for each in (model, other):
        each.provider = replace(
            each.provider, most_images=bounds.get("most_images"), most_bytes=bounds.get("most_bytes")
        )
    check_size(question(message), other)
    with pytest.raises(ContextOverflow, match=said) if said else nullcontext():
        check_size(question(message), model)


def test_limits_are_those_that_providers_document() -> None:
    """By provider: tools, images and bytes of one request; None = none is documented."""
    limits = {name: (each.most_tools, each.most_images, each.most_bytes) for name, each in PROVIDERS.items()}
    assert limits == {
        "openai": (128, 500, 50_000_000),
        "openai-responses": (128, 500, 50_000_000),
        "anthropic": (None, 600, 32_000_000),
        "google": (None, 3_600, 100_000_000),
        "mistral": (None, None, None),
        "ollama": (None, None, None),
    }
