"""Tasks of MCP: a tree is one, over restarts of the server, for whoever began it and nobody else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sessiontree.doors.mcp.calls import TASKS
from tests.behaviour.effect_fakes import effects
from tests.system.doors.mcp_fixtures import BareClient, RpcError, http_program, make_token, open_mcp

ENDED = ("completed", "cancelled", "failed")
ALL_RIGHTS: dict[str, Any] = {"tier": "Elevated", "approves": True}


async def code_of(attempt: Any) -> int:
    """Return the code with which an attempt is refused."""
    with pytest.raises(RpcError) as caught:
        await attempt
    return caught.value.code


def accept(task: dict[str, Any], **content: Any) -> dict[str, Any]:
    """Return answers to everything that a task waits for."""
    return {key: {"action": "accept", "content": content} for key in task["inputRequests"]}


async def test_task_that_waits_is_answered_after_a_kill(tmp_path: Path) -> None:
    """The server is killed while the task waits; another one goes on with it, and the call happens once."""
    token = make_token(tmp_path, **ALL_RIGHTS)
    async with http_program(tmp_path) as (origin, process):
        client = BareClient(origin, token)
        begun = await client.call("run_tree", task="launch rocket")
        assert begun["resultType"] == "task"
        asked = await client.until(begun["taskId"], "input_required")
        process.kill()
    async with open_mcp(tmp_path) as origin:
        client = BareClient(origin, token)
        again = await client.until(begun["taskId"], "input_required")
        assert again["inputRequests"] == asked["inputRequests"]
        answers = accept(again, confirm=True)
        for _ in range(2):  # the second one comes too late, and changes nothing
            done = await client.ask("tasks/update", taskId=begun["taskId"], inputResponses=answers)
            assert done["resultType"] == "complete"
        ended = await client.until(begun["taskId"], *ENDED)
        assert ended["result"]["content"][0]["text"] == "done: appended rocket"
    async with open_mcp(tmp_path) as origin:
        assert (await BareClient(origin, token).ask("tasks/get", taskId=begun["taskId"])) == ended
    assert [text for _, text in effects(tmp_path / "workspace")] == ["rocket"]


async def test_several_answers_may_come_one_by_one(tmp_path: Path) -> None:
    """The task waits until the last one; each key names one request, and a denial is an answer too."""
    async with open_mcp(tmp_path) as origin:
        client = BareClient(origin, make_token(tmp_path, **ALL_RIGHTS))
        task_id = (await client.call("run_tree", task="twice"))["taskId"]
        waiting = await client.until(task_id, "input_required")
        while len(waiting["inputRequests"]) < 2:
            waiting = await client.ask("tasks/get", taskId=task_id)
        first, second = waiting["inputRequests"]
        await client.ask(
            "tasks/update",
            taskId=task_id,
            inputResponses={first: {"action": "accept", "content": {"confirm": True}}, "other": 3},
        )
        left = await client.ask("tasks/get", taskId=task_id)
        assert (left["status"], list(left["inputRequests"])) == ("input_required", [second])
        await client.ask("tasks/update", taskId=task_id, inputResponses={second: {"action": "decline"}})
        assert (await client.until(task_id, *ENDED))["status"] == "completed"
    assert [text for _, text in effects(tmp_path / "workspace")] == ["one"]


async def test_question_is_a_form(tmp_path: Path) -> None:
    """Its options are the form's; who dismisses it leaves it open, and what does not fit is refused."""
    async with open_mcp(tmp_path) as origin:
        client = BareClient(origin, make_token(tmp_path, **ALL_RIGHTS))
        task_id = (await client.call("run_tree", task="ask"))["taskId"]
        waiting = await client.until(task_id, "input_required")
        ((key, form),) = waiting["inputRequests"].items()
        chosen = form["params"]["requestedSchema"]["properties"]["choice_1"]["oneOf"]
        assert [each["const"] for each in chosen] == ["red", "blue"]

        async def update(reply: Any) -> Any:
            return await client.ask("tasks/update", taskId=task_id, inputResponses={key: reply})

        await update({"action": "cancel"})
        for bad in (
            3,
            {"action": "x"},
            {"action": "accept"},
            {"action": "accept", "content": {"choice_1": 5}},
        ):
            assert await code_of(update(bad)) == -32602
        assert await code_of(update({"action": "accept", "content": {"choice_1": "green"}})) == -32602
        assert (await client.ask("tasks/get", taskId=task_id))["inputRequests"].keys() == {key}
        await update({"action": "accept", "content": {"choice_1": "blue"}})
        ended = await client.until(task_id, *ENDED)
        assert "blue" in ended["result"]["content"][0]["text"]


