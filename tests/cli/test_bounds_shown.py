"""Every number about privacy that a command prints, against the full number in its JSON: on the safe side of it,
and no farther than one unit of its last digit. The settings are such that nothing comes out round."""

import json
import math
import re
import shlex
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from checks import repeatable
from conftest import ALL_TYPES, make_people

from repsynth import Release, datasets
from repsynth.cli import main
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings
from repsynth.release.accuracy import Z
from repsynth.schema import parse_schema
from repsynth.scoring.weights import FULL

CHECKOUT = Path(__file__).resolve().parents[2]

AWKWARD = "--epsilon 0.731317 --delta 3.77137e-7 --public-rows 600"
NUMBER = r"(\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)"
UPPER = [
    rf"(?:ε|δ|μ|ρ|η) (?:=|≤) {NUMBER}",
    rf"\b{NUMBER} at δ = ",
    rf"advantage above {NUMBER}%",
    rf"[ ,]{NUMBER}% at \d",
    rf"get weight {NUMBER} at most",
    rf"realised ε +{NUMBER}",
    rf"bias bound, from weights +{NUMBER}",
    rf"{NUMBER}% spent",
    rf"they are, {NUMBER}",
]
LOWER = [rf"Noise {NUMBER} times", rf"guaranteed ε below the total +{NUMBER}%"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """People, their schema, a release of each kind, and a ledger that paid for one of them."""
    folder = tmp_path_factory.mktemp("shown")
    pacsv.write_csv(make_people(600), folder / "people.csv")
    (folder / "schema.toml").write_text(ALL_TYPES)
    with pytest.MonkeyPatch.context() as patch, repeatable(3):
        patch.chdir(folder)
        assert run("ledger init ledger.db --epsilon 1.931 --delta 3.77137e-7") == 0
        base = f"synthesize people.csv --schema schema.toml {AWKWARD}"
        assert run(f"{base} --weights hinge-exp --gamma 0.7 --ledger ledger.db -o a.csv --release release") == 0
        assert run(f"{base} --scores-from release -o b.csv --release later") == 0
        assert run(f"{base} --model mst --outlier-epsilon 0.431 -o c.csv --release tree") == 0
    return folder


def run(command: str) -> int:
    return main(shlex.split(command))


def both(command: str, capsys: pytest.CaptureFixture[str]) -> tuple[str, Any]:
    """What a command says to people, and to machines."""
    capsys.readouterr()
    assert run(command) in (0, 1), capsys.readouterr().err
    text = capsys.readouterr().out
    assert run(f"{command} --json") in (0, 1)
    return text, json.loads(capsys.readouterr().out)


def floats(data: Any) -> Iterator[Fraction]:
    """Every number in JSON, as the decimal that stands there, keys included."""
    if isinstance(data, dict):
        for key, value in data.items():
            if re.fullmatch(NUMBER, str(key)):
                yield Fraction(str(key))
            yield from floats(value)
    elif isinstance(data, list):
        for value in data:
            yield from floats(value)
    elif isinstance(data, int | float) and not isinstance(data, bool):
        yield Fraction(repr(data))


def is_upper(shown: str, exact: list[Fraction], scale: int = 1) -> bool:
    """Whether it is one of the numbers, rounded up to its last digit."""
    unit = Fraction(10) ** int(Decimal(shown.replace(",", "")).as_tuple().exponent)
    value = Fraction(shown.replace(",", ""))
    return any(0 <= value - scale * x < unit for x in exact)


def is_lower(shown: str, exact: list[Fraction], scale: int = 1) -> bool:
    unit = Fraction(10) ** int(Decimal(shown.replace(",", "")).as_tuple().exponent)
    value = Fraction(shown.replace(",", ""))
    return any(0 <= scale * x - value < unit for x in exact)


def check(text: str, exact: list[Fraction], least: int) -> None:
    """Every bound in the text is one of these numbers, rounded to the safe side; there are at least so many."""
    found = 0
    for patterns, right in ((UPPER, is_upper), (LOWER, is_lower)):
        for pattern in patterns:
            for match in re.finditer(pattern, text):
                percent = text[match.end(1) :].startswith("%")
                assert right(match[1], exact, 100 if percent else 1), (match[0], text)
                found += 1
    assert found >= least, text


@pytest.mark.parametrize("release", ["release", "later", "tree"])
def test_inspect(release: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(folder)
    text, told = both(f"inspect {release} --full", capsys)
    exact = list(floats(told))
    check(text.replace("10.0% false", "").replace("one more", ""), exact, 12)
    losses = [re.match(rf"\s*{NUMBER}\s", line) for line in text[text.index("ε at most") :].splitlines()[1:]]
    shown = [match[1] for match in losses if match]
    bounds = list(floats(list(Release.load(release).privacy.by_epsilon())))
    assert shown
    assert all(is_upper(number, bounds) for number in shown)
    charges = list(floats([event["mu"] for event in told["measurements"]]))
    for name in (event["name"] for event in told["measurements"]):
        (line,) = [line for line in text.splitlines() if line.startswith(f"{name} ")][:1]
        assert is_upper(line.split()[-1], charges), line


@pytest.mark.parametrize("release", ["release", "tree"])
def test_half_widths_are_rounded_up(
    release: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """1.96 standard errors of JSON, and never less: in the terminal and in the written summary."""
    monkeypatch.chdir(folder)
    capsys.readouterr()
    text, told = both(f"evaluate --release {release} --full", capsys)
    inspected = both(f"inspect {release} --full", capsys)
    assert text.strip() in inspected[0]
    shares = {each["column"]: max(each["standard_errors"]) for each in told["columns"]}
    said = inspected[1]["expected_errors"]["shares"]
    assert said == {column: {"standard_error": error} for column, error in shares.items()}
    points = [100 * Z * error for error in (*shares.values(), *(t["standard_error"] for t in told["tables"]))]
    widths = [Z * mean["standard_error"] for mean in (*told["means"], *told["group_means"])]
    exact = [*floats([*points, *widths]), Fraction("1.96")]
    shown = re.findall(rf"± {NUMBER}", text)
    assert len(shown) >= 8
    assert [number for number in shown if not is_upper(number, exact)] == []
    ends = [mean["interval_95"] for mean in told["group_means"] if mean["interval_95"]]
    for low, high in re.findall(rf"{NUMBER} and {NUMBER}", text):
        assert is_lower(low, list(floats([pair[0] for pair in ends])))
        assert is_upper(high, list(floats([pair[1] for pair in ends])))
    assert '"error"' not in json.dumps([told, inspected[1]])


@pytest.mark.parametrize(
    "knobs",
    [
        "",
        "--outlier-epsilon 0.431 --model mst",
        "--scores-from release",
        pytest.param("--model autoregressive --epochs 2.5", marks=pytest.mark.slow),
    ],
)
def test_plan(knobs: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(folder)
    text, told = both(f"plan --schema schema.toml {AWKWARD} {knobs} --full", capsys)
    exact = [*floats(told), Fraction("0.431")]
    check(text, exact, 4)
    advantages = []
    for line in text[text.index("attack advantage") :].splitlines()[1:7]:
        weight, epsilon, advantage, *_ = line.split()
        assert is_upper(epsilon, list(floats(told["epsilon_by_weight"][str(float(weight))])))
        advantages.append(float(advantage.rstrip("%")))
    assert advantages == sorted(advantages, reverse=True)


def first_screen(text: str, told: dict[str, Any], right: float, points: float, least: int) -> None:
    """Every number of a first screen is on the safe side of the exact one."""
    text = " ".join(text.split())
    check(text, list(floats(told)), least)
    (guesses,) = re.findall(rf"at most {NUMBER} of 100 guesses", text)
    assert is_upper(guesses, list(floats(50 + 50 * right)))
    (noise,) = re.findall(rf"± {NUMBER} percentage points", text)
    assert is_upper(noise, list(floats(points)))


@pytest.mark.parametrize("release", ["release", "later", "tree"])
def test_the_first_screen_of_inspect(
    release: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(folder)
    text, told = both(f"inspect {release}", capsys)
    errors = [each["standard_error"] for each in told["expected_errors"]["shares"].values()]
    first_screen(text, told, told["attack_advantage_at_most"], min(100 * Z * max(errors), 100), 3)


@pytest.mark.parametrize("knobs", ["", "--outlier-epsilon 0.431 --model mst", "--scores-from release"])
def test_the_first_screen_of_plan(knobs: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(folder)
    text, told = both(f"plan --schema schema.toml {AWKWARD} {knobs}", capsys)
    made = Release.load("release").plan
    first_screen(
        text, told | {"": 0.431}, float(made.loss.advantage_at(1.0)), min(told["share_points_95"], 100), 3
    )


def test_results_print_as_a_few_lines_and_display_as_a_table(folder: Path) -> None:
    release = Release.load(folder / "release")
    for shown in (release, release.privacy, release.plan):
        text = " ".join(repr(shown).split())
        assert len(repr(shown).splitlines()) <= 3
        assert "Everyone's privacy loss is at most ε = 0.7314 at δ = 3.78e-07" in text
        assert "Outliers: over the releases in which a person counts as an outlier" in text
        table = shown._repr_html_()
        assert 3 <= table.count("<tr>") <= 7


@pytest.mark.train
def test_a_trained_model_has_neither_mu_nor_rho(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(folder)
    command = f"--schema schema.toml {AWKWARD} --model autoregressive --epochs 2 --sampling-rate 0.2"
    text, told = both(f"plan {command} --full", capsys)
    assert "μ = " not in text
    assert "ρ = " not in text
    assert (told["budget"]["mu"], told["budget"]["rho"]) == (None, None)
    assert all(row["share"] is None for row in told["measurements"])
    assert run(f"synthesize people.csv {command} -o n.csv --release network") == 0
    text, told = both("inspect network --full", capsys)
    assert "μ = " not in text
    assert (told["mu"], told["rho"]) == (None, None)
    kept = json.loads(Path("network/release.json").read_text())
    assert kept["plan"]["budget"] == {"delta": 3.77137e-7, "mu": None, "epsilon": 0.731317}
    assert Release.load("network").plan.mu is None
    check(text, list(floats(told)), 12)


def test_risk(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path) -> None:
    monkeypatch.chdir(folder)
    with repeatable(5):
        assert run(f"risk people.csv --release release -o {tmp_path}/a.parquet --show") == 0
    text = capsys.readouterr().out
    with repeatable(5):
        assert run(f"risk people.csv --release release -o {tmp_path}/b.parquet --show --json") == 0
    told = json.loads(capsys.readouterr().out)
    check(text, list(floats(told)), 4)
    dossier = pq.read_table(tmp_path / "a.parquet")
    assert is_upper(
        re.search(rf"largest realised ε +{NUMBER}", text)[1], list(floats(dossier["realised_epsilon"].to_pylist()))
    )  # type: ignore[index]


def test_ledger(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(folder)
    text, told = both("ledger show ledger.db", capsys)
    (data,) = told["datasets"]
    left, lines = data.pop("remaining"), text.splitlines()
    last = next(line for line in lines if "one more run" in line)
    before, after = last.split("one more run may cost ")
    exact = [*floats(data), (Fraction(data["spent"]["mu"]) / Fraction(data["limit"]["mu"])) ** 2]
    check("\n".join([lines[0], before]), exact, 4)
    numbers = re.findall(rf"= {NUMBER}", after)
    assert len(numbers) == 2
    assert all(is_lower(number, list(floats(left))) for number in numbers)


@pytest.mark.parametrize("model", ["naive-bayes", pytest.param("autoregressive", marks=pytest.mark.train)])
def test_audit(model: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """Claims are rounded up, what is proven down; every line has its verdict."""
    monkeypatch.chdir(folder)
    command = f"audit --schema schema.toml {AWKWARD} --model {model} --runs 200"
    command += " --epochs 1 --sampling-rate 0.2" if model == "autoregressive" else ""
    with repeatable(7):
        run(command)
    text = capsys.readouterr().out
    with repeatable(7):
        run(f"{command} --json")
    told = json.loads(capsys.readouterr().out)
    lines = [line.strip() for line in text.splitlines() if re.search(r"(holds|breach at [\d.]+ %) *$", line)]
    assert len(lines) == len(told["findings"]) >= 20
    for line, finding in zip(lines, told["findings"], strict=True):
        assert line.endswith(finding["verdict"])
        numbers = re.findall(r"(?<= )\d+\.\d{4}(?= )", line)
        claimed, *guaranteed, proven = numbers
        assert is_upper(claimed, list(floats(finding["claimed_epsilon"])))
        assert is_lower(proven, list(floats(finding["lower_epsilon"])))
        if guaranteed:
            assert is_upper(guaranteed[0], list(floats(finding["guaranteed_epsilon"])))
        if model == "autoregressive" and finding["measurement"] in ("gradients", "all"):
            assert finding["claimed_mu"] is finding["lower_mu"] is finding["guaranteed_mu"] is None


def test_the_readme_and_its_picture_round_up() -> None:
    """The demo's settings, and the weight that its outliers get."""
    schema = parse_schema(datasets.schema_text("people"))
    bounds = {}
    for epsilon in (0.5, 1.0, 2.0, 4.0):
        plan = make_plan(schema, Settings.of(epsilon=epsilon, delta=1e-6))
        bounds[epsilon] = float(plan.loss.epsilon_at(math.floor(0.2 * FULL) / FULL, plan.delta))
    for name in ("protection.svg", "protection-dark.svg"):
        picture = (CHECKOUT / "docs" / name).read_text(encoding="utf-8")
        numbers = re.findall(rf">{NUMBER}<", picture)
        assert [float(number) for number in numbers[::2]] == list(bounds)
        for number, bound in zip(numbers[1::2], bounds.values(), strict=True):
            assert is_upper(number, list(floats(bound)))
    (readme,) = re.findall(rf"at most ε = {NUMBER}\.", (CHECKOUT / "README.md").read_text(encoding="utf-8"))
    assert readme in numbers
    assert is_upper(readme, list(floats(bounds[1.0])))


def test_synthesize_and_errors(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path) -> None:
    monkeypatch.chdir(folder)
    command = f"synthesize people.csv --schema schema.toml {AWKWARD} -o {tmp_path}/s.csv --release {tmp_path}/s"
    assert run(command) == 0
    text = capsys.readouterr().out
    privacy = Release.load(tmp_path / "s").privacy
    check(text, list(floats([privacy.epsilon, privacy.delta, privacy.outlier_epsilon])), 3)
    assert run(f"plan --schema schema.toml {AWKWARD} --outlier-epsilon 0.01") == 2
    (smallest,) = re.findall(rf"costs every record {NUMBER};", capsys.readouterr().err)
    assert run(f"plan --schema schema.toml {AWKWARD} --json") == 0
    told = json.loads(capsys.readouterr().out)
    assert is_upper(smallest, list(floats(told["floor_epsilon"])))
    assert run(f"{command.replace('/s', '/t')} --ledger ledger.db --epsilon 1.9") == 2
    error = capsys.readouterr().err
    check(error.split(", and ")[0], [Fraction("1.9"), Fraction("1.8999999999")], 1)
