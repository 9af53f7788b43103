"""The Markdown report: five parts, and nothing that a log line says can break out of its place."""

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from harness.model.diagnosis import (
    Citation,
    Diagnosis,
    Job,
    Location,
    RankCensus,
    RankState,
    Recommendation,
    Revision,
    RuledOut,
    TierCount,
    TimelineEntry,
    Where,
)
from harness.model.kinds import Category, Confidence, Kind
from harness.report.markdown import MAX_MOMENTS, MAX_STATES, code, diagnosis_markdown, prose

HOSTILE = [
    "a | b",
    "a \\| b",
    "\\",
    "`",
    "``` ` ```",
    "`|`",
    "http://evil.example/|x",
    "@\\| b",
    "<img src=x onerror=alert(1)>",
    "<!-- gone -->",
    "[click](http://evil.example/x)",
    "![x](y)",
    "[a]: http://evil.example",
    "http://evil.example/a_b?c=<d>&e",
    "<http://evil.example>",
    "www.evil.example",
    "@channel look at #123",
    "&lt;b&gt; &amp;",
    "&#60;b&#62;",
    "# heading",
    "---",
    "===",
    "+ list",
    "- list",
    "12. list",
    "1) list",
    "> quote",
    "- [x] task",
    "***",
    "~~~",
    "~~gone~~",
    "**bold** _em_ __strong__ last_enqueued_work __init__",
    "line\nbreak",
    "para\n\ngraph",
    "\r\n| a | b |\r\n|---|---|\r\n",
    "para\u2028graph\x0b\x0c\x85",
    "\x1b[31mred\x1b[0m \x00",
    "\ud800 half \udcff",
    "evil \u202e gnp.exe",
    "    indented",
    "\ttab",
    "$x$ 100 %",
    "a -> b => c",
    "3.5 GiB",
    "",
    " ",
    "数据加载 卡死",
]
hostile = (
    st.sampled_from(HOSTILE) | st.text(max_size=40) | st.text(alphabet="|`\\<>[]()*_#-=&~ a\n", max_size=30)
)


def parsed(text: str) -> list[Token]:
    """As GitHub reads it, as far as this parser goes: CommonMark, tables, strike-through."""
    return MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)


