"""Finding drills, validating what people wrote in them, and deciding every value of a run."""
