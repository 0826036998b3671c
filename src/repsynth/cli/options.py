"""The options of every command. Flags, types and help follow from these classes.

`Annotated` holds the type of an option, its help and, where needed, its flags, the name of its value and a group.
This module imports neither NumPy nor a model. Settings of models, scorers and weight rules belong to their own
classes, which plug-ins can add to; they are read only for a command that plans a run.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, dataclass_transform, get_args, get_origin, get_type_hints

from cyclopts import Group, Parameter

from repsynth.engine import Place
from repsynth.io.reading import ReadOptions
from repsynth.knobs import Knob, knobs_of

_TABLE = Group("the table", sort_key=90)
_CLUSTER = Group("where sums are computed", sort_key=91)
_OUTPUT = Group("output", sort_key=92)
_SAVED = {"output", "json", "show", "save", "full"}
"""Options that say where the output goes."""

More = Callable[[], Iterable[tuple[str, Any]]]
"""A function that gives the names and types of options."""

Tables = list[str]
"""Files, a folder, a 'pattern*', or the address of a database."""


def _tables(text: str) -> Parameter:
    return Parameter(help=text, metavar="DATA", consume_multiple=True)


_Data = Annotated[Tables, _tables("the table: files, a folder, a 'pattern*', or the address of a database")]
_Train = Annotated[Tables | None, _tables("the table that the release was made from")]
_Holdout = Annotated[Tables | None, _tables("real rows that are not in the table")]
_ReleaseFolder = Annotated[Path, Parameter(help="release folder", metavar="RELEASE")]
_Ledger = Annotated[Path, Parameter(help="ledger file", metavar="DB")]
_Page = Annotated[Path, "the page, an .html file"]


@dataclass_transform(frozen_default=True, kw_only_default=True)
@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of every command. Subclasses are frozen dataclasses."""

    first: ClassVar[str]
    """The option that needs no flag."""
    more: ClassVar[tuple[More, ...]]
    """Functions that give further options."""

    json: Annotated[bool, "print one JSON object, errors included"] = False

    def __init_subclass__(cls, *, first: str = "", more: tuple[More, ...] = ()) -> None:
        cls.first, cls.more = first, more
        dataclass(frozen=True, kw_only=True)(cls)

    def given(self, names: Iterable[str]) -> dict[str, Any]:
        """The options with these names that the user gave."""
        found = {name: getattr(self, name, None) for name in names}
        return {name: value for name, value in found.items() if value is not None and value is not False}

    @property
    def read(self) -> ReadOptions:
        """How to read the table."""
        return ReadOptions(**self.given(knob.name for knob in knobs_of(ReadOptions)))


def _knob(knob: Knob, group: Group, help: str = "") -> tuple[str, Any]:
    kind = float if float in knob.kinds else int if int in knob.kinds else str
    extra = knob.meta.extra or {}
    names = extra.get("flag", knob.flag)
    flag = Parameter(names, help=help + knob.describe(), metavar=extra.get("metavar"), group=group)
    return knob.name, Annotated[kind | None, flag]


def _reading() -> Iterator[tuple[str, Any]]:
    return (_knob(knob, _TABLE) for knob in knobs_of(ReadOptions))


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
        yield name, Annotated[str | None, f"{kinds} ({usual})", "NAME", group]
        for knob, owners in registry.knobs().values():
            yield _knob(knob, group, f"{', '.join(owners)}: ")


def _budget() -> Iterator[tuple[str, Any]]:
    return (found for found in _settings() if found[0] in ("epsilon", "mu", "rho", "delta"))


def _first_sentence(kind: type) -> str:
    text = (inspect.getdoc(kind) or "").split("\n\n")[0].replace("\n", " ").rstrip(".")
    return text.split(". ")[0].split(": ")[0] if len(text) > 70 else text


