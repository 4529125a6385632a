"""Bytes of pages and mails -> text, whatever they claim to be."""

import re

from resiliparse.parse.encoding import bytes_to_str, detect_encoding

from pipeline.charset_names import is_charset

_DECLARED = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_:.-]{1,40})", re.IGNORECASE)
GUESS_BYTES = 1 << 16
"""How much of a text the guess looks at, so that its cost does not grow with the text."""


def decoded(content: bytes, declared: str | None = None) -> str:
    """Bytes of a page or a mail as text, by the rule above; `declared` comes before what a page says itself."""
    if declared is not None and is_charset(declared):
        try:
            return content.decode(declared)
        except (UnicodeError, ValueError):
            pass  # a wrong claim: look at the bytes
    try:
        return content.decode()
    except UnicodeDecodeError:
        pass
    if declared is None and (found := _DECLARED.search(content[:4096])):
        declared = found[1].decode("ascii")
    if declared is not None and is_charset(declared) and declared.lower() not in ("utf-8", "utf8", "us-ascii", "ascii"):
        try:
            return content.decode(declared, "replace")
        except (UnicodeError, ValueError):
            pass
    return bytes_to_str(content, detect_encoding(content[:GUESS_BYTES]) or "utf-8", errors="replace")
