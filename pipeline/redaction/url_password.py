"""Passwords in URLs.

Replaces  the password of scheme://user:password@host, and nothing else of the address.
Keeps     addresses without a password, and placeholders (<password>, ${PASSWORD}, ***).
"""

import re

from pipeline.redaction.rule import AT, Rule, Span

_BEFORE = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s/:@]{0,80}:([^\s/@]{1,120})$")
_PLACEHOLDER = re.compile(rb"<[^>]*>|\$?\{[^}]*\}|\$\w+|%\w+%|\*+|x+|\.{2,}|\[[A-Z_]+\]", re.IGNORECASE)


def _find(content: bytes, place: int) -> Span | None:
    start = max(0, place - 230)
    found = _BEFORE.search(content[start:place])
    if found is None or _PLACEHOLDER.fullmatch(found[1]):
        return None
    return start + found.start(1), place


RULE = Rule(
    name="url_password",
    placeholder="[PASSWORD]",
    triggers=(AT,),
    find=_find,
    examples=(
        ("postgres://app:s3cr3t!@db.example.org:5432/x", "postgres://app:[PASSWORD]@db.example.org:5432/x"),
        ("https://user:<password>@host/", "https://user:<password>@host/"),
        ("ssh://git@host.example.org/x", "ssh://git@host.example.org/x"),
        ("https://example.org:8080/a@b", "https://example.org:8080/a@b"),
    ),
)
