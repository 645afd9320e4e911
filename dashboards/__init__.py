"""The dashboard; its pages follow."""

if __name__ != "traceq.dashboards":
    _MESSAGE = "import traceq.dashboards: the folder at the top is the same package under one name"
    raise ImportError(_MESSAGE)
