"""Who is protected: what a neighbouring table is."""

UNIT = "one record"
NEIGHBOURS = "one record replaced by the null record, which contributes nothing: adding or removing one person"
