"""The pages of the board. One file a page with NAME, PATH and build(home); a new one is a file and a name in PAGES."""

from types import ModuleType

from webui.pages import chat, compare, data, models, new, run, runs

PAGES: tuple[ModuleType, ...] = (runs, new, run, compare, chat, data, models)
"""The first one is the home page."""
