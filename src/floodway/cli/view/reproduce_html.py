"""All reproduced results as one HTML file: the table, and every plot beside its claim. No script, nothing fetched."""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from floodway.cli.reproduce import Found

STYLE = """
:root { color-scheme: light dark; --line: #8884; }
body { font: 16px/1.45 system-ui, sans-serif; max-width: 1060px; margin: 0 auto; padding: 12px 16px; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; vertical-align: top; padding: 6px 10px 6px 0; border-bottom: 1px solid var(--line); }
.scroll { overflow-x: auto; } .yes { color: #2c8a4f; font-weight: 700; } .no { color: #d0472f; font-weight: 700; }
img { max-width: 100%; background: #fff; border-radius: 8px; } pre { white-space: pre-wrap; }
article { border-top: 1px solid var(--line); margin-top: 28px; }
"""


def reproduce_html(found: Sequence[tuple[Found, float]], left_out: Sequence[str] = ()) -> str:
    """The page of these results with the seconds each took, and the ids of those that were not run."""
    held = sum(result.holds for result, _ in found)
    rows = "".join(
        f'<tr><td><a href="#{escape(result.id)}">{escape(result.id)}</a></td><td>{escape(result.paper.paper)}'
        f"</td><td>{escape(result.headline)}</td><td>{_verdict(result)}</td>"
        f"<td>{escape(result.where)}</td><td>{seconds:.1f}</td></tr>"
        for result, seconds in found
    )
    without = f" Left out, because they take minutes: {', '.join(left_out)} (run with --long)." if left_out else ""
    heads = "".join(f"<th>{name}</th>" for name in ("id", "paper", "measured", "holds", "ran in", "seconds"))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        f'content="width=device-width, initial-scale=1"><title>Floodway: results of the papers</title>'
        f"<style>{STYLE}</style></head><body><h1>Results of the papers, beside what is measured here</h1>"
        f"<p>{held} of {len(found)} hold. “simulation” ran the same policies on a simulated clock, “spark” on real "
        f"Spark, “computation” is arithmetic.{escape(without)}</p>"
        f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'
        f"{''.join(_article(result, seconds) for result, seconds in found)}</body></html>"
    )


def _verdict(result: Found) -> str:
    if result.failed:
        return '<span class="no">could not run</span>'
    return '<span class="yes">yes</span>' if result.holds else '<span class="no">NO</span>'


def _article(result: Found, seconds: float) -> str:
    from floodway.cli.reproduce import summary

    notes = "".join(f"<li>{escape(note)}</li>" for note in result.notes)
    reason = "" if result.holds else f'<p class="no">{escape(result.reason)}.</p>'
    with tempfile.TemporaryDirectory() as folder:
        plots = "".join(_image(path, result.title) for path in result.save_plots(Path(folder)))
    return (
        f'<article id="{escape(result.id)}"><h2>{escape(result.id)}: {escape(result.title)}</h2>'
        f"<p><b>{escape(result.paper.paper)}:</b> {escape(result.paper.text)}. Holds: {_verdict(result)}. "
        f"Ran in {escape(result.where)}, {seconds:.1f} s.</p>{reason}<pre>{escape(result.headline)}\n"
        f"{escape(summary(result.measured))}</pre>{plots}<ul>{notes}</ul></article>"
    )


def _image(path: Path, title: str) -> str:
    text = base64.b64encode(path.read_bytes()).decode("ascii")
    return f'<p><img alt="{escape(title)}: {escape(path.stem)}" src="data:image/png;base64,{text}"></p>'
