"""Images as tools may give them: drawn, and written by hand where no library would write them."""

from __future__ import annotations

import functools
import struct
import zlib
from base64 import b64encode
from io import BytesIO
from typing import Any

from PIL import Image

from sessiontree.contracts.values.messages import ImageContent

SECRET = b"planted-secret-49.8397N"


def saved(image: Image.Image, form: str, **options: Any) -> bytes:
    """Return an image encoded in a format."""
    stream = BytesIO()
    image.save(stream, form, **options)
    return stream.getvalue()


def opened(data: bytes) -> Image.Image:
    """Return an encoded image, decoded."""
    image = Image.open(BytesIO(data))
    image.load()
    return image


def content(data: bytes) -> ImageContent:
    """Return an encoded image as a tool gives it, under a type that need not be true."""
    return ImageContent(b64encode(data).decode(), "image/png")


def corners(width: int = 40, height: int = 20) -> Image.Image:
    """Return an image whose quarters are red, lime (right), blue (below) and white."""
    image = Image.new("RGB", (width, height), "red")
    half = (width // 2, height // 2)
    image.paste("lime", (half[0], 0, width, half[1]))
    image.paste("blue", (0, half[1], half[0], height))
    image.paste("white", (half[0], half[1], width, height))
    return image


def chunk(name: bytes, data: bytes) -> bytes:
    """Return one chunk of a PNG file."""
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png_of(width: int, height: int, *more: bytes) -> bytes:
    """Return a PNG file whose header says a size; its pixels are one byte."""
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    pixels = chunk(b"IDAT", zlib.compress(b"\0"))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + b"".join(more) + pixels + chunk(b"IEND", b"")


def gif_of(width: int, height: int) -> bytes:
    """Return a GIF file whose header says a size; its one frame is a pixel."""
    small = saved(Image.new("P", (1, 1)), "GIF")
    return small[:6] + struct.pack("<HH", width, height) + small[10:]


def jpeg_of(width: int, height: int) -> bytes:
    """Return a JPEG file whose header says a size; its pixels are those of a small one."""
    small = saved(Image.new("L", (8, 8)), "JPEG")
    at = small.index(b"\xff\xc0") + 5
    return small[:at] + struct.pack(">HH", height, width) + small[at + 4 :]


def webp_of(width: int, height: int) -> bytes:
    """Return a WebP file whose header says a size; it has no pixels."""
    canvas = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    body = b"WEBPVP8X" + struct.pack("<I", 10) + bytes([2, 0, 0, 0]) + canvas
    body += b"ANIM" + struct.pack("<IIH", 6, 0, 0)
    return b"RIFF" + struct.pack("<I", len(body)) + body


@functools.cache
def text_bomb() -> bytes:
    """Return a small PNG with a compressed comment of 256 MiB."""
    return png_of(4, 4, *[chunk(b"zTXt", b"k\0\0" + zlib.compress(bytes(2**26), 9))] * 4)
