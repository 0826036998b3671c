"""When two names of datasets are one: a second name would be a second budget for the same people."""

import unicodedata


def same_name(one: str, other: str) -> bool:
    """Whether two names of datasets are the same but for spaces, upper case and forms of characters.

    >>> same_name("Patients ", "patients"), same_name("patients", "patients 2")
    (True, False)
    """
    return folded(one) == folded(other)


def folded(name: str) -> str:
    """A name without what nobody sees of it."""
    plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return " ".join("".join(filter(_is_seen, plain)).split())


# Fillers, joiners and selectors of variants: letters or marks to Unicode, nothing to the eye.
_UNSEEN = frozenset(
    map(chr, [0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), 0x2800, *range(0xFE00, 0xFE10)])
)


def _is_seen(character: str) -> bool:
    unseen = character in _UNSEEN or 0xE0100 <= ord(character) <= 0xE01EF
    return not unseen and unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Co", "Cn")
