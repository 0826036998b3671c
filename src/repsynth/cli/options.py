"""The options of every command. Flags, types and help follow from these classes.

This module imports neither NumPy nor a model. Settings of models, scorers and weight rules belong to their own
classes, which plug-ins can add to; they are read only for a command that plans a run.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, dataclass, fields, make_dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_type_hints

from cyclopts import Group, Parameter

from repsynth.data.reading import Reading
from repsynth.engines.opening import Place
from repsynth.knobs import Knob, knobs_of

_TABLE = Group("the table", sort_key=90)
_CLUSTER = Group("where sums are computed", sort_key=91)
_OUTPUT = Group("output", sort_key=92)

Tables = list[str]
"""Files, a folder, a 'pattern*', or the address of a database."""


def _flag(text: str, *names: str, metavar: str | None = None, group: Group | None = None) -> Parameter:
    more: dict[str, Any] = {"name": names or None, "metavar": metavar, "group": group}
    return Parameter(help=text, **{name: value for name, value in more.items() if value})


def _tables(text: str) -> Parameter:
    return Parameter(help=text, metavar="DATA", consume_multiple=True)


_Data = Annotated[Tables, _tables("the table: files, a folder, a 'pattern*', or the address of a database")]
_Train = Annotated[Tables | None, _tables("the table that the release was made from")]
_Holdout = Annotated[Tables | None, _tables("real rows that are not in the table")]
_ReleaseFolder = Annotated[Path, Parameter(help="release folder", metavar="RELEASE")]
_Ledger = Annotated[Path, Parameter(help="ledger file", metavar="DB")]
_Page = Annotated[Path, _flag("the page, an .html file", "--output", "-o", group=_OUTPUT)]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of every command."""

    more: ClassVar[tuple[Callable[[], Iterable[tuple[str, Any]]], ...]] = ()
    """Functions that give the name and type of further options."""
    first: ClassVar[str] = ""
    """The option that needs no flag."""

    json: Annotated[bool, _flag("print one JSON object, errors included", group=_OUTPUT)] = False

    def given(self, names: Iterable[str]) -> dict[str, Any]:
        """The options with these names that the user gave."""
        found = {name: getattr(self, name, None) for name in names}
        return {name: value for name, value in found.items() if value is not None and value is not False}

    @property
    def read(self) -> Reading:
        """How to read the table."""
        return Reading(**self.given(knob.name for knob in knobs_of(Reading)))


def _knob(knob: Knob, group: Group, help: str = "") -> tuple[str, Any]:
    kind = float if float in knob.kinds else int if int in knob.kinds else str
    extra = knob.meta.extra or {}
    flag = _flag(help + knob.describe(), extra.get("flag", knob.flag), metavar=extra.get("metavar"), group=group)
    return knob.name, Annotated[kind | None, flag]


def _reading() -> Iterator[tuple[str, Any]]:
    return (_knob(knob, _TABLE) for knob in knobs_of(Reading))


def _place() -> Iterator[tuple[str, Any]]:
    return (_knob(knob, _CLUSTER) for knob in knobs_of(Place))


def _settings() -> Iterator[tuple[str, Any]]:
    """The settings of a run, and those of every registered model, scorer and weight rule."""
    from repsynth.planning.settings import BUDGET, MODEL, OUTLIERS, PARTS, SPLIT, Settings

    groups = {title: Group(title, sort_key=i) for i, title in enumerate((BUDGET, OUTLIERS, SPLIT, MODEL))}
    own = {knob.name: knob for knob in knobs_of(Settings)}
    for name in Settings.__struct_fields__:
        if name in own:
            yield _knob(own[name], groups[(own[name].meta.extra or {})["group"]])
            continue
        registry, group = PARTS[name], groups[MODEL if name == "model" else OUTLIERS]
        kinds = "; ".join(f"{kind}: {_first_sentence(part)}" for kind, part in registry.items())
        default = Settings.__struct_defaults__[Settings.__struct_fields__.index(name)]
        usual = "by budget and schema" if default is None else default.name
        yield name, Annotated[str | None, _flag(f"{kinds} ({usual})", metavar="NAME", group=group)]
        for knob, owners in registry.knobs().values():
            yield _knob(knob, group, f"{', '.join(owners)}: ")


