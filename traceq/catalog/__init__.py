"""The catalog: which runs a store holds, in SQLite beside them or in PostgreSQL for a team.

Only this package and the migrations use SQLAlchemy. A catalog is brought up to date when it is
opened, each change is one transaction, and nothing in it names a host, a user or a path.
"""

import datetime as dt
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Select, delete, select, update
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.orm import Session

from traceq.catalog.engine import in_words, make_engine, migrate
from traceq.catalog.models import Run, Source, Tag
from traceq.errors import StoreError

__all__ = ["REMOVING", "Catalog", "Run", "Source", "Tag", "TakenError"]

REMOVING = "removing"


class TakenError(StoreError):
    """A run whose token, name or fingerprint the catalog has already."""


class Catalog:
    """A catalog that is open. Connections are made for each use, so threads may share it."""

    def __init__(self, place: Path | str) -> None:
        """Takes a SQLite file, which is made when missing, or the URL of a database.

        Raises:
            StoreError: the URL is none of a database that traceq can use.
        """
        self._engine, self._file = make_engine(place)

    def migrate(self) -> None:
        """Brings the catalog up to date, from empty or from any revision before this one.

        Raises:
            StoreError: it is not a catalog, cannot be written, or is of a newer traceq.
        """
        with self._told():
            migrate(self._engine, self._file or "catalog")

    def runs(self, *, tag: str | None = None) -> list[Run]:
        """Returns: the runs, newest first; with a tag those that have it.

        Raises:
            StoreError: the catalog cannot be read.
        """
        query = select(Run).where(Run.status != REMOVING)
        if tag is not None:
            query = query.where(Run.tags.any(Tag.name == tag))
        with self._session() as session:
            return list(session.scalars(query.order_by(Run.stored_at.desc(), Run.id.desc())))

    def find(self, *, name: str | None = None, fingerprint: str | None = None) -> Run | None:
        """Returns: the run of a name or a fingerprint, None when there is none.

        Raises:
            StoreError: the catalog cannot be read.
        """
        same = Run.name == name if fingerprint is None else Run.fingerprint == fingerprint
        with self._session() as session:
            return session.scalars(select(Run).where(same, Run.status != REMOVING)).one_or_none()

    def tokens(self, *, removing: bool = False) -> list[str]:
        """Returns: the tokens of all runs, or of those alone that are being removed.

        Raises:
            StoreError: the catalog cannot be read.
        """
        query = select(Run.token).order_by(Run.id)
        if removing:
            query = query.where(Run.status == REMOVING)
        with self._session() as session:
            return list(session.scalars(query))

    @contextmanager
    def adding(self, run: Run) -> Iterator[None]:
        """Adds a run: unique before the block begins, committed when it ends well.

        Raises:
            TakenError: its token, name or fingerprint is there already.
            StoreError: the catalog cannot be written.
        """
        with self._session(writes=True) as session:
            session.add(run)
            try:
                session.flush()
            except IntegrityError:
                message = f"{run.name}: is in the catalog already"
                raise TakenError(message) from None
            yield
            session.commit()

    @contextmanager
    def absence(self, token: str) -> Iterator[bool]:
        """Yields: whether no run has a token; while the block runs none can get it.

        A process that is gone may have sent a COMMIT that its server has yet to see. Asking for the
        token as a new run would waits for that to be decided; looking for it would not.

        Raises:
            StoreError: the catalog cannot be written.
        """
        with self._session(writes=True) as session:
            session.add(_removed(token))
            try:
                session.flush()
            except IntegrityError:
                session.rollback()
                absent = False
            else:
                absent = True
            yield absent
            session.rollback()

    def tag(self, name: str, add: Sequence[str], remove: Sequence[str]) -> Run | None:
        """Returns: the run once it has and lacks the tags, None when there is no such run.

        Raises:
            StoreError: the catalog cannot be written.
        """
        with self._session(writes=True) as session:
            run = session.scalars(_named(name)).one_or_none()
            if run is not None:
                kept = {tag.name: tag for tag in run.tags if tag.name not in remove}
                wanted = sorted((set(kept) | set(add)) - set(remove))
                run.tags[:] = [kept.get(each) or Tag(name=each) for each in wanted]
                session.commit()
            return run

    def retire(self, name: str) -> str | None:
        """Returns: the token of a run that is now being removed, None when there is no such run.

        Raises:
            StoreError: the catalog cannot be written.
        """
        with self._session(writes=True) as session:
            run = session.scalars(_named(name)).one_or_none()
            if run is None:
                return None
            gone = _removed(run.token)
            run.status, run.name, run.fingerprint = gone.status, gone.name, gone.fingerprint
            session.commit()
            return run.token

    def forget(self, token: str) -> None:
        """Deletes the row of a run, if there is one.

        Raises:
            StoreError: the catalog cannot be written.
        """
        with self._session(writes=True) as session:
            session.execute(delete(Run).where(Run.token == token))
            session.commit()

    def unread(self) -> list[str]:
        """Returns: the tokens of runs whose row is older than the columns it has.

        Raises:
            StoreError: the catalog cannot be read.
        """
        with self._session() as session:
            unread = (Run.device_kind.is_(None), Run.status != REMOVING)
            return list(session.scalars(select(Run.token).where(*unread)))

    def complete(self, token: str, device_kind: str, step_time_ns: int | None) -> None:
        """Fills the columns of a row that is older than they are.

        Raises:
            StoreError: the catalog cannot be written.
        """
        with self._session(writes=True) as session:
            values = {"device_kind": device_kind, "step_time_ns": step_time_ns}
            session.execute(update(Run).where(Run.token == token).values(values))
            session.commit()

    @contextmanager
    def _session(self, *, writes: bool = False) -> Iterator[Session]:
        engine = self._engine.execution_options(writes=writes)
        with self._told(), Session(engine, expire_on_commit=False) as session:
            yield session

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            raise StoreError(in_words(error, self._file)) from None


def _named(name: str) -> Select[Run]:
    """Returns: the run of a name, locked against other writers until the transaction ends."""
    return select(Run).where(Run.name == name, Run.status != REMOVING).with_for_update()


def _removed(token: str) -> Run:
    """Returns: a row that has a token and nothing else; no name or fingerprint has a slash."""
    nothing = f"/{token}"
    return Run(
        token=token, name=nothing, fingerprint=nothing, status=REMOVING, rank_count=0, gpus=[],
        stored_at=dt.datetime.now(dt.UTC).replace(tzinfo=None),
    )  # fmt: skip
