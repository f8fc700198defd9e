"""What it takes to clean schemas for every provider's dialect, and what of them is lost.

Over all built-in tools and a corpus of hard schemas; each is cleaned once for each dialect, and once more.

- `tools`: schemas cleaned; `dialects`: for how many dialects each.
- `max_ms`: the slowest single cleaning of all (each the fastest of its rounds), in milliseconds: what the
  first session of a dialect waits for one tool. Later sessions find it done.
- `lossy`: pairs of schema and dialect in which the model is shown another set of values than the tool takes.
- `idempotent`: whether cleaning what was cleaned changed nothing, in every pair.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import read_options, show
from sessiontree.api.configuration.plugins import load_installed_tools
from sessiontree.contracts.tools.plugins import PluginContext
from sessiontree.schema.derive import derive_schema
from sessiontree.schema.dialect import DIALECTS
from sessiontree.schema.provider_schema import clean

TEXT = {"type": "string"}
NODE = {
    "type": "object",
    "properties": {"name": TEXT, "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}}},
    "required": ["name", "children"],
}


def _nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string", "pattern": "^x", "maxLength": 9}
    for level in range(depth):
        schema = {"type": "object", "properties": {f"level{level}": schema}, "additionalProperties": False}
    return schema


def _corpus() -> list[dict[str, Any]]:
    """Return schemas of the kinds that providers refuse, some as large as real ones get."""
    kinds = [
        {"type": "object", "properties": {"kind": {"const": f"k{at}"}, f"p{at}": TEXT}, "required": ["kind"]}
        for at in range(40)
    ]
    return [
        {"oneOf": kinds},
        {"properties": {"kept": TEXT}, "required": ["kept"], "anyOf": kinds[:3]},
        {"properties": {"root": {"$ref": "#/$defs/Node"}}, "$defs": {"Node": NODE}},
        {"$ref": "#/$defs/Node", "$defs": {"Node": NODE}},
        {"properties": dict.fromkeys(("format", "pattern", "$ref", "anyOf", "required"), TEXT)},
        {"properties": {"x": {"anyOf": [{"const": "a"}, {"const": "b"}, {"type": "null"}]}}},
        {
            "properties": {
                "pair": {"type": "array", "prefixItems": [TEXT, {"type": "integer"}], "maxItems": 2}
            }
        },
        {"patternProperties": {"^x-": TEXT}, "additionalProperties": False, "minProperties": 1},
        {"allOf": [{"properties": {"a": TEXT}}, {"properties": {"b": TEXT}, "required": ["b"]}]},
        {"if": {"required": ["a"]}, "then": {"required": ["b"]}, "not": {"required": ["c"]}},
        {"properties": {f"p{at}": {"type": ["string", "null"], "minLength": at} for at in range(200)}},
        _nested(40),
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    options = read_options(__doc__.splitlines()[0] if __doc__ else "", arguments)
    rounds = 3 if options.quick else 20
    installed = load_installed_tools(PluginContext("", Path.cwd(), "default"))
    schemas = [derive_schema(each.tool) for each in installed] + _corpus()
    slowest, lossy, idempotent = 0.0, 0, True
    for schema in schemas:
        for dialect in DIALECTS.values():
            cleaned, took = clean(schema, dialect), []
            for _ in range(rounds):
                started = time.perf_counter()
                clean(schema, dialect)
                took.append(time.perf_counter() - started)
            slowest = max(slowest, min(took))
            lossy += cleaned.is_lossy
            idempotent = idempotent and clean(cleaned.schema, dialect).schema == cleaned.schema
    figures = {
        "tools": len(schemas),
        "dialects": len(DIALECTS),
        "max_ms": slowest * 1e3,
        "lossy": lossy,
        "idempotent": idempotent,
    }
    show(figures, options)


if __name__ == "__main__":
    main()
