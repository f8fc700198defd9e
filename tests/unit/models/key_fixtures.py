"""Keys of many shapes, and what can't be a key; and the search for them in what came out somewhere."""

from __future__ import annotations

import html
import json
from urllib.parse import quote

from tests.unit.hooks.secret_fixtures import LONG, MIXED, SAMPLES

_ODD: dict[str, str] = {
    "one character": "~",
    "very short": "~!",
    "very long": LONG * 40,
    "double quote": 'k"' + MIXED[:20],
    "single quote": "k'" + MIXED[1:21],
    "both quotes": "'\"" + MIXED[2:22] + "\"'",
    "backslashes": "k\\n\\" + MIXED[3:23] + "\\",
    "percent": "%s%2F" + MIXED[4:24] + "%",
    "for a template": "{0}${x}" + MIXED[5:25],
    "of HTML": "<b>&amp;" + MIXED[6:26],
    "of an address": "a/b?c=d&e=f#" + MIXED[7:27],
    "of a pattern": ".*(?i)[" + MIXED[8:28],
    "of JSON": '{"k":"' + MIXED[9:29] + '"}',
    "base64": MIXED[10:30] + "+/==",
}
KEYS: dict[str, str] = {
    **{name: secret for name, (_, secret) in SAMPLES.items() if secret.isprintable() and " " not in secret},
    **_ODD,
}
"""Keys that a provider may give, by their shape."""
NO_KEYS: dict[str, object] = {
    "empty": "",
    "space": "sk-sentinel two",
    "line end": "sk-sentinel\n",
    "carriage return": "sk-sentinel\r\nx-header: y",
    "tab": "sk-sentinel\t",
    "zero byte": "sk-sentinel\0",
    "umlaut": "sk-sentinel-ü",
    "other script": "sk-sentinel-密钥",
    "emoji": "sk-sentinel-🔑",
    "lone surrogate": "sk-sentinel-\ud800",
    "no-break space": "sk-sentinel\u00a0x",
    "bytes": b"sk-sentinel",
    "number": 7,
}
"""What can't be sent as a key."""


def written(key: str) -> set[str]:
    """Return how texts of several kinds write a key."""
    return {
        key,
        json.dumps(key)[1:-1],
        repr(key)[1:-1],
        repr(key.encode())[2:-1],
        quote(key),
        quote(key, safe=""),
        html.escape(key),
    }


def echo(key: str) -> str:
    """Return what a server may say that repeats a key in every way of writing."""
    return " ".join(f"bad key <{form}>" for form in sorted(written(key)))


def shows(text: str, key: str) -> bool:
    """Whether a text holds a key, however it is written."""
    return any(form in text for form in written(key))
