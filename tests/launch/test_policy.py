"""What becomes of a job that lost a role."""

import signal

from phalanx.errors import EXIT_REFORM
from phalanx.launch.policy import End, GoOn, Lost, Policy, Reform, Restart, cause_of

KILLED = Lost("trainer", 1, "b", -signal.SIGKILL)
LEFT = Lost("trainer", 0, "a", EXIT_REFORM)
MISTAKEN = Lost("trainer", 2, "b", 2)
SERVER = Lost("server", 0, "a", 1)
HOST = Lost("trainer", 1, "b", None, "nothing was heard")


def test_the_cause_is_who_was_lost_and_not_who_noticed() -> None:
    assert cause_of([LEFT, KILLED]) is KILLED
    assert cause_of([KILLED, HOST]) is HOST
    assert cause_of([LEFT, MISTAKEN]) is MISTAKEN
    assert KILLED.how == "was killed by SIGKILL"
    assert MISTAKEN.how == "ended with code 2"
    assert "nothing was heard" in HOST.how


def test_a_job_in_lockstep_ends_unless_it_is_told_otherwise() -> None:
    assert Policy(forgiving=False).judge([KILLED, LEFT], 3, None) == End(KILLED)
    assert not Policy(forgiving=False).elastic


def test_restarts_replace_what_was_lost_and_run_out() -> None:
    policy = Policy(forgiving=False, max_restarts=2)
    assert policy.elastic
    assert policy.judge([KILLED, LEFT], 3, None) == Reform(KILLED, 3)
    assert policy.judge([SERVER], 3, 8) == Reform(SERVER, 3)
    assert policy.judge([KILLED], 3, None) == End(KILLED)


def test_a_group_may_shrink_to_the_workers_it_is_allowed() -> None:
    policy = Policy(forgiving=False, max_restarts=0, min_workers=2)
    assert policy.judge([KILLED, LEFT], 3, None) == Reform(KILLED, 2)
    assert policy.judge([KILLED, LEFT], 2, None) == End(KILLED)


def test_a_lost_host_leaves_room_for_fewer() -> None:
    assert Policy(forgiving=False, max_restarts=1).judge([HOST], 4, 2) == End(HOST)
    assert Policy(forgiving=False, max_restarts=1, min_workers=2).judge([HOST], 4, 2) == Reform(HOST, 2)
    assert Policy(forgiving=False, max_restarts=1, min_workers=3).judge([HOST], 4, 2) == End(HOST)


def test_a_users_mistake_is_not_repeated() -> None:
    assert Policy(forgiving=False, max_restarts=5).judge([MISTAKEN], 3, None) == End(MISTAKEN)
    assert Policy(forgiving=True).judge([MISTAKEN], 3, None) == End(MISTAKEN)


def test_forgiving_jobs_start_a_trainer_anew_three_times_and_may_then_do_without() -> None:
    policy = Policy(forgiving=True)
    for _ in range(3):
        assert policy.judge([KILLED], 3, None) == Restart((KILLED,))
    assert policy.judge([KILLED], 3, None) == End(KILLED)
    policy = Policy(forgiving=True, max_restarts=0, min_workers=2)
    assert policy.judge([KILLED], 3, None) == GoOn((KILLED,))


def test_forgiving_jobs_do_not_do_without_the_first_trainer_or_a_server() -> None:
    first = Lost("trainer", 0, "a", -9)
    assert Policy(forgiving=True).judge([first], 3, None) == End(first)
    assert Policy(forgiving=True).judge([SERVER], 3, None) == End(SERVER)
    assert Policy(forgiving=True, max_restarts=1).judge([first], 3, None) == Reform(first, 3)


def test_data_servers_are_started_anew_or_done_without_whatever_the_job() -> None:
    policy = Policy(forgiving=False)
    killed, gone = Lost("data", 1, "b", -signal.SIGKILL), Lost("data", 0, "a", None, "nothing was heard")
    assert policy.judge([killed, gone], 2, None) == GoOn((gone,))
    for _ in range(3):
        assert policy.judge([killed], 2, None) == Restart((killed,))
    assert policy.judge([killed], 2, None) == GoOn((killed,))
    assert policy.judge([killed, KILLED], 2, None) == End(KILLED)
    assert policy.judge([Lost("data", 1, "b", 2)], 2, None) == End(Lost("data", 1, "b", 2))


def test_a_lost_evaluator_is_started_anew_and_disturbs_nobody() -> None:
    policy = Policy(forgiving=False)
    killed = Lost("evaluator", 0, "a", -signal.SIGKILL)
    for _ in range(3):
        assert policy.judge([killed], 2, None) == Restart((killed,))
    assert policy.judge([killed], 2, None) == End(killed)
    elastic = Policy(forgiving=False, max_restarts=1)
    assert elastic.judge([killed, KILLED, LEFT], 3, None) == Reform(KILLED, 3)
    assert Policy(forgiving=True).judge([killed, KILLED], 3, None) == Restart((KILLED,))  # and then the evaluator
    mistaken = Lost("evaluator", 0, "a", 2)
    assert Policy(forgiving=False).judge([mistaken], 2, None) == End(mistaken)


def test_survivors_are_to_save_where_a_job_may_be_formed_anew() -> None:
    assert not Policy(forgiving=False).elastic
    assert Policy(forgiving=False, min_workers=2).elastic
    spent = Policy(forgiving=False, max_restarts=1)
    assert spent.judge([KILLED, LEFT], 3, None) == Reform(KILLED, 3)
    assert spent.elastic  # the user may go on by hand
