"""The manifests of deploy/kubernetes, as `kubectl kustomize` puts them together."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.deploy.composed import ROOT

FOLDER = ROOT / "deploy" / "kubernetes"
Manifest = dict[str, Any]


def built(name: str) -> list[Manifest]:
    """All of an overlay or of the base. Skips the test where kubectl isn't."""
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not on this machine")
    run = subprocess.run([kubectl, "kustomize", FOLDER / name], capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr
    return [one for one in yaml.safe_load_all(run.stdout) if one]


def pods(manifests: list[Manifest]) -> Iterator[tuple[str, Manifest]]:
    """What each workload makes its pods of: {labels, spec}, by the component's name."""
    for one in manifests:
        if one["kind"] in ("Deployment", "Job"):
            template = one["spec"]["template"]
            yield template["metadata"]["labels"]["app.kubernetes.io/component"], template


def environment(manifests: list[Manifest], container: Manifest) -> dict[str, str]:
    """What a container has, of its own and of ConfigMaps and Secrets."""
    found: dict[str, str] = {}
    for source in container["envFrom"]:
        [(kind, reference)] = source.items()
        wanted = {"configMapRef": "ConfigMap", "secretRef": "Secret"}[kind]
        [one] = (one for one in manifests if one["kind"] == wanted and one["metadata"]["name"] == reference["name"])
        found |= {key: decoded(wanted, value) for key, value in one["data"].items()}
    return found | {one["name"]: one["value"] for one in container.get("env", ())}


def decoded(kind: str, value: str) -> str:
    import base64

    return base64.b64decode(value).decode() if kind == "Secret" else value


def selects(selector: Manifest, labels: dict[str, str]) -> bool:
    """Whether a selector chooses what has these labels."""
    by_label = selector.get("matchLabels", {}).items() <= labels.items()
    by_expression = (
        labels.get(one["key"]) in one["values"]
        for one in selector.get("matchExpressions", ())
        if one["operator"] == "In"
    )
    return by_label and all(by_expression)
