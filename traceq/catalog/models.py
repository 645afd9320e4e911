"""The tables of the catalog, as its newest revision has them."""

import datetime as dt

from sqlalchemy import JSON, BigInteger, CheckConstraint, ForeignKey, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship


class Base(DeclarativeBase):
    """The tables of the catalog."""


class Run(Base):
    """One run.

    `token` is the name of its file less the suffix; `fingerprint` tells the same sources read with
    the same options. A run that is being removed has given up its name and fingerprint.
    """

    __tablename__ = "runs"
    __table_args__ = (
        UniqueConstraint("token", name="runs_token_once"),
        UniqueConstraint("fingerprint", name="runs_fingerprint_once"),
        UniqueConstraint("name", name="runs_name_once"),
        CheckConstraint(
            "status IN ('complete', 'incomplete', 'removing')", name="runs_status_known"
        ),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    token: Mapped[str]
    fingerprint: Mapped[str]
    name: Mapped[str]
    status: Mapped[str]
    stored_at: Mapped[dt.datetime]  # UTC, without saying so
    world_size: Mapped[int | None]
    rank_count: Mapped[int]
    nodes: Mapped[int | None]
    gpus: Mapped[list[str]] = mapped_column(JSON)
    step_time_ns: Mapped[int | None] = mapped_column(BigInteger)
    device_kind: Mapped[str | None]
    tags: Mapped[list["Tag"]] = relationship(
        order_by="Tag.name", lazy="selectin", cascade="all, delete-orphan"
    )
    sources: Mapped[list["Source"]] = relationship(
        order_by="Source.position", lazy="selectin", cascade="all, delete-orphan"
    )


class Tag(Base):
    """One tag of one run."""

    __tablename__ = "tags"

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)


class Source(Base):
    """One source file of one run; `file_name` is its base name."""

    __tablename__ = "sources"

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    file_name: Mapped[str]
    kind: Mapped[str]
    sha256: Mapped[str]
    size_bytes: Mapped[int] = mapped_column(BigInteger)
