"""The bytes that Arrow gets of a text file: valid, whatever the file holds and however much is asked for."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from repsynth.io.csv import _ValidText, open_csv
from repsynth.io.source import File

PARTS = st.sampled_from(
    [b"a,b\n", b"plain text " * 3, "ä€😀".encode(), b"\xff", b"\xe2\x82", b"\xf0\x9f\x98", b"\xef\xbb\xbf"]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=st.lists(PARTS, max_size=8), sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4))
@pytest.mark.parametrize("encoding", ["utf-8", "UTF8", "cp1252", "utf-16-le"])
def test_invalid_bytes_are_replaced_wherever_a_read_ends(
    encoding: str, parts: list[bytes], sizes: list[int], tmp_path: Path
) -> None:
    raw = b"".join(parts)
    (tmp_path / "t.csv").write_bytes(raw)
    found: list[bytes] = []
    with _ValidText(tmp_path / "t.csv", encoding) as text:
        while some := text.read(sizes[len(found) % len(sizes)]):
            assert len(some) <= sizes[len(found) % len(sizes)]
            found.append(some)
        assert text.read() == b""
    assert b"".join(found) == raw.decode(encoding, errors="replace").encode() + b"\n"


def test_a_header_is_read_although_a_character_is_cut_where_reading_it_ends(tmp_path: Path) -> None:
    """Three bytes each: one of them is cut in two wherever a power of two is."""
    (tmp_path / "t.csv").write_text("naïve,b\n" + "€" * 2**20 + ",1\n", encoding="utf-8")
    assert open_csv(File.at(tmp_path / "t.csv")).names == ("naïve", "b")
