"""deploy/kubernetes: what the API takes, what the pods may, and that the parts fit each other and the commands.

There is no cluster here. The API's own kinds are checked against its schemas; ScaledObject and PodMonitor are of KEDA's
and the Prometheus operator's, which have no schema here: of these the few fields that matter are compared.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from recovery.settings import Settings, load
from tests.deploy.composed import ROOT, as_typed, services
from tests.deploy.manifests import Manifest, built, environment, pods, selects
from tests.docs.command_lines import parse

VERSIONS = ("1.31", "1.34")
"""Of the API: among the oldest and the newest that are in use."""
FOREIGN = {"ScaledObject": "keda.sh/v1alpha1", "PodMonitor": "monitoring.coreos.com/v1"}
SETTINGS = {f"RECOVERY_{name.upper()}" for name in Settings.model_fields}


@pytest.fixture(scope="module")
def example() -> list[Manifest]:
    return built("example")


def find(manifests: list[Manifest], kind: str, name: str = "recovery") -> Manifest:
    [one] = (one for one in manifests if one["kind"] == kind and one["metadata"]["name"] == name)
    return one


@pytest.mark.parametrize("name", ["base", "example"])
@pytest.mark.parametrize("version", VERSIONS)
def test_the_api_takes_them(name: str, version: str) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    kinds = []
    for one in built(name):
        if FOREIGN.get(one["kind"]) != one["apiVersion"]:
            kinds.append(one["kind"])
            validate.validate(one, version, strict=True)
    assert kinds.count("Deployment") == 3 and kinds.count("PodDisruptionBudget") == 2, kinds


def test_there_is_what_a_cluster_takes(example: list[Manifest]) -> None:
    components = [component for component, _ in pods(example)]
    assert sorted(components) == ["beat", "init", "sweep", "worker"]
    assert {one["metadata"].get("namespace", "recovery") for one in example} == {"recovery"}
    assert find(example, "Namespace")["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_pods_are_within_what_restricted_asks_for(example: list[Manifest]) -> None:
    for component, pod in pods(example):
        spec, [container] = pod["spec"], pod["spec"]["containers"]
        security = spec["securityContext"]
        assert security["runAsNonRoot"] and security["runAsUser"] == 1000, component
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}, component
        assert spec["automountServiceAccountToken"] is False and spec["serviceAccountName"] == "recovery", component
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }, component
        assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/tmp"], component
        assert all(volume["emptyDir"]["sizeLimit"] for volume in spec["volumes"]), component
        for resource in ("cpu", "memory"):
            assert container["resources"]["requests"][resource], component
            assert container["resources"]["limits"][resource], component
    assert find(example, "ServiceAccount")["automountServiceAccountToken"] is False


def test_commands_and_probes_can_be_typed(example: list[Manifest]) -> None:
    probed = {}
    for component, pod in pods(example):
        [container] = pod["spec"]["containers"]
        probes = [one for one in ("startupProbe", "readinessProbe", "livenessProbe") if one in container]
        commands = [container["command"], *(container[one]["exec"]["command"] for one in probes)]
        for command in commands:
            line = command[-1].partition(";")[0].split() if command[0] == "sh" else command
            typed = as_typed(line)
            assert typed is not None
            parse(typed)
        probed[component] = probes
        typed_lines = [" ".join(as_typed(line) or line) for line in commands]
        names = {tuple(re.findall(r"--name (\w+)", line)) for line in typed_lines}
        assert len(names) == 1, f"{component}: probes ask another worker"
        for probe in probes:
            # A ping waits 5 s for Redis and as long for the answer, or for what it is told.
            assert container[probe]["timeoutSeconds"] >= 15
    assert {component for component, found in probed.items() if len(found) == 3} == {"worker", "sweep"}


def test_what_compose_runs_is_what_is_run(example: list[Manifest], full_env: dict[str, str]) -> None:
    """By the same command lines, so what was tried by hand of compose's is tried of these."""
    composed = services(full_env)
    for component, pod in pods(example):
        command = " ".join(composed[component].command)
        assert command.endswith(" ".join(pod["spec"]["containers"][0]["command"])), component


