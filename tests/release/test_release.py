"""The release folder: there and back, whole or not at all, and nothing believed unchecked."""

import hashlib
import json
import os
import shutil
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import numpy as np
import pyarrow as pa
import pytest
from checks import records_of, refused, rewritten, same_release
from conftest import ALL_TYPES, make_people, options_of
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from repsynth import Release, datasets, synthesize
from repsynth.errors import ReleaseError
from repsynth.io.sources import open_source
from repsynth.models.registry import MODELS
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings
from repsynth.privacy.events import MU_PER_ETA, SampledEvent
from repsynth.release.store import ReleaseFile, arrays_of
from repsynth.run.run import run
from repsynth.schema import Schema, parse_schema
from repsynth.scoring.weights import RULES

STAGE_ONE = ["count", "coarse histograms", "scores"]

Described = dict[str, Any]


def seeded(table: pa.Table, schema: Schema, **options: object) -> Release:
    """A release of seeded noise: the same each time."""
    settings = Settings.of(**{"model": "naive-bayes", **options})
    return run(make_plan(schema, settings), open_source(table), noise_seed=1)


@pytest.fixture
def release(people: pa.Table, schema: Schema) -> Release:
    return seeded(people, schema, epsilon=1.0, delta=1e-6)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a release of a model; made once, to be copied."""
    folders: dict[str, Path] = {}

    def folder_of(model: str) -> Path:
        if model not in folders:
            options = {"epsilon": 1.0, "delta": 1e-6, "model": model, **options_of(model)}
            made = seeded(make_people(400), parse_schema(ALL_TYPES), **options)
            folders[model] = made.save(tmp_path_factory.mktemp("saved") / "release")
        return folders[model]

    return folder_of


@pytest.mark.filterwarnings("ignore:small weights are assigned at random")
@pytest.mark.parametrize(
    ("rule", "model"),
    [
        *((rule, "naive-bayes") for rule in [*RULES, "random"]),
        *(("targeted", model) for model in MODELS if model != "naive-bayes"),
    ],
)
def test_there_and_back(model: str, rule: str, people: pa.Table, schema: Schema, tmp_path: Path) -> None:
    asked = Settings.of(epsilon=1.0, delta=1e-6, weights=rule, model=model, **options_of(model))
    release = synthesize(people, schema, settings=asked)
    check_there_and_back(release, people, tmp_path)
    assert release.plan.scorer.name == ("random" if rule == "random" else "rarity")


@pytest.mark.parametrize("model", list(MODELS))
def test_there_and_back_with_an_outlier_epsilon_and_public_rows(
    model: str, people: pa.Table, schema: Schema, tmp_path: Path
) -> None:
    asked = {"epsilon": 2.0, "delta": 1e-6, "outlier_epsilon": 1.0, "public_rows": 400}
    release = synthesize(people, schema, settings=Settings.of(model=model, **asked, **options_of(model)))
    assert release.plan.ceiling < 1
    check_there_and_back(release, people, tmp_path)


@pytest.mark.filterwarnings("ignore:without a label")
@pytest.mark.parametrize("model", list(MODELS))
def test_there_and_back_without_a_label(model: str, people: pa.Table, tmp_path: Path) -> None:
    schema = parse_schema(ALL_TYPES.replace('label = "smoker"', ""))
    asked = Settings.of(epsilon=1.0, model=model, **options_of(model))
    check_there_and_back(synthesize(people, schema, settings=asked), people, tmp_path)


def check_there_and_back(release: Release, table: pa.Table, folder: Path) -> None:
    """What is loaded is what was saved, does the same, and is saved as the same bytes."""
    loaded = Release.load(release.save(folder / "release"))
    assert same_release(loaded, release)
    assert loaded.plan == release.plan
    assert loaded.sample(30, seed=2).equals(release.sample(30, seed=2))
    records = records_of(table, release.schema)
    assert np.array_equal(loaded.score.of(records), release.score.of(records))
    assert np.array_equal(loaded.influence(records), release.influence(records))
    assert loaded.privacy.epsilon == release.privacy.epsilon
    assert loaded.privacy.distribution() == release.privacy.distribution()
    loaded.save(folder / "again")
    for name in ("release.json", "arrays.npz"):
        assert (folder / "again" / name).read_bytes() == (folder / "release" / name).read_bytes()


def test_the_json_follows_its_schema(release: Release, tmp_path: Path) -> None:
    release.save(tmp_path / "release")
    jsonschema.validate(
        json.loads((tmp_path / "release" / "release.json").read_text()), msgspec.json.schema(ReleaseFile)
    )


def test_only_plain_arrays_no_pickle(release: Release, tmp_path: Path) -> None:
    folder = release.save(tmp_path / "release")
    assert sorted(path.name for path in folder.iterdir()) == ["arrays.npz", "release.json"]
    with np.load(folder / "arrays.npz", allow_pickle=False) as arrays:
        assert {arrays[name].dtype.kind for name in arrays.files} <= {"i", "f"}


def test_a_release_is_never_overwritten(release: Release, tmp_path: Path) -> None:
    release.save(tmp_path / "release")
    with pytest.raises(ReleaseError, match="already exists"):
        release.save(tmp_path / "release")


def test_a_failed_save_leaves_nothing(release: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(ReleaseError, match="No space left"):
        release.save(tmp_path / "release")
    assert list(tmp_path.iterdir()) == []


def test_not_a_release(tmp_path: Path) -> None:
    refused(tmp_path / "absent", "cannot be read")
    (tmp_path / "release.json").write_text("{}")
    refused(tmp_path, r"arrays\.npz: cannot be read")
    (tmp_path / "arrays.npz").write_bytes(b"")
    refused(tmp_path, "damaged")
    _edit(tmp_path, {"arrays_sha256": hashlib.sha256(b"").hexdigest()})
    refused(tmp_path, "damaged")
    np.savez(tmp_path / "arrays.npz", weights=np.array([1]))
    _edit(tmp_path, {"arrays_sha256": hashlib.sha256((tmp_path / "arrays.npz").read_bytes()).hexdigest()})
    refused(tmp_path, "damaged")


@pytest.mark.parametrize("number", [3, 4, 99])
def test_a_release_of_another_version_is_refused_in_one_line(
    number: int, release: Release, tmp_path: Path
) -> None:
    folder = release.save(tmp_path / "release")
    _edit(folder, {"format": number})
    with pytest.raises(ReleaseError) as refused:
        Release.load(folder)
    assert str(refused.value) == (
        f"{folder}: written by another version of repsynth (format {number}); this one reads format 6: read it "
        "with that version, or make it again"
    )


@pytest.mark.parametrize("borrowed", [False, True])
def test_a_release_must_declare_its_unit_of_privacy(borrowed: bool, people: pa.Table, tmp_path: Path) -> None:
    """Its own schema, and that of a release that its scores come from."""
    schema = parse_schema(ALL_TYPES)
    asked = {"epsilon": 2.0, "delta": 1e-6, "model": "naive-bayes", "weights": "targeted"}
    release = synthesize(people, schema, **asked)
    if borrowed:
        release = synthesize(people, schema, **asked, scores_from=release)
    folder = release.save(tmp_path / "release")
    described = json.loads((folder / "release.json").read_text())
    file = described["scores_from"]["described"] if borrowed else described
    del file["schema"]["one_row_per_person"]
    _edit(folder, described)
    refused(folder, "its schema does not declare the unit of privacy")


@pytest.mark.parametrize(
    ("pairs", "why"),
    [
        ([[10, 11]], "a table is not known"),
        ([[0, 1], [1, 2], [0, 2]], "do not fit"),
        ([[0, 0]], "not known"),
        ([[0, 9]], "not known"),
        ([[0, 30]], "not known"),
        ([[0, 1], [0, 1]], "twice"),
        ([], "twice"),
    ],
)
def test_tables_that_a_run_could_not_have_measured_are_refused(
    pairs: list[list[int]], why: str, sim: datasets.Dataset, tmp_path: Path
) -> None:
    release = seeded(sim.table, sim.schema, epsilon=4.0, public_rows=6000, model="mst", weights="uniform")
    first = release.fit.measured[0].tables  # type: ignore[attr-defined]
    tables = [first.describe(), {"name": "tables", "pairs": pairs}]
    folder = rewritten(release, tmp_path / "release", {}, fit={"tables": tables})
    refused(folder, why)


def test_an_event_of_another_kind_is_refused(sim: datasets.Dataset, tmp_path: Path) -> None:
    release = seeded(sim.table, sim.schema, epsilon=4.0, public_rows=6000, model="mst")
    events = json.loads((release.save(tmp_path / "whole") / "release.json").read_text())["events"]
    (place,) = [k for k, event in enumerate(events) if event["name"] == "scores"]
    charge = release.events[place].mu  # type: ignore[union-attr]
    events[place] = {"kind": "exponential", "name": "scores", "eta": charge / MU_PER_ETA, "rounds": 1}
    refused(rewritten(release, tmp_path / "release", {}, events=events), "kind")


def tampered(folder: Path, copy: Path, change: Callable[[Described], None]) -> Path:
    """A copy of a release after somebody edited its release.json."""
    shutil.copytree(folder, copy)
    described = json.loads((copy / "release.json").read_text())
    before = json.dumps(described)
    change(described)
    assert json.dumps(described) != before
    (copy / "release.json").write_text(json.dumps(described))
    return copy


def named(entries: list[Described], name: str) -> Described:
    (entry,) = [entry for entry in entries if entry["name"] == name]
    return entry


def without(entries: list[Described], name: str) -> list[Described]:
    return [entry for entry in entries if entry["name"] != name]


def test_what_nobody_tampered_with_is_loaded(saved: Callable[[str], Path], tmp_path: Path) -> None:
    def change(described: Described) -> None:
        described["repsynth"] = "0.0.1"

    Release.load(tampered(saved("naive-bayes"), tmp_path / "copy", change))


@pytest.mark.parametrize(
    ("model", "name", "where"),
    [
        *(("naive-bayes", name, where) for name in STAGE_ONE for where in ("events", "charges", "both")),
        *((model, STAGE_ONE[-1], "both") for model in MODELS if model != "naive-bayes"),
    ],
)
def test_weights_where_every_record_pays_in_full_are_refused(
    model: str,
    name: str,
    where: str,
    saved: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Even if nobody compared the charges with the settings."""
    monkeypatch.setattr("repsynth.release.verify._check_charges", lambda *plan, **known: None)

    def change(described: Described) -> None:
        if where != "charges":
            named(described["events"], name)["weighted"] = True
        if where != "events":
            named(described["plan"]["charges"], name)["weighted"] = True

    why = "claims weights for an unweighted" if where == "both" else "is weighted and its charge is not"
    refused(tampered(saved(model), tmp_path / "copy", change), why)


