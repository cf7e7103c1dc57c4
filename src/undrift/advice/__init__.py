"""Which remedy for this federation: measure it, shortlist methods, race them, answer."""
