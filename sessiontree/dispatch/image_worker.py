"""Fits one image to a model's limits, or says what it is; a program that can be killed.

It is run by its path: ``python -I image_worker.py``. It reads one request from its standard input, answers on
its standard output, and imports only Pillow. No module imports it, so a hostile image can damage only this
process.
Not here: starting and ending it (``images``).
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final, cast

from PIL import Image, UnidentifiedImageError

FORMATS: Final = ("PNG", "JPEG", "GIF", "WEBP")
MAX_MEMORY_BYTES: Final = 768 * 2**20
"""Address space limit of the program."""
QUALITIES: Final = (85, 70, 50)
SHRINK: Final = 0.7
LEAST_SIDE: Final = 8
ORIENTATION: Final = 0x0112
UPRIGHT: Final = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""The operation that turns the image upright, by its EXIF orientation. Source: TIFF 6.0, EXIF 2.3."""


class Refused(Exception):
    """The image can't be shown; the text says why."""


@dataclass(frozen=True, slots=True)
class Fit:
    """An image within the limits."""

    data: bytes
    mime_type: str
    width: int
    height: int
    source_width: int
    """Width of the original image, turned upright."""
    source_height: int


def fit_image(data: bytes, *, max_width: int, max_height: int, max_bytes: int, max_pixels: int) -> Fit:
    """Return the first frame of an image, upright, within the limits, encoded again without metadata.

    A lossless image stays PNG if that is small enough; otherwise it becomes JPEG on white, and is shrunk
    until it fits.

    Raises:
        Refused: the image has a format that models don't accept, has more than ``max_pixels`` by its header,
            or is damaged.
    """
    try:
        with _open_image(data, max_pixels) as source:
            turned = source.getexif().get(ORIENTATION, 1)
            on_its_side = turned in UPRIGHT and turned >= 5
            width, height = source.size[::-1] if on_its_side else source.size
            box = (max_height, max_width) if on_its_side else (max_width, max_height)
            lossless = source.format in {"PNG", "GIF"}
            if source.format == "JPEG":
                source.draft("RGB", box)
            image = _convert_pixels(source)
        if image.width > box[0] or image.height > box[1]:
            image.thumbnail(box, Image.Resampling.LANCZOS)
        if turned in UPRIGHT:
            image = image.transpose(UPRIGHT[turned])
        image.info = {}
        encoded, mime_type, image = _encode(image, lossless or image.mode == "RGBA", max_bytes)
    except (Refused, MemoryError):
        raise
    except Exception as error:  # decoders may raise anything for foreign bytes
        raise Refused(f"it is damaged ({type(error).__name__}: {str(error)[:160]})") from error
    return Fit(encoded, mime_type, image.width, image.height, width, height)


COLOURS: Final = 5
SAMPLE_SIDE: Final = 64
OPAQUE: Final = 128
"""Least alpha of a pixel whose colour counts."""


def describe_image(data: bytes, *, max_pixels: int) -> dict[str, Any]:
    """Return format, size turned upright, frames, transparency and most frequent colours of an image.

    Raises:
        Refused: as for :func:`fitted`.
    """
    try:
        with _open_image(data, max_pixels) as source:
            on_its_side = source.getexif().get(ORIENTATION, 1) in range(5, 9)
            width, height = source.size[::-1] if on_its_side else source.size
            form = "JPEG" if source.format == "MPO" else str(source.format)
            if form == "JPEG":
                source.draft("RGB", (SAMPLE_SIDE, SAMPLE_SIDE))
            image = _convert_pixels(source)
            frames = int(getattr(source, "n_frames", 1))
        colours = _find_colours(image)
    except (Refused, MemoryError):
        raise
    except Exception as error:  # decoders may raise anything for foreign bytes
        raise Refused(f"it is damaged ({type(error).__name__}: {str(error)[:160]})") from error
    return {
        "format": form,
        "width": width,
        "height": height,
        "frames": frames if form != "JPEG" else 1,
        "is_transparent": image.mode == "RGBA",
        "colours": colours,
    }


