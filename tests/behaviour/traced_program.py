"""A program whose tree is traced by the standard variables; it prints the tree's id and what its tool saw.

Usage: ``python -m tests.behaviour.traced_program BACKEND WORKSPACE STATE_DIR [TREE_ID]``, where a tree id
resumes that tree. A word ``die`` at the end ends the program without closing the tree. With the variable
``TRACED_PATIENCE_S`` it waits so many seconds at its end for the collector to have every span.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

from sessiontree import (
    ApprovalRequest,
    FunctionModel,
    ModelRequest,
    SessionFailed,
    SessionKind,
    SessionResult,
    SessionTree,
    ToolResult,
    script_call,
    tool,
)
from sessiontree.api.runtime.runtime_options import BackendName
from sessiontree.api.telemetry import trace_export
from sessiontree.models.answers import Answer
from sessiontree.runtime.telemetry import tree_tracer
from tests.behaviour.collector_fakes import SECRET

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
KEY = "sk-ant-0123456789abcdefghij"
"""Looks like a key."""
WORKER_TASK = "count the words"

LOOKS = 30
"""How often it is looked again for processes that hold the secret, a second apart."""


@tool
def deploy(target: str) -> ToolResult:
    """Deploy a target; says which processes of this machine's user hold the exporter's secret."""
    own = f"{SECRET}-{urlsplit(os.environ.get(ENDPOINT, '')).port or ''}"
    # Again and again: what is forked and has not yet become its program shows the environment of this one.
    holders = _holders_of(own)
    for _ in range(LOOKS):
        if len(holders) == 1:
            break
        threading.Event().wait(1.0)
        holders &= _holders_of(own)
    line = f"deployed {target.partition('-')[0]} with token={KEY}"
    return ToolResult(f"{os.getpid()} {' '.join(sorted(holders))}", display=line)


def _holders_of(secret: str) -> set[str]:
    found = set()
    for place in Path("/proc").glob("[0-9]*/environ"):
        try:
            found |= {place.parent.name} if secret.encode() in place.read_bytes() else set()
        except OSError:
            continue  # it has ended, or is another user's
    return found


def model(request: ModelRequest) -> Answer:
    """Branches deploy once; Workers answer, except for one that fails; Main reports."""
    task = request.messages[0].text
    if request.kind is SessionKind.WORKER:
        if "fail" in task:
            raise RuntimeError(f"{task} with {SECRET}")
        return "3"
    if request.kind is SessionKind.BRANCH and request.turn == 1:
        return script_call("deploy", target=f"staging-{SECRET}")
    return request.messages[-1].text


def approve(request: ApprovalRequest) -> bool:
    """Approve."""
    return request.tool == "deploy"


async def main(backend: BackendName, workspace: str, state_dir: str, *rest: str) -> None:
    """Run the tree once, or resume it."""
    options = {
        "model": FunctionModel(model),
        "tools": [deploy],
        "approver": approve,
        "state_dir": Path(state_dir),
        "backend": backend,
    }
    resumed = [word for word in rest if word != "die"]
    if resumed:
        tree = await SessionTree.resume(resumed[0], **options)  # type: ignore[arg-type]
    else:
        tree = SessionTree(workspace, **options)  # type: ignore[arg-type]
    async with tree:
        counts: list[SessionResult[int]] = await tree.main.map("worker", [WORKER_TASK], result_type=int)
        try:
            await (await tree.main.spawn("worker", "fail at once")).result()
        except SessionFailed:
            counts = []
        branch = await tree.main.spawn("branch", "deploy it")
        seen = (await branch.result()).summary
        await tree.main.send(f"that was it, {SECRET}")
        sys.stdout.write(f"{tree.tree_id}\n{os.getpid()} {len(counts)}\n{seen}\n")
        sys.stdout.flush()
        if "die" in rest:
            os._exit(0)
        if resumed:
            await tree.finish("done")


if __name__ == "__main__":
    if patience := os.environ.get("TRACED_PATIENCE_S"):
        tree_tracer.CLOSE_WAIT_S = trace_export.FLUSH_S = float(patience)  # type: ignore[misc]
    _, name, place, state, *more = sys.argv
    asyncio.run(main(cast("BackendName", name), place, state, *more))
