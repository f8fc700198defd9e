"""One made-up secret of each shape, and where it is; put together here: no file holds one whole."""

from __future__ import annotations

LOWER, UPPER, DIGITS, HEX = (
    "abcdefghijklmnopqrstuvwxyz",
    "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "0123456789",
    "0123456789abcdef",
)
MIXED = "aB3dE5gH7jK9mN1pQ3rS5tU7vW9xY1zA3bC5dE7fG9hJ1kL3mN5pQ7rS9"
LONG = MIXED + MIXED[::-1] + MIXED

SAMPLES: dict[str, tuple[str, str]] = {
    "AWS access key id": ("{}", "AK" + "IA" + (UPPER + DIGITS)[:16]),
    "AWS secret key": ("aws_secret_access_key = {}", MIXED[:40]),
    "GitHub token": ("{}", "gh" + "p_" + MIXED[:36]),
    "GitHub fine-grained token": ("{}", "github_" + "pat_" + LONG[:82]),
    "GitLab token": ("{}", "gl" + "pat-" + MIXED[:20]),
    "Slack token": ("{}", "xo" + "xb-" + "123456789012-" + MIXED[:24]),
    "Slack webhook": ("https://hooks.slack.com/services/{}", "T00000000/B00000000/" + MIXED[:24]),
    "Discord webhook": ("https://discord.com/api/webhooks/{}", "123456789012345678/" + LONG[:68]),
    "Stripe key": ("{}", "sk_" + "live_" + MIXED[:24]),
    "Anthropic key": ("{}", "sk-" + "ant-api03-" + LONG[:60]),
    "OpenAI key": ("{}", "sk-" + "proj-" + MIXED[:48]),
    "Google API key": ("{}", "AI" + "za" + MIXED[:35]),
    "Google OAuth token": ("{}", "ya" + "29." + LONG[:60]),
    "Google client secret": ("{}", "GOC" + "SPX-" + MIXED[:28]),
    "Hugging Face token": ("{}", "h" + "f_" + MIXED[:34]),
    "npm token": ("{}", "np" + "m_" + MIXED[:36]),
    "PyPI token": ("{}", "py" + "pi-" + LONG[:90]),
    "SendGrid key": ("{}", "S" + "G." + MIXED[:22] + "." + LONG[:43]),
    "Twilio id or key": ("{}", "S" + "K" + HEX * 2),
    "Mailgun key": ("{}", "ke" + "y-" + HEX * 2),
    "Telegram bot token": ("{}", "123456789:" + "AA" + MIXED[:33]),
    "Discord bot token": ("{}", "M" + MIXED[:23] + "." + MIXED[:6] + "." + MIXED[:27]),
    "DigitalOcean token": ("{}", "do" + "p_v1_" + HEX * 4),
    "Databricks token": ("{}", "da" + "pi" + HEX * 2),
    "Azure account key": ("AccountKey={};EndpointSuffix=x", LONG[:86] + "=="),
    "age key": ("{}", "AGE-SECRET-" + "KEY-1" + (UPPER + DIGITS + UPPER)[:58]),
    "JSON web token": ("{}", "ey" + "J" + MIXED[:20] + ".ey" + "J" + LONG[:80] + "." + MIXED[:43]),
    "private key": (
        "-----BEGIN " + "RSA PRIVATE KEY-----\n{}\n-----END " + "RSA PRIVATE KEY-----",
        LONG[:64] + "\n" + LONG[64:128],
    ),
    "bearer header": ("authorization: Bearer {}", MIXED[:32]),
    "basic header": ("Authorization: Basic {}", "dXNlcjpwYXNzd29yZDEyMw=="),
    "cookie": ("Set-Cookie: {}", "session=" + MIXED[:20] + "; Path=/"),
    "password in an address": ("postgres://user:{}@db.example/x", "s3cr3t-w0rd"),
    "secret in a query": ("GET https://api.example/x?a=1&access_token={}&b=2 failed", MIXED[:12]),
    "password": ('{{"password": "{}"}}', "correct-horse-battery"),
    "secret in a setting": ("client_secret: '{}'", "word-" + MIXED[:12]),
}
"""Per shape: the text it is in, and the secret."""
