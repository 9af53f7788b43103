"""A reader of shell text that knows words, quotes and plain expansions, and says so where there is more."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=")
_HEREDOC = re.compile(r"""<<(-?)[ \t]*('[^'\n]+'|"[^"\n]+"|\\?[^\s;&|<>()'"\\]+)""")
_ARITHMETIC = re.compile(r"\(\([^;\n]*?\)\)")
_CHANGED = re.compile(
    r"([A-Za-z_]\w*)\s*(?:\+\+|--|(?:[-+*/%&|^]|<<|>>)?=(?!=))|(?:\+\+|--)\s*([A-Za-z_]\w*)"
)
_BACKTICKS = re.compile(r"`(?:[^`\\]|\\.)*`", re.DOTALL)
_BRACES = re.compile(r"\{[^\s{}'\"$]*(?:,|\.\.)[^\s{}'\"$]*\}")
ELEMENT = re.compile(r"([A-Za-z_]\w*)\[[^]]*\]\+?=")

_OPENS = frozenset(("if", "for", "while", "until", "case", "select", "function"))
_CLOSES = frozenset(("fi", "done", "esac"))
_BETWEEN = frozenset(("then", "else", "elif", "do", "!", "time"))
MAX_SHOWN = 160


@dataclass(frozen=True)
class Literal:
    """Text that stands for itself."""

    text: str


@dataclass(frozen=True)
class Reference:
    """``$NAME``, ``${NAME}`` or, with `default`, ``${NAME:-default}``; `empty_too`: the colon is there.

    `assigns`: it is ``${NAME:=default}``, which sets the variable, too.
    """

    name: str
    default: str | None = None
    empty_too: bool = False
    assigns: bool = False


@dataclass(frozen=True)
class Odd:
    """What only running would tell."""

    text: str
    why: str


Part = Literal | Reference | Odd


@dataclass(frozen=True)
class Unclear:
    """A value that is not known without running the script."""

    why: str


@dataclass(frozen=True)
class Assumed:
    """A value that rests on a default: the variable is not set above, and may be set outside."""

    value: str
    why: str


@dataclass(frozen=True)
class Word:
    """One word of a statement. `bare`: nothing of it was quoted."""

    parts: tuple[Part, ...]
    bare: bool = True

    def plain(self) -> str | None:
        """Its text, or None where it has expansions."""
        if all(isinstance(part, Literal) for part in self.parts):
            return "".join(part.text for part in self.parts if isinstance(part, Literal))
        return None

    def assignment(self) -> tuple[str, "Word"] | None:
        """Name and value, if this is ``NAME=value`` or ``NAME+=value``."""
        first = self.parts[0] if self.parts else None
        if not isinstance(first, Literal) or not (found := _ASSIGNMENT.match(first.text)):
            return None
        rest: list[Part] = [Literal(first.text[found.end() :]), *self.parts[1:]]
        if found[2]:
            rest.insert(0, Reference(found[1]))
        return found[1], Word(tuple(rest))


@dataclass
class Statement:
    """One simple command. `broken` is why its text has no end; `line` counts from 1.

    `background`: it runs in a shell of its own; `changes`: variables of a loop or of arithmetic.
    """

    line: int
    words: list[Word] = field(default_factory=list)
    text: str = ""
    conditional: bool = False
    broken: str = ""
    background: bool = False
    changes: tuple[str, ...] = ()

    def shown(self) -> str:
        """Its text for people, on one line."""
        line = " ".join(self.text.split())
        return line if len(line) <= MAX_SHOWN else f"{line[: MAX_SHOWN - 3]}..."

    def assigned(self) -> Iterator[str]:
        """Names that it may set, by its looks."""
        yield from self.changes
        for word in self.words:
            if (pair := word.assignment()) is not None:
                yield pair[0]
            start = word.parts[0] if word.parts else None
            if isinstance(start, Literal) and (element := ELEMENT.match(start.text)):
                yield element[1]
        first = self.words[0].plain() if self.words else None
        if first == "let":
            yield from _changed(self.text)
        if first in ("export", "read", "unset", "declare", "typeset", "readonly"):
            for word in self.words[1:]:
                name = word.plain() or ""
                if _NAME.fullmatch(name):
                    yield name


def expand(value: object, known: Mapping[str, str]) -> str | Unclear | Assumed:
    """The text of a value, with the names that are known."""
    assert isinstance(value, Word)
    text, assumed = "", ""
    for part in value.parts:
        if isinstance(part, Literal):
            text += part.text
        elif isinstance(part, Odd):
            return Unclear(part.why)
        elif part.name in known and (known[part.name] or not part.empty_too or part.default is None):
            text += known[part.name]
        elif part.default is not None:
            text += part.default
            if part.name not in known:
                assumed = f"taken to be {part.default!r}: ${part.name} is not set above"
        else:
            return Unclear(f"${part.name} is not set above: write its value out")
    return Assumed(text, assumed) if assumed else text


