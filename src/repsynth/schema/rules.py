"""Publicly known rules between columns: `[[rules]]` of a schema.

require   a condition that holds for every row, or for every row with the condition `when`
forbid    a condition that holds for no row
column    a derived column: it `equals` a sum of other columns, or is looked up in `values` by another column

A derived column is neither read nor measured. It costs nothing and is computed for every synthetic row.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from repsynth.errors import ConfigError
from repsynth.schema.columns import Discrete, Follows, Id, Integer, Number, RowRule, Schema
from repsynth.schema.conditions import Among, Both, Compared, Condition, Either, Not, columns_of, parse_condition

_KEYS = ({"require"}, {"when", "require"}, {"forbid"}, {"column", "equals"}, {"column", "by", "values"})
_OPPOSITE = {"<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_MOST_RULES = 1_000
_MOST_VALUES = 100_000
_MOST_TEXT = 100_000


def read_rules(raw: Any, schema: Schema, report: Callable[[str], None]) -> Schema:
    """Return the schema with its rules. Report every mistake."""
    if not isinstance(raw, list) or len(raw) > _MOST_RULES or not all(isinstance(rule, dict) for rule in raw):
        report(f"'rules' must be tables [[rules]], at most {_MOST_RULES:,} of them")
        return schema
    if sum(len(text) for rule in raw for text in rule.values() if isinstance(text, str)) > _MOST_TEXT:
        report(f"the rules have more than {_MOST_TEXT:,} characters; write fewer or shorter ones")
        return schema
    found: list[RowRule | Follows] = []
    for number, rule in enumerate(raw, start=1):
        try:
            found.append(_read(rule, schema))
        except ConfigError as error:
            report(f"rule {number}: {error}")
    schema = replace(schema, rules=tuple(found))
    for problem in _contradictions(schema) if len(found) == len(raw) else ():
        report(problem)
    return schema


def rules_to_list(schema: Schema) -> list[dict[str, Any]]:
    """Return the tables that `read_rules` reads."""
    found: list[dict[str, Any]] = []
    for rule in schema.rules:
        if isinstance(rule, RowRule):
            parts = {"when": rule.when, "require": rule.require, "forbid": rule.forbid}
            found.append({key: text for key, text in parts.items() if text is not None})
        elif rule.equals is not None:
            found.append({"column": rule.column, "equals": rule.equals})
        else:
            found.append({"column": rule.column, "by": rule.by, "values": dict(rule.values)})
    return found


def rule_text(rule: RowRule | Follows) -> str:
    """Return a rule in one line.

    >>> rule_text(RowRule(when="age < 15", require="pay = 0"))
    'when age < 15, require pay = 0'
    """
    if isinstance(rule, Follows):
        return f"{rule.column} equals {rule.equals}" if rule.by is None else f"{rule.column} by {rule.by}"
    text = f"forbid {rule.forbid}" if rule.forbid is not None else f"require {rule.require}"
    return text if rule.when is None else f"when {rule.when}, {text}"


def row_condition(schema: Schema) -> Condition | None:
    """Return the condition that holds for every row; None without such rules. Derived columns are left out."""
    parts = [condition_of(rule, schema) for rule in schema.rules if isinstance(rule, RowRule)]
    return None if not parts else parts[0] if len(parts) == 1 else Both(tuple(parts))


@dataclass(frozen=True)
class ColumnSum:
    """A column that is a sum of other columns."""

    column: Integer | Number
    terms: tuple[tuple[int, str], ...]
    constant: float


def total_of(rule: Follows, schema: Schema) -> ColumnSum:
    assert rule.equals is not None
    condition = parse_condition(f"`{rule.column}` = {rule.equals}", schema)
    column = next(column for column in schema.columns if column.name == rule.column)
    if not isinstance(condition, Compared) or not isinstance(column, Integer | Number):
        raise ConfigError(f"'{rule.column}' must be a number that equals a sum of numbers")
    own = [sign for sign, name in condition.terms if name == rule.column]
    others = tuple((-sign, name) for sign, name in condition.terms if name != rule.column)
    if own != [1] or not others:
        raise ConfigError(f"'{rule.column}' must equal a sum of other columns")
    return ColumnSum(column, others, -condition.constant)


def _read(rule: Mapping[str, Any], schema: Schema) -> RowRule | Follows:
    if rule.keys() not in _KEYS:
        ways = "; ".join(" and ".join(sorted(keys)) for keys in _KEYS)
        raise ConfigError(f"has {', '.join(sorted(map(str, rule))) or 'nothing'}; a rule has one of: {ways}")
    for key in rule.keys() - {"values"}:
        if not isinstance(rule[key], str):
            raise ConfigError(f"'{key}' must be text")
    if "column" not in rule:
        made = RowRule(when=rule.get("when"), require=rule.get("require"), forbid=rule.get("forbid"))
        condition_of(made, schema)
        return made
    return _follows(rule, schema)


def condition_of(rule: RowRule, schema: Schema) -> Condition:
    """Return the condition that a rule states for every row."""
    if rule.forbid is not None:
        return Not(parse_condition(rule.forbid, schema))
    assert rule.require is not None
    required = parse_condition(rule.require, schema)
    return required if rule.when is None else Either((Not(parse_condition(rule.when, schema)), required))


def _follows(rule: Mapping[str, Any], schema: Schema) -> Follows:
    columns = {column.name: column for column in schema.columns}
    name = rule["column"]
    if name not in columns or isinstance(columns[name], Id):
        raise ConfigError(f"there is no learned column '{name}'")
    if name == schema.label:
        raise ConfigError("the label cannot be derived from other columns; choose another label")
    if "equals" in rule:
        follows = Follows(column=name, equals=rule["equals"])
        total_of(follows, schema)
        return follows
    source, values = columns.get(rule["by"]), rule["values"]
    if not isinstance(source, Discrete):
        raise ConfigError(f"'{rule['by']}' must be a category or a boolean, by whose values '{name}' is looked up")
    if not isinstance(values, dict) or len(values) > _MOST_VALUES or set(values) != set(source.values):
        raise ConfigError(f"'values' must have one entry for each value of '{source.name}', and no other")
    target = columns[name]
    known = target.values if isinstance(target, Discrete) else None
    for value in values.values():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if known is not None and value not in known:
            raise ConfigError(f"a value of '{name}' is not one of its values")
        if known is None and (not number or not isinstance(target, Integer | Number)):
            raise ConfigError(f"'{name}' must be a number or a category, and so must its 'values'")
        if isinstance(target, Integer | Number) and not target.min <= value <= target.max:
            raise ConfigError(f"a value of '{name}' is outside of its bounds")
    return Follows(column=name, by=source.name, values=tuple(values.items()))


def _contradictions(schema: Schema) -> list[str]:
    """Return the columns that two rules derive, and the columns of which no value obeys the rules."""
    found = []
    following = [rule.column for rule in schema.rules if isinstance(rule, Follows)]
    if len(set(following)) < len(following):
        found.append("two rules derive the same column; keep one of them")
    for rule in schema.rules:
        if isinstance(rule, Follows):
            needs = {rule.by} if rule.by is not None else {name for _, name in total_of(rule, schema).terms}
        else:
            needs = set(columns_of(condition_of(rule, schema)))
        found += [
            f"a rule uses '{name}', which is itself derived from other columns; use those instead"
            for name in sorted(needs & set(following))
        ]
    by_column: dict[frozenset[str], list[Condition]] = {}
    for part in _always(row_condition(schema)):
        by_column.setdefault(columns_of(part), []).append(part)
    for column in schema.learned:
        own = by_column.get(frozenset({column.name}), [])
        if own and not _possible(own, column):
            found.append(f"no value of '{column.name}' obeys all rules; correct its bounds, values or rules")
    return found


def _opposite(forbidden: Condition) -> Condition:
    """Return the negation of a comparison with a number."""
    if isinstance(forbidden, Compared) and forbidden.how in _OPPOSITE:
        return replace(forbidden, how=_OPPOSITE[forbidden.how])
    return Not(forbidden)


def _always(condition: Condition | None) -> list[Condition]:
    if condition is None:
        return []
    return (
        [each for part in condition.parts for each in _always(part)]
        if isinstance(condition, Both)
        else [condition]
    )


def _possible(conditions: list[Condition], column: Any) -> bool:
    """Return whether some value may meet the conditions on one column.

    The answer is exact for comparisons and lists of values, and True for anything else.
    """
    if column.missing and not all(isinstance(each, Compared | Among) for each in conditions):
        return True
    if isinstance(column, Discrete):
        kept = set(column.values)
        for each in conditions:
            if isinstance(each, Among):
                kept &= set(each.values)
            elif isinstance(each, Not) and isinstance(each.part, Among):
                kept -= set(each.part.values)
        return bool(kept)
    low, high = float("-inf"), float("inf")
    if isinstance(column, Integer | Number):
        low, high = float(column.min), float(column.max)
    strict_low = strict_high = False
    for each in conditions:
        if isinstance(each, Not) and not column.missing and not column.special:  # only numbers are left
            each = _opposite(each.part)
        if not isinstance(each, Compared) or len(each.terms) != 1:
            return True
        sign, bound = each.terms[0][0], -each.constant * each.terms[0][0]
        how = each.how if sign == 1 else each.how.translate(str.maketrans("<>", "><"))
        if how in (">", ">=", "=") and bound >= low:
            low, strict_low = bound, how == ">" or (strict_low and bound == low)
        if how in ("<", "<=", "=") and bound <= high:
            high, strict_high = bound, how == "<" or (strict_high and bound == high)
    return low < high or (low == high and not strict_low and not strict_high)
