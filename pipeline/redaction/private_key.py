"""Blocks of private keys.

Replaces  from "-----BEGIN ... PRIVATE KEY-----" to its END line; without one, to where lines of base64 stop.
Keeps     certificates, public keys and signatures.
Limits    a block is looked for in MAX_BYTES; real ones take up to 13 kB.
"""

import re

from pipeline.redaction.rule import BLOCK, Rule, Span

MAX_BYTES = 32 << 10
_BEGIN = re.compile(rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_END = re.compile(rb"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_LINES = re.compile(rb"(?:\s*[A-Za-z0-9+/=]{16,}(?![^\s\\]))*")


def _find(content: bytes, place: int) -> Span | None:
    limit = place + MAX_BYTES
    begin = _BEGIN.match(content, place, limit)
    if begin is None:
        return None
    following = content.find(b"-----BEGIN", begin.end(), limit)
    end = _END.search(content, begin.end(), limit if following < 0 else following)
    lines = _LINES.match(content, begin.end(), limit)
    return place, end.end() if end else lines.end() if lines else begin.end()


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
            "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,AB12\n\nMIIEowIBAAKCAQEA\n"
            "-----END RSA PRIVATE KEY-----",
            "[PRIVATE_KEY]",
        ),
        (
            "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
            "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        ),
    ),
)