def statements(text: str) -> list[Statement]:
    """All simple commands of a script in order, those under conditions marked."""
    return _Scanner(text).run()


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text.replace("\r\n", "\n")
        self._at = 0
        self._line = 1
        self._found: list[Statement] = []
        self._open: list[str] = []
        self._heredocs: list[tuple[str, bool]] = []
        self._statement = Statement(1)
        self._begun = 0
        self._after_operator = False

    def run(self) -> list[Statement]:
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == "\n":
                self._end("\n")
                self._step()
                self._skip_heredocs()
            elif char in " \t":
                self._step()
            elif self._text.startswith("\\\n", self._at):
                self._step(2)
            elif char == "#":
                self._skip_to_line_end()
            elif not self._statement.words and (found := _ARITHMETIC.match(self._text, self._at)):
                self._arithmetic(found[0])
            elif char in ";&|()":
                self._operator(char)
            elif char in "<>" or (char.isdigit() and re.match(r"\d+[<>]", self._text[self._at :])):
                self._redirection()
            else:
                self._word()
        self._end("\n")
        return self._found

    def _step(self, count: int = 1) -> str:
        taken = self._text[self._at : self._at + count]
        self._line += taken.count("\n")
        self._at += count
        return taken

    def _operator(self, char: str) -> None:
        if char == "&" and self._text[self._at : self._at + 2] == "&>":
            self._step()
            self._redirection()
            return
        double = self._text[self._at : self._at + 2]
        operator = double if double in ("&&", "||", ";;") else char
        self._end(operator)
        self._step(len(operator))
        if operator == "(":
            self._open.append("(")
        elif operator == ")" and self._open[-1:] == ["("]:
            # Of a pattern in a case there was no opening one.
            self._open.pop()

    def _arithmetic(self, text: str) -> None:
        """``((...))`` runs no command, and may change variables."""
        self._begun, self._statement.line = self._at, self._line
        self._statement.changes = tuple(_changed(text))
        self._statement.words.append(Word((Odd(self._step(len(text)), "arithmetic is not understood"),)))

    def _end(self, operator: str) -> None:
        """The statement is over; `operator` follows it."""
        statement = self._statement
        if not statement.words:
            # A line may end behind && or |: the next one is still theirs.
            return
        self._statement = Statement(self._line)
        conditional = self._after_operator or operator == "|" or bool(self._open)
        self._after_operator = operator in ("&&", "||", "|")
        statement.text = self._text[self._begun : self._at]
        self._keywords(statement)
        statement.conditional = conditional or bool(self._open)
        statement.background = operator == "&"
        if statement.words or statement.changes:
            self._found.append(statement)

    def _keywords(self, statement: Statement) -> None:
        """Take the words of control flow off, and keep account of what is open."""
        while statement.words:
            first = statement.words[0]
            word = first.plain() if first.bare else None
            if word in _OPENS or word == "{":
                self._open.append(word or "")
                statement.words.pop(0)
                if word in ("for", "select") and statement.words:
                    name = statement.words[0].plain() or ""
                    statement.changes = (name,) if _NAME.fullmatch(name) else ()
                if word in ("for", "case", "select", "function"):
                    # Their own words are no command.
                    statement.words.clear()
            elif word in _CLOSES or word == "}":
                self._open = self._open[:-1]
                statement.words.clear()
            elif word in _BETWEEN:
                statement.words.pop(0)
            else:
                break

    def _skip_to_line_end(self) -> None:
        end = self._text.find("\n", self._at)
        self._at = len(self._text) if end < 0 else end

    def _redirection(self) -> None:
        rest = self._text[self._at :]
        if heredoc := _HEREDOC.match(rest):
            self._heredocs.append((heredoc[2].strip("'\"\\"), bool(heredoc[1])))
            self._step(heredoc.end())
            return
        operator = re.match(r"\d*(?:<<<|>>|>&|<&|&>>?|[<>]\|?)[ \t]*", rest)
        self._step(operator.end() if operator else 1)
        if self._at < len(self._text) and self._text[self._at] not in "\n;":
            # The target is a word that is no part of the command.
            words, begun = self._statement.words, self._begun
            self._statement.words = []
            self._word()
            self._statement.words, self._begun = words, begun if words else self._begun

    def _skip_heredocs(self) -> None:
        for end, tabs in self._heredocs:
            while self._at < len(self._text):
                stop = self._text.find("\n", self._at)
                stop = len(self._text) if stop < 0 else stop
                line = self._text[self._at : stop]
                self._step(stop + 1 - self._at)
                if (line.lstrip("\t") if tabs else line) == end:
                    break
        self._heredocs.clear()

    def _word(self) -> None:
        if not self._statement.words:
            self._begun, self._statement.line = self._at, self._line
        parts: list[Part] = []
        bare = True
        while self._at < len(self._text):
            char = self._text[self._at]
            if char in " \t\n;&|()<>":
                # NAME=( starts an array, which no environment can hold.
                if char == "(" and parts and isinstance(parts[-1], Literal) and parts[-1].text.endswith("="):
                    self._array(parts)
                    continue
                break
            if char == "'":
                bare = False
                self._single(parts)
            elif char == '"':
                bare = False
                self._double(parts)
            elif char == "\\":
                taken = self._step(2)
                if taken != "\\\n":
                    parts.append(Literal(taken[1:]))
                    bare = False
            elif self._text.startswith('$"', self._at):
                # A text that may be translated.
                bare = False
                self._step()
                self._double(parts)
            elif char in "$`":
                self._expansion(parts)
            elif (
                char == "{"
                and self._statement.words
                and (group := _BRACES.match(self._text, self._at)) is not None
            ):
                self._odd(parts, len(group[0]), f"{group[0]} makes several words")
            elif char == "~" and (not parts or _ends_with(parts, "=:")):
                self._step()
                parts.append(Odd("~", "~ is somebody's home folder: write the path out"))
            else:
                parts.append(Literal(self._step()))
        self._statement.words.append(Word(_joined(parts), bare))

    def _array(self, parts: list[Part]) -> None:
        self._step(_closing(self._text[self._at :], "(", ")"))
        parts.append(Odd("(", "an array is no environment variable"))

    def _single(self, parts: list[Part]) -> None:
        end = self._text.find("'", self._at + 1)
        if end < 0:
            self._unended("'")
            return
        parts.append(Literal(self._step(end + 1 - self._at)[1:-1]))

    def _double(self, parts: list[Part]) -> None:
        self._step()
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == '"':
                self._step()
                return
            if char == "\\" and self._text[self._at + 1 : self._at + 2] in ('"', "\\", "$", "`", "\n"):
                taken = self._step(2)[1]
                parts.append(Literal("" if taken == "\n" else taken))
            elif char in "$`":
                self._expansion(parts, quoted=True)
            else:
                parts.append(Literal(self._step()))
        self._unended('"')

    def _unended(self, quote: str) -> None:
        self._statement.broken = f"the {quote} that opens here has no end"
        self._step(len(self._text) - self._at)

    def _expansion(self, parts: list[Part], *, quoted: bool = False) -> None:
        rest = self._text[self._at :]
        if rest.startswith("`"):
            ticks = _BACKTICKS.match(rest)
            self._odd(parts, ticks.end() if ticks else len(rest), "a command would have to be run")
        elif rest.startswith("$("):
            self._odd(parts, _closing(rest, "(", ")"), "a command would have to be run")
        elif rest.startswith("${"):
            self._braced(parts, rest[: _closing(rest, "{", "}")], quoted=quoted)
        elif found := _NAME.match(rest, 1):
            self._step(found.end())
            parts.append(Reference(found[0]))
        elif rest.startswith("$'"):
            end = rest.find("'", 2)
            self._odd(parts, end + 1 if end > 0 else len(rest), "$'...' is not understood")
        elif re.match(r"\$[0-9@*#?$!-]", rest):
            self._odd(parts, 2, "it depends on how the script is called")
        else:
            parts.append(Literal(self._step()))

    def _braced(self, parts: list[Part], text: str, *, quoted: bool) -> None:
        found = re.fullmatch(r"\$\{([A-Za-z_]\w*)(?:(:?)([-=])([^$`{}\\]*))?\}", text, re.DOTALL)
        default = found[4] if found else None
        # Inside double quotes a single one stands for itself.
        quotes = '"' if quoted else "'\""
        if default is not None and len(default) > 1 and default[0] == default[-1] and default[0] in quotes:
            default = default[1:-1]
        if found is None or (default is not None and ("'" in default or '"' in default)):
            self._odd(parts, len(text), f"{text} is not understood")
            return
        self._step(len(text))
        parts.append(Reference(found[1], default, bool(found[2]), found[3] == "="))

    def _odd(self, parts: list[Part], length: int, why: str) -> None:
        parts.append(Odd(self._step(length), why))


