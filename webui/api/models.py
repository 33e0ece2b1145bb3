"""Routes about the models on this machine."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response

from webui import models
from webui.api.here import InHere, Json
from webui.api.run_answers import Deleted
from webui.api.runs import as_json
from webui.api.stock_answers import Models

router = APIRouter(tags=["models"])


@router.get("/models", response_model=Models)
def all_models(here: InHere) -> Response:
    """Bases, adapters and results, the newest results first."""
    return as_json({"models": models.all_models(here.settings)})


@router.delete("/models/{id}", response_model=Deleted)
def delete(here: InHere, id: Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{1,6000}$")]) -> Json:
    """Move a model to the trash of the home. Refused while a live run needs it."""
    return models.delete(here.settings, id)
