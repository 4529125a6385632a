# ruff: noqa: E501 - one writer a format, each a few lines, read as a table
"""Files of every format, whole and then spoilt, for the fuzz test (a few in CI) and the soak (10,000 by hand)."""

import bz2
import gzip
import io
import json
import lzma
import random
import tarfile
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

WORDS = [
    "сервер",
    "клиент",
    "отчёт",
    "заявка",
    "пользователь",
    "error",
    "access",
    "password",
    "update",
    "👨\u200d👩\u200d👧",
    "x²",
    "\u2028",
    "\x85",
    "\\u0000",
    '"q"',
    "a,b",
    ";",
    "|",
    "<b>bold</b>",
    ">From",
    "From",
    "http://a.example/?q=1",
    "+7",
    "000",
    "000-01-23",
    "user@example.org",
    "\\ud83d",
]


def _words(rng: random.Random, limit: int = 40) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(rng.randrange(limit)))


def _jsonl(rng: random.Random) -> bytes:
    lines = []
    for index in range(rng.randrange(12)):
        line = json.dumps({"id": index, "text": _words(rng)}, ensure_ascii=rng.random() < 0.3)
        lines.append(
            line
            if rng.random() < 0.8
            else rng.choice(
                [
                    "",
                    "  ",
                    "null",
                    "[]",
                    "42",
                    '"s"',
                    "{",
                    '{"text": null}',
                    '{"text": 5}',
                    '{"body": "x"}',
                    "[" * 2000,
                    "\ufeff" + line,
                    '{"text": "\\ud83d"}',
                    '{"text": "\x00"}',
                    line + "\r",
                    '{"text": "a"}{"text": "b"}',
                ]
            )
        )
    return "\n".join(lines).encode("utf-8", "surrogatepass") + rng.choice([b"", b"\n"])


def _json(rng: random.Random) -> bytes:
    return json.dumps([{"id": index, "text": _words(rng)} for index in range(rng.randrange(6))]).encode()


def _csv(rng: random.Random) -> bytes:
    rows = ["id,text"]
    for index in range(rng.randrange(10)):
        text = _words(rng).replace('"', '""')
        rows.append(
            rng.choice(
                [f'{index},"{text}"', f'{index},"{text}\r\n{text}"', f"{index},{text}", f'{index},"{text}', ",,,", ""]
            )
        )
    return rng.choice(["\n", "\r\n", "\r"]).join(rows).encode()


