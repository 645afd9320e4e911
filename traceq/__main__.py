"""`python -m traceq`."""

from traceq.cli import main

main()
