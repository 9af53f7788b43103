"""py-spy stacks to clusters to findings."""
