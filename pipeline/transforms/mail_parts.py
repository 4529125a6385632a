"""What each line of a mail is: the body, or something around it. The transforms for mail remove one kind each.

Told apart by marks that clients leave, Russian and English ones:

    head        "Subject: ...", "From: ...", "Date: ..." at the top, as readers/mail.py writes them
    quote       lines that start with ">"; the attribution before them ("On ... wrote:", "... написал(а):"); and, where
                the client marks nothing, all that follows an attribution or an Outlook header under text of one's own
    forward     the line "---- Forwarded message ----" and the headers of what is forwarded; its text is body
    signature   from "-- " to the end of the part; a closing ("С уважением,", "Best regards,") with the few short lines
                after it; "Sent from my iPhone"
    disclaimer  paragraphs at the end about confidentiality and viruses; a mailing list's footer

When in doubt a line is body: an answer between or below quoted lines stays.
"""

import re

BODY, HEAD, QUOTE, FORWARD, SIGNATURE, DISCLAIMER = "body", "head", "quote", "forward", "signature", "disclaimer"

_HEAD = re.compile(r"(?:Subject|From|Date): ")
_MARKED = re.compile(r"[ \t]{0,3}>")
_WROTE = re.compile(
    r"(?:wrote|writes|said|написал(?:\(а\)|а|и)?|пишет|писал(?:\(а\)|а)?|сообщил(?:\(а\)|а)?|schrieb|a écrit)"
    r"[ \t]*:?[ \t]*$",
    re.IGNORECASE,
)
# A day, a time or an address: what an attribution names besides the verb.
_DATED = re.compile(r"\d{1,2}[:.]\d{2}|\b(?:19|20)\d\d\b|[\w.+-]+(?:@| at )[\w-]+", re.IGNORECASE)
_YANDEX = re.compile(r"\d{1,2}\.\d{1,2}\.\d{4},? (?:в )?\d{1,2}:\d{2},? .{1,200}:[ \t]*$")
_DASHES = re.compile(r"[-_=*\s]*")
_FORWARDED = re.compile(
    r"[-=*\s]*(?:forwarded message|begin forwarded message:?|forwarded by .{1,80}"
    r"|(?:пересылаемое|пересланное|перенаправленное|переадресованное) сообщение|конец пересылаемого сообщения"
    r"|начало (?:пересылаемого|переадресованного) сообщения:?|end of forwarded message)[-=*\s]*$",
    re.IGNORECASE,
)
_ORIGINAL = re.compile(
    r"[-_*\s]*(?:original message|original appointment|исходное сообщение|оригинальное сообщение)[-_*\s]*$",
    re.IGNORECASE,
)
_FIELD = re.compile(
    r"[ \t*]{0,4}(?P<name>from|sent|to|cc|bcc|date|subject|reply-to|importance|attachments"
    r"|от|от кого|отправлено|дата|кому|копия|тема|вложения|важность)[ \t*]{0,4}:",
    re.IGNORECASE,
)
_SENDER = {"from", "от", "от кого"}
_ADDRESSED = {"to", "sent", "кому", "отправлено"}
_CLOSING = re.compile(
    r"[ \t]*(?:с уважением|с наилучшими пожеланиями|всего доброго|всего хорошего|искренне ваш"
    r"|(?:best|kind|warm|with(?: best| kind)?)\s+regards|regards|best wishes|sincerely"
    r"|yours (?:sincerely|faithfully|truly)|cheers|thanks and regards)[ \t]*[,.!–—-]{0,2}[ \t]*$",
    re.IGNORECASE,
)
_SENT_FROM = re.compile(
    r"[ \t]*(?:sent from (?:my |the )?.{1,40}|(?:--\s*)?отправлено (?:с|из|через) .{1,60}|get outlook for .{1,20})"
    r"[ \t]*$",
    re.IGNORECASE,
)
_DISCLAIMER = re.compile(
    r"(?:confidential|privileged|intended (?:only |solely )?for|intended recipient|unauthori[sz]ed (?:use|disclosure)"
    r"|received this (?:e-?mail|message|communication) in error|virus-free|scanned (?:for viruses|by)"
    r"|конфиденциальн|предназначен[аоы]? (?:исключительно|только)|не являетесь (?:получателем|адресатом|надлежащим)"
    r"|получили (?:это|данное|настоящее) (?:письмо|сообщение|электронное) .{0,40}ошиб"
    r"|проверено на (?:отсутствие )?вирус)",
    re.IGNORECASE,
)
_ABOUT_MAIL = re.compile(r"e-?mail|message|communication|transmission|письм|сообщени|антивирус|virus", re.IGNORECASE)
_LIST_FOOTER = re.compile(r"mailing list|to unsubscribe|отписаться|рассылк|listinfo", re.IGNORECASE)
_RULE = re.compile(r"[_=*-]{5,}[ \t]*$")

MAX_SIGNATURE_LINES = 15
MAX_CLOSING_LINES = 8
MAX_CLOSING_CHARS = 80


def kinds_of(lines: list[str]) -> list[str]:
    """The kind of each line."""
    kinds = [BODY] * len(lines)
    start = 0
    while start < len(lines) and start < 3 and _HEAD.match(lines[start]):
        kinds[start] = HEAD
        start += 1
    _quotes(lines, kinds, start)
    for first, end in _parts(kinds, start):
        _tail(lines, kinds, first, end)
    return kinds


