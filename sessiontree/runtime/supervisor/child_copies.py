"""The workspaces of their own of children: made before a child starts, taken in when it has ended.

The supervisor makes them in its state directory, where no other session's tools reach. A child's tools have
the copy as their root, and reach nothing else. What is left of a copy when its child has ended are the facts
of what it changed, the contents of these files, and a patch; they stay until the parent discards them or the
tree is erased. A copy that no fact names was made for a spawn that never was: it is removed when its tree is
taken up again.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from sessiontree.contracts.errors import ExecutionError, SessionNotFound, SessionTreeError, SpawnRefused
from sessiontree.contracts.facts.tree_config import SessionSpec, TreeConfig
from sessiontree.contracts.facts.tree_facts import ChangesKept, ChangesSettled
from sessiontree.contracts.recorded.child_workspaces import ChangesState, ChildChanges, WorkspaceCopy
from sessiontree.contracts.tools.thread_calls import claim_in_thread, run_in_thread
from sessiontree.runtime.scheduling.live_session import Controller
from sessiontree.runtime.scheduling.settings import COPIES
from sessiontree.tree.rules.child_changes import find_copies_in_use, find_unfinished_copies
from sessiontree.tree.state.protocol import ChangesFound, SettleAsked, SpawnAsked
from sessiontree.workspace.own_copy import OwnCopy


class ChildCopies:
    """Makes and takes in the copies of one supervisor.

    Args:
        journal_dir: Directory of its journal.
        hidden: What no copy may hold: the state directory, memory, the owner's folders.
    """

    def __init__(self, journal_dir: Path, hidden: Sequence[Path] = ()) -> None:
        self._folder = journal_dir / COPIES
        self._hidden = (journal_dir, *hidden)
        self._finishing: dict[tuple[str, str], asyncio.Task[None]] = {}
        """By tree and session, copies of ended sessions that are taken in now."""
        self._removing: set[asyncio.Task[None]] = set()

    def locate_workspace(self, config: TreeConfig, spec: SessionSpec) -> str:
        """Return the absolute path of a session's workspace."""
        if not spec.workspace:
            return config.workspace
        return str(self._copy(config.tree_id, spec.workspace).root)

    def _copy(self, tree_id: str, name: str) -> OwnCopy:
        return OwnCopy(self._folder / tree_id / name)

    async def make(self, controller: Controller, asked: SpawnAsked) -> WorkspaceCopy:
        """Make the copy for a child that is about to be spawned.

        Raises:
            SpawnRefused: its parent's workspace holds too much, or can't be read.
        """
        config = controller.config
        source = Path(self.locate_workspace(config, controller.state.sessions[asked.parent].spec))
        copy = self._copy(config.tree_id, secrets.token_hex(16))
        try:
            return await claim_in_thread(lambda: copy.make(source, self._hidden), lambda _: copy.remove())
        except ExecutionError as error:
            why = f"can't spawn a {asked.kind} with a workspace of its own: {error.message}"
            raise SpawnRefused(asked.parent, why) from error

    async def drop_unused(self, controller: Controller, copy: WorkspaceCopy, session: str | None) -> None:
        """Remove a copy, unless it became that of a session; None = nothing was spawned."""
        node = None if session is None else controller.state.sessions.get(session)
        if node is None or node.spec.copy != copy:
            await run_in_thread(self._copy(controller.config.tree_id, copy.name).remove)

    def on_session_over(self, controller: Controller, session: str) -> None:
        """Take in the copy of an ended session, if it has one, once its commands have ended."""
        spec = controller.state.sessions[session].spec
        key = (controller.config.tree_id, session)
        if spec.copy is None or key in self._finishing or session in controller.state.changes:
            return
        mark = f"{session}/workspace"  # whoever waits until the session has left waits for this, too
        controller.departures.begin(mark)
        finishing = asyncio.create_task(self._finish(controller, spec, spec.copy, mark))
        self._finishing[key] = finishing
        finishing.add_done_callback(lambda _: self._finishing.pop(key, None))

    async def _finish(
        self, controller: Controller, spec: SessionSpec, made: WorkspaceCopy, mark: str
    ) -> None:
        try:
            # Race: commands of the session may still write; its copy is taken in when they have ended.
            await controller.departures.wait(spec.session_id, besides=mark)
            if controller.failure is not None:
                return  # the tree was closed; the copy is taken in when it is taken up again
            copy = self._copy(controller.config.tree_id, made.name)
            parent = controller.state.sessions[spec.parent or ""].spec
            source = Path(self.locate_workspace(controller.config, parent))
            remains = await run_in_thread(copy.finish, source, made.commit)
            digest = hashlib.sha256(remains.patch).hexdigest() if remains.patch else ""
            kept = ChangesKept(spec.session_id, remains.files, digest, len(remains.patch), remains.lost)
            with suppress(SessionTreeError):  # closed meanwhile, as above
                await controller.settle(ChangesFound(controller.now_ms(), kept), f"changes:{made.name}")
                if not remains.lost:
                    await run_in_thread(copy.clear)
        finally:
            controller.departures.end(mark, 0)

    def resumed(self, controller: Controller) -> None:
        """Take in what a lost supervisor had not, and remove copies of spawns that never were."""
        for spec in find_unfinished_copies(controller.state):
            self.on_session_over(controller, spec.session_id)
        tree_id = controller.config.tree_id
        used = find_copies_in_use(controller.state)
        try:
            unused = [each for each in (self._folder / tree_id).iterdir() if each.name not in used]
        except OSError:  # it never had one
            return
        for place in unused:
            removing = asyncio.create_task(run_in_thread(OwnCopy(place).remove))
            self._removing.add(removing)
            removing.add_done_callback(self._removing.discard)

    async def close(self) -> None:
        """Wait for what is under way."""
        while waiting := [*self._finishing.values(), *self._removing]:
            await asyncio.wait(waiting)

    # What a parent asks.

    async def changes(
        self, controller: Controller, parent: str, target: str | None
    ) -> tuple[ChildChanges, ...]:
        """Return what children of a session changed; with a target, of this one, once it is kept.

        Raises:
            SessionNotFound: the target names no child of the session.
            ExecutionError: the child has no workspace of its own.
        """
        if target is None:
            specs = [each.spec for _, each in controller.state.sessions.items()]
            own = [each for each in specs if each.parent == parent and each.copy is not None]
            for each in own:
                await self._wait_until_finished(controller, each)
            return tuple(_build_row(controller, each) for each in own)
        spec, _ = await self._wait_until_ended(controller, parent, target)
        return (_build_row(controller, spec),)

    async def content(self, controller: Controller, parent: str, target: str, path: str | None) -> bytes:
        """Return the last content of a file that a child changed, or its patch (None).

        Raises:
            SessionNotFound, ExecutionError: as :meth:`changes`; or what was kept is gone.
        """
        spec, made = await self._wait_until_ended(controller, parent, target)
        kept = controller.state.changes.get(spec.session_id)
        if kept is None:
            raise ExecutionError(f"{spec.session_id} has not ended; its changes can be read once it has")
        if kept.lost:
            raise ExecutionError(f"the changes of {spec.session_id} could not be kept: {kept.lost}")
        copy = self._copy(controller.config.tree_id, made.name)
        if path is not None:
            return await run_in_thread(copy.content, kept.files, path)
        if not kept.digest:
            raise ExecutionError(
                f"there is no patch of {spec.session_id}: git is missing, or it was too long"
            )
        patch = await run_in_thread(copy.patch)
        if hashlib.sha256(patch).hexdigest() != kept.digest:
            raise ExecutionError(f"the patch of {spec.session_id} is damaged")
        return patch

    async def settle(
        self, controller: Controller, parent: str, target: str, state: Literal["merged", "discarded"]
    ) -> None:
        """Record what became of a child's changes; durable when this returns.

        Raises:
            SessionNotFound, ExecutionError: as :meth:`changes`; or they were settled otherwise before.
        """
        spec, made = await self._wait_until_ended(controller, parent, target)
        session = spec.session_id
        if session not in controller.state.changes:
            raise ExecutionError(f"{session} has not ended; its changes can be {state} once it has")
        now_ms = controller.now_ms()
        await controller.settle(
            SettleAsked(now_ms, ChangesSettled(session, state, now_ms)), f"settle:{session}"
        )
        settled = controller.state.settled.get(session)
        if settled != state:
            raise ExecutionError(f"the changes of {session} were {settled} before")
        if state == "discarded":
            await run_in_thread(self._copy(controller.config.tree_id, made.name).remove)

    async def _wait_until_ended(
        self, controller: Controller, parent: str, target: str
    ) -> tuple[SessionSpec, WorkspaceCopy]:
        spec = _find_child(controller, parent, target)
        if spec.copy is None:
            raise ExecutionError(
                f"{spec.session_id} has no workspace of its own: it works in that of its parent"
            )
        await self._wait_until_finished(controller, spec)
        return spec, spec.copy

    async def _wait_until_finished(self, controller: Controller, spec: SessionSpec) -> None:
        """Wait until the copy of a session that has ended is taken in."""
        finishing = self._finishing.get((controller.config.tree_id, spec.session_id))
        if finishing is not None:
            await asyncio.shield(finishing)


def _find_child(controller: Controller, parent: str, target: str) -> SessionSpec:
    sessions = controller.state.sessions
    node = sessions.get(target) or sessions.get(controller.state.labels.get((parent, target)) or "")
    if node is None or node.spec.parent != parent:
        raise SessionNotFound(target, f"it is not a child of {parent}; name one by its id")
    return node.spec


def _build_row(controller: Controller, spec: SessionSpec) -> ChildChanges:
    kept = controller.state.changes.get(spec.session_id)
    taint = controller.state.sessions[spec.session_id].taint
    commit = "" if spec.copy is None else spec.copy.commit
    if kept is None:
        return ChildChanges(spec.session_id, spec.label, "working", commit, taint=taint)
    settled = controller.state.settled.get(spec.session_id)
    state: ChangesState = "kept" if settled is None else "merged" if settled == "merged" else "discarded"
    return ChildChanges(
        spec.session_id, spec.label, state, commit, kept.files, kept.patch_bytes, kept.lost, taint
    )