def test_settings_are_what_recovery_takes(example: list[Manifest], monkeypatch: pytest.MonkeyPatch) -> None:
    for component, pod in pods(example):
        given = environment(example, pod["spec"]["containers"][0])
        assert given.keys() <= SETTINGS, component
        assert {"RECOVERY_APP", "RECOVERY_MONGO_URI", "RECOVERY_BROKER_URL"} <= given.keys(), component
        with monkeypatch.context() as patch:
            for name, value in given.items():
                patch.setenv(name, value)
            settings = load()
        if "worker" in (as_typed(pod["spec"]["containers"][0]["command"]) or ()):
            assert pod["spec"]["terminationGracePeriodSeconds"] >= settings.shutdown_grace + 10, component
            [port] = pod["spec"]["containers"][0]["ports"]
            assert (port["name"], port["containerPort"]) == ("metrics", settings.metrics_port), component


def test_selectors_choose_their_pods(example: list[Manifest]) -> None:
    labels = {component: pod["metadata"]["labels"] for component, pod in pods(example)}

    def chosen(selector: Any) -> set[str]:
        return {component for component, given in labels.items() if selects(selector, given)}

    for component in ("worker", "beat", "sweep"):
        assert chosen(find(example, "Deployment", f"recovery-{component}")["spec"]["selector"]) == {component}
    for component in ("worker", "beat"):
        assert chosen(find(example, "PodDisruptionBudget", f"recovery-{component}")["spec"]["selector"]) == {component}
    assert chosen(find(example, "NetworkPolicy")["spec"]["podSelector"]) == labels.keys()
    assert chosen(find(example, "PodMonitor")["spec"]["selector"]) == {"worker", "sweep"}


def test_an_upgrade_can_leave_out_what_runs(example: list[Manifest]) -> None:
    """By label, as docs/deploy.md has it: what the job needs is applied with it, and no Deployment."""
    left_out = {"worker", "beat", "sweep"}
    kinds = [
        one["kind"]
        for one in example
        if one["metadata"].get("labels", {}).get("app.kubernetes.io/component") in left_out
    ]
    assert kinds == ["Deployment"] * 3


def test_keda_scales_workers_by_a_metric_that_there_is(example: list[Manifest]) -> None:
    scaled = find(example, "ScaledObject", "recovery-worker")["spec"]
    assert scaled["scaleTargetRef"] == {"name": "recovery-worker"}
    assert 2 <= scaled["minReplicaCount"] < scaled["maxReplicaCount"]
    assert "replicas" not in find(example, "Deployment", "recovery-worker")["spec"], "each `apply` would set it back"
    [trigger] = scaled["triggers"]
    metrics = re.findall(r"\brecovery_\w+", trigger["metadata"]["query"])
    page = (ROOT / "docs" / "metrics.md").read_text()
    assert metrics and all(f"| `{metric}` | `queue`" in page for metric in metrics)
    assert trigger["type"] == "prometheus" and int(trigger["metadata"]["threshold"]) > 0


def test_prometheus_reaches_what_it_is_told_of(example: list[Manifest]) -> None:
    [endpoint] = find(example, "PodMonitor")["spec"]["podMetricsEndpoints"]
    [rule] = find(example, "NetworkPolicy")["spec"]["ingress"]
    assert endpoint["port"] == "metrics"
    assert rule["ports"] == [{"protocol": "TCP", "port": "metrics"}]
    assert endpoint["relabelings"] == [{"targetLabel": "job", "replacement": "recovery"}], "the alert rules ask for it"


def test_the_base_holds_no_password() -> None:
    assert [one["metadata"]["name"] for one in built("base") if one["kind"] == "Secret"] == []
    [wanted] = {
        frozenset(
            source["secretRef"]["name"]
            for _, pod in pods(built("base"))
            for source in pod["spec"]["containers"][0]["envFrom"]
            if "secretRef" in source
        )
    }
    assert wanted == {"recovery-worker", "recovery-beat", "recovery-operator"}
