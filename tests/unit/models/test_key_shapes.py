"""Keys of every shape are sent to their server and shown by nothing: errors, logs, ``repr``, pickles."""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import pickle
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator

import pytest
from ray import cloudpickle

from sessiontree import ConfigError, ModelError, ModelRequest, ProviderModel, SessionKind, UserMessage
from sessiontree.contracts.values.messages import TextContent
from sessiontree.models.answers import make_failure
from sessiontree.models.api_key import ApiKey
from sessiontree.models.port import StopPiece
from sessiontree.testing.fake_provider.fake_reply import FakeReply
from sessiontree.testing.fake_provider.fake_server import FakeProvider
from tests.unit.models.key_fixtures import KEYS, NO_KEYS, echo, shows, written
from tests.unit.models.test_provider_models import MODELS

LIMIT_CHARS = 1_000
"""Of a provider's words about a failure, an error holds so many."""


def question() -> ModelRequest:
    """Return any question."""
    return ModelRequest("main", SessionKind.MAIN, 1, "", (), [UserMessage((TextContent("Hi."),), 0)], None)


async def failures(provider: str, *, connect_each: bool = False) -> AsyncIterator[tuple[str, ModelError]]:
    """Yield, by shape of the key, how a server's refusal that repeats it becomes an error.

    Args:
        provider: Name of a provider.
        connect_each: Whether each key is sent, over a connection of its own, which takes time.
    """
    script = [FakeReply(status=401, error=echo(key)) for key in KEYS.values()]
    async with FakeProvider(script) as fake:
        model = ProviderModel(MODELS[provider], api_key=KEYS["OpenAI key"], base_url=fake.url(provider))
        for shape, key in KEYS.items():
            model.key = ApiKey.given(key, "test")
            with pytest.raises(ModelError) as caught:
                await anext(model.stream(question()))
            yield shape, caught.value
            if connect_each:
                await model.close()
        await model.close()
        if connect_each:
            sent = [request.headers["authorization"] for request in fake.requests]
            assert sent == [f"Bearer {key}" for key in KEYS.values()]


def test_shapes_are_many() -> None:
    """Thirty and more, none within another's text, and each is found however it is written."""
    assert len(KEYS) >= 30
    assert all(shows(f"so: {form}", key) for key in KEYS.values() for form in written(key))


@pytest.mark.short(1)
@pytest.mark.parametrize("provider", MODELS)
async def test_error_repeats_no_key(provider: str, caplog: pytest.LogCaptureFixture) -> None:
    """A server that repeats the key, in any writing, brings it into no error and no log."""
    caplog.set_level(logging.DEBUG)
    async for shape, error in failures(provider, connect_each=provider == "openai"):
        out = [
            *traceback.format_exception(error),
            repr(error),
            repr(error.__dict__),
            str(make_failure(error, "main")),
        ]
        assert [text for text in out if shows(text, KEYS[shape])] == [], shape
        assert len(KEYS[shape]) > LIMIT_CHARS or "bad key" in str(error), shape
    assert caplog.records, "there were logs to be looked through"
    assert [shape for shape, key in KEYS.items() if len(key) > 2 and shows(caplog.text, key)] == []


@pytest.mark.short(3)
@pytest.mark.parametrize("before", range(LIMIT_CHARS - 70, LIMIT_CHARS + 10, 10))
async def test_error_that_is_cut_holds_no_part_of_a_key(before: int) -> None:
    """Wherever a long text of a server is cut, no beginning of the key is left at its end."""
    key = KEYS["OpenAI key"]
    async with FakeProvider([FakeReply(status=401, error="." * before + key)]) as fake:
        model = ProviderModel("openai:m", api_key=key, base_url=fake.url("openai"))
        with pytest.raises(ModelError) as caught:
            await anext(model.stream(question()))
        await model.close()
    assert key[:4] not in str(caught.value)


@pytest.mark.short(2)
@pytest.mark.parametrize("provider", [name for name in MODELS if name != "mistral"])
async def test_refusal_repeats_no_key(provider: str) -> None:
    """Nor does the reason that a provider gives for a refused reply."""
    async with FakeProvider([FakeReply(refusal=echo(key)) for key in KEYS.values()]) as fake:
        model = ProviderModel(MODELS[provider], api_key="k", base_url=fake.url(provider))
        for shape, key in KEYS.items():
            model.key = ApiKey.given(key, "test")
            stops = [piece async for piece in model.stream(question()) if isinstance(piece, StopPiece)]
            assert [stop.reason for stop in stops] == ["refusal"]
            assert not shows(stops[0].detail, key), shape
        await model.close()


