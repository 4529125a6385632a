"""Redaction: people's data and secrets become typed placeholders, such as [EMAIL]; off unless asked for, rule by rule.

    cleaned texts -> scan: places that could hold something, one pass over the bytes -> RULES decide on those few
        -> texts, and how often each rule replaced something

Precision counts as much as recall: versions, order numbers, dates, hashes and man-page sections stay; each rule's page
says what it keeps and what it misses. Placeholders hold nothing that a rule looks at, so redacting twice changes
nothing. A new rule is one file here, one line in RULES and one field in the config's RedactConfig.
"""

import bisect
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pipeline.config import RedactConfig
from pipeline.kernels.arrow import replaced
from pipeline.redaction import (
    api_key,
    email_address,
    iban,
    inn,
    ip_address,
    passport,
    payment_card,
    phone,
    private_key,
    snils,
    url_password,
)
from pipeline.redaction.rule import Rule
from pipeline.redaction.scan import places_of

__all__ = ["RULES", "Redacted", "Rule", "chosen_rules", "redact", "redact_text"]

# In order: of two rules that find something at one place, the first decides. A password in a URL ends like an address,
# and a card or an identifier with check digits is a surer find than a telephone number.
RULES: tuple[Rule, ...] = (
    private_key.RULE,
    api_key.RULE,
    url_password.RULE,
    email_address.RULE,
    payment_card.RULE,
    iban.RULE,
    inn.RULE,
    snils.RULE,
    passport.RULE,
    ip_address.RULE,
    phone.RULE,
)


@dataclass(frozen=True, kw_only=True)
class Redacted:
    """`text`: the redacted texts in the order given, nulls kept. `counts`: replacements by the rule's name."""

    text: pa.LargeStringArray
    counts: Counter[str]


def chosen_rules(settings: RedactConfig) -> tuple[Rule, ...]:
    """The rules that are on: each as its own key says, else as `all` says."""
    return tuple(rule for rule in RULES if (settings.all if (on := getattr(settings, rule.name)) is None else on))


def redact(text: pa.LargeStringArray, rules: tuple[Rule, ...]) -> Redacted:
    """Every text with what `rules` find replaced."""
    counts: Counter[str] = Counter()
    if not rules:
        return Redacted(text=text, counts=counts)
    documents, places, kinds = places_of(text)
    wanted = np.isin(kinds, np.array(sorted({kind for rule in rules for kind in rule.triggers}), np.uint8))
    documents, places, kinds = documents[wanted], places[wanted], kinds[wanted]
    changed = np.zeros(len(text), bool)
    replacements: list[str] = []
    bounds = np.append(np.flatnonzero(np.diff(documents, prepend=-1)), len(documents))
    for first, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        document = int(documents[first])
        content: bytes = text[document].as_buffer().to_pybytes()
        after = _redacted(content, places[first:end].tolist(), kinds[first:end].tolist(), rules, counts)
        if after is not None:
            changed[document] = True
            replacements.append(after.decode())
    if replacements:
        text = replaced(text, changed, pa.array(replacements, pa.large_string()))
    return Redacted(text=text, counts=counts)


def redact_text(text: str, rules: tuple[Rule, ...] = RULES) -> str:
    """One text with what `rules` find replaced."""
    redacted: str = redact(pa.array([text], pa.large_string()), rules).text[0].as_py()
    return redacted


def _redacted(
    content: bytes, places: list[int], kinds: list[int], rules: tuple[Rule, ...], counts: Counter[str]
) -> bytes | None:
    """The text with the finds replaced, None where there are none. Of finds that overlap, the surer rule's stays."""
    found: list[tuple[int, int, int]] = []
    for place, kind in zip(places, kinds, strict=True):
        for index, rule in enumerate(rules):
            if kind in rule.triggers and (span := rule.find(content, place)) is not None:
                found.append((index, *span))
                break
    if not found:
        return None
    kept: list[tuple[int, int, int]] = []  # (start, end, rule), sorted, apart from each other
    for index, start, end in sorted(found):
        at = bisect.bisect_left(kept, (start, end, index))
        if (at == 0 or kept[at - 1][1] <= start) and (at == len(kept) or kept[at][0] >= end):
            kept.insert(at, (start, end, index))
    parts, position = [], 0
    for start, end, index in kept:
        parts += [content[position:start], rules[index].placeholder.encode()]
        counts[rules[index].name] += 1
        position = end
    return b"".join([*parts, content[position:]])