def _budget() -> Iterator[tuple[str, Any]]:
    return (found for found in _settings() if found[0] in ("epsilon", "mu", "rho", "delta"))


def _first_sentence(kind: type) -> str:
    text = (inspect.getdoc(kind) or "").split("\n\n")[0].replace("\n", " ").rstrip(".")
    return text.split(". ")[0].split(": ")[0] if len(text) > 70 else text


@dataclass(frozen=True, kw_only=True)
class Planned(Options):
    """Options of a command that plans a run."""

    schema: Annotated[Path, _flag("schema.toml: what is publicly known about the table")]
    plan: Annotated[
        Path | None, _flag("read settings from a file (plan --save); flags override it", metavar="TOML")
    ] = None
    scores_from: Annotated[
        Path | None,
        _flag(
            "an earlier release of a table with the same columns: use its scores and threshold at no cost",
            metavar="RELEASE",
        ),
    ] = None

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that the user gave as flags."""
        return self.given(name for name, _ in _settings())


@dataclass(frozen=True, kw_only=True)
class Paid(Options):
    """Options of a command that spends a budget."""

    ledger: Annotated[Path | None, _flag("budget ledger to spend from (ledger init)", metavar="DB")] = None
    dataset: Annotated[str | None, _flag("whose budget, if the ledger holds several")] = None


@dataclass(frozen=True, kw_only=True)
class DraftSchema(Paid):
    """Draft a schema from the data, to be confirmed by hand.

    Decides what each column is, says why, and writes a draft. The draft is read from the data, so it is not
    private until you have checked or replaced every bound and category.

    $ repsynth schema people.csv --label smoker -o schema.toml

    With --private, noisy measurements that cost ε find types, bounds and values. Only the names of the columns
    count as public. The schema may be published and needs no confirmation. It is coarser, and rare values are
    missing. Every release that is made with it includes its cost.

    $ repsynth schema people.csv --private --one-row-per-person --epsilon 0.2 --ledger ledger.db

    SDV's metadata of one table (JSON) can give the types. It has no bounds and no categories.

    $ repsynth schema people.csv --metadata metadata.json -o schema.toml
    $ repsynth schema schema.toml --to-sdv metadata.json
    """

    more = (_reading,)
    first = "data"
    _PRIVATE: ClassVar = Group("a measured schema", sort_key=1)

    data: _Data
    label: Annotated[str | None, _flag("the column that analysts will predict")] = None
    output: Annotated[Path, _flag("the schema (default: schema.toml)", "--output", "-o", group=_OUTPUT)] = Path(
        "schema.toml"
    )
    metadata: Annotated[Path | None, _flag("SDV's metadata of the table: types, ids, formats", metavar="JSON")] = (
        None
    )
    to_sdv: Annotated[
        Path | None, _flag("write SDV's metadata of the schema.toml named as DATA; read no table", metavar="JSON")
    ] = None
    private: Annotated[bool, _flag("measure the schema with noise", group=_PRIVATE)] = False
    epsilon: Annotated[float | None, _flag("the privacy loss of the measurements", group=_PRIVATE)] = None
    delta: Annotated[float | None, _flag("its δ (default: 1e-10)", group=_PRIVATE)] = None
    one_row_per_person: Annotated[
        bool, _flag("declare that nobody has more than one row; required", group=_PRIVATE)
    ] = False
    id: Annotated[
        list[str] | None,
        _flag("a column that identifies people and is not measured; repeatable", metavar="COLUMN", group=_PRIVATE),
    ] = None
    public_rows: Annotated[
        int | None, _flag("the number of rows, if public: refuse a hopeless budget", metavar="N", group=_PRIVATE)
    ] = None


@dataclass(frozen=True, kw_only=True)
class Check(Options):
    """See what a schema makes of a table: a PRIVATE look.

    Counts the cells that cannot be read, are clipped or count as missing, and says what to declare. Reads the
    table once, writes nothing and spends nothing. The output is PRIVATE.

    $ repsynth check people.csv --schema schema.toml
    """

    more = (_reading,)
    first = "data"

    data: _Data
    schema: Annotated[Path, _flag("schema.toml, confirmed or not")]


@dataclass(frozen=True, kw_only=True)
class Plan(Planned):
    """Show what a run would measure and cost; touches no data.

    $ repsynth plan --schema schema.toml --epsilon 1
    $ repsynth plan --schema schema.toml --epsilon 1 --outlier-epsilon 0.3 --save plan.toml
    """

    more = (_settings,)

    rows: Annotated[int, _flag("expected number of records, for display only (default: 10,000)")] = 10_000
    save: Annotated[Path | None, _flag("write the settings to a file, for --plan", metavar="TOML")] = None


@dataclass(frozen=True, kw_only=True)
class Synthesize(Planned, Paid):
    """Make a release and a synthetic table.

    Reads the data once, spends the budget, writes a release folder and a synthetic table. Run repsynth check
    first to see whether the schema fits the data.

    $ repsynth synthesize people.csv --schema schema.toml --epsilon 1
    $ repsynth synthesize people.csv --schema schema.toml --epsilon 1 --outlier-epsilon 0.3
    $ repsynth synthesize people.parquet --schema schema.toml --rho 0.02 -o synthetic.parquet
    $ repsynth synthesize people.csv --schema schema.toml --plan plan.toml
    """

    more = (_settings, _reading, _place)
    first = "data"

    data: _Data
    rows: Annotated[int | None, _flag("rows of the synthetic table (default: the released count)")] = None
    output: Annotated[
        Path | None, _flag("synthetic table (default: synthetic.csv)", "--output", "-o", group=_OUTPUT)
    ] = None
    release: Annotated[Path, _flag("release folder (default: release)", metavar="DIR", group=_OUTPUT)] = Path(
        "release"
    )


@dataclass(frozen=True, kw_only=True)
class Sample(Options):
    """Draw more synthetic rows from a release; costs nothing.

    $ repsynth sample release -n 1000 -o more.csv
    $ repsynth sample release --where 'sex = "F" and age < 40' -o women.parquet
    """

    first = "release"

    release: _ReleaseFolder
    rows: Annotated[int | None, _flag("number of rows (default: the released count)", "--rows", "-n")] = None
    output: Annotated[Path, _flag("a .csv or .parquet file", "--output", "-o", group=_OUTPUT)]
    label: Annotated[str | None, _flag("only rows with this value of the label", metavar="VALUE")] = None
    where: Annotated[
        str | None, _flag("only rows that meet this, such as 'sex = \"F\" and age < 40'", metavar="CONDITION")
    ] = None
    given_rows: Annotated[
        Path | None, _flag("complete these rows: a file with some of the columns", "--given", metavar="TABLE")
    ] = None
    ignore_rule: Annotated[
        list[int] | None, _flag("do not enforce this rule of the schema; repeatable", metavar="NUMBER")
    ] = None
    seed: Annotated[int | None, _flag("draw the same rows again; safe, as sampling is free")] = None


@dataclass(frozen=True, kw_only=True)
class Inspect(Options):
    """Show what a release cost, and how the loss is spread.

    $ repsynth inspect release
    """

    first = "release"

    release: _ReleaseFolder


@dataclass(frozen=True, kw_only=True)
class Report(Options):
    """Write a release as one page that everybody can read.

    The page opens in any browser. It says what the release promises, how the loss is spread and how exact the
    data are, and computes anybody's own bound. It is as public as the release.

    $ repsynth report release -o report.html

    With --curator, the page compares real with synthetic data and shows what each record loses. That page is
    PRIVATE, and its name must say so.

    $ repsynth report release --curator --train people.csv --holdout others.csv -o private-report.html
    """

    more = (_reading,)
    first = "release"

    release: _ReleaseFolder
    output: _Page
    curator: Annotated[bool, _flag("write the PRIVATE page for the curator")] = False
    train: _Train = None
    holdout: _Holdout = None
    attack: Annotated[Path | None, _flag("also show the results of repsynth attack", metavar="DIR")] = None


@dataclass(frozen=True, kw_only=True)
class Explore(Options):
    """Write a page to choose a plan with; touches no data.

    The page shows what a run would promise, measure and spend for the budget that you choose, and saves a
    plan.toml for repsynth synthesize --plan.

    $ repsynth explore --schema schema.toml -o explore.html
    $ repsynth explore --release release -o explore.html
    """

    schema: Annotated[Path | None, _flag("schema.toml, confirmed (default: the release's)")] = None
    release: Annotated[Path | None, _flag("release folder to start from", metavar="DIR")] = None
    output: _Page


@dataclass(frozen=True, kw_only=True)
class Risk(Options):
    """Write each record's own loss to a PRIVATE file for the curator.

    $ repsynth risk people.csv --release release -o dossier.parquet
    """

    more = (_reading,)
    first = "data"

    data: _Data
    release: Annotated[Path, _flag("release folder", metavar="DIR")]
    output: Annotated[Path, _flag("dossier, a .parquet file; PRIVATE", "--output", "-o", group=_OUTPUT)]
    show: Annotated[bool, _flag("also print its PRIVATE summary", group=_OUTPUT)] = False


@dataclass(frozen=True, kw_only=True)
class LedgerInit(Options):
    """Give a dataset its total budget, once.

    Each run then reserves its whole cost before it opens the data.

    $ repsynth ledger init ledger.db --epsilon 2 --delta 1e-9
    $ repsynth synthesize people.csv --schema schema.toml --epsilon 1 --ledger ledger.db
    """

    more = (_budget,)
    first = "ledger"

    ledger: _Ledger
    dataset: Annotated[str, _flag("its name in the ledger (default: data)")] = "data"


@dataclass(frozen=True, kw_only=True)
class LedgerShow(Options):
    """Show what was spent, by whom and when, and what remains.

    $ repsynth ledger show ledger.db
    """

    first = "ledger"

    ledger: _Ledger
    dataset: Annotated[str | None, _flag("only this one")] = None


@dataclass(frozen=True, kw_only=True)
class Audit(Planned):
    """Attack the mechanism and compare with its claims.

    Runs the mechanism many times on a table and on its neighbour. Reports what an attacker can prove, for each
    measurement and in all, about the most and the least outlying record and about planted canaries. Exit code 1
    if a claim is exceeded. With DATA, the output is PRIVATE.

    $ repsynth audit --schema schema.toml --epsilon 1
    """

    more = (_settings, _reading)
    first = "data"

    data: Annotated[
        Tables | None, Parameter(help="a table (default: one made up from the schema)", metavar="DATA")
    ] = None
    runs: Annotated[int, _flag("runs per record (default: 100,000)")] = 100_000


@dataclass(frozen=True, kw_only=True)
class Evaluate(Options):
    """Measure what a synthetic table is good for: a PRIVATE look.

    Compares the tables, predicts from them, tries to tell them apart, and shows which groups lose most. Each
    measure is printed next to its best value and to what two halves of the real table give. All of it is PRIVATE.

    $ repsynth evaluate --train people.csv --synthetic synthetic.csv --holdout others.csv --schema schema.toml
    $ repsynth evaluate --train people.csv --release release -o private

    With a release alone, it prints the errors that follow from the released noise. They may be published.

    $ repsynth evaluate --release release
    """

    more = (_reading,)

    train: _Train = None
    synthetic: Annotated[
        Tables | None, _tables("the synthetic table, as repsynth writes it (default: drawn from the release)")
    ] = None
    holdout: _Holdout = None
    schema: Annotated[Path | None, _flag("schema.toml (default: the release's)")] = None
    release: Annotated[Path | None, _flag("release folder; alone, it needs no table", metavar="DIR")] = None
    label: Annotated[str | None, _flag("the column to predict (default: the schema's label)")] = None
    output: Annotated[
        Path | None, _flag("folder for all numbers; PRIVATE", "--output", "-o", metavar="DIR", group=_OUTPUT)
    ] = None


@dataclass(frozen=True, kw_only=True)
class Attack(Planned):
    """See who could still be found: a PRIVATE look.

    Puts records from all deciles of outlyingness into a run, or not, by the toss of a coin. Attackers guess which.
    They see a synthetic table, know the method, can run it, or see the released numbers. Compares the plan with
    uniform weights at the same budget, and each attack with the best that the account allows. Spends and releases
    nothing. The output is PRIVATE. Started again, it resumes. Exit code 1 if an attack proves more than is
    claimed.

    $ repsynth attack --train people.csv --holdout others.csv --schema schema.toml --epsilon 1 -o attack
    $ repsynth attack --train people.csv --schema schema.toml --plan plan.toml --targets 200 --runs 256 -o attack
    """

    more = (_settings, _reading)

    train: Annotated[Tables, _tables("the table")]
    holdout: _Holdout = None
    targets: Annotated[int, _flag("records under attack (default: 100)", metavar="N")] = 100
    runs: Annotated[int, _flag("runs of each method (default: 64)", metavar="K")] = 64
    jobs: Annotated[int | None, _flag("processes (default: all processors)", metavar="J")] = None
    power: Annotated[bool, _flag("also attack without noise: an attack that fails there proves nothing")] = False
    seed: Annotated[int, _flag("choice of the targets, and coins (default: 0)")] = 0
    output: Annotated[Path, _flag("folder for all runs; PRIVATE", "--output", "-o", metavar="DIR", group=_OUTPUT)]


@dataclass(frozen=True, kw_only=True)
class Demo(Options):
    """Run everything once on simulated data.

    $ repsynth demo -o demo
    """

    output: Annotated[Path, _flag("folder for all files (default: demo)", "--output", "-o", group=_OUTPUT)] = Path(
        "demo"
    )


@dataclass(frozen=True, kw_only=True)
class Completion(Options):
    """Print a script that makes a shell complete commands and flags.

    $ repsynth completion bash > ~/.local/share/bash-completion/completions/repsynth
    $ repsynth completion fish > ~/.config/fish/completions/repsynth.fish
    """

    first = "shell"

    shell: Annotated[Literal["bash", "zsh", "fish", "powershell"], Parameter(help="the shell")]


COMMANDS: dict[str, type[Options]] = {
    "schema": DraftSchema,
    "check": Check,
    "plan": Plan,
    "synthesize": Synthesize,
    "sample": Sample,
    "inspect": Inspect,
    "report": Report,
    "explore": Explore,
    "risk": Risk,
    "ledger init": LedgerInit,
    "ledger show": LedgerShow,
    "audit": Audit,
    "evaluate": Evaluate,
    "attack": Attack,
    "demo": Demo,
    "completion": Completion,
}


def parser_of(kind: type[Options]) -> Callable[..., Options]:
    """Return a function whose parameters are a command's options and which returns them as one value."""
    further = [(name, hint, None) for more in kind.more for name, hint in more()]
    whole = make_dataclass(
        kind.__name__, further, bases=(kind,), frozen=True, kw_only=True, namespace={"__module__": __name__}
    )
    hints = get_type_hints(whole, include_extras=True)
    found = sorted(fields(whole), key=lambda each: each.name != kind.first)

    def parse(*words: Any, **flags: Any) -> Options:
        options: Options = whole(**(dict.fromkeys([kind.first], *words) if words else {}), **flags)
        return options

    parse.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(
                each.name,
                inspect.Parameter.POSITIONAL_ONLY if each.name == kind.first else inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if each.default is MISSING else each.default,
                annotation=hints[each.name],
            )
            for each in found
        ]
    )
    return parse
