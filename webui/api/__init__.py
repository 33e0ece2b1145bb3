"""REST and live streams: one file per group of routes, each with a `router`. The same core functions as the CLI."""

from webui.api import chat, form, machine, runs, stream

ROUTERS = (form.router, machine.router, runs.router, stream.router, chat.router)
