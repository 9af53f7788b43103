"""Archives: what is in them is read, and nothing of them reaches beyond one folder."""

import gzip
import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from harness.diagnose.texts import archives
from harness.diagnose.texts.files import TextFile, find_texts
from harness.diagnose.texts.scan import Scanner

LOG = b"line of a log\n"


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    (tmp_path / "scratch").mkdir()
    return tmp_path / "scratch"


def tar_of(members: dict[str, bytes], mode: str = "w:gz") -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=mode) as archive:  # type: ignore[call-overload]
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return packed.getvalue()


def zip_of(members: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return packed.getvalue()


def texts_of(found: list[TextFile]) -> dict[str, str]:
    scanner = Scanner(())
    return {file.name: "\n".join(line.text for line in scanner.lines(file)) for file in found}


MEMBERS = {"logs/node_1/rank_3.log": LOG, "logs/b.log.gz": gzip.compress(LOG), "logs/w.bin": b"\1\0" * 9000}


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.tar", tar_of(MEMBERS, "w")),
        ("a.tar.gz", tar_of(MEMBERS)),
        ("a.tgz", tar_of(MEMBERS)),
        ("a.tar.xz", tar_of(MEMBERS, "w:xz")),
        ("a.tar.bz2", tar_of(MEMBERS, "w:bz2")),
        ("a.zip", zip_of(MEMBERS)),
        ("download", tar_of(MEMBERS)),
        ("attachment", zip_of(MEMBERS)),
    ],
)
def test_members_are_read(tmp_path: Path, scratch: Path, name: str, data: bytes) -> None:
    """Of any archive, known by its content too; packed members as well, binaries not."""
    (tmp_path / name).write_bytes(data)

    found, complaints = find_texts([tmp_path / name], scratch)

    assert texts_of(found) == {
        f"{name}/logs/node_1/rank_3.log": LOG.decode().strip(),
        f"{name}/logs/b.log.gz": LOG.decode().strip(),
    }
    assert [(file.rank, file.node) for file in found] == [(3, 1), (None, None)]
    assert complaints == []


def test_archives_in_archives(tmp_path: Path, scratch: Path) -> None:
    """Three deep, and no deeper."""
    data = LOG
    for depth in range(4, 0, -1):
        data = tar_of({f"{depth}.log": LOG, f"{depth}.tar.gz": data} if depth < 4 else {"4.log": LOG})
    (tmp_path / "a.tar.gz").write_bytes(data)

    found, complaints = find_texts([tmp_path / "a.tar.gz"], scratch)

    assert [file.name.rpartition("/")[2] for file in found] == ["1.log", "2.log", "3.log"]
    assert complaints == ["a.tar.gz/1.tar.gz/2.tar.gz/3.tar.gz: an archive more than 3 deep is left"]


def test_no_member_escapes(tmp_path: Path, scratch: Path) -> None:
    """Whatever path it claims; links and devices are left."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name in ("../../evil.log", "/etc/evil.log"):
            entry = tarfile.TarInfo(name)
            entry.size = len(LOG)
            archive.addfile(entry, io.BytesIO(LOG))
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE):
            entry = tarfile.TarInfo(f"{kind!r}.log")
            entry.type, entry.linkname = kind, "/etc/passwd"
            archive.addfile(entry)
    (tmp_path / "a.tar").write_bytes(packed.getvalue())
    before = sorted(tmp_path.rglob("*"))

    found, _ = find_texts([tmp_path / "a.tar"], scratch)

    assert [file.name for file in found] == ["a.tar/evil.log", "a.tar/etc/evil.log"]
    assert {file.path.parent for file in found} == {scratch}
    assert sorted(set(tmp_path.rglob("*")) - set(before)) == sorted(file.path for file in found)


def test_links_in_a_zip_are_left(tmp_path: Path, scratch: Path) -> None:
    """They are members with a mode of their own."""
    link = zipfile.ZipInfo("a.log")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(link, "/etc/passwd")

    assert find_texts([tmp_path / "a.zip"], scratch)[0] == []


def test_a_damaged_archive_is_read_as_far_as_it_goes(tmp_path: Path, scratch: Path) -> None:
    """One complaint."""
    lines = b"".join(b"line %d\n" % i for i in range(30000))
    data = tar_of({"a.log": LOG, "b.log": lines})
    (tmp_path / "a.tar.gz").write_bytes(data[: len(data) // 2])

    found, complaints = find_texts([tmp_path / "a.tar.gz"], scratch)

    assert [file.name for file in found] == ["a.tar.gz/a.log", "a.tar.gz/b.log"]
    assert len(complaints) == 1


@pytest.mark.parametrize("name", ["a.zip", "a.tar", "a.tgz"])
@pytest.mark.parametrize("data", [b"", b"no archive at all, whatever its name says\n" * 30])
def test_what_only_calls_itself_an_archive(tmp_path: Path, scratch: Path, name: str, data: bytes) -> None:
    """One complaint, and nothing raised."""
    (tmp_path / name).write_bytes(data)

    found, complaints = find_texts([tmp_path / name], scratch)

    assert (found, len(complaints)) == ([], 1)


def test_an_encrypted_zip_is_complained_of(tmp_path: Path, scratch: Path) -> None:
    """By member."""
    data = bytearray(zip_of({"a.log": LOG}))
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "a.zip").write_bytes(data)

    found, complaints = find_texts([tmp_path / "a.zip"], scratch)

    assert found == []
    assert len(complaints) == 1
    assert complaints[0].startswith("a.zip/a.log: ")


def test_bounds_are_said(tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On members, and on bytes."""
    monkeypatch.setattr(archives, "MAX_MEMBERS", 3)
    monkeypatch.setattr(archives, "MAX_BYTES", 100)
    (tmp_path / "a.tar.gz").write_bytes(tar_of({f"{i}.log": LOG * 4 for i in range(5)}))

    found, complaints = find_texts([tmp_path / "a.tar.gz"], scratch)

    assert sum(file.size_bytes for file in found) <= 100
    assert complaints == [
        "a.tar.gz/1.log: too large to be unpacked: the rest is left out",
        "a.tar.gz/2.log: too large to be unpacked: the rest is left out",
        "a.tar.gz: more than 3 members: the rest is left out",
    ]


def test_a_header_that_claims_gigabytes(tmp_path: Path, scratch: Path) -> None:
    """It is not believed."""
    entry = tarfile.TarInfo("x")
    entry.type, entry.size = tarfile.XHDTYPE, 4 << 30
    (tmp_path / "a.tar").write_bytes(entry.tobuf() + b"\0" * 4096)

    assert find_texts([tmp_path / "a.tar"], scratch) == ([], ["a.tar: a header that is too long"])


def test_weights_are_no_archives(tmp_path: Path, scratch: Path) -> None:
    """torch.save writes zip files."""
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "model.pt").write_bytes(zip_of({"archive/readme": LOG, "archive/data": b"\0\1" * 9000}))

    assert find_texts([tmp_path / "x"], scratch) == ([], [])
