"""A2UI payloads: the version of each message, one form for all versions, and what is refused and where."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sessiontree.contracts.errors import ValidationError
from sessiontree.contracts.recorded.canvas import MAX_COMPONENTS, MAX_CONTENT_BYTES
from sessiontree_tools.pages.a2ui_messages import parse_messages

BASIC = "https://a2ui.org/specification/v0_9/basic_catalog.json"


def ops_of(*messages: Any) -> list[dict[str, Any]]:
    """Return the operations of messages, one a line."""
    return parse_messages("\n".join(json.dumps(each) for each in messages))


def components(*given: dict[str, Any], version: str = "v0.9.1") -> dict[str, Any]:
    """Return a message with components."""
    return {"version": version, "updateComponents": {"surfaceId": "s", "components": [*given]}}


def text(name: str, value: Any = "x", **more: Any) -> dict[str, Any]:
    """Return a text component."""
    return {"id": name, "component": "Text", "text": value, **more}


def first(name: str, kind: str, **props: Any) -> dict[str, Any]:
    """Return a component of v0.8."""
    return {"id": name, "component": {kind: props}}


@pytest.mark.covers("U13")
def test_versions_are_told_apart_and_become_one_form() -> None:
    """The same button of v0.8, v0.9.1 and v1.0 is one component, and its surface knows its version."""
    wanted = {
        "id": "b",
        "component": "Button",
        "child": "t",
        "variant": "primary",
        "action": {"event": {"name": "go", "context": {"who": {"path": "/name"}}}},
    }
    old = first(
        "b",
        "Button",
        child="t",
        primary=True,
        action={"name": "go", "context": [{"key": "who", "value": {"path": "/name"}}]},
    )
    new = {**wanted, "action": {"event": {"name": "go", "context": {"who": {"@path": "/name"}}}}}
    spellings: tuple[dict[str, Any], ...] = (
        {"surfaceUpdate": {"surfaceId": "s", "components": [old]}},
        components(wanted),
        components(new, version="1.0"),
    )
    for message in spellings:
        (op,) = ops_of(message)
        assert op["components"] == [wanted]
    versions: list[tuple[dict[str, Any], str]] = [
        ({"createSurface": {"surfaceId": "s", "catalogId": BASIC}}, "v0.9.1"),
        ({"version": "v0.9", "createSurface": {"surfaceId": "s", "catalogId": BASIC}}, "v0.9.1"),
        ({"version": "v1.0", "createSurface": {"surfaceId": "s", "sendDataModel": True}}, "v1.0"),
    ]
    for created, version in versions:
        (op,) = ops_of(created)
        assert (op["op"], op["version"], op["root"]) == ("create", version, "root")
    (begin,) = ops_of(
        {"beginRendering": {"surfaceId": "s", "root": "r", "styles": {"primaryColor": "#00BFFF"}}}
    )
    assert (begin["makes"], begin["root"], begin["color"]) == ("v0.8", "r", "#00BFFF")


def test_surface_may_come_whole() -> None:
    """v1.0 brings components and data in one message; a list of messages is a payload, too."""
    whole = {"surfaceId": "s", "components": [text("root", {"@path": "/a"})], "dataModel": {"a": 1}}
    ops = parse_messages(json.dumps([{"version": "v1.0", "createSurface": whole}]))
    assert [op["op"] for op in ops] == ["create", "components", "data"]
    assert ops[1]["components"] == [text("root", {"path": "/a"})]


@pytest.mark.parametrize(
    ("message", "op"),
    [
        (
            {"version": "v0.9.1", "updateDataModel": {"surfaceId": "s", "path": "/a", "value": None}},
            {"value": None},
        ),
        ({"version": "v0.9.1", "updateDataModel": {"surfaceId": "s", "path": "/a"}}, {}),
        ({"version": "v1.0", "updateDataModel": {"surfaceId": "s", "path": "/a", "value": None}}, {}),
        (
            {"version": "v1.0", "updateDataModel": {"surfaceId": "s", "path": "a", "value": [1]}},
            {"value": [1]},
        ),
    ],
)
def test_each_version_removes_data_in_its_own_way(message: dict[str, Any], op: dict[str, Any]) -> None:
    """v0.9 by leaving the value out, v1.0 by null."""
    assert ops_of(message) == [{"op": "data", "surface": "s", "path": "/a", **op}]


def test_data_of_the_first_version_is_a_map() -> None:
    """Typed entries become values; below a path they join what is there."""
    contents = [
        {"key": "n", "valueNumber": 2},
        {"key": "m", "valueMap": [{"key": "b", "valueBoolean": True}]},
    ]
    (whole,) = ops_of({"dataModelUpdate": {"surfaceId": "s", "contents": contents}})
    assert (whole["path"], whole["value"]) == ("", {"n": 2, "m": {"b": True}})
    below = ops_of({"dataModelUpdate": {"surfaceId": "s", "path": "/a", "contents": contents}})
    assert [(op["path"], op["value"]) for op in below] == [("/a/n", 2), ("/a/m", {"b": True})]


def test_components_of_the_first_version_get_the_later_names() -> None:
    """Hints, lists, templates, tabs, choices and patterns."""
    given = [
        first("t", "Text", text={"literalString": "a"}, usageHint="h1"),
        first("r", "Row", children={"explicitList": ["t"]}, distribution="end", alignment="center"),
        first("l", "List", children={"template": {"componentId": "t", "dataBinding": "/items"}}),
        first("tabs", "Tabs", tabItems=[{"title": {"literalString": "One"}, "child": "t"}]),
        first("m", "Modal", entryPointChild="t", contentChild="x"),
        first("f", "TextField", label={"literalString": "L"}, text={"path": "/f"}, validationRegexp="^a"),
        first(
            "c",
            "MultipleChoice",
            selections={"path": "/c"},
            maxAllowedSelections=1,
            options=[{"label": {"literalString": "A"}, "value": "a"}],
        ),
        first("s", "Slider", value={"literalNumber": 3}, maxValue=9),
        first("d", "Text", text={"path": "/d", "literalString": "until then"}),
    ]
    (op,) = ops_of({"surfaceUpdate": {"surfaceId": "s", "components": given}})
    found = {each["id"]: each for each in op["components"]}
    assert found["t"] == {"id": "t", "component": "Text", "text": "a", "variant": "h1"}
    assert (found["r"]["children"], found["r"]["justify"], found["r"]["align"]) == (["t"], "end", "center")
    assert found["l"]["children"] == {"componentId": "t", "path": "/items"}
    assert found["tabs"]["tabs"] == [{"title": "One", "child": "t"}]
    assert (found["m"]["trigger"], found["m"]["content"]) == ("t", "x")
    assert found["f"]["checks"][0]["condition"]["call"] == "regex"
    assert (found["c"]["component"], found["c"]["variant"]) == ("ChoicePicker", "mutuallyExclusive")
    assert found["c"]["options"] == [{"label": "A", "value": "a"}]
    assert (found["s"]["value"], found["s"]["max"]) == (3, 9)
    assert found["d"]["text"] == {"path": "/d", "default": "until then"}


def nested(depth: int) -> Any:
    """Return lists in lists."""
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


REFUSED: list[tuple[Any, str]] = [
    ({"version": "v2.0", "createSurface": {"surfaceId": "s"}}, "version 'v2.0' is not known"),
    ({"version": "v1.0", "surfaceUpdate": {"surfaceId": "s", "components": []}}, "no message of v1.0"),
    (
        {"version": "v0.9.1", "createSurface": {"surfaceId": "s", "catalogId": "shop.example:x"}},
        "basic catalogue",
    ),
    ({"version": "v1.0", "callFunction": {"call": "openUrl"}, "functionCallId": "1"}, "not carried out here"),
    ({"version": "v1.0", "createSurface": {"surfaceId": "s", "onload": "x"}}, "it has no 'onload'"),
    ({"version": "v1.0", "createSurface": {"surfaceId": ""}}, "an id is a text of 1 to 200"),
    ({"version": "v1.0"}, "a message has one of"),
    ([], "it holds no message"),
    ("text", "message 1: a message is an object"),
    (components(text("a", onclick="x")), "Text has no 'onclick'"),
    (components({"id": "a", "component": "Script", "text": "x"}), "'Script' is not a basic component"),
    (components({"id": "a", "component": "__proto__"}), "is not a basic component"),
    (components({"id": "a", "component": "Text"}), "Text needs text"),
    (
        components(text("a", {"call": "openUrl", "args": {"url": "javascript:1"}})),
        "'openUrl' is not a function",
    ),
    (components(text("a", nested(40))), "nested more than 32 deep"),
    (components(text("a", {"path": "/a~b"})), "write ~0 for a tilde"),
    (components(*[text(str(each)) for each in range(MAX_COMPONENTS + 1)]), "are too many"),
    (
        components(
            {"id": "a", "component": "Card", "child": "b"}, {"id": "b", "component": "Card", "child": "a"}
        ),
        "components contain themselves: a > b > a",
    ),
    (components({"id": "a", "component": "Card", "child": "a"}), "components contain themselves: a > a"),
    (
        components(
            {"id": "a", "component": "Button", "child": "t", "action": {"functionCall": {"call": "openUrl"}}}
        ),
        "a frame carries out no function of its own",
    ),
    (components({"id": "a", "component": "Icon", "name": {"svgPath": "M0 0"}}), "paths of SVG are not drawn"),
    (
        {"beginRendering": {"surfaceId": "s", "root": "r", "styles": {"primaryColor": "red;x"}}},
        "give a colour",
    ),
]


@pytest.mark.parametrize(("message", "reason"), REFUSED, ids=[reason[:30] for _, reason in REFUSED])
def test_what_is_not_valid_is_refused_with_its_place(message: Any, reason: str) -> None:
    """Nothing of the payload is carried out, and the error says where and why."""
    with pytest.raises(ValidationError) as refused:
        parse_messages(json.dumps(message))
    assert reason in str(refused.value)
    assert refused.value.field == "/jsonl"


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ("", "it holds no message"),
        ("{", "line 1: it is not JSON"),
        ('{"version": NaN}', "NaN is no number"),
        ("[" * 100_000, "nested too deeply"),
        ("x" * 10_000_000, "bytes are too many"),
        ("\ud800", "it is not JSON"),
        ("{}\n" * 1_001, "a message has one of"),
    ],
)
def test_what_is_no_payload_is_refused_at_once(payload: str, reason: str) -> None:
    """Ten megabytes, deep brackets and broken characters cost no more than a look."""
    with pytest.raises(ValidationError) as refused:
        parse_messages(payload)
    assert reason in str(refused.value)
    assert len(str(refused.value)) < 600


def test_many_components_fit_no_payload() -> None:
    """A million of the shortest ones are longer than a payload may be."""
    shortest = '{"id":"a","component":"Divider"},'
    assert len(shortest) * 1_000_000 > MAX_CONTENT_BYTES
