"""``process``: manages the commands that go on in the background."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from sessiontree.contracts.errors import ValidationError
from sessiontree.contracts.handles.jobs import (
    MAX_INPUT_BYTES,
    MAX_POLL_S,
    Jobs,
    JobView,
    OutputPart,
    describe_end,
)
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.recorded.capabilities import JOBS
from sessiontree.contracts.recorded.results import ToolResult
from sessiontree.contracts.tools.context import ToolContext
from sessiontree.contracts.tools.tool import MAIN_AND_BRANCH, Tool
from sessiontree.contracts.values.jsonable import JsonValue

NOTE_CHARS: Final = 600
"""Room kept for what is said about the output."""
SCREEN_SHARE: Final = 3
"""A screen takes at most one part in this many of a result."""
MAX_KEY_CHARS: Final = 40
"""Longest name of a key."""
PASTE_BEGIN, PASTE_END = "\x1b[200~", "\x1b[201~"
"""Source: XTerm Control Sequences, "Bracketed Paste Mode"."""
KEYS: Final[Mapping[str, str]] = {
    "enter": "\r",
    "tab": "\t",
    "escape": "\x1b",
    "esc": "\x1b",
    "space": " ",
    "backspace": "\x7f",
    "delete": "\x1b[3~",
    "insert": "\x1b[2~",
    "up": "\x1b[A",
    "down": "\x1b[B",
    "right": "\x1b[C",
    "left": "\x1b[D",
    "home": "\x1b[H",
    "end": "\x1b[F",
    "page_up": "\x1b[5~",
    "page_down": "\x1b[6~",
    **{f"f{number}": f"\x1bO{'PQRS'[number - 1]}" for number in range(1, 5)},
    **{
        f"f{number}": f"\x1b[{code}~"
        for number, code in zip(range(5, 13), (15, 17, 18, 19, 20, 21, 23, 24), strict=True)
    },
}
"""What the keys of an xterm send.

Source: XTerm Control Sequences, "PC-Style Function Keys"."""

Action = Literal["list", "poll", "log", "write", "submit", "send_keys", "paste", "kill", "clear", "remove"]
_WITHOUT_JOB: Final = frozenset({"list", "clear"})
_WITH_DATA: Final = frozenset({"write", "paste"})


def encode_key(name: str) -> bytes:
    """Return what a key sends: a name of :data:`KEYS`, ``ctrl+x``, ``alt+KEY``, or one character.

    Raises:
        ValueError: it is not a key.
    """
    if len(name) == 1:
        return name.encode()
    low = name.lower().replace("-", "+")
    if low in KEYS:
        return KEYS[low].encode()
    modifier, _, key = low.partition("+")
    if modifier == "ctrl" and len(key) == 1 and ("a" <= key <= "z" or key in "@[\\]^_"):
        return bytes([ord(key.upper()) & 0x1F])
    if modifier == "ctrl" and key == "space":
        return b"\0"
    # Bounded, because each further "alt+" is one more call.
    if modifier == "alt" and key and len(name) <= MAX_KEY_CHARS:
        return b"\x1b" + encode_key(name[len("alt+") :])
    raise ValueError(
        f"{name[:MAX_KEY_CHARS]!r} is not a key; keys are {', '.join(KEYS)}, ctrl+a to ctrl+z, alt+KEY"
    )


class ProcessParams(BaseModel):
    """What to do with which job."""

    model_config = ConfigDict(extra="forbid")

    action: Action
    job_id: str = Field(default="", max_length=64)
    offset: int | None = Field(default=None, description="Byte; by default what is new.")
    limit: int | None = Field(default=None, ge=1)
    wait_ms: int = Field(default=0, ge=0, le=int(MAX_POLL_S * 1000))
    data: str = Field(default="", max_length=MAX_INPUT_BYTES)
    eof: bool = False
    keys: list[str] = Field(default_factory=list, max_length=200, description="enter, up, ctrl+c, f1, a.")
    bracketed: bool = True

    @model_validator(mode="after")
    def _check_agreement(self) -> Self:
        if self.action not in _WITHOUT_JOB and not self.job_id:
            raise ValueError(f"{self.action} needs a job_id")
        if self.action in _WITH_DATA and not self.data and not (self.action == "write" and self.eof):
            raise ValueError(f"{self.action} needs data")
        if self.action == "send_keys" and not self.keys:
            raise ValueError("send_keys needs keys")
        return self


class ProcessTool(Tool[ProcessParams]):
    """Manages the session's commands in the background."""

    name = "process"
    description = (
        "Manage the jobs of exec: poll for output or a screen, write data, submit with enter, paste."
    )
    brief = True
    Params: ClassVar[type[BaseModel]] = ProcessParams
    label = "Running commands"
    section = "runtime"
    profiles = frozenset({"coding"})
    tier = PermissionTier.SYSTEM
    kinds = MAIN_AND_BRANCH
    capabilities = frozenset({"jobs"})
    timeout_s: ClassVar[float | None] = MAX_POLL_S + 30.0
    param_aliases: ClassVar[Mapping[str, str]] = {"session_id": "job_id", "id": "job_id", "text": "data"}

    async def execute(self, params: ProcessParams, ctx: ToolContext) -> ToolResult:
        """Do it; details are what is known of the job, ``{job_id, status, …}``.

        Raises:
            ValidationError: a key does not exist, or the data has no UTF-8 form.
            ExecutionError: the session has no such job, or it takes no input.
            PermissionDenied: the session runs nothing.
        """
        jobs = ctx.require(JOBS)
        match params.action:
            case "list":
                return _list(jobs)
            case "poll" | "log":
                return await _read(jobs, params, ctx.config.max_result_chars)
            case "write" | "submit" | "send_keys" | "paste":
                return await _write(jobs, params)
            case "kill":
                return _report_end(await jobs.kill(params.job_id))
            case "clear":
                return _report_forgotten(jobs.remove(None))
            case "remove":
                # A job that runs can't be forgotten: nothing would name it any more.
                view = await _end_if_running(jobs, params.job_id)
                jobs.remove(params.job_id)
                return _report_forgotten((params.job_id,), view)


