"""The public schema: types, bounds, categories, the label and the unit of privacy.

The curator declares them from public knowledge. Everything else reads them from here and never from the data.
"""

from repsynth.schema.columns import (
    Boolean,
    Category,
    Column,
    Datetime,
    Discrete,
    Follows,
    Id,
    Integer,
    Measured,
    Number,
    Numeric,
    Person,
    RowRule,
    Schema,
    check_unit,
)
from repsynth.schema.parse import load_schema, parse_schema, schema_from_dict, schema_to_dict

__all__ = [
    "Boolean",
    "Category",
    "Column",
    "Datetime",
    "Discrete",
    "Follows",
    "Id",
    "Integer",
    "Measured",
    "Number",
    "Numeric",
    "Person",
    "RowRule",
    "Schema",
    "check_unit",
    "load_schema",
    "parse_schema",
    "schema_from_dict",
    "schema_to_dict",
]
