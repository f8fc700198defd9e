"""Replies constrained by a grammar: one JSON object that is a tool call or the final message.

For endpoints that ignore tools but hold a reply to a JSON Schema (``response_format``), such as llama.cpp's
server and vLLM. A reply is ``{"tool": name, "arguments": {…}}``, ``{"reply": text}``, or, if a result is
requested, ``{"result": value}``. Not here: conversations (``models.constrained_exchange``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from sessiontree.contracts.values.jsonable import JsonValue, dump_readable, parse_json
from sessiontree.contracts.values.pointer import make_json_pointer
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.schema.keywords import DEFINITIONS, Schema, rewrite

TOOL, ARGUMENTS, REPLY, RESULT = "tool", "arguments", "reply", "result"
MAX_SHAPE_CHARS: Final = 400
"""Maximum length of one schema's shape in a prompt."""
_MAX_SHAPE_DEPTH: Final = 4
_REFERENCE: Final = "$ref"


@dataclass(frozen=True, slots=True)
class ConstrainedTool:
    """A tool that a reply may call."""

    name: str
    """Consists of letters, digits, ``_`` and ``-``."""
    parameters: Mapping[str, JsonValue]
    """JSON Schema of an object; references must stay inside it."""


def reply_schema(
    tools: Sequence[ConstrainedTool],
    result_schema: Mapping[str, JsonValue] | None,
    *,
    must_call: bool = False,
) -> Schema | None:
    """Return the schema of a reply, or None if any text is valid: no tools, and no result requested.

    With tools it is an ``anyOf`` of one closed object per tool, in their order, and one for the final
    message unless a tool must be called. Without tools it is the result's own schema.

    Contract: never mutates its input.
    """
    if not tools:
        return None if result_schema is None else dict(result_schema)
    shared: Schema = {}
    variants: list[JsonValue] = []
    for tool in tools:
        arguments = _place_schema(dict(tool.parameters), f"{ARGUMENTS}_{tool.name}", shared)
        variants.append(
            _build_closed_object({TOOL: {"type": "string", "enum": [tool.name]}, ARGUMENTS: arguments})
        )
    if not must_call:
        result = None if result_schema is None else _place_schema(dict(result_schema), RESULT, shared)
        variants.append(
            _build_closed_object({REPLY: {"type": "string"}} if result is None else {RESULT: result})
        )
    return {"anyOf": variants, **({"$defs": shared} if shared else {})}


