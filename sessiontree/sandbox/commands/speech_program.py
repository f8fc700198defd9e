"""Speech by espeak-ng, confined as a command is: no network, nothing written, bounded output.

The text arrives in a variable and the sound leaves by the standard output, so that no file is left behind.
Source: espeak-ng(1).
"""

from __future__ import annotations

import binascii
import re
import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

from sessiontree.contracts.errors import ExecutionError, ValidationError
from sessiontree.contracts.handles.speech import MAX_AUDIO_BYTES, Speech, SpeechRequest
from sessiontree.sandbox.commands.command_bounds import MIB, Bounds
from sessiontree.sandbox.commands.command_shell import CommandShell
from sessiontree.sandbox.commands.kernel_support import SEARCHED

SPEECH_PROGRAM: Final = "espeak-ng"
NO_SPEECH: Final = (
    "nothing here can speak: install Debian's package espeak-ng, or name a speech service: "
    "SessionTree(…, web=WebSettings(speech_url='http://127.0.0.1:8880/v1'))"
)
TIMEOUT_S: Final = 60.0
BOUNDS: Final = Bounds(memory_bytes=512 * MIB, processes=16, sessions=4, output_bytes=32 * MIB, cpu_s=60)
WORDS_PER_MINUTE: Final = 175
SLOWEST, FASTEST = 80, 450
"""Limits of the program's speed, in words a minute."""
HEADER_BYTES: Final = 44
"""Length of the header of the program's WAV files."""
DEFAULT_VOICE: Final = "en"
_VOICE = re.compile(r"[A-Za-z][A-Za-z0-9+_-]{0,39}")
_SCRIPT: Final = (
    'set -o pipefail; printf %s "$SPOKEN" | {program} -b 1 -v {voice} -s {speed} --stdin --stdout 2>/dev/null'
    " | /usr/bin/base64 -w 0"
)


@cache
def find_speech_program() -> str | None:
    """Return the path of espeak-ng, searched where only the machine's owner can write; None if missing.

    It is looked up once in a process.
    """
    return shutil.which(SPEECH_PROGRAM, path=SEARCHED)


async def speak_confined(wanted: SpeechRequest, workspace: Path, hidden: Sequence[Path]) -> Speech:
    """Return a text spoken by espeak-ng, as a WAV file.

    Args:
        wanted: The text; its format must be ``wav``.
        workspace: The directory that the program may read, and nothing else of its user.
        hidden: Places that it does not see.

    Raises:
        ValidationError: another format is wanted, or espeak-ng lacks the voice.
        ExecutionError: the program is missing, failed, or its output is too long.
        ConfinementUnavailable: it can't be confined here.
    """
    program = find_speech_program()
    if program is None:
        raise ExecutionError(NO_SPEECH)
    if wanted.audio_format != "wav":
        raise ValidationError(f"espeak-ng writes wav only, not {wanted.audio_format}", "/audio_format")
    voice = wanted.voice or DEFAULT_VOICE
    if not _VOICE.fullmatch(voice):
        raise ValidationError(f"{voice[:40]!r} is not the name of a voice, such as 'en' or 'de'", "/voice")
    speed = min(FASTEST, max(SLOWEST, round(WORDS_PER_MINUTE * wanted.speed)))
    shell = CommandShell(workspace, hidden, BOUNDS, access="ro", cleanup_s=1.0)
    finished = await shell.run(
        _SCRIPT.format(program=program, voice=voice, speed=speed),
        env={"SPOKEN": wanted.text},
        timeout_s=TIMEOUT_S,
        keep_bytes=2 * MAX_AUDIO_BYTES,
    )
    if finished.reason != "exited" or finished.exit_code != 0:
        if finished.reason == "exited" and wanted.voice:
            raise ValidationError(f"espeak-ng has no voice {voice!r}; try 'en' or 'de'", "/voice")
        raise ExecutionError(f"espeak-ng did not speak the text: {finished.reason} ({finished.exit_code})")
    try:
        data = binascii.a2b_base64(finished.head + finished.tail, strict_mode=True)
    except ValueError as error:
        raise ExecutionError("espeak-ng's output is too long, or not complete") from error
    if not HEADER_BYTES < len(data) <= MAX_AUDIO_BYTES:
        raise ExecutionError(f"the spoken text has {len(data):,} bytes; at most {MAX_AUDIO_BYTES:,} are kept")
    return Speech(_correct_lengths(data), "wav", voice, SPEECH_PROGRAM)


def _correct_lengths(data: bytes) -> bytes:
    """Return a WAV file with its true lengths; on a pipe the program can't know them when it begins."""
    whole, sound = len(data) - 8, len(data) - HEADER_BYTES
    return data[:4] + whole.to_bytes(4, "little") + data[8:40] + sound.to_bytes(4, "little") + data[44:]
