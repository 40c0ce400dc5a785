"""The rooms that see a jaxpr."""