def without(text: str, kind: str) -> str:
    """The text without its lines of `kind`, and without the empty lines that their going leaves at the end."""
    lines = text.split("\n")
    kinds = kinds_of(lines)
    if kind not in kinds:
        return text
    kept: list[str] = []
    gap = False
    for line, its in zip(lines, kinds, strict=True):
        if its == kind:
            gap = True
        elif gap and not line.strip() and (not kept or not kept[-1].strip()):
            continue  # one empty line is left where a part went
        else:
            kept.append(line)
            gap = gap and not line.strip()
    return "\n".join(kept).rstrip()


def _quotes(lines: list[str], kinds: list[str], start: int) -> None:
    is_forward = any("fwd:" in line.lower() or "fw:" in line.lower() for line in lines[:start])
    has_own_text = False
    index = start
    while index < len(lines):
        line = lines[index]
        if not line.strip():
            index += 1
        elif _MARKED.match(line):
            kinds[index] = QUOTE
            index += 1
        elif _FORWARDED.match(line):
            index = _mark_forward(lines, kinds, index)
        elif (end := _attribution(lines, index)) is not None:
            after = _next_text(lines, end)
            if after < len(lines) and _MARKED.match(lines[after]):
                _mark(kinds, index, after, QUOTE)
            elif after < len(lines) and has_own_text:
                _mark(kinds, index, len(lines), QUOTE)
                return
            index = end
        elif (end := _header_block(lines, index)) is not None:
            if has_own_text and not is_forward:
                while kinds[index - 1] == BODY and _DASHES.fullmatch(lines[index - 1]):
                    index -= 1
                _mark(kinds, index, len(lines), QUOTE)
                return
            _mark(kinds, index, end, FORWARD)
            index = end
        else:
            has_own_text = has_own_text or not _DASHES.fullmatch(line)
            index += 1


def _mark(kinds: list[str], first: int, end: int, kind: str) -> None:
    kinds[first:end] = [kind] * (end - first)


def _next_text(lines: list[str], index: int) -> int:
    while index < len(lines) and not lines[index].strip():
        index += 1
    return index


def _attribution(lines: list[str], index: int) -> int | None:
    """The line after an attribution that begins at `index`; clients fold it over up to three lines."""
    if not lines[index].strip():
        return None
    joined = ""
    for length in range(1, 4):
        if index + length > len(lines) or not lines[index + length - 1].strip():
            return None
        joined += " " + lines[index + length - 1].strip()
        if len(joined) > 400 or _MARKED.match(lines[index + length - 1]):
            return None
        if _WROTE.search(joined) and _DATED.search(joined):
            return index + length
    return index + 1 if _YANDEX.match(lines[index].strip()) else None


def _header_block(lines: list[str], index: int) -> int | None:
    """The line after an Outlook header that begins at `index`: a sender and two more fields, one under the other."""
    end = index + 1 if _ORIGINAL.match(lines[index]) else index
    end = _next_text(lines, end) if end > index else end
    names = []
    while end < len(lines) and (found := _FIELD.match(lines[end])):
        names.append(found["name"].lower())
        end += 1
    # A patch opens with From, Date and Subject too, but is sent to nobody.
    return end if len(names) >= 3 and names[0] in _SENDER and not _ADDRESSED.isdisjoint(names) else None


def _mark_forward(lines: list[str], kinds: list[str], index: int) -> int:
    kinds[index] = FORWARD
    index += 1
    after = _next_text(lines, index)
    end = after
    while end < len(lines) and (_FIELD.match(lines[end]) or _YANDEX.match(lines[end].strip())):
        end += 1
    if end > after:
        _mark(kinds, index, end, FORWARD)
        return end
    return index


def _parts(kinds: list[str], start: int) -> list[tuple[int, int]]:
    """Runs of body lines: a signature ends where a quote begins."""
    parts, first = [], None
    for index in range(start, len(kinds) + 1):
        is_body = index < len(kinds) and kinds[index] == BODY
        if is_body and first is None:
            first = index
        elif not is_body and first is not None:
            parts.append((first, index))
            first = None
    return parts


def _tail(lines: list[str], kinds: list[str], first: int, end: int) -> None:
    """From the end of a part upwards, as long as there is a signature or a paragraph about the mail itself."""
    while True:
        last = end
        while last > first and not lines[last - 1].strip():
            last -= 1
        if (begin := _signature(lines, first, last)) is not None:
            kind = SIGNATURE
        elif (begin := _disclaimer(lines, first, last)) is not None:
            kind = DISCLAIMER
        else:
            return
        _mark(kinds, begin, end, kind)
        end = begin


def _signature(lines: list[str], first: int, end: int) -> int | None:
    for index in range(max(first, end - MAX_SIGNATURE_LINES - 1), end):
        rest = [line for line in lines[index + 1 : end] if line.strip()]
        is_closing = (
            len(rest) <= MAX_CLOSING_LINES
            and _CLOSING.match(lines[index])
            and all(len(line) <= MAX_CLOSING_CHARS for line in rest)
        )
        if lines[index] in ("-- ", "--") or is_closing or (not rest and _SENT_FROM.match(lines[index])):
            return index
    return None


def _disclaimer(lines: list[str], first: int, end: int) -> int | None:
    begin = end
    while begin > first and lines[begin - 1].strip():
        begin -= 1
    if begin == end:
        return None
    paragraph = " ".join(lines[begin:end])
    is_footer = _RULE.match(lines[begin]) and _LIST_FOOTER.search(paragraph)
    return begin if is_footer or (_DISCLAIMER.search(paragraph) and _ABOUT_MAIL.search(paragraph)) else None