@pytest.mark.parametrize("model", list(MODELS))
def test_a_smaller_claimed_sensitivity_is_noticed(
    model: str, saved: Callable[[str], Path], tmp_path: Path
) -> None:
    """At the same charge, for every measurement that has one."""
    events = [event for event in Release.load(saved(model)).events if hasattr(event, "sensitivity")]
    assert len(events) >= 4
    for event in events:

        def change(described: Described, name: str = event.name) -> None:
            for number in ("sensitivity", "sigma"):
                named(described["events"], name)[number] *= 0.999999

        why = "training is not the planned one" if isinstance(event, SampledEvent) else "smaller sensitivity"
        refused(tampered(saved(model), tmp_path / event.name, change), why)


@pytest.mark.parametrize("model", list(MODELS))
def test_a_charge_left_out_is_noticed(model: str, saved: Callable[[str], Path], tmp_path: Path) -> None:
    """Of what was planned, of what happened, and of both."""
    plan = Release.load(saved(model)).plan
    for name in plan.steps:

        def from_plan(described: Described, name: str = name) -> None:
            planned = described["plan"]
            if planned["training"] and planned["training"]["name"] == name:
                planned["training"] = None
            planned["charges"] = without(planned["charges"], name)

        def from_events(described: Described, name: str = name) -> None:
            described["events"] = without(described["events"], name)

        def from_both(described: Described, name: str = name) -> None:
            from_plan(described, name)
            from_events(described, name)

        for k, change in enumerate((from_plan, from_events, from_both)):
            why = "damaged" if change is from_both else "do not fit its plan|do not match its budget"
            refused(tampered(saved(model), tmp_path / f"{name} {k}", change), why)


