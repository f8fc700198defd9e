"""A contract for each built-in tool: its calls, its documented errors, and what does not apply to it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from sessiontree import (
    AgentSpec,
    App,
    ExecutionError,
    PermissionDenied,
    SessionHandle,
    SessionTree,
    ValidationError,
)
from sessiontree.policy.settings import PolicyConfig
from sessiontree.testing.tool_contract import ToolCase, ToolContract
from tests.behaviour.contract_fixtures import (
    AT_ONCE,
    LINES,
    OUTSIDE,
    SHORT,
    TEXT,
    TOOLS,
    check_file,
    contract,
)
from tests.behaviour.web_contract_fixtures import media_contracts, page_contracts, web_contracts


@contextlib.asynccontextmanager
async def one_child(tree: SessionTree, session: SessionHandle[Any]) -> AsyncIterator[None]:
    """Give the session a Worker called ``one`` that stays open."""
    if not any("/w" in child for child in session.status().children):
        await session.spawn("worker", "look", label="one", stays_open=True)
    yield


@contextlib.asynccontextmanager
async def one_job(tree: SessionTree, session: SessionHandle[Any]) -> AsyncIterator[None]:
    """Start a command in the background, where commands may run."""
    with contextlib.suppress(PermissionDenied):
        await session.call("exec", {"command": "echo hello; sleep 60", "background": True})
    yield


@contextlib.asynccontextmanager
async def answering(tree: SessionTree, session: SessionHandle[Any]) -> AsyncIterator[None]:
    """Answer each question as it comes."""

    async def answer() -> None:
        while True:
            for question in tree.questions.pending():
                await question.answer("blue")
            await asyncio.sleep(0.02)

    task = asyncio.create_task(answer())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait((task,))


ADD_FILE = "*** Begin Patch\n*** Add File: new.txt\n+hello\n*** End Patch"
BROKEN_PATCH = "*** Begin Patch\n*** Update File: a.txt\n@@\n-absent\n+new\n*** End Patch"


def _file_contracts() -> tuple[ToolContract, ...]:
    undecodable = {"a.txt": b"one \xff\xfe two\n"}
    return (
        contract(
            "read",
            ToolCase("a file", {"path": "a.txt"}, files={"a.txt": b"hello\n"}, says="hello"),
            ToolCase("no file", {"path": "b.txt"}, error=ExecutionError, says="b.txt"),
            ToolCase("a path outside", {"path": "/etc/passwd"}, error=PermissionDenied, says=OUTSIDE),
            ToolCase("no path", {}, error=ValidationError, says="path"),
            huge=ToolCase("20,000 lines", {"path": "a.txt"}, files={"a.txt": LINES}, says="line 0"),
            undecodable=ToolCase("a Latin text", {"path": "a.txt"}, files=undecodable, says="one"),
            not_checked=AT_ONCE,
        ),
        contract(
            "write",
            ToolCase("a file", {"path": "a/b.txt", "content": "x"}, check=check_file("a/b.txt", b"x")),
            ToolCase(
                "a path outside", {"path": "../b.txt", "content": "x"}, error=PermissionDenied, says=OUTSIDE
            ),
            ToolCase("a directory", {"path": "a", "content": ""}, files={"a/b": b""}, error=ExecutionError),
            ToolCase("no content", {"path": "a"}, error=ValidationError, says="content"),
            undecodable=ToolCase(
                "over bytes",
                {"path": "a.txt", "content": "é"},
                files=undecodable,
                check=check_file("a.txt", "é".encode()),
            ),
            not_checked={**AT_ONCE, **SHORT},
        ),
        contract(
            "edit",
            ToolCase(
                "one place",
                {"path": "a.txt", "old_text": "b", "new_text": "c"},
                files={"a.txt": b"abd"},
                check=check_file("a.txt", b"acd"),
            ),
            ToolCase(
                "no such text",
                {"path": "a.txt", "old_text": "z", "new_text": "c"},
                files={"a.txt": b"abd"},
                error=ExecutionError,
                says="a.txt",
            ),
            ToolCase(
                "two places",
                {"path": "a.txt", "old_text": "b", "new_text": "c"},
                files={"a.txt": b"bb"},
                error=ExecutionError,
                says="a.txt",
            ),
            undecodable=ToolCase(
                "beside bytes",
                {"path": "a.txt", "old_text": "two", "new_text": "2"},
                files=undecodable,
                error=ExecutionError,
                says="UTF-8",
            ),
            not_checked={**AT_ONCE, **SHORT},
        ),
        contract(
            "apply_patch",
            ToolCase("a new file", {"patch": ADD_FILE}, check=check_file("new.txt", b"hello\n")),
            ToolCase(
                "lines that are not there",
                {"patch": BROKEN_PATCH},
                files={"a.txt": b"a\n"},
                error=ExecutionError,
                says="a.txt",
            ),
            ToolCase("no patch", {"patch": "hello"}, error=ValidationError),
            undecodable=ToolCase(
                "beside bytes", {"patch": BROKEN_PATCH}, files=undecodable, error=ExecutionError, says="a.txt"
            ),
            policy=PolicyConfig.model_validate({"apply_patch": {"offer": "always"}}),
            not_checked={**AT_ONCE, **SHORT},
        ),
    )


def _search_contracts() -> tuple[ToolContract, ...]:
    many = {f"folder/{'n' * 60}{number}.txt": b"needle\n" for number in range(400)}
    return (
        contract(
            "find",
            ToolCase("by name", {"pattern": "*.txt"}, files={"a.txt": b""}, says="a.txt"),
            ToolCase("outside", {"pattern": "*", "path": "/etc"}, error=PermissionDenied, says=OUTSIDE),
            ToolCase("no folder", {"pattern": "*", "path": "none"}, error=ExecutionError, says="none"),
            huge=ToolCase("400 long names", {"pattern": "**/*.txt"}, files=many, says="nnn"),
            not_checked={**AT_ONCE, "undecodable": "files are named by text in a ToolCase"},
        ),
        contract(
            "grep",
            ToolCase("a word", {"pattern": "needle"}, files={"a.txt": b"a needle\n"}, says="a.txt"),
            ToolCase("not an expression", {"pattern": "("}, error=ValidationError, says="pattern"),
            ToolCase("outside", {"pattern": "x", "path": "/etc"}, error=PermissionDenied, says=OUTSIDE),
            huge=ToolCase("400 files", {"pattern": "needle", "limit": 1000}, files=many, says="needle"),
            undecodable=ToolCase("bytes", {"pattern": "one"}, files={"a.txt": b"one \xff\n"}),
            not_checked={"slow": "its process is ended with the call: tests of the matcher's process"},
        ),
        contract(
            "exec",
            ToolCase("a command", {"command": "echo a > f; cat f"}, says="a", check=check_file("f", b"a\n")),
            ToolCase("it fails", {"command": "exit 3"}, says="code 3"),
            ToolCase("outside", {"command": "true", "workdir": "/etc"}, error=PermissionDenied, says=OUTSIDE),
            slow=ToolCase("it sleeps", {"command": "sleep 60 & sleep 60"}, says="goes on in the background"),
            huge=ToolCase("a long output", {"command": "yes | head -c 3000000"}, says="left out"),
            undecodable=ToolCase("bytes", {"command": "printf 'a\\377b'"}, says="a\ufffdb"),
            not_checked={},
        ),
        contract(
            "process",
            ToolCase("a job", {"action": "list"}, says="job-"),
            ToolCase("no job", {"action": "kill", "job_id": "j9"}, error=ExecutionError, says="j9"),
            ToolCase("no id", {"action": "kill"}, error=ValidationError, says="job_id"),
            app=App(tools=[TOOLS["exec"]]),
            around=one_job,
            not_checked={
                "slow": "ids of jobs are random, so no case can wait for one: tests of jobs",
                "huge": "it gives a part of an output: tests of jobs",
                "undecodable": "as exec, whose output it gives",
            },
        ),
        contract(
            "child_workspace",
            ToolCase("none", {"action": "list"}, says="children"),
            ToolCase("no child", {"action": "merge", "target": "main/w9"}, error=ExecutionError, says="w9"),
            ToolCase("no target", {"action": "diff"}, error=ValidationError, says="needs the id"),
            not_checked={**AT_ONCE, **SHORT, "undecodable": "changes are bytes: tests of child workspaces"},
        ),
    )


def _session_contracts() -> tuple[ToolContract, ...]:
    no_session: dict[str, Any] = {"error": ExecutionError, "says": "main/w9"}
    rest = {**AT_ONCE, **TEXT}
    return (
        contract(
            "message",
            ToolCase("a text", {"text": "hello"}, says="sent"),
            ToolCase("no text", {"text": ""}, error=ValidationError, says="text"),
            not_checked={**rest, **SHORT},
        ),
        contract(
            "ask_user",
            ToolCase("a question", {"questions": [{"question": "Which colour?"}]}, says="blue"),
            ToolCase("no question", {"questions": []}, error=ValidationError, says="questions"),
            around=answering,
            not_checked={**rest, **SHORT, "restart": "a question waits in the journal: tests of questions"},
        ),
        contract(
            "program",
            ToolCase("a sum", {"code": "1 + 1"}, says="2"),
            ToolCase("it raises", {"code": "1 / 0"}, error=ExecutionError, says="ZeroDivisionError"),
            ToolCase("no such name", {"code": "nothing()"}, error=ValidationError, says="nothing"),
            ToolCase("no code", {"code": ""}, error=ValidationError, says="code"),
            not_checked={
                **TEXT,
                "slow": "it waits for its calls alone: tests of programs",
                "huge": "its bounds are the interpreter's: tests of programs",
                "restart": "an interpreter runs it instead of the tool: tests of programs",
            },
        ),
        contract(
            "tool_search",
            ToolCase("a tool", {"query": "read a file"}, says="read(path"),
            ToolCase("nothing", {"query": "zzz"}, says="search with others"),
            ToolCase("no words", {"query": ""}, error=ValidationError, says="query"),
            app=App(
                tools=[TOOLS["program"], TOOLS["read"]],
                agents={"default": AgentSpec(tools_offered="program")},
            ),
            not_checked={
                **TEXT,
                "slow": "it is answered at once by the host: tests of tool searches",
                "huge": "its lines are bounded: tests of tool searches",
                "restart": "the host answers it instead of the tool: tests of tool searches",
            },
        ),
        contract(
            "sessions_spawn",
            ToolCase("a Worker", {"kind": "worker", "task": "look"}, says="main/"),
            ToolCase("no kind", {"kind": "main", "task": "look"}, error=ValidationError, says="kind"),
            ToolCase(
                "no such agent",
                {"kind": "worker", "task": "look", "agent": "none"},
                error=ExecutionError,
                says="none",
            ),
            not_checked={**rest, **SHORT},
        ),
        contract("session_status", ToolCase("it reports", {}, says="main"), not_checked={**rest, **SHORT}),
        contract(
            "sessions_list",
            ToolCase("a child", {}, says="sessions"),
            ToolCase("no such kind", {"kind": "main"}, error=ValidationError, says="kind"),
            not_checked={**rest, **SHORT},
        ),
        contract(
            "sessions_history",
            ToolCase("a child's", {"target": "one"}, says="messages"),
            ToolCase("no session", {"target": "main/w9"}, **no_session),
            around=one_child,
            not_checked={**rest, "huge": "its pages are bounded: tests of sessions below"},
        ),
        contract(
            "sessions_send",
            ToolCase("to a child", {"target": "one", "message": "more"}, says="sent"),
            ToolCase("no session", {"target": "main/w9", "message": "more"}, **no_session),
            around=one_child,
            not_checked={**rest, **SHORT},
        ),
        contract(
            "subagents",
            ToolCase("list", {"action": "list"}, says="one"),
            ToolCase("kill", {"action": "kill", "target": "one"}, says="killed"),
            ToolCase("no session", {"action": "kill", "target": "main/w9"}, **no_session),
            ToolCase("no target", {"action": "kill"}, error=ValidationError, says="needs the id"),
            around=one_child,
            not_checked={**rest, **SHORT},
        ),
        contract(
            "nodes",
            ToolCase("their list", {"action": "status"}, says="nodes"),
            ToolCase(
                "no such node", {"action": "describe", "node": "none"}, error=ValidationError, says="none"
            ),
            ToolCase("nothing to say", {"action": "notify"}, error=ValidationError),
            ToolCase(
                "nothing to run", {"action": "run", "node": "none"}, error=ValidationError, says="command"
            ),
            ToolCase(
                "no right to nodes",
                {"action": "run", "node": "none", "command": "true"},
                error=PermissionDenied,
                says="did not allow it",
            ),
            not_checked={**rest, **SHORT},
        ),
        contract(
            "cron",
            ToolCase("a job", {"action": "add", "text": "look", "every_s": 3600}, says="job"),
            ToolCase("no time", {"action": "add", "text": "look"}, error=ValidationError),
            ToolCase("no such job", {"action": "run", "job_id": "none"}, error=ExecutionError, says="none"),
            not_checked={**rest, **SHORT},
        ),
        contract(
            "gateway",
            ToolCase("its state", {"action": "status"}, says="local"),
            ToolCase(
                "no configuration", {"action": "config.get"}, error=ExecutionError, says="configuration"
            ),
            not_checked={**rest, **SHORT},
        ),
        contract("agents_list", ToolCase("agents", {}, says="default"), not_checked={**rest, **SHORT}),
    )


def _memory_contracts() -> tuple[ToolContract, ...]:
    unknown = "0" * 32
    rest = {**AT_ONCE, **SHORT, **TEXT}
    return (
        contract("memory_search", ToolCase("nothing yet", {"query": "colour"}), not_checked=rest),
        contract(
            "memory_get",
            ToolCase("a file that was not read", {"path": "a.txt"}),
            ToolCase("no record", {"id": unknown}, says="nothing"),
            ToolCase("neither", {}, error=ValidationError),
            not_checked=rest,
        ),
        contract(
            "memory_store",
            ToolCase("a finding", {"text": "The sky is blue."}, says="stored"),
            ToolCase("white space", {"text": "  "}, error=ValidationError, says="text"),
            not_checked=rest,
        ),
        contract(
            "memory_forget",
            ToolCase("none of these", {"ids": [unknown]}, says="forgotten"),
            ToolCase("nothing named", {}, error=ValidationError),
            not_checked=rest,
        ),
    )


def every_contract(url: str, port: int) -> dict[str, ToolContract]:
    """Return each tool's contract by name; ``url`` is a site on the loopback that listens at ``port``.

    The site has the pages ``page``, ``slow``, ``huge`` and ``bytes``.
    """
    groups = (_file_contracts(), _search_contracts(), _session_contracts(), _memory_contracts())
    return {
        each.tool.name: each
        for group in (*groups, web_contracts(url, port), page_contracts(), media_contracts())
        for each in group
    }
