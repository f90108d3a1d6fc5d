"""What is wrong, and what is weak, in a pack's signature dialects."""

import re
from collections.abc import Collection, Iterator, Mapping

from oncefence.catalog.findings import Finding, key
from oncefence.catalog.names import Name
from oncefence.catalog.signatures import (
    HEADER_PREFIX,
    SECRET,
    TIMESTAMP,
    URL,
    HeaderPart,
    KeyForm,
    Mac,
    SignatureDialect,
)
from oncefence.catalog.templates import variables


def signature_errors(
    signatures: Mapping[Name, SignatureDialect], used: Collection[str]
) -> Iterator[Finding]:
    """What no single key of `[signatures]` shows; `used` are those that a webhook names."""
    for name, dialect in signatures.items():
        at = key("signatures", name)
        if name not in used:
            yield at, "no webhook uses it"
        yield from _text_errors(at, dialect)
        yield from _place_errors(f"{at}.signature", dialect.signature)
        if dialect.key is KeyForm.UTF8 and dialect.key_prefix:
            yield f"{at}.key_prefix", "has no effect: a prefix is cut off base64 keys only"
        if dialect.signature.header.lower() in {header.lower() for header in dialect.requires}:
            yield f"{at}.requires", f"{dialect.signature.header} is the signature's own header"
        if dialect.timestamp is not None:
            yield from _place_errors(f"{at}.timestamp", dialect.timestamp)
            if dialect.timestamp.separator is not None and not dialect.timestamp.item_prefix:
                yield (
                    f"{at}.timestamp.item_prefix",
                    "is missing: nothing tells which item of the list is the time",
                )


def signature_warnings(signatures: Mapping[Name, SignatureDialect]) -> Iterator[Finding]:
    """What is sound and yet weaker than it could be."""
    for name, dialect in signatures.items():
        if dialect.mac is Mac.SHA256:
            yield (
                f"{key('signatures', name)}.mac",
                "is no MAC: whoever sees one delivery can sign a longer one; prefer an HMAC form",
            )


def _text_errors(at: str, dialect: SignatureDialect) -> Iterator[Finding]:
    used = variables(dialect.text)
    if (dialect.mac is Mac.SHA256) != (SECRET in used):
        yield (
            f"{at}.text",
            "must use {secret} with mac sha256, and only with it: an HMAC has it as its key",
        )
    if (dialect.timestamp is not None) != (TIMESTAMP in used):
        yield (
            f"{at}.text",
            "must use {timestamp} exactly where there is one: a time outside the text can be moved",
        )
    if dialect.url_decoded and URL not in used:
        yield f"{at}.url_decoded", "has no effect: {url} is not in the text"
    own = {dialect.signature.header.lower()}
    for header in dialect.signed_headers():
        if not re.fullmatch(r"[0-9A-Za-z-]{1,100}", header):
            yield f"{at}.text", f"{{{HEADER_PREFIX}{header}}} names no header"
        elif header.lower() in own:
            yield f"{at}.text", "cannot hold the signature's own header"


def _place_errors(at: str, place: HeaderPart) -> Iterator[Finding]:
    if place.separator is None and place.item_prefix:
        yield f"{at}.item_prefix", "has no effect without separator; use prefix"
    if place.separator is not None and place.prefix:
        yield f"{at}.prefix", "has no effect with a separator; use item_prefix"
