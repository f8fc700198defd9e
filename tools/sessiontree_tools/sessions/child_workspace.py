"""``child_workspace``: what children changed in workspaces of their own, merged into this one or discarded.

A merge is all or nothing, file by file: a file of this workspace is replaced only if it still is what the
child began with. Whoever changed it meanwhile, with or without a commit, makes it a conflict.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Sequence
from dataclasses import field
from typing import Annotated, ClassVar, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from sessiontree.contracts.errors import ExecutionError, SessionNotFound, ToolError, ValidationError
from sessiontree.contracts.handles.ports import Reader, Writer
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.recorded.capabilities import CHILD_WORKSPACES, READER, WRITER
from sessiontree.contracts.recorded.child_workspaces import ChangedFile, ChildChanges, ChildWorkspaces
from sessiontree.contracts.recorded.results import Artifact, ToolResult
from sessiontree.contracts.tools.context import ToolContext
from sessiontree.contracts.tools.thread_calls import Stop, end_if, run_in_call_thread
from sessiontree.contracts.tools.tool import MAIN_AND_BRANCH, Stripped, Tool, ToolFlag
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.quick_dataclass import dataclass

MAX_SHOWN: Final = 200
"""Most files that one answer names."""


class ChildWorkspaceParams(BaseModel):
    """What to do with which child's changes."""

    model_config = ConfigDict(extra="forbid")

    action: Literal["list", "diff", "merge", "discard"]
    target: Annotated[str, Stripped()] | None = Field(
        default=None, max_length=200, description="Id or label of your child; not for list."
    )


class ChildWorkspace(Tool[ChildWorkspaceParams]):
    """Shows, merges and discards what children changed in workspaces of their own."""

    name = "child_workspace"
    description = (
        "Changes of ended children that had workspaces of their own: list, diff, merge into yours (all or "
        "nothing; conflicts are reported), or discard."
    )
    brief = True
    Params: ClassVar[type[BaseModel]] = ChildWorkspaceParams
    label = "Child's workspace"
    section = "fs"
    profiles = frozenset({"coding"})
    flags = frozenset({ToolFlag.WORKSPACE_ONLY})
    tier = PermissionTier.WORKSPACE
    kinds = MAIN_AND_BRANCH
    capabilities = frozenset({"reader", "writer", "child_workspaces"})
    sequential = True
    idempotent = True

    async def execute(self, params: ChildWorkspaceParams, ctx: ToolContext) -> ToolResult:
        """Answer one action.

        ``list`` returns ``{children}``. ``diff`` returns ``{session_id, files, diff}``, the diff in git's
        format. ``merge`` returns ``{status, session_id, files, left_out}``, and ``conflicts`` with
        ``{path, reason}`` where the status is ``conflict``: then no file was changed. ``discard`` returns
        ``{status, session_id}``; the changes are gone then. A repeated merge changes nothing.

        Raises:
            ValidationError: an action needs a target.
            ExecutionError: the target is no child with a workspace of its own, works still, or its changes
                are gone; or the system refused a file, and the text says what was not taken back.
            PermissionDenied: the session changes nothing.
        """
        children = ctx.require(CHILD_WORKSPACES)
        if params.action == "list":
            return _list_children(await children.list())
        if not params.target:
            raise ValidationError(f"{params.action} needs the id or label of a child", "/target")
        try:
            changes = await children.changes(params.target)
            if params.action == "diff":
                return await _show_changes(children, changes)
            if params.action == "discard":
                await children.settle(changes.session_id, "discarded")
                return ToolResult(
                    output={"status": "discarded", "session_id": changes.session_id},
                    display=f"discarded the changes of {changes.session_id}",
                )
            return await _merge_changes(ctx, children, changes)
        except SessionNotFound as error:
            raise ExecutionError(f"nothing was done: {error}") from error


def _list_children(found: Sequence[ChildChanges]) -> ToolResult:
    rows: list[JsonValue] = [
        {
            "session_id": each.session_id,
            **({} if each.label is None else {"label": each.label}),
            "state": each.state,
            "files": len(each.files),
            **({"lost": each.lost} if each.lost else {}),
        }
        for each in found
    ]
    return ToolResult(
        output={"children": rows}, display=f"{len(rows)} children with a workspace of their own"
    )