def flat(tokens: Sequence[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from flat(token.children or [])


def shown(token: Token) -> str:
    """What a reader sees of one inline token."""
    return "".join(child.content for child in token.children or [])


def plain(text: str) -> str:
    """What should be seen of hostile text: one line, nothing that cannot be printed."""
    text = "".join("\ufffd" if "\ud800" <= c <= "\udfff" else " " if c.isspace() else c for c in text)
    return " ".join("".join(c for c in text if c.isprintable() or c == " ").split())


def headings(text: str) -> list[str]:
    tokens = parsed(text)
    return [shown(tokens[i + 1]) for i, token in enumerate(tokens) if token.type == "heading_open"]


def rows(text: str) -> list[list[str]]:
    """The cells of all rows of all tables."""
    found: list[list[str]] = []
    for before, token in zip([None, *parsed(text)], parsed(text), strict=False):
        if token.type == "tr_open":
            found.append([])
        elif before is not None and before.type in ("td_open", "th_open"):
            found[-1].append(shown(token))
    return found


def full(word: str = "text") -> Diagnosis:
    """A diagnosis with every part, `word` in each place that evidence can reach."""
    return Diagnosis(
        kind=Kind.RANK_STALLED,
        category=Category.DATA_LOADING_STALL,
        confidence=Confidence.LIKELY,
        summary=word,
        culprits=(3,),
        at={3: Location(word, 77, word, 1)},
        where=Where(group=word, site="dataloader", op=word, seq=7, stuck_seq=8, hosts=(word,), how=word),
        ranks=RankCensus(
            16,
            "0-14",
            "15",
            (
                RankState("0-2,4-14", word, 9, 8, True, None, "own"),
                RankState("3", word, 8, 8, False, word, "observed"),
            ),
        ),
        job=Job(word, 2, 1_700_000_000.25, word, 1370),
        evidence=(
            Citation("log", word, f"{word}.err", 12, rank=3),
            Citation("flight_recorder", word, "dump_3", None, 44, 3),
            Citation("launcher", word),
        ),
        ruled_out=(RuledOut(Kind.FABRIC_STALLED, word),),
        chain=(word, f"-> {word}"),
        timeline=(TimelineEntry(1_700_000_000.25, word, 3, f"{word}.err", 12),),
        next_steps=(f"less +12 {word}", word),
        recommendations=(Recommendation("training", word), Recommendation("storage", word)),
        key_files=(f"{word}.err", f"{word}/other"),
        revised=(Revision(word, word, word),),
        missing_evidence=(word,),
        tiers=(TierCount(1, word, 3, word, 1, word, symptom=True),),
        clocks=(word,),
    )


def test_the_five_parts_in_order() -> None:
    """Answer first, then exactly five headings."""
    text = diagnosis_markdown(full())

    assert headings(text) == [
        "1. Job",
        "2. Timeline",
        "3. Root cause chain",
        "4. Key files",
        "5. Recommendations",
    ]
    assert text.startswith("**text**\n")
    assert text.index("`rank_stalled`") < text.index("## 1. Job")


def test_the_answer_says_who_and_where() -> None:
    """Kind, category, confidence, the culprit with host and device."""
    head = diagnosis_markdown(full("node-7")).partition("## 1.")[0]

    assert "- kind: `rank_stalled`" in head
    assert "- category: `data_loading_stall`" in head
    assert "- confidence: likely" in head
    assert "- culprits: rank 3\n- rank 3: host `node-7`, device `node-7`, local rank 1, pid 77" in head


def test_suspects_are_not_called_culprits() -> None:
    """Who cannot be told apart is not convicted on the way to the channel."""
    answer = Diagnosis(Kind.INCONCLUSIVE, Category.NONE, Confidence.POSSIBLE, "who?", suspects=(4, 5))

    text = diagnosis_markdown(answer)

    assert "- suspects (not convicted): ranks 4-5" in text
    assert "culprit" not in text


def test_nobody_accused_is_said() -> None:
    """Silence could be read as an omission."""
    answer = Diagnosis(Kind.FABRIC_STALLED, Category.NETWORK, Confidence.POSSIBLE, "stuck")

    assert "nobody is accused" in diagnosis_markdown(answer)


def test_what_is_unknown_is_said() -> None:
    """An empty diagnosis has all five parts, each of which says that there is nothing."""
    text = diagnosis_markdown(Diagnosis(Kind.INCONCLUSIVE, Category.NONE, Confidence.POSSIBLE, "cannot tell"))

    assert len(headings(text)) == 5
    for line in (
        "framework",
        "ranks expected",
        "ranks missing",
        "nodes",
        "started",
        "resumed from",
        "last step",
    ):
        assert f"- {line}: not known" in text
    assert "No moment has a known time." in text
    assert "No file is cited." in text


def test_the_job_is_told() -> None:
    """Times are UTC, ranks expected, seen and missing stand together."""
    text = diagnosis_markdown(full("torchtitan"))

    assert "- ranks expected: 16\n- ranks with evidence: 0-14\n- ranks missing: 15" in text
    assert "- started: 2023-11-14 22:13:20.250 UTC" in text
    assert "- last step: 1370" in text


def test_a_moment_has_time_rank_and_line() -> None:
    """The timeline cites what can be opened."""
    assert ["2023-11-14 22:13:20.250", "3", "stalls", "stalls.err:12"] in rows(
        diagnosis_markdown(full("stalls"))
    )


def test_a_long_timeline_is_shortened_in_the_middle() -> None:
    """First and last moments stay, and how many are gone is said."""
    moments = tuple(TimelineEntry(float(i), f"moment {i}") for i in range(100))
    answer = Diagnosis(Kind.HEALTHY, Category.NONE, Confidence.LIKELY, "fine", timeline=moments)

    table = [row[2] for row in rows(diagnosis_markdown(answer))]

    assert len(table) == MAX_MOMENTS + 2
    assert table[1] == "moment 0"
    assert table[-1] == "moment 99"
    assert f"{100 - MAX_MOMENTS} moments are left out here" in table


@pytest.mark.parametrize("at", [float("nan"), float("inf"), 1e300, -1e300])
def test_an_impossible_time_is_not_known(at: float) -> None:
    """Damaged evidence holds any number."""
    answer = Diagnosis(
        Kind.HEALTHY, Category.NONE, Confidence.LIKELY, "fine", timeline=(TimelineEntry(at, "x"),)
    )

    assert rows(diagnosis_markdown(answer))[1][0] == "not known"


def test_effects_are_labelled_as_such() -> None:
    """Only the first link is a cause."""
    text = diagnosis_markdown(full("slow read"))

    assert "1. cause: slow read\n2. -> effect: slow read" in text
    assert "- `fabric_stalled`: slow read" in text
    assert "- was: slow read; now: slow read; because slow read" in text


def test_an_undecided_chain_names_no_cause() -> None:
    """What was seen first is not yet why."""
    answer = Diagnosis(
        Kind.INCONCLUSIVE, Category.NONE, Confidence.POSSIBLE, "?", chain=("timeouts", "-> aborts")
    )

    assert "1. timeouts\n2. -> effect: aborts" in diagnosis_markdown(answer)


def test_claims_stand_under_their_files() -> None:
    """Key files first, in their order; each claim with its line or record."""
    evidence = tuple(Citation("log", f"says {n}", file, n) for n, file in enumerate(["b", "a", "b"], 1))
    answer = Diagnosis(
        Kind.HEALTHY, Category.NONE, Confidence.LIKELY, "fine", evidence=evidence, key_files=("a", "b", "c")
    )

    text = diagnosis_markdown(answer)

    part = text.partition("## 4. Key files\n\n")[2]
    assert part.startswith("`a`:\n\n- `a:2`: says 2\n\n`b`:\n\n- `b:1`: says 1\n- `b:3`: says 3\n")
    assert "- `c`" in part


def test_the_accused_lead_the_table_of_ranks() -> None:
    """Outliers first, at most twenty rows, and how many are gone is said."""
    states = (
        RankState("0-9", "tp", 4, 3),
        RankState("30", "dp", 4, 3),
        RankState("20-29", "dp", 3, 3),
        *(RankState(str(rank), "pp", 4, 3) for rank in range(100, 130)),
    )
    answer = Diagnosis(
        Kind.RANK_STALLED,
        Category.SOFTWARE,
        Confidence.LIKELY,
        "stalls",
        culprits=(21,),
        ranks=RankCensus(None, "", "", states),
    )

    text = diagnosis_markdown(answer)

    table = rows(text)
    assert table[0] == [
        *("ranks", "group", "enqueued", "completed", "alive", "exit", "watchdog"),
        *("timed out in", "last step"),
    ]
    assert table[1][:4] == ["20-29", "dp", "3", "3"]
    assert table[2][0] == "30"
    assert len(table) == MAX_STATES + 1
    assert f"{len(states) - MAX_STATES} more rows are left out" in text


def test_recommendations_stand_by_side() -> None:
    """Storage before training, whatever order they came in."""
    part = diagnosis_markdown(full("do it")).partition("## 5. Recommendations")[2]

    assert part.index("**storage**\n\n- do it") < part.index("**training**\n\n- do it")


def test_next_steps_can_be_pasted() -> None:
    """One code block, a command a line, each command in one line."""
    text = diagnosis_markdown(full("a\nb ``` c"))

    (fence,) = [token for token in parsed(text) if token.type == "fence"]
    assert fence.info == "sh"
    assert fence.content == "less +12 a b ``` c\na b ``` c\n"


def test_equal_diagnoses_give_equal_text() -> None:
    """Nothing of the moment or the machine gets in."""
    assert diagnosis_markdown(full()) == diagnosis_markdown(full())


@pytest.mark.parametrize("text", ["last_enqueued_work: 12", "rank 3 -> rank 4", "3.5 GiB", "-9, then exit"])
def test_ordinary_words_stay_readable(text: str) -> None:
    """In a channel that shows Markdown as it is, escapes would be noise."""
    assert prose(text) == text


@given(hostile)
def test_prose_shows_what_was_said(text: str) -> None:
    """A paragraph of one line, which reads as the text does; wherever it stands."""
    for before, after in (("", ""), ("- ", ""), ("| a |\n|---|\n| ", " |")):
        tokens = parsed(f"{before}{prose(text, in_table=after != '')}{after}")

        types = {token.type for token in flat(tokens)}
        assert not types & {
            "link_open",
            "image",
            "html_inline",
            "html_block",
            "softbreak",
            "hr",
            "code_block",
        }
        assert not types & {"blockquote_open", "heading_open", "em_open", "s_open", "ordered_list_open"}
        inlines = [shown(token) for token in tokens if token.type == "inline"]
        seen = plain(inlines[-1] if inlines else "")
        # In a table's code a space keeps a backslash and a pipe apart.
        assert seen.replace("\\ |", "\\|") == plain(text).replace("\\ |", "\\|")


@given(hostile)
def test_code_shows_what_was_said(text: str) -> None:
    """A span that nothing inside it can close."""
    tokens = parsed(code(text))

    spans = [t for t in flat(tokens) if t.type == "code_inline"]
    assert len(spans) <= 1
    assert "".join(plain(span.content) for span in spans) == plain(text)


@given(hostile)
def test_no_line_of_evidence_breaks_out(word: str) -> None:
    """The same skeleton whatever the evidence says: no more cells, no HTML, links, headings or lists."""
    text = diagnosis_markdown(full(word))

    tokens = parsed(text)
    types = {token.type for token in flat(tokens)}
    assert not types & {"link_open", "image", "html_inline", "html_block", "hr", "code_block"}
    assert len(headings(text)) == 5
    assert [len(row) for row in rows(text)] == [4, 4, 9, 9, 9, 6, 6]
    assert [t.type for t in tokens].count("fence") == 1
    assert {t.level for t in tokens if t.type.endswith("list_open")} == {0}
    text.encode()
