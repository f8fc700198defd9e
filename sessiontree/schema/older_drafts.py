"""Spellings of older drafts put into those of 2020-12, where both say exactly the same.

Source: the release notes of JSON Schema 2019-09 and 2020-12.
"""

from __future__ import annotations

import re
from typing import Final

from sessiontree.contracts.jsonable import JsonValue
from sessiontree.schema.keywords import DEFINITIONS, Schema, labelled_subschemas, rewrite
from sessiontree.schema.loss_report import LossReport, Place

_OLDER: Final = re.compile(r"draft-0[3467]|2019-09")
_BOUNDS = (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum"))
_ASKED: Final = {
    "draft-04": frozenset({"format"}),
    "draft-06": frozenset({"contentEncoding", "contentMediaType", "format"}),
    "draft-07": frozenset({"contentEncoding", "contentMediaType", "format"}),
}
"""Keywords that a draft asks of values, and 2020-12 only notes."""
_TURNED: Final = DEFINITIONS | {"contains", "if", "not", "oneOf"}
"""Beneath these, or what they may be referred to from, asking less of a value may make fewer values fit."""


def modernised(schema: Schema, report: LossReport) -> Schema:
    """Return the schema without ``$schema``, and as 2020-12 spells it where it is of an older draft."""
    if "$schema" not in schema:
        return schema
    rest = {keyword: value for keyword, value in schema.items() if keyword != "$schema"}
    report.add((), "$schema", "same", "left out: providers take 2020-12")
    named = str(schema["$schema"])
    asked = next((keywords for draft, keywords in _ASKED.items() if draft in named), None)
    if asked is not None:
        _report_notes(rest, (), asked, report)
    return rewrite(rest, _modern) if _OLDER.search(named) else rest


def _report_notes(schema: Schema, place: Place, asked: frozenset[str], report: LossReport) -> None:
    for keyword in sorted(asked & schema.keys()):
        report.add(place, keyword, "wider", "only a note in 2020-12")
        if not _TURNED.isdisjoint(place):
            report.add(place, keyword, "narrower", "only a note in 2020-12")
    for step, inner in labelled_subschemas(schema):
        _report_notes(inner, (*place, *step), asked, report)
    for keyword in sorted(DEFINITIONS & schema.keys()):
        definitions = schema[keyword]
        for name, target in definitions.items() if isinstance(definitions, dict) else ():
            if isinstance(target, dict):
                _report_notes(target, (*place, keyword, name), asked, report)


def _modern(schema: Schema) -> Schema:
    items = schema.get("items")
    rest = schema.pop("additionalItems", None)
    if isinstance(items, list):
        del schema["items"]
        schema["prefixItems"] = items
        if rest is not None:
            schema["items"] = rest
    for strict, bound in _BOUNDS:
        if isinstance(schema.get(strict), bool) and schema.pop(strict) and bound in schema:
            schema[strict] = schema.pop(bound)
    return _split_dependencies(schema)


def _split_dependencies(schema: Schema) -> Schema:
    dependencies = schema.pop("dependencies", None)
    if isinstance(dependencies, dict):
        names: dict[str, JsonValue] = {n: need for n, need in dependencies.items() if isinstance(need, list)}
        schemas = {name: need for name, need in dependencies.items() if name not in names}
        schema |= {"dependentRequired": names} if names else {}
        schema |= {"dependentSchemas": schemas} if schemas else {}
    return schema
