"""Taking secrets out of results, messages and tasks before anything is kept of them."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from dataclasses import replace
from urllib.parse import quote

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.hook_sessions import Reword, Spawning, Words
from sessiontree.contracts.hooks import Hook, HookContext, KeptResult, OnError
from sessiontree.contracts.jsonable import JsonValue, dump_json, dump_readable
from sessiontree.hooks.leaves import rewritten_artifact, with_texts
from sessiontree.hooks.secret_shapes import SECRET_NAMES, SHAPES

MARK = "\u2039redacted\u203a"
LEAST_CHARS = 6
_EDGES = re.compile("[\u2039\u203a]")


class Redact(Hook):
    """Puts a mark in the place of every secret, wherever words come in, are kept or go out.

    That is: in results with their errors, details, display and artifacts; in progress; in messages to a
    session; in what its model says, and its tools on a channel; in tasks and labels of children. Arguments of
    calls stay as the model wrote them, which was told none of these secrets.

    A guard: where it fails, nothing of the result or message is kept, no child is spawned. Secrets given are
    found as they stand, escaped in JSON, percent-encoded, and in base64 of their own; what else looks like
    one is found by its shape. Images are not looked into. Redacting twice is redacting once.

    Args:
        secrets: Known secrets, at least six characters each.
        shapes: Whether what looks like a secret is taken out, too.
    """

    name = "redact"
    on_error: OnError = "block"

    def __init__(self, secrets: Iterable[str] = (), *, shapes: bool = True) -> None:
        """Keep the secrets.

        Raises:
            ConfigError: one is too short, or part of the mark; says which place it has, not what it is.
        """
        forms: set[str] = set()
        for place, secret in enumerate(secrets):
            if not isinstance(secret, str) or len(secret) < LEAST_CHARS:
                raise ConfigError(f"Redact: secret {place} must be text of at least {LEAST_CHARS} characters")
            if secret in MARK or _EDGES.search(secret):
                raise ConfigError(f"Redact: secret {place} can't be told from the mark {MARK}")
            forms |= _forms(secret)
        ordered = sorted(forms, key=lambda form: (-len(form), form))
        self._known = re.compile("|".join(map(re.escape, ordered))) if ordered else None
        self._shapes = SHAPES if shapes else ()

    def __repr__(self) -> str:
        """Show nothing of what it knows."""
        return "Redact(…)"

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        while True:
            cleaned = self._once(text)
            if cleaned == text:
                return text
            text = cleaned  # what stood beside a secret may be one, now that it stands alone

    def _once(self, text: str) -> str:
        if self._known is not None:
            text = self._known.sub(MARK, text)
        for _, shape in self._shapes:
            text = shape.sub(_marked, text)
        return text

    def value(self, value: JsonValue) -> JsonValue:
        """Return a JSON value without secrets: neither in texts nor keys, nor as numbers."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, dict):
            return {self.text(key): self._member(key, item) for key, item in value.items()}
        if value is None or isinstance(value, bool):
            return value
        return value if self.text(number := dump_json(value)) == number else MARK

    def _member(self, key: str, value: JsonValue) -> JsonValue:
        named = bool(self._shapes) and SECRET_NAMES.search(key) is not None
        plain = isinstance(value, str | int | float) and not isinstance(value, bool)
        return MARK if named and plain else self.value(value)

    def tool_result_persist(self, result: KeptResult) -> KeptResult:
        """Return the result without secrets."""
        return replace(
            with_texts(result, self.text),
            details=self.value(result.details),
            artifacts=tuple(rewritten_artifact(artifact, self.text) for artifact in result.artifacts),
        )

    def message_received(self, words: Words, ctx: HookContext) -> Words:
        """Return the message without secrets."""
        return replace(words, text=self.text(words.text))

    def message_sending(self, words: Words, ctx: HookContext) -> Words:
        """Return what is said without secrets."""
        return replace(words, text=self.text(words.text))

    def subagent_spawning(self, spawning: Spawning, ctx: HookContext) -> Reword:
        """Let the child be asked for without secrets."""
        label = None if not spawning.label else self.text(spawning.label)
        return Reword(self.text(spawning.task), label)


def _forms(secret: str) -> set[str]:
    raw = secret.encode("utf-8", "surrogatepass")
    return {
        secret,
        dump_json(secret)[1:-1],
        dump_readable(secret)[1:-1],
        quote(raw, safe=""),
        base64.b64encode(raw).decode().rstrip("="),
    }


def _marked(found: re.Match[str]) -> str:
    if "secret" not in found.re.groupindex:
        return MARK
    start, end = found.span("secret")
    whole, offset = found.group(), found.start()
    return whole[: start - offset] + MARK + whole[end - offset :]
