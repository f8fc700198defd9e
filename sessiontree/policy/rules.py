"""Approver rules that can't match a call: they name no tool, or a place that no tool's arguments have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from sessiontree.contracts.recorded.approvals import Rule
from sessiontree.contracts.settings.settings import suggest_nearest
from sessiontree.contracts.values.glob import compile_glob
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.pointer import (
    LeadsNowhere,
    find_value,
    make_json_pointer,
    parse_index,
    split_pointer,
)
from sessiontree.policy.catalog import CATALOG

_UNIONS: Final = ("allOf", "anyOf", "oneOf")
_CONDITIONS: Final = ("else", "then")
_MAX_STEPS: Final = 1_000
"""Most schemas looked at for one pointer; beyond, a place counts as possible."""
_MAX_DEPTH: Final = 100
"""How many of them may be within each other, likewise: a schema can refer to itself without an end."""


def find_rule_slips(
    place: str,
    rules: Sequence[Rule],
    schemas: Mapping[str, Mapping[str, JsonValue]],
    aliases: Mapping[str, str],
) -> Iterator[str]:
    """Yield a sentence about each rule that no call of a tree can match.

    Args:
        place: What holds the rules, for the sentences.
        rules: In their order.
        schemas: The JSON Schema of every tool's parameters, by the tool's name.
        aliases: Other names of the tools, mapped to their names; rules look at names alone.
    """
    left_out = {row.name for row in CATALOG}
    for number, rule in enumerate(rules, 1):
        where = f"{place}: rule {number} ({rule.tool!r})"
        glob = compile_glob(rule.tool)
        named = [name for name in schemas if glob.fits(name)]
        if not named:
            if any(glob.fits(name) for name in left_out):
                continue
            near = (
                f"; write {aliases[rule.tool]!r}"
                if rule.tool in aliases
                else suggest_nearest(rule.tool, schemas)
            )
            yield f"{where} matches no call: the tree has no tool of that name{near}"
            continue
        for pointer in rule.where:
            parts = split_pointer(pointer)
            if not any(_Search(schemas[name]).can_hold(parts) for name in named):
                known = {
                    make_json_pointer(name): None
                    for tool in named
                    for name in _list_properties(schemas[tool])
                }
                takers = repr(named[0]) if len(named) == 1 else "none of its tools"
                takes = "takes nothing" if len(named) == 1 else "takes anything"
                yield (
                    f"{where} matches no call: {takers} {takes} at "
                    f"{pointer!r}{suggest_nearest(pointer, known)}"
                )


def _list_properties(schema: Mapping[str, JsonValue]) -> list[str]:
    properties = schema.get("properties")
    return list(properties) if isinstance(properties, dict) else []


class _Search:
    """A search for places that values of one schema may have; what is not understood is possible."""

    def __init__(self, root: Mapping[str, JsonValue]) -> None:
        self._root: JsonValue = dict(root)
        self._left = _MAX_STEPS
        self._depth = 0

    def can_hold(self, parts: tuple[str, ...]) -> bool:
        """Whether a value that fits may have something at a place."""
        return self._can_hold(self._root, parts)

    def _can_hold(self, schema: JsonValue, parts: tuple[str, ...]) -> bool:
        # A false warning would make an owner change a rule that works, so the unknown counts as possible.
        if self._left == 0 or self._depth == _MAX_DEPTH:
            return True
        self._left -= 1
        self._depth += 1
        try:
            return self._can_find(schema, parts)
        finally:
            self._depth -= 1

    def _can_find(self, schema: JsonValue, parts: tuple[str, ...]) -> bool:
        if not isinstance(schema, dict):
            return schema is not False
        if not parts:
            return True
        ref = schema.get("$ref")
        if isinstance(ref, str):
            try:
                return self._can_hold(find_value(self._root, split_pointer(ref.removeprefix("#"))), parts)
            except (LeadsNowhere, ValueError):
                return True
        inner = [each for name in _UNIONS if isinstance(listed := schema.get(name), list) for each in listed]
        inner += [schema[name] for name in _CONDITIONS if name in schema]
        if any(self._can_hold(each, parts) for each in inner):
            return True
        return self._is_member(schema, parts, is_open=not inner) or self._is_item(
            schema, parts, is_open=not inner
        )

    def _is_member(self, schema: dict[str, JsonValue], parts: tuple[str, ...], *, is_open: bool) -> bool:
        if not _may_be(schema, "object"):
            return False
        properties = schema.get("properties")
        if isinstance(properties, dict) and parts[0] in properties:
            return self._can_hold(properties[parts[0]], parts[1:])
        if "patternProperties" in schema:
            return True
        if "additionalProperties" in schema:
            return self._can_hold(schema["additionalProperties"], parts[1:])
        return is_open

    def _is_item(self, schema: dict[str, JsonValue], parts: tuple[str, ...], *, is_open: bool) -> bool:
        index = parse_index(parts[0])
        if index is None or not _may_be(schema, "array"):
            return False
        first = schema.get("prefixItems")
        if isinstance(first, list) and index < len(first):
            return self._can_hold(first[index], parts[1:])
        return self._can_hold(schema["items"], parts[1:]) if "items" in schema else is_open


def _may_be(schema: dict[str, JsonValue], kind: str) -> bool:
    named = schema.get("type", kind)
    return kind in named if isinstance(named, list) else kind == named
