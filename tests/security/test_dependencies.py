"""Row 17: versions with known holes are refused by a list of our own.

pip-audit says "no known vulnerabilities" while it skips every package it cannot look up, so a green from it means
nothing where there is no network (finding F5); this list means what it says.
"""

from __future__ import annotations

import re
from importlib import metadata

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tests.security.conftest import ROOT
from webui.board import mount_arguments
from webui.server import QUIET

BAD: tuple[tuple[str, str, str], ...] = (
    ("torch", "<2.6", "CVE-2025-32434: weights_only is no protection"),
    ("torch", "<2.10", "CVE-2026-24747: memory corruption through weights_only"),
    ("transformers", "<4.48", "CVE-2024-11392 to -11394: deserialisation of checkpoints"),
    ("vllm", "<0.18", "CVE-2026-27893: trust_remote_code switched on"),
    ("deepspeed", "<=0.18.5", "CVE-2026-136436: deserialisation of checkpoints"),
    ("unsloth_zoo", "<2026.8.14", "CVE-2026-93348: model_type becomes source code"),
    ("gradio", "<6.20", "CVE-2026-59806 and older: file=, proxy, FileExplorer, CORS"),
    ("gradio", "<6.25", "grows with every session"),
    ("gradio", ">=6.27,<6.32", "CVE-2026-134825: forged Host with ssr_mode"),
    ("mlflow", "<3.9", "CVE-2026-2033 and older: path traversal"),
    ("jinja2", "<3.1.6", "CVE-2025-27516: sandbox breakout through attr"),
    ("starlette", "<0.47.2", "CVE-2025-54121: large forms block the loop"),
    ("python-multipart", "<0.0.18", "CVE-2024-53981: a hang by a crafted boundary"),
    ("h11", "<0.16", "CVE-2025-43859: chunked bodies read leniently"),
    ("pillow", "<11.3", "CVE-2025-48379: buffer overflow in DDS"),
    ("protobuf", "<5.29.5", "CVE-2025-4565: recursion"),
    ("urllib3", "<2.5", "CVE-2025-50181: redirects not switched off"),
    ("requests", "<2.32.4", "CVE-2024-47081: netrc leaks to other hosts"),
    ("safehttpx", "<0.1.6", "requests to private addresses"),
)


def excused(package: str, text: str) -> bool:
    """A hole that needs a switch we keep off: then the switch is what is tested."""
    if "CVE-2026-134825" in text:
        arguments = mount_arguments()
        return (
            arguments["ssr_mode"] is False
            and arguments["run_history"] is False
            and QUIET["GRADIO_SSR_MODE"] == "False"
        )
    return False


def holes(package: str, version: str) -> list[str]:
    """What is known to be wrong with a version."""
    return [
        text
        for name, bad, text in BAD
        if name == package
        and SpecifierSet(bad).contains(Version(version), prereleases=True)
        and not excused(package, text)
    ]


@pytest.mark.parametrize("package", sorted({name for name, _, _ in BAD}))
def test_no_installed_version_has_a_known_hole(package):
    try:
        version = metadata.version(package)
    except metadata.PackageNotFoundError:
        return  # what is not here has no holes; the environments of engines have lists of their own
    assert holes(package, version) == []


def test_no_pinned_version_has_a_known_hole():
    text = (ROOT / "requirements.txt").read_text()
    pins = dict(re.findall(r"^([A-Za-z0-9_.-]+)==(\S+)", text, re.MULTILINE))
    assert len(pins) > 20
    assert {name: found for name, version in pins.items() if (found := holes(name.lower(), version))} == {}


def test_the_list_would_speak(monkeypatch):
    assert holes("torch", "2.9.1") and holes("gradio", "6.26.0") == [] and holes("gradio", "6.19.0")
    monkeypatch.setitem(QUIET, "GRADIO_SSR_MODE", "True")
    assert holes("gradio", "6.31.0")
