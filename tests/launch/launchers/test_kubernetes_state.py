"""What a cluster's objects say about a job: which pods wait and why, how it ended, and which pod failed first."""

from typing import Any

import pytest

from phalanx.launch.launchers.kubernetes_state import PodHistory, exit_code, job_state

ERROR = "error: the folder x is empty\n  why: it has no images\n  try: another --data\n"
LOST = "error: trainer-1 is gone\n  try: phalanx train --resume goes on from the last checkpoint\n"
SILENT = "epoch 1\nstopped at step 1,530: trainer-1 is gone or silent; step 1530 is saved already\n"


def job(*conditions: str, **status: Any) -> dict[str, Any]:
    made = [{"type": each, "status": "True", "message": f"message of {each}"} for each in conditions]
    return {
        "metadata": {"name": "digits", "uid": "u"},
        "spec": {"completions": 3},
        "status": {"conditions": made, **status},
    }


def pod(index: int, phase: str = "Running", state: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    """A pod of a job of two trainers and a server."""
    return {
        "metadata": {
            "name": f"digits-{index}-abcde",
            "uid": f"u{index}",
            "annotations": {"batch.kubernetes.io/job-completion-index": str(index)},
        },
        "spec": {"nodeName": "node1", "containers": [{"env": [{"name": "PHALANX_WORLD", "value": "2"}]}]},
        "status": {"phase": phase, "containerStatuses": [{"state": state or {"running": {}}}], **status},
    }


def ended(
    index: int, code: int, second: int, message: str = "", reason: str = "Error", **status: Any
) -> dict[str, Any]:
    finished = f"2026-01-01T00:00:{second:02d}Z"
    end = {"exitCode": code, "finishedAt": finished, "message": message, "reason": reason}
    return pod(index, "Failed" if code else "Succeeded", {"terminated": end}, **status)


def pending(index: int, reason: str = "", message: str = "", unplaced: str = "") -> dict[str, Any]:
    conditions = [{"type": "PodScheduled", "status": "False", "message": unplaced}] if unplaced else []
    return pod(index, "Pending", {"waiting": {"reason": reason, "message": message}}, conditions=conditions)


def test_roles_and_states() -> None:
    state = job_state(job(), [pod(2), pod(0), pod(1)])
    assert (state.kind, state.text) == ("running", "running on node1")
    assert [one.role for one in state.pods] == ["trainer-0", "trainer-1", "server-0"]
    assert job_state(job("Complete"), []).kind == "finished"
    assert job_state(job("FailureTarget"), [pod(0)]).kind == "stopping"
    assert job_state(job("Failed"), []).detail == "message of Failed"
    assert job_state(None, [pod(0)]).kind == "stopping"
    deleted = job("Failed")
    deleted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert job_state(deleted, [ended(0, 143, 1)]).kind == "stopping"
    assert job_state(None, []).kind == "gone"


def test_why_pods_wait() -> None:
    unplaced = "0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available"
    state = job_state(job(), [pod(0), pending(1, unplaced=unplaced), pending(2, "ImagePullBackOff", "no such image")])
    assert state.text == (
        "waiting for 2 of 3 pods: trainer-1: 0/2 nodes are available: 2 Insufficient cpu; "
        "server-0: its image cannot be pulled: no such image"
    )
    assert [wait.hopeless for wait in state.waits] == [False, True]
    claim = job_state(job(), [pending(0, unplaced='persistentvolumeclaim "disk" not found')])
    assert claim.waits[0].hopeless


def test_a_refusal_of_the_cluster_is_shown_while_pods_are_missing() -> None:
    refused = {
        "reason": "FailedCreate",
        "message": "pods is forbidden: exceeded quota",
        "involvedObject": {"name": "digits", "uid": "u"},
    }
    state = job_state(job(), [], [refused])
    assert "refuses to make pods: pods is forbidden: exceeded quota" in state.text
    assert state.waits[0].hopeless
    assert not job_state(job(), [pod(0), pod(1), pod(2)], [refused]).waits


@pytest.mark.parametrize(
    ("pods", "role", "how", "code"),
    [
        ([ended(0, 2, 5, LOST), ended(1, 137, 4)], "trainer-1", "was killed by SIGKILL", 1),
        ([ended(0, 2, 3, LOST), ended(1, 137, 4, reason="OOMKilled")], "trainer-1", "more memory than its limit", 1),
        ([ended(0, 2, 5, ERROR), ended(1, 2, 6, ERROR)], "trainer-0", "the folder x is empty", 2),
        ([ended(0, 75, 2, SILENT), ended(2, 143, 1)], "trainer-0", "code 75: trainer-1 is gone or silent", 1),
        ([ended(0, 75, 1), ended(2, 143, 2)], "server-0", "was told to end by SIGTERM", 1),
        ([ended(0, 75, 1), ended(1, 139, 2)], "trainer-1", "was killed by SIGSEGV", 1),
    ],
)
def test_the_pod_that_failed_first(pods: list[dict[str, Any]], role: str, how: str, code: int) -> None:
    history = PodHistory()
    history.add(job_state(job("Failed"), pods))
    cause = history.cause()
    assert cause is not None
    assert cause.role == role
    assert how in cause.how
    assert exit_code(cause) == code


def test_a_drained_pod_is_the_cause_even_if_it_is_gone_by_now() -> None:
    disrupted = [{"type": "DisruptionTarget", "status": "True", "message": "Eviction API: evicting"}]
    history = PodHistory()
    history.add(job_state(job(), [ended(1, 143, 9, conditions=disrupted), ended(0, 75, 8)]))
    history.add(job_state(job("Failed"), [ended(0, 75, 8)]))
    cause = history.cause()
    assert cause is not None
    assert cause.where == "trainer-1 (pod digits-1-abcde on node1)"
    assert "Eviction API" in cause.how


def test_pods_of_a_node_that_does_not_answer() -> None:
    lost = pod(1)
    lost["metadata"]["deletionTimestamp"] = "2026-01-01T00:02:00Z"
    state = job_state(job("FailureTarget"), [ended(0, 75, 1), lost])
    assert [one.role for one in state.unended] == ["trainer-1"]
    also = job_state(job("FailureTarget"), [pod(0), lost])
    assert not also.unended


def test_a_drained_pod_whose_end_nobody_saw_is_the_cause_by_the_jobs_own_words() -> None:
    history = PodHistory()
    history.add(job_state(job(), [pod(0), pod(1)]))
    history.add(job_state(job("Failed"), [ended(0, 75, 8)]))
    cause = history.cause("Pod default/digits-1-abcde has condition DisruptionTarget matching FailJob rule at index 0")
    assert cause is not None
    assert cause.role == "trainer-1"
    assert cause.how == "was lost: the cluster removed it"
