"""Provider failures as our error types: whether asking again may help, and when.

Here too is what a provider refuses for certain, found before megabytes are sent to be refused.
"""

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
    describe_error,
)
from sessiontree.contracts.values.messages import ImageContent, measure_text
from sessiontree.contracts.values.truncation import cut_text
from sessiontree.models.port import ModelRequest
from sessiontree.models.providers.provider_model import ProviderModel

MAX_SAID_CHARS: Final = 1_000
"""Maximum length that is kept of a provider's text about a failure."""
UNPAID: Final = 402
MISSING: Final = 404
TOO_LARGE: Final = 413
"""The status of a request with too many bytes."""
_OVERFLOW: Final = re.compile(
    r"exceeds? the (?:available )?context|context[ _-]?(?:length|window|size|limit)|maximum context"
    r"|prompt is too long|input is too long|input too long|too long for (?:the )?requested model"
    r"|input tokens? (?:count )?.{0,80}exceed|maximum (?:allowed )?number of input tokens|max_input_tokens"
    r"|maximum number of tokens allowed|must have less than \d+ tokens|inputs` tokens \+ `max_new_tokens"
    r"|reduce the length of the (?:messages|prompt|input)|maximum prompt length|too many (?:input )?tokens"
    r"|range of input length|exceeds (?:the )?(?:max(?:imum)?|limit)[ _](?:model[ _])?(?:input|prompt|token)"
    r"|request_too_large|(?:request|payload|body|entity).{0,40}(?:too large|exceeds the (?:maximum|limit))"
    r"|exceeds the maximum (?:request )?size|payload size exceeds"
    r"|too many images|images? (?:count|limit|dimensions?|sizes?).{0,60}(?:exceed|limit|maximum|too)"
    r"|(?:max(?:imum)?|at most|up to|limit of|more than) (?:of )?\d+ images?|number of images"
    r"|image exceeds|many-image requests",
    re.IGNORECASE | re.DOTALL,
)
"""How servers say, in a plain 400 or 422, that a question is too long, too large or has too many images.

In turn, by their source: llama.cpp ("exceeds the available context size"); OpenAI, vLLM, Groq and OpenRouter
("maximum context length", "context_length_exceeded", "reduce the length of the messages"); Anthropic ("prompt
is too long", "input length and `max_tokens` exceed context limit"); Amazon Bedrock ("Input is too long for
requested model"); Google ("The input token count (N) exceeds the maximum number of tokens allowed (M)");
Mistral ("too large for model with N maximum context length"); text-generation-inference ("`inputs` tokens +
`max_new_tokens` must be <= N", "`inputs` must have less than N tokens"); xAI ("maximum prompt length");
Alibaba ("Range of input length should be [1, N]"); HTTP servers ("Request Entity Too Large"); Anthropic,
Google and Mistral for bytes and images.
"""


def convert_failure(error: Exception, model: ProviderModel) -> ModelError:
    """Return the typed error of a failed question; its text contains no key."""
    said = _extract_reason(error)
    is_overflow = _is_overflow(error, said)  # judged as it was said: a short key may be part of a word
    if model.key is not None:
        said = model.key.hide_in(said)  # before it is cut, because half a key would not be found
    text = f"{model.name}: {cut_text(said, MAX_SAID_CHARS)}"
    if is_overflow:
        return ContextOverflow(text)
    # Providers answer 404 also to a key that may not use the model, so both are named.
    if getattr(error, "status_code", None) == MISSING:
        return ModelKeyRefused(f"{text}; check the model's name, and that the key may use it")
    if isinstance(error, theirs.ModelRequestRejectedError | theirs.ModelQuotaExceededError):
        return _build_rejection(error, text, model)
    if isinstance(error, theirs.ModelRateLimitError | theirs.ModelUnavailableError):
        return ModelBusy(text, retry_after_s=error.retry_after)
    if isinstance(error, theirs.ModelHTTPError) and error.status_code == UNPAID:
        return _make_unpaid_error(text)
    if isinstance(error, theirs.ModelHTTPError) and not _is_passing(error.status_code):
        return ModelError(text)
    if isinstance(error, theirs.ModelAPIError | theirs.UnexpectedModelBehavior | OSError):
        return ModelUnreachable(text, retry_after_s=getattr(error, "retry_after", None))
    return ModelError(text)


def _build_rejection(error: Exception, text: str, model: ProviderModel) -> ModelError:
    """Return why the same question would be rejected again."""
    if isinstance(error, theirs.ModelAuthenticationError):
        return ModelKeyRefused(f"{text}; check {' or '.join(model.provider.key_variables)} or api_key")
    if isinstance(error, theirs.ModelQuotaExceededError):
        return _make_unpaid_error(text)
    return ModelError(text)


def _is_overflow(error: Exception, said: str) -> bool:
    """Whether a failure says that the question is too long, too large or has too many images."""
    if isinstance(error, theirs.ModelContextWindowExceededError):
        return True
    status = getattr(error, "status_code", None)
    if status == TOO_LARGE:
        return True
    # Limits of rates and quotas speak of tokens too; they have statuses of their own.
    return status in {400, 422, None} and not _is_account(error) and _OVERFLOW.search(said) is not None


def _is_account(error: Exception) -> bool:
    """Whether a failure concerns the key, the account or how often it asks, and not the question."""
    kinds = (theirs.ModelAuthenticationError, theirs.ModelQuotaExceededError, theirs.ModelRateLimitError)
    return isinstance(error, kinds) or not isinstance(error, theirs.ModelAPIError)


def _make_unpaid_error(text: str) -> ModelKeyRefused:
    return ModelKeyRefused(f"{text}; check the quota and the billing of the account")


def _is_passing(status: int) -> bool:
    """Whether a status may change soon."""
    return status >= 500 or status in {408, 409, 425, 429}


def _extract_reason(error: Exception) -> str:
    """Return the provider's own description of the failure, if there is one."""
    # The provider's own words come first: the library's text repeats the whole body around them.
    body = getattr(error, "body", None)
    status = getattr(error, "status_code", None)
    said = ""
    if isinstance(body, dict):
        inner = body.get("error", body)
        said = str(inner.get("message", "")) if isinstance(inner, dict) else str(inner)
    said = said or describe_error(error)
    return f"status {status}: {said}" if status is not None else said


def check_size(request: ModelRequest, model: ProviderModel) -> None:
    """Refuse a question that its provider refuses for certain.

    Bytes are counted as characters of texts and of images in base64, which is never more than is sent.
    A server at another address has limits of its own, which are known from its answer alone. A session
    reacts to an overflow by leaving out images and cutting texts.

    Raises:
        ContextOverflow: the question has too many images or too many bytes; says which limit was met.
    """
    provider = model.provider
    if not model.is_priced or (provider.most_images is None and provider.most_bytes is None):
        return
    images = [
        len(block.data)
        for message in request.messages
        for block in message.content
        if isinstance(block, ImageContent)
    ]
    most = provider.most_images
    if most is not None and len(images) > most:
        raise ContextOverflow(
            f"{model.name}: the question has too many images: {len(images):,}, and {provider.name} "
            f"takes {most:,}"
        )
    of_images, size = sum(images), len(request.system_prompt) + sum(map(measure_text, request.messages))
    most = provider.most_bytes
    if most is not None and size + of_images > most:
        what = f", {of_images:,} of them images" if of_images > size else ""
        raise ContextOverflow(
            f"{model.name}: the question is too large: {size + of_images:,} bytes{what}, and {provider.name} "
            f"takes {most:,}"
        )
