"""Redacting: nothing known and nothing of a known shape is left, wherever it was, and twice is once."""

from __future__ import annotations

import base64
import json
import pickle
import string
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sessiontree import Artifact, ConfigError, Redact
from sessiontree.contracts.tools.hooks import KeptResult
from sessiontree.contracts.values.jsonable import dump_json, dump_readable
from sessiontree.contracts.values.messages import TextContent
from sessiontree.hooks.redact import MARK, SHAPES
from tests.unit.hooks.secret_fixtures import SAMPLES

ALPHABET = string.ascii_letters + string.digits + "-_=:./@?&\"'\\ \n‹›äé"
TEXTS = st.text(st.one_of(st.sampled_from(ALPHABET), st.characters()), max_size=60)
SECRETS = st.text(st.sampled_from(string.ascii_letters + string.digits + '-"\\/ é'), min_size=6, max_size=14)
FRAGMENTS = st.sampled_from(
    [each for form, secret in SAMPLES.values() for each in (form, secret, form.format(secret))]
)
MIXES = st.lists(st.one_of(TEXTS, FRAGMENTS), max_size=6).map("".join)
Clean = Callable[[Redact, str], str]


def test_there_are_more_than_thirty_shapes_and_a_sample_of_each() -> None:
    """Nobody adds a shape without showing what it finds."""
    assert [name for name, _ in SHAPES] == list(SAMPLES)
    assert len(SAMPLES) >= 30


@pytest.mark.covers("REL-L68")
@pytest.mark.parametrize("name", SAMPLES)
def test_each_shape_is_found_wherever_it_stands(name: str) -> None:
    """In the middle of a sentence, in JSON, at either end, alongside itself."""
    form, secret = SAMPLES[name]
    written = form.format(secret)
    redact = Redact()
    for text in (written, f"before {written} after", f"({written})", f"{written} {written}"):
        assert secret not in redact.text(text), text
        assert MARK in redact.text(text)
    escaped = json.dumps({"status": "error", "error": f"it said {written}"})
    cleaned = redact.text(escaped)
    assert json.dumps(secret)[1:-1] not in cleaned
    assert set(json.loads(cleaned)) == {"status", "error"}


@pytest.mark.parametrize("name", SAMPLES)
def test_shape_itself_finds_its_sample(name: str) -> None:
    """No sample is found only because another shape holds it."""
    form, secret = SAMPLES[name]
    assert dict(SHAPES)[name].search(form.format(secret)) is not None


@pytest.mark.parametrize(
    "text",
    [
        "the tokens of a sentence, and a secret garden",
        "def token(self): return self.kind",
        "https://example.org/a?page=2&sort=name#key",
        "the basic understanding of bearer instruments",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "monkey-business, whiskey-bar",
    ],
)
def test_plain_words_stay(text: str) -> None:
    """What only speaks of secrets is not one."""
    assert Redact().text(text) == text


def no_secret_is_left(clean: Clean, text: str, secrets: list[str]) -> None:
    """P48: nothing registered is in what comes out, and doing it again changes nothing."""
    redact = Redact(secrets)
    cleaned = clean(redact, text)
    assert not [secret for secret in secrets if secret in cleaned], cleaned
    assert clean(redact, cleaned) == cleaned


@pytest.mark.covers("Z5", "REL-P48")
@given(st.lists(SECRETS, max_size=4), st.data())
def test_nothing_registered_is_left_and_twice_is_once(secrets: list[str], data: st.DataObject) -> None:
    """Secrets that overlap, that hold each other, that stand alongside what looks like one."""
    assume(not any(secret in MARK for secret in secrets))
    parts = st.one_of(TEXTS, FRAGMENTS, st.sampled_from(secrets) if secrets else TEXTS)
    text = "".join(data.draw(st.lists(parts, max_size=8)))
    no_secret_is_left(Redact.text, text, secrets)


def _only_first(redact: Redact, text: str) -> str:
    known = redact._known
    return text if known is None else known.sub(MARK, text, count=1)


