"""A PostgreSQL server of the tests' own: on a socket in a folder of its own, gone when they end."""

import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Postgres:
    """A server that runs."""

    binaries: Path
    folder: Path

    def new_database(self) -> str:
        """The URL of a new, empty database."""
        name = f"traceq_{secrets.token_hex(6)}"
        self.run("createdb", "-h", self.folder, "-U", "postgres", name)
        return f"postgresql://postgres@/{name}?host={self.folder}"

    def run(self, program: str, *arguments: object) -> None:
        """Runs a program of PostgreSQL as a user that is not root, which it refuses."""
        done = subprocess.run(
            [*_as_other(), self.binaries / program, *map(str, arguments)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, cwd="/",
        )  # fmt: skip
        assert done.returncode == 0, done.stdout


def _as_other() -> list[str]:
    if os.geteuid() != 0:
        return []
    user = _other_user()
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]


def _other_user() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")


def find_binaries() -> Path | None:
    """The folder of the newest PostgreSQL that is installed."""
    found = list(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    newest = max(found, key=lambda path: float(path.parts[-3]), default=None)
    chosen = newest or shutil.which("initdb")
    return Path(chosen).parent if chosen else None


@contextmanager
def running(binaries: Path) -> Iterator[Postgres]:
    """A server while the block runs."""
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))  # a socket's path must be short
    if os.geteuid() == 0:
        os.chown(folder, _other_user().pw_uid, _other_user().pw_gid)
    server, data = Postgres(binaries, folder), folder / "data"
    try:
        server.run("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "-N")
        settings = f"-c listen_addresses='' -c fsync=off -k {folder}"
        server.run(
            "pg_ctl", "-D", data, "-w", "-t", 60, "-o", settings, "-l", folder / "log", "start"
        )
        try:
            yield server
        finally:
            server.run("pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
