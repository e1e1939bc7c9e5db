"""What the policy decides when a job loses a role."""

import signal

from phalanx.errors import EXIT_REFORM
from phalanx.launch.policy import Continue, End, LostRole, NewGroup, Policy, Restart, cause_of

KILLED = LostRole("trainer", 1, "b", -signal.SIGKILL)
LEFT = LostRole("trainer", 0, "a", EXIT_REFORM)
MISTAKEN = LostRole("trainer", 2, "b", 2)
SERVER = LostRole("server", 0, "a", 1)
HOST = LostRole("trainer", 1, "b", None, "no message")


def test_the_cause_is_the_lost_role_and_not_a_survivor() -> None:
    assert cause_of([LEFT, KILLED]) is KILLED
    assert cause_of([KILLED, HOST]) is HOST
    assert cause_of([LEFT, MISTAKEN]) is MISTAKEN
    assert KILLED.how == "was killed by SIGKILL"
    assert MISTAKEN.how == "ended with code 2"
    assert "no message" in HOST.how


def test_roles_that_ended_because_of_another_one_are_not_the_cause() -> None:
    survivor = LostRole("trainer", 0, "a", 2, error="trainer-1 is gone or silent", lost="trainer-1")
    memory = LostRole("trainer", 1, "b", 2, error="trainer-1 on b is out of memory")
    assert cause_of([survivor, memory]) is memory
    assert survivor.how == "ended because it lost trainer-1"
    assert Policy(independent=False).decide([survivor, memory], 2, None) == End(memory)
    stopped = LostRole("trainer", 1, "b", -9, hindrance="is stopped", lost="trainer-1")
    assert not stopped.is_survivor
    assert stopped.how == "is stopped"
    assert cause_of([survivor, stopped]) is stopped
    assert Policy(independent=False, max_restarts=1).decide([survivor, stopped], 2, None) == NewGroup(stopped, 2)
    killed = LostRole("trainer", 1, "b", -9, "the kernel's OOM killer ran")
    assert killed.how == "was killed by SIGKILL: the kernel's OOM killer ran"


def test_an_async_trainer_that_lost_the_servers_is_restarted() -> None:
    """It is no mistake of the user's: the network between them may have been cut."""
    cut_off = LostRole("trainer", 1, "b", 2, error="parameter server 0 is gone or silent", lost="server-0")
    assert Policy(independent=True).decide([cut_off], 3, None) == Restart((cut_off,))


def test_a_synchronous_job_ends_by_default() -> None:
    assert Policy(independent=False).decide([KILLED, LEFT], 3, None) == End(KILLED)
    assert not Policy(independent=False).elastic


def test_restarts_replace_what_was_lost_and_run_out() -> None:
    policy = Policy(independent=False, max_restarts=2)
    assert policy.elastic
    assert policy.decide([KILLED, LEFT], 3, None) == NewGroup(KILLED, 3)
    assert policy.decide([SERVER], 3, 8) == NewGroup(SERVER, 3)
    assert policy.decide([KILLED], 3, None) == End(KILLED)


def test_a_group_may_shrink_to_min_workers() -> None:
    policy = Policy(independent=False, max_restarts=0, min_workers=2)
    assert policy.decide([KILLED, LEFT], 3, None) == NewGroup(KILLED, 2)
    assert policy.decide([KILLED, LEFT], 2, None) == End(KILLED)


def test_a_lost_host_reduces_the_capacity() -> None:
    assert Policy(independent=False, max_restarts=1).decide([HOST], 4, 2) == End(HOST)
    assert Policy(independent=False, max_restarts=1, min_workers=2).decide([HOST], 4, 2) == NewGroup(HOST, 2)
    assert Policy(independent=False, max_restarts=1, min_workers=3).decide([HOST], 4, 2) == End(HOST)


def test_a_user_error_is_not_retried() -> None:
    assert Policy(independent=False, max_restarts=5).decide([MISTAKEN], 3, None) == End(MISTAKEN)
    assert Policy(independent=True).decide([MISTAKEN], 3, None) == End(MISTAKEN)


def test_independent_jobs_restart_a_trainer_three_times_and_may_then_continue_without_it() -> None:
    policy = Policy(independent=True)
    for _ in range(3):
        assert policy.decide([KILLED], 3, None) == Restart((KILLED,))
    assert policy.decide([KILLED], 3, None) == End(KILLED)
    policy = Policy(independent=True, max_restarts=0, min_workers=2)
    assert policy.decide([KILLED], 3, None) == Continue((KILLED,))


def test_independent_jobs_need_the_first_trainer_and_the_servers() -> None:
    first = LostRole("trainer", 0, "a", -9)
    assert Policy(independent=True).decide([first], 3, None) == End(first)
    assert Policy(independent=True).decide([SERVER], 3, None) == End(SERVER)
    assert Policy(independent=True, max_restarts=1).decide([first], 3, None) == NewGroup(first, 3)


def test_data_servers_are_restarted_or_left_out_in_any_job() -> None:
    policy = Policy(independent=False)
    killed, gone = LostRole("data", 1, "b", -signal.SIGKILL), LostRole("data", 0, "a", None, "no message")
    assert policy.decide([killed, gone], 2, None) == Continue((gone,))
    for _ in range(3):
        assert policy.decide([killed], 2, None) == Restart((killed,))
    assert policy.decide([killed], 2, None) == Continue((killed,))
    assert policy.decide([killed, KILLED], 2, None) == End(KILLED)
    assert policy.decide([LostRole("data", 1, "b", 2)], 2, None) == End(LostRole("data", 1, "b", 2))


def test_a_lost_evaluator_is_restarted_and_the_others_continue() -> None:
    policy = Policy(independent=False)
    killed = LostRole("evaluator", 0, "a", -signal.SIGKILL)
    for _ in range(3):
        assert policy.decide([killed], 2, None) == Restart((killed,))
    assert policy.decide([killed], 2, None) == End(killed)
    elastic = Policy(independent=False, max_restarts=1)
    assert elastic.decide([killed, KILLED, LEFT], 3, None) == NewGroup(KILLED, 3)
    assert Policy(independent=True).decide([killed, KILLED], 3, None) == Restart((KILLED,))  # and then the evaluator
    mistaken = LostRole("evaluator", 0, "a", 2)
    assert Policy(independent=False).decide([mistaken], 2, None) == End(mistaken)


def test_survivors_save_if_the_job_may_restart_as_a_new_group() -> None:
    assert not Policy(independent=False).elastic
    assert Policy(independent=False, min_workers=2).elastic
    spent = Policy(independent=False, max_restarts=1)
    assert spent.decide([KILLED, LEFT], 3, None) == NewGroup(KILLED, 3)
    assert spent.elastic  # the user may resume