def test_key_is_in_no_text_and_no_copy() -> None:
    """Not in ``repr`` or ``str`` of what holds it, nor in a pickle of any protocol; a copy is the key."""
    for shape, key in KEYS.items():
        if len(key) < 3:
            continue  # such texts are in every pickle
        model = ProviderModel("openai:m", api_key=key, base_url="http://127.0.0.1:1/v1")
        assert model.key is not None
        shown = [
            f"{each!r} {each} {[each]}" for each in (model, model.key, vars(model), model.__getstate__())
        ]
        assert [text for text in shown if shows(text, key)] == [], shape
        pickles = [pickle.dumps(model, protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
        pickles.append(cloudpickle.dumps(model))  # type: ignore[no-untyped-call]
        for data in pickles:
            assert key.encode() not in data
            assert not shows(data.decode("latin-1"), key), shape
        assert copy.deepcopy(model).key is model.key
        assert pickle.loads(pickles[-1]).key is model.key


@pytest.mark.parametrize("shape", NO_KEYS)
def test_text_that_is_no_key_is_refused_and_not_shown(shape: str) -> None:
    """Such a key would break a header, or an error about the header would show it."""
    with pytest.raises(ConfigError, match="api_key: give the provider's key as text") as caught:
        ProviderModel("openai:m", api_key=NO_KEYS[shape])  # type: ignore[arg-type]
    assert "sentinel" not in "".join(traceback.format_exception(caught.value)).partition("Error: ")[2]


FROM_ENVIRONMENT = """
import json, sys
from sessiontree import ConfigError, ProviderModel

try:
    ProviderModel("anthropic:m")
except ConfigError as error:
    print(json.dumps(str(error)))
"""


@pytest.mark.parametrize("shape", ["space", "carriage return", "umlaut", "emoji"])
def test_variable_that_holds_no_key_is_named_and_not_shown(shape: str) -> None:
    """Of a key of the environment the error says which variable it is from."""
    done = subprocess.run(
        [sys.executable, "-c", FROM_ENVIRONMENT],
        env={"ANTHROPIC_API_KEY": str(NO_KEYS[shape]), "PYTHONUTF8": "1"},
        capture_output=True,
        check=True,
    )
    said = json.loads(done.stdout)
    assert said.startswith("ANTHROPIC_API_KEY: give the provider's key as text")
    assert b"sentinel" not in done.stdout + done.stderr


ADDRESSES = (
    "http://me:{}@host/v1",
    "http://{}@host/v1",
    "ftp://me:{}@host/v1",
    "me:{}@host/v1",
    "//me:{}@host",
    "http://host/v1?api_key={}",
    "http://host/v1#{}",
    "host/v1?key={}",
    "http://me:{}@[::1/v1",
)


@pytest.mark.parametrize("form", ADDRESSES)
def test_address_with_a_secret_is_refused_and_not_shown(form: str) -> None:
    """A name, a password or a query of an address would be shown wherever the address is."""
    for shape in ("OpenAI key", "secret in a setting", "percent", "double quote"):
        with pytest.raises(ConfigError, match=r"base_url holds a .*give the key as api_key") as caught:
            ProviderModel("openai:m", api_key="k", base_url=form.format(KEYS[shape]))
        assert not shows(str(caught.value), KEYS[shape])


@pytest.mark.parametrize("address", ["http://[::1", "http://host:99999/v1", "http://", "http://host:no/", 7])
def test_address_that_is_none_says_what_to_give(address: str) -> None:
    """Not with an error of the library that reads addresses."""
    with pytest.raises(ConfigError, match=r"base_url is .*; give an address such as"):
        ProviderModel("openai:m", api_key="k", base_url=address)


async def test_process_without_a_way_to_a_key_says_so() -> None:
    """What a host would do with a pickled key: it gets an error, and no text."""
    elsewhere = ApiKey(None, "of-no-process")
    with pytest.raises(ModelError, match="ask through the model gateway"):
        await asyncio.wait_for(elsewhere.text(), 5)
