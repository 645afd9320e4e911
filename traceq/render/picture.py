"""Pictures as SVG elements: bars of parts, a waterfall, and points over a logarithmic axis."""

import math
from collections.abc import Callable, Sequence
from xml.etree.ElementTree import Element

from traceq.render.page import COLORS, element

_WIDTH = 860
_LABEL = 150
_BAR = 18
_GAP = 6
_HEIGHT = 260
_MARGIN = 60

Part = tuple[str, float, str]


def stacked_bars(
    rows: Sequence[tuple[str, Sequence[Part]]], text: Callable[[float], str], what: str
) -> Element:
    """Returns: a bar for each row, made of its parts, all on one scale.

    Args:
        rows: label, and its parts as (colour name, value, name).
        text: a value in words.
        what: what the picture shows, for those who hear it.
    """
    most = max((sum(v for _, v, _ in parts) for _, parts in rows), default=0) or 1
    scale = (_WIDTH - _LABEL - 80) / most
    drawn = []
    for k, (label, parts) in enumerate(rows):
        y, x = k * (_BAR + _GAP), float(_LABEL)
        drawn.append(_label(label, _LABEL - 8, y + _BAR - 5, "end"))
        for color, value, name in parts:
            tip = element("title", f"{label}: {name} {text(value)}")
            drawn.append(_box(x, y, value * scale, COLORS[color], tip))
            x += value * scale
        total = text(sum(value for _, value, _ in parts))
        drawn.append(_label(total, x + 6, y + _BAR - 5, "start"))
    names = dict.fromkeys((color, name) for _, parts in rows for color, _, name in parts)
    height = len(rows) * (_BAR + _GAP) + 24
    drawn += _legend(list(names), height - 6)
    return _svg(height, what, drawn)


def waterfall(
    begin: tuple[str, float], steps: Sequence[Part], end: tuple[str, float],
    text: Callable[[float], str], what: str,
) -> Element:  # fmt: skip
    """Returns: how a first value becomes the last, one bar for each step up or down.

    Args:
        begin: label and value.
        steps: colour name, change and label of each step.
        end: label and value.
        text: a value in words.
        what: what the picture shows, for those who hear it.
    """
    levels = [begin[1]]
    for _, change, _ in steps:
        levels.append(levels[-1] + change)
    scale = (_WIDTH - _LABEL - 120) / (max(*levels, end[1]) or 1)
    rows = [(begin[0], 0.0, begin[1], "idle", text(begin[1]))]
    for (color, change, label), level in zip(steps, levels, strict=False):
        sign = "+" if change > 0 else "-" if change else ""
        low = min(level, level + change)
        rows.append((label, low, abs(change), color, f"{sign}{text(abs(change))}"))
    rows.append((end[0], 0.0, end[1], "idle", text(end[1])))
    drawn = []
    for k, (label, low, length, color, told) in enumerate(rows):
        y, x = k * (_BAR + _GAP), _LABEL + low * scale
        drawn.append(_label(label, _LABEL - 8, y + _BAR - 5, "end"))
        tip = element("title", f"{label}: {told}")
        drawn.append(_box(x, y, max(length * scale, 1), COLORS[color], tip))
        drawn.append(_label(told, x + length * scale + 6, y + _BAR - 5, "start"))
    return _svg(len(rows) * (_BAR + _GAP), what, drawn)


Series = tuple[str, str, Sequence[tuple[float, float]], bool]


def curves(
    series: Sequence[Series], x_text: Callable[[float], str], y_text: Callable[[float], str],
    what: str,
) -> Element:  # fmt: skip
    """Returns: series of points over a logarithmic x axis, the y axis from zero.

    Args:
        series: name, colour, (x, y) points, and whether they are joined by a line.
        x_text: an x in words.
        y_text: a y in words.
        what: what the picture shows, for those who hear it.
    """
    xs = sorted({x for _, _, points, _ in series for x, _ in points if x > 0})
    top = max((y for _, _, points, _ in series for _, y in points), default=0) or 1
    low, high = (math.log2(xs[0]), math.log2(xs[-1])) if xs else (0, 1)

    def at(x: float, y: float) -> tuple[float, float]:
        share = 0.5 if high == low else (math.log2(x) - low) / (high - low)
        inner = _WIDTH - 2 * _MARGIN - 100
        return _MARGIN + 40 + share * inner, 10 + (_HEIGHT - 60) * (1 - y / top)

    drawn = []
    for share in (0, 0.5, 1):
        y = at(xs[0] if xs else 1, share * top)[1]
        drawn.append(_line([(_MARGIN + 20, y), (_WIDTH - _MARGIN - 40, y)], None))
        drawn.append(_label(y_text(share * top), _MARGIN + 14, y + 4, "end"))
    shown = xs if len(xs) <= 8 else xs[:: math.ceil(len(xs) / 8)]  # noqa: PLR2004  # room for labels
    drawn += [_label(x_text(x), at(x, 0)[0], _HEIGHT - 34, "middle") for x in shown]
    for name, color, points, joined in series:
        placed = [at(x, y) for x, y in points if x > 0]
        if joined:
            drawn.append(_line(placed, color))
        for (x, y), (px, py) in zip([p for p in points if p[0] > 0], placed, strict=True):
            tip = element("title", f"{name}: {x_text(x)}, {y_text(y)}")
            if not joined:
                drawn.append(
                    element("circle", tip, cx=f"{px:.1f}", cy=f"{py:.1f}", r=4, fill=color)
                )
    named: dict[str, str] = {}
    for name, color, _, _ in series:
        named.setdefault(color, name)
    drawn += _legend(list(named.items()), _HEIGHT - 6)
    return _svg(_HEIGHT, what, drawn)


def _legend(names: Sequence[tuple[str, str]], y: float) -> list[Element]:
    drawn, x = [], float(_LABEL)
    for color, name in names:
        drawn.append(_box(x, y - 9, 10, COLORS.get(color, color), height=10))
        drawn.append(_label(name, x + 14, y, "start"))
        x += 34 + 7 * len(name)
    return drawn


def _label(text: str, x: float, y: float, anchor: str) -> Element:
    return element("text", text, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor)


def _box(
    x: float, y: float, width: float, color: str, tip: Element | None = None, *, height: int = _BAR
) -> Element:
    return element(
        "rect", tip, x=f"{x:.1f}", y=f"{y:.1f}", width=f"{max(width, 0):.1f}", height=height,
        fill=color,
    )  # fmt: skip


def _line(points: Sequence[tuple[float, float]], color: str | None) -> Element:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    look = {"class_": "axis"} if color is None else {"stroke": color, "stroke_width": 2}
    return element("polyline", points=path, fill="none", **look)


def _svg(height: float, what: str, drawn: Sequence[Element]) -> Element:
    return element(
        "svg", element("title", what), *drawn, viewBox=f"0 0 {_WIDTH} {height:.0f}",
        width=_WIDTH, height=f"{height:.0f}", role="img", xmlns="http://www.w3.org/2000/svg",
    )  # fmt: skip
