"""The report of a finished run: one page with its answer, tables, figures and record."""
