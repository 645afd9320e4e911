"""One self-contained HTML page: elements that escape what they hold, and a style of its own.

A page asks the network for nothing: no script, no font, no image from elsewhere.
"""

import re
from collections.abc import Iterable, Sequence
from xml.etree.ElementTree import Element, tostring

_NOT_TEXT = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"

# Okabe and Ito's colours, which people who see colours differently tell apart; as in the dashboard.
COLORS = {
    "compute": "#009e73",
    "exposed_comm": "#d55e00",
    "exposed_transfer": "#d55e00",
    "exposed_wait": "#cc79a7",
    "exposed_copy": "#e69f00",
    "idle": "#999999",
    "rest": "#56b4e9",
}
_STYLE = """
:root { color-scheme: light dark; --ink: #1c2024; --dim: #5f6b76; --line: #d5dae0; --paper: #ffffff;
  --bad: #b33c00; --good: #00734f; --open: #8a6100 }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ec; --dim: #9aa5b1; --line: #39424c;
  --paper: #14181c; --bad: #ff8a50; --good: #35c796; --open: #e6b84a } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 70rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.3rem } h2 { font-size: 1.05rem; margin: 2rem 0 .5rem }
.answer { font-size: 1.15rem; font-weight: 600 } .dim, caption { color: var(--dim) }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: .5rem 0 }
caption { text-align: left; caption-side: bottom; padding-top: .3rem }
th { text-align: left; font-weight: 500; color: var(--dim) }
th, td { padding: .2rem .8rem .2rem 0; border-bottom: 1px solid var(--line); vertical-align: top }
td.number, th.number { text-align: right; white-space: nowrap }
.bad { color: var(--bad); font-weight: 600 } .good { color: var(--good) }
.open { color: var(--open) }
.scroll { overflow-x: auto } ul { padding-left: 1.2rem } li { margin: .3rem 0 }
svg { max-width: 100%; height: auto; font: 12px system-ui, sans-serif }
svg text { fill: var(--ink) } svg .dim { fill: var(--dim) } svg .axis { stroke: var(--line) }
"""


def element(tag: str, *children: "str | Element | None", **attributes: object) -> Element:
    """Returns: an element; texts in it are shown as they are.

    Args:
        tag: its name.
        children: texts and elements; None is left out.
        attributes: attributes, `_` at the end is dropped and else becomes `-`.
    """
    named = {key.rstrip("_").replace("_", "-"): str(v) for key, v in attributes.items()}
    made = Element(tag, {key: _text(value) for key, value in named.items()})
    last: Element | None = None
    for child in children:
        if isinstance(child, str):
            if last is None:
                made.text = (made.text or "") + _text(child)
            else:
                last.tail = (last.tail or "") + _text(child)
        elif child is not None:
            made.append(child)
            last = child
    return made


def page(title: str, *sections: Element | None) -> str:
    """Returns: a whole HTML page."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("title", title),
        element("style", _STYLE),
    )
    whole = element("html", head, element("body", *sections), lang="en")
    return "<!doctype html>\n" + tostring(whole, encoding="unicode", method="html") + "\n"


def section(title: str, *children: "str | Element | None") -> Element:
    """Returns: children under a heading."""
    return element("section", element("h2", title), *children)


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence["str | Element"]],
    caption: str | None = None,
) -> Element:
    """Returns: a table; a column is of numbers where its name begins with `>`."""
    kinds = ["number" if column.startswith(">") else "text" for column in columns]
    heads = (
        element("th", c.removeprefix(">"), class_=k) for c, k in zip(columns, kinds, strict=True)
    )
    body = (
        element("tr", *(element("td", cell, class_=k) for cell, k in zip(row, kinds, strict=True)))
        for row in rows
    )
    made = element(
        "table",
        element("caption", caption) if caption else None,
        element("thead", element("tr", *heads)),
        element("tbody", *body),
    )
    return element("div", made, class_="scroll")


def items(texts: Iterable["str | Element"]) -> Element:
    """Returns: a list."""
    return element("ul", *(element("li", text) for text in texts))


def _text(text: str) -> str:
    return _NOT_TEXT.sub("\ufffd", text)