def _closing(text: str, opens: str, closes: str) -> int:
    """How long a nested group is that begins in `text`; all of it where it has no end. Quotes are skipped."""
    depth, at = 0, 0
    while at < len(text):
        char = text[at]
        if char == "\\":
            at += 1
        elif char == '"' or (char == "'" and opens == "("):
            end = re.compile(r"(?:[^\"\\]|\\.)*" if char == '"' else "[^']*", re.DOTALL).match(text, at + 1)
            at = end.end() if end else at
        depth += (char == opens) - (char == closes)
        if char == closes and depth == 0:
            return at + 1
        at += 1
    return len(text)


def _changed(text: str) -> list[str]:
    """Variables that arithmetic sets."""
    return [first or second for first, second in _CHANGED.findall(text)]


def _ends_with(parts: list[Part], chars: str) -> bool:
    last = parts[-1]
    return isinstance(last, Literal) and last.text[-1:] in tuple(chars) and bool(last.text)


def _joined(parts: list[Part]) -> tuple[Part, ...]:
    """Neighbouring literals as one."""
    joined: list[Part] = []
    for part in parts:
        if joined and isinstance(part, Literal) and isinstance(joined[-1], Literal):
            joined[-1] = Literal(joined[-1].text + part.text)
        else:
            joined.append(part)
    return tuple(joined)
