"""Names of models: what is missing is named in one line, and keys go where they were meant to."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import subprocess
import sys

import pytest

from sessiontree import ConfigError, ProviderModel
from sessiontree.models.api_key import get_key_text
from sessiontree.models.providers.provider_model import PROVIDERS
from sessiontree.testing.fake_provider.fake_server import FakeProvider
from sessiontree.version import explain_installation

PROGRAM = """
import json, os, sys
from sessiontree import ConfigError, ProviderModel
from sessiontree.models.providers.provider_model import PROVIDERS

def said(name, **given):
    try:
        model = ProviderModel(name, **given)
    except ConfigError as error:
        return str(error)
    return [model.base_url, None if model.key is None else model.key._text]

found = {"without": {name: said(f"{name}:m") for name in PROVIDERS}}
os.environ.update(OPENAI_API_KEY="k1", ANTHROPIC_API_KEY="k2", GEMINI_API_KEY="k3", MISTRAL_API_KEY=" ")
os.environ["OPENAI_BASE_URL"] = "http://proxy.example/v1"
found["with"] = {name: said(f"{name}:m") for name in PROVIDERS}
found["elsewhere"] = said("openai:m", base_url="http://127.0.0.1:1/v1")
os.environ["OPENAI_BASE_URL"] = "proxy.example"
found["no address"] = said("openai:m")
libraries = {"pydantic_ai", "openai", "anthropic", "mistralai", "httpx2", "google.genai"}
found["loaded"] = sorted(libraries & set(sys.modules))
sys.modules["mistralai"] = None
found["no extra"] = said("mistral:m", api_key="k")
print(json.dumps(found))
"""


def test_what_is_missing_is_named() -> None:
    """The variable, the extra or the address, in one line; a model that is named loads no library."""
    bare = {name: value for name, value in os.environ.items() if not name.endswith(("_API_KEY", "_BASE_URL"))}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=bare, capture_output=True, check=True)
    found = json.loads(done.stdout)
    for name, provider in PROVIDERS.items():
        said = found["without"][name]
        if provider.needs_key:
            assert said.startswith(f"{name} needs a key: set {' or '.join(provider.key_variables)}, or give")
            assert "\n" not in said
    assert found["without"]["ollama"] == ["http://localhost:11434/v1", None]
    assert found["with"]["openai"] == ["http://proxy.example/v1", "k1"]
    assert found["with"]["anthropic"] == ["", "k2"]
    assert found["with"]["google"] == ["", "k3"]
    assert "set MISTRAL_API_KEY" in found["with"]["mistral"]
    assert found["elsewhere"] == ["http://127.0.0.1:1/v1", None], "no key of the environment goes there"
    assert found["no address"].startswith("OPENAI_BASE_URL is 'proxy.example'; give an address")
    assert found["loaded"] == []
    assert found["no extra"].endswith(f"needs the extra 'mistral'; {explain_installation('mistral')}")


ELSEWHERE = """
import asyncio, sys
from sessiontree import ModelRequest, ProviderModel, SessionKind
from sessiontree.contracts.values.messages import TextContent, UserMessage

async def main():
    for name, url in zip(sys.argv[1::2], sys.argv[2::2]):
        model = ProviderModel(name, base_url=url, api_key="key-of-this-server")
        request = ModelRequest(
            "main", SessionKind.MAIN, 1, "", [], [UserMessage((TextContent("hi"),), 0)], None
        )
        async for _ in model.stream(request):
            pass
        await model.close()

asyncio.run(main())
"""
OF_THE_USER = {
    "OPENAI_API_KEY": "sentinel-openai-key",
    "OPENAI_ORG_ID": "sentinel-org",
    "OPENAI_PROJECT_ID": "sentinel-project",
    "OPENAI_ADMIN_KEY": "sentinel-admin",
    "OPENAI_CUSTOM_HEADERS": "X-Mine: sentinel-mine\nX-Other: sentinel-other",
    "ANTHROPIC_API_KEY": "sentinel-anthropic-key",
    "ANTHROPIC_AUTH_TOKEN": "sentinel-anthropic-token",
    "ANTHROPIC_CUSTOM_HEADERS": "X-Mine: sentinel-mine\nX-Other: sentinel-other",
    "GOOGLE_API_KEY": "sentinel-google-key",
    "GEMINI_API_KEY": "sentinel-gemini-key",
    "MISTRAL_API_KEY": "sentinel-mistral-key",
}


@pytest.mark.covers("PRV2")
@pytest.mark.slow
async def test_nothing_of_the_users_variables_goes_to_an_address_given_in_code() -> None:
    """Neither keys nor tokens, organisations or headers that providers' libraries read by themselves."""
    names = [f"{name}:m" for name in PROVIDERS]
    async with FakeProvider() as fake:
        asked = [part for name in names for part in (name, fake.url(name.partition(":")[0]))]
        program = await asyncio.create_subprocess_exec(
            sys.executable, "-c", ELSEWHERE, *asked, env={**os.environ, **OF_THE_USER}
        )
        assert await program.wait() == 0
    assert len(fake.requests) == len(names)
    for request in fake.requests:
        sent = " ".join(f"{name}: {value}" for name, value in request.headers.items())
        assert "sentinel" not in sent, request.path
        assert "key-of-this-server" in sent, request.path


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("gpt-5", {}, "write provider:model"),
        ("openai:", {}, "write provider:model"),
        ("anthropc:x", {}, "did you mean 'anthropic'"),
        ("openai:x", {"api_key": ""}, "api_key: give the provider's key"),
        ("openai:x", {"api_key": "two words"}, "api_key: give the provider's key"),
        ("openai:x", {"base_url": "ftp://host/"}, "base_url is 'ftp://host/'"),
        ("openai:x", {"base_url": "http://me:word@host/"}, "holds a user or a password"),
    ],
)
def test_name_that_is_no_good_says_what_to_write(name: str, options: dict[str, str], words: str) -> None:
    """The error says what would be accepted, and shows no password."""
    with pytest.raises(ConfigError, match=words) as caught:
        ProviderModel(name, **options)  # type: ignore[arg-type]
    assert "word@" not in str(caught.value)


def test_key_travels_as_a_reference() -> None:
    """A pickle holds no key; where it is opened in the same process it is the same key, and gone with it."""
    model = ProviderModel("openai:gpt-5", api_key="sk-of-a-test")
    data = pickle.dumps(model)
    assert b"sk-of-a-test" not in data
    assert "sk-of-a-test" not in repr(model)
    again = pickle.loads(data)
    assert again.key is model.key
    reference = model.key._reference if model.key is not None else ""
    assert get_key_text(reference) == "sk-of-a-test"
    del model, again
    assert get_key_text(reference) is None
