"""The one place that hands out handles gives a Worker none that changes anything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from sessiontree.browser.session_browser import SessionBrowser
from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.handles.mcp import ServerCall, ServerReply
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.recorded.capabilities import CAPABILITIES, list_capabilities
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.contracts.tools.context import SessionRights
from sessiontree.dispatch.images import ImageProcess
from sessiontree.runtime.host.outside_handles import LocalNode
from sessiontree.runtime.rights.session_rights import PORTS, Handles, build_rights
from sessiontree.sandbox import CommandShell, JobTable, SessionJobs
from sessiontree.testing.context import (
    FixedStatus,
    PlainMemory,
    RecordingCanvas,
    RecordingChannel,
    RecordingCron,
    RecordingPreviews,
    RecordingSessions,
    RecordingSubtree,
    fresh_report,
)
from sessiontree.testing.fixed_runtime import FixedRuntime
from sessiontree.testing.fixed_vision import FixedVision
from sessiontree.web.settings import WebSettings
from sessiontree.web.web import OutboundWeb
from sessiontree.workspace import WorkspaceReader, WorkspaceWriter
from tests.unit.tools.changes_fakes import MappedChanges

Build: TypeAlias = Callable[[str, SessionKind, Path, AgentConfig, Handles], SessionRights]

CONFIGS = st.builds(
    AgentConfig,
    agent_id=st.text(min_size=1, max_size=8),
    model=st.text(max_size=8),
    image_model=st.sampled_from(["", "seer"]),
    prompt=st.text(max_size=20),
    system_tier=st.sampled_from(["allow", "ask", "deny"]),
    workspace_access=st.sampled_from(["rw", "ro"]),
    max_result_chars=st.integers(200, 400_000),
)

CHANGING = (
    "writer",
    "shell",
    "jobs",
    "browser",
    "channel",
    "memory_writer",
    "sessions",
    "subtree",
    "http",
    "previews",
    "child_workspaces",
    "canvas",
    "cron",
    "runtime",
    "vision",
)
"""What no Worker holds."""


class AbsentServers:
    """Servers of which none answers."""

    async def call(self, call: ServerCall) -> ServerReply:
        raise ExecutionError(f"no server is called {call.server!r}")


def rights_are_bounded_by_kind(build: Build, root: Path) -> None:
    """Whatever a host could hand out, a session holds only what its kind may ever hold."""
    handles = Handles(
        reader=WorkspaceReader(root),
        writer=WorkspaceWriter(root),
        shell=CommandShell(root),
        browser=SessionBrowser(None),
        jobs=SessionJobs(JobTable(), {}),
        channel=RecordingChannel(),
        sessions=RecordingSessions(),
        subtree=RecordingSubtree(),
        cron=RecordingCron(),
        status=FixedStatus(fresh_report(SessionKind.MAIN)),
        memory=PlainMemory(),
        memory_writer=PlainMemory(),
        web=OutboundWeb(WebSettings()),
        http=OutboundWeb(WebSettings()),
        previews=RecordingPreviews(),
        images=ImageProcess(),
        vision=FixedVision(),
        speech=OutboundWeb(WebSettings()),
        child_workspaces=MappedChanges({}),
        canvas=RecordingCanvas(),
        nodes=LocalNode(),
        mcp=AbsentServers(),
        runtime=FixedRuntime(),
    )

    @settings(max_examples=400, derandomize=True, database=None, phases=[Phase.generate])
    @given(kind=st.sampled_from(SessionKind), config=CONFIGS, session=st.text(max_size=8))
    def check(kind: SessionKind, config: AgentConfig, session: str) -> None:
        rights = build(session, kind, root, config, handles)
        held = {name for name in CAPABILITIES if getattr(rights, name) is not None}
        assert held <= list_capabilities(kind)
        if kind is SessionKind.WORKER:
            assert held.isdisjoint(CHANGING)
        else:
            everything = set(list_capabilities(kind)) - ({"vision"} if not config.image_model else set())
            assert held == (everything if config.workspace_access == "rw" else everything - {"writer"})
        assert (rights.session_id, rights.kind, rights.config) == (session, kind, config)
        assert rights.workspace_root == root

    check()


@pytest.mark.covers("A35", "A36", "S46", "C3", "A21", "REL-P11", "RGT1")
@pytest.mark.slow
def test_worker_never_holds_a_handle_that_changes_anything(tmp_path: Path) -> None:
    """REL-P11: for every kind, configuration and set of handles."""
    rights_are_bounded_by_kind(build_rights, tmp_path)


@pytest.mark.covers("REL-P11")
@pytest.mark.parametrize("handle", CHANGING)
def test_one_handle_too_many_is_found(tmp_path: Path, handle: str) -> None:
    """The property fails where a Worker of one configuration in three holds one handle."""

    def careless(
        session: str, kind: SessionKind, root: Path, config: AgentConfig, handles: Handles
    ) -> SessionRights:
        rights = build_rights(session, kind, root, config, handles)
        if config.system_tier == "ask":
            return replace(rights, **{handle: getattr(handles, handle)})
        return rights

    with pytest.raises(AssertionError):
        rights_are_bounded_by_kind(careless, tmp_path)


@pytest.mark.covers("RGT9")
def test_every_handle_has_a_facade() -> None:
    """A handle without one would lead a tool to the runtime behind it."""
    assert set(PORTS) == {"status", *CAPABILITIES}
