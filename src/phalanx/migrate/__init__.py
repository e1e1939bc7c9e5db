"""From the flags and variables of older systems to ours: one table, its page (docs/migrate.md), and its refusals."""
