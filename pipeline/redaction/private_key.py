"""Blocks of private keys.

Replaces  from "-----BEGIN ... PRIVATE KEY-----" to its END line; without one, to where lines of base64 stop.
Keeps     certificates, public keys and signatures.
Limits    a block is looked for in MAX_BYTES; real ones take up to 13 kB.
"""

import re

from pipeline.redaction.rule import BLOCK, Rule, Span

MAX_BYTES = 32 << 10
_BLOCK = re.compile(
    rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    rb"(?:[^-]{0,32768}-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|(?:\s*[A-Za-z0-9+/=]{16,}(?![^\s\\]))*)"
)


def _find(content: bytes, place: int) -> Span | None:
    found = _BLOCK.match(content, place, place + MAX_BYTES)
    return found.span() if found else None


RULE = Rule(
    name="private_key",
    placeholder="[PRIVATE_KEY]",
    triggers=(BLOCK,),
    find=_find,
    examples=(
        (
            "a\n-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA0Z3VS5JJ\nabc=\n-----END RSA PRIVATE KEY-----\nb",
            "a\n[PRIVATE_KEY]\nb",
        ),
        ("-----BEGIN PRIVATE KEY-----\nMIIEowIBAAKCAQEA0Z3VS5JJ\nand text goes on", "[PRIVATE_KEY]\nand text goes on"),
        (
            "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
            "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        ),
    ),
)
