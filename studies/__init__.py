"""Ready studies: one short module each, to run (`tuner search studies.NAME`) and to copy for a model of your own.

A study defines `task() -> tuner.Task`, and may set `space`, `max_drop` and `trials`. `python -m studies.fetch` brings
the data they need into your cache folder; a study itself never downloads.
"""
