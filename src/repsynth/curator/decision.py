"""What the draft takes a column for. PRIVATE, as it is read from the cells."""

import msgspec


class Decision(msgspec.Struct, frozen=True):
    """What a column was taken for: its type, the lines of the schema below it, the reason, and what to look at."""

    name: str
    type: str
    reason: str
    warnings: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
