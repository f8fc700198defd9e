"""Canvases in pages: a tree whose Main does as it is asked, surfaces in each version, and a hostile page."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, FrameLocator

from sessiontree import AgentSpec, FunctionModel, ModelRequest, Rule, SessionTree
from sessiontree.models.answers import Answer
from tests.system.pages.page_fixtures import Screen, Site, site_of

RULES = [Rule(tool="canvas", answer="approve")]
CATALOGUE = "https://a2ui.org/specification/v0_9/basic_catalog.json"
FORM: list[dict[str, Any]] = [
    {"id": "root", "component": "Column", "children": ["head", "card", "people", "send"]},
    {"id": "head", "component": "Text", "text": "A table for tonight", "variant": "h2"},
    {"id": "card", "component": "Card", "child": "fields"},
    {"id": "fields", "component": "Column", "children": ["name", "mail", "veg", "seats", "time"]},
    {"id": "name", "component": "TextField", "label": "Your name", "value": {"path": "/name"}},
    {
        "id": "mail",
        "component": "TextField",
        "label": "Mail",
        "value": {"path": "/mail"},
        "checks": [
            {"condition": {"call": "email", "args": {"value": {"path": "/mail"}}}, "message": "No address."}
        ],
    },
    {"id": "veg", "component": "CheckBox", "label": "Vegetarian", "value": {"path": "/veg"}},
    {"id": "seats", "component": "Slider", "label": "Seats", "min": 1, "max": 8, "steps": 7,
     "value": {"path": "/seats"}},
    {
        "id": "time",
        "component": "ChoicePicker",
        "label": "When",
        "displayStyle": "chips",
        "options": [{"label": "At seven", "value": "19"}, {"label": "At nine", "value": "21"}],
        "value": {"path": "/time"},
    },
    {"id": "people", "component": "List", "children": {"componentId": "person", "path": "/people"}},
    {"id": "person", "component": "Row", "children": ["icon", "who"], "align": "center"},
    {"id": "icon", "component": "Icon", "name": "person"},
    {"id": "who", "component": "Text", "text": {"path": "name"}},
    {
        "id": "send",
        "component": "Button",
        "child": "words",
        "variant": "primary",
        "action": {
            "event": {"name": "reserve", "context": {"name": {"path": "/name"}, "veg": {"path": "/veg"}}}
        },
    },
    {"id": "words", "component": "Text", "text": "Reserve"},
]  # fmt: skip
DATA = {"name": "", "mail": "ada@example.org", "veg": False, "seats": 2, "time": ["19"],
        "people": [{"name": "Ada <b>L.</b>"}, {"name": "Grace H."}]}  # fmt: skip
LATER = [
    {"version": "v0.9.1", "createSurface": {"surfaceId": "table", "catalogId": CATALOGUE}},
    {"version": "v0.9.1", "updateComponents": {"surfaceId": "table", "components": FORM}},
    {"version": "v0.9.1", "updateDataModel": {"surfaceId": "table", "path": "/", "value": DATA}},
]
NEWEST = [
    {
        "version": "1.0",
        "createSurface": {
            "surfaceId": "sum",
            "components": [
                {"id": "root", "component": "Column", "children": ["now", "more"]},
                {"id": "now", "component": "Text",
                 "text": {"@call": "formatString", "args": {"value": "There are ${/count} of them"}}},
                {"id": "more", "component": "Text", "text": {"@path": "/note"}, "variant": "caption"},
            ],
            "dataModel": {"count": 3, "note": "in **v1.0**"},
        },
    }
]  # fmt: skip
FIRST: list[dict[str, Any]] = [
    {
        "surfaceUpdate": {
            "surfaceId": "old",
            "components": [
                {"id": "r", "component": {"Column": {"children": {"explicitList": ["t", "b"]}}}},
                {"id": "t", "component": {"Text": {"text": {"path": "/greeting"}, "usageHint": "h3"}}},
                {"id": "l", "component": {"Text": {"text": {"literalString": "Go on"}}}},
                {
                    "id": "b",
                    "component": {
                        "Button": {
                            "child": "l",
                            "action": {
                                "name": "go",
                                "context": [{"key": "said", "value": {"path": "/greeting"}}],
                            },
                        }
                    },
                },
            ],
        }
    },
    {
        "dataModelUpdate": {
            "surfaceId": "old",
            "contents": [{"key": "greeting", "valueString": "Hello of v0.8"}],
        }
    },
    {"beginRendering": {"surfaceId": "old", "root": "r", "styles": {"primaryColor": "#0a7f3f"}}},
]


def lines_of(messages: list[dict[str, Any]]) -> str:
    """Return messages as a payload, one a line."""
    return "\n".join(json.dumps(each) for each in messages)


def _repeat(request: ModelRequest) -> Answer:
    return f"heard: {request.messages[-1].text}"


def canvas_tree(tmp_path: Path, **options: Any) -> SessionTree:
    """Return a tree whose Main holds the canvas; every call of it is allowed."""
    workspace = tmp_path / "workspace"
    workspace.mkdir(exist_ok=True)
    agents = {"default": AgentSpec(tools=("canvas", "exec"))}
    given = {"backend": "local", "state_dir": tmp_path / "state", "approver": RULES, **options}
    model = FunctionModel(_repeat)
    return SessionTree(workspace, model=model, agents=agents, purpose="canvases", **given)


async def do(tree: SessionTree, action: str, **given: Any) -> Any:
    """Have Main use its canvas; return the output."""
    return (await tree.main.call("canvas", {"action": action, **given})).output


@asynccontextmanager
async def canvas_site(tmp_path: Path, browser: Browser) -> AsyncIterator[tuple[SessionTree, Site]]:
    """Run such a tree and serve it."""
    async with canvas_tree(tmp_path) as tree, site_of(tmp_path / "state", browser) as site:
        yield tree, site


def frame_in(screen: Screen) -> FrameLocator:
    """Return the frame of the canvas that a page shows."""
    return screen.page.locator("session-tree").frame_locator("iframe.canvas-frame")