async def _show_changes(children: ChildWorkspaces, changes: ChildChanges) -> ToolResult:
    _check_is_kept(changes)
    diff = await children.patch(changes.session_id) if changes.patch_bytes else ""
    return ToolResult(
        output={"session_id": changes.session_id, **_describe_files(changes.files), "diff": diff},
        display=f"{len(changes.files)} changed files of {changes.session_id}",
        untrusted=bool(changes.taint),
    )


async def _merge_changes(ctx: ToolContext, children: ChildWorkspaces, changes: ChildChanges) -> ToolResult:
    session = changes.session_id
    # A call may be repeated after a loss; the files of this workspace may have changed since, so nothing is
    # compared.
    if changes.state == "merged":
        return _report_merged(changes, f"the changes of {session} were merged before")
    _check_is_kept(changes)
    reader, writer = ctx.require(READER), ctx.require(WRITER)
    plan = await run_in_call_thread(ctx, lambda stop: _plan_merge(reader, changes.files, stop))
    if not plan.conflicts:
        for step in plan.steps:
            if step.file.after:
                # Fetched before the first file is written: a child's copy that can't be read must not stop a
                # merge half way.
                step.now = await children.content(session, step.file.path)
        await run_in_call_thread(ctx, lambda stop: _carry_out(reader, writer, plan, stop))
    if plan.conflicts:
        rows: list[JsonValue] = [dict(each) for each in plan.conflicts[:MAX_SHOWN]]
        return ToolResult(
            output={
                "status": "conflict",
                "session_id": session,
                "conflicts": rows,
                "left_out": len(plan.conflicts) - len(rows),
            },
            display=f"{len(plan.conflicts)} conflicts with {session}: nothing was changed",
        )
    # After the files: if this is lost, the next attempt finds each file as the child left it, and only
    # settles.
    await children.settle(session, "merged")
    return _report_merged(changes, f"merged {len(changes.files)} files of {session}")


def _report_merged(changes: ChildChanges, said: str) -> ToolResult:
    return ToolResult(
        output={"status": "merged", "session_id": changes.session_id, **_describe_files(changes.files)},
        display=said,
        artifacts=tuple(
            Artifact("file", "merged", path=each.path) for each in changes.files[:MAX_SHOWN] if each.after
        ),
    )


def _describe_files(files: Sequence[ChangedFile]) -> dict[str, JsonValue]:
    rows: list[JsonValue] = [
        {"path": each.path, "change": "added" if not each.before else "updated" if each.after else "deleted"}
        for each in files[:MAX_SHOWN]
    ]
    return {"files": rows, "left_out": len(files) - len(rows)}


def _check_is_kept(changes: ChildChanges) -> None:
    if changes.state == "working":
        raise ExecutionError(f"{changes.session_id} has not ended; its changes can be taken once it has")
    if changes.state == "discarded":
        raise ExecutionError(f"the changes of {changes.session_id} were discarded")
    if changes.lost:
        raise ExecutionError(f"the changes of {changes.session_id} could not be kept: {changes.lost}")


@dataclass(slots=True, eq=False)
class _MergeStep:
    """One file that is written or removed."""

    file: ChangedFile
    before: bytes | None = None
    """None = the file is new here."""
    mtime_ns: int = 0
    now: bytes | None = None
    """None = it is removed."""
    place: str = ""
    """Where it was written."""


@dataclass(slots=True)
class _MergePlan:
    steps: list[_MergeStep] = field(default_factory=list)
    conflicts: list[dict[str, JsonValue]] = field(default_factory=list)

    def refuse(self, path: str, reason: str) -> None:
        self.conflicts.append({"path": path, "reason": reason})


def _plan_merge(reader: Reader, files: Sequence[ChangedFile], stop: Stop) -> _MergePlan:
    """Compare every file of this workspace with what the child began with; nothing is changed."""
    plan = _MergePlan()
    names = _Names(reader)
    for each in files:
        end_if(stop)
        if each.unusable:
            plan.refuse(each.path, f"{each.unusable}; merge it by hand")
            continue
        try:
            _compare(reader, names, each, plan)
        except ToolError as error:
            plan.refuse(each.path, error.message)
    return plan


