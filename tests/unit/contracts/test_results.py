"""Results that tools make, what screens are sent of them, and how much of one an agent's model gets."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.contracts.errors import ExecutionError, ImageRefused, SessionFailed
from sessiontree.contracts.kinds import SessionStatus
from sessiontree.contracts.recorded.results import (
    Artifact,
    SessionResult,
    image_result,
    image_result_from_file,
    json_result,
    make_error_message,
)
from sessiontree.contracts.reports.events import encode_for_screen
from sessiontree.contracts.settings.settings import MAX_SOURCE_BYTES, ImageLimits, detect_image_type
from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.contracts.values.messages import ImageContent, TextContent, ToolResultMessage
from sessiontree.workspace import WorkspaceReader

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\x0d"


@pytest.mark.parametrize(
    ("status", "cause"),
    [("failed", "failed"), ("cancelled", "cancelled"), ("expired", "expired"), ("completed", "failed")],
)
def test_result_without_a_value_says_why(status: str, cause: str) -> None:
    """Its session, how that ended, and what to do; a value of a session that failed does not count."""
    output = None if status == "completed" else 3
    result = SessionResult(SessionStatus(status), "out of words", output, session_id="main/w1")
    with pytest.raises(SessionFailed, match=r"'main/w1': it (ended|completed)") as failed:
        _ = result.value
    assert failed.value.cause == cause
    assert ("out of words" in str(failed.value)) == (status != "completed")


@pytest.mark.parametrize("value", [0, "", False, []])
def test_empty_value_is_a_value(value: object) -> None:
    """Only None means that a session has no value."""
    assert SessionResult(SessionStatus.COMPLETED, "", value).value == value


@pytest.mark.covers("S33", "U2")
def test_json_result_is_compact_and_its_own_details() -> None:
    """Seed 002, section 2: one text block of compact JSON, the payload as details."""
    result = json_result({"ok": True, "items": (1, 2)})
    assert result.text_for_model() == '{"ok":true,"items":[1,2]}'
    assert result.details == {"ok": True, "items": [1, 2]}


def test_image_result_takes_bytes_or_base64() -> None:
    """Seed 002, section 2: text, image, type, and details that are ``{}`` where none were given."""
    data = b64encode(PNG).decode()
    file = Artifact("file", "the picture", path="a.png")
    expected = (ImageContent(data, "image/png"),)
    for image in (PNG, data):
        result = image_result("seen", image, mime_type="image/png", artifacts=(file,))
        assert (result.output, result.images, result.details) == ("seen", expected, {})
        assert result.artifacts == (file,)
    assert image_result("", PNG, mime_type="x", details={"n": 1}).details == {"n": 1}


def test_image_of_a_file_tells_where_it_lies(tmp_path: Path) -> None:
    """Seed 000, section 3.3: the MEDIA line; the type is the content's, not the name's."""
    (tmp_path / "shot.gif").write_bytes(PNG)
    reader = WorkspaceReader(tmp_path)
    result = image_result_from_file(reader, "./shot.gif", details={"page": 2})
    assert result.output == "MEDIA:shot.gif"
    assert result.images == (ImageContent(b64encode(PNG).decode(), "image/png"),)
    assert result.details == {"page": 2, "path": "shot.gif", "bytes": len(PNG), "mimeType": "image/png"}
    assert (
        image_result_from_file(reader, "shot.gif", text="two\nlines").output == "MEDIA:shot.gif\ntwo\nlines"
    )


def test_image_of_a_file_takes_a_label_and_limits(tmp_path: Path) -> None:
    """People read the label in place of the path; the limits go with the result."""
    (tmp_path / "shot.gif").write_bytes(PNG)
    limits = ImageLimits(max_width=90)
    reader = WorkspaceReader(tmp_path)
    result = image_result_from_file(reader, "shot.gif", label="The sale", image_limits=limits)
    assert (result.display, result.image_limits) == (f"The sale: image/png, {len(PNG)} bytes", limits)
    assert result.output == "MEDIA:shot.gif"


def test_limits_are_narrowed_measure_by_measure() -> None:
    """The smaller one of each counts."""
    mine = ImageLimits(max_width=100, max_height=900, max_bytes=5000)
    narrow = mine.narrowed(ImageLimits(max_width=200, max_height=50, max_bytes=2**20))
    assert narrow == ImageLimits(max_width=100, max_height=50, max_bytes=5000)
    assert mine.narrowed(None) == mine


def test_file_that_is_no_image_or_too_large_is_refused(tmp_path: Path) -> None:
    """A hole of 20 MiB and one byte more, and a text."""
    (tmp_path / "text.png").write_text("no image")
    with (tmp_path / "large.png").open("wb") as file:
        file.write(PNG)
        file.truncate(MAX_SOURCE_BYTES + 1)
    reader = WorkspaceReader(tmp_path)
    with pytest.raises(ImageRefused, match=r"^can't show 'text.png': it is not a PNG"):
        image_result_from_file(reader, "text.png")
    with pytest.raises(ImageRefused, match=r"^can't show 'large.png': it has more than 20,971,520 bytes"):
        image_result_from_file(reader, "large.png")


@pytest.mark.parametrize(
    ("head", "mime_type"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0\0\0", "image/jpeg"),
        (b"GIF87a", "image/gif"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\1\2\3\4WEBPVP8 ", "image/webp"),
        (b"RIFF\1\2\3\4WAVEfmt ", None),
        (b"GIF88a", None),
        (b"BM", None),
        (b"", None),
    ],
)
def test_type_is_read_from_the_first_bytes(head: bytes, mime_type: str | None) -> None:
    """Four formats, and nothing else."""
    assert detect_image_type(head) == mime_type


@pytest.mark.covers("U8")
@given(
    st.lists(st.text("ab\n\u20ac\u0301", max_size=5).map(lambda text: text * 1000), max_size=4),
    st.binary(max_size=50),
    st.booleans(),
    st.integers(0, 20_000),
)
def test_screens_are_sent_what_fits_them(texts: list[str], data: bytes, failed: bool, weight: int) -> None:
    """At most 8,000 characters of text and of details, an error of one line, and no image's bytes."""
    image = ImageContent(b64encode(data).decode(), "image/png")
    blocks: tuple[TextContent | ImageContent, ...] = (*map(TextContent, texts), image)
    message = ToolResultMessage("c", "t", blocks, {"x": "y" * weight}, failed, 7)
    wire = encode_for_screen(message)
    content = json.loads(json.dumps(wire["content"]))
    said = [block["text"] for block in content if block["type"] == "text"]
    assert sum(map(len, said)) <= 8_000
    if sum(map(len, texts)) <= 8_000:
        assert said == texts
    assert content[-1] == {"type": "image", "mimeType": "image/png", "bytes": len(data), "omitted": True}
    assert wire["details"] == (message.details if weight <= 8_000 - 8 else {"omitted": True})
    assert ("error" in wire) == failed
    error = str(wire.get("error", ""))
    assert len(error) <= 400
    assert "\n" not in error


