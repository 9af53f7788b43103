"""The run folder: where everything lies, writing it in phases, reading it however damaged."""
