"""Reports that are not exported yet: nsys makes the SQLite file where it is on the PATH."""

import shlex
import shutil
import subprocess
from pathlib import Path

from traceq.errors import SourceError
from traceq.model.reasons import REEXPORT

REPORT_SUFFIXES = (".nsys-rep", ".qdrep")
_QUIET = ("--force-overwrite=true", "--quiet=true")


def export_report(path: Path, folder: Path) -> Path:
    """Returns: the SQLite export of an nsys report, made in a folder of ours.

    An nsys that is too old for payloads is asked again without them.

    Raises:
        SourceError: nsys is not on the PATH, or cannot export the report.
    """
    nsys = shutil.which("nsys")
    command = f"{REEXPORT} -o {shlex.quote(path.stem + '.sqlite')} {shlex.quote(path.name)}"
    if nsys is None:
        message = (
            f"{path.name}: an nsys report, and nsys is not on the PATH: export it with {command}"
        )
        raise SourceError(message)
    target = folder / "export.sqlite"
    payloads = [part for part in REEXPORT.split() if part.startswith("--include")]
    for flags in (payloads, []):
        arguments = [
            nsys,
            "export",
            "--type",
            "sqlite",
            *flags,
            *_QUIET,
            "-o",
            str(target),
            str(path),
        ]
        try:
            done = subprocess.run(arguments, capture_output=True, text=True, check=False)  # noqa: S603
        except OSError as error:
            message = f"{path.name}: nsys cannot be run: {error.strerror}: export it with {command}"
            raise SourceError(message) from error
        if done.returncode == 0 and target.is_file():
            return target
    message = (
        f"{path.name}: nsys could not export it (exit {done.returncode}): run {command} to see why"
    )
    raise SourceError(message)
