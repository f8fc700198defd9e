"""Provider failures as our error types: whether asking again may help, and when."""

from __future__ import annotations

import re
from typing import Final

from pydantic_ai import exceptions as theirs

from sessiontree.contracts.errors import (
    ContextOverflow,
    ModelBusy,
    ModelError,
    ModelKeyRefused,
    ModelUnreachable,
    words_of,
)
from sessiontree.contracts.truncation import cut_text
from sessiontree.models.providers.provider_model import ProviderModel

MAX_SAID_CHARS: Final = 1_000
"""Maximum length that is kept of a provider's text about a failure."""
UNPAID: Final = 402
_OVERFLOW: Final = re.compile(
    r"exceeds the available context size|context[ _](?:length|window)|maximum context|prompt is too long"
    r"|input token count .* exceeds",
    re.IGNORECASE,
)
"""How servers say, in an otherwise plain 400, that a question is too long; the first is llama.cpp's."""


def typed_failure(error: Exception, model: ProviderModel) -> ModelError:
    """Return the typed error of a failed question; its text contains no key."""
    said = _said(error)
    if model.key is not None:
        said = model.key.hidden_in(said)  # before it is cut, because half a key would not be found
    text = f"{model.name}: {cut_text(said, MAX_SAID_CHARS)}"
    if isinstance(error, theirs.ModelRequestRejectedError | theirs.ModelQuotaExceededError):
        return _rejected(error, text, model)
    if isinstance(error, theirs.ModelRateLimitError | theirs.ModelUnavailableError):
        return ModelBusy(text, retry_after_s=error.retry_after)
    if isinstance(error, theirs.ModelHTTPError) and error.status_code == UNPAID:
        return _unpaid(text)
    if isinstance(error, theirs.ModelHTTPError) and not _is_passing(error.status_code):
        return ModelError(text)
    if isinstance(error, theirs.ModelAPIError | theirs.UnexpectedModelBehavior | OSError):
        return ModelUnreachable(text, retry_after_s=getattr(error, "retry_after", None))
    return ModelError(text)


def _rejected(error: Exception, text: str, model: ProviderModel) -> ModelError:
    """Return why the same question would be rejected again."""
    if isinstance(error, theirs.ModelAuthenticationError):
        return ModelKeyRefused(f"{text}; check {' or '.join(model.provider.key_variables)} or api_key")
    if isinstance(error, theirs.ModelQuotaExceededError):
        return _unpaid(text)
    if isinstance(error, theirs.ModelContextWindowExceededError) or _OVERFLOW.search(text):
        return ContextOverflow(text)
    return ModelError(text)


def _unpaid(text: str) -> ModelKeyRefused:
    return ModelKeyRefused(f"{text}; check the quota and the billing of the account")


def _is_passing(status: int) -> bool:
    """Whether a status may change soon."""
    return status >= 500 or status in {408, 409, 425, 429}


def _said(error: Exception) -> str:
    """Return the provider's own description of the failure, if there is one."""
    body = getattr(error, "body", None)
    status = getattr(error, "status_code", None)
    said = ""
    if isinstance(body, dict):
        inner = body.get("error", body)
        said = str(inner.get("message", "")) if isinstance(inner, dict) else str(inner)
    said = said or words_of(error)
    return f"status {status}: {said}" if status is not None else said
