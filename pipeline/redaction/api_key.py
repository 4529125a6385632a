"""Keys and tokens of programs.

Replaces  what starts like the keys of well-known services and has their length (AWS, GitHub, GitLab, Slack, Stripe,
          Google, OpenAI, Hugging Face, npm, PyPI, SendGrid, ...); JSON web tokens; what follows Bearer; and a value of
          20 or more mixed characters after a word such as api_key, token or secret and = or :. Tokens of Telegram bots.
Keeps     names of variables, placeholders, hashes without such a word.
Source    the services' documentation; prefixes as in gitleaks and GitHub's secret scanning patterns.
"""

import re

from pipeline.redaction.rule import DIGITS, SECRET, Rule, Span

_KNOWN = re.compile(
    rb"(?:A(?:KIA|SIA|GPA|IDA)[A-Z0-9]{16}|gh[pousr]_[A-Za-z0-9]{36,251}|github_pat_[A-Za-z0-9_]{50,255}"
    rb"|glpat-[A-Za-z0-9_-]{20,64}|xox[abeoprs]-[A-Za-z0-9-]{10,250}|xapp-[A-Za-z0-9-]{20,250}"
    rb"|[srp]k_(?:live|test)_[A-Za-z0-9]{16,99}|sk-(?:proj-|ant-|svcacct-)?[A-Za-z0-9_-]{20,200}|AIza[A-Za-z0-9_-]{35}"
    rb"|hf_[A-Za-z0-9]{30,40}|npm_[A-Za-z0-9]{36}|pypi-[A-Za-z0-9_-]{40,250}|SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{32,64}"
    rb"|ya29\.[A-Za-z0-9_-]{20,250}|dop_v1_[a-f0-9]{64}|shp(?:at|ss|ca|pa)_[a-fA-F0-9]{32}|sq0(?:atp|csp)-[A-Za-z0-9_-]{22,43}"
    rb"|dckr_pat_[A-Za-z0-9_-]{20,64}|lin_api_[A-Za-z0-9]{32,64}|whsec_[A-Za-z0-9]{24,64}|AGE-SECRET-KEY-1[A-Z0-9]{50,70}"
    rb"|eyJ[A-Za-z0-9_-]{8,4000}\.eyJ[A-Za-z0-9_-]{8,4000}\.[A-Za-z0-9_-]{8,1000})(?![A-Za-z0-9_])"
)
_BOT = re.compile(rb"\d{8,10}:AA[A-Za-z0-9_-]{33}(?![A-Za-z0-9_-])")
_BEARER = re.compile(rb"[Bb]earer[ \t]+([A-Za-z0-9._~+/-]{20,4000}=*)")
_NAME = re.compile(
    rb"(?:api[_-]?key|access[_-]?key(?:[_-]?id)?|secret[_-]?key|account[_-]?key|private[_-]?key|auth[_-]?token|access[_-]?token"
    rb"|refresh[_-]?token|client[_-]?secret|token|secret|apikey)[\"']?[ \t]{0,2}$",
    re.IGNORECASE,
)
_VALUE = re.compile(rb"[=:][>=]?[ \t]{0,3}[\"']?([A-Za-z0-9+/_.~-]{20,500}={0,2})")


def _find(content: bytes, place: int) -> Span | None:
    if content[place : place + 1] in (b"=", b":"):
        value = _VALUE.match(content, place)
        if value is None or not _NAME.search(content[max(0, place - 40) : place]) or not _is_random(value[1]):
            return None
        return value.span(1)
    if found := _BOT.match(content, place):
        return found.span()
    if found := _KNOWN.match(content, place):
        return found.span() if _is_random(found[0]) or (found[0].startswith(b"hf_") and _is_mixed(found[0])) else None
    if found := _BEARER.match(content, place):
        return found.span(1) if _is_random(found[1]) else None
    return None


def _is_random(value: bytes) -> bool:
    """Digits and letters mixed, and many different ones: not a path, a name or a row of x."""
    has_digit = any(0x30 <= byte <= 0x39 for byte in value)
    has_letter = any(chr(byte).isalpha() for byte in value)
    return has_digit and has_letter and len(set(value)) >= 10 and value.count(b"/") <= 3 and value.count(b".") <= 2


def _is_mixed(value: bytes) -> bool:
    """Capital and small letters, many different ones: a token of Hugging Face often has no digit."""
    return not value.islower() and not value[3:].isupper() and len(set(value)) >= 16


RULE = Rule(
    name="api_key",
    placeholder="[API_KEY]",
    triggers=(SECRET, DIGITS),
    find=_find,
    examples=(
        ("key AKIAIOSFODNN7EXAMPLE here", "key [API_KEY] here"),
        ("ghp_16C7e42F292c6912E7710c838347Ae178B4a", "[API_KEY]"),
        ("Authorization: Bearer abcdef0123456789abcdefXYZ", "Authorization: Bearer [API_KEY]"),
        ('"api_key": "9f8e7d6c5b4a39281706f5e4d3c2b1a0"', '"api_key": "[API_KEY]"'),
        ("bot 110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw1", "bot [API_KEY]"),
        ("token = get_token_from_environment()", "token = get_token_from_environment()"),
        ("sha256: 9f8e7d6c5b4a39281706f5e4d3c2b1a09f8e7d6c", "sha256: 9f8e7d6c5b4a39281706f5e4d3c2b1a09f8e7d6c"),
        ("api_key=YOUR_API_KEY_GOES_HERE_PLEASE", "api_key=YOUR_API_KEY_GOES_HERE_PLEASE"),
    ),
)
