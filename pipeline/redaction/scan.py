"""Where a text could hold something to redact: one pass over the UTF-8 bytes that proposes few places.

AT        an @ between characters of an address
DIGITS    the first digit of a run, where 7 or more digits follow with one or two separators between them
DOTTED    the first digit of four short runs with dots between them
COLONS    the first hexadecimal digit of groups with colons between them, seven colons or two together
ACCOUNT   two capital letters and two digits at the start of a word
SECRET    a word that starts like a known key, or the sign after a word such as token
BLOCK     five dashes and BEGIN
PASSPORT  the words for passport and series
"""

import numba
import numpy as np
import pyarrow as pa

from pipeline.redaction.rule import ACCOUNT, AT, BLOCK, COLONS, DIGITS, DOTTED, PASSPORT, SECRET

# First three bytes of a word that may be a secret; the rules know the rest. As numbers, to compare at once.
PREFIXES = (
    *("AKI", "ASI", "AGP", "AID", "ghp", "gho", "ghs", "ghu", "ghr", "git", "glp", "xox", "xap", "sk-", "sk_", "rk_"),
    *("pk_", "AIz", "eyJ", "hf_", "npm", "pyp", "SG.", "ya2", "dop", "shp", "sq0", "AGE", "Bea", "bea", "whs", "lin"),
    "dck",
)
# Last two bytes of a word after which = or : may assign one: key, token, secret, key_id.
SUFFIXES = ("ey", "en", "et", "id")
_PASSPORT = "аспорт".encode()
_SERIES = "ери".encode()


def _number(text: str) -> int:
    return int.from_bytes(text.encode(), "big")


_WORD, _DIGIT, _UPPER, _HEX = 1, 2, 4, 8
_SIGN = 32  # looked at wherever it stands
_START = 64  # looked at where a word starts


def _classes() -> np.ndarray:
    """uint8 (256,): the classes of each byte. Bytes of other scripts count as letters."""
    classes = np.zeros(256, np.uint8)
    for byte in range(256):
        character = chr(byte)
        if byte >= 0x80 or character.isalnum() or character == "_":
            classes[byte] |= _WORD
        if byte < 0x80 and character.isdigit():
            classes[byte] |= _DIGIT | _HEX
        if byte < 0x80 and character.isupper():
            classes[byte] |= _UPPER
        if byte < 0x80 and character in "abcdefABCDEF":
            classes[byte] |= _HEX
        if byte < 0x80 and (character in "@-=:" or character.isdigit()):
            classes[byte] |= _SIGN
        if byte in (0xD0, 0xD1) or classes[byte] & (_UPPER | _HEX) or any(text[0] == character for text in PREFIXES):
            classes[byte] |= _START
    return classes


_CLASSES = _classes()
_STARTS = np.zeros(1 << 24, np.bool_)
for _text in PREFIXES:
    _STARTS[_number(_text)] = True
_ENDS = np.zeros(1 << 16, np.bool_)
for _text in SUFFIXES:
    _ENDS[_number(_text)] = True
# Most words differ in their first two bytes already: 64 kB stay in the cache, 16 MB do not (5 times the time).
_PAIRS = np.zeros(1 << 16, np.bool_)
for _text in PREFIXES:
    _PAIRS[_number(_text[:2])] = True
_PASSPORT_BYTES = np.frombuffer(_PASSPORT + "АСПОРТ".encode(), np.uint8).reshape(2, -1)
_SERIES_BYTES = np.frombuffer(_SERIES + "ЕРИ".encode(), np.uint8).reshape(2, -1)


