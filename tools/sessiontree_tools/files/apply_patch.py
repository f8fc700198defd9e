"""``apply_patch``: changes several files by one patch, all of them or none."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from sessiontree.contracts.errors import ExecutionError, ToolError, ValidationError
from sessiontree.contracts.handles.ports import Reader, Writer
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.recorded.capabilities import READER, WRITER
from sessiontree.contracts.recorded.results import Artifact, ToolResult
from sessiontree.contracts.tools.context import ToolContext
from sessiontree.contracts.tools.thread_calls import Stop, end_if, run_in_call_thread
from sessiontree.contracts.tools.tool import MAIN_AND_BRANCH, Tool, ToolFlag
from sessiontree.contracts.values.file_names import name_note
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree_tools.files.diff_text import cut_line, cut_lines, show_range
from sessiontree_tools.files.patch_text import (
    FileAdded,
    FileChange,
    FileDeleted,
    FileUpdated,
    list_paths,
    parse_patch,
)
from sessiontree_tools.files.patched_lines import AppliedHunk, apply_hunks
from sessiontree_tools.files.text_file import decode_text, read_whole


class ApplyPatchParams(BaseModel):
    """A patch."""

    model_config = ConfigDict(extra="forbid")

    patch: str = Field(min_length=1, description="From *** Begin Patch to *** End Patch.")


class ApplyPatch(Tool[ApplyPatchParams]):
    """Adds, changes, moves and deletes files as a patch says."""

    name = "apply_patch"
    description = (
        "Change files by a patch: all of them, or none. Paths are relative to the workspace. Between "
        "*** Begin Patch and *** End Patch: *** Add File: PATH and lines that begin with +; *** Delete File: "
        "PATH; *** Update File: PATH, perhaps *** Move to: PATH, and changes: @@ and a line above, then "
        "lines with a space (stays), - (goes) or + (comes)."
    )
    brief = True
    Params: ClassVar[type[BaseModel]] = ApplyPatchParams
    label = "Apply patch"
    section = "fs"
    profiles = frozenset({"coding"})
    flags = frozenset({ToolFlag.WORKSPACE_ONLY})
    tier = PermissionTier.WORKSPACE
    kinds = MAIN_AND_BRANCH
    capabilities = frozenset({"reader", "writer"})
    sequential = True
    changes: ClassVar[tuple[str, ...]] = ("patch",)
    param_aliases: ClassVar[Mapping[str, str]] = {"input": "patch"}

    def list_changed_paths(self, arguments: Mapping[str, JsonValue]) -> Collection[str]:
        """Return the paths in the patch; none where it can't be read, for then nothing is changed."""
        try:
            return list_paths(parse_patch(str(arguments.get("patch"))))
        except ValidationError:
            return ()

    async def execute(self, params: ApplyPatchParams, ctx: ToolContext) -> ToolResult:
        """Change the files; the output is ``{files, tolerant}``, details add the diff.

        ``files`` has ``{path, change, from, note}`` for each file that is ``added``, ``updated``, ``moved``
        or ``deleted``, in the order of the patch. ``tolerant`` has ``{path, line, differs_in}`` for each
        change whose lines the patch spells differently from the file.

        Raises:
            ValidationError: the text is not a patch.
            ExecutionError: lines are not found, a file is missing, there already, not a UTF-8 text of at most
                10 MB, or was changed meanwhile. All files are then as they were, or the text names those
                that are not.
            PermissionDenied: a path is outside what may be changed, or the session changes nothing.
        """
        writer, reader = ctx.require(WRITER), ctx.require(READER)
        changes = parse_patch(params.patch)
        return await run_in_call_thread(ctx, lambda stop: _apply(reader, writer, changes, stop))


@dataclass(slots=True, eq=False)
class _Draft:
    """A file as it was, and as it will be."""

    asked: str
    """Its path as the patch has it, which decides what is changed."""
    path: str
    """Its path for people."""
    before: bytes | None = None
    """None = no such file."""
    mtime_ns: int = 0
    now: bytes | None = None
    """None = it is removed."""
    like: str | None = None
    """The file whose permissions a new one takes."""


