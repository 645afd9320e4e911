"""A report as JUnit XML: one test case per gate, and one for whether every source was whole.

The form is that of Apache Ant, which what reads such files agrees on.
"""

import datetime as dt
import re
from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from traceq.gates import gate_text
from traceq.report import Report, Row

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(report: Report) -> str:
    """Returns: the gates of a report as JUnit XML."""
    return suite(report.name, report.gates, complete=report.complete)


def suite(name: str, gates: Sequence[Row], *, complete: bool) -> str:
    """Returns: gates as a JUnit test suite: failed is a failure, not judged an error.

    Args:
        name: what was judged.
        gates: rows of `gates.judge_report` or `gates.judge_comparison`.
        complete: every source was read whole.
    """
    cases = [_case(row, name) for row in gates]
    whole = Element("testcase", classname=_text(name), name="every source is whole", time="0")
    if not complete:
        message = "a source could not be read, was cut short, or lost events: see the report"
        SubElement(whole, "error", message=message, type="incomplete")
    cases.append(whole)
    counts = {
        "tests": len(cases),
        "failures": sum(case.find("failure") is not None for case in cases),
        "errors": sum(case.find("error") is not None for case in cases),
        "skipped": 0,
    }
    told = {key: str(count) for key, count in counts.items()}
    now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S")
    root = Element("testsuites")
    about = {"id": "0", "package": "traceq", "name": "traceq", "hostname": "localhost", "time": "0"}
    tests = SubElement(root, "testsuite", {**about, "timestamp": now, **told})
    SubElement(tests, "properties")
    tests.extend(cases)
    SubElement(tests, "system-out")
    SubElement(tests, "system-err")
    indent(root, " ")
    return '<?xml version="1.0" encoding="utf-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _case(row: Row, name: str) -> Element:
    classname = _text(row.get("run", name))
    case = Element("testcase", classname=classname, name=_text(row["expr"]), time="0")
    if row["passed"] is not True:
        kind = "failure" if row["passed"] is False else "error"
        said = f"it is {gate_text(row)}" if kind == "failure" else gate_text(row)
        SubElement(case, kind, message=_text(said), type=row["reason"] or "gate")
    return case


def _text(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
