"""Step time and kind of device of a run, so that a list can show them.

Rows from before stay without them until the store reads them from the run files.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Adds the columns."""
    op.add_column("runs", sa.Column("step_time_ns", sa.BigInteger()))
    op.add_column("runs", sa.Column("device_kind", sa.String()))
