"""The public page: what it says, that it needs nothing but itself, and that no name in a release can break it."""

import html
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from browser import Browser, needs_axe, needs_browser
from made import NASTY, ONE_ROW_EACH, nasty_release, sim_release, stays_release, wide_schema
from rich.console import Console

from repsynth import (
    Release,
    datasets,
    expected_errors,
    inspect_release,
    own_bound,
    synthesize,
)
from repsynth.cli import main, render
from repsynth.columns.cells import Bins
from repsynth.io.sources import open_source
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings
from repsynth.privacy.formatting import upper
from repsynth.release.accuracy import Z
from repsynth.report.charts import heat
from repsynth.report.page import _cells, explore_page, public_facts, public_page
from repsynth.run.run import run
from repsynth.schema import Category, Integer


def write(release: Release, folder: Path) -> Path:
    page = folder / "report.html"
    page.write_text(public_page(release.save(folder / "release")), encoding="utf-8")
    return page


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def sim_page(tmp_path_factory: pytest.TempPathFactory) -> tuple[Release, Path]:
    release = sim_release("mst")
    return release, write(release, tmp_path_factory.mktemp("report"))


def test_the_page_needs_no_network_and_is_small(sim_page: tuple[Release, Path]) -> None:
    text = sim_page[1].read_text(encoding="utf-8")
    assert len(text.encode()) < 3_000_000
    outside = [link for link in re.findall(r"(?:src|href)=[\"']([^\"']*)", text) if not link.startswith("#")]
    assert outside == []
    assert set(re.findall(r"https?://[^\"' )<]+", text)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }


def test_the_page_states_the_bounds_of_the_account(sim_page: tuple[Release, Path]) -> None:
    release, page = sim_page
    text, privacy = html.unescape(page.read_text(encoding="utf-8")), release.privacy
    assert f"ε = {upper(privacy.epsilon)} at δ = {upper(privacy.delta, 3)}" in text
    right = {float(number) for number in re.findall(r"([0-9.]+) of 100 (?:such )?guesses", text)}
    assert len(right) == 1, "of outliers a joint bound is proven, and nothing about guesses"
    assert 0 <= right.pop() - (50 + 50 * privacy.advantage) <= 0.1
    assert f"outliers<strong>ε\xa0=\xa0{upper(privacy.outlier_epsilon, 3)}</strong>" in text
    assert "does not say how many guesses about an outlier are right" in text
    for delta, epsilon in privacy.epsilon_by_delta().items():
        assert f"δ = {upper(delta, 6)}" in text
        assert upper(epsilon, 3) in text


def test_guesses_about_outliers_are_bounded_only_where_all_weights_were_public(
    sim_page: tuple[Release, Path], tmp_path: Path
) -> None:
    sim = datasets.load("sim")
    release = synthesize(
        sim.table, sim.schema, epsilon=2.0, delta=1e-6, model="naive-bayes",
        scores_from=sim_page[1].parent / "release",
    )  # fmt: skip
    text, privacy = html.unescape(write(release, tmp_path).read_text(encoding="utf-8")), release.privacy
    (right,) = re.findall(r"at most ([0-9.]+) of 100 are right about an outlier who was not in the earlier", text)
    assert 0 <= float(right) - (50 + 50 * privacy.loss.advantage_at(privacy.outlier_weight)) <= 0.1
    assert f"in both tables loses at most ε = {upper(privacy.epsilon_in_both())}" in text  # type: ignore[arg-type]
    assert "does not say how many guesses about an outlier are right" not in text


