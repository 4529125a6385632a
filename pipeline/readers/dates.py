"""When a record says it was written -> UTC, in whole seconds since 1970.

ISO 8601   2024-03-05T10:15:00+03:00, 2024-03-05 10:15, 2024-03-05, 20240305, 2024-W10-2; 2024-03 and 2024 for their
           first day
RFC 2822   Tue, 5 Mar 2024 10:15:00 +0300, as mails have it
Seconds    since 1970, as digits with or without a fraction: 1709622900, 1709622900.5. But four digits that are one of
           the years 1900 to 2199, and eight that are a day of them, are that year and that day.
Zone       UTC where none is said, or one that RFC 2822 does not define (MSK).
Fraction   of a second: cut off, towards the past.

Anything else is no date, and so are years before 1 and after 9999: milliseconds since 1970 are none.
"""

import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

import numpy as np
import pyarrow as pa

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_FIRST, _LAST = -62_135_596_800, 253_402_300_799
"""0001-01-01T00:00:00Z and 9999-12-31T23:59:59Z."""
_NUMBER = re.compile(r"[+-]?([0-9]{1,15})(?:\.[0-9]*)?")
_DAY = re.compile(r"(?:19|2[01])[0-9]{6}")
_YEAR_OR_MONTH = re.compile(r"((?:19|2[01])[0-9]{2})(-[0-9]{2})?")
_MAX_CHARS = 200
"""A header may carry comments; what is longer is some other field."""
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def seconds(text: str | None) -> int | None:
    """The date that `text` spells, None where it spells none."""
    if text is None or len(text) > _MAX_CHARS:
        return None
    text = text.strip()
    if part := _YEAR_OR_MONTH.fullmatch(text):
        text = f"{part[1]}{part[2] or '-01'}-01"
    number = _NUMBER.fullmatch(text)
    if number is not None and not _DAY.fullmatch(text):
        return _from_number(text)
    for parse in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            found = parse(text)
        # Of what is no date, email's parser raises the other three.
        except (ValueError, OverflowError, TypeError, IndexError):
            continue
        return _inside(((found if found.tzinfo is not None else found.replace(tzinfo=UTC)) - _EPOCH) // _SECOND)
    return _from_number(text) if number is not None else None


def _from_number(text: str) -> int | None:
    whole, _, fraction = text.partition(".")
    return _inside(int(whole) - (whole.startswith("-") and fraction.strip("0") != ""))


def _inside(found: int) -> int | None:
    return found if _FIRST <= found <= _LAST else None


def spelled(date: int) -> str:
    """A date for people: 2024-03-05T07:15:00Z."""
    return (_EPOCH + date * _SECOND).replace(tzinfo=None).isoformat() + "Z"


def of_texts(texts: pa.LargeStringArray) -> pa.Int64Array:
    """A column of `seconds`, null where there is no date."""
    return pa.array(map(seconds, texts.to_pylist()), pa.int64())


def of_values(values: pa.Array) -> pa.Int64Array:
    """The same of a column that `is_of_values`."""
    if pa.types.is_date(values.type):
        values = values.cast(pa.timestamp("ms"))
    if pa.types.is_timestamp(values.type):
        ticks = values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        whole = ticks // _PER_SECOND[values.type.unit]
    else:
        numbers = values.cast(pa.float64()).fill_null(np.nan).to_numpy(zero_copy_only=False)
        inside = (numbers >= _FIRST) & (numbers <= _LAST)  # not so: NaN, infinities
        whole = np.floor(np.where(inside, numbers, _LAST + 1)).astype(np.int64)
    is_none = (whole < _FIRST) | (whole > _LAST) | values.is_null().to_numpy(zero_copy_only=False)
    return pa.array(whole, pa.int64(), mask=is_none)


def is_of_values(kind: pa.DataType) -> bool:
    """Whether Arrow itself knows the column as dates, moments or fractional numbers: nothing has to be spelled out."""
    return pa.types.is_date(kind) or pa.types.is_timestamp(kind) or pa.types.is_floating(kind)