@dataclass(slots=True)
class _Report:
    """What the model and a person learn about a patch."""

    changes: list[tuple[_Draft, dict[str, JsonValue]]] = field(default_factory=list)
    """Files, and what is reported of each besides its path, which a new file has only once it is written."""
    tolerant: list[dict[str, JsonValue]] = field(default_factory=list)
    diff: list[str] = field(default_factory=list)
    added: int = 0
    removed: int = 0

    def add(self, change: str, draft: _Draft, note: str, moved_from: str | None = None) -> None:
        told: dict[str, JsonValue] = {"change": change}
        if moved_from is not None:
            told["from"] = moved_from
        if note:
            told["note"] = note
        self.changes.append((draft, told))

    def add_hunks(self, path: str, hunks: Sequence[AppliedHunk]) -> None:
        for hunk in hunks:
            kept = len(hunk.lines) - hunk.added - hunk.removed
            old = show_range(hunk.line, kept + hunk.removed)
            new = show_range(hunk.new_line, kept + hunk.added)
            self.diff += [f"@@ -{old} +{new} @@", *(mark + text for mark, text in hunk.lines)]
            self.added += hunk.added
            self.removed += hunk.removed
            if hunk.differs_in:
                self.tolerant.append({"path": path, "line": hunk.line, "differs_in": hunk.differs_in})


class _PlannedPatch:
    """The files of a patch as they will be; reads only."""

    def __init__(self, reader: Reader, stop: Stop) -> None:
        self._reader = reader
        self._stop = stop
        self.drafts: dict[str, _Draft] = {}
        self.report = _Report()

    def take(self, change: FileChange) -> None:
        """Plan one change after those before it."""
        end_if(self._stop)
        try:
            if isinstance(change, FileAdded):
                self._add(change)
            elif isinstance(change, FileDeleted):
                self._delete(change)
            else:
                self._update(change)
        except ExecutionError as error:
            verb = {FileAdded: "add", FileDeleted: "delete", FileUpdated: "update"}[type(change)]
            raise ExecutionError(
                f"can't {verb} {change.path!r}: {error.message}. No file was changed"
            ) from error

    def _add(self, change: FileAdded) -> None:
        draft = self._require_absent(change.path)
        draft.now = "".join(f"{line}\n" for line in change.lines).encode()
        self.report.add("added", draft, "")
        self.report.added += len(change.lines)
        self.report.diff += ["--- /dev/null", f"+++ b/{draft.path}", *(f"+{line}" for line in change.lines)]

    def _delete(self, change: FileDeleted) -> None:
        draft = self._require_present(change.path)
        self._check_is_itself(change.path, draft.path)
        draft.now = None
        self.report.add("deleted", draft, name_note(change.path, draft.path))
        self.report.diff += [f"--- a/{draft.path}", "+++ /dev/null"]

    def _update(self, change: FileUpdated) -> None:
        draft = self._require_present(change.path)
        assert draft.now is not None  # noqa: S101 - it is present
        text = decode_text(draft.now)
        patched = apply_hunks(text, change.hunks, self._stop)
        target = draft
        if change.moved_to is not None:
            # Before the new name is planned: removing what a link leads to would leave the link without a
            # file.
            self._check_is_itself(change.path, draft.path)
            target = self._require_absent(change.moved_to)
            target.like = draft.asked if draft.before is not None else draft.like
            draft.now = None
        elif patched.text == text:
            raise ExecutionError("the patch leaves it as it is")
        target.now = patched.text.encode()
        moved_from = None if target is draft else draft.path
        how = "updated" if moved_from is None else "moved"
        self.report.add(how, target, name_note(change.path, draft.path), moved_from)
        self.report.diff += [f"--- a/{draft.path}", f"+++ b/{target.path}"]
        self.report.add_hunks(target.path, patched.hunks)

    def _require_present(self, path: str) -> _Draft:
        key = _normalize_path(path)
        draft = self.drafts.get(key)
        if draft is None:
            entry = self._reader.stat(path)
            # A link may lead to a file that the patch has changed by its own name; both must be one draft.
            draft = self.drafts.get(entry.path)
            if draft is None:
                data = read_whole(self._reader, entry, path)
                draft = _Draft(path, entry.path, data, entry.mtime_ns, data)
            self.drafts[key] = self.drafts[entry.path] = draft
        if draft.now is None:
            raise ExecutionError("the patch has removed it before")
        return draft

    def _check_is_itself(self, asked: str, found: str) -> None:
        """Refuse to remove what a link leads to: whoever names a link means the link."""
        if posixpath.isabs(asked):
            folder, name = posixpath.split(asked)
            named = [each for each in self._reader.list(folder) if posixpath.basename(each.path) == name]
            is_itself = all(each.type != "link" for each in named)
        else:
            is_itself = _normalize_path(asked) == found or bool(name_note(asked, found))
        if not is_itself:
            raise ExecutionError(f"it is reached through a link or '..'; name the file itself, {found!r}")

    def _require_absent(self, path: str) -> _Draft:
        key = _normalize_path(path)
        draft = self.drafts.get(key)
        if draft is None:
            try:
                there = self._reader.stat(path)
            except ExecutionError:
                draft = self.drafts[key] = _Draft(path, key)
            else:
                draft = self.drafts.get(there.path)
        if draft is None or draft.now is not None:
            raise ExecutionError(
                f"{path!r} is there already; change it with '*** Update File:', or delete it first"
            )
        return draft


