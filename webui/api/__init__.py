"""REST and live streams: one file per group of routes, each with a `router`. The same core functions as the CLI."""

from webui.api import chat, data, exports, form, jobs, machine, models, runs, stream

ROUTERS = (
    machine.router,
    form.router,
    jobs.router,
    runs.router,
    exports.router,
    data.router,
    models.router,
    chat.router,
    stream.router,
)
