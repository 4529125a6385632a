"""Which words name a character set: for configs, which want no reader loaded, and for readers."""

# Codecs that are no character sets, or whose time grows with the square of the text.
GUESS = "guess"
"""What a config names as the encoding of files whose own bytes shall tell it."""
NO_CHARSETS = frozenset({"idna", "punycode", "unicode_escape", "raw_unicode_escape", "undefined", "mbcs", "oem"})


def is_charset(name: str) -> bool:
    """Whether Python decodes text by that name."""
    try:
        b"".decode(name)
    except (LookupError, ValueError, UnicodeError):
        return False
    return name.lower().replace("-", "_") not in NO_CHARSETS
