"""Approver rules that no call can match are found when their tree opens."""

from __future__ import annotations

import pytest

from sessiontree.contracts.recorded.approvals import Rule
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.policy.rules import find_rule_slips

DEPLOY: dict[str, JsonValue] = {
    "type": "object",
    "properties": {
        "target": {"type": "string"},
        "tags": {"type": "array", "prefixItems": [{"type": "integer"}], "items": {"$ref": "#/$defs/tag"}},
        "options": {"type": "object", "additionalProperties": {"type": "string"}},
        "either": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/tag"}]},
    },
    "additionalProperties": False,
    "$defs": {
        "tag": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "inner": {"$ref": "#/$defs/tag"}},
            "additionalProperties": False,
        }
    },
}
OPEN: dict[str, JsonValue] = {"type": "object", "properties": {"path": {"type": "string"}}}
SCHEMAS = {"deploy": DEPLOY, "anything": OPEN}


def slips(rule: Rule) -> list[str]:
    """Return what is said of one rule."""
    return list(find_rule_slips("approver", [Rule(), rule], SCHEMAS, {"ship": "deploy"}))


@pytest.mark.covers("POL14")
@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("depoly", "did you mean 'deploy'?"),
        ("ship", "write 'deploy'"),
        ("x*", "no tool of that name"),
        ("Deploy", "'deploy'"),
    ],
)
def test_rule_for_no_tool_is_said(tool: str, words: str) -> None:
    """With its number, and the name that was probably meant."""
    (slip,) = slips(Rule(tool=tool, answer="deny"))
    assert f"approver: rule 2 ({tool!r}) matches no call" in slip
    assert words in slip


@pytest.mark.parametrize("tool", ["deploy", "*", "d?ploy", "exec", "mem*", "[ad]*"])
def test_rule_for_a_tool_here_or_of_this_package_is_not(tool: str) -> None:
    """A tool that was left out may come again."""
    assert slips(Rule(tool=tool)) == []


@pytest.mark.covers("POL14")
@pytest.mark.parametrize(
    "pointer",
    [
        *(
            "/targt",
            "/target/0",
            "/target/x",
            "/tags/x",
            "/tags/00",
            "/tags/0/name",
            "/tags/1/nme",
            "/tags/-",
        ),
        *("/options/a/b", "/either/nme", "/either/inner/inner/nme", "/", "/tags/1/inner/name/x"),
    ],
)
def test_pointer_into_nothing_is_said(pointer: str) -> None:
    """Where the tool's schema has no such place."""
    (slip,) = slips(Rule(tool="deploy", where={pointer: "x"}))
    assert f"'deploy' takes nothing at {pointer!r}" in slip


@pytest.mark.parametrize(
    "pointer",
    ["", "/target", "/tags/0", "/tags/1/name", "/tags/77/inner/inner/name", "/options/any", "/either/name"],
)
def test_pointer_to_what_may_be_there_is_not(pointer: str) -> None:
    """Optional, listed, referred to, or in a variant."""
    assert slips(Rule(tool="deploy", where={pointer: "x"})) == []
    assert slips(Rule(tool="*", where={pointer: "x"})) == []


def test_open_schema_may_hold_anything() -> None:
    """What is not described can be given."""
    assert slips(Rule(tool="anything", where={"/other/3": "x"})) == []
    (slip,) = slips(Rule(tool="anything", where={"/path/3": "x"}))
    assert "'anything' takes nothing" in slip


def test_each_rule_is_judged_for_itself() -> None:
    """A rule for a tool that was left out, and one that is wrong, leave the rules after them to be read."""
    rules = [Rule(tool="exec"), Rule(tool="depoly"), Rule(tool="deploy", where={"/targt": "x"})]
    second, third = find_rule_slips("approver", rules, SCHEMAS, {})
    assert second.startswith("approver: rule 2 ('depoly') matches no call")
    assert "rule 3" in third
    assert "did you mean '/target'?" in third


@pytest.mark.parametrize(
    ("type_", "holds"), [("object", True), (["object", "null"], True), ("string", False), (["null"], False)]
)
def test_place_is_looked_for_where_the_type_may_have_members(type_: JsonValue, holds: bool) -> None:
    """The type may be one name or a list of them."""
    schema: dict[str, JsonValue] = {"properties": {"inner": {"type": type_}}}
    rule = Rule(tool="nested", where={"/inner/name": "x"})
    assert (list(find_rule_slips("approver", [rule], {"nested": schema}, {})) == []) is holds


@pytest.mark.parametrize(
    "circle",
    [
        {"$ref": "#"},
        {"anyOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}},
    ],
    ids=["itself", "variants"],
)
def test_search_without_an_end_counts_as_found(circle: dict[str, JsonValue]) -> None:
    """A rule is not called wrong because its tool's schema refers to itself."""
    assert list(find_rule_slips("approver", [Rule(tool="*", where={"/x": "y"})], {"round": circle}, {})) == []


def test_wide_schema_is_looked_at_to_a_bound() -> None:
    """What comes after a thousand variants counts as possible."""
    for variants, is_wrong in ((900, True), (1_100, False)):
        wide: dict[str, JsonValue] = {"anyOf": [{"type": "string"}] * variants, "type": "string"}
        said = list(find_rule_slips("approver", [Rule(tool="*", where={"/x": "y"})], {"wide": wide}, {}))
        assert bool(said) is is_wrong
