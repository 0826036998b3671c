"""Download Adult and German Credit from UCI into a folder, in the layout that `datasets.load` reads.

python -m studies.download FOLDER
"""

import hashlib
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases"
_ADULT = (
    "age,workclass,fnlwgt,education,education-num,marital-status,occupation,relationship,race,sex,"
    "capital-gain,capital-loss,hours-per-week,native-country,income"
)
_CREDIT = (
    "checking_status,duration,credit_history,purpose,credit_amount,savings,employment,installment_rate,"
    "personal_status,other_debtors,residence_since,property,age,other_installment_plans,housing,"
    "existing_credits,job,dependents,telephone,foreign_worker,class"
)
SOURCES = {
    "adult.csv": (_ADULT, ", ", [f"{_UCI}/adult/adult.data", f"{_UCI}/adult/adult.test"]),
    "german_credit.csv": (_CREDIT, " ", [f"{_UCI}/statlog/german/german.data"]),
}
"""Per file: its header, the separator of the originals, and their addresses."""

_SHA256 = {
    "adult.csv": "6f8f2babc5ee744afd03f6d978d8d6b3e3b0aae240d931c4976a9cce7af0d347",
    "german_credit.csv": "5e23a84f92c29542c638ffa7ca79d3615de4d539ec2fb13ef875a35501875fdd",
}


def _get(address: str) -> str:
    with urlopen(address, timeout=60) as answer:
        return str(answer.read().decode())


def download(folder: Path, get: Callable[[str], str] = _get) -> None:
    """Write both files into `folder`. A file with the wrong checksum is refused."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (header, separator, addresses) in SOURCES.items():
        lines = [header]
        for address in addresses:
            # adult.test begins with a comment and ends every label with a full stop.
            rows = (line.strip().removesuffix(".") for line in get(address).splitlines())
            lines += [row.replace(separator, ",") for row in rows if row and not row.startswith("|")]
        content = ("\n".join(lines) + "\n").encode()
        if hashlib.sha256(content).hexdigest() != _SHA256[name]:
            sys.exit(f"{name}: the checksum of the download is wrong; nothing was written for it")
        (folder / name).write_bytes(content)
        print(f"Wrote {folder / name}.")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    download(Path(sys.argv[1]))