def _parquet(rng: random.Random) -> bytes:
    texts = [rng.choice([None, _words(rng)]) for _ in range(rng.randrange(20))]
    out = io.BytesIO()
    kind = rng.choice([pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
    pq.write_table(
        pa.table({"id": list(range(len(texts))), "text": pa.array(texts, kind)}),
        out,
        row_group_size=rng.choice([1, 5, 100]),
    )
    return out.getvalue()


def _text(rng: random.Random) -> bytes:
    return _words(rng).encode(rng.choice(["utf-8", "utf-16", "utf-8-sig"]), "surrogatepass")


def _html(rng: random.Random) -> bytes:
    tag = rng.choice(["div", "b", "table", "script", "a href='x'", "!--"])
    return (
        f"<!doctype html><html><body><h1>{_words(rng)}</h1>" + f"<{tag}>" * rng.randrange(50) + _words(rng)
    ).encode()


def _eml(rng: random.Random) -> bytes:
    boundary = rng.choice(["b", "=_x", ""])
    kind = rng.choice(
        [
            f'multipart/mixed; boundary="{boundary}"',
            "text/plain; charset=koi8-r",
            "text/html",
            "text/plain; charset=x-none",
            "multipart/alternative",
            "message/rfc822",
            "text/plain; charset=punycode",
        ]
    )
    coding = rng.choice(["8bit", "base64", "quoted-printable", "x-uuencode", ""])
    head = (
        f"From: a@example.org\nSubject: =?utf-8?B?0J/RgNC40LLQtdGC?= {_words(rng, 3)}\nMessage-ID: <{rng.random()}>\n"
    )
    head += f"Content-Type: {kind}\nContent-Transfer-Encoding: {coding}\n"
    return (head + f"\n--{boundary}\nContent-Type: text/plain\n\n{_words(rng)}\n--{boundary}--\n").encode()


def _mbox(rng: random.Random) -> bytes:
    return b"".join(
        b"From a@example.org Tue Mar  5 10:15:01 2024\n" + _eml(rng) + b"\n" for _ in range(rng.randrange(5))
    )


FORMATS = {
    "jsonl": _jsonl,
    "json": _json,
    "csv": _csv,
    "parquet": _parquet,
    "txt": _text,
    "html": _html,
    "eml": _eml,
    "mbox": _mbox,
}


def _tar(rng: random.Random) -> bytes:
    out = io.BytesIO()
    with tarfile.open(
        fileobj=out, mode="w", format=rng.choice([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
    ) as tar:
        for _ in range(rng.randrange(4)):
            ending = rng.choice(list(FORMATS))
            info = tarfile.TarInfo(rng.choice(["", "../", "/abs/", "дир/", "x" * 120 + "/"])[:80] + f"f.{ending}")
            content = FORMATS[ending](rng)
            info.size = len(content)
            if rng.random() < 0.1:
                info.type, info.linkname, info.size = tarfile.SYMTYPE, "/etc/passwd", 0
                content = b""
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def _zip(rng: random.Random) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(
        out, "w", rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
    ) as archive:
        for index in range(rng.randrange(4)):
            ending = rng.choice(list(FORMATS))
            archive.writestr(rng.choice(["", "../", "дир/"]) + f"f{index}.{ending}", FORMATS[ending](rng))
    return out.getvalue()


WRITERS = {**FORMATS, "tar": _tar, "zip": _zip}
COMPRESS = {
    "": lambda data: data,
    ".gz": lambda data: gzip.compress(data, mtime=0),
    ".zst": lambda data: zstandard.ZstdCompressor(write_checksum=True).compress(data),
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}


def _spoilt(rng: random.Random, data: bytes) -> bytes:
    kind = rng.randrange(8)
    if kind < 2 or not data:
        return data
    if kind == 2:
        return data[: rng.randrange(len(data))]
    if kind == 3:
        at = rng.randrange(len(data))
        return data[:at] + rng.randbytes(rng.randrange(1, 20)) + data[at:]
    if kind == 4:
        at = rng.randrange(len(data))
        return data[:at] + data[at + rng.randrange(1, 50) :]
    if kind == 5:
        return data + data
    if kind == 6:
        return data + bytes(rng.randrange(600)) + rng.randbytes(rng.randrange(5))
    spoilt = bytearray(data)
    for _ in range(rng.randrange(1, 6)):
        spoilt[rng.randrange(len(spoilt))] = rng.randrange(256)
    return bytes(spoilt)


def hostile_file(seed: int) -> tuple[str, bytes]:
    """A name and content: one format, spoilt before compression, compressed or not, spoilt again. Equal for equal seeds."""
    rng = random.Random(seed)
    ending = rng.choice(list(WRITERS))
    packing = rng.choice(list(COMPRESS)) if rng.random() < 0.5 else ""
    content = COMPRESS[packing](_spoilt(rng, WRITERS[ending](rng)))
    name = rng.choice(["a", "with space", "a+b%20", "отчёт №1 👍", "brackets[1]*"]) + f"-{seed}.{ending}{packing}"
    return name, _spoilt(rng, content) if packing or rng.random() < 0.3 else content


def num_lines(content: bytes) -> int:
    """What an uncompressed JSON lines file has to account for: its lines that are not blank, counted by other means."""
    lines = (line[3:] if line.startswith(b"\xef\xbb\xbf") else line for line in content.split(b"\n"))
    return sum(1 for line in lines if line.strip(b" \t\r\n"))
