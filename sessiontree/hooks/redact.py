"""Removes secrets from results, messages and tasks before anything of them is kept.

The patterns recognise secrets that were not given: prefixes of issuers, headers, addresses, settings. Their
repetitions are bounded or of one class, so that a search takes time linear in the text. If a pattern has
the group ``secret``, only that group is removed. No pattern crosses a quotation mark: JSON stays JSON.
Source: the token formats that their issuers publish; RFC 3986 (user information), 6750 (bearer), 7468 (PEM),
7519 (JWT), 7617 (basic).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from urllib.parse import quote

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.tools.hooks import (
    Hook,
    HookContext,
    HookText,
    KeptResult,
    OnError,
    Rewrite,
    Spawning,
)
from sessiontree.contracts.values.jsonable import JsonValue, dump_json, dump_readable
from sessiontree.hooks.results import rewrite_artifact, rewrite_texts

_BEGINS = r"(?:(?<![A-Za-z0-9])|\\(?:[bfnrt]|u[0-9a-fA-F]{4}))"
"""No letter or digit before it, except those of an escape: in JSON text a line begins after ``\\n``."""
_IS = r"""["'\\]{0,4}\s{0,2}[:=]\s{0,2}["'\\]{0,4}"""
_VALUE = r"""[^\s"'\\,;&<>(){}\[\]\u2039\u203a]"""

_HAS_DIGIT = r"""(?=[^\s"'\\]{0,64}[0-9])"""
_QUERY = (
    "(?:access_|auth_|refresh_|id_)?token|api_?key|key|secret|sig|signature|auth|password"
    "|x-amz-(?:signature|security-token)"
)
_SETTING = "secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credential"

_SHAPES: tuple[tuple[str, str], ...] = (
    ("AWS access key id", r"(?:AKIA|ASIA|AGPA|AIDA|AROA|ANPA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
    ("AWS secret key", rf"(?i:aws_?secret_?(?:access_?)?key){_IS}(?P<secret>[A-Za-z0-9/+=]{{40}})"),
    ("GitHub token", r"gh[pousr]_[A-Za-z0-9]{36,255}"),
    ("GitHub fine-grained token", r"github_pat_[A-Za-z0-9_]{50,255}"),
    ("GitLab token", r"gl(?:pat|ptt|dt|rt|cbt)-[A-Za-z0-9_-]{20,255}"),
    ("Slack token", r"xox[abeprs]-[A-Za-z0-9-]{10,255}"),
    ("Slack webhook", r"https://hooks\.slack\.com/(?:services|workflows)/(?P<secret>[A-Za-z0-9+/]{20,255})"),
    ("Discord webhook", r"https://discord(?:app)?\.com/api/webhooks/(?P<secret>[0-9]{10,25}/[\w-]{20,255})"),
    ("Stripe key", r"(?:sk|rk|whsec)_(?:live_|test_)?[A-Za-z0-9]{16,255}"),
    ("Anthropic key", r"sk-ant-[A-Za-z0-9_-]{20,255}"),
    ("OpenAI key", r"sk-(?:proj-|svcacct-|admin-)?[A-Za-z0-9_-]{20,255}"),
    ("Google API key", r"AIza[0-9A-Za-z_-]{35}"),
    ("Google OAuth token", r"ya29\.[0-9A-Za-z_-]{20,1024}"),
    ("Google client secret", r"GOCSPX-[A-Za-z0-9_-]{28}"),
    ("Hugging Face token", r"hf_[A-Za-z0-9]{30,255}"),
    ("npm token", r"npm_[A-Za-z0-9]{36}"),
    ("PyPI token", r"pypi-[A-Za-z0-9_-]{50,512}"),
    ("SendGrid key", r"SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{16,64}"),
    ("Twilio id or key", r"(?:AC|SK)[0-9a-f]{32}(?![A-Za-z0-9])"),
    ("Mailgun key", r"key-[0-9a-f]{32}"),
    ("Telegram bot token", r"[0-9]{8,10}:AA[A-Za-z0-9_-]{33}"),
    ("Discord bot token", r"[MNO][A-Za-z0-9_-]{23,25}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,38}"),
    ("DigitalOcean token", r"do[opr]_v1_[a-f0-9]{64}"),
    ("Databricks token", r"dapi[0-9a-f]{32}"),
    ("Azure account key", r"AccountKey=(?P<secret>[A-Za-z0-9+/=]{40,128})"),
    ("age key", r"AGE-SECRET-KEY-1[0-9A-Z]{50,64}"),
    ("JSON web token", r"eyJ[A-Za-z0-9_-]{8,4096}\.eyJ[A-Za-z0-9_-]{8,8192}\.[A-Za-z0-9_-]{8,2048}"),
    ("private key", r'-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY-----(?P<secret>(?:[^-"]|-(?!----)){1,16384})'),
    ("bearer header", r"(?i:bearer)\s{1,4}(?P<secret>[A-Za-z0-9._~+/=-]{16,8192})"),
    ("basic header", rf"(?i:authorization){_IS}(?i:basic)\s{{1,4}}(?P<secret>[A-Za-z0-9+/=]{{8,1024}})"),
    ("cookie", r"""(?i:cookie):\s{0,4}(?P<secret>[^\r\n"\\\u2039\u203a]{4,4096})"""),
    (
        "password in an address",
        r"""://[^\s/:@"'\\\u2039\u203a]{0,64}:(?P<secret>[^\s/@"'\\\u2039\u203a]{1,256})@""",
    ),
    (
        "secret in a query",
        rf"""[?&](?i:{_QUERY})=(?P<secret>[^\s&#"'\\<>\u2039\u203a]{{4,4096}})""",
    ),
    ("password", rf"(?i:password|passwd|passphrase|pwd){_IS}(?P<secret>{_VALUE}{{6,256}})"),
    ("secret in a setting", rf"(?i:{_SETTING}){_IS}(?P<secret>{_HAS_DIGIT}{_VALUE}{{8,512}})"),
)
_BARE = ("://", "[?&]", "(?i:", "-----", "AccountKey", "https:")
"""How the patterns begin that may follow a letter."""

SHAPES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(pattern if pattern.startswith(_BARE) else f"{_BEGINS}(?P<secret>{pattern})"))
    for name, pattern in _SHAPES
)
"""Name and pattern of each shape."""