def _compare(reader: Reader, names: _Names, file: ChangedFile, plan: _MergePlan) -> None:
    kind = names.find_kind(file.path)
    if kind == "":
        if not file.after:
            return  # it is gone here, too
        if file.before:
            plan.refuse(file.path, "it was removed here, and changed by the child")
        else:
            plan.steps.append(_MergeStep(file))
    elif kind == "way":
        plan.refuse(file.path, "a file is on the way to it")
    elif kind != "file":
        plan.refuse(file.path, f"it is a {kind} here, or reached through one")
    else:
        entry = reader.stat(file.path)
        with reader.open(file.path) as stream:
            data = stream.read()
        digest = hashlib.sha256(data).hexdigest()
        # The content alone decides; equal digests of a file whose mode the child changed still need the step.
        if digest == file.after and file.before != file.after:
            return  # it is so already: the child did what was done here, or an earlier attempt wrote it
        if digest == file.before:
            plan.steps.append(_MergeStep(file, data, entry.mtime_ns))
        else:
            here = "changed here" if file.before else "made here"
            there = "changed" if file.after else "removed"
            plan.refuse(file.path, f"it was {here}, and {there} by the child")


class _Names:
    """What the names of a workspace stand for; each directory is read once."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._folders: dict[str, dict[str, str] | None] = {"": None}

    def find_kind(self, path: str) -> str:
        """Return ``file``, ``directory``, ``link`` or ``other``; empty = nothing is there.

        ``way`` = a file is where a directory is needed.
        """
        parts = path.split("/")
        # Each step of the way is looked at, because a link in the middle would lead the merge out of the
        # workspace.
        for count in range(1, len(parts)):
            kind = self._find_kind("/".join(parts[:count]))
            if kind != "directory":
                return kind if kind != "file" else "way"
        return self._find_kind(path)

    def _find_kind(self, path: str) -> str:
        folder, name = posixpath.split(path)
        known = self._folders.get(folder)
        if known is None:
            found = self._reader.list(folder or ".")
            known = self._folders[folder] = {posixpath.basename(each.path): each.type for each in found}
        return known.get(name, "")


def _carry_out(reader: Reader, writer: Writer, plan: _MergePlan, stop: Stop) -> None:
    """Write and remove the files; take all back if one fails, and report that as a conflict."""
    done: list[_MergeStep] = []
    path = ""
    try:
        for step in plan.steps:
            end_if(stop)
            path = step.file.path
            if step.now is None:
                writer.remove(path, expect_mtime_ns=step.mtime_ns)
                step.place = path
            else:
                expected = None if step.before is None else step.mtime_ns
                step.place = writer.write(
                    path,
                    step.now,
                    expect_mtime_ns=expected,
                    only_new=expected is None,
                    executable=step.file.executable,
                ).path
            done.append(step)
            if step.place != path:  # a link was put on the way since the files were compared
                raise ExecutionError(f"{path!r} led to {step.place!r} while it was written")
    except ToolError as error:
        # By the place where it was written, and not by the name, which a link may lead elsewhere by now.
        left = [each.place for each in reversed(done) if not _is_taken_back(reader, writer, each)]
        if left:
            names = ", ".join(map(repr, left))
            raise ExecutionError(
                f"{error.message}. The merge was taken back, but not in {names}; look at them"
            ) from error
        end_if(stop)
        plan.refuse(path, error.message)


def _is_taken_back(reader: Reader, writer: Writer, step: _MergeStep) -> bool:
    try:
        if step.now is None:
            assert step.before is not None  # noqa: S101 - what was removed was there
            writer.write(step.place, step.before, only_new=True, executable=step.file.was_executable)
            return True
        with reader.open(step.place) as stream:
            if stream.read() != step.now:
                return False  # another program has changed it since
        if step.before is None:
            writer.remove(step.place)
        else:
            writer.write(step.place, step.before, executable=step.file.was_executable)
    except ToolError:
        return False
    return True
