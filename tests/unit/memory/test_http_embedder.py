"""The embedder behind HTTP, against a server of its own: batches, order, failures, and the key."""

from __future__ import annotations

import json
import pickle
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.contracts.errors import MemoryFailed
from sessiontree.memory.http_embedder import ATTEMPTS, BACKOFF_S, HTTPEmbedder
from sessiontree.memory.settings import HTTPSettings
from tests.unit.memory.vector_server_fakes import Answer, Asked, VectorServer, honest, serving, vector_of

KEY = "sk-hush-4711"
WORDY = st.text(st.characters(codec="utf-8"), max_size=12)


@contextmanager
def embedding(
    server: VectorServer, pauses: list[float] | None = None, key: str | None = KEY, **settings: object
) -> Iterator[HTTPEmbedder]:
    """Make an embedder that asks a server; it writes its pauses down instead of waiting."""
    given = {"url": server.url, "model": "tiny", "dimensions": 3, "api_key_env": "THE_KEY", **settings}
    environment = {} if key is None else {"THE_KEY": key}
    written = [] if pauses is None else pauses
    embedder = HTTPEmbedder(HTTPSettings.model_validate(given), environment, wait=written.append)
    try:
        yield embedder
    finally:
        embedder.close()


def told(error: BaseException) -> str:
    """Return everything a log could hold of an error."""
    return "".join(traceback.format_exception(error)) + repr(error.args)


def test_texts_go_in_batches_and_come_back_in_order() -> None:
    """The server answers the last text first; each vector is still its own text's, and of unit length."""
    texts = [f"text {'x' * number}" for number in range(7)]
    with serving() as server, embedding(server, batch=3) as embedder:
        vectors = embedder.embed(texts)
    assert [len(asked.body["input"]) for asked in server.asked] == [3, 3, 1]
    assert {(asked.path, asked.key, asked.body["model"]) for asked in server.asked} == {
        ("/v1/embeddings", f"Bearer {KEY}", "tiny")
    }
    wanted = np.array([vector_of(text) for text in texts])
    np.testing.assert_allclose(vectors, wanted / np.linalg.norm(wanted, axis=1, keepdims=True), rtol=1e-6)
    assert vectors.dtype == np.float32


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[VectorServer, HTTPEmbedder]]:
    """One server, and who asks it two texts at a time, for many examples."""
    with serving() as server, embedding(server, batch=2) as embedder:
        yield server, embedder


@pytest.mark.slow
@given(texts=st.lists(WORDY, max_size=9))
def test_text_has_the_same_vector_in_any_company(
    served: tuple[VectorServer, HTTPEmbedder], texts: list[str]
) -> None:
    """Whatever is asked alongside it; blanks are not sent and are all zero."""
    server, embedder = served
    vectors = embedder.embed(texts)
    for text, vector in zip(texts, vectors, strict=True):
        np.testing.assert_array_equal(embedder.embed([text])[0], vector)
        assert vector.any() == bool(text.strip())
    assert all(text.strip() for asked in server.asked for text in asked.body["input"])
    server.asked.clear()


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/", "/v1/embeddings"])
def test_address_may_be_given_short_or_whole(path: str) -> None:
    """The server, its version, or the full address: the same is asked."""
    with serving() as server:
        server.url += path
        with embedding(server) as embedder:
            assert embedder.embed(["a text"]).any()
    assert [asked.path for asked in server.asked] == ["/v1/embeddings"]


@pytest.mark.parametrize("code", [408, 429, 500, 502, 503, 504])
def test_what_may_pass_is_tried_again(code: int) -> None:
    """A busy or broken server is asked again, each time after a longer pause, and then is believed."""
    failures = iter([Answer(b"busy", code)] * (ATTEMPTS - 1))
    pauses: list[float] = []
    with (
        serving(lambda asked: next(failures, honest(asked))) as server,
        embedding(server, pauses) as embedder,
    ):
        assert embedder.embed(["a text"]).any()
    assert pauses == [BACKOFF_S * 2**number for number in range(ATTEMPTS - 1)]


@pytest.mark.parametrize(
    ("said", "paused"),
    [("7", 7.0), ("0", 0.0), ("86400", 30.0), ("-1", BACKOFF_S), ("soon", BACKOFF_S), ("nan", BACKOFF_S)],
)
def test_server_may_say_how_long_it_wants_to_be_left_alone(said: str, paused: float) -> None:
    """Its wish counts, up to half a minute; what is no number of seconds does not."""
    failures = iter([Answer(b"", 429, {"Retry-After": said})])
    pauses: list[float] = []
    with (
        serving(lambda asked: next(failures, honest(asked))) as server,
        embedding(server, pauses) as embedder,
    ):
        assert embedder.embed(["a text"]).any()
    assert pauses == [paused]


