"""The one error of this room."""


class SearchSpaceError(ValueError):
    """A format, precision, rule or preset cannot be used as given; the message says which, and what to write instead."""
