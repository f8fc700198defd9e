"""The process an image is read in: started, bounded, ended; its answer is the program's."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from base64 import b64decode
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from PIL import Image

from sessiontree.contracts.errors import ImageRefused
from sessiontree.contracts.settings.settings import MAX_SOURCE_BYTES, ImageLimits
from sessiontree.contracts.values.messages import ImageContent
from sessiontree.dispatch.image_worker import MAX_MEMORY_BYTES
from sessiontree.dispatch.images import ImageCleaner
from tests.unit.dispatch.image_fixtures import content, corners, opened, png_of, saved, text_bomb, webp_of

pytestmark = pytest.mark.anyio

Leftovers = Callable[[], AbstractContextManager[None]]

LIMITS = ImageLimits(max_width=32, max_height=32)


async def test_image_comes_back_fit(nothing_left: Leftovers) -> None:
    """Shrunk in proportion, under its true type; nothing is left behind."""
    cleaner = ImageCleaner(LIMITS)
    with nothing_left():
        found = await cleaner.clean(content(saved(corners(64, 32), "JPEG")), "the picture")
    shown = opened(b64decode(found.content.data))
    assert (found.content.mime_type, shown.format, shown.size) == ("image/jpeg", "JPEG", (32, 16))
    assert (found.width, found.height, found.source_width, found.source_height) == (32, 16, 64, 32)
    assert found.was_shrunk


@pytest.mark.short(4)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("image", "reason"),
    [
        (content(png_of(30_000, 30_000)), "30000 x 30000 px"),
        (content(webp_of(16_383, 16_383)), "16383 x 16383 px|damaged|memory"),
        (content(text_bomb()), "damaged"),
        (content(saved(corners(), "JPEG")[:-200]), "damaged"),
        (content(b"plain text"), "not a PNG"),
        (ImageContent("", "image/png"), "not a PNG"),
        (ImageContent("not base64!", "image/png"), "not base64"),
        (ImageContent("data:image/png;base64,AAAA", "image/png"), "not base64"),
        (ImageContent("\u0437\u0434\u0440", "image/png"), "not base64"),
    ],
)
async def test_refusal_names_image_and_reason(
    image: ImageContent, reason: str, nothing_left: Leftovers
) -> None:
    """One typed error for all that can be wrong."""
    with nothing_left(), pytest.raises(ImageRefused, match=rf"^can't show picture 7: .*({reason})"):
        await ImageCleaner(LIMITS).clean(image, "picture 7")


@pytest.mark.covers("REL-L63")
async def test_size_is_judged_before_base64_is() -> None:
    """Text that can't be decoded is refused for its length first: nothing of it was decoded."""
    long = "!" * ((MAX_SOURCE_BYTES + 2) // 3 * 4)
    with pytest.raises(ImageRefused, match="not base64"):
        await ImageCleaner(LIMITS).clean(ImageContent(long, "image/png"), "it")
    with pytest.raises(ImageRefused, match="more than 20,971,520 bytes"):
        await ImageCleaner(LIMITS).clean(ImageContent(long + "!", "image/png"), "it")


async def test_image_that_takes_too_long_is_ended(nothing_left: Leftovers) -> None:
    """The limit counts from the start of the process."""
    cleaner = ImageCleaner(LIMITS, limit_s=0)
    with nothing_left(), pytest.raises(ImageRefused, match="takes longer than 0 s"):
        await cleaner.clean(content(saved(corners(), "PNG")), "it")


@pytest.mark.slow
async def test_cancelled_call_leaves_no_process(nothing_left: Leftovers) -> None:
    """The process is gone before the cancellation is; the next image has its turn."""
    cleaner = ImageCleaner(LIMITS)
    large = content(saved(Image.new("RGB", (6000, 6000)), "PNG", compress_level=1))
    with nothing_left():
        task = asyncio.create_task(cleaner.clean(large, "it"))
        async with asyncio.timeout(60):
            while not _programs():
                await asyncio.wait({task}, timeout=0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not _programs()
        assert (await cleaner.clean(content(saved(corners(), "PNG")), "it")).width == 32


def _programs() -> list[str]:
    """Return this process's children that read an image."""
    children = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    found = []
    for child in " ".join(path.read_text() for path in children).split():
        try:
            if b"image_worker.py" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(child)
        except OSError:  # gone meanwhile
            continue
    return found


MEASURE = """
import base64, json, resource, sys
from sessiontree.contracts.settings.settings import ImageLimits
from sessiontree.contracts.values.messages import ImageContent
from sessiontree.contracts.errors import ImageRefused
from sessiontree.dispatch.images import clean_image
data = base64.b64encode(sys.stdin.buffer.read()).decode()
try:
    clean_image(ImageContent(data, ""), ImageLimits(), "it", 60, lambda: False)
    refused = None
except ImageRefused as error:
    refused = error.reason
print(json.dumps([resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024, refused]))
"""


@pytest.mark.short(2)
@pytest.mark.covers("REL-L63")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "most_mib", "refused"),
    [
        (lambda: saved(Image.new("RGBA", (8000, 5000)), "PNG"), 640, None),
        (lambda: saved(Image.new("P", (8000, 5000)), "GIF"), 640, None),
        (lambda: png_of(30_000, 30_000), 64, "30000 x 30000"),
        (text_bomb, 200, "damaged"),
    ],
    ids=["largest png", "largest gif", "30k x 30k", "text bomb"],
)
def test_memory_is_bounded(make: Callable[[], bytes], most_mib: int, refused: str | None) -> None:
    """The largest image that is decoded stays below the bound; a bomb costs what an interpreter does."""
    done = subprocess.run([sys.executable, "-c", MEASURE], input=make(), capture_output=True, check=True)
    peak, reason = json.loads(done.stdout)
    assert peak < min(most_mib * 2**20, MAX_MEMORY_BYTES)
    assert (refused or "") in (reason or "")
    assert (reason is None) == (refused is None)
