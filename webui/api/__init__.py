"""REST and live streams: one file per group of routes, each with a `router`. The same core functions as the CLI."""

from webui.api import machine, runs, stream

ROUTERS = (machine.router, runs.router, stream.router)
