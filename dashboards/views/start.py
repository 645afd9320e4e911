"""The address without a page: the page Runs."""

from traceq.dashboards.choice import go_to_runs

go_to_runs()
