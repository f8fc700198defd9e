"""The JSON Schema of a tool's parameters, and a tool in the form in which an MCP server lists it.

Source of the latter: the Model Context Protocol's schema, revision 2025-06-18, ``Tool`` and
``ToolAnnotations``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.tools.tool import ALLOW_EMPTY_KEYWORD, TRIMMED_KEYWORD, RawTool, Tool
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.schema.definitions import set_object_root, write_out
from sessiontree.schema.json_form import NotJson, to_json_form
from sessiontree.schema.keywords import Schema, order_keywords, rewrite

_MARKERS = (TRIMMED_KEYWORD, ALLOW_EMPTY_KEYWORD)


def derive_schema(tool: Tool[Any]) -> Schema:
    """Return the JSON Schema of a tool's parameters.

    The root is an object with ``properties``. Definitions are written out unless they refer to
    themselves. For a model, titles and the null of optional parameters are left out (an absent parameter
    means the same), and unknown parameters are forbidden unless the model allows them. The schema of a
    :class:`~sessiontree.contracts.tools.tool.RawTool` means exactly what its author wrote.

    A union at the root is kept: it decides what is accepted. The dialect decides what a model sees of it
    (:mod:`sessiontree.schema.provider_schema`).

    Returns:
        A fresh dict; keywords in one fixed order, properties in the order of declaration.

    Raises:
        ConfigError: the root is not an object, or the parameters have no JSON Schema.

    Contract: pure; never mutates what the tool declares.
    """
    try:
        marked = copy_raw_schema(tool) if isinstance(tool, RawTool) else derive_model_schema(tool.Params)
        return remove_markers(marked)
    except ConfigError as error:
        raise ConfigError(f"tool {tool.name!r}: {error}") from error


def copy_raw_schema(tool: RawTool) -> Schema:
    """Return a copy of the schema that a RawTool's author wrote, markers included.

    Raises:
        ConfigError: as :func:`derive_schema`.
    """
    return _build_object_root(copy_schema(getattr(tool, "parameters", None)))


def derive_model_schema(model: type[BaseModel]) -> Schema:
    """Return the schema of a model, including the markers of :mod:`sessiontree.contracts.tools.tool`.

    Raises:
        ConfigError: as :func:`derive_schema`.
    """
    by_alias = model.model_config.get("validate_by_alias") is not False
    schema = rewrite(
        _build_object_root(generate_schema(model.model_json_schema, model.__name__, by_alias=by_alias)), _tidy
    )
    # The object around a union does not know the properties of the union's variants and would refuse them.
    return schema if "anyOf" in schema or "oneOf" in schema else {"additionalProperties": False, **schema}


def remove_markers(schema: Schema) -> Schema:
    """Return a copy in the project's keyword order, without the markers."""
    return rewrite(schema, _unmark)


def compute_schema_digest(schema: Mapping[str, JsonValue]) -> str:
    """Return the SHA-256 (hex) of the schema's JSON text with sorted keys."""
    text = json.dumps(schema, ensure_ascii=True, allow_nan=False, separators=(",", ":"), sort_keys=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def copy_schema(schema: object) -> Schema:
    """Return a deep copy of a schema, checked to be a JSON object.

    Raises:
        ConfigError: it is not valid.
    """
    try:
        copy = to_json_form(schema)
    except NotJson as error:
        place = "/".join(str(part) for part in reversed(error.path)) or "it"
        raise ConfigError(f"the schema is not JSON: {place} {error.reason}") from error
    if not isinstance(copy, dict):
        raise ConfigError(f"the schema must be a JSON object, not {type(schema).__name__}")
    return copy


def generate_schema(generate: Callable[..., dict[str, Any]], what: str, **settings: bool) -> Schema:
    """Return the schema that pydantic makes, checked to be JSON.

    Args:
        generate: ``model_json_schema`` of a model or ``json_schema`` of a type adapter.
        what: What the schema is made from, for the error.
        settings: Further arguments of ``generate``.

    Raises:
        ConfigError: it has no JSON Schema.
    """
    try:
        schema = generate(schema_generator=_Generator, **settings)
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        raise ConfigError(f"{what} has no JSON Schema: {str(error).partition(chr(10))[0]}") from error
    return copy_schema(schema)


def remove_titles(schema: Schema) -> Schema:
    """Return a schema without the titles that pydantic makes from names; for :func:`rewrite`."""
    # A discriminator maps tags to definitions, which have been written out by now.
    return {keyword: value for keyword, value in schema.items() if keyword not in {"title", "discriminator"}}


class _Generator(GenerateJsonSchema):
    """Pydantic's own generator, without warnings about defaults and choices that JSON can't express."""

    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        """Ignore the warning: the schema is correct without what was left out."""


def _build_object_root(schema: Schema) -> Schema:
    written = set_object_root(write_out(schema))
    if written["type"] != "object":
        raise ConfigError(f"the root must be of type 'object', not {written['type']!r}")
    if not isinstance(written.setdefault("properties", {}), dict):
        raise ConfigError("properties must be an object")
    return written


def _tidy(schema: Schema) -> Schema:
    schema = remove_titles(schema)
    properties, required = schema.get("properties"), schema.get("required", [])
    if isinstance(properties, dict) and isinstance(required, list):
        schema["properties"] = {
            name: inner if name in required else _remove_null(inner) for name, inner in properties.items()
        }
    return schema


def _remove_null(schema: JsonValue) -> JsonValue:
    """Return an optional parameter's schema without null, if null means the same as absence."""
    if not isinstance(schema, dict) or schema.get("default", None) is not None:
        return schema
    variants = schema.get("anyOf")
    if not isinstance(variants, list) or {"type": "null"} not in variants:
        return schema
    rest = {keyword: value for keyword, value in schema.items() if keyword not in {"anyOf", "default"}}
    left = [variant for variant in variants if variant != {"type": "null"}]
    only = left[0] if len(left) == 1 else None
    if isinstance(only, dict) and not (only.keys() & rest.keys() - {"description"}):
        return {**only, **rest}
    return {"anyOf": left, **rest}


def _unmark(schema: Schema) -> Schema:
    return order_keywords({keyword: value for keyword, value in schema.items() if keyword not in _MARKERS})


def to_mcp_tool(tool: Tool[Any]) -> dict[str, JsonValue]:
    """Return a tool as an MCP server lists it.

    That is ``name``, ``title`` if it has a label, ``description``, ``inputSchema`` and ``annotations``.

    The hints follow from the tier alone. A ReadOnly tool changes nothing, however often it is called. Any
    other tool gets the protocol's cautious defaults: it may destroy, and a second call may do more. Here
    ``idempotent`` is about one call that is made twice; the protocol's hint is about two calls.

    Raises:
        ConfigError: the parameters have no JSON Schema with an object at its root.
    """
    only_reads = tool.tier is PermissionTier.READ_ONLY
    return {
        "name": tool.name,
        **({"title": tool.label} if tool.label else {}),
        "description": tool.description,
        "inputSchema": derive_schema(tool),
        "annotations": {
            "readOnlyHint": only_reads,
            "destructiveHint": not only_reads,
            "idempotentHint": only_reads,
        },
    }