@pytest.mark.parametrize("model", list(MODELS))
def test_charges_above_the_budget_are_refused(model: str, saved: Callable[[str], Path], tmp_path: Path) -> None:
    too_much = "training does not cost" if model == "autoregressive" else "charges exceed its budget"

    def larger_charges(described: Described) -> None:
        for charge in described["plan"]["charges"]:
            charge["mu"] *= 1.01
        for event in described["events"]:
            if event["kind"] == "gaussian":
                event["sigma"] /= 1.01
            elif event["kind"] == "exponential":
                event["eta"] *= 1.01
            else:
                event["sigma"] /= 1.1
                described["plan"]["training"]["sigma"] /= 1.1

    def smaller_budget(described: Described) -> None:
        plan = described["plan"]
        if plan["budget"]["mu"] is None:  # a training has none
            plan["budget"]["epsilon"] *= 0.9
            plan["settings"]["epsilon"] = plan["budget"]["epsilon"]
            return
        plan["budget"]["mu"] *= 0.9
        del plan["settings"]["epsilon"]
        plan["settings"]["mu"] = plan["budget"]["mu"]

    for change in (larger_charges, smaller_budget):
        refused(tampered(saved(model), tmp_path / change.__name__, change), too_much)

    def less_noise(described: Described) -> None:
        described["events"][0]["sigma"] *= 0.99

    refused(tampered(saved(model), tmp_path / "less", less_noise), "its events do not match its charges")


