"""What secrets look like when nobody said what they are: prefixes of issuers, headers, addresses, settings.

Every pattern's repeats are bounded or of one class, so that searching takes time linear in the text. Where a
pattern has the group ``secret``, that alone is taken out. None crosses a quotation mark: JSON stays JSON.
Source: the token formats their issuers publish; RFC 3986 (user information), 6750 (bearer), 7468 (PEM),
7519 (JWT), 7617 (basic).
"""

from __future__ import annotations

import re

_BEGINS = r"(?:(?<![A-Za-z0-9])|\\(?:[bfnrt]|u[0-9a-fA-F]{4}))"
"""No letter or digit before it, but those of an escape: in JSON text a line begins behind ``\\n``."""
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
"""How patterns begin that may follow a letter."""

SHAPES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(pattern if pattern.startswith(_BARE) else f"{_BEGINS}(?P<secret>{pattern})"))
    for name, pattern in _SHAPES
)
"""Name and pattern of each shape."""

SECRET_NAMES = re.compile(
    r"(?i)(?:^|[_\W])(?:password|passwd|passphrase|pwd|secret|token|api[_-]?key|access[_-]?key"
    r"|private[_-]?key|authorization|cookie)$"
)
"""Members of details whose value is taken out whatever it looks like."""