def _normalize_path(path: str) -> str:
    """Return one spelling of a path. ``..`` stays: where it leads depends on links."""
    return path if ".." in path.split("/") else posixpath.normpath(path)


def _apply(reader: Reader, writer: Writer, changes: Sequence[FileChange], stop: Stop) -> ToolResult:
    plan = _PlannedPatch(reader, stop)
    for change in changes:
        plan.take(change)
    end_if(stop)
    _carry_out(reader, writer, list(dict.fromkeys(plan.drafts.values())))
    report = plan.report
    files: list[JsonValue] = [{"path": draft.path, **told} for draft, told in report.changes]
    output: dict[str, JsonValue] = {"files": files, "tolerant": list(report.tolerant)}
    count = f"{len(files)} file{'' if len(files) == 1 else 's'}"
    return ToolResult(
        output=output,
        display=f"patched {count}: +{report.added} -{report.removed}",
        artifacts=tuple(
            Artifact("file", str(told["change"]), path=draft.path)
            for draft, told in report.changes
            if told["change"] != "deleted"
        ),
        details={**output, "diff": "\n".join(cut_lines([cut_line(line) for line in report.diff])) + "\n"},
    )


def _carry_out(reader: Reader, writer: Writer, drafts: Sequence[_Draft]) -> None:
    """Write what is new, then remove what goes; take all back if one fails."""
    done: list[_Draft] = []
    try:
        for draft in drafts:
            if draft.now is None or draft.now == draft.before:
                continue
            if draft.before is None:
                # Only new: the file may have been made by another program since the patch was planned.
                written = writer.write(draft.asked, draft.now, only_new=True, like=draft.like)
            else:
                written = writer.write(draft.asked, draft.now, expect_mtime_ns=draft.mtime_ns)
            draft.path = written.path
            done.append(draft)
        # Removed last: what was removed is the hardest to bring back if a later step fails.
        for draft in drafts:
            if draft.now is None and draft.before is not None:
                writer.remove(draft.asked, expect_mtime_ns=draft.mtime_ns)
                done.append(draft)
    except ToolError as error:
        # In reverse, so that each step is undone when what came after it is undone already.
        left = [path for draft in reversed(done) if (path := _take_back(reader, writer, draft))]
        if left:
            names = ", ".join(map(repr, left))
            raise ExecutionError(
                f"{error.message}. The patch was taken back, but not in {names}; look at them"
            ) from error
        if isinstance(error, ExecutionError):
            raise ExecutionError(f"{error.message}. No file was changed") from error
        raise


def _take_back(reader: Reader, writer: Writer, draft: _Draft) -> str:
    """Undo one change; return the path if that failed."""
    try:
        asked = draft.asked
        # Looked at before it is taken back: somebody may have worked on the patched file already.
        if draft.now is not None and read_whole(reader, reader.stat(asked), asked) != draft.now:
            return draft.path  # another program has changed it since
        if draft.before is None:
            writer.remove(asked)
        else:
            writer.write(asked, draft.before, only_new=draft.now is None)
    except ToolError:
        return draft.path
    return ""
