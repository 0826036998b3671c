"""Conditions on a row, such as: sex = "F" and age < 40.

    condition   a or b, a and b, not a, (a)
    comparison  column or number, then = != < <= > >=, then column, number or "text";  column in ["a", "b"];
                column is missing
    sum         columns and numbers with + and - between them

Column names that are not plain words are written between backticks. A condition is checked against the schema when
it is parsed: unknown columns, unknown values and meaningless comparisons are refused.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from repsynth.errors import ConfigError
from repsynth.schema.columns import Boolean, Category, Column, Datetime, Discrete, Id, Numeric, Schema

_TOKEN = re.compile(
    r"""\s*(?:(?P<number>\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)|(?P<text>"[^"]*"|'[^']*')|`(?P<quoted>[^`]+)`"""
    r"""|(?P<word>[^\W\d]\w*(?:-\w+)*)|(?P<mark><=|>=|!=|==|[=<>()\[\],+-]))"""
)
_COMPARISONS = ("=", "!=", "<", "<=", ">", ">=")
_DEEPEST = 50
_LONGEST = 10_000


@dataclass(frozen=True)
class Both:
    """All parts hold."""

    parts: "tuple[Condition, ...]"


@dataclass(frozen=True)
class Either:
    """At least one part holds."""

    parts: "tuple[Condition, ...]"


@dataclass(frozen=True)
class Not:
    part: "Condition"


@dataclass(frozen=True)
class Among:
    """A cell has one of these values: categories, or special values of a number."""

    column: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class IsMissing:
    column: str


@dataclass(frozen=True)
class Compared:
    """Compare the sum of sign × column and a constant with 0. False if one of the columns has no number."""

    terms: tuple[tuple[int, str], ...]
    constant: float
    how: str


Condition = Both | Either | Not | Among | IsMissing | Compared


def parse_condition(text: str, schema: Schema) -> Condition:
    """Parse a condition on the rows of a table.

    >>> from repsynth.schema.columns import Integer
    >>> schema = Schema(columns=(Integer(name="age", min=0, max=99), Category(name="sex", values=("F", "M"))))
    >>> parse_condition('sex = "F" and age < 40', schema).parts
    (Among(column='sex', values=('F',)), Compared(terms=((1, 'age'),), constant=-40.0, how='<'))
    """
    return _Reader(text, schema).whole()


def columns_of(condition: Condition) -> frozenset[str]:
    match condition:
        case Both(parts) | Either(parts):
            return frozenset[str]().union(*map(columns_of, parts))
        case Not(part):
            return columns_of(part)
        case Compared(terms):
            return frozenset(name for _, name in terms)
        case Among(name) | IsMissing(name):
            return frozenset({name})