@settings(max_examples=60)
@given(which=st.sampled_from(["release.json", "arrays.npz"]), data=st.data())
def test_damage_gives_a_clear_error(which: str, data: st.DataObject, saved: Callable[[str], Path]) -> None:
    folder = saved("naive-bayes")
    original = (folder / which).read_bytes()
    position = data.draw(st.integers(0, len(original) - 4))  # the last line end may be missing
    cut = data.draw(st.booleans())
    damaged = original[:position] if cut else original[:position] + b"\x00\xff" + original[position + 2 :]
    assume(damaged != original)
    try:
        (folder / which).write_bytes(damaged)
        with pytest.raises(ReleaseError):
            Release.load(folder)
    finally:
        (folder / which).write_bytes(original)


@pytest.mark.parametrize("which", ["release.json", "arrays.npz"])
def test_a_pipe_or_a_device_is_not_read(which: str, release: Release, tmp_path: Path) -> None:
    folder = release.save(tmp_path / "release")
    (folder / which).unlink()
    os.mkfifo(folder / which)
    refused(folder, "cannot be read")
    (folder / which).unlink()
    (folder / which).symlink_to("/dev/zero")
    refused(folder, "cannot be read")


def test_an_array_that_claims_to_be_huge_is_not_allocated(release: Release, tmp_path: Path) -> None:
    folder = release.save(tmp_path / "release")
    header = BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<i8", "fortran_order": False, "shape": (2**42,)})
    with zipfile.ZipFile(folder / "arrays.npz", "w") as archive:
        archive.writestr("sums.npy", header.getvalue())
    _edit(folder, {"arrays_sha256": hashlib.sha256((folder / "arrays.npz").read_bytes()).hexdigest()})
    refused(folder, r"arrays.npz cannot be read")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("weights", lambda array: array + 5000),
        ("weights", lambda array: np.full_like(array, -(2**63))),
        ("coarse_counts", lambda array: np.full_like(array, -(2**63))),
        ("sums", lambda array: array[:-1]),
        ("sums", lambda array: array.astype(np.float64)),
    ],
)
def test_arrays_that_do_not_fit_are_noticed(
    name: str, change: Callable[[np.ndarray], np.ndarray], release: Release, tmp_path: Path
) -> None:
    folder = release.save(tmp_path / "release")
    with np.load(folder / "arrays.npz") as loaded:
        arrays = {key: loaded[key] for key in loaded.files}
    with np.errstate(all="ignore"):
        arrays[name] = change(arrays[name])
    np.savez(folder / "arrays.npz", **arrays)  # type: ignore[arg-type]
    _edit(folder, {"arrays_sha256": hashlib.sha256((folder / "arrays.npz").read_bytes()).hexdigest()})
    refused(folder, "damaged")


