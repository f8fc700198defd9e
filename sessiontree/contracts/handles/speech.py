"""Speech: what is to be said, what it sounds like, and the handle that speaks."""

from __future__ import annotations

from typing import Final, Literal, Protocol, TypeAlias

from sessiontree.contracts.values.quick_dataclass import dataclass

AudioFormat: TypeAlias = Literal["wav", "mp3", "opus", "aac", "flac"]
"""Formats of an audio file. Source: the speech endpoint of OpenAI's API, without raw samples."""
MAX_SPOKEN_CHARS: Final = 4096
"""Maximum length of a text that is spoken. Source: as above."""
MAX_AUDIO_BYTES: Final = 16 * 2**20
"""Maximum size of an audio file."""


@dataclass(frozen=True, slots=True)
class SpeechRequest:
    """A text to speak."""

    text: str
    voice: str = ""
    """Name of a voice of whatever speaks; empty = its default."""
    speed: float = 1.0
    """1 = normal, 0.25 to 4."""
    audio_format: AudioFormat = "wav"


@dataclass(frozen=True, slots=True)
class Speech:
    """A spoken text."""

    data: bytes
    """The audio file."""
    audio_format: AudioFormat
    voice: str
    spoken_by: str
    """``espeak-ng``, or the model of the owner's speech service."""


class SpeechSynthesizer(Protocol):
    """Speaks texts: by the owner's speech service if there is one, else by espeak-ng on this machine."""

    async def speak(self, wanted: SpeechRequest) -> Speech:
        """Return the audio file of the text that is ``wanted``.

        Raises:
            ValidationError: the voice or the format is not one of this speaker's; names the field.
            ExecutionError: nothing here can speak, or the service can't be reached, refuses or fails.
            ConfinementUnavailable: this machine can't confine espeak-ng.
        """
        ...
