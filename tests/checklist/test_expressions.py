"""Pass criteria: what they may say, and that they can do nothing else."""

import pytest

from harness.checklist.expressions import ExpressionError, holds, names_in


@pytest.mark.parametrize(
    ("expression", "figures", "expected"),
    [
        ("errors == 0", {"errors": 0}, True),
        ("errors == 0", {"errors": 1}, False),
        ("rate >= 0.95 * peer and clean", {"rate": 96, "peer": 100, "clean": True}, True),
        ("max(a, b) < 1.15", {"a": 1.0, "b": 1.2}, False),
        ("not (skew > 1 or lost)", {"skew": 0.5, "lost": False}, True),
        ("device == 'H100'", {"device": "H100"}, True),
        ("state in ('ok', 'idle')", {"state": "idle"}, True),
        ("0.9 <= ratio <= 1.1", {"ratio": 1.2}, False),
    ],
)
def test_a_criterion_holds_or_not(
    expression: str, figures: dict[str, bool | int | float | str | None], expected: bool
) -> None:
    """Comparisons, arithmetic and logic over figures."""
    assert holds(expression, figures) is expected


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('os').system('true')",
        "figures.__class__",
        "(lambda: 1)()",
        "[x for x in (1, 2)]",
        "open('/etc/passwd')",
        "rate ** 1000000000",
        "x[0]",
        "a := 1",
        "f'{a}'",
        "1 if a else 2",
        "rate >=",
        "1 == 1",
        "min != max",
        "list(x) == y",
        "",
        "a" * 500,
        "(" * 300,
    ],
)
def test_nothing_else_is_an_expression(expression: str) -> None:
    """Attributes, calls, comprehensions, powers and the like are refused before anything is evaluated."""
    with pytest.raises(ExpressionError):
        names_in(expression)


@pytest.mark.parametrize(
    ("expression", "figures", "said"),
    [
        ("rate > 1", {}, "rate, which was not measured"),
        ("rate > 1", {"rate": None}, "rate, which was not measured"),
        ("rate > 1", {"rate": "fast"}, "not supported"),
        ("rate / zero > 1", {"rate": 1, "zero": 0}, "division"),
        ("rate + 1", {"rate": 1}, "not yes or no"),
        ("rate != 0", {"rate": float("nan")}, "rate is nan, which is no measurement"),
        ("not rate < 1", {"rate": float("nan")}, "no measurement"),
        ("rate >= 20", {"rate": float("inf")}, "no measurement"),
        ("round(rate, -9999999999) == 0", {"rate": 1}, "more than 30 digits"),
    ],
)
def test_what_cannot_be_compared_is_said(
    expression: str, figures: dict[str, bool | int | float | str | None], said: str
) -> None:
    """A figure that is missing or no measurement is never a pass, and the message names it."""
    with pytest.raises(ExpressionError, match=said):
        holds(expression, figures)


def test_the_names_of_an_expression_are_known_without_figures() -> None:
    """A checklist can be checked against what a probe measures before it runs."""
    assert names_in("min(a, b) >= 0.9 and state == 'ok'") == {"a", "b", "state"}


def test_evaluating_adds_no_functions() -> None:
    """The library that evaluates brings more of its own: they do not come in with the first criterion."""
    holds("rate > 1", {"rate": 2})

    with pytest.raises(ExpressionError, match="the only functions are min, max, abs, round"):
        names_in("list(rate) == 1")
