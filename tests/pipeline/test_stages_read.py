"""What the read stage tells of files that it left out."""

import io
import tarfile
from pathlib import Path

from tests.pipeline.inline_builds import build_texts


def test_every_skipped_file_is_counted_and_the_first_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "_SUCCESS").touch()
    with tarfile.open(folder / "a.tar", "w") as archive:
        for name in (*(f".cache/{number:04}" for number in range(1500)), "kept.txt"):
            member = tarfile.TarInfo(name)
            member.size = 4
            archive.addfile(member, io.BytesIO(b"text"))
    dataset = build_texts(tmp_path / "root", [], sources=[{"name": "files", "paths": [str(folder)]}])
    page = Path(dataset.resolve("reports/v1.html")).read_text()
    assert "_SUCCESS (a marker of a tool), a.tar/.cache/0000 (a hidden file or folder), " in page
    assert "a.tar/.cache/0018 (a hidden file or folder) and 1,481 more</td>" in page
    assert dataset.manifest.funnel[0].num_documents == 1


def test_attachments_of_mails_are_counted_in_the_report(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    attached = "--b\nContent-Type: image/png\n\nabc\n"
    for number, num_attached in enumerate((2, 0, 1)):
        body = f"--b\nContent-Type: text/plain\n\ntext {number}\n{attached * num_attached}--b--\n"
        mail = f'Subject: {number}\nContent-Type: multipart/mixed; boundary="b"\n\n{body}'
        (folder / f"{number}.eml").write_text(mail)
    dataset = build_texts(tmp_path / "root", [], sources=[{"name": "mails", "paths": [str(folder)]}])
    page = Path(dataset.resolve("reports/v1.html")).read_text()
    assert '<tr><td>attachments of mails, left out</td><td class="left">3</td></tr>' in page
