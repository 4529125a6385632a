"""E-mail addresses.

Replaces  name@host.tld, names and domains in Cyrillic, Greek and accented letters included.
Keeps     what only looks like one: file and unit names (getty@tty1.service, icon@2x.png), packages with a version
          (left-pad@1.3.0), git@host: and scheme://user@host, hosts without a dot.
Misses    addresses written out in words ("user at example dot org").
"""

import re

from pipeline.redaction.rule import AT, Rule, Span

_LOCAL = re.compile(rb"(?:[A-Za-z0-9_.+%'-]|[\xc2-\xdf][\x80-\xbf]){1,64}$")
_DOMAIN = re.compile(
    rb"@((?:(?:[A-Za-z0-9]|[\xc3-\xdf][\x80-\xbf])(?:[A-Za-z0-9-]|[\xc3-\xdf][\x80-\xbf]){0,62}\.){1,8})"
    rb"([A-Za-z]{2,24}|xn--[a-z0-9-]{2,50}|(?:[\xd0\xd1][\x80-\xbf]){2,12})(?![A-Za-z0-9_])"
)
_NO_DOMAINS = frozenset(
    b"service socket timer target mount slice path device png jpg jpeg gif svg webp ico css js ts json html xml yaml"
    b" yml txt log conf sh py rb pl go rs java cpp exe dll so gz zip tar deb rpm md rst pdf local localdomain".split()
)


def _find(content: bytes, place: int) -> Span | None:
    domain = _DOMAIN.match(content, place, place + 260)
    if domain is None or domain[2].lower() in _NO_DOMAINS:
        return None
    local = _LOCAL.search(content[max(0, place - 64) : place])
    if local is None:
        return None
    name = local[0].lstrip(b".'-%+").rstrip(b"'")
    if not name or name.endswith(b".") or (name == b"git" and content[domain.end() : domain.end() + 1] == b":"):
        return None
    start = place - len(name)
    return None if content[start - 3 : start] == b"://" else (start, domain.end())


RULE = Rule(
    name="email",
    placeholder="[EMAIL]",
    triggers=(AT,),
    find=_find,
    examples=(
        ("Пишите на ivan.petrov+work@mail.example.ru, ответим.", "Пишите на [EMAIL], ответим."),
        ("<user@example.org> wrote", "<[EMAIL]> wrote"),
        ("mailto:a_b@x-y.co.uk.", "mailto:[EMAIL]."),
        ("почта@пример.рф", "[EMAIL]"),
        ("systemctl start getty@tty1.service", "systemctl start getty@tty1.service"),
        ("npm i left-pad@1.3.0", "npm i left-pad@1.3.0"),
        ("git clone git@github.com:me/it.git", "git clone git@github.com:me/it.git"),
        ("icon@2x.png root@localhost @property", "icon@2x.png root@localhost @property"),
    ),
)
