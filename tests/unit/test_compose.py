"""docker-compose.yml and Dockerfile say what the docs promise; where there is a docker client, it agrees."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
DOCKERFILE = (ROOT / "Dockerfile").read_text()
BOARD: dict[str, Any] = COMPOSE["services"]["board"]


def test_one_service_and_a_gpu_profile_of_it():
    assert set(COMPOSE["services"]) == {"board", "gpu"} and "profiles" not in BOARD
    gpu = COMPOSE["services"]["gpu"]
    assert gpu["profiles"] == ["gpu"]
    (device,) = gpu["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["count"], device["capabilities"]) == ("nvidia", "all", ["gpu"])
    assert {key: gpu[key] for key in BOARD} == BOARD


def test_the_home_is_a_volume_and_the_same_folder_in_both_files():
    (volume,) = BOARD["volumes"]
    name, place = volume.split(":")
    assert (
        name in COMPOSE["volumes"]
        and f"FACTORY_HOME={place}" in DOCKERFILE
        and f"VOLUME {place}" in DOCKERFILE
    )


def test_health_is_asked_where_no_token_is_needed():
    assert "/api/health" in BOARD["healthcheck"]["test"][-1] and "/api/health" in DOCKERFILE
    compile(BOARD["healthcheck"]["test"][-1], "healthcheck", "exec")


def test_it_binds_outside_and_so_never_without_a_token():
    command = re.search(r"^CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    assert command and yaml.safe_load(command[1]) == [
        "factory",
        "board",
        "--host",
        "0.0.0.0",
        "--port",
        "7860",
    ]
    assert "--no-token" not in DOCKERFILE + str(COMPOSE)
    assert BOARD["environment"]["FACTORY_TOKEN"].startswith("${FACTORY_TOKEN:?")
    assert all(port.startswith("127.0.0.1:") for port in BOARD["ports"])


def test_it_is_nobody_special():
    assert BOARD["cap_drop"] == ["ALL"] and "no-new-privileges:true" in BOARD["security_opt"]
    assert "USER factory" in DOCKERFILE and "privileged" not in BOARD


def test_the_image_installs_what_launch_installs():
    launch = (ROOT / "launch.py").read_text()
    for file in ("requirements.txt", "requirements-embedded.txt"):
        assert f'["-r", "{file}"]' in launch or f'["--no-deps", "-r", "{file}"]' in launch
        assert f"-r {file}" in DOCKERFILE
    assert "--no-deps --no-build-isolation --editable ." in DOCKERFILE


def test_a_stop_leaves_time_to_save():
    assert int(BOARD["stop_grace_period"].removesuffix("s")) >= 60 and BOARD["init"] is True


def test_docker_itself_reads_it():
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], capture_output=True).returncode:
        return  # there is no such client on this machine; the tests above read the file
    environment = {**os.environ, "FACTORY_TOKEN": "x" * 16}
    done = subprocess.run(
        [docker, "compose", "--profile", "gpu", "config", "--quiet"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    without = {name: value for name, value in os.environ.items() if name != "FACTORY_TOKEN"}
    refused = subprocess.run(
        [docker, "compose", "config", "--quiet"], cwd=ROOT, env=without, capture_output=True, text=True
    )
    assert refused.returncode != 0 and "FACTORY_TOKEN" in refused.stderr


@pytest.mark.parametrize("name", [".venv", ".git", ".env"])
def test_the_image_gets_no_environment_history_or_secret(name):
    assert name in (ROOT / ".dockerignore").read_text().splitlines()
