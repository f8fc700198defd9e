"""Schemas drawn for tests of cleaning: every keyword, in every place, and values that mostly fit them."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from hypothesis import strategies as st

NAMES = ("a", "b", "format", "pattern", "items", "type", "$ref", "anyOf", "properties", "required", "enum")
"""Names of properties; most look like keywords."""
REFERENCES = {
    "#/$defs/A": "A",
    "#/$defs/B": "B",
    "#/$defs/List%5Bint%5D": "List[int]",
    "#/$defs/q%7E1%25r": "q/%r",
}
"""References to definitions, percent-encoded as URIs are, to the definitions' names."""
LITERALS = st.sampled_from(
    [
        *(
            {"type": "string", "enum": ["x", "y"]},
            {"type": "integer", "enum": [1, 2]},
            {"type": "boolean"},
            False,
        ),
        *(
            {"const": "a"},
            {"enum": [None, "a"]},
            {"type": "null"},
            {"enum": [0.5, 1]},
            {"type": "number", "enum": [0.5]},
        ),
    ]
)
TYPES = ("string", "integer", "number", "boolean", "null", "array", "object")
SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "b", "abc", 0.5])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
    max_leaves=5,
)
_NUMBERS = st.integers(-2, 3)
_SIZES = st.integers(0, 3)

SIMPLE: dict[str, st.SearchStrategy[Any]] = {
    "type": st.sampled_from(TYPES) | st.lists(st.sampled_from(TYPES), min_size=1, max_size=3, unique=True),
    "enum": st.lists(SCALARS, min_size=1, max_size=3, unique_by=repr),
    "const": SCALARS,
    "minimum": _NUMBERS,
    "maximum": _NUMBERS,
    "exclusiveMinimum": _NUMBERS,
    "multipleOf": st.integers(1, 3),
    "minLength": _SIZES,
    "maxLength": _SIZES,
    "pattern": st.sampled_from(["^a", "b$", "^(?!a)"]),
    "format": st.sampled_from(["date", "uri"]),
    "minItems": _SIZES,
    "maxItems": _SIZES,
    "uniqueItems": st.booleans(),
    "minProperties": _SIZES,
    "maxProperties": _SIZES,
    "required": st.lists(st.sampled_from(NAMES), max_size=3, unique=True),
    "default": SCALARS,
    "description": st.sampled_from(["One.", "Two."]),
    "title": st.sampled_from(["One", "Two"]),
    "examples": st.lists(SCALARS, max_size=1),
    "deprecated": st.booleans(),
    "dependentRequired": st.dictionaries(
        st.sampled_from(NAMES), st.lists(st.sampled_from(NAMES), max_size=1), max_size=1
    ),
}


def holders(inner: st.SearchStrategy[Any]) -> dict[str, st.SearchStrategy[Any]]:
    """Return keywords that hold schemas, to what they may hold."""
    whole = inner | st.booleans()
    named = st.dictionaries(st.sampled_from(NAMES), whole, max_size=3)
    several = st.lists(whole, min_size=1, max_size=3) | st.lists(LITERALS, min_size=1, max_size=3)
    return {
        "properties": named,
        "patternProperties": st.dictionaries(st.sampled_from(["^a", "t$"]), whole, max_size=1),
        "additionalProperties": whole,
        "propertyNames": inner,
        "items": whole,
        "prefixItems": several,
        "contains": inner,
        "not": inner,
        "if": inner,
        "then": inner,
        "else": inner,
        "anyOf": several,
        "oneOf": several,
        "allOf": several,
        "dependentSchemas": st.dictionaries(st.sampled_from(NAMES), inner, max_size=1),
        "unevaluatedProperties": whole,
        "unevaluatedItems": whole,
    }


