"""Everything after the last measurement: rules between columns, derived columns, completed rows."""
