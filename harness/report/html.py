"""A diagnosis as one self-contained HTML file. Plain: what the terminal shows, in a page."""

import io

from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME

from harness.diagnose.api import Result
from harness.report.terminal import WIDTH, show_diagnosis

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>drill: @TITLE@</title>
<style>body {{ margin: 2rem; background: #fff; color: #111 }}
pre {{ font: 14px/1.45 ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; white-space: pre }}
{stylesheet}</style></head>
<body><pre><code>{code}</code></pre></body></html>
"""


def diagnosis_page(result: Result) -> str:
    """The whole page. Everything that comes from evidence is escaped."""
    console = Console(file=io.StringIO(), record=True, width=WIDTH, force_terminal=True, highlight=False)
    show_diagnosis(console, result)
    page = _PAGE.replace("@TITLE@", result.diagnosis.kind.value)
    return console.export_html(theme=DEFAULT_TERMINAL_THEME, code_format=page, inline_styles=True)