def places_of(text: pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Documents (int32 (n,)), byte offsets in them (int64 (n,)) and kinds (uint8 (n,)), in order of place."""
    if len(text) == 0:
        return np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.uint8)
    _, offsets, data = text.buffers()
    starts = np.frombuffer(offsets, np.int64, len(text) + 1, text.offset * 8)
    content = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(0, np.uint8)
    return _scan(content, starts, _CLASSES, _STARTS, _PAIRS, _ENDS, _PASSPORT_BYTES, _SERIES_BYTES)


@numba.njit(nogil=True, cache=True)
def _same(content: np.ndarray, position: int, end: int, word: np.ndarray) -> bool:
    if position + len(word) > end:
        return False
    for index in range(len(word)):  # noqa: SIM110 - numba compiles no generators
        if content[position + index] != word[index]:
            return False
    return True


@numba.njit(nogil=True, cache=True)
def _separator(content: np.ndarray, position: int, end: int) -> int:
    """The length of the separator at `position`, 0 where there is none."""
    byte = content[position]
    if byte == 0x20 or byte == 0x2D or byte == 0x28 or byte == 0x29 or byte == 0x2E:
        return 1
    if byte == 0xC2 and position + 1 < end and content[position + 1] == 0xA0:
        return 2
    if byte == 0xE2 and position + 2 < end and content[position + 1] == 0x80 and 0x91 <= content[position + 2] <= 0x93:
        return 3
    return 0


@numba.njit(nogil=True, cache=True)
def _dotted(content: np.ndarray, position: int, end: int, classes: np.ndarray) -> bool:
    """Whether up to three digits, a dot and a digit follow, three times."""
    for _ in range(3):
        length = 0
        while position < end and length <= 3 and classes[content[position]] & 2:
            position += 1
            length += 1
        if not 1 <= length <= 3 or position + 1 >= end or content[position] != 0x2E:
            return False
        position += 1
    return (classes[content[position]] & 2) != 0


@numba.njit(nogil=True, cache=True)
def _scan(
    content: np.ndarray,
    starts: np.ndarray,
    classes: np.ndarray,
    begins: np.ndarray,
    pairs: np.ndarray,
    ends: np.ndarray,
    passport: np.ndarray,
    series: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    # Never more places than bytes, mostly one in a thousand: what is not written takes no memory. (Arrays that grow
    # inside the loop made it four times slower.)
    capacity = starts[-1] - starts[0] + 4
    documents, places, kinds = np.empty(capacity, np.int32), np.empty(capacity, np.int64), np.empty(capacity, np.uint8)
    found = 0
    for document in range(len(starts) - 1):
        begin, end = starts[document], starts[document + 1]
        position = begin
        group_end, digits_left = begin, 0  # of the group of digits looked at last: its end, and digits from here on
        previous_byte = np.uint8(0)
        hex_until = begin
        previous = np.uint8(0)  # class of the byte before
        while position < end:
            byte = content[position]
            its = classes[byte]
            if not its & 32 and (previous & 1 or not its & 64):
                previous, previous_byte = its, byte
                position += 1
                continue
            kind = -1
            if its & 2:  # a digit
                if not previous & 1:  # of a new run
                    if position >= group_end:
                        digits_left, at, group_end = 0, position, position
                        while at < end and at - group_end < 3 and digits_left <= 40:
                            if classes[content[at]] & 2:
                                digits_left += 1
                                at += 1
                                group_end = at
                            else:
                                length = _separator(content, at, end)
                                if length == 0:
                                    break
                                at += length
                    if digits_left >= 7:
                        kind = 1
                    if previous_byte != 0x2E and _dotted(content, position, end, classes):
                        documents[found], places[found], kinds[found] = document, position - begin, 2
                        found += 1
                digits_left -= 1
            elif byte == 0x40:  # @
                if position > begin and previous_byte > 0x20 and position + 1 < end:
                    kind = 0
            elif byte == 0x2D:  # -----BEGIN
                if (
                    position + 10 <= end
                    and content[position + 4] == 0x2D
                    and content[position + 5] == 0x42
                    and content[position + 6] == 0x45
                    and content[position + 7] == 0x47
                ):
                    kind = 6
            elif byte == 0x3D or byte == 0x3A:  # = :
                back = position - 1
                while back > begin and position - back < 4 and (content[back] == 0x20 or content[back] == 0x22):
                    back -= 1
                if back > begin and ends[(np.uint32(content[back - 1] | 0x20) << 8) | (content[back] | 0x20)]:
                    kind = 5
            elif (byte == 0xD0 or byte == 0xD1) and position + 3 < end:
                second = content[position + 1]
                is_p = byte == 0xD0 and (second == 0xBF or second == 0x9F)  # п, П
                is_s = (byte == 0xD1 and second == 0x81) or (byte == 0xD0 and second == 0xA1)  # с, С
                for case in range(2):
                    if (is_p and _same(content, position + 2, end, passport[case])) or (
                        is_s and _same(content, position + 2, end, series[case])
                    ):
                        kind = 7
            if not previous & 1 and its & 1 and byte < 0x80:  # a word starts
                if position + 3 < end:
                    pair = (np.uint32(byte) << 8) | content[position + 1]
                    if pairs[pair] and begins[(pair << 8) | content[position + 2]]:
                        documents[found], places[found], kinds[found] = document, position - begin, 5
                        found += 1
                    if (
                        its & 4
                        and classes[content[position + 1]] & 4
                        and classes[content[position + 2]] & 2
                        and classes[content[position + 3]] & 2
                    ):
                        documents[found], places[found], kinds[found] = document, position - begin, 4
                        found += 1
                if its & 8 and position >= hex_until:
                    at, colons, doubled = position, 0, False
                    while at < end and at - position < 48 and (classes[content[at]] & 8 or content[at] == 0x3A):
                        doubled |= content[at] == 0x3A and content[at - 1] == 0x3A
                        colons += content[at] == 0x3A
                        at += 1
                    hex_until = at
                    if colons >= 7 or doubled:
                        documents[found], places[found], kinds[found] = document, position - begin, 3
                        found += 1
            if kind >= 0:
                documents[found], places[found], kinds[found] = document, position - begin, kind
                found += 1
            previous, previous_byte = its, byte
            position += 1
    return documents[:found], places[:found], kinds[:found]


assert tuple(range(8)) == (AT, DIGITS, DOTTED, COLONS, ACCOUNT, SECRET, BLOCK, PASSPORT)  # as numba has them above