def _find_colours(image: Image.Image) -> list[tuple[str, float]]:
    """Return the most frequent colours and their shares, of a small copy."""
    image.thumbnail((SAMPLE_SIDE, SAMPLE_SIDE), Image.Resampling.BOX)
    pixels = list(image.convert("RGBA").getdata())
    seen = [pixel[:3] for pixel in pixels if pixel[3] >= OPAQUE]
    if not seen:
        return []
    strip = Image.new("RGB", (len(seen), 1))
    strip.putdata(seen)
    reduced = strip.quantize(COLOURS, Image.Quantize.MEDIANCUT).convert("RGB")
    counted = cast("list[tuple[int, tuple[int, int, int]]]", reduced.getcolors(len(seen)) or [])
    ordered = sorted(counted, key=lambda row: (-row[0], row[1]))
    return [(f"#{bytes(colour).hex()}", count / len(seen)) for count, colour in ordered]


def _open_image(data: bytes, max_pixels: int) -> Image.Image:
    """Return an image of which only the header was read."""
    Image.MAX_IMAGE_PIXELS = None  # checked below, with a message that names the limit
    try:
        image = Image.open(BytesIO(data), formats=FORMATS)
    except UnidentifiedImageError as error:
        raise Refused("it is not a PNG, JPEG, GIF or WebP image, or its header is damaged") from error
    if image.width * image.height > max_pixels:
        size = f"{image.width} x {image.height} px"
        image.close()
        raise Refused(f"its header says {size}; at most {max_pixels:,} px are decoded")
    return image


def _convert_pixels(image: Image.Image) -> Image.Image:
    """Return the pixels as 8-bit grey or RGB, or as RGBA if some are transparent."""
    if image.mode.startswith("I"):
        return image.convert("I").point(lambda level: level * (1 / 256) + 0).convert("L")
    mode = "RGBA" if image.has_transparency_data else "L" if image.mode in {"1", "L"} else "RGB"
    image.load()
    return image.copy() if image.mode == mode else image.convert(mode)


def _encode(image: Image.Image, lossless: bool, max_bytes: int) -> tuple[bytes, str, Image.Image]:
    """Return the bytes, their type, and the image they encode; it is shrunk only if necessary."""
    if lossless:
        png = _save(image, "PNG")
        if len(png) <= max_bytes:
            return png, "image/png", image
    if image.mode == "RGBA":
        ground = Image.new("RGB", image.size, "white")
        ground.paste(image, mask=image.getchannel("A"))
        image = ground
    while True:
        for quality in QUALITIES:
            jpeg = _save(image, "JPEG", quality=quality)
            if len(jpeg) <= max_bytes:
                return jpeg, "image/jpeg", image
        smaller = (int(image.width * SHRINK) or 1, int(image.height * SHRINK) or 1)
        if max(smaller) < LEAST_SIDE:
            raise Refused(f"it can't be reduced to {max_bytes:,} bytes")
        image = image.resize(smaller, Image.Resampling.LANCZOS)


def _save(image: Image.Image, name: str, **options: int) -> bytes:
    stream = BytesIO()
    image.save(stream, name, **options)
    return stream.getvalue()


def main() -> None:
    """Answer one request: read a line of JSON and an image, write a line of JSON and the fitted image.

    If the request asks only what the image is, no image follows.
    """
    order: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    limit_s, only_facts = order.pop("limit_s"), order.pop("only_facts", False)
    # The alarm is not handled: it ends this process even if the process that started it has ended.
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    most = order.get("max_bytes", 0) + 2**16
    for bound, allowed in (
        (resource.RLIMIT_AS, MAX_MEMORY_BYTES),
        (resource.RLIMIT_CPU, int(limit_s) + 1),
        (resource.RLIMIT_FSIZE, most),
        (resource.RLIMIT_CORE, 0),
    ):
        with suppress(OSError, ValueError):  # a lower limit is in force already
            resource.setrlimit(bound, (allowed, allowed))
    data = b""
    answer: dict[str, Any]
    try:
        given = sys.stdin.buffer.read()
        facts = describe_image(given, **order) if only_facts else None
        fit = fit_image(given, **order) if facts is None else None
    except Refused as refused:
        answer = {"refused": str(refused)}
    except MemoryError:
        answer = {"refused": f"decoding it takes more than {MAX_MEMORY_BYTES:,} bytes of memory"}
    else:
        if fit is None:
            answer = {"facts": facts}
        else:
            data = fit.data
            answer = {
                "mime_type": fit.mime_type,
                "shown": [fit.width, fit.height],
                "source": [fit.source_width, fit.source_height],
            }
    sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n" + data)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
