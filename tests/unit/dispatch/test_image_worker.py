"""Making an image fit, in this process: every promise over drawn images, and planted bugs that break one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from io import BytesIO
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from PIL import Image, ImageCms
from PIL.PngImagePlugin import PngInfo

from sessiontree.contracts.settings.settings import MAX_SOURCE_PIXELS
from sessiontree.dispatch.image_worker import UPRIGHT, Fit, Refused, fit_image
from tests.unit.dispatch.image_fixtures import (
    SECRET,
    corners,
    gif_of,
    jpeg_of,
    opened,
    png_of,
    saved,
    text_bomb,
    webp_of,
)

Fitting = Callable[..., Fit]

fit_small = partial(fit_image, max_width=1200, max_height=1200, max_bytes=2**20, max_pixels=MAX_SOURCE_PIXELS)
MODES = {
    "PNG": ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"],
    "JPEG": ["L", "RGB", "CMYK"],
    "GIF": ["L", "P"],
    "WEBP": ["RGB", "RGBA"],
}


def noisy(mode: str, size: tuple[int, int]) -> Image.Image:
    """Return noise, which no format makes small."""
    noise = Image.effect_noise(size, 90)
    return noise.convert("I").convert(mode) if mode == "I;16" else noise.convert(mode)


def image_fits(fit: Fitting) -> None:
    """Within width, height and bytes, in proportion, no larger than it was, nothing but pixels in it."""

    @settings(max_examples=60, database=None, derandomize=True, phases=[Phase.generate])
    @given(st.data())
    def check(data: st.DataObject) -> None:
        form = data.draw(st.sampled_from(sorted(MODES)))
        mode = data.draw(st.sampled_from(MODES[form]))
        size = data.draw(st.tuples(st.integers(1, 120), st.integers(1, 120)))
        width, height = data.draw(st.tuples(st.integers(16, 80), st.integers(16, 80)))
        max_bytes = data.draw(st.integers(800, 6_000))
        source = saved(noisy(mode, size), form)
        found = fit(source, max_width=width, max_height=height, max_bytes=max_bytes, max_pixels=10**6)
        shown = opened(found.data)
        assert shown.size == (found.width, found.height)
        assert found.width <= min(width, size[0])
        assert found.height <= min(height, size[1])
        assert len(found.data) <= max_bytes
        assert (found.source_width, found.source_height) == size
        assert Image.MIME[str(shown.format)] == found.mime_type
        sides = ((found.width, size[0]), (found.height, size[1]))
        least = max((shown_side - 2) / side for shown_side, side in sides)
        assert least <= min((shown_side + 2) / side for shown_side, side in sides), "out of proportion"
        assert shown.mode in {"L", "RGB", "RGBA"}

    check()


def unshrunk(data: bytes, **limits: int) -> Fit:
    """Bug: no side is too long."""
    return fit_image(data, **{**limits, "max_width": 8192, "max_height": 8192})


def heavy(data: bytes, **limits: int) -> Fit:
    """Bug: bytes don't count."""
    return fit_image(data, **{**limits, "max_bytes": 10**9})


