"""The pure parts of scripts/demo: formats, scopes, text, poison, the walk, and the embedding."""

import zlib
from pathlib import Path

import pytest

from scripts._demo import inbox, proof
from scripts._demo.documents import (
    SIZE_MAX_BYTES,
    TEXT_MAX_CHARS,
    Areas,
    UnreadableDocumentError,
    extract,
    format_of,
    package_of,
)
from scripts._demo.embedding import DIMENSIONS, embed


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("click-8.1.dist-info/METADATA", "metadata"),
        ("click-8.1.dist-info/RECORD", "csv"),
        ("click-8.1.dist-info/licenses/LICENSE.txt", "license"),
        ("pkg/LICENSE.APACHE", "license"),
        ("pkg/LICENSE", "license"),
        ("pkg/license.py", "python"),
        ("pkg/README.md", "markdown"),
        ("pkg/data.JSON", "json"),
        ("pkg/core.pyi", "stub"),
        ("pkg/icon.svg", "xml"),
        ("pkg/record.png", None),
        ("pkg/module.so", None),
        ("pkg/py.typed", None),
    ],
)
def test_format_follows_the_name(path: str, expected: str | None) -> None:
    """A document's format is what its name says; other files are no documents."""
    assert expected == format_of(path)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("click/core.py", "click"),
        ("click-8.1.dist-info/METADATA", "click"),
        ("typing_extensions-4.16.0.dist-info/RECORD", "typing_extensions"),
        ("python-dateutil/x.md", "python_dateutil"),
        ("six.py", "six"),
    ],
)
def test_package_is_the_first_part_of_the_path(path: str, expected: str) -> None:
    """A package and what is installed beside it as its metadata are one scope."""
    assert expected == package_of(path)


@pytest.mark.parametrize(
    ("format_name", "content", "expected"),
    [
        ("text", b"\xef\xbb\xbftext", "text"),
        ("json", b'{"a": ["b", 1, {"c": null}]}', "a b c"),
        ("toml", b"[a]\nb = 'c'", "a b c"),
        ("csv", b"a,b\nc,d", "a b c d"),
        ("xml", b"<a>b <c>d</c></a>", "b d"),
        ("html", b"<p>a<br>b", "a b"),
        ("metadata", b"Name: a\nVersion: 1\nSummary: b\n\nbody", "a\nb\nbody"),
        ("python", b'"""Module."""\nclass A:\n  "Of A."\n  def f(self): pass\nx = 1', "Module.\nA\nOf A.\nf"),
        ("json", rb'"half \ud800"', "half ?"),
        ("text", b"x" * (TEXT_MAX_CHARS + 1), "x" * TEXT_MAX_CHARS),
    ],
)
def test_text_is_extracted(format_name: str, content: bytes, expected: str) -> None:
    """Each format gives its text, cut to what is handed on, and always fit for UTF-8."""
    assert expected == extract(format_name, content)


@pytest.mark.parametrize(
    ("format_name", "content", "reason"),
    [
        ("text", b"20\xb0", "no UTF-8: invalid start byte at byte 2"),
        ("json", b'{"cut": [1', "no valid json: Expecting ',' delimiter"),
        ("json", b"[" * 100_000, "no valid json: maximum recursion depth"),
        ("toml", b"[table", "no valid toml: Expected ']'"),
        ("xml", b"<a>", "no valid xml: no element found"),
        ("python", b"def", "no valid python: invalid syntax"),
    ],
)
def test_poison_is_known_by_its_content(format_name: str, content: bytes, reason: str) -> None:
    """What is not what its format says is refused with the reason."""
    with pytest.raises(UnreadableDocumentError) as error:
        extract(format_name, content)
    assert reason == str(error.value)[: len(reason)]


def test_the_three_poisoned_documents_fail_for_three_reasons(tmp_path: Path) -> None:
    """Broken encoding, cut JSON and a size over the limit are each refused for what they are."""
    inbox.write_poison(tmp_path / "inbox")
    (tmp_path / "documents").mkdir()
    areas = Areas(documents=tmp_path / "documents", inbox=tmp_path / "inbox", out=tmp_path / "out", limit=10, seed=0)
    reasons = {r.document.path: r.reason or "" for r in proof.read_again(areas, areas.walk())}
    expected = {"minutes.txt": "1,048", "order.json": "no valid json", "roofing.md": "no UTF-8"}
    assert expected == {Path(path).name: reason[: len(expected[Path(path).name])] for path, reason in reasons.items()}
    assert f"at most {SIZE_MAX_BYTES:,} are read" in reasons["notes/minutes.txt"]


def test_a_document_changed_since_it_was_enqueued_is_refused(tmp_path: Path) -> None:
    """A worker never takes other content for the one whose digest its job carries."""
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "a.md").write_text("something", "utf-8")
    areas = Areas(documents=tmp_path / "documents", inbox=tmp_path / "inbox", out=tmp_path / "out", limit=10, seed=0)
    documents = areas.walk()
    for document in documents:
        areas.locate(document.area, document.path).write_text("something else", "utf-8")
    assert {"changed since it was enqueued"} == {r.reason for r in proof.read_again(areas, documents)}


def test_a_walk_depends_on_its_seed_alone(tmp_path: Path) -> None:
    """A seed always chooses the same documents in the same order: programs last when room is tight, output never."""
    (tmp_path / "documents").mkdir()
    for number in range(40):
        (tmp_path / "documents" / f"{number}{('.py', '.md', '.csv', '.pyi')[number % 4]}").write_text("", "utf-8")
    (tmp_path / "documents" / "out").mkdir()
    (tmp_path / "documents" / "out" / "report.json").write_text("{}", "utf-8")

    def walk(limit: int, seed: int) -> list[str]:
        areas = Areas(
            documents=tmp_path / "documents",
            inbox=tmp_path / "inbox",
            out=tmp_path / "documents" / "out",
            limit=limit,
            seed=seed,
        )
        return [document.path for document in areas.walk()]

    assert walk(30, 1) == walk(30, 1) != walk(30, 2)
    assert [path for path in walk(30, 1) if path.endswith(".py")] == []
    assert len(walk(1_000, 1)) == 40


def test_embedding_is_a_signed_count_by_crc() -> None:
    """A vector has length one, and each word acts at the place and with the sign of its CRC, whatever the order."""
    code = zlib.crc32(b"tile")
    expected = [0.0] * DIMENSIONS
    expected[code % DIMENSIONS] = 1.0 if code & 0x8000_0000 else -1.0
    assert expected == embed("Tile tile")
    assert embed("tiles on roofs") == embed("roofs on tiles")
    assert embed("1 + 1") == [0.0] * DIMENSIONS