def _build_closed_object(properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _place_schema(schema: Schema, name: str, shared: Schema) -> Schema:
    """Return a schema as a part of another; one that refers to itself is moved to the shared definitions."""
    if not _has_reference(schema):
        return schema
    place = make_json_pointer("$defs", name)

    def moved(inner: Schema) -> Schema:
        target = inner.get(_REFERENCE)
        if isinstance(target, str) and target.startswith("#"):
            inner[_REFERENCE] = f"#{place}{target[1:]}"
        return inner

    # Its references lead from its own root, which is here only a part.
    shared[name] = rewrite(schema, moved)
    return {_REFERENCE: f"#{place}"}


def _has_reference(value: JsonValue) -> bool:
    if isinstance(value, dict):
        return _REFERENCE in value or any(map(_has_reference, value.values()))
    return isinstance(value, list) and any(map(_has_reference, value))


@dataclass(frozen=True, slots=True)
class ConstrainedCall:
    """A reply that calls a tool."""

    name: str
    arguments: dict[str, JsonValue] | str
    """The arguments, or their text so far if the reply breaks off in the middle."""


def read_reply(text: str) -> ConstrainedCall | str:
    """Return the content of a whole reply: a call, or the text of the final message.

    A result is returned as its JSON text. Any other text is returned as it is: the endpoint did not hold
    the model to the schema. A call that breaks off keeps the arguments it has so far.
    """
    try:
        value = parse_json(text)
    except ValueError:
        value = None
    if isinstance(value, dict):
        name, arguments = value.get(TOOL), value.get(ARGUMENTS)
        if value.keys() == {TOOL, ARGUMENTS} and isinstance(name, str) and isinstance(arguments, dict):
            return ConstrainedCall(name, arguments)
        if value.keys() == {REPLY} and isinstance(value[REPLY], str):
            return str(value[REPLY])
        if value.keys() == {RESULT}:
            return dump_readable(value[RESULT])
        return text
    # A call that was cut off must not pass for the final message: it is refused, and can be made again.
    begun = _CALL_BEGUN.match(text)
    if begun is not None:
        return ConstrainedCall(json.loads(begun[1]), text[begun.end() :])
    begun = _REPLY_BEGUN.match(text)
    return text if begun is None else "".join(ReplyDecoder().take(text))


_NAME: Final = r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"'
"""A whole JSON string; it has no control characters, and no escapes but these."""
_CALL_BEGUN: Final = re.compile(rf'\s*\{{\s*"{TOOL}"\s*:\s*({_NAME})\s*,\s*"{ARGUMENTS}"\s*:\s*')
_REPLY_BEGUN: Final = re.compile(rf'\s*\{{\s*"{REPLY}"\s*:\s*"')
_TOKEN: Final = re.compile(
    r"""(?P<plain>[^"\\]+)
    | (?P<hex>\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}  # a character in two halves
        | \\u[dD][89abAB][0-9a-fA-F]{2}(?=[^\\]|\\[^u]|\\u(?:[^dD]|[dD][^c-fC-F]))  # a half alone
        | \\u(?![dD][89abAB])[0-9a-fA-F]{4})
    | \\(?P<short>[^u]|u(?=[0-9a-fA-F]{0,3}[^0-9a-fA-F]))""",
    re.VERBOSE | re.DOTALL,
)
"""A part of a JSON string whose meaning does not depend on what follows it."""
_SHORT: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_MAX_BEGINNING: Final = 64
"""This many characters decide whether a text begins as a plain reply."""


class ReplyDecoder:
    """Yields the text of a plain reply while its JSON arrives; yields nothing for any other reply.

    The text does not depend on how the JSON is cut into pieces. Linear time.
    """

    __slots__ = ("_held", "_is_over", "_is_reply")

    def __init__(self) -> None:
        self._held = ""
        self._is_reply: bool | None = None
        self._is_over = False

    @property
    def is_reply(self) -> bool:
        """Whether this is a plain reply, as far as is known."""
        return self._is_reply is True

    def take(self, piece: str) -> Iterator[str]:
        """Yield the text that the next piece adds."""
        if self._is_over or self._is_reply is False:
            return
        self._held += piece
        if self._is_reply is None:
            begun = _REPLY_BEGUN.match(self._held)
            if begun is None:
                # White space may come first, but not without end.
                self._is_reply = False if len(self._held) > _MAX_BEGINNING else None
                return
            self._is_reply = True
            self._held = self._held[begun.end() :]
        added = self._decode()
        if added:
            yield added

    def _decode(self) -> str:
        """Return the text of the buffer, up to its end or up to the first part that is still ambiguous."""
        at, parts = 0, []
        while (token := _TOKEN.match(self._held, at)) is not None:
            if token["hex"] is not None:
                parts.append(json.loads(f'"{token["hex"]}"'))
            elif token["short"] is not None:
                parts.append(_SHORT.get(token["short"], token["short"]))
            else:
                parts.append(token["plain"])
            at = token.end()
        self._is_over = self._held[at : at + 1] == '"'
        self._held = self._held[at:]
        return "".join(parts)


def shape(schema: Mapping[str, JsonValue]) -> str:
    """Return a schema as a short text for a prompt, such as ``{"path": string, "limit"?: integer}``.

    It leaves out what only a check needs. A long shape is cut; the request contains the full schema.
    """
    text = _shape(dict(schema), 0)
    return text if len(text) <= MAX_SHAPE_CHARS else f"{text[:MAX_SHAPE_CHARS]}…"


def _shape(schema: JsonValue, depth: int) -> str:
    if not isinstance(schema, dict) or depth > _MAX_SHAPE_DEPTH or DEFINITIONS & schema.keys():
        return "any"
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(values, list):
        return " | ".join(map(dump_readable, values))
    for union in ("anyOf", "oneOf"):
        variants = schema.get(union)
        if isinstance(variants, list):
            return " | ".join(dict.fromkeys(_shape(each, depth + 1) for each in variants))
    types = schema.get("type")
    if isinstance(types, list):
        return " | ".join(_shape({**schema, "type": each}, depth) for each in types)
    properties = schema.get("properties")
    if types == "object" and isinstance(properties, dict) and properties:
        required = schema.get("required")
        needed = required if isinstance(required, list) else []
        inner = (
            f"{dump_readable(name)}{'' if name in needed else '?'}: {_shape(each, depth + 1)}"
            for name, each in properties.items()
        )
        return "{" + ", ".join(inner) + "}"
    if types == "array":
        return f"[{_shape(schema.get('items', {}), depth + 1)}, …]"
    return str(types) if isinstance(types, str) else "any"
