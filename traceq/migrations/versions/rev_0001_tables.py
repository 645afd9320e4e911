"""The tables: runs, their tags and their sources."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Creates every table."""
    op.create_table(
        "runs",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("token", sa.String(), nullable=False),
        sa.Column("fingerprint", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("stored_at", sa.DateTime(), nullable=False),
        sa.Column("world_size", sa.Integer()),
        sa.Column("rank_count", sa.Integer(), nullable=False),
        sa.Column("nodes", sa.Integer()),
        sa.Column("gpus", sa.JSON(), nullable=False),
        sa.UniqueConstraint("token", name="runs_token_once"),
        sa.UniqueConstraint("fingerprint", name="runs_fingerprint_once"),
        sa.UniqueConstraint("name", name="runs_name_once"),
        sa.CheckConstraint(
            "status IN ('complete', 'incomplete', 'removing')", name="runs_status_known"
        ),
    )
    op.create_table(
        "tags",
        _run_id(),
        sa.Column("name", sa.String(), primary_key=True),
    )
    op.create_table(
        "sources",
        _run_id(),
        sa.Column("position", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("file_name", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("sha256", sa.String(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
    )


def _run_id() -> sa.Column[int]:
    run = sa.ForeignKey("runs.id", ondelete="CASCADE")
    return sa.Column("run_id", sa.Integer(), run, primary_key=True, autoincrement=False)