@pytest.mark.covers("U8")
def test_error_on_a_screen_is_the_reason_alone() -> None:
    """Of an envelope what it says, its first line."""
    message = make_error_message("c", "t", ExecutionError("first line\nsecond"), 7)
    assert encode_for_screen(message)["error"] == "first line"
    assert (
        encode_for_screen(ToolResultMessage("c", "t", (TextContent("{1: 2}"),), None, True))["error"]
        == "{1: 2}"
    )


@pytest.mark.parametrize(
    ("given_settings", "chars"),
    [
        ({}, 40_000),
        ({"context_tokens": 100_000}, 120_000),
        ({"context_tokens": 10_000_000}, 400_000),
        ({"context_tokens": 100}, 2_000),
        ({"context_tokens": 32_000, "max_result_chars": 40_000}, 38_400),
        ({"context_tokens": 32_000, "max_result_chars": 1_000}, 1_000),
        ({"max_result_chars": 300}, 300),
    ],
)
def test_result_takes_its_share_of_the_context(given_settings: dict[str, int], chars: int) -> None:
    """30 % at 4 characters a token, between 2,000 and 400,000; what is written down means the same again."""
    config = AgentConfig.model_validate(given_settings)
    assert config.max_result_chars == chars
    assert AgentConfig.model_validate(config.model_dump(mode="json")) == config


@pytest.mark.parametrize(
    "slip", [{"context_tokens": 0}, {"context_tokens": "many"}, {"max_result_chars": 400_001}]
)
def test_slips_in_the_share_are_refused(slip: dict[str, object]) -> None:
    """Nothing wrong is made to fit."""
    with pytest.raises(pydantic.ValidationError):
        AgentConfig.model_validate(slip)
