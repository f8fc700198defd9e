"""What ``tts`` writes: by espeak-ng in its sandbox, and by a speech service of the owner."""

from __future__ import annotations

import io
import json
import wave
from pathlib import Path
from typing import Any

import pytest

from sessiontree.contracts.errors import ConfigError, ExecutionError, PermissionDenied, ValidationError
from sessiontree.contracts.handles.speech import MAX_AUDIO_BYTES, Speech, SpeechRequest, SpeechSynthesizer
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.recorded.results import ToolResult
from sessiontree.sandbox import speak_confined
from sessiontree.testing.context import call_tool, make_context
from sessiontree.web.settings import WebSettings
from sessiontree.web.web import OutboundWeb
from sessiontree_tools.tts import Speak
from tests.unit.web.service_fakes import Reply, Service, service

KEY = "sk-of-the-owner"


class ConfinedSpeaker:
    """Speaks by espeak-ng, which reads one directory."""

    def __init__(self, root: Path) -> None:
        self.root = root

    async def speak(self, wanted: SpeechRequest) -> Speech:
        """Return the spoken text."""
        return await speak_confined(wanted, self.root, ())


async def spoken(root: Path, speaker: SpeechSynthesizer | None = None, **arguments: Any) -> ToolResult:
    """Return what the tool says."""
    ctx = make_context(root, speech=speaker or ConfinedSpeaker(root))
    return await call_tool(Speak(), ctx, **{"text": "hello there", "path": "a.wav", **arguments})


def seconds(path: Path) -> float:
    """Return how long a WAV file plays."""
    with wave.open(io.BytesIO(path.read_bytes())) as sound:
        return float(sound.getnframes() / sound.getframerate())


def names_in(root: Path) -> list[str]:
    """Return the names of what is in a directory, sorted."""
    return sorted(each.name for each in root.iterdir())


@pytest.mark.covers("S16", "A39")
async def test_text_becomes_a_whole_sound_file(tmp_path: Path) -> None:
    """Its header has the true length; speed and voice are heeded, and nothing of a text is a command."""
    result = await spoken(tmp_path)
    assert isinstance(result.output, dict)
    assert result.output.items() >= {"path": "a.wav", "format": "wav", "voice": "en"}.items()
    normal = seconds(tmp_path / "a.wav")
    await spoken(tmp_path, path="fast.wav", speed=2.0, voice="de")
    hostile = "-w /tmp/x $(touch owned) `touch owned` \"; touch owned; '\0 \u00fc\U0001f600"
    await spoken(tmp_path, path="b.wav", text=hostile)
    assert 0.3 < seconds(tmp_path / "fast.wav") < normal < 5
    assert seconds(tmp_path / "b.wav") > 0
    assert names_in(tmp_path) == ["a.wav", "b.wav", "fast.wav"]


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"voice": "xx-none"}, "/voice"),
        ({"voice": "en; touch owned"}, "/voice"),
        ({"path": "a.mp3"}, "/audio_format"),
        ({"audio_format": "ogg"}, "/audio_format"),
        ({"text": ""}, "/text"),
        ({"text": "x" * 4097}, "/text"),
        ({"text": "\ud800"}, "/text"),
        ({"speed": 0}, "/speed"),
        ({"speed": float("nan")}, "/speed"),
    ],
)
async def test_bad_arguments_write_nothing(tmp_path: Path, arguments: dict[str, Any], field: str) -> None:
    """The error names the argument."""
    with pytest.raises(ValidationError) as raised:
        await spoken(tmp_path, **arguments)
    assert raised.value.field == field
    assert names_in(tmp_path) == []


async def test_file_outside_is_not_written(tmp_path: Path) -> None:
    """The writer decides; a Worker never holds the handle."""
    root = tmp_path / "ground"
    root.mkdir()
    with pytest.raises((PermissionDenied, ExecutionError)):
        await spoken(root, path="../a.wav")
    assert names_in(tmp_path) == ["ground"]
    with pytest.raises(ValueError, match="never holds a speech"):
        make_context(root, SessionKind.WORKER, speech=ConfinedSpeaker(root))


def speech_web(there: Service, **settings: object) -> OutboundWeb:
    """Return a web whose speech service is this one."""
    given = {"speech_url": f"{there.url}/v1", "speech_key": KEY, **settings}
    return OutboundWeb(WebSettings.model_validate(given))


@pytest.mark.covers("S16")
async def test_speech_service_is_asked_with_its_key(tmp_path: Path) -> None:
    """The endpoint's members, the key as a bearer token, and the answer as the file."""
    async with service({"/v1/audio/speech": Reply(body=b"ID3 sound")}) as there:
        web = speech_web(there, speech_model="kokoro")
        assert web.has_speech
        result = await spoken(tmp_path, web, path="a.mp3", speed=1.5)
        await spoken(tmp_path, web, path="b.bin", voice="nova", audio_format="opus")
    first, second = there.received
    assert (first.method, first.path) == ("POST", "/v1/audio/speech")
    assert first.headers["authorization"] == f"Bearer {KEY}"
    assert json.loads(first.body) == {
        "model": "kokoro",
        "input": "hello there",
        "voice": "alloy",
        "response_format": "mp3",
        "speed": 1.5,
    }
    assert json.loads(second.body).items() >= {"voice": "nova", "response_format": "opus"}.items()
    assert (tmp_path / "a.mp3").read_bytes() == b"ID3 sound"
    assert isinstance(result.output, dict)
    assert result.output["spoken_by"] == "kokoro"


@pytest.mark.parametrize(
    "reply",
    [
        Reply(401, b"who are you?"),
        Reply(302, b"", ("Location: http://127.0.0.1:1/steal",)),
        Reply(200, b""),
        Reply(200, bytes(MAX_AUDIO_BYTES + 1)),
    ],
    ids=["refused", "redirect", "empty", "long"],
)
async def test_service_that_fails_writes_nothing(tmp_path: Path, reply: Reply) -> None:
    """No redirect is followed, and no error shows address or key."""
    async with service({"/v1/audio/speech": reply}) as there:
        with pytest.raises(ExecutionError) as raised:
            await spoken(tmp_path, speech_web(there), path="a.mp3")
    assert "/v1" not in str(raised.value)
    assert KEY not in str(raised.value)
    assert names_in(tmp_path) == []


def test_wrong_settings_are_refused_and_keys_not_shown() -> None:
    """Before any call."""
    with pytest.raises(ConfigError, match="speech_url is not an address"):
        OutboundWeb(WebSettings(speech_url="file:///x"))
    with pytest.raises(ConfigError, match="speech_key"):
        OutboundWeb(WebSettings(speech_url="http://127.0.0.1:1", speech_key="a\nb"))
    assert KEY not in repr(WebSettings(speech_url="http://127.0.0.1:1", speech_key=KEY))
