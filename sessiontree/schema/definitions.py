"""Inlining: definitions of a schema are written out where they are used, which models read best.

Only a definition that refers to itself is kept. Every ``$ref`` must point inside its own schema; nothing is
ever fetched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.pointer import parse_index, unescape
from sessiontree.schema.json_form import MAX_DEPTH
from sessiontree.schema.keywords import (
    ANNOTATIONS,
    DEFINITIONS,
    IN_PLACE,
    Schema,
    list_subschemas,
    replace_inside,
    rewrite,
)

MAX_SCHEMAS = 5_000
"""Maximum number of schemas that inlining may make: definitions that double each other grow fast."""

_OLD_DRAFT = re.compile(r"draft-0[3467]")
_FOREIGN = ("$dynamicRef", "$recursiveRef")
_REFERENCES = frozenset({"$dynamicRef", "$recursiveRef", "$ref"})
_LOOKS_AROUND = _REFERENCES | {
    *(
        "additionalItems",
        "additionalProperties",
        "allOf",
        "anyOf",
        "contains",
        "dependencies",
        "dependentSchemas",
    ),
    *("else", "if", "items", "maxContains", "minContains", "oneOf", "patternProperties", "prefixItems"),
    *("properties", "then", "unevaluatedItems", "unevaluatedProperties"),
}
"""Keywords whose meaning depends on their neighbours, or that change the meaning of their neighbours."""


def write_out(root: Schema) -> Schema:
    """Return the schema with every reference replaced by its target.

    A definition that contains itself is kept under ``$defs``, sorted by name, and referred to by
    ``#/$defs/<name>`` (the root itself by ``#``). Never mutates its input.

    Raises:
        ConfigError: a reference leaves the schema, leads nowhere or only to itself, or the result is larger
            than :data:`MAX_SCHEMAS`.
    """
    return _Writer(root).root()


class _Writer:
    """Writes out one schema: the targets found so far, and the definitions that must be kept."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._names: dict[str, str] = {}
        self._recursive: dict[str, bool] = {}
        self._made = 0
        # Up to draft 7, keywords next to a $ref have no effect.
        self._beside_counts = not _OLD_DRAFT.search(str(root.get("$schema", "")))

    def root(self) -> Schema:
        schema = self._root
        beside: list[Schema] = []
        while isinstance(ref := schema.get("$ref"), str):
            self._refuse_endless(ref)
            beside.append(self._select_beside(schema))
            schema = self._target(ref)
        written = self._write_children(schema, 0)
        for each in reversed(beside):
            written = _join_schemas(written, self._write_children(each, 0))
        written.pop("$id", None)
        written.pop("$schema", None)
        if "$schema" in self._root:
            written["$schema"] = self._root["$schema"]
        kept: Schema = {}
        while waiting := [pointer for pointer, name in self._names.items() if name not in kept]:
            for pointer in waiting:
                kept[self._names[pointer]] = self._write(self._target(pointer), 1)
        if kept:
            written["$defs"] = dict(sorted(kept.items()))
        return written

    def _write(self, schema: Schema, depth: int) -> Schema:
        ref = schema.get("$ref")
        if not isinstance(ref, str):
            return self._write_children(schema, depth)
        self._refuse_endless(ref)
        if self._is_recursive(ref):
            found: Schema = {"$ref": self._keep_definition(ref)}
        else:
            found = self._write(self._target(ref), depth + 1)
        return _join_schemas(found, self._write_children(self._select_beside(schema), depth))

    def _write_children(self, schema: Schema, depth: int) -> Schema:
        # Definitions that use each other twice double at each level, so a short schema could fill the memory.
        self._made += 1
        if self._made > MAX_SCHEMAS:
            raise ConfigError(
                f"its definitions written out make more than {MAX_SCHEMAS} schemas; nest them less"
            )
        if depth > MAX_DEPTH:
            raise ConfigError(f"its definitions written out are nested more than {MAX_DEPTH} levels deep")
        for keyword in _FOREIGN:
            if keyword in schema:
                raise ConfigError(
                    f"{keyword} is not understood; use $ref with a pointer such as #/$defs/Name"
                )
        # It would change what all references inside it are relative to.
        if depth and isinstance(schema.get("$id"), str):
            raise ConfigError("an $id inside the schema is not understood; keep definitions under $defs")
        own = {keyword: value for keyword, value in schema.items() if keyword not in DEFINITIONS}
        return replace_inside(own, lambda inner: self._write(inner, depth + 1))

    def _select_beside(self, schema: Schema) -> Schema:
        return {
            keyword: value
            for keyword, value in schema.items()
            if keyword not in {"$ref", "$id", "$schema"}
            and keyword not in DEFINITIONS
            and (self._beside_counts or keyword in ANNOTATIONS)
        }

    def _target(self, ref: str) -> Schema:
        if ref not in {"", "#"} and not ref.startswith("#/"):
            raise ConfigError(f"$ref {ref!r} leaves the schema; put the definition under $defs")
        place: JsonValue = self._root
        for part in _split_reference(ref):
            names = [unescape(unquote(part)), unescape(part)]  # the latter if a character was not encoded
            if isinstance(place, dict) and (found := [name for name in names if name in place]):
                place = place[found[0]]
            elif isinstance(place, list) and (index := parse_index(part)) is not None and index < len(place):
                place = place[index]
            else:
                raise ConfigError(f"$ref {ref!r} leads nowhere in this schema")
        if isinstance(place, bool):
            return {} if place else {"not": {}}
        if not isinstance(place, dict):
            raise ConfigError(f"$ref {ref!r} does not lead to a schema")
        return place

    def _is_recursive(self, ref: str) -> bool:
        if ref not in self._recursive:
            self._recursive[ref] = self._can_reach_itself(ref, None)
        return self._recursive[ref]

    def _refuse_endless(self, ref: str) -> None:
        if self._is_recursive(ref) and self._can_reach_itself(ref, IN_PLACE):
            raise ConfigError(f"$ref {ref!r} refers to itself for the same value and so says nothing")

    def _can_reach_itself(self, ref: str, keywords: frozenset[str] | None) -> bool:
        seen: set[str] = set()
        waiting = list(_find_refs(self._target(ref), keywords))
        while waiting:
            found = waiting.pop()
            if found == ref:
                return True
            if found not in seen:
                seen.add(found)
                waiting += _find_refs(self._target(found), keywords)
        return False

    def _keep_definition(self, ref: str) -> str:
        if ref in {"", "#"}:
            return "#"
        if ref not in self._names:
            parts = [unescape(unquote(part)) for part in _split_reference(ref) if part not in DEFINITIONS]
            name = wanted = re.sub(r"[^A-Za-z0-9_.-]", "_", ".".join(parts)) or "definition"
            number = 2
            while name in self._names.values():
                name, number = f"{wanted}_{number}", number + 1
            self._names[ref] = name
        return f"#/$defs/{self._names[ref]}"


