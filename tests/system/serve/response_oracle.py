"""What Open Responses says about every object and event that a door sends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import openresponses_types.types as spec
from pydantic import BaseModel, ConfigDict

OWN = "sessiontree:"
"""What the types of items begin with that are the project's own."""


class _OwnItem(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    id: str
    status: Literal["in_progress", "completed", "failed"]


class ToolCallItem(_OwnItem):
    """A call that the tree ran itself."""

    type: Literal["sessiontree:tool_call"]
    name: str
    arguments: str
    outcome: str


class SpawnItem(_OwnItem):
    """A session that the tree started."""

    type: Literal["sessiontree:spawn"]
    session: str
    kind: Literal["branch", "worker"]
    agent: str
    task: str


class ApprovalItem(_OwnItem):
    """A request that a person is asked to allow."""

    type: Literal["sessiontree:approval"]
    request_id: str
    session: str
    name: str
    arguments: str
    decision: str | None


_OWN_ITEMS: dict[str, type[_OwnItem]] = {
    "sessiontree:tool_call": ToolCallItem,
    "sessiontree:spawn": SpawnItem,
    "sessiontree:approval": ApprovalItem,
}
_EVENTS: dict[str, Any] = {
    name: getattr(spec, f"Response{form}StreamingEvent")
    for name, form in {
        "response.created": "Created",
        "response.queued": "Queued",
        "response.in_progress": "InProgress",
        "response.completed": "Completed",
        "response.failed": "Failed",
        "response.incomplete": "Incomplete",
        "response.output_item.added": "OutputItemAdded",
        "response.output_item.done": "OutputItemDone",
        "response.content_part.added": "ContentPartAdded",
        "response.content_part.done": "ContentPartDone",
        "response.output_text.delta": "OutputTextDelta",
        "response.output_text.done": "OutputTextDone",
        "response.function_call_arguments.delta": "FunctionCallArgumentsDelta",
        "response.function_call_arguments.done": "FunctionCallArgumentsDone",
    }.items()
}


def check_response(response: Mapping[str, Any]) -> None:
    """Refuse an object that is not a response; items of the project's own are checked by their own form."""
    for item in response["output"]:
        if item["type"].startswith(OWN):
            _OWN_ITEMS[item["type"]].model_validate(item)
    standard = [each for each in response["output"] if not each["type"].startswith(OWN)]
    spec.ResponseResource.model_validate({**response, "output": standard})


def check_events(events: Iterable[Mapping[str, Any]]) -> None:
    """Refuse a stream that is not one: its forms, numbers, ids and places."""
    numbers: list[int] = []
    open_items: dict[int, str] = {}
    ids: dict[int, str] = {}
    last: Mapping[str, Any] = {}
    for event in events:
        last = event
        numbers.append(event["sequence_number"])
        form = _EVENTS[event["type"]]
        if "response" in event:
            check_response(event["response"])
            own = [each for each in event["response"]["output"] if not each["type"].startswith(OWN)]
            form.model_validate({**event, "response": {**event["response"], "output": own}})
            continue
        item = event.get("item")
        if item is not None and item["type"].startswith(OWN):
            _OWN_ITEMS[item["type"]].model_validate(item)
            form.model_validate({**event, "item": None})
        else:
            form.model_validate(event)
        place = event["output_index"]
        named = event.get("item_id") or event["item"]["id"]
        assert ids.setdefault(place, named) == named, "the id of an item changes"
        if event["type"] == "response.output_item.added":
            assert place == len(ids) - 1, "items come in their order"
            open_items[place] = named
        elif event["type"] == "response.output_item.done":
            assert open_items.pop(place) == named
    assert numbers == sorted(set(numbers)), "numbers rise"
    assert last["type"] in {"response.completed", "response.failed", "response.incomplete"}
    if last["response"]["status"] == "completed":
        assert [each["id"] for each in last["response"]["output"]] == [ids[place] for place in sorted(ids)]
