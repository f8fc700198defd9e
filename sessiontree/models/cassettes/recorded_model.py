"""A model whose replies are recorded once, and come from a file ever after: tests without a provider.

Not here: the file (``cassette``), and what two requests have in common (``seen_request``).
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
import os
import re
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final, TypeAlias

from sessiontree.contracts.errors import (
    ConfigError,
    ContextOverflow,
    ModelBusy,
    ModelError,
    ModelKeyRefused,
    ModelUnreachable,
)
from sessiontree.hooks.redact import LEAST_CHARS, Redact
from sessiontree.models.answers import check_reply
from sessiontree.models.cassettes.cassette import Cassette, Exchange, add_exchanges
from sessiontree.models.cassettes.piece_forms import decode_pieces, encode_pieces, split_message
from sessiontree.models.cassettes.seen_request import build_seen_request, find_first_difference, find_nearest
from sessiontree.models.fallback_model import FallbackModel
from sessiontree.models.port import Model, ModelRequest, Piece, get_model_name
from sessiontree.models.providers.provider_model import LOCAL, ProviderModel

RecordableModel: TypeAlias = "Model | str | Sequence[Model | str]"
"""A model, a provider's model by name, or a list of them: if one fails, the next is asked."""
_FAILURES: Final = {
    kind.__name__: kind
    for kind in (ModelError, ModelBusy, ModelUnreachable, ModelKeyRefused, ContextOverflow)
}
_UNTRUSTED_MARK: Final = re.compile(r'(?<=EXTERNAL_UNTRUSTED_CONTENT id=)\\*"[0-9a-f]{16}\\*"')
"""The random number in the marks of text from outside."""
_IGNORED: Final = "…"