SECRET_NAMES = re.compile(
    r"(?i)(?:^|[_\W])(?:password|passwd|passphrase|pwd|secret|token|api[_-]?key|access[_-]?key"
    r"|private[_-]?key|authorization|cookie)$"
)
"""Members of details whose value is always removed."""


MARK = "\u2039redacted\u203a"
LEAST_CHARS = 6
_EDGES = re.compile("[\u2039\u203a]")


class Redact(Hook):
    """Replaces every secret by a mark, in everything that comes in, is kept or goes out.

    That is: in results with their errors, details, display and artifacts; in progress; in messages to a
    session; in what its model says, and its tools on a channel; in tasks and labels of children. Arguments of
    calls stay as the model wrote them; the model never saw these secrets.

    It is a guard: if it fails, nothing of the result or message is kept, and no child is spawned. Given
    secrets are found in their literal form, escaped in JSON, percent-encoded, and base64-encoded on their
    own. Other secrets are found by their shape. Images are not searched. Redacting is idempotent.

    Args:
        secrets: Known secrets, at least six characters each.
        shapes: Whether to remove also what looks like a secret.
    """

    name = "redact"
    on_error: OnError = "block"

    def __init__(self, secrets: Iterable[str] = (), *, shapes: bool = True) -> None:
        """Store the secrets.

        Raises:
            ConfigError: one is too short, or part of the mark; the message gives its position, not its value.
        """
        forms: set[str] = set()
        for place, secret in enumerate(secrets):
            if not isinstance(secret, str) or len(secret) < LEAST_CHARS:
                raise ConfigError(f"Redact: secret {place} must be text of at least {LEAST_CHARS} characters")
            if secret in MARK or _EDGES.search(secret):
                raise ConfigError(f"Redact: secret {place} can't be distinguished from the mark {MARK}")
            forms |= _list_forms(secret)
        # The longest first, so that a secret that contains another one is removed as a whole.
        ordered = sorted(forms, key=lambda form: (-len(form), form))
        self._known = re.compile("|".join(map(re.escape, ordered))) if ordered else None
        self._shapes = SHAPES if shapes else ()

    def __repr__(self) -> str:
        """Show nothing of the secrets."""
        return "Redact(…)"

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        while True:
            cleaned = self._redact_once(text)
            if cleaned == text:
                return text
            text = cleaned  # the text next to a removed secret may now match a pattern itself

    def _redact_once(self, text: str) -> str:
        if self._known is not None:
            text = self._known.sub(MARK, text)
        for _, shape in self._shapes:
            text = shape.sub(_replace_secret, text)
        return text

    def value(self, value: JsonValue) -> JsonValue:
        """Return a JSON value without secrets in texts, keys or numbers."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, dict):
            return {self.text(key): self._redact_member(key, item) for key, item in value.items()}
        if value is None or isinstance(value, bool):
            return value
        # A secret may consist of digits.
        return value if self.text(number := dump_json(value)) == number else MARK

    def _redact_member(self, key: str, value: JsonValue) -> JsonValue:
        named = bool(self._shapes) and SECRET_NAMES.search(key) is not None
        plain = isinstance(value, str | int | float) and not isinstance(value, bool)
        return MARK if named and plain else self.value(value)

    def tool_result_persist(self, result: KeptResult) -> KeptResult:
        """Return the result without secrets."""
        return replace(
            rewrite_texts(result, self.text),
            details=self.value(result.details),
            artifacts=tuple(rewrite_artifact(artifact, self.text) for artifact in result.artifacts),
        )

    def message_received(self, words: HookText, ctx: HookContext) -> HookText:
        """Return the message without secrets."""
        return replace(words, text=self.text(words.text))

    def message_sending(self, words: HookText, ctx: HookContext) -> HookText:
        """Return an outgoing message without secrets."""
        return replace(words, text=self.text(words.text))

    def subagent_spawning(self, spawning: Spawning, ctx: HookContext) -> Rewrite:
        """Return the child's task and label without secrets."""
        label = None if not spawning.label else self.text(spawning.label)
        return Rewrite(self.text(spawning.task), label)


def redact_with(hooks: Iterable[Hook]) -> Callable[[JsonValue], JsonValue]:
    """Return a function that removes secrets from a value: all known shapes, and what the hooks remove."""
    redacting = [Redact(), *(hook for hook in hooks if isinstance(hook, Redact))]

    def remove(value: JsonValue) -> JsonValue:
        for each in redacting:
            value = each.value(value)
        return value

    return remove


def _list_forms(secret: str) -> set[str]:
    raw = secret.encode("utf-8", "surrogatepass")
    return {
        secret,
        dump_json(secret)[1:-1],
        dump_readable(secret)[1:-1],
        quote(raw, safe=""),
        base64.b64encode(raw).decode().rstrip("="),
    }


def _replace_secret(found: re.Match[str]) -> str:
    if "secret" not in found.re.groupindex:
        return MARK
    start, end = found.span("secret")
    whole, offset = found.group(), found.start()
    return whole[: start - offset] + MARK + whole[end - offset :]