def test_the_page_opens_with_what_it_is_about_and_ends_with_a_page_to_sign(
    sim_page: tuple[Release, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, output = str(sim_page[1].parent / "release"), tmp_path / "report.html"
    given = ["--title", "Stays <2024>", "--contact", "privacy@example.org", "--ledger-entry", "entry 7"]
    assert main(["report", folder, "-o", str(output), *given]) == 0
    text = html.unescape(output.read_text(encoding="utf-8"))
    about = text.partition("<nav")[0]
    for fact in ("Stays <2024>", "privacy@example.org", "entry 7", "one person, who has one row", "6,000", "mst"):
        assert fact in about
    assert set(re.findall(r'href="#([a-z]+)"', text)) <= set(re.findall(r'id="([a-z]+)"', text))
    to_sign = text.partition('<section id="sign"')[2]
    for fact in ("everyone: ε = 2", "a joint bound", "confirmed as public by", "entry 7", "SHA-256", "Signature"):
        assert fact in to_sign
    assert "#sign { break-before: page;" in text
    private = ["--curator", "--train", "people.csv", "-o", str(tmp_path / "private-report.html")]
    assert main(["report", folder, "--ledger-entry", "entry 7", *private]) == 2
    assert "--ledger-entry is for the public page" in capsys.readouterr().err


def test_every_released_histogram_is_drawn_with_intervals(sim_page: tuple[Release, Path]) -> None:
    release, expected = sim_page[0], expected_errors(sim_page[0])
    facts = public_facts(release, sim_page[1].parent / "release")
    assert [chart.title for chart in facts["histograms"]] == [column.column for column in expected.columns]
    for chart, shares in zip(facts["histograms"], expected.columns, strict=True):
        assert len(chart.rows) == len(chart.marks) <= 14
        drawn = dict(chart.rows)
        for name, share, error in zip(shares.bins, shares.shares, shares.standard_errors, strict=True):
            if name not in drawn or "at most" in drawn[name]:
                continue
            value, points = map(float, drawn[name].removesuffix(" %").split(" ± "))
            assert value - points <= 100 * (share - Z * error) + 1e-9, "the printed interval holds the exact one"
            assert value + points >= 100 * (share + Z * error) - 1e-9
            assert len(drawn[name].partition(" ± ")[0].partition(".")[2]) <= 2
        assert not any(text.startswith("-") for text in drawn.values())


def test_the_smallest_cells_are_merged() -> None:
    number = Bins.at(Integer(name="n", min=0, max=99, special=("?",), missing=True), np.arange(100))
    counts = np.where(np.arange(102) % 20 == 0, 50.0, 1.0)
    cells = dict(_cells(number, counts))
    assert len(cells) == 14
    assert sorted(k for cell in cells.values() for k in cell) == list(range(102))
    assert {"0", "20", "40", "60", "80", "?", "missing"} <= cells.keys()
    category = Bins.discrete(Category(name="c", values=tuple(f"v{i}" for i in range(30))))
    found = dict(_cells(category, np.arange(31.0)))
    assert next(iter(found)) == "v29"
    assert found["19 others"] == list(range(18, -1, -1))


def test_the_command_writes_the_page_and_nothing_over_another(
    sim_page: tuple[Release, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, output = sim_page[1].parent / "release", tmp_path / "report.html"
    assert main(["report", str(folder), "-o", str(output), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "output": str(output),
        "publishable": True,
        "bytes": output.stat().st_size,
    }
    assert main(["report", str(folder), "-o", str(output)]) == 2
    assert "already exists" in capsys.readouterr().err
    assert main(["report", str(folder), "-o", str(tmp_path / "report.pdf")]) == 2
    assert ".html" in capsys.readouterr().err
    (tmp_path / "release").mkdir()
    for name in ("release.json", "arrays.npz"):
        (tmp_path / "release" / name).write_bytes((folder / name).read_bytes())
    with (tmp_path / "release" / "arrays.npz").open("ab") as file:
        file.write(b"x")
    assert main(["report", str(tmp_path / "release"), "-o", str(tmp_path / "other.html")]) == 2
    assert "damaged" in capsys.readouterr().err
    assert not (tmp_path / "other.html").exists()


@needs_browser
@pytest.mark.smoke
def test_hundreds_of_people_read_their_own_bound_in_a_browser(
    sim_page: tuple[Release, Path], chromium: Browser
) -> None:
    release, page = sim_page
    rows = datasets.load("sim").table.slice(0, 200).to_pylist()
    people = [{name: str(cell) for name, cell in row.items()} for row in rows]
    people += [people[0] | {"x1": "5.999"}, people[0] | {"x1": "no number"}, {"x1": "5.999"}]
    names = [column.name for column in release.schema.learned]
    places = [[person.get(name, "") for name in names] for person in people]
    script = f"""(() => {{
      const people = {json.dumps(places)}, form = document.getElementById("values"), found = [];
      for (const person of people) {{
        person.forEach((text, i) => {{ form.querySelector(`[data-place="${{i}}"]`).value = text; }});
        form.dispatchEvent(new Event("input", {{ bubbles: true }}));
        found.push([document.getElementById("own-epsilon").textContent, document.body.dataset.score]);
      }}
      return found;
    }})()"""
    chromium.open(page)
    found = chromium.run(script)
    assert chromium.complaints == []
    for person, (shown, score) in zip(people, found, strict=True):
        bound = own_bound(release, person)
        assert (shown, int(score)) == (f"ε = {upper(bound.epsilon, 3)}", bound.score * 2**16)


@needs_browser
def test_who_types_and_chooses_with_the_keyboard_reads_the_same(
    sim_page: tuple[Release, Path], chromium: Browser
) -> None:
    release, page = sim_page
    person = {f"x{i}": "5.99" for i in range(1, 7)} | {"c1": "Z", "c2": "Q", "c3": "R", "label": "1"}
    chromium.open(page, width=390)
    chromium.run("document.getElementById('value-0').focus()")
    names = [column.name for column in release.schema.learned]
    for place, name in enumerate(names):
        assert chromium.run("document.activeElement.id") == f"value-{place}", "the fields follow each other"
        for letter in person[name]:  # in a list, the first letter chooses
            chromium.press(letter)
        chromium.press("Tab")
    bound = own_bound(release, person)
    assert bound.weight < 1
    assert chromium.run("document.getElementById('own-epsilon').textContent") == f"ε = {upper(bound.epsilon, 3)}"
    assert "an outlier" in chromium.run("document.getElementById('bound').textContent")
    assert chromium.complaints == []


@needs_axe
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_everybody_can_read_it(sim_page: tuple[Release, Path], chromium: Browser, width: int, dark: bool) -> None:
    chromium.open(sim_page[1], width=width, dark=dark)
    chromium.run("document.querySelectorAll('details').forEach((it) => { it.open = true; })")
    assert chromium.faults() == []
    assert chromium.too_wide() <= 0


def test_names_with_an_emoji_are_cut_between_letters() -> None:
    """A chart that is cut within one cannot be drawn at all."""
    names = ["x" * k + "😀" * 9 + " and so on" for k in range(20)]
    table = [[0.5, 0.5]] * len(names)
    drawn = heat("", "", ("", ""), [], across=["a", "b"], up=names, panels=[("", table)])
    assert "😀…" in drawn.svg


def test_no_name_in_a_release_gets_out_of_its_place(tmp_path: Path) -> None:
    text = write(nasty_release("mst"), tmp_path).read_text(encoding="utf-8")
    assert "alert(1)</script>" not in text
    assert "{{ 7 * 7 }}" in html.unescape(text)
    assert len(re.findall(r"<script", text)) == 3


@needs_browser
def test_a_page_of_nasty_names_works_in_a_browser_and_on_paper(chromium: Browser, tmp_path: Path) -> None:
    page = write(nasty_release(), tmp_path)
    chromium.open(page, width=390)
    assert chromium.complaints == []
    assert chromium.too_wide() <= 0
    labels = chromium.run("[...document.querySelectorAll('#values span')].map((it) => it.textContent)")
    assert labels == NASTY
    assert chromium.run("document.querySelectorAll('script').length") == 3
    # Above its field, whatever the name ends in, and no word of a table is cut in two.
    above = "(it) => it.getBoundingClientRect().bottom <= it.nextElementSibling.getBoundingClientRect().top + 1"
    assert chromium.run(f"[...document.querySelectorAll('#values span')].every({above})")
    assert set(chromium.run("[...document.querySelectorAll('.facts bdi')].map((it) => it.textContent)")) == set(
        NASTY
    )
    assert chromium.pdf(tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.filterwarnings("ignore::repsynth.errors.RepsynthWarning")
def test_a_wide_release_still_makes_a_small_page(tmp_path: Path) -> None:
    table = pa.table(
        {**{f"c{i}": [True, False] * 100 for i in range(200)}, "code": [f"code {i}" for i in range(200)]}
    )
    page = write(synthesize(table, wide_schema(), epsilon=1.0, delta=1e-6, model="naive-bayes"), tmp_path)
    assert page.stat().st_size < 3_000_000


def test_a_release_of_a_seed_says_that_it_is_not_private(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sim = datasets.load("sim")
    plan = make_plan(sim.schema, Settings.of(epsilon=1.0, delta=1e-6, model="naive-bayes", weights="uniform"))
    text = write(run(plan, open_source(sim.table), noise_seed=1), tmp_path).read_text(encoding="utf-8")
    assert "NOT PRIVATE" in text
    assert "a joint bound" not in text
    folder = str(tmp_path / "release")
    for command in (
        ["inspect", folder],
        ["evaluate", "--release", folder],
        ["report", folder, "-o", str(tmp_path / "again.html")],
        ["explore", "--release", folder, "-o", str(tmp_path / "explore.html")],
    ):
        assert main([*command, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["publishable"] is False


MEANINGS = {
    ONE_ROW_EACH: "one random row of a random person, so each person counts once",
    'person = {column = "patient", rows = 3}': "a random row, where each person counts as 3 rows at most",
    "one_row_per_person = true": "one person",
}


@pytest.mark.parametrize("who", MEANINGS)
def test_every_output_says_what_a_synthetic_row_represents(who: str, tmp_path: Path) -> None:
    release = stays_release(who)
    text = html.unescape(write(release, tmp_path).read_text(encoding="utf-8")).split("<script")[0]
    explored = html.unescape(explore_page(release.schema, release)).split("<script")[0]
    printed = io.StringIO()
    render.release(Console(file=printed, width=10_000), release)
    render.expected(Console(file=printed, width=10_000), expected_errors(release))
    account = inspect_release(release)
    for told in (text, printed.getvalue()):
        assert f"A synthetic row represents {MEANINGS[who]}" in told
    assert f"A synthetic row would represent {MEANINGS[who]}" in explored
    assert account["row_represents"].startswith(MEANINGS[who])
    counted = account["loss_distribution_counts"]
    assert counted.startswith("rows (each weighted so that a person counts" if "column" in who else "records")
    for told in (text, printed.getvalue()):
        assert counted in told.replace("Rows (each", "rows (each").replace("Records", "records")
    if "column" in who:
        assert "part of the records" not in text
        assert "fraction of records" not in printed.getvalue()
        assert "how many persons have each loss does not follow" in text
        assert f"Shares are of rows in this sense: {MEANINGS[who]}" in text


@needs_browser
def test_a_person_enters_all_rows_in_a_browser(chromium: Browser, tmp_path: Path) -> None:
    release = stays_release()
    usual, odd = (
        {"age": "32", "ward": "eyes", "urgent": "false"},
        {"age": "99", "ward": "birth", "urgent": "true"},
    )
    both, one = own_bound(release, [usual, odd]), own_bound(release, odd)
    assert one.epsilon < both.epsilon < release.privacy.epsilon
    chromium.open(write(release, tmp_path), width=390)
    shown = "document.getElementById('own-epsilon').textContent"
    assert chromium.run(shown) == f"ε = {upper(release.privacy.epsilon, 3)}"
    enter = """((values) => { const form = document.getElementById("values");
      for (const [id, value] of Object.entries(values)) document.getElementById(id).value = value;
      form.dispatchEvent(new Event("input", { bubbles: true })); })"""
    chromium.run(f"{enter}({json.dumps({'count': '2'})})")
    names = [column.name for column in release.schema.learned]
    chromium.run(f"{enter}({json.dumps({f'value-{i}': odd[name] for i, name in enumerate(names)})})")
    low, high = re.fullmatch(r"ε = ([0-9.]+) to ([0-9.]+)", chromium.run(shown)).groups()  # type: ignore[union-attr]
    assert float(low) < both.epsilon <= float(high)
    chromium.run(f"{enter}({json.dumps({f'value-{i}-1': usual[name] for i, name in enumerate(names)})})")
    whole = float(re.fullmatch(r"ε = ([0-9.]+)", chromium.run(shown)).group(1))  # type: ignore[union-attr]
    assert both.epsilon <= whole <= both.epsilon * 1.02
    assert chromium.too_wide() <= 0
    assert chromium.complaints == []