class _Reader:
    """Recursive descent parser; `and` binds more closely than `or`."""

    def __init__(self, text: str, schema: Schema) -> None:
        if len(text) > _LONGEST:
            raise ConfigError(f"a condition of more than {_LONGEST:,} characters; write a shorter one")
        self._text, self._schema, self._depth = text, schema, 0
        self._columns = {column.name: column for column in schema.columns}
        self._tokens: list[tuple[str, str]] = []
        place, end = 0, len(text.rstrip())
        while place < end:
            found = _TOKEN.match(text, place)
            if found is None:
                raise self._wrong(f"cannot read it from character {place + 1} on")
            kind = found.lastgroup or ""
            self._tokens.append((kind, found[kind].replace("==", "=") if kind == "mark" else found[kind]))
            place = found.end()
        self._at = 0

    def whole(self) -> Condition:
        condition = self._either()
        if self._at < len(self._tokens):
            raise self._wrong(f"did not expect {self._tokens[self._at][1]!r}")
        return condition

    def _either(self) -> Condition:
        return self._joined("or", self._both, Either)

    def _both(self) -> Condition:
        return self._joined("and", self._single, Both)

    def _joined(
        self,
        word: str,
        read: Callable[[], Condition],
        kind: type[Both] | type[Either],
    ) -> Condition:
        parts = [read()]
        while self._take(word):
            parts.append(read())
        return parts[0] if len(parts) == 1 else kind(tuple(parts))

    def _single(self) -> Condition:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._wrong("conditions are nested too deeply; write a simpler one")
        if self._take("not"):
            found: Condition = Not(self._single())
        elif self._take("("):
            found = self._either()
            self._expect(")")
        else:
            found = self._comparison()
        self._depth -= 1
        return found

    def _comparison(self) -> Condition:
        left = self._operand()
        if isinstance(left, Discrete | Numeric) and self._take("is"):
            inverted = self._take("not")
            self._expect("missing")
            return Not(IsMissing(left.name)) if inverted else IsMissing(left.name)
        if isinstance(left, Discrete | Numeric) and self._take("in"):
            return self._among(left, self._list())
        how = self._next("a comparison such as = or <")
        if how not in _COMPARISONS:
            raise self._wrong(f"expected one of {' '.join(_COMPARISONS)}, found {how!r}")
        right = self._operand()
        if isinstance(left, str) and not isinstance(right, str):
            left, right, how = right, left, how.translate(str.maketrans("<>", "><"))
        if isinstance(right, str) and isinstance(left, Discrete | Numeric):
            return self._with_text(left, how, right)
        if isinstance(left, Boolean) or isinstance(right, Boolean) or isinstance(left, str):
            raise self._wrong('compare a column with a value, such as smoker = "true"')
        terms, constant = _difference(self._sum(left), self._sum(right))
        return self._compared(terms, constant, how)

    def _with_text(self, column: Discrete | Numeric, how: str, text: str) -> Condition:
        """Compare a column with a text: one of its values, or a time."""
        if isinstance(column, Datetime) and text not in column.special:
            return self._compared(((1, column.name),), -self._seconds(column, text), how)
        if how not in ("=", "!="):
            raise self._wrong(f"the values of '{column.name}' have no order; use = or !=")
        among = self._among(column, (text,))
        return among if how == "=" else Both((Not(among), Not(IsMissing(column.name))))

    def _among(self, column: Discrete | Numeric, values: tuple[str, ...]) -> Among:
        known = column.values if isinstance(column, Discrete) else column.special
        for value in values:
            if value not in known:
                shown = ", ".join(known[:8]) + (", ..." if len(known) > 8 else "")
                has = f"it has {shown}" if known else "it has no such values; compare it with a number"
                raise self._wrong(f"{value!r} is not a value of '{column.name}': {has}")
        return Among(column.name, values)

    def _compared(self, terms: tuple[tuple[int, str], ...], constant: float, how: str) -> Condition:
        kinds = {isinstance(self._columns[name], Datetime) for _, name in terms}
        if not terms:
            raise self._wrong("a comparison must use a column")
        if any(isinstance(self._columns[name], Category | Boolean) for _, name in terms):
            raise self._wrong("values of a category cannot be added up, nor compared with numbers or each other")
        if len(kinds) > 1 or (True in kinds and sum(sign for sign, _ in terms) not in (0, 1)):
            raise self._wrong("times can be compared with times only")
        return Compared(terms, constant, how)

    def _seconds(self, column: Datetime, text: str) -> float:
        try:
            return (datetime.fromisoformat(text).replace(tzinfo=None) - datetime(1970, 1, 1)).total_seconds()
        except ValueError:
            raise self._wrong(f"{text!r} is not a time for '{column.name}'; write it as 2020-01-31") from None

    def _operand(self) -> "Discrete | Numeric | _Sum | str":
        kind, token = self._peek()
        if kind == "text":
            self._at += 1
            return token[1:-1]
        if kind == "word" and token.lower() in ("true", "false") and token not in self._columns:
            self._at += 1
            return token.lower()
        first = self._term(1)
        sum_ = self._sum(first)
        while self._peek()[1] in ("+", "-") and self._peek()[0] == "mark":
            sign = 1 if self._next("") == "+" else -1
            terms, constant = self._sum(self._term(sign))
            sum_ = (*sum_[0], *terms), sum_[1] + constant
            first = sum_
        return first

    def _term(self, sign: int) -> "Discrete | Numeric | _Sum":
        signed = False
        while self._peek() in (("mark", "-"), ("mark", "+")):
            sign, signed = (-sign if self._peek()[1] == "-" else sign), True
            self._at += 1
        kind, token = self._peek()
        self._at += 1
        if kind == "number":
            return (), sign * float(token)
        if kind not in ("word", "quoted"):
            raise self._wrong("expected a column, a number or a text" + (f", found {token!r}" if token else ""))
        column = self._column(token)
        return (((sign, column.name),), 0.0) if signed or sign < 0 else column

    def _sum(self, operand: "Discrete | Numeric | _Sum | str") -> "_Sum":
        if isinstance(operand, tuple):
            return operand
        if isinstance(operand, str):
            raise self._wrong("a text cannot be added up")
        return ((1, operand.name),), 0.0

    def _column(self, name: str) -> Discrete | Numeric:
        column: Column | None = self._columns.get(name)
        if column is None:
            raise self._wrong(f"there is no column '{name}'; put texts between quotation marks")
        if isinstance(column, Id):
            raise self._wrong(f"'{name}' is an id, which is not learned; use another column")
        return column

    def _list(self) -> tuple[str, ...]:
        self._expect("[")
        found = []
        while not self._take("]"):
            kind, token = self._peek()
            self._at += 1
            if kind not in ("text", "word", "number"):
                raise self._wrong("expected values between quotation marks, with commas between them")
            found.append(token[1:-1] if kind == "text" else token)
            if not self._take(",") and self._peek()[1] != "]":
                raise self._wrong("expected , or ] in the list of values")
        if not found:
            raise self._wrong("the list of values is empty")
        return tuple(found)

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("end", "")

    def _next(self, wanted: str) -> str:
        kind, token = self._peek()
        if kind == "end":
            raise self._wrong(f"expected {wanted} at the end")
        self._at += 1
        return token

    def _take(self, word: str) -> bool:
        kind, token = self._peek()
        taken = kind in ("word", "mark") and token.lower() == word
        self._at += taken
        return taken

    def _expect(self, word: str) -> None:
        if not self._take(word):
            raise self._wrong(f"expected {word!r}")

    def _wrong(self, why: str) -> ConfigError:
        return ConfigError(f"condition {self._text[:200]!r}: {why}")


_Sum = tuple[tuple[tuple[int, str], ...], float]


def _difference(left: _Sum, right: _Sum) -> _Sum:
    return (*left[0], *((-sign, name) for sign, name in right[0])), left[1] - right[1]
