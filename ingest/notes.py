"""Diagnostics that every reader has."""

from traceq.model.reasons import Diagnostic, Severity


def no_steps(hint: str) -> Diagnostic:
    """Returns: the note that nothing marks a training step."""
    message = "no training steps are marked: the report covers the whole capture"
    return Diagnostic("no_steps", Severity.INFO, message, hint)


def launch_unknown(unlinked: int, of: int, hint: str) -> Diagnostic:
    """Returns: the note that some operations have no API call in the capture."""
    message = (
        f"{unlinked} of {of} device operations have no API call in the capture: they count, but "
        "belong to no step"
    )
    return Diagnostic("launch_unknown", Severity.INFO, message, hint, count=unlinked)
