"""What a server asks during a call, as questions for a person; and the answers, as the server wants them.

A form becomes one question for each member, at most three at a time. An address is shown, with its host, and
never opened here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Final, Self
from urllib.parse import urlsplit

from sessiontree.contracts.errors import ConfigError, ExecutionError, ValidationError
from sessiontree.contracts.handles.mcp import ServerInput
from sessiontree.contracts.recorded.questions import (
    MAX_LABEL_CHARS,
    MAX_OPTIONS,
    MAX_QUESTIONS,
    MAX_TEXT_CHARS,
    QuestionItem,
    QuestionOption,
)
from sessiontree.contracts.values.jsonable import JsonValue, dump_json
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.schema.checker import Checker

MAX_REQUESTS: Final = 8
"""Most requests of one round."""
MAX_MEMBERS: Final = 24
"""Most members of a form."""
MAX_MESSAGE_CHARS: Final = 1_200
MAX_LISTED: Final = 40
"""Most values that a question lists."""
DECLINE: Final = "Decline"
CANCEL: Final = "Cancel the request"
ACCEPT: Final = "Accept"
DONE: Final = "Done"
LEFT_OUT: Final = "Leave it out"


@dataclass(frozen=True, slots=True)
class FormPart:
    """One question: a member of a form, or a whole request without members."""

    key: str
    """The request's key."""
    member: str
    """Empty = the request as a whole."""


