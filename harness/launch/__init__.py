"""Start and stop ranks. The CLI never imports torch: a launcher process does, once for many runs."""
