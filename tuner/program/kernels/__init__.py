"""How one operation runs in one precision."""
