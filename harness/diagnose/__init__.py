"""Evidence to findings to one diagnosis. Pure functions from files; never imports torch."""