@dataclass(frozen=True, slots=True)
class Elicitation:
    """The requests of one round, and what was answered of them so far."""

    server: str
    requests: Mapping[str, Any]
    """As the server sent them."""
    state: str | None
    """The server's own state, unchanged."""
    given: Mapping[str, Mapping[str, JsonValue]] = field(default_factory=dict)
    """Members answered so far, by request."""
    ends: Mapping[str, str] = field(default_factory=dict)
    """Requests that a person declined, cancelled or accepted as a whole."""
    fault: str = ""
    """Why the last answers did not fit."""

    @classmethod
    def begin(cls, server: str, wanted: ServerInput) -> Self:
        """Return what a server wants, unanswered.

        Raises:
            ExecutionError: it wants something that no person can be asked.
        """
        found = cls(server, dict(wanted.requests), wanted.state)
        # A hostile server could otherwise ask a person without an end, and the state of it goes into the
        # journal.
        if len(found.requests) > MAX_REQUESTS:
            raise ExecutionError(f"the MCP server {server} asks {len(found.requests)} things at once")
        for request in found.requests.values():
            if not isinstance(request, dict) or request.get("method") != "elicitation/create":
                raise ExecutionError(f"the MCP server {server} wants something that is not offered")
            members = _get_members(request)
            if len(members) > MAX_MEMBERS:
                raise ExecutionError(
                    f"the MCP server {server} asks for more than {MAX_MEMBERS} values at once"
                )
            for member in members.values():
                if not isinstance(member, dict) or member.get("type") in {"object", None}:
                    raise ExecutionError(f"the MCP server {server} asks for a value that no form has")
        return found

    @classmethod
    def from_state(cls, state: JsonValue) -> Self:
        """Return what :meth:`to_state` kept."""
        kept: Any = state
        return cls(
            kept["server"],
            kept["requests"],
            kept["request_state"],
            kept["given"],
            kept["ends"],
            kept["fault"],
        )

    def to_state(self) -> JsonValue:
        """Return it for the journal, with the digest of what a person saw."""
        digest = hashlib.sha256(dump_json(dict(self.requests)).encode()).hexdigest()
        return {
            "server": self.server,
            "requests": dict(self.requests),
            "request_state": self.state,
            "given": {key: dict(value) for key, value in self.given.items()},
            "ends": dict(self.ends),
            "fault": self.fault,
            "digest": digest,
        }

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to ask."""
        return not self._open_parts()

    def _open_parts(self) -> list[FormPart]:
        found = []
        for key, request in self.requests.items():
            if key in self.ends:
                continue
            answered = self.given.get(key, {})
            members = _get_members(request)
            found += [FormPart(key, name) for name in members if name not in answered]
            if not members:
                found.append(FormPart(key, ""))
        return found[:MAX_QUESTIONS]

    def questions(self) -> list[QuestionItem]:
        """Return the next questions, in the order of the requests and of their members."""
        return [self._make_question(part) for part in self._open_parts()]

    def _make_question(self, part: FormPart) -> QuestionItem:
        request = self.requests[part.key]
        params = request.get("params") or {}
        said = str(params.get("message", ""))[:MAX_MESSAGE_CHARS]
        head = f"The MCP server {self.server} asks: {said}"
        if self.fault:
            head = f"{self.fault}\n{head}"
        title = f"MCP {self.server}"[:MAX_LABEL_CHARS]
        if not part.member:
            return _build_whole_question(title, head, params)
        schema = _get_members(request)[part.member]
        is_needed = part.member in _get_required(request)
        return _build_member_question(title, head, part.member, schema, is_needed=is_needed)

    def take(self, answers: Sequence[JsonValue]) -> Elicitation:
        """Return this with the answers to :meth:`questions`; what does not fit is asked again."""
        given = {key: dict(value) for key, value in self.given.items()}
        ends, faults = dict(self.ends), []
        for part, answer in zip(self._open_parts(), answers, strict=False):
            said: Any = answer
            chosen, text = list(said["chosen"]), str(said["text"])
            # An earlier answer of this round has ended the whole request, so its other members need no value.
            if part.key in ends:
                continue
            # First, because a person who declines must not fail on a value that does not fit.
            if DECLINE in chosen or CANCEL in chosen:
                ends[part.key] = "decline" if DECLINE in chosen else "cancel"
            elif not part.member:
                ends[part.key] = "accept"
            elif LEFT_OUT in chosen:
                schema = _get_members(self.requests[part.key])[part.member]
                given.setdefault(part.key, {})[part.member] = _find_default(schema)
            else:
                schema = _get_members(self.requests[part.key])[part.member]
                try:
                    given.setdefault(part.key, {})[part.member] = _convert_answer(schema, chosen, text)
                except ValidationError as error:
                    faults.append(f"{part.member}: {error.message}")
        return replace(self, given=given, ends=ends, fault="; ".join(faults)[:400])

    def responses(self) -> dict[str, JsonValue]:
        """Return the responses by the requests' keys."""
        found: dict[str, JsonValue] = {}
        for key in self.requests:
            action = self.ends.get(key, "accept")
            found[key] = {"action": action}
            values = {name: value for name, value in self.given.get(key, {}).items() if value is not None}
            if action == "accept" and _get_members(self.requests[key]):
                found[key] = {"action": action, "content": dict(values)}
        return found


def _get_members(request: Mapping[str, Any]) -> Mapping[str, Any]:
    schema = (request.get("params") or {}).get("requestedSchema")
    members = schema.get("properties") if isinstance(schema, dict) else None
    return members if isinstance(members, dict) else {}


def _get_required(request: Mapping[str, Any]) -> Sequence[str]:
    required = request["params"]["requestedSchema"].get("required")
    return required if isinstance(required, list) else []


def _build_whole_question(title: str, head: str, params: Mapping[str, Any]) -> QuestionItem:
    url = params.get("url")
    if isinstance(url, str):
        host = urlsplit(url).hostname or "an unknown host"
        # The host is named alone, because a long address can hide where it leads.
        head = f"{head}\nIt wants you to open a page of {host}. Nothing opens it for you: {url}"
    labels = (ACCEPT if url is None else DONE, DECLINE, CANCEL)
    options = tuple(QuestionOption(label=label) for label in labels)
    return QuestionItem(question=head[:MAX_TEXT_CHARS], header=title, options=options, allow_free_text=False)


