"""The page to choose a plan with: it needs nothing but itself, works in a browser, and saves what it shows."""

import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pytest
from browser import Browser, needs_axe, needs_browser
from made import nasty_schema, sim_release, wide_schema

from repsynth import Release, datasets, parse_schema, synthesize
from repsynth.cli import main
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings, read_settings
from repsynth.privacy.formatting import fixed_upper, upper
from repsynth.report.page import explore_page
from repsynth.schema import Schema

SIM = datasets.load("sim").schema


def write(folder: Path, schema: Schema, release: Release | None = None) -> Path:
    page = folder / "explore.html"
    page.write_text(explore_page(schema, release), encoding="utf-8")
    return page


@pytest.mark.parametrize("schema", [SIM, nasty_schema(), wide_schema()], ids=["sim", "nasty", "wide"])
def test_the_page_needs_no_network_and_is_small(schema: Schema) -> None:
    text = explore_page(schema)
    assert len(text.encode()) < 500_000
    outside = [link for link in re.findall(r"(?:src|href)=[\"']([^\"']*)", text) if not link.startswith("#")]
    assert outside == []
    assert set(re.findall(r"https?://[^\"' )<]+", text)) <= {"http://www.w3.org/2000/svg"}
    assert "alert(1)</script>" not in text
    assert len(re.findall(r"<script", text)) == 2


def test_the_page_holds_no_more_of_a_release_than_its_histogram_of_scores() -> None:
    text = explore_page(SIM, sim_release())
    (data,) = re.findall(r'id="facts">(.*?)</script>', text, re.DOTALL)
    assert set(json.loads(data)["release"]) == {"notes", "scores", "standard_error"}


def test_the_command_writes_the_page_and_nothing_over_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schema, output = tmp_path / "schema.toml", tmp_path / "explore.html"
    schema.write_text('one_row_per_person = true\n[columns.a]\ntype = "boolean"\n', encoding="utf-8")
    assert main(["explore", "--schema", str(schema), "-o", str(output), "--json"]) == 0
    said = {"output": str(output), "publishable": True, "bytes": output.stat().st_size}
    assert json.loads(capsys.readouterr().out) == said
    assert main(["explore", "--schema", str(schema), "-o", str(output)]) == 2
    assert "already exists" in capsys.readouterr().err
    assert main(["explore", "--schema", str(schema), "-o", str(tmp_path / "explore.pdf")]) == 2
    assert ".html" in capsys.readouterr().err
    assert main(["explore", "-o", str(tmp_path / "other.html")]) == 2
    assert "--schema" in capsys.readouterr().err
    schema.write_text(
        'one_row_per_person = true\nconfirmed = false\n[columns.a]\ntype = "boolean"\n', encoding="utf-8"
    )
    assert main(["explore", "--schema", str(schema), "-o", str(tmp_path / "other.html")]) == 2
    assert "unconfirmed" in capsys.readouterr().err
    assert not (tmp_path / "other.html").exists()