async def test_end_of_a_task_says_how_it_went(tmp_path: Path) -> None:
    """Cancelled, with an error as its result, and failed with its tree."""
    async with open_mcp(tmp_path) as origin:
        client = BareClient(origin, make_token(tmp_path, **ALL_RIGHTS))
        long = (await client.call("run_tree", task="pause 60"))["taskId"]
        for _ in range(2):
            assert "status" not in await client.ask("tasks/cancel", taskId=long)
        assert (await client.until(long, *ENDED))["status"] == "cancelled"
        broken = (await client.call("run_tree", task="fail 0"))["taskId"]
        ended = await client.until(broken, *ENDED)
        assert (ended["status"], ended["result"]["isError"]) == ("completed", True)
        spent = (await client.call("run_tree", task="look x", agent="spent"))["taskId"]
        failed = await client.until(spent, *ENDED)
        assert (failed["status"], failed["error"]["code"], "result" in failed) == ("failed", -32603, False)
        assert "budget" in failed["statusMessage"]


async def test_tasks_are_for_clients_that_declare_them(tmp_path: Path) -> None:
    """Others get a result and no task, and their requests for tasks are refused by name."""
    async with open_mcp(tmp_path) as origin:
        token = make_token(tmp_path)
        task_id = (await BareClient(origin, token).call("run_tree", task="hello"))["taskId"]
        plain = BareClient(origin, token, {})
        result = await plain.call("run_tree", task="hello")
        assert (result["resultType"], result["structuredContent"]["text"]) == ("complete", "heard hello")
        more: dict[str, Any]
        for method, more in (("get", {}), ("update", {"inputResponses": {}}), ("cancel", {})):
            with pytest.raises(RpcError) as caught:
                await plain.ask(f"tasks/{method}", taskId=task_id, **more)
            assert (caught.value.code, caught.value.status) == (-32021, 400)
        declares = BareClient(origin, token, {"extensions": {TASKS: {}}})
        for gone in ("tasks/list", "tasks/result"):
            assert await code_of(declares.ask(gone, taskId=task_id)) == -32601


async def test_task_of_another_token_does_not_exist(tmp_path: Path) -> None:
    """It can't be seen, answered or cancelled, and the answer is that for an id that was made up."""
    async with open_mcp(tmp_path) as origin:
        mine = BareClient(origin, make_token(tmp_path, **ALL_RIGHTS))
        yours = BareClient(origin, make_token(tmp_path, **ALL_RIGHTS))
        task_id = (await mine.call("run_tree", task="launch rocket"))["taskId"]
        waiting = await mine.until(task_id, "input_required")
        forged = f"{task_id[:-1]}{'0' if task_id[-1] != '0' else '1'}"
        for method, more in (
            ("get", {}),
            ("update", {"inputResponses": accept(waiting, confirm=True)}),
            ("cancel", {}),
        ):
            for client, name in ((yours, task_id), (mine, forged), (mine, "x"), (mine, task_id[:17])):
                assert await code_of(client.ask(f"tasks/{method}", taskId=name, **more)) == -32602
        assert (await mine.ask("tasks/get", taskId=task_id))["status"] == "input_required"
    assert effects(tmp_path / "workspace") == []
