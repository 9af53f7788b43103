"""Patterns that most of many short texts do not fit."""

import re
from functools import cached_property


class Phrase:
    """A pattern, and words of which one stands in each text that it fits (small letters, if case is ignored).

    Words are cheap to look for; the pattern is compiled when the first of them was found.
    """

    def __init__(self, regex: str, *words: str, ignore_case: bool = False) -> None:
        self.regex, self.words, self.ignore_case = regex, words, ignore_case

    def search(self, text: str) -> re.Match[str] | None:
        """As re.search."""
        said = text.lower() if self.ignore_case else text
        for word in self.words:
            if word in said:
                return self.compiled.search(text)
        return None

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        """The pattern alone."""
        return re.compile(self.regex, re.IGNORECASE if self.ignore_case else 0)