def _without_mark(redact: Redact, text: str) -> str:
    known = redact._known
    return text if known is None else known.sub("", text)


@pytest.mark.covers("REL-P48")
@pytest.mark.parametrize("planted", [_only_first, _without_mark])
def test_planted_bug_is_found(planted: Clean) -> None:
    """The first hit alone; or secrets cut out so that what is left closes up to another."""
    with pytest.raises(AssertionError):
        no_secret_is_left(planted, "abcdef abcabcdefdef", ["abcdef"])


def test_one_pass_is_not_enough() -> None:
    """What was next to a secret is one itself once that is gone; so it goes on until nothing changes."""
    text = SAMPLES["Mailgun key"][1] + SAMPLES["GitHub token"][1]
    assert Redact().text(text) == MARK * 2


@given(SECRETS)
def test_known_secrets_are_found_as_they_are_written_elsewhere(secret: str) -> None:
    """Escaped in JSON of either kind, percent-encoded, in base64."""
    assume(secret not in MARK)
    redact = Redact([secret], shapes=False)
    encoded = base64.b64encode(secret.encode()).decode()
    for form in (dump_json(secret), dump_readable(secret), quote(secret, safe=""), encoded):
        assert form.strip('"=') not in redact.text(f"<{form}>")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 10**12) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@given(JSON, st.lists(st.one_of(SECRETS, st.integers(10**6, 10**12).map(str)), max_size=3), st.data())
def test_details_hold_none_in_texts_keys_or_numbers(
    value: Any, secrets: list[str], data: st.DataObject
) -> None:
    """Nor do artifacts, nor what the model gets."""
    assume(not any(secret in MARK for secret in secrets))
    planted = data.draw(st.sampled_from([*secrets, "nothing"]))
    details: Any = {
        "display": f"x{planted}x",
        planted: [value, {"deep": planted}],
        "n": int(planted) if planted.isdigit() else 0,
    }
    artifacts = (Artifact("reference", planted, uri=f"x:{planted}", data=planted, path=planted),)
    kept = KeptResult("1", "t", (TextContent(f"a{planted}b"),), details, is_error=False, artifacts=artifacts)
    cleaned = Redact(secrets).tool_result_persist(kept)
    everything = f"{cleaned.content} {dump_readable(cleaned.details)} {cleaned.artifacts}"
    for secret in secrets:
        assert json.dumps(secret, ensure_ascii=False)[1:-1] not in everything
    assert Redact(secrets).tool_result_persist(cleaned) == cleaned


def test_members_named_after_secrets_lose_their_value() -> None:
    """Whatever it looks like; other members stay."""
    value = Redact().value({"password": "x", "api_key": 12, "tokens": 3, "token": True, "name": "y"})
    assert value == {"password": MARK, "api_key": MARK, "tokens": 3, "token": True, "name": "y"}


@pytest.mark.parametrize("secret", ["", "short", "redacted", "with‹mark", 7])
def test_secret_that_cannot_be_taken_out_is_refused(secret: Any) -> None:
    """And the refusal does not quote it."""
    with pytest.raises(ConfigError) as refused:
        Redact(["something else", secret])
    assert "secret 1" in str(refused.value)
    assert "with‹mark" not in str(refused.value)


def test_redactor_travels_and_shows_nothing() -> None:
    """Its repr is silent; its copy knows the same."""
    redact = Redact(["hush-hush"])
    assert "hush" not in repr(redact)
    assert pickle.loads(pickle.dumps(redact)).text("hush-hush") == MARK


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit", ["-----BEGIN " + "PRIVATE KEY-----", "://a:", "password=", "eyJaaaaaaaa.", "a" * 40 + " "]
)
def test_it_takes_time_in_proportion_to_the_text(unit: str) -> None:
    """400,000 characters that begin like a secret again and again: less of a processor than its time-out."""
    text = (unit * (400_000 // len(unit)))[:400_000]
    started = time.process_time()
    Redact(["hush-hush"]).text(text)
    assert time.process_time() - started < Redact.timeout_s
