"""Pass criteria over measured figures, such as ``errors == 0 and rate >= 0.95``. Never Python's own eval."""

import ast
import math
from collections.abc import Mapping

from simpleeval import DEFAULT_OPERATORS, EvalWithCompoundTypes, InvalidExpression

from harness.model.checklist import Figure

MAX_DIGITS = 30
"""More are never wanted, and rounding to -1e9 digits would have Python write a number of that length."""


def _round(number: float, digits: int = 0) -> float:
    if abs(digits) > MAX_DIGITS:
        raise ValueError(f"round: more than {MAX_DIGITS} digits")
    return round(number, digits)


FUNCTIONS = {"min": min, "max": max, "abs": abs, "round": _round}
MAX_CHARS = 400

_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.UAdd, ast.USub, ast.Not)
_COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn)
_ALLOWED = (
    *(ast.Expression, ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Call, ast.Name, ast.Constant),
    *(ast.And, ast.Or, ast.Load, ast.Tuple),
    *_OPERATORS,
    *_COMPARISONS,
)


class ExpressionError(ValueError):
    """An expression that is none, or that asks for a figure which was not measured."""


def names_in(expression: str) -> frozenset[str]:
    """The figures that an expression asks for.

    Raises:
        ExpressionError: not an expression, or more than comparisons, arithmetic and min, max, abs, round.
    """
    if len(expression) > MAX_CHARS:
        raise ExpressionError(f"longer than {MAX_CHARS} characters")
    try:
        tree = ast.parse(expression, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        said = error.msg if isinstance(error, SyntaxError) else str(error)
        raise ExpressionError(f"'{expression}' is not an expression: {said}") from None
    for node in ast.walk(tree):
        if not isinstance(node, _ALLOWED):
            raise ExpressionError(
                f"'{expression}': allowed are comparisons, and, or, not, + - * /, "
                f"{', '.join(FUNCTIONS)}; not {type(node).__name__}"
            )
        if isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS):
            raise ExpressionError(f"'{expression}': the only functions are {', '.join(FUNCTIONS)}")
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    names = frozenset(
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in called
    )
    if functions := sorted(names & FUNCTIONS.keys()):
        raise ExpressionError(f"'{expression}': {functions[0]} is a function: {functions[0]}(...)")
    if not names:
        raise ExpressionError(f"'{expression}' asks for no figure: it is the same whatever was measured")
    return names


def holds(expression: str, figures: Mapping[str, Figure]) -> bool:
    """Whether figures meet a criterion.

    Raises:
        ExpressionError: a figure is missing, is NaN or infinite, or does not compare; whatever else makes no
            yes or no.
    """
    wanted = names_in(expression)
    if missing := sorted(name for name in wanted if figures.get(name) is None):
        raise ExpressionError(f"'{expression}' needs {', '.join(missing)}, which was not measured")
    # NaN is unequal to everything, and infinity at least anything: neither is a measurement.
    if endless := sorted(name for name in wanted if not _finite(figures[name])):
        name = endless[0]
        raise ExpressionError(f"'{expression}': {name} is {figures[name]}, which is no measurement")
    operators = {kind: DEFAULT_OPERATORS[kind] for kind in (*_OPERATORS, *_COMPARISONS)}
    evaluator = EvalWithCompoundTypes(operators=operators, functions=dict(FUNCTIONS), names=dict(figures))
    try:
        found = evaluator.eval(expression)
    except (InvalidExpression, ArithmeticError, TypeError, ValueError) as error:
        raise ExpressionError(f"'{expression}': {error}") from None
    if not isinstance(found, bool):
        raise ExpressionError(f"'{expression}' gives {found!r}, not yes or no")
    return found


def _finite(figure: Figure) -> bool:
    return not isinstance(figure, float) or math.isfinite(figure)
