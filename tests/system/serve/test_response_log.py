"""The response log: a response is a function of the journal, and one that has ended never changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sessiontree import FunctionModel, ModelRequest, script_call
from sessiontree.contracts.values.messages import ToolResultMessage, UserMessage
from sessiontree.doors.response_log import ResponseFold
from sessiontree.doors.responses.responses import ResponseFrame, make_response
from tests.system.serve.door_fixtures import open_door
from tests.system.serve.test_client_tools import ask, calls_in, output


def reply(request: ModelRequest) -> Any:
    """Use an own tool, a child and two calls of the client, and say what came of it."""
    last = request.messages[-1]
    if request.session_id != "main":
        return script_call("weather", place="child") if len(request.messages) == 1 else "child is done"
    if isinstance(last, UserMessage) and last.text == "go":
        places = [script_call("weather", place=place) for place in ("Rome", "Oslo")]
        return ["I look.", script_call("append", text="x"), *places]
    if isinstance(last, UserMessage) and last.text == "spawn":
        return script_call("sessions_spawn", kind="branch", task="ask", wait="all")
    heard = [each.text for each in request.messages if isinstance(each, ToolResultMessage)]
    return f"heard {len(heard)}"


async def test_each_ended_response_stays_what_it_was(tmp_path: Path) -> None:
    """However far the journal goes on: its id, items, calls and usage are fixed with its end."""
    async with open_door(tmp_path, FunctionModel(reply)) as door:
        token = door.make_token(tier="Workspace")
        response = await ask(door, token, input="go")
        for place in ("Oslo", "Rome"):
            given = [output(calls_in(response)[place], place)]
            response = await ask(door, token, input=given, previous_response_id=response.id)
        response = await ask(door, token, input="spawn", previous_response_id=response.id)
        while not calls_in(response):
            response = await ask(door, token, input="and?", previous_response_id=response.id)
        given = [output(calls_in(response)["child"], "sun")]
        last = await ask(door, token, input=given, previous_response_id=response.id)
        records = await door.records(last.id.partition("_")[0])
    fold = ResponseFold()
    fixed: dict[str, dict[str, Any]] = {}
    for record in records:
        fold.take(record)
        for name, logged in fold.responses.items():
            if logged.ended is not None:
                now = make_response(ResponseFrame(name, "default", {}), fold, logged)
                assert fixed.setdefault(name, now) == now, f"{name} changes at {record.seq}"
    assert last.id in fixed
    assert len(fixed) >= 5
    used = [each["usage"]["total_tokens"] for each in fixed.values()]
    assert all(each >= 0 for each in used)
