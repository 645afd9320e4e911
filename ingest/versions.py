"""Versions as sources state them: a version is digits and dots, anything else is not believed."""

import re

_VERSION = re.compile(r"\d+(?:\.\d+){0,4}")
_LONGEST = 40


def version_text(stated: object) -> str | None:
    """Returns: a version as text, None when what is stated is none.

    >>> version_text("580.95.05"), version_text("/home/x"), version_text(None)
    ('580.95.05', None, None)
    """
    text = str(stated)
    return text if len(text) <= _LONGEST and _VERSION.fullmatch(text) else None


def cuda_version_text(stated: object) -> str | None:
    """Returns: the version that CUDA encodes as 1000 * major + 10 * minor, None when it is none.

    >>> cuda_version_text("12090"), cuda_version_text(13000), cuda_version_text("x")
    ('12.9', '13.0', None)
    """
    text = version_text(stated)
    if text is None or not text.isdecimal() or not int(text) >= _FIRST:
        return None
    major, rest = divmod(int(text), 1000)
    return f"{major}.{rest // 10}"


_FIRST = 1000
