"""Records in, text and HTML out. Reporters write to the file they are given and know nothing of commands."""
