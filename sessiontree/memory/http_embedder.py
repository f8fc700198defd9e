"""The HTTP embedder: asks any server with OpenAI's ``/v1/embeddings``, such as Ollama, vLLM or a vendor.

Source: OpenAI's API reference, "Create embeddings": ``{"model", "input": [...]}`` is answered by
``{"data": [{"index", "embedding"}, ...]}``.
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NoReturn, TypeAlias
from urllib.parse import urlsplit, urlunsplit

import httpx
import numpy as np
from numpy.typing import NDArray

from sessiontree.contracts.errors import MemoryFailed
from sessiontree.memory.settings import HTTPSettings

Floats: TypeAlias = NDArray[np.float32]
Wait: TypeAlias = Callable[[float], object]

ATTEMPTS: Final = 4
BACKOFF_S: Final = 0.5
"""The pause after the first failure. It doubles with each further one, unless the server names a pause."""
MAX_BACKOFF_S: Final = 30.0
_RETRIED = frozenset((408, 429, 500, 502, 503, 504))
_NUMBER_BYTES, _SPARE_BYTES = 40, 1 << 20
"""The size limit of an answer: bytes for each number, and bytes for everything else."""
_TOLD_CHARS = 200


class _Passing(Exception):
    """An attempt failed for a reason that may be temporary."""

    def __init__(self, reason: str, after_s: float | None = None) -> None:
        super().__init__(reason)
        self.after_s = after_s


class HTTPEmbedder:
    """Asks a server for vectors, in batches. Blocks; several threads may call it.

    A blank text is not sent: its vector is all zero. The key is read from the environment at each call and
    never appears in an error. The identity consists of model and dimensions, so two servers of one model
    count as the same embedder.

    Args:
        settings: Address, model and limits.
        environment: Holds the key.
        wait: Waits this many seconds before the next attempt.
    """

    noise: Final = 0.2
    """Similarity that unrelated texts may have."""

    def __init__(
        self,
        settings: HTTPSettings,
        environment: Mapping[str, str] = os.environ,
        *,
        wait: Wait | None = None,
    ) -> None:
        self._settings = settings
        self._url, self._shown = _build_endpoint(settings.url)
        self._environment = environment
        self._wait = threading.Event().wait if wait is None else wait
        # A redirect would send the texts and the key to an address that the owner did not name.
        client = httpx.Client(timeout=settings.timeout_s, follow_redirects=False)
        self._client = client
        self.close = weakref.finalize(self, client.close)
        """Closes its connections; also runs when the embedder is garbage-collected."""
        self.identity: str = f"http-{settings.dimensions}-{settings.model}"
        self.dimensions: int = settings.dimensions

    def embed(self, texts: Sequence[str]) -> Floats:
        """Return one row for each text, (len, dimensions) float32: unit vectors, all zero for blank texts.

        Raises:
            MemoryFailed: the server cannot be reached, refuses, or sends an invalid answer.
        """
        vectors = np.zeros((len(texts), self.dimensions), np.float32)
        sent = [index for index, text in enumerate(texts) if text.strip()]
        for first in range(0, len(sent), self._settings.batch):
            places = sent[first : first + self._settings.batch]
            vectors[places] = self._ask([texts[place] for place in places])
        return vectors

    def _ask(self, texts: list[str]) -> Floats:
        key = self._read_key()
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._answer(texts, key)
            except _Passing as error:
                if attempt == ATTEMPTS:
                    self._fail(
                        f"{error} in {ATTEMPTS} attempts; check that it is running, or raise timeout_s"
                    )
                pause_s = BACKOFF_S * 2 ** (attempt - 1) if error.after_s is None else error.after_s
            self._wait(min(pause_s, MAX_BACKOFF_S))
        raise AssertionError("the last attempt returns or raises")

    def _answer(self, texts: list[str], key: str | None) -> Floats:
        body = {"model": self._settings.model, "input": texts}
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        try:
            with self._client.stream("POST", self._url, json=body, headers=headers) as response:
                data = self._read(response, len(texts))
        except httpx.TransportError as error:
            # the text of httpx's error may quote a header, and with it the key
            raise _Passing(f"no answer ({type(error).__name__})") from None
        if response.status_code in _RETRIED:
            raise _Passing(f"it answered {response.status_code}", _pause(response.headers))
        if response.status_code != httpx.codes.OK:
            told = data[:4_000].decode("utf-8", "replace")
            # A server may quote the request's headers in its answer.
            told = (told if key is None else told.replace(key, "***"))[:_TOLD_CHARS]
            self._fail(f"it answered {response.status_code}: {told!r}; check url, model and api_key_env")
        return self._parse_vectors(data, len(texts))

    def _read(self, response: httpx.Response, count: int) -> bytes:
        most = count * self.dimensions * _NUMBER_BYTES + _SPARE_BYTES
        # The client's own timeout counts from one piece to the next: a server that sends a byte now and then
        # would never reach it. The size is bounded for the same reason.
        deadline = time.monotonic() + self._settings.timeout_s
        data = bytearray()
        for chunk in response.iter_bytes():
            data += chunk
            if len(data) > most:
                self._fail(f"its answer is longer than {most} bytes for {count} texts; check url")
            if time.monotonic() > deadline:
                raise _Passing("no complete answer in time")
        return bytes(data)

    def _parse_vectors(self, data: bytes, count: int) -> Floats:
        """Return the vectors of an answer in the order of the texts."""
        try:
            rows = {int(row["index"]): row["embedding"] for row in json.loads(data)["data"]}
            lengths = {len(row) for row in rows.values()}
            if set(rows) != set(range(count)) or lengths != {self.dimensions}:
                sizes = f" of {', '.join(map(str, sorted(lengths)))}" if lengths else ""
                self._fail(
                    f"it should send {count} vectors of {self.dimensions} numbers and sent "
                    f"{len(rows)}{sizes}; check model and dimensions"
                )
            with np.errstate(over="ignore"):  # numbers that are too large are found below
                vectors = np.array([rows[index] for index in range(count)], np.float32)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            self._fail(f"its answer is not valid ({type(error).__name__}); check url")
        sizes = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not np.isfinite(sizes).all():
            self._fail("it sent a vector that is not finite; check model")
        units: Floats = vectors / np.maximum(sizes, np.finfo(np.float32).tiny)
        return units

    def _read_key(self) -> str | None:
        name = self._settings.api_key_env
        if name is None:
            return None
        key = self._environment.get(name, "").strip()
        if not key:
            self._fail(f"the environment variable {name} holds no key; set it, or leave out api_key_env")
        if not (key.isascii() and key.isprintable()):
            self._fail(f"the environment variable {name} holds characters that no key has; set it again")
        return key

    def _fail(self, reason: str) -> NoReturn:
        raise MemoryFailed(self._shown, f"embedding with {self._settings.model!r} failed: {reason}") from None


def _build_endpoint(url: str) -> tuple[str, str]:
    """Return the address, and the address as errors show it: without its query, which may hold a key."""
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    if not path.endswith("/embeddings"):
        path += "/embeddings" if path.endswith("/v1") else "/v1/embeddings"
    return urlunsplit(parts._replace(path=path, fragment="")), urlunsplit(
        parts._replace(path=path, query="", fragment="")
    )


def _pause(headers: Mapping[str, str]) -> float | None:
    """Return how many seconds a server asks callers to wait, or None."""
    try:
        after_s = float(headers.get("retry-after", ""))
    except ValueError:
        return None
    return after_s if math.isfinite(after_s) and after_s >= 0 else None
