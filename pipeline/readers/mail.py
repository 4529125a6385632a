"""A mail message -> its id and text, for eml and mbox: parsed by the standard library's email.

Text      "Subject: ...", "From: ...", "Date: ..." as far as they are there, an empty line, the body. Encoded words are
          decoded, folded headers joined.
Body      of alternatives the plain text, else the HTML one (all its visible text: a mail has no navigation to leave
          out); of several parts each text in turn. text/enriched loses its marks and their parameters. Attachments are
          left out and counted: pictures and other files, texts marked as such, forwarded messages that are attached.
Charset   as declared, where that fits; else UTF-8 where the bytes are that; else a guess from the bytes. Bytes that fit
          nothing become U+FFFD.
Date      its Date header, by the rules of dates.py.
Id        the Message-ID without its angle brackets; without one, the caller names the message by place.
Bad       a message that the parser gives up on (nesting of parts beyond its depth), one with a header that is looked at
          and longer than MAX_HEADER_BYTES, or over the record limit.

Quoted replies, signatures and the like stay; cleaning removes them by option.
"""

import email.parser
import email.policy
import re
from dataclasses import dataclass
from email.errors import HeaderParseError, MessageError
from email.header import decode_header
from email.message import Message
from typing import NamedTuple

from pipeline.readers import dates
from pipeline.readers.charsets import decoded
from pipeline.readers.html import text_of
from pipeline.readers.records import Fields
from pipeline.readers.whole import Unreadable

HEADERS = ("Subject", "From", "Date")
MAX_PARTS = 1000
# email takes time with the square of a header's length: 300 kB of encoded words 0.3 s, 80 kB of Content-Type 3 s.
MAX_HEADER_BYTES = 32 << 10
_FOLD = re.compile(r"\r?\n[ \t]+|[\r\n]+")
_PARAMETER = re.compile(r"<param>[^<]{0,200}</param>", re.IGNORECASE)
_MARK = re.compile(r"<(<)|<[^<>\n]{0,60}>")  # two of them are one that is text (RFC 1896)


class Mail(NamedTuple):
    """What is taken of a message."""

    identity: str | None
    text: str
    date: int | None
    """UTC seconds; None where it has none, or nobody asked."""
    num_attachments: int
    """Parts left out."""


class _BoundedHeaders(email.policy.Compat32):
    """Refuses what is too long before anything looks at it. Others, such as a To of a thousand names, may be long."""

    def header_source_parse(self, sourcelines: list[str]) -> tuple[str, str]:
        name = sourcelines[0].partition(":")[0].strip().lower()
        num_bytes = sum(map(len, sourcelines))
        if num_bytes > MAX_HEADER_BYTES and (name in _LOOKED_AT or name.startswith("content-")):
            raise MessageError(f"a header {name[:30]} of {num_bytes} bytes, limit {MAX_HEADER_BYTES}")
        parsed: tuple[str, str] = super().header_source_parse(sourcelines)
        return parsed


_LOOKED_AT = frozenset(name.lower() for name in (*HEADERS, "Message-ID"))
_POLICY = _BoundedHeaders()


def parsed(content: bytes, fields: Fields) -> Mail:
    """Of a message its id, its text and, where asked for, its date. Raises Unreadable."""
    try:
        message = email.parser.BytesParser(policy=_POLICY).parsebytes(content)
        headers = [f"{name}: {value}" for name in HEADERS if (value := _header(message, name))]
        parts = _Parts()
        body = "\n\n".join(text.strip("\r\n") for text in _texts(message, parts) if text.strip())
        identity = _header(message, "Message-ID").strip().removeprefix("<").removesuffix(">").strip()
        date = dates.seconds(_header(message, "Date")) if fields.dated else None
    except (MessageError, ValueError, LookupError, TypeError, AttributeError, AssertionError, RecursionError) as error:
        # email promises to raise nothing on input, and its bug tracker shows every one of these.
        raise Unreadable("damaged_message", f"{type(error).__name__}: {error}"[:500]) from None
    text = "\n".join(headers) + ("\n\n" if headers and body else "") + body
    return Mail(identity or None, text, date, parts.num_attachments)


@dataclass
class _Parts:
    """The parts of a message, as they are walked."""

    num_left: int = MAX_PARTS
    """How many more are looked at, so that a mail of a million parts stays one short task."""
    num_attachments: int = 0


def _header(message: Message, name: str) -> str:
    raw = next((value for key, value in message.raw_items() if key.lower() == name.lower()), "")
    raw = _FOLD.sub(" ", str(raw)).strip()
    if not raw.isascii():  # bytes beyond ASCII, which the parser keeps as half surrogates
        return _FOLD.sub(" ", decoded(raw.encode("utf-8", "surrogateescape"))).strip()
    if "=?" in raw:
        try:
            words = [
                word if isinstance(word, str) else decoded(word, charset or "us-ascii")
                for word, charset in decode_header(raw)
            ]
        except (HeaderParseError, ValueError, LookupError):
            words = [raw]
        raw = "".join(words)
    return _FOLD.sub(" ", raw).strip()


def _texts(part: Message, parts: _Parts) -> list[str]:
    """The texts of a part in order."""
    parts.num_left -= 1
    if parts.num_left < 0 or _is_attachment(part):
        parts.num_attachments += 1
        return []
    kind = part.get_content_type()
    payload = part.get_payload()
    if isinstance(payload, list):
        inner = [one for one in payload if isinstance(one, Message)]
        if kind == "multipart/alternative":
            return _best(inner, parts)
        return [text for one in inner for text in _texts(one, parts)]
    content = part.get_payload(decode=True)
    text = decoded(content if isinstance(content, bytes) else b"", part.get_content_charset("us-ascii"))
    if kind == "text/html":
        return [text_of(text)]
    if kind in ("text/enriched", "text/richtext"):
        return [_MARK.sub(lambda found: found[1] or "", _PARAMETER.sub("", text))]
    return [text]


def _best(alternatives: list[Message], parts: _Parts) -> list[str]:
    """Of alternatives the plain one, else the first that has text."""
    plain_first = sorted(alternatives, key=lambda part: part.get_content_type() != "text/plain")
    for part in plain_first:
        texts = _texts(part, parts)
        if any(text.strip() for text in texts):
            return texts
    return []


def _is_attachment(part: Message) -> bool:
    kind = part.get_content_maintype()
    if part.is_multipart():
        return kind == "message"
    return kind != "text" or part.get_content_disposition() == "attachment"