def test_what_does_not_pass_is_given_up() -> None:
    """After a few attempts the error says what came, how often, and from where."""
    with serving(lambda _: Answer(b"busy", 503)) as server, embedding(server) as embedder:
        with pytest.raises(MemoryFailed, match=rf"tiny.*answered 503 in {ATTEMPTS} attempts") as caught:
            embedder.embed(["a text"])
        assert caught.value.place == f"{server.url}/v1/embeddings"
    assert len(server.asked) == ATTEMPTS


def test_nobody_at_home_is_a_typed_error() -> None:
    """A server that is gone: asked a few times, then reported."""
    with serving() as server:
        pass
    pauses: list[float] = []
    with embedding(server, pauses) as embedder, pytest.raises(MemoryFailed, match="no answer"):
        embedder.embed(["a text"])
    assert len(pauses) == ATTEMPTS - 1


def test_server_that_does_not_answer_in_time_is_given_up() -> None:
    """Neither silence nor half an answer holds anybody up."""
    over = threading.Event()

    def silent(asked: Asked) -> Answer:
        over.wait(60)
        return honest(asked)

    with serving(silent) as server, embedding(server, timeout_s=0.05) as embedder:
        try:
            with pytest.raises(MemoryFailed, match="no answer"):
                embedder.embed(["a text"])
        finally:
            over.set()


def test_half_an_answer_is_none() -> None:
    """A connection that ends midway is tried again, not believed."""
    halves = iter([Answer(b'{"data":[]}', cut=True)])
    with serving(lambda asked: next(halves, honest(asked))) as server, embedding(server) as embedder:
        assert embedder.embed(["a text"]).any()
    assert len(server.asked) == 2


def rows(*given: object) -> Callable[[Asked], Answer]:
    """Answer with these rows whatever is asked."""
    return lambda _: Answer(json.dumps({"data": list(given)}).encode())


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda _: Answer(b"<html>"), "is not valid"),
        (lambda _: Answer(b"[" * 100_000), "is not valid"),
        (lambda _: Answer(b"{}"), "is not valid"),
        (lambda _: Answer(b'{"data":null}'), "is not valid"),
        (rows({"index": 0, "embedding": 5}), "is not valid"),
        (rows({"index": 0, "embedding": ["a", "b", "c"]}), "is not valid"),
        (rows({"index": 0, "embedding": [1, 2, 3, 4]}), "sent 1 of 4;"),
        (rows({"index": 1, "embedding": [1, 2, 3]}), "sent 1 of 3;"),
        (rows(), "sent 0;"),
        (rows(*({"index": index, "embedding": [1, 2, 3]} for index in (0, 1))), "sent 2 of 3;"),
        (rows({"index": 0, "embedding": [1, 2, float("nan")]}), "not finite"),
        (rows({"index": 0, "embedding": [1, 2, 1e300]}), "not finite"),
        (lambda _: Answer(b" " * 3_000_000), "longer than"),
        (lambda _: Answer(b"", 302, {"Location": "http://127.0.0.1:1/"}), "302"),
        (lambda _: Answer(b"no such model", 404), "404: 'no such model'"),
    ],
)
def test_another_answer_is_a_typed_error(answer: Callable[[Asked], Answer], reason: str) -> None:
    """What is no list of fitting vectors is refused at once; a redirection is not followed with the key."""
    with serving(answer) as server, embedding(server) as embedder, pytest.raises(MemoryFailed, match=reason):
        embedder.embed(["a text"])
    assert len(server.asked) == 1


@pytest.mark.covers("REL-L68")
@pytest.mark.parametrize("code", [400, 401, 503])
def test_no_error_carries_the_key(code: int) -> None:
    """A server that quotes the key in its answer does not get it into an error, nor does the address."""
    quoting = Answer(f"the key {KEY} is wrong".encode(), code)
    with serving(lambda _: quoting) as server:
        server.url += f"/v1/embeddings?api-key={KEY}"
        with embedding(server) as embedder, pytest.raises(MemoryFailed) as caught:
            embedder.embed(["a text"])
    assert KEY not in told(pickle.loads(pickle.dumps(caught.value)))
    assert KEY not in told(caught.value)


@pytest.mark.parametrize("key", [None, "", "  ", f"{KEY}\nX-More: 1", f"{KEY}\N{EN DASH}"])
def test_missing_or_broken_key_names_its_variable(key: str | None) -> None:
    """It is read when it is used; what can be no header is not sent, and not shown."""
    with serving() as server, embedding(server, key=key) as embedder:
        with pytest.raises(MemoryFailed, match="THE_KEY") as caught:
            embedder.embed(["a text"])
        assert not server.asked
    assert KEY not in told(caught.value)


def test_server_without_a_key_is_sent_none() -> None:
    """Where no variable is named, no header goes out."""
    with serving() as server, embedding(server, api_key_env=None) as embedder:
        embedder.embed(["a text"])
    assert [asked.key for asked in server.asked] == [None]