def test_the_release_holds_no_exact_count(people: pa.Table, schema: Schema) -> None:
    """Every array that depends on the data changes with the noise alone; two agree with a chance below 1e-13."""
    options = {"epsilon": 1.0, "delta": 1e-6, "model": "naive-bayes"}
    one, two = (arrays_of(synthesize(people, schema, **options)) for _ in range(2))
    for name in ("coarse_counts", "refined_counts", "fine_counts", "sums", "threshold_counts"):
        assert not np.array_equal(one[name], two[name]), name


def _edit(folder: Path, change: dict[str, object]) -> None:
    described = json.loads((folder / "release.json").read_text())
    (folder / "release.json").write_text(json.dumps({**described, **change}))


@pytest.mark.parametrize("model", list(MODELS))
def test_a_measurement_cannot_pass_for_a_choice(
    model: str, saved: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A choice has no sensitivity to be checked, and may be scaled by weights. Even if nobody compared the charges
    with the settings."""
    monkeypatch.setattr("repsynth.release.verify._check_charges", lambda *plan, **known: None)
    for name in ("count", "scores", "coarse histograms"):
        if name not in Release.load(saved(model)).plan.charges:
            continue

        def change(described: Described, name: str = name) -> None:
            charge, event = named(described["plan"]["charges"], name), named(described["events"], name)
            eta = charge["mu"] / MU_PER_ETA
            charge |= {"choice": True, "weighted": True}
            event.clear()
            event |= {"kind": "exponential", "name": name, "eta": eta, "rounds": 1, "weighted": True}

        refused(tampered(saved(model), tmp_path / name, change), "kind")


@pytest.mark.parametrize("model", ["mst", "aim"])
def test_a_choice_cannot_claim_fewer_rounds_than_it_made(model: str, tmp_path: Path) -> None:
    made = seeded(make_people(400), parse_schema(ALL_TYPES), mu=20.0, delta=1e-6, model=model)
    folder = made.save(tmp_path / "sound")
    chosen = [name for name, choice in Release.load(folder).fit.choices().items() if choice.made > 1]
    assert chosen

    def change(described: Described) -> None:
        for name in chosen:  # the same charge, all of it for one round
            event = named(described["events"], name)
            event |= {"rounds": 1, "eta": event["eta"] * event["rounds"] ** 0.5}

    refused(tampered(folder, tmp_path / "release", change), "fewer rounds")


def test_a_training_far_beyond_its_budget_is_refused_without_working_it_out(
    saved: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To compose it would take all memory."""

    def change(described: Described) -> None:
        for event in (described["events"][-1], described["plan"]["training"]):
            event |= {"rounds": 10_000, "rate": 1.0, "sigma": 0.2501 * event["sensitivity"]}

    folder = tampered(saved("autoregressive"), tmp_path / "release", change)
    monkeypatch.setattr("repsynth.privacy.pld._accountant", lambda *_: pytest.fail("it was worked out"))
    refused(folder, "does not cost what its budget says")


HEADERS = [
    b"{'descr': '<i8', 'fortran_order': False, 'shape': (1,), ",
    *(b"'''", b"[" * 9000, b"-" * 9000 + b"1", b"{[]:1}", b"\xff\x00", b"("),
]


@pytest.mark.parametrize("header", HEADERS, ids=range(len(HEADERS)))
def test_a_hostile_array_is_a_clear_error(header: bytes, saved: Callable[[str], Path], tmp_path: Path) -> None:
    source = saved("naive-bayes")
    out = BytesIO()
    with zipfile.ZipFile(source / "arrays.npz") as archive, zipfile.ZipFile(out, "w") as changed:
        for name in archive.namelist():
            content = archive.read(name)
            if name == "weights.npy":
                content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + content[-8:]
            changed.writestr(name, content)
    refused(with_arrays(source, tmp_path / "release", out.getvalue()), "cannot be read")


def test_a_damaged_compression_is_a_clear_error(saved: Callable[[str], Path], tmp_path: Path) -> None:
    source = saved("naive-bayes")
    out = BytesIO()
    with zipfile.ZipFile(source / "arrays.npz") as archive, zipfile.ZipFile(out, "w", zipfile.ZIP_LZMA) as changed:
        for name in archive.namelist():
            changed.writestr(name, archive.read(name))
    packed = bytearray(out.getvalue())
    for k in range(60, 90):
        packed[k] ^= 0x5A
    refused(with_arrays(source, tmp_path / "release", bytes(packed)), "cannot be read")


def with_arrays(source: Path, folder: Path, packed: bytes) -> Path:
    """The release with another file of arrays, and the digest that goes with it."""
    folder.mkdir()
    described = json.loads((source / "release.json").read_text())
    described["arrays_sha256"] = hashlib.sha256(packed).hexdigest()
    (folder / "release.json").write_text(json.dumps(described))
    (folder / "arrays.npz").write_bytes(packed)
    return folder


SETTINGS = [
    *({"mu": 3.0}, {"epsilon": None, "mu": 3.0}, {"epsilon": 0.9}, {"epsilon": None}, {"delta": 1e-7}),
    *({"outlier_epsilon": -1.0}, {"outlier_fraction": 7.0}, {"public_rows": 5}, {"weights": "odd"}),
    *({"weights": {"name": "odd"}}, {"model": {"name": "mst"}}, {"odd": 1}),
]
FORGED: list[tuple[list[str], Described, str]] = [
    *(([], {name: value}, "damaged") for name, value in [
        *(("rows", -1.0), ("rows", "many"), ("clip", 0), ("events", []), ("threshold", None), ("kind", "csv")),
        *(("schema", {"columns": {}}), ("extra", 1), ("arrays_sha256", "0" * 64), ("weights_start", 10**30)),
    ]),
    *(([], {"format": version}, "another version|damaged") for version in (2, -7, 3.5, None)),
    ([], {"repsynth": "a \x1b[31mred one"}, "has a control character"),
    (["plan", "settings"], {"model": ...}, "model is not named"),
    *((["plan", "settings"], change, "damaged") for change in SETTINGS),
    *((["plan", "budget"], {"mu": mu}, "damaged") for mu in (1.0, -1.0)),
    *((["plan", "budget"], {"delta": delta}, "damaged") for delta in (1e-7, 0.0)),
]  # fmt: skip


@pytest.mark.parametrize(("path", "change", "why"), FORGED, ids=str)
def test_a_forged_description_is_refused(
    path: list[str], change: Described, why: str, saved: Callable[[str], Path], tmp_path: Path
) -> None:
    def forge(described: Described) -> None:
        for name in path:
            described = described[name]
        described |= change
        for name in (name for name, value in change.items() if value is ...):
            del described[name]

    refused(tampered(saved("naive-bayes"), tmp_path / "copy", forge), why)