def _list(jobs: Jobs) -> ToolResult:
    views = jobs.list()
    rows = [_describe_job(view) for view in views]
    return ToolResult(
        output="\n".join(rows) or "(no jobs)",
        display=f"{sum(view.is_running for view in views)} jobs run, {len(views)} are listed",
        details={"jobs": [describe_job(view) for view in views]},
    )


def _describe_job(view: JobView) -> str:
    where = "" if view.host == "gateway" else f" on {view.host}"
    return (
        f"{view.job_id} {describe_end(view)}{where} · {view.elapsed_s:.1f} s · {view.total_bytes:,} bytes · "
        f"{view.command}"
    )


def describe_job(view: JobView) -> dict[str, JsonValue]:
    """Return what is known of a job, for the journal."""
    return {
        "job_id": view.job_id,
        "status": view.status,
        "host": view.host,
        "pid": view.pid,
        "started": view.started,
        "elapsed_ms": round(view.elapsed_s * 1000),
        "total_bytes": view.total_bytes,
        "exit_code": view.exit_code,
        "signal": view.signal,
    }


async def _read(jobs: Jobs, params: ProcessParams, max_chars: int) -> ToolResult:
    room = max(max_chars // 2, max_chars - NOTE_CHARS)
    limit = min(params.limit or room, room)
    offset = params.offset
    if params.action == "log" and offset is None:
        # A negative offset counts from the end; a log without one shows what was printed last.
        offset = -limit
    wait_s = params.wait_ms / 1000 if params.action == "poll" else 0.0
    view, part = await jobs.read(params.job_id, offset=offset, limit=limit, wait_s=wait_s)
    screen = await jobs.screen(params.job_id) if params.action == "poll" and view.window else None
    shown = None if screen is None else "\n".join(screen)[: room // SCREEN_SHARE]
    text = part.text if shown is None else f"The screen now:\n{shown}"
    return ToolResult(
        output=_add_note(text, _note(view, part, has_screen=shown is not None)),
        display=f"{view.job_id} {describe_end(view)}: {view.command}",
        details={
            **describe_job(view),
            "offset": part.offset,
            "next_offset": part.next_offset,
            "dropped_bytes": part.dropped_bytes,
        },
    )


def _add_note(text: str, note: str) -> str:
    return f"{text.rstrip()}\n({note})" if text.strip() else f"({note})"


def _note(view: JobView, part: OutputPart, *, has_screen: bool) -> str:
    """Return what is to be said about a part of a job's output."""
    words = [f"{view.job_id} {describe_end(view)}"]
    if view.is_running:
        words = [f"{view.job_id} runs for {view.elapsed_s:.1f} s"]
    if part.dropped_bytes:
        words.append(f"{part.dropped_bytes:,} bytes before byte {part.offset:,} are not kept any more")
    left = part.total_bytes - part.next_offset
    if left and not has_screen:
        words.append(f"{left:,} more bytes from offset {part.next_offset:,}")
    elif not part.text and not has_screen:
        words.append("no new output")
    if view.put_back:
        words.append(f"protected and put back as it was: {', '.join(view.put_back)}")
    return "; ".join(words)


async def _write(jobs: Jobs, params: ProcessParams) -> ToolResult:
    # A terminal turns the return key into a line end; a pipe passes on what is written.
    has_terminal = any(view.job_id == params.job_id and view.window for view in jobs.list())
    data = _encode_input(params, "\r" if has_terminal else "\n")
    written = await jobs.write(params.job_id, data, ends=params.eof)
    note = f"wrote {written:,} bytes to {params.job_id}"
    if written < len(data):
        note = f"{params.job_id} took {written:,} of {len(data):,} bytes; it does not read the rest now"
    return ToolResult(output=note, display=note, details={"job_id": params.job_id, "written": written})


def _encode_input(params: ProcessParams, enter: str) -> bytes:
    """Return the bytes to write; ``enter`` ends a line."""
    try:
        match params.action:
            case "submit":
                return f"{params.data}{enter}".encode()
            case "paste":
                # The end mark within the text would end the paste early, and a terminal would take the rest
                # for typed keys.
                text = params.data.replace(PASTE_END, "")
                return (f"{PASTE_BEGIN}{text}{PASTE_END}" if params.bracketed else text).encode()
            case "send_keys":
                return b"".join(map(encode_key, params.keys))
            case _:
                return params.data.encode()
    except UnicodeEncodeError as error:
        raise ValidationError("it holds a character that has no UTF-8 form", "/data") from error
    except ValueError as error:
        raise ValidationError(str(error), "/keys") from error


async def _end_if_running(jobs: Jobs, job_id: str) -> JobView | None:
    running = {view.job_id for view in jobs.list() if view.is_running}
    return await jobs.kill(job_id) if job_id in running else None


def _report_end(view: JobView) -> ToolResult:
    note = f"{view.job_id} {describe_end(view)}"
    return ToolResult(output=note, display=f"{note}: {view.command}", details=describe_job(view))


def _report_forgotten(job_ids: tuple[str, ...], ended: JobView | None = None) -> ToolResult:
    names = ", ".join(job_ids) or "nothing"
    note = f"forgot {names}" if ended is None else f"{ended.job_id} {describe_end(ended)}; forgot it"
    return ToolResult(output=note, display=note, details={"forgotten": list(job_ids)})
