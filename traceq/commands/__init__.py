"""The commands, one verb a module, in the order in which help lists them."""

from traceq.commands.baseline import baseline
from traceq.commands.bench import bench
from traceq.commands.compare import compare
from traceq.commands.dashboard import dashboard
from traceq.commands.demo import demo
from traceq.commands.doctor import doctor
from traceq.commands.export import export
from traceq.commands.ingest import ingest
from traceq.commands.query import query
from traceq.commands.record import record
from traceq.commands.report import report
from traceq.commands.runs import runs
from traceq.commands.sql import sql

COMMANDS = (
    report,
    compare,
    ingest,
    runs,
    dashboard,
    doctor,
    record,
    demo,
    bench,
    baseline,
    query,
    sql,
    export,
)
