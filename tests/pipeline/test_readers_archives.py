"""Archives: a folder of files in one, and what is wrong with it, by small files."""

import gzip
import io
import tarfile
import time
import zipfile

import pytest

from pipeline.readers import Limits, read_file
from tests.pipeline.reading import read


def tar_of(*members: tuple[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def zip_of(*members: tuple[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return out.getvalue()


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "a.zip"])
def test_archives_glued_together_are_not_silently_one(tmp_path, name):
    def archive(member: str) -> bytes:
        packed = io.BytesIO()
        if name == "a.zip":
            with zipfile.ZipFile(packed, "w") as zip_archive:
                zip_archive.writestr(member, "text")
            return packed.getvalue()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            info = tarfile.TarInfo(member)
            info.size = 4
            tar.addfile(info, io.BytesIO(b"text"))
        return gzip.compress(packed.getvalue()) if name.endswith(".gz") else packed.getvalue()

    documents, bad = read(tmp_path / name, archive("1.txt") + archive("2.txt"))
    assert len(documents) == 1
    assert [reason for _, reason in bad] == ["damaged_archive"]
    assert read(tmp_path / name, archive("1.txt")) == ([(None, "text")], [])


@pytest.mark.parametrize("pack", [tar_of, zip_of])
def test_an_archive_is_a_folder_of_files_each_in_its_own_format(tmp_path, pack):
    inner = pack(("deep.md", b"# inner"))
    content = pack(
        ("a.jsonl", b'{"id": "j", "text": "lines"}\n{\n'),
        ("b/c.csv.gz", gzip.compress(b"id,text\nt,table\n")),
        ("../out.txt", b"name only"),
        ("._junk", b"\0"),
        ("photo.png", b"\x89PNG"),
        ("program.py", b"import os"),
        ("inner.bin", inner),
    )
    documents, bad = read(tmp_path / "archive.whatever", content)
    assert documents == [("j", "lines"), ("t", "table"), (None, "name only"), (None, "# inner")]
    assert bad == [("a.jsonl", "invalid_json"), ("program.py", "unknown_format")]
    assert not (tmp_path.parent / "out.txt").exists()


@pytest.mark.parametrize("pack", [tar_of, zip_of])
def test_what_an_archive_skips_by_name_is_listed_with_its_reason(tmp_path, pack):
    path = tmp_path / "a.tar"
    inner = pack((".git/config", b"x"), ("deep.md", b"kept"))
    path.write_bytes(pack(("._junk", b"\0"), ("a/_SUCCESS", b""), ("a/b.txt", b"kept"), ("inner.bin", inner)))
    batches = list(read_file(str(path)))
    assert sorted(skipped for records in batches for skipped in records.skipped) == [
        ("._junk", "a hidden file or folder"),
        ("a/_SUCCESS", "a marker of a tool"),
        ("inner.bin/.git/config", "a hidden file or folder"),
    ]
    assert sum(records.documents.num_rows for records in batches) == 2


def test_pictures_and_scripts_in_an_archive_are_read_where_a_format_is_named(tmp_path):
    path = tmp_path / "a.tar"
    path.write_bytes(tar_of(("a.js", b"let a"), ("B.PNG", b"text after all"), ("css", b"a name without an ending")))
    assert [row for records in read_file(str(path), format="text") for row in records.text.to_pylist()] == [
        "let a",
        "text after all",
        "a name without an ending",
    ]
    [*batches] = read_file(str(path))
    assert [skipped for records in batches for skipped in records.skipped] == [
        ("a.js", "a style sheet or script of pages"),
        ("B.PNG", "a picture"),
    ]
    assert [bad.member for records in batches for bad in records.bad] == ["css"]


def test_links_in_archives_are_reported_and_never_followed(tmp_path):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        link = tarfile.TarInfo("passwd.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    assert read(tmp_path / "a.tar", out.getvalue()) == ([], [("passwd.txt", "not_a_file")])
    info = zipfile.ZipInfo("passwd.txt")
    info.external_attr = 0o120777 << 16
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(info, "/etc/passwd")
    assert read(tmp_path / "a.zip", buffer.getvalue()) == ([], [("passwd.txt", "not_a_file")])


def test_a_cut_or_broken_archive_is_never_silent(tmp_path):
    whole = tar_of(("a.txt", b"first"), ("b.txt", b"second" * 500), ("c.txt", b"third"))
    documents, bad = read(tmp_path / "cut.tar", whole[:2500])
    assert documents == [(None, "first")]
    assert [reason for _, reason in bad] == ["truncated", "truncated"]
    broken = bytearray(whole)
    broken[1024:1034] = b"\xff" * 10  # the second header
    documents, bad = read(tmp_path / "broken.tar", bytes(broken))
    assert documents == [(None, "first")]
    assert [reason for _, reason in bad] == ["damaged_archive"]
    documents, bad = read(tmp_path / "no-end.tar", tar_of(("a.txt", b"first"))[:1024])
    assert (documents, [reason for _, reason in bad]) == ([(None, "first")], ["truncated"])
    assert [reason for _, reason in read(tmp_path / "cut.zip", zip_of(("a.txt", b"first"))[:-10])[1]] == [
        "damaged_archive"
    ]


def test_a_header_that_claims_exabytes_ends_at_the_end(tmp_path):
    info = tarfile.TarInfo("a.txt")
    info.size = 1 << 60
    started = time.monotonic()
    for kind in (tarfile.REGTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.SYMTYPE, b"Z"):
        info.type = kind
        _, bad = read(tmp_path / "a.tar", info.tobuf(tarfile.GNU_FORMAT) + b"x" * 2048)
        assert bad
    assert time.monotonic() - started < 20


def test_archives_in_archives_stop_at_the_stated_depth(tmp_path):
    content = tar_of(("a.txt", b"x"))
    for _ in range(4):
        content = tar_of(("inner.tar", content))
    assert [reason for _, reason in read(tmp_path / "a.tar", content)[1]] == ["nested_too_deep"]


@pytest.mark.parametrize("name", ["a.txt.gz", "a.zip", "a.tar.gz"])
def test_a_bomb_stops_at_the_stated_expansion(tmp_path, name):
    zeros = bytes(20 << 20)
    content = {
        "a.txt.gz": lambda: gzip.compress(zeros),
        "a.zip": lambda: zip_of(("a.txt", zeros)),
        "a.tar.gz": lambda: gzip.compress(tar_of(("a.txt", zeros))),
    }[name]()
    limits = Limits(free_expansion_bytes=1 << 20, max_expansion=10)
    documents, bad = read(tmp_path / name, content, limits=limits)
    assert documents == []
    assert {reason for _, reason in bad} <= {"expands_too_much"}
    assert bad


def test_a_password_is_reported(tmp_path):
    content = bytearray(zip_of(("a.txt", b"x")))
    for magic, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(magic) + offset] |= 1
    assert read(tmp_path / "a.zip", bytes(content)) == ([], [("a.txt", "encrypted")])
