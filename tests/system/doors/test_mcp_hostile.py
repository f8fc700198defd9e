"""Hostile clients of MCP: whatever they send is refused by name, costs little, and changes nothing."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from sessiontree.serve.routes.door_guard import MAX_BODY
from sessiontree.serve.routes.mcp_routes import MAX_FOLLOWED, TaskPolls
from tests.behaviour.effect_fakes import effects
from tests.system.doors.mcp_fixtures import NEWEST, BareClient, RpcError, make_token, open_mcp

META = {
    "io.modelcontextprotocol/protocolVersion": NEWEST,
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
}
ODD: tuple[Any, ...] = (
    *(None, True, -1, 10**400, 1.5, "", "\x00", "x" * 5_000, "../..", "t0123456789abcdef"),
    *([], {}, [[[]]], {"a": {"b": None}}, {"taskId": 3}, {"name": "run_tree", "arguments": 3}),
)
METHODS = (
    *("tools/list", "tools/call", "tasks/get", "tasks/update", "tasks/cancel", "tasks/list", "initialize"),
    *("ping", "server/discover", "subscriptions/listen", "resources/read", "notifications/cancelled", "x"),
)
TOOLS = ("run_tree", "send", "status", "answer", "cancel", "x")


def odd_request(chance: Random) -> dict[str, Any]:
    """Return a request of which something is wrong; none of them can begin a tree."""
    params: dict[str, Any] = {"_meta": chance.choice((META, META, *ODD))}
    for name in ("name", "arguments", "taskId", "inputResponses", "cursor", "uri"):
        if chance.random() < 0.5:
            params[name] = chance.choice(ODD)
    if chance.random() < 0.5:
        params["name"] = chance.choice(TOOLS)
        params["arguments"] = {
            chance.choice(("conversation", "cursor", "request", "content", "text", "y")): chance.choice(ODD)
        }
    request = {"jsonrpc": "2.0", "id": 1, "method": chance.choice(METHODS), "params": params}
    if chance.random() < 0.3:
        request[chance.choice(tuple(request))] = chance.choice(ODD)
    return request


def odd_body(chance: Random) -> bytes:
    """Return the body of a request, which may be no JSON at all."""
    text = json.dumps(odd_request(chance)).encode()
    match chance.randrange(6):
        case 0:
            return text[: chance.randrange(len(text))]
        case 1:
            return chance.randbytes(200)
        case 2:
            return b"[" * 5_000
        case 3:
            return json.dumps([odd_request(chance)] * 3).encode()
        case _:
            return text


def odd_headers(chance: Random, body: bytes) -> dict[str, str]:
    """Return headers that may not belong to a body."""
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    if chance.random() < 0.8:
        headers["MCP-Protocol-Version"] = chance.choice((NEWEST, NEWEST, "2025-11-25", "1", "9999-99-99"))
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict) and isinstance(method := found.get("method"), str) and method.isprintable():
        headers["Mcp-Method"] = method[:100]
    if chance.random() < 0.3:
        headers["Mcp-Name"] = chance.choice(("run_tree", "x", "=?base64?%%?="))
    if chance.random() < 0.1:
        del headers[chance.choice(("Content-Type", "Accept"))]
    return headers


@pytest.mark.parametrize("count", [200, pytest.param(10_000, marks=pytest.mark.long)])
async def test_malformed_requests_are_refused_and_forgotten(
    count: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each gets an answer below 500, no tree begins, nothing secret is logged, and the server goes on."""
    caplog.set_level(logging.INFO)
    chance = Random(count)
    async with open_mcp(tmp_path) as origin:
        token = make_token(tmp_path, per_minute=100_000)
        bearer = {"Authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(base_url=origin, headers=bearer, timeout=60) as client:
            for _ in range(count):
                body = odd_body(chance)
                headers = odd_headers(chance, body)
                async with client.stream("POST", "/mcp", content=body, headers=headers) as answer:
                    assert answer.status_code < 500, (body[:500], headers)
        plain = BareClient(origin, token, {})
        assert (await plain.call("run_tree", task="hello"))["structuredContent"]["text"] == "heard hello"
    assert token not in caplog.text


async def test_only_programs_with_a_token_ask(tmp_path: Path) -> None:
    """Pages of any site, other names of the server, no token, a wrong one, too many, and too much."""
    async with open_mcp(tmp_path) as origin:
        bearer = f"Bearer {make_token(tmp_path)}"
        few = f"Bearer {make_token(tmp_path, per_minute=2)}"
        body = b"{}"

        async def status(given: bytes = body, **headers: str) -> int:
            async with httpx.AsyncClient(base_url=origin, timeout=60) as client:
                named = {name.replace("_", "-"): value for name, value in headers.items()}
                answer = await client.post(
                    "/mcp", content=given, headers={"Content-Type": "application/json", **named}
                )
                return answer.status_code

        assert await status() == 401
        assert await status(authorization="Basic eDp5") == 401
        assert await status(authorization=f"{bearer}x") == 401
        assert await status(authorization=bearer, origin="https://evil.example") == 403
        assert await status(authorization=bearer, origin=origin) == 403
        assert await status(authorization=bearer, sec_fetch_site="same-origin") == 403
        assert await status(authorization=bearer, host="evil.example") == 403
        assert await status(b"x" * (MAX_BODY + 1), authorization=bearer) == 413
        assert [await status(authorization=few) for _ in range(3)][-1] == 429


@pytest.mark.parametrize("steps", [10, pytest.param(100, marks=pytest.mark.long)])
async def test_token_of_tier_read_only_changes_no_file(steps: int, tmp_path: Path) -> None:
    """Whatever it asks, in any order, of any tool and task, answered with a yes by itself."""
    chance = Random(steps)
    async with open_mcp(tmp_path) as origin:
        token = make_token(tmp_path, tier="ReadOnly", approves=True)
        clients = (BareClient(origin, token), BareClient(origin, token, {}))
        known: list[str] = []
        tasks: list[str] = []

        async def begin(client: BareClient, tool: str, **arguments: Any) -> None:
            words = chance.choice(("append x", "launch x", "twice", "look x", "hello"))
            name = "task" if tool == "run_tree" else "text"
            found = await client.call(tool, **{name: words, "wait_s": 30.0, **arguments})
            if "taskId" in found:
                tasks.append(found["taskId"])
                known.append(found["taskId"].partition("_")[0])
            elif "structuredContent" in found:
                known.append(found["structuredContent"]["conversation"])

        async def step(client: BareClient) -> None:
            match chance.randrange(4):
                case 0 | 1:
                    await begin(client, "run_tree")
                case 2:
                    await begin(client, "send", conversation=chance.choice(known))
                case _:
                    shown = await client.call("status", conversation=chance.choice(known))
                    for each in shown["structuredContent"]["waiting"]:
                        await client.call(
                            "answer",
                            conversation=shown["structuredContent"]["conversation"],
                            request=each["request"],
                            content={"confirm": True},
                        )

        await begin(clients[1], "run_tree")
        for _ in range(steps):
            await step(chance.choice(clients))
        for task_id in tasks:
            task = await clients[0].ask("tasks/get", taskId=task_id)
            assert "inputRequests" not in task, "nothing above the tier is asked about"
    assert effects(tmp_path / "workspace") == []


async def test_same_steps_of_another_tier_change_files(tmp_path: Path) -> None:
    """The test above can fail: with the tier, the same call happens."""
    async with open_mcp(tmp_path) as origin:
        client = BareClient(origin, make_token(tmp_path, tier="Workspace"), {})
        await client.call("run_tree", task="append x")
    assert [text for _, text in effects(tmp_path / "workspace")] == ["x"]


@pytest.mark.parametrize(
    "given",
    [
        lambda task: {"taskId": task, "inputResponses": {str(n): {} for n in range(65)}},
        lambda task: {"taskId": task, "inputResponses": []},
        lambda task: {"taskId": task},
        lambda task: {"inputResponses": {}},
        lambda task: {"taskId": task * 9, "inputResponses": {}},
    ],
)
async def test_updates_without_a_form_are_refused(
    given: Callable[[str], dict[str, Any]], tmp_path: Path
) -> None:
    """Before anything is looked up."""
    async with open_mcp(tmp_path) as origin:
        client = BareClient(origin, make_token(tmp_path))
        task = (await client.call("run_tree", task="hello"))["taskId"]
        with pytest.raises(RpcError) as caught:
            await client.ask("tasks/update", **given(task))
        assert caught.value.code == -32602


@pytest.mark.parametrize(
    ("waits_s", "free"), [([2.0] * 5, 5), ([1.0] * 5, 0), ([2.0, 0.1, 2.0, 0.1], 2), ([1.9, 1.5], 1)]
)
def test_polls_as_often_as_a_task_says_are_no_requests(waits_s: list[float], free: int) -> None:
    """The first one counts, and each that comes too early; what names another method always does."""
    now_s = [0.0]
    polls = TaskPolls(lambda: now_s[0])
    poll = {"mcp-method": "tasks/get", "mcp-name": "t0_1", "mcp-protocol-version": NEWEST}
    assert not polls.is_due("token", poll)
    due = 0
    for wait_s in waits_s:
        now_s[0] += wait_s
        due += polls.is_due("token", poll)
    assert due == free
    now_s[0] += 60
    for name, value in (
        ("mcp-method", "tools/call"),
        ("mcp-name", ""),
        ("mcp-protocol-version", "2025-11-25"),
    ):
        assert not polls.is_due("token", {**poll, name: value})
    assert not polls.is_due("other", poll)


def test_names_of_tasks_that_are_made_up_buy_few_polls() -> None:
    """A token whose polls name ever more tasks is counted as before, and costs no more memory."""
    polls = TaskPolls(lambda: 0.0)
    named = {"mcp-method": "tasks/get", "mcp-protocol-version": NEWEST}
    assert not any(polls.is_due("token", {**named, "mcp-name": f"t{n}"}) for n in range(1_000))
    assert len(polls._asked["token"]) == MAX_FOLLOWED


async def test_client_that_polls_as_it_should_is_never_refused(tmp_path: Path) -> None:
    """Its polls do not use up the rate of its token; headers of a poll let no other request in."""
    token = make_token(tmp_path, tier="Elevated", per_minute=2)
    async with open_mcp(tmp_path, TaskPolls(count(step=3.0).__next__)) as origin:
        client = BareClient(origin, token)
        task = (await client.call("run_tree", task="launch rocket"))["taskId"]
        for _ in range(20):
            assert (await client.ask("tasks/get", taskId=task))["status"] == "working"
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
        headers |= {"Mcp-Method": "tasks/get", "Mcp-Name": task}
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}
        async with httpx.AsyncClient(base_url=origin) as http:
            for version, status in ((NEWEST, 400), ("2025-11-25", 429)):
                named = {**headers, "MCP-Protocol-Version": version}
                assert (await http.post("/mcp", json=call, headers=named)).status_code == status
        with pytest.raises(RpcError) as refused:
            await client.call("run_tree", task="hello")
        assert refused.value.status == 429