class Planned(Options):
    """Options of a command that plans a run."""

    schema: Annotated[Path, "schema.toml: what is publicly known about the table"]
    plan: Annotated[Path | None, "read settings from a file (plan --save); flags override it", "TOML"] = None
    scores_from: Annotated[
        Path | None, "use the scores and threshold of an earlier release of such a table; costs nothing", "RELEASE"
    ] = None

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that the user gave as flags."""
        from repsynth.planning.settings import PARTS, keywords

        return self.given([*PARTS, *keywords()])


class Paid(Options):
    """Options of a command that spends a budget."""

    ledger: Annotated[Path | None, "budget ledger to spend from (ledger init)", "DB"] = None
    dataset: Annotated[str | None, "whose budget, if the ledger holds several"] = None


class Screened(Options):
    """Options of a command whose first screen has the answer alone."""

    full: Annotated[bool, "print everything, not the first screen alone"] = False


class DraftSchema(Paid, first="data", more=(_reading,)):
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

    _PRIVATE: ClassVar = Group("a measured schema", sort_key=1)

    data: _Data
    label: Annotated[str | None, "the column that analysts will predict"] = None
    output: Annotated[Path, "the schema (default: schema.toml)"] = Path("schema.toml")
    metadata: Annotated[Path | None, "SDV's metadata of the table: types, ids, formats", "JSON"] = None
    to_sdv: Annotated[
        Path | None, "write SDV's metadata of the schema.toml named as DATA; read no table", "JSON"
    ] = None
    private: Annotated[bool, "measure the schema with noise", _PRIVATE] = False
    epsilon: Annotated[float | None, "the privacy loss of the measurements", _PRIVATE] = None
    delta: Annotated[float | None, "its δ (default: 1e-10)", _PRIVATE] = None
    one_row_per_person: Annotated[bool, "declare that nobody has more than one row; required", _PRIVATE] = False
    id: Annotated[
        list[str] | None, "a column that identifies people and is not measured; repeatable", "COLUMN", _PRIVATE
    ] = None
    public_rows: Annotated[
        int | None, "the number of rows, if public: refuse a hopeless budget", "N", _PRIVATE
    ] = None


class Check(Screened, first="data", more=(_reading,)):
    """See what a schema makes of a table: a PRIVATE look.

    Counts the cells that cannot be read, are clipped or count as missing, and says what to declare. Reads the
    table once, writes nothing and spends nothing. The output is PRIVATE.

    $ repsynth check people.csv --schema schema.toml
    """

    data: _Data
    schema: Annotated[Path, "schema.toml, confirmed or not"]


class PlanCommand(Screened, Planned, more=(_settings,)):
    """Show what a run would measure and cost; touches no data.

    $ repsynth plan --schema schema.toml --epsilon 1
    $ repsynth plan --schema schema.toml --epsilon 1 --outlier-epsilon 0.3 --save plan.toml
    """

    rows: Annotated[int, "expected number of people, for display only (default: 10,000)"] = 10_000
    save: Annotated[Path | None, "write the settings to a file, for --plan", "TOML"] = None


class Synthesize(Planned, Paid, first="data", more=(_settings, _reading, _place)):
    """Make a release and a synthetic table.

    Reads the data once, spends the budget, writes a release folder and a synthetic table. Run repsynth check
    first to see whether the schema fits the data.

    $ repsynth synthesize people.csv --schema schema.toml --epsilon 1
    $ repsynth synthesize people.csv --schema schema.toml --epsilon 1 --outlier-epsilon 0.3
    $ repsynth synthesize people.parquet --schema schema.toml --rho 0.02 -o synthetic.parquet
    $ repsynth synthesize people.csv --schema schema.toml --plan plan.toml
    """

    data: _Data
    rows: Annotated[int | None, "rows of the synthetic table (default: the released count)"] = None
    output: Annotated[Path | None, "synthetic table (default: synthetic.csv)"] = None
    release: Annotated[Path, "release folder (default: release)", "DIR"] = Path("release")


class Sample(Options, first="release"):
    """Draw more synthetic rows from a release; costs nothing.

    $ repsynth sample release -n 1000 -o more.csv
    $ repsynth sample release --where 'sex = "F" and age < 40' -o women.parquet
    """

    release: _ReleaseFolder
    rows: Annotated[int | None, "number of rows (default: the released count)", "--rows", "-n"] = None
    output: Annotated[Path, "a .csv or .parquet file"]
    label: Annotated[str | None, "only rows with this value of the label", "VALUE"] = None
    where: Annotated[str | None, "only rows that meet this, such as 'sex = \"F\" and age < 40'", "CONDITION"] = (
        None
    )
    given_rows: Annotated[
        Path | None, "complete these rows: a file with some of the columns", "--given", "TABLE"
    ] = None
    ignore_rule: Annotated[list[int] | None, "do not enforce this rule of the schema; repeatable", "NUMBER"] = None
    seed: Annotated[int | None, "draw the same rows again; safe, as sampling is free"] = None


class Inspect(Screened, first="release"):
    """Show what a release cost, and how the loss is spread.

    $ repsynth inspect release
    """

    release: _ReleaseFolder


class Report(Options, first="release", more=(_reading,)):
    """Write a release as one page that everybody can read.

    The page opens in any browser. It says what the release promises, how the loss is spread and how exact the
    data are, and computes anybody's own bound. It is as public as the release.

    $ repsynth report release -o report.html

    With --curator, the page compares real with synthetic data and shows what each record loses. That page is
    PRIVATE, and its name must say so.

    $ repsynth report release --curator --train people.csv --holdout others.csv -o private-report.html
    """

    release: _ReleaseFolder
    output: _Page
    title: Annotated[str | None, "title of the public page", "TEXT"] = None
    contact: Annotated[str | None, "whom readers of the public page can ask", "TEXT"] = None
    ledger_entry: Annotated[str | None, "entry of the run in the ledger, for the public page", "TEXT"] = None
    curator: Annotated[bool, "write the PRIVATE page for the curator"] = False
    train: _Train = None
    holdout: _Holdout = None
    attack: Annotated[Path | None, "also show the results of repsynth attack", "DIR"] = None
    evaluation: Annotated[Path | None, "use the folder that repsynth evaluate wrote", "DIR"] = None


class Explore(Options):
    """Write a page to choose a plan with; touches no data.

    The page shows what a run would promise, measure and spend for the budget that you choose, and saves a
    plan.toml for repsynth synthesize --plan.

    $ repsynth explore --schema schema.toml -o explore.html
    $ repsynth explore --release release -o explore.html
    """

    schema: Annotated[Path | None, "schema.toml, confirmed (default: the release's)"] = None
    release: Annotated[Path | None, "release folder to start from", "DIR"] = None
    output: _Page


class Risk(Options, first="data", more=(_reading,)):
    """Write each record's own loss to a PRIVATE file for the curator.

    $ repsynth risk people.csv --release release -o dossier.parquet
    """

    data: _Data
    release: Annotated[Path, "release folder", "DIR"]
    output: Annotated[Path, "dossier, a .parquet file; PRIVATE"]
    show: Annotated[bool, "also print its PRIVATE summary"] = False


class LedgerInit(Options, first="ledger", more=(_budget,)):
    """Give a dataset its total budget, once.

    Each run then reserves its whole cost before it opens the data.

    $ repsynth ledger init ledger.db --epsilon 2 --delta 1e-9
    $ repsynth synthesize people.csv --schema schema.toml --epsilon 1 --ledger ledger.db
    """

    ledger: _Ledger
    dataset: Annotated[str, "its name in the ledger (default: data)"] = "data"


class LedgerShow(Options, first="ledger"):
    """Show what was spent, by whom and when, and what remains.

    $ repsynth ledger show ledger.db
    """

    ledger: _Ledger
    dataset: Annotated[str | None, "only this one"] = None


class Audit(Planned, first="data", more=(_settings, _reading)):
    """Attack the mechanism and compare with its claims.

    Runs the mechanism many times on a table and on its neighbour. Reports what an attacker can prove, for each
    measurement and in all, about the most and the least outlying record and about planted canaries. Exit code 1
    if a claim is exceeded. With DATA, the output is PRIVATE.

    $ repsynth audit --schema schema.toml --epsilon 1
    """

    data: Annotated[
        Tables | None, Parameter(help="a table (default: one made up from the schema)", metavar="DATA")
    ] = None
    runs: Annotated[int, "runs per record (default: 100,000)"] = 100_000


class Evaluate(Screened, more=(_reading,)):
    """Measure what a synthetic table is good for: a PRIVATE look.

    Compares the tables, predicts from them, tries to tell them apart, and shows which groups lose most. Says for
    which purposes the table is usable. --full prints each measure next to its best value and to what two halves
    of the real table give. All of it is PRIVATE.

    $ repsynth evaluate --train people.csv --synthetic synthetic.csv --holdout others.csv --schema schema.toml
    $ repsynth evaluate --train people.csv --release release -o private

    With a release alone, it prints the errors that follow from the released noise. They may be published.

    $ repsynth evaluate --release release
    """

    train: _Train = None
    synthetic: Annotated[
        Tables | None, _tables("the synthetic table, as repsynth writes it (default: drawn from the release)")
    ] = None
    holdout: _Holdout = None
    schema: Annotated[Path | None, "schema.toml (default: the release's)"] = None
    release: Annotated[Path | None, "release folder; alone, it needs no table", "DIR"] = None
    label: Annotated[str | None, "the column to predict (default: the schema's label)"] = None
    skip: Annotated[list[str] | None, "leave out a step; repeatable", "STEP"] = None
    output: Annotated[Path | None, "folder for all numbers; PRIVATE", "DIR"] = None


class Attack(Screened, Planned, more=(_settings, _reading)):
    """See who could still be found: a PRIVATE look.

    Puts records from all deciles of outlyingness into a run, or not, by the toss of a coin. Attackers guess which.
    They see a synthetic table, know the method, can run it, or see the released numbers. Compares the plan with
    uniform weights at the same budget, and each attack with the best that the account allows. Spends and releases
    nothing. The output is PRIVATE. Started again, it resumes. Exit code 1 if an attack proves more than is
    claimed.

    $ repsynth attack --train people.csv --holdout others.csv --schema schema.toml --epsilon 1 -o attack
    $ repsynth attack --train people.csv --schema schema.toml --plan plan.toml --targets 200 --runs 256 -o attack
    """

    train: Annotated[Tables, _tables("the table")]
    holdout: _Holdout = None
    targets: Annotated[int, "records under attack (default: 100)", "N"] = 100
    runs: Annotated[int, "runs of each method (default: 64)", "K"] = 64
    jobs: Annotated[int | None, "processes (default: all processors)", "J"] = None
    power: Annotated[bool, "also attack without noise: an attack that fails there proves nothing"] = False
    seed: Annotated[int, "choice of the targets, and coins (default: 0)"] = 0
    output: Annotated[Path, "folder for all runs; PRIVATE", "DIR"]


class Demo(Options):
    """Run everything once on simulated data.

    $ repsynth demo -o demo
    """

    output: Annotated[Path, "folder for all files (default: demo)"] = Path("demo")


class Completion(Options, first="shell"):
    """Print a script that makes a shell complete commands and flags.

    $ repsynth completion bash > ~/.local/share/bash-completion/completions/repsynth
    $ repsynth completion fish > ~/.config/fish/completions/repsynth.fish
    """

    shell: Annotated[Literal["bash", "zsh", "fish", "powershell"], Parameter(help="the shell")]


COMMANDS: dict[str, type[Options]] = {
    "schema": DraftSchema,
    "check": Check,
    "plan": PlanCommand,
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
    further = {name: hint for more in kind.more for name, hint in more()}
    body = {"__annotations__": further, "__module__": __name__, **dict.fromkeys(further)}
    whole: Any = type(kind.__name__, (kind,), body)
    hints = {name: _hint(name, hint) for name, hint in get_type_hints(whole, include_extras=True).items()}
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


def _hint(name: str, hint: Any) -> Any:
    """Make a parameter of the help, metavar, flags and group in an annotation."""
    kind, *about = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    if not about or isinstance(about[0], Parameter):
        return hint
    help, *words = (word for word in about if isinstance(word, str))
    flags = [word for word in words if word.startswith("-")]
    metavar = next((word for word in words if not word.startswith("-")), None)
    group = _OUTPUT if name in _SAVED else next((each for each in about if isinstance(each, Group)), None)
    flags = ["--output", "-o"] if name == "output" else flags
    more: dict[str, Any] = {} if group is None else {"group": group}
    return Annotated[kind, Parameter(flags or None, help=help, metavar=metavar, **more)]
