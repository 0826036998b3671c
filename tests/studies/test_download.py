"""The download: UCI's files become the files that `datasets.load` reads, and other files are refused."""

from pathlib import Path

import pytest

from studies.download import SOURCES, download


def test_the_layout_of_uci_becomes_ours(data_dir: Path, tmp_path: Path) -> None:
    rows = {name: (data_dir / name).read_text().splitlines()[1:] for name in SOURCES}
    adult = [row.replace(",", ", ") for row in rows["adult.csv"]]
    test = ["|1x3 Cross validator", *(f"{row}." for row in adult[32_561:]), ""]
    served = {
        "adult.data": [*adult[:32_561], ""],
        "adult.test": test,
        "german.data": [f"{row.replace(',', ' ')} " for row in rows["german_credit.csv"]],
    }
    download(tmp_path, lambda address: "\n".join(served[address.rsplit("/", 1)[1]]) + "\n")
    for name in SOURCES:
        assert (tmp_path / name).read_bytes() == (data_dir / name).read_bytes()


def test_another_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"adult\.csv: the checksum of the download is wrong"):
        download(tmp_path, lambda address: "<html>moved</html>")
    assert not list(tmp_path.iterdir())