class RecordedModel:
    """A model whose replies are in a file, called a cassette: recorded once, replayed strictly.

    Replaying asks nobody and needs no key. A question is found by what a model sees: system prompt, tools,
    settings, result schema and conversation, without ids, times and usages. A question that is not in the
    file is an error. If one was recorded several times, its replies come in turn; then the last one repeats.

    Recording asks the model and adds each reply to the file before the session gets it: pieces, thoughts,
    calls, usage and failures, without secrets. What is in the file stays there, except for the replies to a
    question that is asked again: the new ones replace them. Several sessions, trees and processes may record
    to one file. A reply that was interrupted is not recorded.

    Args:
        path: The file, in JSON lines; only its owner may read it. A relative path begins at the working
            directory of this process.
        model: The model that is asked while recording: a model, its name, or a list of both. Replaying uses
            only its name; None = the only model of the file.
        record: True = record; False = replay; None = record if the file does not exist now.
        ignoring: Regular expressions. What they match, such as a date or a temporary directory, differs from
            run to run and does not count when questions are compared.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        model: RecordableModel | None = None,
        *,
        record: bool | None = None,
        ignoring: Sequence[str] = (),
    ) -> None:
        """Read the file, or make the model that is asked.

        Raises:
            ConfigError: the file is missing, is not a cassette, or holds no reply of the model; no model to
                record is given; or a pattern is not valid.
        """
        self._path = Path(os.path.realpath(path))
        self._ignored = _compile_patterns(ignoring)
        self._is_recording = not self._path.exists() if record is None else record
        self._model: Any = None
        self._cassette: Cassette | None = None
        self._keys: list[str] = []
        if self._is_recording:
            if model is None:
                raise ConfigError(f"cassette {self._path}: give the model to record, as model=…")
            self._model = _make_model(model)
            self.name = get_model_name(self._model)
            self.context_tokens: int | None = getattr(self._model, "context_tokens", None)
        else:
            if not self._path.exists():
                raise ConfigError(
                    f"cassette {self._path} does not exist; record it: RecordedModel(…, model=…, record=True)"
                )
            self._cassette = Cassette.read(self._path)
            self.name = _name_in(self._cassette, self._path, model)
            self.context_tokens = self._cassette.models[self.name]
        self._begin()

    def _begin(self) -> None:
        self._times: Counter[str] = Counter()
        """How often each question was asked."""
        self._pending: list[Exchange] = []
        self._writing: asyncio.Lock | None = None
        self._replaced: set[str] = set()
        """Questions whose earlier replies were removed from the file."""
        self._by_question: dict[str, list[Exchange]] | None = None

    def __repr__(self) -> str:
        """Return the name, the file, and what is done with it."""
        return f"RecordedModel({str(self._path)!r}, {self.name!r}, record={self._is_recording})"

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without what was asked so far."""
        return {
            name: getattr(self, name)
            for name in (
                "_path",
                "_ignored",
                "_is_recording",
                "_model",
                "_cassette",
                "name",
                "context_tokens",
            )
        }

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Begin with no question asked."""
        self.__dict__.update(state)
        self._begin()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Piece]:
        """Yield the pieces recorded for ``request``; while recording, yield the model's and record them.

        Raises:
            ModelError: the file has no reply to this question; shows the nearest one.
            ModelError: the model failed, now or when it was recorded; or the reply can't be recorded.
        """
        pieces = self._record(request) if self._is_recording else self._replay(request)
        async with aclosing(pieces):
            async for piece in pieces:
                yield piece

    async def close(self) -> None:
        """Close the connections of the model that is asked."""
        close = getattr(self._model, "close", None)
        if close is not None:
            await close()

    async def _replay(self, request: ModelRequest) -> AsyncGenerator[Piece]:
        exchange = self._exchange_for(request)
        for piece in decode_pieces(exchange.reply, f"cassette {self._path}, line {exchange.line}"):
            yield piece
        if exchange.failure is not None:
            raise _decode_failure(exchange.failure)

    async def _record(self, request: ModelRequest) -> AsyncGenerator[Piece]:
        redact = await self._redact()
        seen = redact.value(
            build_seen_request(request)
        )  # now: the conversation may grow while the model speaks
        heard: list[Piece] = []
        failure: ModelError | None = None
        try:
            async with aclosing(_ask_model(self._model, request)) as pieces:
                async for piece in pieces:
                    heard.append(piece)
                    yield piece
        except ModelError as error:
            failure = error
        # Only here, after the reply's end: a reply that was interrupted raises something else and is not
        # recorded.
        reply = encode_pieces(heard, redact)
        assert isinstance(seen, dict)  # noqa: S101 - of an object without secrets
        await self._save(Exchange(self.name, seen, reply, _encode_failure(failure, redact)))
        if failure is not None:
            raise failure

    async def _redact(self) -> Redact:
        """Return what removes secrets: those known by their shape, and the keys of the model."""
        keys = [
            key for each in _list_asked_models(self._model) if (key := getattr(each, "key", None)) is not None
        ]
        texts = [await key.text() for key in keys]
        return Redact(text for text in texts if len(text) >= LEAST_CHARS)

    async def _save(self, exchange: Exchange) -> None:
        """Add an exchange to the file; several that end at once are written together."""
        self._pending.append(exchange)
        if self._writing is None:
            self._writing = asyncio.Lock()
        async with self._writing:
            added, self._pending = self._pending, []
            # Several replies end while one turn writes, and the next turn takes all of them in one rewrite of
            # the file.
            if not added:
                return  # another question's turn wrote it
            new = {_dump_question(each): {"model": each.model, "request": each.request} for each in added}
            replaced = [question for text, question in new.items() if text not in self._replaced]
            sizes = {self.name: self.context_tokens}
            try:
                await asyncio.to_thread(add_exchanges, self._path, sizes, added, replaced)
            except (OSError, ConfigError) as error:
                # Kept in front, so that the next turn writes them in the order in which they were asked.
                self._pending[:0] = added
                raise ModelError(f"the reply can't be recorded in {self._path}: {error}") from None
            self._replaced |= new.keys()

    def _exchange_for(self, request: ModelRequest) -> Exchange:
        """Return the exchange that was recorded for a question.

        Raises:
            ModelError: the file does not hold it.
        """
        asked = Redact().value(build_seen_request(request))
        # Built at the first question and not when the file is read: a model is also made only to be sent
        # elsewhere.
        found = self._by_question
        if found is None:
            assert self._cassette is not None  # noqa: S101 - it is replayed
            found = self._by_question = {}
            for each in self._cassette.exchanges:
                if each.model == self.name:
                    found.setdefault(self._digest(each.request), []).append(each)
        digest = self._digest(asked)
        exchanges = found.get(digest)
        if exchanges is None:
            raise self._make_missing_error(request, asked, [each[0] for each in found.values()])
        self._times[digest] += 1
        return exchanges[min(self._times[digest], len(exchanges)) - 1]

    def _make_missing_error(self, request: ModelRequest, asked: Any, held: Sequence[Exchange]) -> ModelError:
        where = f"cassette {self._path} has no reply of {self.name}"
        if not held:
            return ModelError(f"{where} at all; record it with record=True")
        wanted = self._remove_varying(asked)
        recorded = [self._remove_varying(each.request) for each in held]
        nearest = find_nearest(wanted, recorded)
        place, was, now = find_first_difference(wanted, recorded[nearest])
        return ModelError(
            f"{where} for turn {request.turn} of {request.session_id}. The nearest question is in line "
            f"{held[nearest].line}; {place} differs: recorded {was!r}, asked {now!r}. Record it with "
            "record=True, or give ignoring=… for what differs from run to run"
        )

    def _remove_varying(self, value: Any) -> Any:
        """Return a request without the texts that differ from run to run."""
        if isinstance(value, str):
            for pattern in self._ignored:
                value = pattern.sub(_IGNORED, value)
            return value
        if isinstance(value, dict):
            return {key: self._remove_varying(item) for key, item in value.items()}
        return [self._remove_varying(item) for item in value] if isinstance(value, list) else value

    def _digest(self, request: Any) -> str:
        text = json.dumps(self._remove_varying(request), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def _compile_patterns(ignoring: Sequence[str]) -> list[re.Pattern[str]]:
    if isinstance(ignoring, str):
        raise ConfigError(f"ignoring is {ignoring!r}; give regular expressions in a list")
    try:
        return [_UNTRUSTED_MARK, *(re.compile(each) for each in ignoring)]
    except (re.error, TypeError) as error:
        raise ConfigError(f"ignoring: {error}; give regular expressions in a list") from None


def _make_model(model: RecordableModel) -> Any:
    if isinstance(model, list | tuple):
        return FallbackModel([_make_model(each) for each in model])
    if not isinstance(model, str):
        return model
    if model.startswith(LOCAL):
        from sessiontree.models.local.local_model import LocalModel

        return LocalModel(model)
    return ProviderModel(model)


def _name_in(cassette: Cassette, path: Path, model: RecordableModel | None) -> str:
    """Return the name of the model that is replayed."""
    held = ", ".join(sorted(cassette.models)) or "none"
    if model is not None:
        name = get_model_name(model)
        if name in cassette.models:
            return name
        raise ConfigError(f"cassette {path} has no reply of {name}; its models: {held}")
    if len(cassette.models) != 1:
        raise ConfigError(f"cassette {path}: say whose replies are wanted, as model=…; its models: {held}")
    return next(iter(cassette.models))


def _list_asked_models(model: Any) -> Sequence[Any]:
    return model.models if isinstance(model, FallbackModel) else (model,)


async def _ask_model(model: Any, request: ModelRequest) -> AsyncGenerator[Piece]:
    """Yield a model's pieces, also of a model that replies as a whole."""
    if hasattr(model, "stream"):
        pieces: Any = model.stream(request)
        if inspect.isawaitable(pieces):
            pieces = await pieces
        async with aclosing(pieces):
            async for piece in pieces:
                yield piece
        return
    if hasattr(model, "complete"):
        reply = await model.complete(request, lambda event: None)
    else:
        reply = model.reply(request)
    for piece in split_message(check_reply(reply, request.turn)):
        yield piece


def _encode_failure(failure: ModelError | None, redact: Redact) -> dict[str, Any] | None:
    if failure is None:
        return None
    kind = type(failure).__name__
    return {
        "error": kind if kind in _FAILURES else ModelError.__name__,
        "message": redact.text(failure.message),
        "retryable": failure.retryable,
        "retryAfterS": failure.retry_after_s,
    }


def _decode_failure(wire: Mapping[str, Any]) -> ModelError:
    kind = _FAILURES.get(wire.get("error", ""), ModelError)
    return kind(str(wire.get("message", "")), wire.get("retryable") is True, wire.get("retryAfterS"))


def _dump_question(exchange: Exchange) -> str:
    return json.dumps([exchange.model, exchange.request], sort_keys=True)
