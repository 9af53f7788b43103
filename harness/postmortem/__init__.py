"""After an incident: what it cost, where the time went, what to change."""