def test_a_release_brings_its_schema(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = sim_release().save(tmp_path / "release")
    assert main(["explore", "--release", str(folder), "-o", str(tmp_path / "explore.html")]) == 0
    assert "nothing was spent" in capsys.readouterr().out
    assert "at whose settings it starts" in (tmp_path / "explore.html").read_text(encoding="utf-8")


def test_what_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = tmp_path / "schema.toml"
    schema.write_text('one_row_per_person = true\n[columns.a]\ntype = "boolean"\n', encoding="utf-8")
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert main(["explore", "--schema", str(schema), "-o", str(tmp_path / "explore.html")]) == 2
    assert "repsynth[report]" in capsys.readouterr().err


SCRIPT = """(() => {
  const found = [];
  const at = (id) => document.getElementById(id);
  const note = (what) => found.push({
    what, cards: at("cards").innerText.replaceAll("\\n", " "), warnings: at("warnings").innerText,
    refusal: at("refusal").textContent, toml: at("toml").textContent, link: at("download").getAttribute("href"),
    wide: document.documentElement.scrollWidth - innerWidth,
  });
  const set = (id, value) => {
    const field = at(id), stops = JSON.parse(at("facts").textContent).stops[id];
    if (field.type === "checkbox") field.checked = value; else field.value = stops ? stops.indexOf(value) : value;
    for (const event of ["input", "change"]) field.dispatchEvent(new Event(event, { bubbles: true }));
    note(`${id} ${value}`);
  };
  note("start");
  STEPS
  return found;
})()"""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


def after(chromium: Browser, page: Path, steps: str) -> dict[str, dict[str, Any]]:
    """Return what the page shows after each step."""
    chromium.open(page, width=390)
    found = chromium.run(SCRIPT.replace("STEPS", steps))
    assert chromium.complaints == []
    return {each["what"]: each for each in found}


@needs_browser
def test_every_setting_changes_the_plan_that_is_saved(chromium: Browser, tmp_path: Path) -> None:
    page = write(tmp_path, SIM)
    steps = """
      set("epsilon", 3); set("delta", 1e-6); set("rows", 30000); set("rule", 1);
      set("fraction", 0.1); set("public", true); set("model", "mst"); set("rule", 0); set("rows", 100);
    """
    found = after(chromium, page, steps)
    before = None
    for what, each in found.items():
        assert each["wide"] <= 0
        text = unquote(each["link"].partition(",")[2])
        assert text == each["toml"], what
        assert (text == before) == (what == "rows 30000"), what  # not public yet
        before = text
        (tmp_path / "plan.toml").write_text(text, encoding="utf-8")
        plan = make_plan(SIM, Settings.of(**read_settings(tmp_path / "plan.toml")))
        everybody = fixed_upper(50 + 50 * float(plan.loss.advantage_at(1.0)), 1)
        assert f"at most {everybody} of 100 guesses are right" in each["cards"], what
        assert f"ε\u00a0=\u00a0{upper(plan.budget.epsilon)} for everyone" in each["cards"], what
        if plan.rule.uses_threshold:
            outliers = upper(float(plan.loss.epsilon_at(plan.rule.outlier_weight, plan.delta)), 3)  # type: ignore[attr-defined]
            assert f"ε\u00a0=\u00a0{outliers} for outliers" in each["cards"], what
    assert "mostly noise at this size" in found["rows 100"]["warnings"]
    assert "outliers" not in found["rule 0"]["cards"]
    assert "public_rows = 30000" in found["public true"]["toml"]
    assert "public_rows" not in found["fraction 0.1"]["toml"]


@needs_browser
def test_what_was_not_computed_is_refused(chromium: Browser, tmp_path: Path) -> None:
    release = synthesize(datasets.load("sim").table, SIM, epsilon=2.3, delta=3e-7, model="naive-bayes")
    found = after(chromium, write(tmp_path, SIM, release), 'set("model", "autoregressive"); set("model", "mst");')
    assert "epsilon = 2.3 " in found["start"]["toml"]
    assert "repsynth plan computes it for others" in found["model autoregressive"]["refusal"]
    assert found["model autoregressive"]["link"] is None
    assert found["model mst"]["refusal"] == ""


@needs_browser
@pytest.mark.parametrize("name", ["nasty", "wide", "release"])
def test_pages_of_all_kinds_work_in_a_browser_and_on_paper(name: str, chromium: Browser, tmp_path: Path) -> None:
    schema = {"nasty": nasty_schema(), "wide": wide_schema(), "release": SIM}[name]
    page = write(tmp_path, schema, sim_release() if name == "release" else None)
    found = after(chromium, page, 'set("rows", 1000); set("fraction", 0.1);')
    assert all(each["wide"] <= 0 for each in found.values())
    chromium.open(page)
    names = chromium.run("[...document.querySelectorAll('th[scope=row]')].map((it) => it.textContent)")
    assert [column.name for column in schema.learned if column.name not in names] == []
    if name == "wide":
        assert "'code' (3,000 values)" in found["start"]["warnings"]
    if name == "release":
        assert "epsilon = 2 " in found["start"]["toml"]
        assert "of the records have a score of" in chromium.run("document.body.innerText")
    assert chromium.complaints == []
    assert chromium.pdf(tmp_path / "explore.pdf").read_bytes().startswith(b"%PDF")


@needs_browser
def test_a_plan_that_was_made_with_the_keyboard_is_saved_and_run(chromium: Browser, tmp_path: Path) -> None:
    """Tab goes to the first slider, arrows move it, and what Enter on the link saves is what synthesize runs."""
    chromium.open(write(tmp_path, SIM))
    folder = tmp_path / "downloads"
    chromium.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder), eventsEnabled=False)
    chromium.press("Tab")
    assert chromium.run("document.activeElement.id") == "epsilon"
    for _ in range(3):
        chromium.press("ArrowRight")
    moved = 3.0
    assert chromium.run("document.getElementById('value-epsilon').textContent") == "ε = 3"
    chromium.run("document.getElementById('download').focus()")
    chromium.press("Enter")
    plan = folder / "plan.toml"
    for _ in range(300):
        if plan.exists() and plan.stat().st_size:
            break
        time.sleep(0.1)
    settings = Settings.of(**read_settings(plan))
    assert settings.epsilon == moved
    release = synthesize(datasets.load("sim").table, SIM, settings=plan)
    assert release.privacy.epsilon <= moved * (1 + 1e-9)
    assert chromium.complaints == []


STAYS = """
person = {column = "patient", rows = 3}
label = "icu"
columns.patient = {type = "id"}
columns.days = {type = "integer", min = 0, max = 60}
columns.icu = {type = "boolean"}
"""


def test_the_page_says_what_holds_for_persons_and_what_for_rows() -> None:
    text = explore_page(parse_schema(STAYS))
    assert "one person, who counts as 3 rows at most" in text
    assert "3 times the noise" in text
    assert "They hold for a person with all their rows" in text
    assert "Expected number of rows that count" in text
    assert '<label class="check" for="public" hidden>' in text
    alone = explore_page(parse_schema(STAYS.replace("rows = 3", "rows = 1")))
    assert "times the noise" not in alone
    assert '<label class="check" for="public">' in alone
    assert 'id="persons"' not in explore_page(SIM)


@needs_browser
def test_a_plan_for_persons_is_saved_and_run(chromium: Browser, tmp_path: Path) -> None:
    schema = parse_schema(STAYS)
    found = after(chromium, write(tmp_path, schema), 'set("model", "naive-bayes"); set("epsilon", 4);')
    assert "persons all of whose rows are outliers" in found["epsilon 4"]["cards"]
    (tmp_path / "plan.toml").write_text(unquote(found["epsilon 4"]["link"].partition(",")[2]), encoding="utf-8")
    stays = pa.table(
        {
            "patient": [n % 400 for n in range(2000)],
            "days": [n % 17 for n in range(2000)],
            "icu": [n % 5 == 0 for n in range(2000)],
        }
    )
    release = synthesize(stays, schema, settings=tmp_path / "plan.toml")
    assert release.schema.rows_per_person == 3
    assert release.privacy.epsilon <= 4.0 * (1 + 1e-9)


@needs_axe
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_everybody_can_read_it(chromium: Browser, width: int, dark: bool, tmp_path: Path) -> None:
    chromium.open(write(tmp_path, SIM, sim_release()), width=width, dark=dark)
    chromium.run("document.querySelectorAll('details').forEach((it) => { it.open = true; })")
    assert chromium.faults() == []