def _build_member_question(
    title: str, head: str, name: str, schema: Mapping[str, Any], *, is_needed: bool
) -> QuestionItem:
    said = schema.get("description") or schema.get("title") or ""
    values = _list_values(schema)
    labels = [label for label, _ in values]
    extra = [DECLINE] if is_needed else [DECLINE, LEFT_OUT]
    is_listed = bool(values) and len(values) + len(extra) <= MAX_OPTIONS and _are_labels(labels)
    kind = "" if values else f" ({schema.get('type')})"
    lines = [head, f"{name[:MAX_LABEL_CHARS]}{kind}{': ' if said else ''}{str(said)[:300]}"]
    default = None if is_needed else _find_default(schema)
    if default is not None:
        lines.append(f"if left out: {dump_json(default)[:MAX_LABEL_CHARS]}")
    if values and not is_listed:
        lines.append(f"one of: {', '.join(labels[:MAX_LISTED])[:400]}")
    if not is_listed:
        labels, extra = [], [*extra, *([CANCEL] if len(extra) == 1 else [])]
    options = tuple(QuestionOption(label=label) for label in (*labels, *extra))
    return QuestionItem(
        question="\n".join(lines)[:MAX_TEXT_CHARS],
        header=title,
        options=options,
        multi_select=schema.get("type") == "array",
        allow_free_text=not is_listed,
    )


def _find_default(schema: Mapping[str, Any]) -> JsonValue:
    """Return the value of a member that is left out; None = it has no default, or one that does not fit."""
    default: JsonValue = schema.get("default")
    try:
        Checker(dict(schema)).check(default)
    except (ConfigError, ValidationError):
        return None
    return default


def _are_labels(labels: Sequence[str]) -> bool:
    return (
        all(label.strip() and len(label) <= MAX_LABEL_CHARS for label in labels)
        and len(set(labels)) == len(labels)
        # A server could name one of its values like a refusal, and a person's refusal would then be read as
        # that value.
        and not {DECLINE, CANCEL, LEFT_OUT} & set(labels)
    )


def _list_values(schema: Mapping[str, Any]) -> list[tuple[str, JsonValue]]:
    """Return the values that a member can have, each with its label; none = any."""
    if schema.get("type") == "boolean":
        return [("yes", True), ("no", False)]
    inner = schema.get("items") if schema.get("type") == "array" else schema
    inner = inner if isinstance(inner, dict) else {}
    titled = inner.get("oneOf") or inner.get("anyOf")
    if isinstance(titled, list) and all(isinstance(each, dict) and "const" in each for each in titled):
        return [(str(each.get("title") or each["const"]), each["const"]) for each in titled]
    listed = inner.get("enum")
    if not isinstance(listed, list):
        return []
    names = schema.get("enumNames")
    named = names if isinstance(names, list) and len(names) == len(listed) else listed
    return [(str(name), value) for name, value in zip(named, listed, strict=True)]


def _convert_answer(schema: Mapping[str, Any], chosen: Sequence[str], text: str) -> JsonValue:
    """Return an answer as the member's value.

    Raises:
        ValidationError: it does not fit.
    """
    values = dict(_list_values(schema))
    by_value = {str(value): value for value in values.values()}
    kind = schema.get("type")
    value: JsonValue = None
    words = [*chosen, *([text] if text else [])]
    if kind == "array":
        parts = [*chosen, *(part.strip() for part in text.split(",") if part.strip())]
        value = [values.get(part, by_value.get(part, part)) for part in parts]
    elif values:
        value = values.get(words[0], by_value.get(words[0], words[0])) if words else None
    elif kind in {"integer", "number"}:
        value = _number(text)
    else:
        value = text
    try:
        Checker(dict(schema)).check(value)
    except ConfigError as error:
        raise ExecutionError(f"the schema of the server's question is not valid: {error}") from None
    return value


def _number(text: str) -> JsonValue:
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text