def set_object_root(written: Schema) -> Schema:
    """Return a written-out schema with ``type: object`` at its root and no other change.

    If a reference to the root (``#``) may be used for something that is not an object, the root is kept
    unchanged as a definition, and the reference points there.
    """
    if "type" in written or "#" not in set(_find_all_refs(written)):
        return {"type": "object", **written}
    definitions = written.get("$defs")
    kept = dict(definitions) if isinstance(definitions, dict) else {}
    name, number = "root", 2
    while name in kept:
        name, number = f"root_{number}", number + 1
    own = {keyword: value for keyword, value in written.items() if keyword not in {"$defs", "$schema"}}

    def redirect(schema: Schema) -> Schema:
        return {**schema, "$ref": f"#/$defs/{name}"} if schema.get("$ref") == "#" else schema

    kept[name] = own
    moved = {each: rewrite(part, redirect) if isinstance(part, dict) else part for each, part in kept.items()}
    root = {"type": "object", **rewrite(own, redirect), "$defs": dict(sorted(moved.items()))}
    return {**root, "$schema": written["$schema"]} if "$schema" in written else root


def _join_schemas(found: Schema, beside: Schema) -> Schema:
    """Return one schema that requires what both require; annotations next to a reference win.

    They are joined only if no keyword of one depends on keywords of the other.
    """
    is_lone = found.keys() == {"$ref"}  # then everything stays as its author wrote it
    clash = [keyword for keyword in beside if keyword in found and keyword not in ANNOTATIONS]
    if not clash and (is_lone or any(_LOOKS_AROUND.isdisjoint(side) for side in (found, beside))):
        return {**found, **beside}
    parts = beside.get("allOf")
    return {**beside, "allOf": [found, *(parts if isinstance(parts, list) else [])]}


def _split_reference(ref: str) -> list[str]:
    """Return the steps of a reference as written; a reference is a URI, so they may be percent-encoded."""
    return ref.split("/")[1:]


def _find_all_refs(schema: Schema) -> Iterator[str]:
    yield from _find_refs(schema, None)
    definitions = schema.get("$defs")
    for part in definitions.values() if isinstance(definitions, dict) else ():
        if isinstance(part, dict):
            yield from _find_refs(part, None)


def _find_refs(schema: Schema, keywords: frozenset[str] | None) -> Iterator[str]:
    ref = schema.get("$ref")
    if isinstance(ref, str):
        yield ref
    for inner in list_subschemas(schema, keywords):
        yield from _find_refs(inner, keywords)
