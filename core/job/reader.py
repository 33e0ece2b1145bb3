"""Job text to plain values with positions, within hard limits. Knows no field of a job.

The text may come from anybody: `read_text` tells everything that is wrong at once, and answers any input in well
under 0.1 s.
"""

from __future__ import annotations

from core.job.json_text import read_json
from core.job.reading import MAX_BYTES, Reading, too_much
from core.job.yaml_text import read_yaml


def read_text(text: str, origin: str) -> Reading:
    """The plain value of a YAML or JSON text: dicts, lists, str, int, finite float, bool, None.

    A text that starts with `{` and is valid JSON is read as JSON, everything else as YAML. `origin` is the
    name used in sentences, such as a file name. Raises FactoryError where reading cannot go on (too large,
    too deep, broken syntax); what lets reading go on is in `findings`, with field and position.
    """
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise too_much("job_too_large", origin, f"is larger than {MAX_BYTES // 1024} KiB")
    text = text.removeprefix("\ufeff")
    if text.lstrip().startswith("{"):
        reading = read_json(text, origin)
        if reading is not None:
            return reading
    return read_yaml(text, origin)
