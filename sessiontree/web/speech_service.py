"""The owner's speech service, with OpenAI's endpoint ``/audio/speech``.

Source: OpenAI's API reference, "Create speech"; services on one's own machine offer the endpoint, too.
"""

from __future__ import annotations

import json
from dataclasses import field, replace
from typing import Final, Protocol

from sessiontree.contracts.errors import ExecutionError, ValidationError
from sessiontree.contracts.handles.http_requests import HttpResponse
from sessiontree.contracts.handles.speech import MAX_AUDIO_BYTES, Speech, SpeechRequest
from sessiontree.contracts.values.quick_dataclass import dataclass
from sessiontree.web.address import WebAddress, parse_address
from sessiontree.web.sent_requests import SentRequest, check_headers

MAX_VOICE_CHARS: Final = 100


class RequestSender(Protocol):
    """Sends requests to the service."""

    async def send(self, address: WebAddress, sent: SentRequest, *, max_bytes: int) -> HttpResponse:
        """Return the response of an address."""
        ...


@dataclass(frozen=True, slots=True)
class SpeechService:
    """A speech service."""

    url: str = field(repr=False)
    """Its address, up to ``/audio/speech``."""
    client: RequestSender
    """May reach that address only, and follows no redirect: the key goes nowhere else."""
    model: str
    voice: str
    """Used if a call names none."""
    key: str | None = field(repr=False)

    async def speak(self, wanted: SpeechRequest) -> Speech:
        """Return a text spoken by the service.

        Raises:
            ValidationError: the voice's name is too long.
            ExecutionError: the service can't be reached, refuses, or answers with nothing or too much.
        """
        voice = wanted.voice or self.voice
        if len(voice) > MAX_VOICE_CHARS or not voice.isprintable():
            raise ValidationError(f"{voice[:40]!r} is not the name of a voice", "/voice")
        asked = {
            "model": self.model,
            "input": wanted.text,
            "voice": voice,
            "response_format": wanted.audio_format,
            "speed": wanted.speed,
        }
        headers = [("Content-Type", "application/json")]
        if self.key is not None:
            headers.append(("Authorization", f"Bearer {self.key}"))
        place = replace(parse_address(f"{self.url.rstrip('/')}/audio/speech"), is_secret=True)
        sent = SentRequest("POST", check_headers(headers), json.dumps(asked).encode())
        page = (await self.client.send(place, sent, max_bytes=MAX_AUDIO_BYTES)).page
        if page.status != 200:
            raise ExecutionError(f"the speech service answered with status {page.status}", page.may_pass)
        if not page.body or page.truncated:
            raise ExecutionError(
                f"the speech service answered with no sound, or with more than {MAX_AUDIO_BYTES:,} bytes"
            )
        return Speech(page.body, wanted.audio_format, voice, self.model)
