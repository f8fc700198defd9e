"""``tts``: speaks a text into an audio file of the workspace."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, ClassVar, get_args

from pydantic import BaseModel, ConfigDict, Field

from sessiontree.contracts.handles.speech import MAX_SPOKEN_CHARS, AudioFormat, SpeechRequest
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.contracts.recorded.capabilities import SPEECH, WRITER
from sessiontree.contracts.recorded.results import Artifact, ToolResult
from sessiontree.contracts.tools.context import ToolContext
from sessiontree.contracts.tools.thread_calls import Stop, end_if, run_in_call_thread
from sessiontree.contracts.tools.tool import MAIN_AND_BRANCH, Stripped, Tool, ToolFlag
from sessiontree_tools.files.text_file import to_utf8


class SpeakParams(BaseModel):
    """What to say, how, and into which file."""

    model_config = ConfigDict(extra="forbid")

    text: Annotated[str, Stripped()] = Field(min_length=1, max_length=MAX_SPOKEN_CHARS)
    path: str = Field(min_length=1)
    voice: Annotated[str, Stripped()] | None = Field(
        default=None, min_length=1, description="Such as `en` or `de`."
    )
    speed: float = Field(default=1.0, ge=0.25, le=4.0, description="1 is normal.")
    audio_format: AudioFormat | None = Field(
        default=None, description="Without it, the end of path decides; else wav."
    )


class Speak(Tool[SpeakParams]):
    """Writes a spoken text to a file."""

    name = "tts"
    description = "Speak a text into an audio file."
    brief = True
    Params: ClassVar[type[BaseModel]] = SpeakParams
    label = "Speak"
    section = "media"
    flags = frozenset({ToolFlag.OPTIONAL})
    tier = PermissionTier.WORKSPACE
    kinds = MAIN_AND_BRANCH
    capabilities = frozenset({"writer", "speech"})
    changes: ClassVar[tuple[str, ...]] = ("path",)

    async def execute(self, params: SpeakParams, ctx: ToolContext) -> ToolResult:
        """Write the file; the output is ``{path, bytes, format, voice, spoken_by}``.

        Raises:
            ValidationError: voice or format is not one of the speaker's, or the text has no UTF-8 form.
            ExecutionError: nothing here can speak, or it failed; no file was written.
            PermissionDenied: the path is outside what may be written.
        """
        speaker, writer = ctx.require(SPEECH), ctx.require(WRITER)
        to_utf8(params.text.replace("\0", " "), "/text")
        chosen = params.audio_format or _choose_format(params.path)
        text = params.text.replace("\0", " ")  # no program takes that character
        speech = await speaker.speak(SpeechRequest(text, params.voice or "", params.speed, chosen))

        def write(stop: Stop) -> ToolResult:
            end_if(stop)
            written = writer.write(params.path, speech.data)
            return ToolResult(
                output={
                    "path": written.path,
                    "bytes": written.bytes,
                    "format": speech.audio_format,
                    "voice": speech.voice,
                    "spoken_by": speech.spoken_by,
                },
                display=f"spoke {len(params.text)} characters to {written.path}",
                artifacts=(
                    Artifact("file", "created" if written.created else "replaced", path=written.path),
                ),
            )

        return await run_in_call_thread(ctx, write)


def _choose_format(path: str) -> AudioFormat:
    """Return the format that a path's end names; wav if it names none."""
    end = PurePosixPath(path).suffix.removeprefix(".").lower()
    known: dict[str, AudioFormat] = {each: each for each in get_args(AudioFormat)}
    return known.get(end, "wav")