@st.composite
def schemas(draw: st.DrawFn, depth: int = 3, *, refs: bool = True) -> dict[str, Any]:
    """Draw a schema; references lead to the definitions of :func:`roots`."""
    if refs and draw(st.integers(0, 9)) == 0:
        beside = draw(schemas(depth - 1, refs=refs) | st.just({"description": "Mine."})) if depth > 0 else {}
        return {**beside, "$ref": draw(st.sampled_from([*REFERENCES, "#"]))}
    usual = draw(st.sampled_from(["object", "array", "union", "scalar", "any"]))
    schema: dict[str, Any] = {}
    if usual in {"object", "array"}:
        schema["type"] = usual
    inner = schemas(depth - 1, refs=refs)
    more = holders(inner) if depth > 0 else {}
    likely = {"object": ["properties", "required"], "array": ["items"], "union": ["anyOf"]}.get(
        usual, ["type"]
    )
    chosen = [name for name in likely if name in more or name in SIMPLE]
    chosen += draw(st.lists(st.sampled_from([*SIMPLE, *more]), max_size=2, unique=True))
    for keyword in chosen:
        if keyword not in schema:
            schema[keyword] = draw({**SIMPLE, **more}[keyword])
    return schema


@st.composite
def roots(draw: st.DrawFn, *, refs: bool = True) -> dict[str, Any]:
    """Draw the schema of an object, with definitions that may contain each other."""
    root: dict[str, Any] = {**draw(schemas(refs=refs)), "type": "object"}
    for keyword in ("$ref", "const", "enum"):
        if draw(st.integers(0, 3)):
            root.pop(keyword, None)
    if refs:
        root["$defs"] = {name: draw(schemas(2)) for name in REFERENCES.values()}
    return root


def fitting(schema: Any, root: Any, draw: st.DrawFn, depth: int = 4) -> Any:
    """Draw a value that fits a schema more often than not; the caller checks."""
    if depth <= 0 or not isinstance(schema, dict) or draw(st.integers(0, 14)) == 0:
        return draw(SCALARS)
    if "$ref" in schema:
        ref = schema["$ref"]
        name = unquote(ref.removeprefix("#/$defs/")).replace("~1", "/")
        return fitting(root if ref == "#" else root["$defs"][name], root, draw, depth - 1)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return draw(st.sampled_from(schema["enum"]))
    for union in ("anyOf", "oneOf", "allOf"):
        if union in schema and ("properties" not in schema or draw(st.booleans())):
            return fitting(draw(st.sampled_from(schema[union])), root, draw, depth - 1)
    named = schema.get("type", TYPES if "properties" not in schema else "object")
    kind = named if isinstance(named, str) else draw(st.sampled_from(list(named)))
    if kind == "object":
        return _object(schema, root, draw, depth)
    if kind == "array":
        prefix = schema.get("prefixItems", [])
        count = draw(st.integers(schema.get("minItems", 0), max(schema.get("minItems", 0), 3)))
        parts = [prefix[at] if at < len(prefix) else schema.get("items", True) for at in range(count)]
        return [fitting(part, root, draw, depth - 1) for part in parts]
    simple = {
        "string": st.sampled_from(["", "a", "b", "ab", "abc"]),
        "integer": st.integers(-3, 4),
        "number": st.sampled_from([0.5, 1, 2.0, -1]),
        "boolean": st.booleans(),
    }
    return draw(simple[kind]) if kind in simple else None


def _object(schema: Any, root: Any, draw: st.DrawFn, depth: int) -> dict[str, Any]:
    properties = schema.get("properties", {})
    wanted = dict.fromkeys(schema.get("required", []))
    wanted |= dict.fromkeys(name for name in properties if draw(st.booleans()))
    if schema.get("additionalProperties") is not False and draw(st.booleans()):
        wanted |= dict.fromkeys(draw(st.lists(st.sampled_from(NAMES), max_size=2)))
    other = schema.get("additionalProperties", True)
    return {name: fitting(properties.get(name, other), root, draw, depth - 1) for name in wanted}
