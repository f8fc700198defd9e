"""An embedder behind HTTP: any server with OpenAI's ``/v1/embeddings``, such as Ollama, vLLM or a vendor.

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
"""After the first failure; twice as long after each further one, unless the server says how long."""
MAX_BACKOFF_S: Final = 30.0
_RETRIED = frozenset((408, 429, 500, 502, 503, 504))
_NUMBER_BYTES, _SPARE_BYTES = 40, 1 << 20
"""Most an answer may take: for each number, and besides."""
_TOLD_CHARS = 200


class _Passing(Exception):
    """An attempt failed in a way that may pass."""

    def __init__(self, reason: str, after_s: float | None = None) -> None:
        super().__init__(reason)
        self.after_s = after_s


class HTTPEmbedder:
    """Asks a server for vectors, some texts at a time. Blocks; may be called from several threads.

    A text of blanks alone is not sent: its vector is all zero. The key is read from the environment at each
    call, and stands in no error. Its identity is model and dimensions: two servers of one model are alike.

    Args:
        settings: Address, model and limits.
        environment: Where the key is read.
        wait: Waits a number of seconds before a further attempt.
    """

    def __init__(
        self,
        settings: HTTPSettings,
        environment: Mapping[str, str] = os.environ,
        *,
        wait: Wait | None = None,
    ) -> None:
        self._settings = settings
        self._url, self._shown = _endpoint(settings.url)
        self._environment = environment
        self._wait = threading.Event().wait if wait is None else wait
        client = httpx.Client(timeout=settings.timeout_s, follow_redirects=False)
        self._client = client
        self.close = weakref.finalize(self, client.close)
        """Closes its connections; also done when nobody holds it any more."""
        self.identity: str = f"http-{settings.dimensions}-{settings.model}"
        self.dimensions: int = settings.dimensions

    def embed(self, texts: Sequence[str]) -> Floats:
        """Return one row a text, (len, dimensions) float32, unit vectors but for blank texts.

        Raises:
            MemoryFailed: the server can't be reached, refuses, or answers with something else.
        """
        vectors = np.zeros((len(texts), self.dimensions), np.float32)
        sent = [index for index, text in enumerate(texts) if text.strip()]
        for first in range(0, len(sent), self._settings.batch):
            places = sent[first : first + self._settings.batch]
            vectors[places] = self._ask([texts[place] for place in places])
        return vectors

    def _ask(self, texts: list[str]) -> Floats:
        key = self._key()
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._answer(texts, key)
            except _Passing as error:
                if attempt == ATTEMPTS:
                    self._fail(f"{error}, {ATTEMPTS} times; look whether it is up, or raise timeout_s")
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
            # what httpx tells may quote a header
            raise _Passing(f"no answer ({type(error).__name__})") from None
        if response.status_code in _RETRIED:
            raise _Passing(f"it answered {response.status_code}", _pause(response.headers))
        if response.status_code != httpx.codes.OK:
            told = data[:4_000].decode("utf-8", "replace")
            told = (told if key is None else told.replace(key, "***"))[:_TOLD_CHARS]
            self._fail(f"it answered {response.status_code}: {told!r}; look at url, model and api_key_env")
        return self._vectors(data, len(texts))

    def _read(self, response: httpx.Response, count: int) -> bytes:
        most = count * self.dimensions * _NUMBER_BYTES + _SPARE_BYTES
        deadline = time.monotonic() + self._settings.timeout_s
        data = bytearray()
        for chunk in response.iter_bytes():
            data += chunk
            if len(data) > most:
                self._fail(f"its answer is longer than {most} bytes for {count} texts; look at url")
            if time.monotonic() > deadline:
                raise _Passing("no whole answer in time")
        return bytes(data)

    def _vectors(self, data: bytes, count: int) -> Floats:
        """Return the vectors of an answer in the order of the texts, whatever order they came in."""
        try:
            rows = {int(row["index"]): row["embedding"] for row in json.loads(data)["data"]}
            lengths = {len(row) for row in rows.values()}
            if set(rows) != set(range(count)) or lengths != {self.dimensions}:
                self._fail(
                    f"{count} texts of {self.dimensions} numbers were asked for, {len(rows)} of "
                    f"{', '.join(map(str, sorted(lengths)))} came; look at model and dimensions"
                )
            with np.errstate(over="ignore"):  # what is too large for a vector is found below
                vectors = np.array([rows[index] for index in range(count)], np.float32)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            self._fail(f"its answer is none ({type(error).__name__}); look at url")
        sizes = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not np.isfinite(sizes).all():
            self._fail("a vector is not finite; look at model")
        units: Floats = vectors / np.maximum(sizes, np.finfo(np.float32).tiny)
        return units

    def _key(self) -> str | None:
        name = self._settings.api_key_env
        if name is None:
            return None
        key = self._environment.get(name, "").strip()
        if not key:
            self._fail(f"the environment variable {name} holds no key; set it, or leave out api_key_env")
        if not (key.isascii() and key.isprintable()):
            self._fail(f"the environment variable {name} holds what can be no key; set it anew")
        return key

    def _fail(self, reason: str) -> NoReturn:
        raise MemoryFailed(self._shown, f"embedding with {self._settings.model!r} failed: {reason}") from None


def _endpoint(url: str) -> tuple[str, str]:
    """Return the address to ask, and as errors show it: a query behind it may hold a key."""
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    if not path.endswith("/embeddings"):
        path += "/embeddings" if path.endswith("/v1") else "/v1/embeddings"
    return urlunsplit(parts._replace(path=path, fragment="")), urlunsplit(
        parts._replace(path=path, query="", fragment="")
    )


def _pause(headers: Mapping[str, str]) -> float | None:
    """Return the seconds a server asks to be left alone; None where it names none."""
    try:
        after_s = float(headers.get("retry-after", ""))
    except ValueError:
        return None
    return after_s if math.isfinite(after_s) and after_s >= 0 else None