def squeezed(data: bytes, **limits: int) -> Fit:
    """Bug: out of proportion."""
    found = fit_image(data, **limits)
    small = opened(found.data).resize((found.width, max(1, found.height // 2)))
    return replace(found, data=saved(small, str(small.format or "PNG")), height=small.height)


def misnamed(data: bytes, **limits: int) -> Fit:
    """Bug: everything is said to be PNG."""
    return replace(fit_image(data, **limits), mime_type="image/png")


@pytest.mark.covers("I30", "I16")
def test_every_image_fits() -> None:
    """All formats and modes, any size and limits."""
    image_fits(fit_image)


@pytest.mark.parametrize("bug", [unshrunk, heavy, squeezed, misnamed])
def test_planted_fit_is_found(bug: Fitting) -> None:
    """Each bug breaks a promise."""
    with pytest.raises((AssertionError, ExceptionGroup, OSError, KeyError)):
        image_fits(bug)


def photograph(form: str) -> bytes:
    """Return an image that tells where it was taken, in every place its format has for that."""
    image = corners()
    text = SECRET.decode()
    exif = Image.Exif()
    exif[0x010E] = text
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes() + SECRET
    if form == "GIF":
        return saved(image, form, comment=SECRET)
    if form == "PNG":
        info = PngInfo()
        info.add_text("Comment", text)
        info.add_itxt("XML:com.adobe.xmp", text)
        return saved(image, form, exif=exif, icc_profile=SECRET * 4, pnginfo=info, dpi=(72, 72))
    more = {"comment": SECRET} if form == "JPEG" else {}
    return saved(image, form, exif=exif, icc_profile=profile, xmp=SECRET, **more)


def nothing_but_pixels(fit: Fitting) -> None:
    """What a camera or an editor wrote next to the pixels is gone, and what was hidden behind the end."""
    for form in ("PNG", "JPEG", "GIF", "WEBP"):
        source = photograph(form) + SECRET
        assert SECRET in source or form == "PNG"
        found = fit(source)
        shown = opened(found.data)
        assert SECRET not in found.data
        assert SECRET.decode() not in repr(shown.info)
        assert not shown.getexif()
        assert not set(shown.info) - {"jfif", "jfif_version", "jfif_unit", "jfif_density"}, shown.info


def kept_metadata(data: bytes) -> Fit:
    """Bug: the encoder is given what the decoder read."""
    image = opened(data)
    kept: dict[str, Any] = {
        name: image.info[name] for name in ("exif", "icc_profile", "comment") if name in image.info
    }
    form = "PNG" if image.format == "GIF" else str(image.format)
    if "comment" in kept and form == "PNG":
        info = PngInfo()
        info.add_text("Comment", kept.pop("comment").decode())
        kept["pnginfo"] = info
    return replace(fit_small(data), data=saved(image, form, **kept))


def test_metadata_is_dropped() -> None:
    """EXIF, XMP, profiles, comments, and bytes behind the image."""
    nothing_but_pixels(fit_small)


def test_planted_metadata_is_found() -> None:
    """An encoder that copies what was read is noticed."""
    with pytest.raises(AssertionError):
        nothing_but_pixels(kept_metadata)


@pytest.mark.parametrize("turned", [1, *UPRIGHT])
def test_image_stands_upright(turned: int) -> None:
    """Each of the eight ways a camera may be held; sides are limited as they stand upright."""
    lying = corners()
    if turned in UPRIGHT:
        back = {6: 8, 8: 6}.get(turned, turned)
        lying = lying.transpose(UPRIGHT[back])
    exif = Image.Exif()
    exif[0x0112] = turned
    found = fit_image(
        saved(lying, "PNG", exif=exif), max_width=20, max_height=200, max_bytes=2**20, max_pixels=10**6
    )
    shown = opened(found.data).convert("RGB")
    assert (found.source_width, found.source_height) == (40, 20)
    assert shown.size == (20, 10)
    bright = shown.point(lambda level: level > 127)
    assert [bright.getpixel(at) for at in ((2, 2), (17, 2), (2, 7), (17, 7))] == [
        (True, False, False),
        (False, True, False),
        (False, False, True),
        (True, True, True),
    ]


@pytest.mark.covers("REL-L63")
@pytest.mark.parametrize("form", ["PNG", "GIF", "WEBP"])
def test_only_the_first_frame_is_shown(form: str) -> None:
    """An animation of a hundred frames is its first."""
    frames = [Image.new("RGB", (30, 30), (255, 2 * at, 0)) for at in range(100)]
    data = saved(frames[0], form, save_all=True, append_images=frames[1:])
    assert getattr(Image.open(BytesIO(data)), "n_frames", 1) > 30
    shown = opened(fit_small(data).data)
    assert getattr(shown, "n_frames", 1) == 1
    red, green, _ = shown.convert("RGB").getpixel((15, 15))  # type: ignore[misc]
    assert (red > 250, green < 8) == (True, True)


def test_what_shows_through_stays_so() -> None:
    """Transparency is kept as PNG; in JPEG the ground is white."""
    image = Image.new("RGBA", (40, 40), (0, 0, 0, 0))
    image.paste(noisy("RGBA", (20, 40)), (0, 0))
    kept = fit_small(saved(image, "PNG"))
    assert kept.mime_type == "image/png"
    assert opened(kept.data).getpixel((35, 20)) == (0, 0, 0, 0)
    flat = fit_image(saved(image, "PNG"), max_width=40, max_height=40, max_bytes=1_000, max_pixels=10**6)
    assert flat.mime_type == "image/jpeg"
    right = opened(flat.data).convert("L").crop((flat.width - 3, 2, flat.width, 5))
    assert right.getextrema()[0] > 200  # type: ignore[operator] # grey has one band


def test_sixteen_bits_of_grey_become_eight() -> None:
    """The scale stays: the middle is the middle."""
    data = saved(Image.new("I;16", (4, 4), 0x8000), "PNG")
    assert opened(fit_small(data).data).getpixel((1, 1)) == 128


@pytest.mark.covers("REL-L63")
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (png_of(30_000, 30_000), "30000 x 30000 px; at most 40,000,000"),
        (gif_of(65_535, 65_535), "65535 x 65535 px"),
        (jpeg_of(65_500, 65_500), "65500 x 65500 px"),
        (webp_of(16_383, 16_383), "16383 x 16383 px|damaged"),
        (png_of(2**31 - 1, 1), "2147483647 x 1 px"),
        (png_of(400, 400), "damaged"),
        (png_of(0, 4), "damaged|not a PNG"),
        (text_bomb(), "damaged"),
        (saved(corners(), "JPEG")[:-200], "damaged"),
        (saved(noisy("RGB", (90, 90)), "PNG")[:-5000], "damaged"),
        (saved(noisy("RGB", (90, 90)), "WEBP")[:500], "damaged|not a PNG"),
        (b"", "not a PNG"),
        (b"\x89PNG\r\n\x1a\n", "not a PNG|damaged"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "not a PNG"),
        (saved(corners(), "TIFF"), "not a PNG"),
        (saved(corners(), "BMP"), "not a PNG"),
        (saved(corners().convert("L"), "PPM"), "not a PNG"),
    ],
)
def test_refused_with_its_reason(data: bytes, reason: str) -> None:
    """Too large by its header, damaged, cut short, or of another format."""
    with pytest.raises(Refused, match=reason):
        fit_small(data)


@pytest.mark.covers("REL-L63")
@pytest.mark.parametrize("form", sorted(MODES))
def test_header_decides_before_the_pixels_do(form: str) -> None:
    """A file cut off behind its header is refused for its size, not for what is missing."""
    data = saved(noisy("L", (200, 100)).convert("RGB"), form)
    cut = data[: len(data) // 2] if form != "WEBP" else data
    with pytest.raises(Refused, match=r"says 200 x 100 px; at most 19,999 px"):
        fit_small(cut, max_pixels=19_999)
    assert fit_small(data, max_pixels=20_000).width == 200


@pytest.mark.slow
def test_limit_nothing_fits_is_told() -> None:
    """Fewer bytes than any image has: an end, not a loop."""
    with pytest.raises(Refused, match="can't be reduced to 10 bytes"):
        fit_image(saved(corners(), "PNG"), max_width=50, max_height=50, max_bytes=10, max_pixels=10**6)
