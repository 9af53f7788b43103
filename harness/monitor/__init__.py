"""Being woken up: an exporter of step records, alert rules, and the drill that proves that a page arrives."""
