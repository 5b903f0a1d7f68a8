"""The guards, one mutant for each: the guard's text, what stands there without it, and the test that must turn red.

The text stands exactly once in its file (`tests/unit/test_mutants_list.py` keeps it so). A guard that gets a mutant
here names the one test that explains best why it is there, which need not be the only one that notices. Run them with
`make mutants`.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["MUTANTS", "Mutant"]


class Mutant(NamedTuple):
    """A guard taken away.

    Attributes:
        guard: What the guard is for, in a few words.
        file: Where it stands, below `src/sayso`.
        old: Its text.
        new: What stands there instead.
        test: The test that must turn red, below `tests`.
    """

    guard: str
    file: str
    old: str
    new: str
    test: str


_LIFECYCLE, _CONTRACT = "unit/test_lifecycle.py::", "contract/test_stores.py::"
_GUARDS, _PROMISES, _SQLITE = "unit/test_guards.py::", "promises/", "unit/test_sqlite.py::"
_WORKER, _SCOPE, _SHOW = "unit/test_worker.py::", "integration/test_scope.py::", "unit/test_show.py::"
_REDACTION, _CANONICAL = "unit/test_redaction.py::", "unit/test_canonical.py::"
_SEAL, _AUDIT = "unit/test_seal.py::", "unit/test_audit.py::"
_SAME_NAME = "integration/test_same_name.py::"
_REVIEWER, _NAN, _CONFIG = "unit/test_reviewer.py::", "unit/test_nan.py::", "unit/test_config.py::"
_CARD = "unit/test_card.py::"
_SHOWN, _NEEDS, _MOVING = (
    "integration/test_shown.py::",
    "integration/test_needs.py::",
    "integration/test_moving_arguments.py::",
)
_FOR, _PROPOSED, _BEHIND = (
    "integration/test_acting_for.py::",
    "integration/test_proposed.py::",
    "integration/test_left_behind.py::",
)
_JSONL = "integration/test_jsonl.py::"
_FIELD = "integration/test_field_parameters.py::"
_SLIPPED = "integration/test_cli_slips.py::"
_POOLS, _WAITS_END = "integration/test_pool_threads.py::", "integration/test_waits_end.py::"
_REACT, _STATES = "integration/test_react.py::", "integration/test_react_states.py::"
_KINDS, _LIES = "integration/test_runs_kinds.py::", "integration/test_runs_attacks.py::"
_ASKED, _BROKEN_OFF = "integration/test_runs_questions.py::", "integration/test_runs_broken_off.py::"
_INPUTS = "integration/test_runs_inputs.py::"
_SAID, _RULES = "integration/test_runs_decisions.py::", "integration/test_runs_rules.py::"
_ALTERED, _COLUMNS = "unit/test_altered.py::", "integration/test_altered_columns.py::"
_ENDS, _ALONE = "integration/test_runs_ends.py::", "integration/test_runs_guards.py::"
_OUTBOX = "integration/test_outbox.py::"
_STARTS = "integration/test_http_starts.py::"
_STRANGERS = "integration/test_strangers.py::"
_CONNECTIONS = "integration/test_connections.py::"
_DOORWAY = "integration/test_doorway.py::"
_PATIENT = "integration/test_http_patience.py::"
_REASONS = "integration/test_mplp_reasons.py::"
_LEARNING, _TELEMETRY = "integration/test_learning.py::", "integration/test_telemetry.py::"
_METRICS = "integration/test_metrics.py::"
_LIMITS, _TOKENS = "integration/test_hook_limits.py::", "integration/test_token_journal.py::"
_NO_MORE = "integration/test_watched_no_more.py::"
_PEERS, _FACE = "integration/test_weaknesses_of_peers.py::", "integration/test_confirmation_face.py::"

_LINKS, _PROXY = "integration/test_login_links.py::", "integration/test_proxy_sign_in.py::"
_OPENID, _LISTENS = "integration/test_openid.py::", "integration/test_where_it_listens.py::"

_KEY, _ADDRESS = "unit/test_webhook_key.py::", "unit/test_outbound_address.py::"
_OUT, _IN = "integration/test_webhook_out.py::", "integration/test_webhook_in.py::"
_SLACK, _APPRISE = "integration/test_slack.py::", "integration/test_apprise.py::"
_ATTACKS, _SERVED = "integration/test_http_attacks.py::", "integration/test_http_store.py::"
_API_TOKENS, _API_REVIEW = "integration/test_api_tokens.py::", "integration/test_api_review.py::"
_RELAY = "integration/test_relay.py::"
_RING = "integration/test_happenings.py::"
_API_INPUT, _API_EVENTS = "integration/test_api_input.py::", "integration/test_api_events.py::"
_LOOKING = "integration/test_looking.py::"
_MPLP_DOCUMENTS, _MPLP_LIVES = "unit/test_mplp_documents.py::", "integration/test_mplp_histories.py::"
_MPLP_SUBMIT, _MPLP_DECIDE = "integration/test_mplp_submit.py::", "integration/test_mplp_decide.py::"
_MPLP_START, _MPLP_VIEWS = "integration/test_mplp_start.py::", "integration/test_mplp_views.py::"
_MPLP_CHANNELS = "integration/test_mplp_channels.py::"
_MPLP_EVENTS, _MPLP_SERVED = "integration/test_mplp_events.py::", "integration/test_mplp_served.py::"
_MPLP_HOSTILE = "integration/test_mplp_hostile.py::"
_CHECKPOINTS, _RECEIPTS = "unit/test_checkpoints.py::", "unit/test_receipts.py::"
_LOSSES = "unit/test_checkpoint_attacks.py::"
_EXPORT, _PURGE = "unit/test_export.py::", "unit/test_purge.py::"
_EVIDENCE, _PURGED = "integration/test_evidence_cli.py::", "integration/test_purged.py::"

MUTANTS = [
    # -- who starts, and who ends -----------------------------------------------------------------------------------
    Mutant(
        "only an approved call is started", "model/lifecycle.py",
        "if (request.state is not State.APPROVED and not again) or is_spent:",
        "if request.state is State.PENDING:",
        _CONTRACT + "TestMemory::test_of_eight_who_start_at_once_one_runs",
    ),
    Mutant(
        "only an approved call is started, on disk", "model/lifecycle.py",
        "if (request.state is not State.APPROVED and not again) or is_spent:",
        "if request.state is State.PENDING:",
        _PROMISES + "test_02_one_approval_starts_once.py::test_2_one_approval_starts_its_call_at_most_once",
    ),
    Mutant(
        "only the last token ends a call", "model/lifecycle.py",
        "execution.token != token or ", "",
        _LIFECYCLE + "test_only_the_last_token_ends_a_call",
    ),
    Mutant(
        "an outcome stands", "model/lifecycle.py",
        " or request.state not in {State.RUNNING, State.UNKNOWN}:", ":",
        _LIFECYCLE + "test_a_final_state_never_changes",
    ),
    Mutant(
        "an unknown outcome is not retried", "model/lifecycle.py",
        "again = request.state is State.UNKNOWN and request.idempotent", "again = request.state is State.UNKNOWN",
        _LIFECYCLE + "test_retries_give_no_start_after_an_unknown_outcome",
    ),
    Mutant(
        "an idempotent call keeps to its approval's end", "model/lifecycle.py",
        "if again and request.approval_expires_at is not None and now >= request.approval_expires_at:", "if False:",
        _LIFECYCLE + "test_an_idempotent_call_is_not_started_again_after_its_approval_ended",
    ),
    Mutant(
        "retries are counted", "model/lifecycle.py",
        "execution.attempt <= request.retries", "request.retries > 0",
        _LIFECYCLE + "test_a_failed_call_has_the_starts_that_the_gate_gives_it",
    ),
    Mutant(
        "a failed call is spent without retries", "model/lifecycle.py",
        "execution.attempt <= request.retries", "execution.attempt <= request.retries + 1",
        _PEERS + "test_exception_spends_the_approval",
    ),
    Mutant(
        "a spent approval is not found again", "model/lifecycle.py",
        'state, holds = State(outcome.state), outcome.state == "unknown"', "state, holds = State(outcome.state), True",
        _LIFECYCLE + "test_a_spent_approval_no_longer_holds_and_an_unknown_one_does",
    ),
    Mutant(
        "only an unknown outcome is resolved", "model/lifecycle.py",
        "if (request.state is not State.UNKNOWN and not is_forced) or execution is None:", "if execution is None:",
        _LIFECYCLE + "test_there_is_this_way_and_no_other",
    ),
    Mutant(
        "what is running is not withdrawn", "model/lifecycle.py",
        " or request.state in {State.RUNNING, State.UNKNOWN}:", ":",
        _CONTRACT + "TestMemory::test_a_program_takes_back_what_it_asked_and_forgets_a_no",
    ),
    # -- ends -------------------------------------------------------------------------------------------------------
    Mutant(
        "the end of a request is too late", "model/lifecycle.py",
        "return now >= request.expires_at", "return now > request.expires_at",
        _LIFECYCLE + "test_an_end_that_is_reached_is_too_late",
    ),
    Mutant(
        "the end of an approval is too late", "model/lifecycle.py",
        "return request.approval_expires_at is not None and now >= request.approval_expires_at",
        "return request.approval_expires_at is not None and now > request.approval_expires_at",
        _LIFECYCLE + "test_an_end_that_is_reached_is_too_late",
    ),
    Mutant(
        "an approval has an end", "model/lifecycle.py",
        "return request.approval_expires_at is not None and now >= request.approval_expires_at", "return False",
        _PROMISES + "test_06_everything_expires.py::test_6_everything_expires_and_nothing_into_an_approval",
    ),
    Mutant(
        "what expired is not found again", "model/lifecycle.py",
        "state=State.EXPIRED, holds=False", "state=State.EXPIRED",
        _CONTRACT + "TestMemory::test_a_no_holds_and_a_spent_approval_does_not",
    ),
    Mutant(
        "an end is looked at before each change", "stores/base.py",
        "lapsed = _lapsed(request, now)", "lapsed = None",
        _CONTRACT + "TestMemory::test_an_approval_can_be_started_until_its_end_and_not_at_it",
    ),
    Mutant(
        "an end that a refused verb met is written", "stores/base.py",
        "return refusal  # raised", "raise refusal  # raised",
        _GUARDS + "test_an_end_that_a_refused_verb_met_stays_written",
    ),
    Mutant(
        "asking again after the end asks anew", "stores/base.py",
        "expired = None if held is None else lifecycle.expire(held, tx.now())", "expired = None",
        _CONTRACT + "TestMemory::test_asking_again_after_the_end_asks_anew",
    ),
    # -- people -----------------------------------------------------------------------------------------------------
    Mutant(
        "the requester does not decide", "model/lifecycle.py",
        "by.is_same(request.requester) or any(", "any(",
        _LIFECYCLE + "test_who_asked_cannot_decide",
    ),
    Mutant(
        "nor whoever it acts for", "model/lifecycle.py",
        "if by.is_same(request.requester) or any(by.may_be(person) for person in request.acts_for):",
        "if by.is_same(request.requester):",
        _PROMISES + "test_04_the_requester_cannot_decide.py::test_4_the_requester_cannot_decide_its_own_request",
    ),
    Mutant(
        "nor says how its call ended", "model/lifecycle.py",
        "if roles is not None:", "if False:",
        _LIFECYCLE + "test_who_asked_cannot_care_for_the_request_either",
    ),
    Mutant(
        "a run inside another acts for the same person", "scope.py",
        "others = () if around is None else around.acts_for", "others = ()",
        _GUARDS + "test_a_run_inside_another_acts_for_the_same_person",
    ),
    Mutant(
        "a person is barred whoever vouches for the name", "model/reviewer.py",
        "if mine == theirs:\n            return True", "if mine == theirs:\n            return self.is_same(other)",
        _FOR + "test_person_is_barred_under_whatever_name_it_may_be",
    ),
    Mutant(
        "a thread of a pool may be doing the work of an open run", "scope.py",
        "(self._alone.has_name or not _acting)", "True",
        _FOR + "test_person_of_the_run_is_barred_from_what_its_pool_of_threads_asks",
    ),
    Mutant(
        "a run that has ended bars nobody", "scope.py",
        "_acting.pop(scope, None)", "pass",
        _FOR + "test_nobody_is_barred_any_more_when_the_runs_have_ended",
    ),
    Mutant(
        "what was asked for less is asked anew", "gates/options.py",
        "if not request.quorum.covers(self.quorum):", "if False:",
        _NEEDS + "test_request_that_was_asked_for_less_is_closed_and_asked_anew",
    ),
    Mutant(
        "a later run's person is barred from what waits", "gates/options.py",
        "if person not in request.acts_for]", "if False]",
        _NEEDS + "test_person_of_a_later_run_cannot_decide_what_waits_already",
    ),
    Mutant(
        "what that person approved does not run", "gates/options.py",
        "if any(by.may_be(person) for person in self.barred)]", "if False]",
        _NEEDS + "test_what_a_person_approved_before_a_run_acted_for_them_does_not_run",
    ),
    Mutant(
        "what is asked anew asks for no less", "gates/options.py",
        "        return self._replace(\n            quorum=", "        return self\n        return self._replace(\n            quorum=",
        _NEEDS + "test_what_is_asked_anew_asks_for_no_less_than_what_it_replaces",
    ),
    Mutant(
        "the gate allows no more starts than it says", "gates/options.py",
        "allowed = min(request.retries, retries)", "allowed = request.retries",
        _NEEDS + "test_start_that_the_gate_does_not_allow_any_more_is_asked_anew",
    ),
    Mutant(
        "an unknown end is made again only if the gate allows it", "gates/options.py",
        "(request.idempotent and idempotent)", "request.idempotent",
        _NEEDS + "test_call_of_unknown_end_is_not_made_again_unless_record_and_gate_allow_it",
    ),
    Mutant(
        "the start is held to what the gate allows", "gates/execute.py",
        "lacks = spent(request, gate.retries, idempotent=gate.idempotent)", "lacks = None",
        _NEEDS + "test_start_that_only_the_record_allows_is_not_executed",
    ),
    Mutant(
        "a run's tool is held to what it asks for now", "runs/step.py",
        "return lacking(frame.runnable.gate, request, frame.gate_place)", "return None",
        _NEEDS + "test_run_whose_tool_asks_for_more_by_now_asks_anew",
    ),
    Mutant(
        "the start looks at the needs again", "gates/execute.py",
        "        lacks = needs.unmet_by(request)\n    if lacks", "        lacks = None\n    if lacks",
        _NEEDS + "test_call_is_not_executed_by_an_approval_that_lacks_what_it_needs",
    ),
    Mutant(
        "a call that blocks without a named run finds no earlier decision", "scope.py",
        "return Place(_OneCall(), self.open_calls, self.place.acts_for, has_name=False)", "return self.place",
        _POOLS + "test_what_was_decided_before_counts_for_no_call_that_blocks_outside_of_a_named_run",
    ),
    Mutant(
        "nothing is asked that nobody can come back to", "gates/check.py",
        "if place.pool is not None:", "if False:",
        _POOLS + "test_a_call_that_raises_is_refused_in_a_pools_thread_and_told_to_name_the_run",
    ),
    Mutant(
        "a pool's thread is at another caller's job", "scope.py",
        "if owner.process != os.getpid() or owner.is_over:", "if owner.process != os.getpid():",
        _POOLS + "test_a_try_that_is_left_is_the_callers_own",
    ),
    Mutant(
        "and its task is no child of the job before", "scope.py",
        "(owner.process != os.getpid() or owner.is_over)", "owner.process != os.getpid()",
        _POOLS + "test_a_loop_in_a_pools_thread_inherits_nothing_from_the_job_before",
    ),
    Mutant(
        "what waited in a pool's thread for its time only is withdrawn", "wait.py",
        "if self.here.pool is not None:", "if False:",
        _POOLS + "test_an_approval_that_was_not_used_runs_nothing_of_the_threads_next_caller",
    ),
    Mutant(
        "leaving a run ends its waits", "scope.py",
        'scope.end("its run was left while it waited")', "pass",
        _WAITS_END + "test_leaving_a_named_run_ends_its_waits_and_leaves_the_requests_to_the_next_process",
    ),
    Mutant(
        "and those of the runs inside of it", "scope.py",
        "scope = scope.around", "scope = None",
        _WAITS_END + "test_leaving_a_run_ends_the_waits_of_the_runs_inside_of_it",
    ),
    Mutant(
        "what nobody waits for does not start", "wait.py",
        "self.must_go_on(request)\n            self._has_begun = True", "self._has_begun = True",
        _WAITS_END + "test_a_call_does_not_start_when_its_task_is_cancelled_after_the_decision",
    ),
    Mutant(
        "a named run's request waits for its next process", "wait.py",
        "or not is_random(request.run_id):", "or False:",
        _WAITS_END + "test_a_thread_whose_task_was_cancelled_in_a_named_run_leaves_the_request_pending",
    ),
    Mutant(
        "a request that somebody else waits for is not withdrawn", "wait.py",
        "others = _standing[request.id] > 0", "others = False",
        _WAITS_END + "test_two_calls_that_wait_for_one_request_withdraw_it_when_the_last_one_goes",
    ),
    Mutant(
        "a run that is stopped ends what its handlers wait for", "runs/journal.py",
        "for end in list(self._ends.values()):\n            end()", "pass",
        _WAITS_END + "test_a_run_that_is_left_ends_what_its_handlers_wait_for",
    ),
    Mutant(
        "Ctrl-C is not held up by a thread that waits", "wait.py",
        "if threads.is_interrupted():", "if False:",
        "integration/test_ctrl_c.py::test_ctrl_c_ends_a_program_whose_thread_waits",
    ),
    Mutant(
        "what is stored while its program goes is withdrawn", "gates/check.py",
        "yield from withdraw(store, request.id, why, error)", "pass",
        _WAITS_END + "test_a_task_that_is_cancelled_while_its_request_is_stored_withdraws_it",
    ),
    Mutant(
        "also where a closed coroutine cannot wait for it", "gates/check.py",
        "if is_left.is_set():", "if False:",
        _WAITS_END + "test_a_coroutine_that_is_closed_while_its_request_is_stored_withdraws_it",
    ),
    Mutant(
        "a named run finds what was stored while it was left", "gates/check.py",
        "if saved is not None or not is_random(request.run_id):", "if saved is not None:",
        _WAITS_END
        + "test_a_task_that_is_cancelled_while_its_request_is_stored_in_a_named_run_leaves_it_pending",
    ),
    Mutant(
        "a withdrawal does not hold up who stops waiting", "gates/check.py",
        'getattr(store, "withdraw", store.clear)', "store.clear",
        _PATIENT + "test_a_cancelled_task_is_not_held_up_by_a_server_that_takes_no_withdrawal",
    ),
    Mutant(
        "and not by a server that hangs either", "stores/http_transport.py",
        "left if is_brief else _TIMEOUT", "_TIMEOUT",
        _PATIENT + "test_a_withdrawal_gives_up_after_two_seconds",
    ),
    Mutant(
        "two programs that differ stop asking", "gating.py",
        "if len(withdrawn) > _MOST_WITHDRAWN:", "if False:",
        _NEEDS + "test_program_whose_request_is_taken_back_again_and_again_stops",
    ),
    Mutant(
        "what was shown is what runs", "gates/execute.py",
        "or not is_as_shown(gate, call):", "or False:",
        _SHOWN + "test_call_that_was_shown_as_another_one_does_not_run",
    ),
    Mutant(
        "and under the name that was shown", "gates/execute.py",
        "(call.tool, call.name) != (gate.tool, gate.name)", "False",
        _SHOWN + "test_call_that_was_shown_under_another_name_does_not_run",
    ),
    Mutant(
        "a redactor's view is made again", "gates/check.py",
        "return dump(shown) in {dump(gate.redaction.mask(again)), dump(gate.redaction.mask(failed))}", "return True",
        _SHOWN + "test_view_that_a_redactor_made_is_compared_with_what_it_makes_now",
    ),
    Mutant(
        "nothing changes while a rule is awaited", "gates/check.py",
        "if asked.has_moved:", "if False:",
        _MOVING + "test_call_that_changed_while_an_async_rule_decided_does_not_run",
    ),
    Mutant(
        "a call fits its own types", "gates/check.py",
        "if problems:", "if False:",
        _PROPOSED + "test_argument_that_does_not_fit_its_own_type_is_refused_before_it_is_held",
    ),
    Mutant(
        "a program that is gone is said to be", "reviews.py",
        "and worker.is_gone(request.process)", "and False",
        _BEHIND + "test_request_without_a_named_run_says_that_its_program_is_gone",
    ),
    Mutant(
        "a role is needed", "model/lifecycle.py",
        "if not request.admits(by, roles):", "if False:",
        _LIFECYCLE + "test_a_role_is_needed_for_everything_that_a_reviewer_does",
    ),
    Mutant(
        "one of the roles, not any role", "model/quorum.py",
        "return not self.roles or any(role in self.roles for role in roles)",
        "return not self.roles or any(True for role in roles)",
        _LIFECYCLE + "test_a_role_is_needed_for_everything_that_a_reviewer_does",
    ),
    Mutant(
        "a claim keeps others out", "model/lifecycle.py",
        " and not by.is_same(request.claimed_by):", " and False:",
        _LIFECYCLE + "test_a_claim_keeps_others_out_until_it_is_released",
    ),
    Mutant(
        "nobody votes twice", "model/lifecycle.py",
        "if any(vote.by.is_same(decision.by) for vote in votes):", "if False:",
        _LIFECYCLE + "test_a_quorum_is_met_by_as_many_distinct_people_as_it_names",
    ),
    Mutant(
        "votes are counted by person", "model/quorum.py",
        "if not any(voter.is_same(other) for other in distinct):", "if voter not in distinct:",
        _GUARDS + "test_one_person_in_two_spellings_counts_once",
    ),
    Mutant(
        "Ada is ada", "model/reviewer.py",
        'unicodedata.normalize("NFKC", text).casefold())', 'unicodedata.normalize("NFKC", text))',
        _GUARDS + "test_one_person_in_two_spellings_counts_once",
    ),
    Mutant(
        "a full-width letter is the letter", "model/reviewer.py",
        'folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())',
        "folded = text.casefold()",
        _PROMISES + "test_05_a_quorum_counts_people.py::test_5_a_quorum_counts_distinct_people",
    ),
    Mutant(
        "a name hides nothing", "model/reviewer.py",
        "    if hidden:\n", "    if False:\n",
        _GUARDS + "test_a_name_that_hides_something_names_nobody",
    ),
    Mutant(
        "fillers and selectors are hidden, too", "model/reviewer.py",
        " + hidden_in(text)", "",
        _REVIEWER + "test_no_name_holds_what_is_seen_as_nothing",
    ),
    Mutant(
        "no mark stands on what comes before a name", "model/reviewer.py",
        'if unicodedata.category(text[0])[0] == "M":', "if False:",
        _REVIEWER + "test_a_mark_cannot_stand_on_what_comes_before_the_name",
    ),
    Mutant(
        "doubled spaces make no second person", "model/reviewer.py",
        'return " ".join(folded.split())', "return folded",
        _REVIEWER + "test_a_quorum_counts_the_spellings_of_a_name_once",
    ),
    Mutant(
        "a role hides nothing", "model/reviewer.py",
        'frozenset(_checked(role, "role") for role in self.roles)', "frozenset(self.roles)",
        _REVIEWER + "test_no_name_holds_what_is_seen_as_nothing",
    ),
    # -- decisions --------------------------------------------------------------------------------------------------
    Mutant(
        "an edit begins the count anew", "model/lifecycle.py",
        '        votes = ()\n        detail |= {"edited"', '        votes = request.votes\n        detail |= {"edited"',
        _LIFECYCLE + "test_an_edit_resets_the_votes_and_counts_as_one",
    ),
    Mutant(
        "what was looked at is what stands", "model/lifecycle.py",
        "if seen is not None and seen != current:", "if False:",
        _LIFECYCLE + "test_what_is_approved_is_what_the_last_voter_saw",
    ),
    Mutant(
        "many calls are approved as they were listed", "cli/approve.py",
        "return review.approve(shown.id, comment=message, seen=shown.current_fingerprint)",
        "return review.approve(shown.id, comment=message)",
        "integration/test_cli_bulk.py::test_what_came_or_changed_after_the_list_is_not_decided",
    ),
    Mutant(
        "many are decided without a question only if somebody said so", "cli/bulk.py",
        "if not is_sure and (as_json or not is_there()):", "if False:",
        "integration/test_cli_bulk.py::test_requests_are_named_by_ids_or_by_filters",
    ),
    Mutant(
        "no means that none of many is decided", "cli/bulk.py",
        "if not is_sure and not _is_wanted(review, fit, verb):", "if not is_sure and not _is_wanted(review, fit, verb) and not fit:",
        "integration/test_cli_bulk.py::test_everything_but_a_yes_decides_nothing",
    ),
    Mutant(
        "a call too long for one view is not approved among many", "cli/bulk.py",
        "if not card.is_whole(request):", "if False:",
        "integration/test_cli_bulk.py::test_a_question_and_a_call_too_long_for_one_view_are_left_out_of_an_approval",
    ),
    Mutant(
        "a misspelt name is an error for type checkers", "__init__.py",
        "if not TYPE_CHECKING:", "if True:",
        "unit/test_typing.py::test_each_wrong_use_is_an_error_and_no_right_one",
    ),
    Mutant(
        "a misspelt keyword of a review decides nothing", "model/keywords.py",
        "raise unknown_keyword(called, min(kwargs.keys() - known), known)", "kwargs.clear()",
        "integration/test_listing.py::test_who_decides_is_called_by_everywhere",
    ),
    Mutant(
        "a loop over a list with a limit ends there", "reviews.py",
        "following = partial(self._page, search, limit=None, newest=newest) if limit is None else None",
        "following = partial(self._page, search, limit=None, newest=newest)",
        "integration/test_listing.py::test_a_limit_is_the_most_that_a_loop_gives",
    ),
    Mutant(
        "a filtered page goes on behind the last request that it holds", "reviews.py",
        "if not ends.requests or ends.requests[-1].id != page.requests[passing[-1]].id:", "if False:",
        "integration/test_listing.py::test_what_is_decided_while_a_page_is_made_hides_nothing_else",
    ),
    Mutant(
        "a reviewer's word on what was looked at counts", "reviews.py",
        "after = self.store.decide(whole, decision, roles=who.roles, seen=seen, edited=edited)",
        "after = self.store.decide(whole, decision, roles=who.roles, seen=None, edited=edited)",
        _GUARDS + "test_who_names_what_was_looked_at_decides_that_alone",
    ),
    Mutant(
        "decided is decided", "model/lifecycle.py",
        'if not (decision.verb == "cancel" and request.state is State.APPROVED):', "if False:",
        _PROMISES + "test_07_decided_is_decided.py::test_7_decided_is_decided",
    ),
    Mutant(
        "a running call is not cancelled", "model/lifecycle.py",
        'if not (decision.verb == "cancel" and request.state is State.APPROVED):', 'if decision.verb != "cancel":',
        _LIFECYCLE + "test_there_is_this_way_and_no_other",
    ),
    Mutant(
        "a quorum is met before the call is approved", "model/lifecycle.py",
        "    if missing:\n", "    if False:\n",
        _CONTRACT + "TestMemory::test_a_quorum_counts_distinct_people",
    ),
    Mutant(
        "a question is not approved", "model/lifecycle.py",
        'if request.kind == "question" and verb in {"approve", "feedback"}:', "if False:",
        _LIFECYCLE + "test_a_question_takes_no_such_decision",
    ),
    Mutant(
        "an answer fits the question", "reviews.py",
        'shape_of(request).fit({"answer": canonical.form_of(value)})', '{"answer": canonical.form_of(value)}',
        _GUARDS + "test_an_answer_that_does_not_fit_decides_nothing",
    ),
    Mutant(
        "nothing is fetched for a reference", "model/json_schema.py",
        '"offline": True,', '"offline": False,',
        "unit/test_foreign_schema.py::test_no_reference_is_ever_fetched",
    ),
    Mutant(
        "a pattern is given up", "model/json_schema.py",
        "backtrack_limit=100_000", "backtrack_limit=100_000_000_000",
        "unit/test_foreign_schema.py::test_a_pattern_that_takes_for_ever_is_given_up",
    ),
    Mutant(
        "formats are asserted", "model/json_schema.py",
        '"validate_formats": True,', '"validate_formats": False,',
        "unit/test_foreign_schema.py::test_arguments_are_held_to_a_foreign_schema",
    ),
    Mutant(
        "a problem holds no value", "model/json_schema.py",
        'jsonschema_rs.validator_for(tree, mask="Input", **options)', "jsonschema_rs.validator_for(tree, **options)",
        "unit/test_foreign_schema.py::test_no_problem_of_a_foreign_schema_contains_the_value",
    ),
    Mutant(
        "a foreign schema brings none of our keywords", "model/json_schema.py",
        "if '\"x-sayso-' in text:", "if False:",
        "unit/test_foreign_schema.py::test_what_is_no_schema_is_refused_by_name",
    ),
    Mutant(
        "an object of a class that checks itself is not built without its code", "model/schema_fit.py",
        'if "x-sayso-code" in node and self._builds:', "if False:",
        "unit/test_schema.py::test_without_the_code_a_class_that_checks_itself_is_passed_on_and_not_built",
    ),
    Mutant(
        "an edit fits the function", "model/edit.py",
        "schema.fit(merged, kept=kept)", "merged",
        _PEERS + "test_edit_is_validated_before_it_counts",
    ),
    Mutant(
        "a mask left as shown is no edit", "model/edit.py",
        "return real[name]", "return value",
        _GUARDS + "test_a_masked_value_that_is_left_as_shown_stays_what_it_is",
    ),
    Mutant(
        "an edited call is masked, too", "model/edit.py",
        'masked = cast("dict[str, Any]", redaction.mask(tree))', "masked = tree",
        _PROMISES + "test_11_secrets_are_masked.py::test_11_secrets_are_masked_wherever_something_is_shown",
    ),
    # -- what is asked, and where -----------------------------------------------------------------------------------
    Mutant(
        "None, 0 and '' are no answer of a rule", "policy.py",
        "    match answer:\n", "    match answer if isinstance(answer, Verdict) else bool(answer):\n",
        _PROMISES + "test_08_any_error_means_not_run.py::test_8_any_error_means_not_run",
    ),
    Mutant(
        "None alone lets nothing through", "policy.py",
        "        case False:\n", "        case False | None:\n",
        _PROMISES + "test_08_any_error_means_not_run.py::test_8_any_error_means_not_run",
    ),
    Mutant(
        "a rule that fails lets nothing through", "gates/check.py",
        "refuse(gate, gate.rule, error, arguments)", "return verdict_of(False, gate.rule)",
        _PROMISES + "test_08_any_error_means_not_run.py::test_8_any_error_means_not_run",
    ),
    Mutant(
        "a hook settles only what it says plainly", "gates/check.py",
        "if answer is None or isinstance(answer, bool | Happened):", "if answer is not gate:",
        _GUARDS + "test_a_hook_that_says_something_else_settles_nothing",
    ),
    Mutant(
        "what no other process could read is refused", "gates/check.py",
        "canonical.check_round_trip(form, gate.shape.classes)", "pass",
        _GUARDS + "test_a_call_that_no_other_process_could_run_is_refused_when_asked",
    ),
    Mutant(
        "one open request for one call in one run", "stores/base.py",
        "met = held if expired is None else None", "met = None",
        _CONTRACT + "TestMemory::test_asking_the_same_in_the_same_run_finds_the_request",
    ),
    Mutant(
        "what was decided from here is found", "gates/check.py",
        "if adopted is not None:", "if False:",
        _SCOPE + "test_pause_of_a_task_is_answered_by_who_awaited_it",
    ),
    Mutant(
        "siblings share nothing", "scope.py",
        "return owner.task is not None and owner.task() is task", "return True",
        _SCOPE + "test_siblings_of_a_parent_with_a_run_share_nothing",
    ),
    Mutant(
        "a child does not grant its parent", "scope.py",
        "return owner.task is not None and owner.task() is task", "return owner.task is None or owner.task() is task",
        _SCOPE + "test_what_a_task_was_granted_is_not_granted_to_the_thread_that_began_it",
    ),
    Mutant(
        "a run is part of the fingerprint", "model/fingerprint.py",
        'else _begun("sayso/run/1", run_id)).copy()', 'else _begun("sayso/run/1")).copy()',
        _SCOPE + "test_other_runs_decide_nothing_here",
    ),
    Mutant(
        "the parts of a digest are framed", "model/fingerprint.py",
        'b"%d:%b" % (len(part), part) for part in parts', "part for part in parts",
        _GUARDS + "test_the_parts_of_a_digest_cannot_be_shifted",
    ),
    Mutant(
        "a tuple is no list", "model/canonical/form.py",
        'return {"$tuple": self._items(value)}', "return self._items(value)",
        _CANONICAL + "test_different_acts_have_different_digests",
    ),
    Mutant(
        "a dict is no tag", "model/canonical/form.py",
        'return {"$dict": members} if is_wrapped else members', "return members",
        _CANONICAL + "test_a_golden_vector_is_written_as_it_was",
    ),
    Mutant(
        "keys are texts", "model/canonical/form.py",
        "if type(key) is not str:\n", "if False:\n",
        _CANONICAL + "test_what_has_no_form_is_refused_by_the_name_of_its_argument",
    ),
    Mutant(
        "depth has an end", "model/canonical/form.py",
        "if len(self.path) > LIMIT_DEPTH:", "if False:",
        _CANONICAL + "test_what_has_no_form_is_refused_by_the_name_of_its_argument",
    ),
    Mutant(
        "the number of values has an end", "model/canonical/form.py",
        "if self._left < 0:", "if False:",
        _CANONICAL + "test_an_abusive_input_is_refused_before_the_work_grows_with_it",
    ),
    Mutant(
        "a huge value is refused before it is written", "model/canonical/form.py",
        "self._room -= least", "pass",
        _CANONICAL + "test_an_abusive_input_is_refused_before_the_work_grows_with_it",
    ),
    # -- what runs --------------------------------------------------------------------------------------------------
    Mutant(
        "what runs has the digest that was asked", "gates/execute.py",
        "if digest != call.digest or fingerprint(request.run_id, digest, request.place) != approved:", "if False:",
        _GUARDS + "test_a_call_whose_form_and_digest_were_both_altered_is_not_run",
    ),
    Mutant(
        "what runs has the fingerprint that was approved", "gates/execute.py",
        " or fingerprint(request.run_id, digest, request.place) != approved:", ":",
        _GUARDS + "test_a_call_whose_form_and_digest_were_both_altered_is_not_run",
    ),
    Mutant(
        "a refused record is not left running", "gates/execute.py",
        "if isinstance(refusal, errors.AlteredRequestError):", "if False:",
        _PROMISES + "test_01_what_runs_is_what_was_approved.py::test_1_what_runs_is_what_was_shown_and_approved",
    ),
    Mutant(
        "an edit passes the function's own validators", "gates/execute.py",
        "if request.edited is not None:", "if False:",
        _GUARDS + "test_an_edit_made_without_the_functions_validators_is_validated_before_it_runs",
    ),
    Mutant(
        "a call that was broken off is unknown", "gates/execute.py",
        'state = "unknown" if attempt.is_ambiguous or not isinstance(attempt.raised, Exception) else "failed"',
        'state = "unknown" if attempt.is_ambiguous else "failed"',
        _GUARDS + "test_a_call_that_is_broken_off_is_unknown_and_not_failed",
    ),
    Mutant(
        "Ctrl-C in a call is recorded", "effects.py",
        "except BaseException as error:  # noqa: BLE001  user code; recorded by",
        "except Exception as error:  # noqa: BLE001  user code; recorded by",
        _GUARDS + "test_a_call_that_is_broken_off_is_unknown_and_not_failed",
    ),
    Mutant(
        "a coroutine thrown away is recorded", "effects.py",
        "return drive(effects, Attempt(None, closed))", "raise",
        _GUARDS + "test_a_coroutine_that_is_thrown_away_in_mid_call_is_unknown",
    ),
    Mutant(
        "a verb that has begun ends", "effects.py",
        "            cancelled = error\n", "            raise\n",
        _GUARDS + "test_a_cancelled_task_waits_for_the_end_of_a_verb_that_has_begun",
    ),
    Mutant(
        "an outcome that is not recorded is told", "gates/execute.py",
        "raise errors.OutcomeNotRecordedError(request.id, attempt.value, str(error)) from error", "return",
        _GUARDS + "test_a_call_that_ran_and_could_not_be_recorded_says_so_with_its_result",
    ),
    # -- stores -----------------------------------------------------------------------------------------------------
    Mutant(
        "a worker that lives is not given up", "stores/base.py",
        "execution.worker == gone or worker.is_gone(execution.worker)", "True",
        _CONTRACT + "TestMemory::test_a_call_whose_process_lives_stays_running",
    ),
    Mutant(
        "a worker that is gone is given up", "stores/base.py",
        "execution.worker == gone or worker.is_gone(execution.worker)", "False",
        _PROMISES + "test_03_an_unknown_outcome_is_not_retried.py::test_3_an_outcome_that_cannot_be_known_is_unknown_and_not_retried",
    ),
    Mutant(
        "a process number that was given out again", "stores/worker.py",
        "(_is_dead(pid) or _is_another(pid, theirs, mine))", "_is_dead(pid)",
        _WORKER + "test_process_number_given_out_again_is_not_taken_for_the_dead_worker",
    ),
    Mutant(
        "another program in the same process", "stores/worker.py",
        "program and worker.program and program != worker.program", "False",
        _WORKER + "test_program_that_was_replaced_in_its_process_is_gone",
    ),
    Mutant(
        "a start time is compared in one time namespace only", "stores/worker.py",
        "_started(pid) if worker.time_namespace == mine.time_namespace else \"\"", "_started(pid)",
        _WORKER + "test_process_number_given_out_again_is_not_taken_for_the_dead_worker",
    ),
    Mutant(
        "/proc of another namespace tells nothing", "stores/worker.py", "(_is_own_proc() and (", "(True and (",
        _WORKER + "test_process_of_a_namespace_that_has_no_proc_of_its_own_lives",
    ),
    Mutant(
        "a worker that nobody reaped is gone", "stores/worker.py",
        "(_is_dead(pid) or _is_another(pid, theirs, mine))", "_is_another(pid, theirs, mine)",
        _WORKER + "test_killed_process_is_gone_before_anybody_reaps_it",
    ),
    Mutant(
        "nothing is concluded about another machine", "stores/worker.py",
        "if (theirs.host, theirs.pid_namespace) != (mine.host, mine.pid_namespace):",
        "if theirs.pid_namespace != mine.pid_namespace:",
        _WORKER + "test_nothing_is_concluded_about_another_host_or_namespace_or_a_malformed_name",
    ),
    Mutant(
        "nothing is concluded about another namespace", "stores/worker.py",
        "if (theirs.host, theirs.pid_namespace) != (mine.host, mine.pid_namespace):",
        "if theirs.host != mine.host:",
        _WORKER + "test_nothing_is_concluded_about_another_host_or_namespace_or_a_malformed_name",
    ),
    Mutant(
        "a container elsewhere is not taken for an earlier boot", "stores/worker.py",
        " and mine.pid_namespace == _OUTERMOST", "",
        _WORKER + "test_container_of_the_same_name_on_another_kernel_is_not_taken_for_gone",
    ),
    Mutant(
        "a lock is free in a forked child", "config.py",
        "    global _lock\n    _lock = threading.Lock()", "    pass",
        "unit/test_fork.py::test_a_store_can_be_opened_in_a_child",
    ),
    Mutant(
        "one verb at a time, in memory", "stores/memory.py",
        "        with self._lock:\n            tx = _Memory(self)", "        with threading.RLock():\n            tx = _Memory(self)",
        _GUARDS + "test_in_memory_one_verb_ends_before_the_next_begins",
    ),
    Mutant(
        "a refusal is raised, in memory", "stores/memory.py",
        "        if isinstance(result, errors.SaysoError):\n            raise result\n", "",
        _CONTRACT + "TestMemory::test_only_an_approved_call_is_started",
    ),
    Mutant(
        "what no longer holds is not found, in memory", "stores/memory.py",
        "elif self.holders.get(request.fingerprint) == request.id:", "elif False:",
        _CONTRACT + "TestMemory::test_a_no_holds_and_a_spent_approval_does_not",
    ),
    Mutant(
        "a row is changed only as it was seen", "stores/sqlite_transaction.py",
        "WHERE id = ? AND link = ?", "WHERE id = ? AND ? IS NOT NULL",
        _GUARDS + "test_a_row_that_was_changed_elsewhere_is_not_overwritten_from_memory",
    ),
    Mutant(
        "a change that missed its row is no change", "stores/sqlite_transaction.py",
        ".rowcount != 1:", ".rowcount < 0:",
        _GUARDS + "test_a_row_that_was_changed_elsewhere_is_not_overwritten_from_memory",
    ),
    Mutant(
        "a place in the chain is taken once", "stores/sqlite_transaction.py",
        "            raise Stale from None", "            return",
        _SQLITE + "test_two_stores_that_write_in_one_run_by_turns_leave_one_whole_chain",
    ),
    Mutant(
        "no answer from memory alone", "stores/sqlite.py",
        "if tx.has_guessed and not tx.changed:", "if False:",
        _GUARDS + "test_an_answer_is_never_given_from_memory_alone",
    ),
    Mutant(
        "the lock is taken before the first reading", "stores/sqlite.py",
        'connection.execute("BEGIN IMMEDIATE")', 'connection.execute("BEGIN")',
        _GUARDS + "test_nobody_else_can_write_between_a_verbs_reading_and_its_writing",
    ),
    Mutant(
        "what was committed is not done again", "stores/sqlite.py",
        '            is_ready = True\n            connection.execute("COMMIT")',
        '            connection.execute("COMMIT")\n            is_ready = True',
        _SQLITE + "test_who_waits_behind_an_interrupted_verb_is_served_once",
    ),
    Mutant(
        "who was interrupted leaves the queue", "stores/sqlite.py",
        "op.done = True  # interrupted: nobody waits for it any more", "pass",
        _SQLITE + "test_who_waits_behind_an_interrupted_verb_is_served_once",
    ),
    Mutant(
        "what was broken off is rolled back", "stores/sqlite.py",
        '                connection.execute("ROLLBACK")', "                pass",
        _SQLITE + "test_a_verb_that_is_interrupted_is_whole_or_undone",
    ),
    Mutant(
        "a verb that fails among others fails alone", "stores/sqlite.py",
        "        if len(batch) == 1 or not self._commit(batch):", "        if self._commit(batch) is None:",
        _SQLITE + "test_a_verb_that_fails_among_others_fails_alone",
    ),
    Mutant(
        "a commit is synced", "stores/sqlite.py",
        '"PRAGMA synchronous = FULL"', '"PRAGMA synchronous = NORMAL"',
        _SQLITE + "test_every_commit_is_synced",
    ),
    Mutant(
        "the file is its owner's", "stores/sqlite.py",
        "os.O_RDWR, 0o600)", "os.O_RDWR, 0o644)",
        _SQLITE + "test_only_its_owner_can_read_the_file_and_those_beside_it",
    ),
    Mutant(
        "a forked child begins afresh", "stores/sqlite.py",
        "        self._bell = Bell()\n        self._begin_afresh()\n\n    # -- connections", "        self._bell = Bell()\n\n    # -- connections",
        _GUARDS + "test_a_forked_child_takes_over_no_lock_and_no_connection",
    ),
    Mutant(
        "a sealed text belongs to its request", "stores/codec.py",
        "    return AESGCM(raw)",
        "    return type('Unbound', (AESGCM,), {name: (lambda self, nonce, text, _, do=getattr(AESGCM, name):"
        " do(self, nonce, text, None)) for name in ('encrypt', 'decrypt')})(raw)",
        _SEAL + "test_a_sealed_text_cannot_be_moved_to_another_request",
    ),
    Mutant(
        "nothing sealed is read without the key", "stores/codec.py",
        "            if text.startswith(_ANY):", "            if False:",
        _SQLITE + "test_without_the_key_nothing_sealed_is_read_or_decided",
    ),
    Mutant(
        "a sealed text belongs to its column", "stores/codec.py",
        'return f"{owner}/{column}"', "return owner",
        _SEAL + "test_a_sealed_text_cannot_be_moved_to_another_column",
    ),
    Mutant(
        "what is not sealed is refused where there is a key", "stores/codec.py",
        "        if not text.startswith(_MARK):\n            raise", "        if not text.startswith(_MARK):\n            return text\n            raise",
        _SEAL + "test_what_was_written_in_by_hand_is_refused_where_there_is_a_key",
    ),
    Mutant(
        "people's words are sealed in the journal", "stores/sqlite_transaction.py",
        "if not self._seal.is_open:", "if False:",
        _SEAL + "test_what_people_said_is_sealed_in_the_journal_and_its_chain_holds_without_the_key",
    ),
    # -- the journal ------------------------------------------------------------------------------------------------
    Mutant(
        "a link covers its row", "audit/walk.py",
        "if chained(before, *entry[:-1]).link != entry.link:", "if False:",
        _PROMISES + "test_10_every_step_is_recorded.py::test_10_every_step_leaves_a_chained_record",
    ),
    Mutant(
        "a request names its last row", "audit/walk.py",
        "if anchor.link != trail.link:", "if False:",
        _AUDIT + "test_an_end_that_was_cut_off_is_found_while_its_request_is_there",
    ),
    Mutant(
        "a request stands as its last row left it", "audit/walk.py",
        "if anchor.state not in trail.said.states:", "if False:",
        _ALTERED + "test_a_state_that_no_row_led_to_shows_also_without_digests",
    ),
    Mutant(
        "a request is as it was asked", "audit/walk.py",
        "if anchor.asked is not None and anchor.asked != trail.said.asked:", "if False:",
        _AUDIT + "test_a_request_that_was_rewritten_by_hand_is_found",
    ),
    Mutant(
        "a request that has rows is there", "audit/walk.py",
        "for request_id, trail in missing.items():", "for request_id, trail in ():",
        _AUDIT + "test_a_request_that_was_removed_or_put_back_is_found",
    ),
    Mutant(
        "a link covers the detail", "model/journal.py",
        "quote(channel), quote(detail)", "quote(channel)",
        _PROMISES + "test_10_every_step_is_recorded.py::test_10_every_step_leaves_a_chained_record",
    ),
    Mutant(
        "a link covers the row before", "model/journal.py",
        'f"[{quote(before)},', 'f"[',
        _PROMISES + "test_10_every_step_is_recorded.py::test_10_every_step_leaves_a_chained_record",
    ),
    # -- what is shown ----------------------------------------------------------------------------------------------
    Mutant(
        "a secret below a name is masked", "model/redaction.py",
        "            elif isinstance(value, _MAY_HIDE):\n                shown = self.mask(value)\n", "",
        _REDACTION + "test_secret_is_absent_at_every_depth",
    ),
    Mutant(
        "a secret in a list is masked", "model/redaction.py",
        "masked = [self.mask(item) if isinstance(item, _MAY_HIDE) else item for item in items]", "masked = items",
        _PROMISES + "test_11_secrets_are_masked.py::test_11_secrets_are_masked_wherever_something_is_shown",
    ),
    Mutant(
        "the password of a URL is masked", "model/redaction.py",
        "return conceal(tree)", "return tree",
        _REDACTION + "test_password_in_a_url_is_masked_at_every_depth",
    ),
    Mutant(
        "the password of a URL is scrubbed", "model/redaction.py",
        "yield from passwords_in(tree)", "yield from ()",
        _REDACTION + "test_password_in_a_url_is_masked_at_every_depth",
    ),
    Mutant(
        "no command hides in a URL", "model/redaction.py",
        '_LETTER = r"[\\w.~%!*+,=@:^-]|\\$(?![({])"', '_LETTER = r"[^\\s]"',
        _REDACTION + "test_url_without_a_password_is_shown_as_it_is",
    ),
    Mutant(
        "a password comes back to its own URL", "model/redaction.py",
        "if len(gaps) > 1 or len(kept) != 1:", "if not kept:",
        _REDACTION + "test_edit_of_a_url_keeps_its_password_where_it_is_certain_whose_it_is",
    ),
    Mutant(
        "a name is judged without its number", "model/redaction.py",
        'else _NUMBER.sub("", last)', "else last",
        _REDACTION + "test_name_of_a_secret_is_known_in_every_spelling",
    ),
    Mutant(
        "a page's token is no secret", "model/redaction.py",
        "return word in _UNLESS and (not before or before[-1] not in _UNLESS[word])", "return word in _UNLESS",
        _REDACTION + "test_ordinary_name_hides_nothing",
    ),
    Mutant(
        "of many secrets the shorter ones are found, too", "model/redaction.py",
        "candidate = shorter[candidate]", "candidate = -1",
        _REDACTION + "test_many_secrets_leave_no_occurrence_either",
    ),
    Mutant(
        "many secrets are looked for in one walk", "model/redaction.py",
        "_FEW = 64", "_FEW = 1_000_000",
        _REDACTION + "test_scrub_looks_for_thousands_of_secrets_in_one_walk",
    ),
    Mutant(
        "a password in a URL has an end", "model/redaction.py",
        r'''rf"(?:(?!://)(?:{_LETTER})){{1,512}}(?=@)|(?!\d*[/?#])(?:(?!://)(?:{_LETTER}|[/?#])){{1,512}}?(?=@)"''',
        r'''rf"(?:{_LETTER})+(?=@)|(?!\d*[/?#])(?:{_LETTER}|[/?#])+?(?=@)"''',
        _REDACTION + "test_a_url_made_to_be_slow_is_not_read_again_from_each_place",
    ),
    Mutant(
        "a secret is looked for in any spelling", "model/redaction.py",
        "if kept is None or kept[0] in runs or len(secret.splitlines()) > 1:", "if secret in text:",
        _REDACTION + "test_many_secrets_are_found_in_every_spelling",
    ),
    Mutant(
        "no rule judges a NaN", "gates/check.py",
        "lost = nan_in(asked.kwargs)", "lost = None",
        _NAN + "test_a_rule_lets_no_nan_through",
    ),
    Mutant(
        "a NaN below a scalar is found", "model/nan.py",
        "                waiting.append(part)", "                pass",
        _NAN + "test_a_nan_is_found_at_every_depth",
    ),
    Mutant(
        "settings that others can write are not used", "config.py",
        "if found.st_mode & 0o002 or (found.st_mode & 0o020 and not _is_ours_alone(found.st_gid)):", "if False:",
        _CONFIG + "test_file_that_others_can_write_is_refused",
    ),
    Mutant(
        "a group is somebody else", "config.py",
        "(found.st_mode & 0o020 and not _is_ours_alone(found.st_gid))", "False",
        _CONFIG + "test_file_that_a_group_can_write_is_refused_unless_the_group_is_the_users_own",
    ),
    Mutant(
        "settings of another user are not used", "config.py",
        "            if strangers:", "            if False:",
        _CONFIG + "test_file_of_another_user_is_refused",
    ),
    Mutant(
        "letters that run the other way are warned of", "model/text.py",
        'return first if first is not None and "L" in ways.values() else None', "return None",
        _CARD + "test_letters_that_run_the_other_way_are_warned_of",
    ),
    Mutant(
        "a warning stays inside its width", "view/card.py",
        "wrapped(said, width - _CAUTION_INDENT)", "wrapped(said, 10_000)",
        _CARD + "test_no_warning_is_wider_than_asked_for_and_none_is_cut",
    ),
    Mutant(
        "an error that quotes a secret is not in the chain", "gates/check.py",
        "        refusal.__context__ = cause", "        pass",
        "integration/test_policy.py::test_policy_error_does_not_hold_an_error_that_quotes_a_secret",
    ),
    Mutant(
        "what is not known is masked whole", "model/redaction.py",
        "return tree if tag in _SCALARS else MASK", "return tree",
        _REDACTION + "test_tag_that_is_not_known_is_masked_whole",
    ),
    Mutant(
        "a redactor that fails shows nothing", "model/redaction.py",
        "        return dict(FAILED)\n    if inspect", "        return arguments\n    if inspect",
        _REDACTION + "test_redactor_that_fails_shows_a_placeholder_and_never_the_secret",
    ),
    Mutant(
        "the error of a hook quotes no secret", "gates/check.py",
        "words = type(error).__name__ if secrets is None else redaction.error_text(error, secrets)",
        'words = f"{type(error).__name__}: {error}"',
        _PROMISES + "test_11_secrets_are_masked.py::test_11_secrets_are_masked_wherever_something_is_shown",
    ),
    Mutant(
        "a pause carries the masked call", "signals.py",
        "return ToolCall(subject.name, subject.arguments)",
        "return ToolCall(subject.name, __import__('json').loads(subject.form))",
        _PROMISES + "test_11_secrets_are_masked.py::test_11_secrets_are_masked_wherever_something_is_shown",
    ),
    Mutant(
        "what moves or hides is written out", "model/text.py",
        "return not character.isprintable() or _BLANK_ONE.match(character) is not None",
        "return _BLANK_ONE.match(character) is not None",
        _PROMISES + "test_09_the_reviewer_sees_what_we_draw.py::test_9_the_reviewer_sees_what_we_draw_and_the_agents_words_marked",
    ),
    Mutant(
        "what looks like nothing is written out", "model/text.py",
        "return not character.isprintable() or _BLANK_ONE.match(character) is not None",
        "return not character.isprintable()",
        _SHOW + "test_no_code_point_hides",
    ),
    Mutant(
        "no mark is drawn onto our own text", "model/text.py",
        'elif unicodedata.category(text[0])[0] == "M":', "elif False:",
        _SHOW + "test_what_hides_is_written_out",
    ),
    Mutant(
        "a text cannot write an escape itself", "model/text.py",
        'if text.isprintable() and "<U+" not in text:', "if text.isprintable():",
        _SHOW + "test_what_hides_is_written_out",
    ),
    # -- whose call it is -------------------------------------------------------------------------------------------
    Mutant(
        "plain values around a function are part of the call", "gates/options.py",
        "digest = self._around.now().digest", "digest = None",
        _SAME_NAME + "test_value_in_a_closure_is_part_of_the_call_in_another_process",
    ),
    Mutant(
        "a variable is read when the call is made", "gates/captured.py",
        "if last is None or _has_changed(last[1]):", "if last is None:",
        _SAME_NAME + "test_variable_is_read_when_the_call_is_made",
    ),
    Mutant(
        "what a function assigns is its own state", "gates/captured.py",
        "if name in _assigned(code):", "if False:",
        _SAME_NAME + "test_state_that_a_function_keeps_for_itself_asks_nobody_again",
    ),
    Mutant(
        "values behind other functions count", "gates/captured.py",
        'self.function(f"{place}.", function)', "pass",
        _SAME_NAME + "test_value_behind_another_function_is_part_of_the_call",
    ),
    Mutant(
        "a function that calls itself is not another one", "gates/captured.py",
        "if inspect.unwrap(function, stop=self._is_itself) is self._itself:", "if False:",
        _SAME_NAME + "test_function_that_calls_itself_is_the_same_when_it_is_made_anew",
    ),
    Mutant(
        "functions with other objects are kept apart", "gates/check.py",
        "if other is not None and not is_same(other.surroundings, gate.surroundings):", "if False:",
        _SAME_NAME + "test_function_with_another_object_is_refused_in_one_process",
    ),
    Mutant(
        "a given name stands for one function", "gates/options.py",
        "[] if self.named is None else [code]", "",
        _SAME_NAME + "test_two_functions_with_one_given_name_are_kept_apart",
    ),
    Mutant(
        "who asked is forgotten with the call", "gates/execute.py",
        "        forget(request.id)", "        pass",
        _SAME_NAME + "test_nothing_is_remembered_of_what_has_ended",
    ),
    Mutant(
        "who asked is forgotten with the request's end", "gates/check.py",
        "if asked.gate() is None or asked.until <= now:", "if asked.gate() is None:",
        _SAME_NAME + "test_nothing_is_remembered_of_what_has_ended",
    ),
    Mutant(
        "options count where gate is called with the function", "gating.py",
        "if function is None else _gated(function, options)",
        'if function is None else _gated(function, {"wait": "raise"})',
        "integration/test_decorator_options.py::test_one_stranger_cannot_approve_what_two_from_finance_must",
    ),
    Mutant(
        "a misspelt option is refused", "gates/options.py",
        "if option not in known:", "if False:",
        "integration/test_decorator_options.py::test_a_misspelt_option_is_refused_before_there_is_a_function",
    ),
    Mutant(
        "a bound counts for a call that the rule lets through", "gates/check.py",
        "        must_keep_bounds(gate, arguments)", "        pass",
        _FIELD + "test_a_bound_counts_for_a_call_that_is_let_through",
    ),
    Mutant(
        "a bound counts behind a gate that is off", "gating.py",
        "            must_keep_bounds(gate, arguments)", "            pass",
        _FIELD + "test_bounds_stand_in_annotated_types_and_within_other_types_too",
    ),
    Mutant(
        "a strict parameter is strict", "model/pydantic_schema.py",
        'if kind in _JSON_SCALARS and schema.get("strict"):', "if False:",
        _FIELD + "test_a_strict_parameter_takes_no_value_of_another_type",
    ),
    Mutant(
        "no function gets a Field for a value", "model/signature.py",
        "        if self.fields:\n            return", "        if False:\n            return",
        _FIELD + "test_a_call_that_is_let_through_has_the_defaults_and_the_alias",
    ),
    Mutant(
        "what must be given must be given", "model/signature.py",
        "return bool(self.info.is_required())", "return False",
        _FIELD + "test_what_must_be_given_must_be_given",
    ),
    Mutant(
        "a method without its object is not gated", "model/signature.py",
        'in {"self", "cls"}:', "in set[str]():",
        "integration/test_methods.py::test_a_method_in_a_class_is_refused_where_it_is_decorated",
    ),
    Mutant(
        "what has no name is given one", "gates/options.py",
        "if kind is not None:", "if False:",
        _SAME_NAME + "test_what_has_no_name_of_its_own_needs_a_given_one",
    ),
    Mutant(
        "a misspelt secret is refused", "gates/options.py",
        'if "" not in names and not any(marks(key, name.removeprefix(".")) for name in names):', "if False:",
        "integration/test_options.py::test_misspelt_name_of_a_secret_is_refused",
    ),
    Mutant(
        "a hook asks for what there is", "gates/options.py",
        "if parameter.name not in names:", "if False:",
        "integration/test_options.py::test_hook_that_asks_for_an_argument_there_is_not_is_refused",
    ),
    # -- runs -------------------------------------------------------------------------------------------------------
    Mutant(
        "who does not hold a run saves nothing of it", "stores/run_verbs.py",
        "    if known is not None and known.holder != saved.run.holder:\n        raise", "    if False:\n        raise",
        _CONTRACT + "TestMemory::test_who_does_not_hold_a_run_writes_nothing_of_it",
    ),
    Mutant(
        "a run is in one hand", "stores/run_verbs.py",
        "if run.holder not in {holder, gone} and not worker.is_free(run.holder):", "if False:",
        _CONTRACT + "TestSqlite::test_of_eight_who_take_a_run_at_once_one_has_it",
    ),
    Mutant(
        "a run that ended is not taken", "stores/run_verbs.py",
        "if run.state is RunState.ENDED:", "if False:",
        _CONTRACT + "TestMemory::test_an_ended_run_is_shown_and_not_taken",
    ),
    Mutant(
        "a lease of this process holds while it lives", "stores/worker.py",
        "return token not in _live if process == current() else is_gone(process)",
        "return process == worker.current() or worker.is_gone(process)",
        "unit/test_lease.py::test_a_lease_holds_as_long_as_its_object_lives",
    ),
    Mutant(
        "a request is recorded with its run or not at all", "stores/base.py",
        "            if saved is not None:\n                save(tx, saved if met is None else saved._replace(left=None))\n",
        "",
        _CONTRACT + "TestMemory::test_a_request_and_its_run_are_recorded_together_or_not_at_all",
    ),
    Mutant(
        "how a call ended is recorded whoever has its run", "stores/base.py",
        "except errors.RunBusyError as refusal:\n                return refusal", "except errors.RunBusyError:\n                raise",
        _CONTRACT + "TestSqlite::test_how_a_call_ended_is_recorded_even_where_its_run_is_in_other_hands",
    ),
    Mutant(
        "a run does not go on while what it waits for is under way", "stores/run_verbs.py",
        "NOT_DECIDED = frozenset({State.PENDING, State.RUNNING, State.UNKNOWN})", "NOT_DECIDED = frozenset({State.PENDING})",
        _CONTRACT + "TestSqlite::test_a_paused_run_can_go_on_when_what_it_waits_for_is_decided",
    ),
    Mutant(
        "a run waits no more for what it waited for before", "stores/sqlite_transaction.py",
        "self._execute(_WAIT_NO_MORE, (run_id, step.place))", "pass",
        _CONTRACT + "TestSqlite::test_what_a_run_waited_for_before_does_not_make_it_ready",
    ),
    Mutant(
        "a sealed step is bound to its place", "stores/sqlite_transaction.py",
        'return f"step/{n}/{place}"', 'return "step"',
        "integration/test_kept_runs.py::test_a_sealed_step_can_be_moved_nowhere",
    ),
    Mutant(
        "a call that stopped itself has no more tries", "model/lifecycle.py",
        "ended = _evolve(execution, attempt=execution.attempt - 1,", "ended = _evolve(execution, attempt=0,",
        _CONTRACT + "TestMemory::test_a_call_that_stopped_to_ask_has_no_more_tries_than_before",
    ),
    Mutant(
        "a store that cannot protect a start is refused", "compat.py",
        'if not isinstance(given, Store) or not callable(getattr(given, "start", None)):', "if not isinstance(given, Store):",
        "unit/test_compat.py::test_what_cannot_protect_a_start_is_refused",
    ),
    Mutant(
        "a claim is for a request of this run", "compat.py",
        "if where.get(approval_id).run_id != parent_id:", "if False:",
        "unit/test_compat.py::TestClaim::test_what_is_not_approved_in_this_run_is_not_claimed",
    ),
    # -- what happened in a run, and what is decided in it -----------------------------------------------------------
    Mutant(
        "the configured key is believed", "cli/proof.py",
        "trusted=by if mine is None else mine.key", "trusted=by",
        "integration/test_evidence_cli.py::test_the_configured_key_is_the_one_that_is_believed",
    ),
    Mutant(
        "each change of the key is told", "cli/proof.py", "if len(past.keys) > 1:", "if False:",
        "integration/test_evidence_cli.py::test_a_key_that_nobody_vouches_for_is_told_and_each_change_of_it",
    ),
    Mutant(
        "a newest checkpoint without a signature is told", "cli/proof.py",
        "if signed_with and not any(signed_with):", "if not past.keys:",
        "integration/test_evidence_cli.py::test_a_key_that_nobody_vouches_for_is_told_and_each_change_of_it",
    ),
    Mutant(
        "a request that cannot be escalated holds up no other", "stores/base.py",
        'with outbox.leaving_altered("escalated"):', "if True:",
        "integration/test_outbox.py::test_a_request_that_cannot_be_escalated_holds_up_no_other",
    ),
    Mutant(
        "a run that is left counts also when a start is refused", "wait.py",
        "self.reason = self.reason or self._late", "pass",
        "integration/test_waits_end.py::test_leaving_a_run_while_a_start_is_refused_starts_nothing_later",
    ),
    Mutant(
        "the name is told to the one connection that asks", "inbox/doorway.py",
        "(_read_end(columns[1]), _read_end(columns[2])) == ends",
        "(_read_end(columns[1])[1], _read_end(columns[2])[1]) == (ends[0][1], ends[1][1])",
        "integration/test_doorway.py::test_who_is_at_the_other_end_is_known_by_the_system",
    ),
    Mutant(
        "a row that was altered holds up no sweep", "stores/base.py",
        'with outbox.leaving_altered("settled"):', "if True:",
        _ALTERED + "test_a_row_that_was_altered_holds_up_no_other",
    ),
    Mutant(
        "what happened since somebody was shut out is not sent", "inbox/api/relay.py",
        "        for seen in {one.seen for one in asked}:\n"
        "            pieces.look(seen)\n"
        "        # After the look: what happened once somebody was shut out is never sent to them.\n"
        "        doors = {door: _is_open(one) for door, one in {one.door: one for one in asked}.items()}\n",
        "        doors = {door: _is_open(one) for door, one in {one.door: one for one in asked}.items()}\n"
        "        for seen in {one.seen for one in asked}:\n"
        "            pieces.look(seen)\n",
        "integration/test_api_events.py::test_what_happens_while_a_token_is_revoked_is_not_told",
    ),
    Mutant(
        "a start looks at the journal", "stores/base.py", "            if not tx.stands(request):\n                return altered(request_id, is_start", "            if False:\n                return altered(request_id, is_start",
        _ALTERED + "test_a_spent_approval_is_not_made_new_by_hand",
    ),
    Mutant(
        "no verb changes a row that was altered", "stores/sqlite_transaction.py",
        "if not self.stands(was):", "if False:",
        _ALTERED + "test_a_row_that_was_rewritten_is_not_decided_and_shows",
    ),
    Mutant(
        "no verb changes a line that was altered", "stores/jsonl.py",
        "if not self.stands(before):", "if False:",
        _ALTERED + "test_a_line_that_changes_a_request_without_a_row_is_not_run",
    ),
    Mutant(
        "a later line is held to the journal anew", "stores/jsonl.py",
        "            self._borne_out.discard(entry[3])", "            pass",
        _ALTERED + "test_a_line_that_changes_a_request_without_a_row_is_not_run",
    ),
    Mutant(
        "a changed row is held to the journal anew", "stores/jsonl.py",
        "        self._borne_out.discard(row.id)", "",
        _ALTERED + "test_a_line_that_changes_a_request_without_a_row_is_not_run",
    ),
    Mutant(
        "a row is as its newest row left it", "stores/codec.py",
        "return stands_in(newest[1]) == _tied(stands_digest, row, seal)", "return True",
        _ALTERED + "test_a_row_that_was_rewritten_is_not_decided_and_shows",
    ),
    Mutant(
        "what never changes is compared as well", "stores/codec.py",
        "opened = [asked_digest(values[:_ASKED_END], seal) if asked is None else asked, ", "opened = [values[0], ",
        _COLUMNS + "test_nothing_runs_by_a_record_of_which_anything_was_altered",
    ),
    Mutant(
        "what ends a call is compared with the journal", "stores/base.py",
        "            if not tx.stands(request):\n                raise altered(request_id)\n", "",
        _ALTERED + "test_a_result_or_an_answer_that_was_altered_is_not_taken",
    ),
    Mutant(
        "an answer is compared with the journal", "questions.py",
        "        request = yield Verb(store.blocks, store.settle, request.id)\n        text", "        text",
        _COLUMNS + "test_an_answer_that_was_altered_is_not_given_to_the_program",
    ),
    Mutant(
        "a sealed text has one spelling", "stores/codec.py", ", validate=True)\n            return", ")\n            return",
        _COLUMNS + "test_nothing_runs_by_a_record_of_which_anything_was_altered",
    ),
    Mutant(
        "damaged bytes in a message are a damaged file", "stores/sqlite.py",
        "(sqlite3.Error, UnicodeDecodeError)", "(sqlite3.Error,)",
        "integration/test_damaged_files.py::test_damaged_schema_is_not_told_by_a_raw_error",
    ),
    Mutant(
        "what a person reads of the parameters is compared", "stores/codec.py",
        "    if text_key(text) != key:", "    if False:",
        _COLUMNS + "test_nothing_runs_by_a_record_of_which_anything_was_altered",
    ),
    Mutant(
        "a row of before is not the newest", "stores/codec.py",
        "if newest is None or newest[0] != row.link:", "if newest is None:",
        _ALTERED + "test_a_row_of_before_that_is_put_back_is_not_run",
    ),
    Mutant(
        "what another process wrote is read anew", "stores/sqlite_transaction.py",
        "        if self._is_fresh:\n            return False\n        raise Stale\n\n    def _the_loaded",
        "        return False\n\n    def _the_loaded",
        _ALTERED + "test_what_another_process_wrote_is_not_taken_for_altered",
    ),
    Mutant(
        "what became of a request is compared", "audit/walk.py",
        "if anchor.stands is not None and anchor.stands != trail.said.stands:", "if False:",
        _ALTERED + "test_an_answer_that_was_turned_around_shows",
    ),
    Mutant(
        "a step comes from where it may", "model/journal.py",
        "if before is not None and not before & self.states:", "if False:",
        _ALTERED + "test_a_step_that_cannot_follow_shows",
    ),
    Mutant(
        "what started is what was approved", "model/journal.py",
        'if event == "started" and _text(read, "fingerprint") != self.approved:', "if False:",
        _ALTERED + "test_a_start_of_another_call_than_the_approved_one_shows",
    ),
    Mutant(
        "a receipt is made of what agrees with its rows", "audit/receipt.py",
        "    must_agree(store, store.get(request_id))\n", "",
        _ALTERED + "test_a_receipt_is_not_made_of_what_the_rows_do_not_say",
    ),
    Mutant(
        "an outermost call is handed back with its request", "runs/step.py",
        "is_back = frame.is_outermost and met == request_id", "is_back = False",
        _ALONE + "test_an_outermost_call_is_handed_back_with_its_request_and_with_its_end",
    ),
    Mutant(
        "who is not in hand any more starts nothing", "runs/step.py",
        'return answer._replace(kind="held") if frame.journal.is_back else answer', "return answer",
        _ALONE + "test_a_call_that_is_approved_before_its_asking_returns_is_left_to_who_takes_the_run",
    ),
    Mutant(
        "an end that was refused is not saved", "gates/execute.py",
        "if is_kept and kept is not None:", "if kept is not None:",
        _ALONE + "test_an_end_that_was_refused_is_not_taken_for_saved",
    ),
    Mutant(
        "a run stays in hand where another request holds", "stores/base.py",
        "save(tx, saved if met is None else saved._replace(left=None))", "save(tx, saved)",
        "contract/test_stores.py::TestSqlite::test_a_run_stays_in_hand_where_another_request_holds_its_call",
    ),
    Mutant(
        "what is sent again is not done again", "stores/base.py",
        "if held is not None and held.id == request.id:", "if False:",
        "contract/test_stores.py::TestMemory::test_a_run_is_handed_back_with_the_request_for_which_it_waits",
    ),
    Mutant(
        "a step that ended is not done again", "runs/step.py",
        "            return _once_more(frame, known)", "            pass",
        _KINDS + "test_free_calls_of_a_turn_run_at_once_and_only_once",
    ),
    Mutant(
        "a request of another run is not taken", "runs/proof.py",
        "request.run_id != frame.journal.run_id or request.place != place:", "request.place != place:",
        _LIES + "test_a_run_does_not_take_up_the_request_of_another",
    ),
    Mutant(
        "a request of another place is not taken", "runs/proof.py",
        " or request.place != place:", ":",
        _LIES + "test_two_places_of_a_run_cannot_swap_their_requests",
    ),
    Mutant(
        "an answer of another run is none", "runs/interaction.py",
        "        must_be_of(request, frame, place)", "        pass",
        _LIES + "test_a_question_of_another_run_gives_no_answer",
    ),
    Mutant(
        "what a run says of a gated call its request bears out", "runs/step.py",
        "known = await adrive(borne_out(frame, known))", "pass",
        _LIES + "test_a_run_that_claims_to_have_ended_is_not_believed",
    ),
    Mutant(
        "a gated call without a request was not made", "runs/proof.py",
        "if runnable.gate.when is True:", "if False:",
        _LIES + "test_a_claimed_call_without_any_request_is_refused",
    ),
    Mutant(
        "a call inside of a handler is borne out, too", "runs/inner.py",
        "if self._gate.when is True and journal.is_hearsay(place)", "if False and journal.is_hearsay(place)",
        _LIES + "test_a_forged_call_inside_of_a_handler_is_not_believed",
    ),
    Mutant(
        "a call inside of a handler is not made again", "runs/inner.py",
        "self.known = self._recalled(digest)", "self.known = None",
        _ASKED + "test_equal_gated_calls_inside_of_a_handler_wait_one_by_one",
    ),
    Mutant(
        "two equal calls inside of a handler are two", "runs/inner.py",
        "{digest}.{self._seen[digest]}", "{digest}.1",
        _ASKED + "test_equal_gated_calls_inside_of_a_handler_wait_one_by_one",
    ),
    Mutant(
        "a call that was made after its run was left is known", "runs/inner.py",
        "if len(made) > noted else None", "if False else None",
        _LIES + "test_a_run_that_is_cancelled_at_any_step_goes_on_and_does_nothing_twice",
    ),
    Mutant(
        "a handler whose run was handed back calls nothing", "runs/inner.py",
        "if self._frame.journal.is_left:", "if False:",
        _LIES + "test_a_task_that_a_handler_left_behind_makes_no_call_for_the_run",
    ),
    Mutant(
        "a run that nobody listens to begins nothing", "runs/frame.py",
        "if self.journal.is_stopping:", "if False:",
        "integration/test_worker.py::test_a_handler_that_ends_within_the_grace_is_recorded_and_nothing_new_begins",
    ),
    Mutant(
        "who could not hand a run back does not keep it", "runs/journal.py",
        "            self._lease.release()", "            pass",
        _ALONE + "test_a_run_that_could_not_be_handed_back_is_in_nobodys_hand",
    ),
    Mutant(
        "a run whose program lives elsewhere is not free", "stores/worker.py",
        "else is_gone(process)", "else True",
        "unit/test_lease.py::test_a_lease_of_another_process_is_free_when_that_has_surely_ended",
    ),
    Mutant(
        "a decision of another run is ignored", "runs/decide.py",
        "if request.run_id == journal.run_id and journal.is_kept:", "if journal.is_kept:",
        _SAID + "test_a_decision_of_one_run_never_counts_in_another",
    ),
    Mutant(
        "a decision under the name of no run is ignored", "runs/decide.py",
        "request.run_id == journal.run_id and journal.is_kept:", "request.run_id == journal.run_id:",
        _ALONE + "test_a_decision_for_a_run_that_nobody_began_decides_nothing",
    ),
    Mutant(
        "a late decision is told of in the stored run", "runs/decide.py",
        'if note is not None and "expired" in note:', "if False:",
        "integration/test_runs_shapes.py::test_a_decision_that_came_too_late_is_told_the_same_everywhere",
    ),
    Mutant(
        "a run that nobody begins says so", "runs/run.py",
        'if not getattr(self, "is_begun", True):', "if False:",
        "integration/test_runs_calls.py::test_a_run_that_is_thrown_away_before_it_began_warns_at_its_line",
    ),
    Mutant(
        "a default that needs arguments is refused", "runs/runnable.py",
        "declared.check_defaults(name, self.default_params)", "pass",
        _SAID + "test_default_params_that_need_arguments_are_refused_at_the_construction",
    ),
    Mutant(
        "a decision for one input does not answer another", "runs/leg.py",
        "return None if calls is None else f\"of {calls[0]}\"", "return None",
        _INPUTS + "test_a_decision_for_one_input_does_not_run_it_for_another",
    ),
    Mutant(
        "nor for another runnable", "runs/leg.py",
        "if (kept.run.name, kept.run.kind) != (runnable.name, runnable.kind):", "if False:",
        _INPUTS + "test_a_decision_of_another_runnable_of_the_same_name_is_not_taken",
    ),
    Mutant(
        "a run's name stands for one input", "runs/leg.py",
        "if calls is not None and run.parent_id is None:", "if False:",
        _INPUTS + "test_a_runs_name_with_other_input_is_refused_and_runs_nothing",
    ),
    Mutant(
        "a name with other input leaves the run as it was", "runs/leg.py",
        'case "run_changed" | "input_changed":', 'case "run_changed":',
        _INPUTS + "test_a_runs_name_with_other_input_is_refused_and_runs_nothing",
    ),
    Mutant(
        "what is merely true is no approval", "runs/resolution.py",
        "if isinstance(self.given, bool):\n            return ApprovalResolution(approved=self.given)",
        "if not isinstance(self.given, dict):\n            return ApprovalResolution(approved=bool(self.given))",
        _SAID + "test_what_is_no_decision_decides_nothing",
    ),
    Mutant(
        "nor in a resolution", "runs/resolution.py",
        "approved: StrictBool", "approved: bool",
        _LIES + "test_a_resolution_is_true_or_false",
    ),
    Mutant(
        "a misspelt change is no approval without it", "runs/resolution.py",
        'extra="forbid"', 'extra="ignore"',
        _LIES + "test_a_decision_with_a_misspelt_field_decides_nothing",
    ),
    Mutant(
        "a yes and a no to one call decide nothing", "runs/resolution.py",
        "if request_id in found and found[request_id].given != value:", "if False:",
        "integration/test_runs_new_user.py::test_a_yes_and_a_no_to_one_request_in_one_call_decide_nothing",
    ),
    Mutant(
        "a rule's answer is true or false, too", "runs/resolution.py",
        "required: StrictBool", "required: bool",
        _LIES + "test_a_resolution_is_true_or_false",
    ),
    Mutant(
        "a decision whose time is over does not count", "runs/decide.py",
        "if said.is_expired():", "if False:",
        _ALONE + "test_a_yes_or_no_whose_time_is_over_leaves_the_same_request_waiting",
    ),
    Mutant(
        "nor one whose time is over before the start", "runs/step.py",
        "return until is not None and now_ms() >= until", "return False",
        _ENDS + "test_a_decision_that_ends_before_the_call_starts_does_not_count",
    ),
    Mutant(
        "of several words the first that ends ends the approval", "runs/decide.py",
        "min(ends, default=None)", "max(ends, default=None)",
        _ALONE + "test_of_several_approvals_with_an_end_the_earliest_end_counts",
    ),
    Mutant(
        "an approval's end is saved before the approval", "runs/decide.py",
        "journal.save_now()", "pass",
        _ALONE + "test_a_process_killed_right_after_an_approval_leaves_its_end_in_force",
    ),
    Mutant(
        "an approval that was not given ends no later one", "runs/decide.py",
        'if "expires_at" in known and not self._store.get(request.id).votes:', "if False:",
        _ALONE + "test_a_process_killed_right_before_an_approval_shortens_no_later_one",
    ),
    Mutant(
        "nor does one that was refused", "runs/decide.py",
        "journal.put(place, before)", "pass",
        _ALONE + "test_the_end_of_a_refused_approval_ends_no_other",
    ),
    Mutant(
        "a no is recorded whoever has the run", "runs/leg.py",
        "await decider.refuse(run_id)", "pass",
        _SAID + "test_a_no_is_recorded_while_another_worker_has_the_run",
    ),
    Mutant(
        "a yes is not taken for a no", "runs/decide.py",
        "if no is None or (isinstance(no, ApprovalResolution) and no.approved):", "if no is None:",
        _SAID + "test_what_is_no_no_decides_nothing_while_another_worker_has_the_run",
    ),
    Mutant(
        "a no that came too late is told", "runs/leg.py",
        "if claimed and refusals:", "if False:",
        _SAID + "test_a_no_that_comes_too_late_is_told_while_another_worker_has_the_run",
    ),
    Mutant(
        "who was not first is told so", "runs/decide.py",
        "if is_whole and mine and all(", "if False and all(",
        "acceptance/test_seed_002.py::test_a_second_worker_is_told_so",
    ),
    Mutant(
        "after a crash a decision goes on with the run", "runs/decide.py",
        "is_whole = journal.was is not RunState.BROKEN", "is_whole = True",
        _SAID + "test_a_decision_brought_again_after_a_crash_goes_on_with_the_run",
    ),
    Mutant(
        "a cancelled request ends the whole run", "runs/decide.py",
        "if request.state is State.CANCELLED and request.holds:", "if False:",
        _ENDS + "test_cancelling_ends_the_whole_run_and_runs_nothing_more",
    ),
    Mutant(
        "changed code does not go on with a run", "runs/leg.py",
        "    if problems:\n", "    if False:\n",
        "integration/test_worker.py::test_a_run_whose_code_has_changed_is_reported_once_and_not_begun",
    ),
    Mutant(
        "the wrong code leaves a run as it was", "runs/leg.py",
        "return frame.journal.was", "return RunState.ENDED",
        _SAID + "test_a_run_that_the_wrong_code_looked_at_waits_as_before",
    ),
    Mutant(
        "who goes on with a run acts for its person", "runs/leg.py",
        "for person in _acts_for(journal):", "for person in ():",
        "integration/test_worker.py::test_whom_a_run_acts_for_is_barred_from_what_it_asks_later",
    ),
    Mutant(
        "no model is told to get around a rule that failed", "runs/step.py",
        'reason="approval_policy_error", message=str(error))\n        raise Halt(status, error) from error',
        'reason="approval_policy_error", message=str(error))\n        raise Failed("", str(error), error) from error',
        _RULES + "test_a_policy_error_of_one_tool_ends_the_agents_run",
    ),
    Mutant(
        "no model is told of a call whose end is unknown", "runs/step.py",
        'raise Halt(RunStatus(code="error", reason="outcome_unknown", message=str(error)), error) from error',
        'raise Failed("OutcomeUnknownError", str(error), error) from error',
        _BROKEN_OFF + "test_a_gated_handler_that_is_cancelled_inside_is_unknown",
    ),
    Mutant(
        "a run goes on when an unknown outcome is settled", "runs/leg.py",
        ' | "outcome_unknown":', ":",
        "integration/test_worker.py::test_an_unknown_outcome_is_told_and_never_tried_again",
    ),
    Mutant(
        "a handler that stopped to ask has not ended", "gates/execute.py",
        'return Outcome("suspended")', 'return Outcome("done")',
        _ASKED + "test_a_handler_asks_and_goes_on_with_the_answer",
    ),
    Mutant(
        "an answer fits what was asked for", "runs/interaction.py",
        "Schema.of_type(str) if asks.schema is None else Schema.of_json_answer(asks.schema)", "Schema.of_type(object)",
        _ASKED + "test_a_handler_asks_and_goes_on_with_the_answer",
    ),
    Mutant(
        "only a handler asks", "runs/interaction.py",
        "if not frame.is_running:", "if False:",
        _LIES + "test_only_handlers_ask_persons",
    ),
    Mutant(
        "what was lost is not handed on as text", "runs/step.py",
        "return lost if frame.parent is not None and frame.parent.runnable.needs_values else lost.plain",
        "return lost.plain",
        "integration/test_runs_values.py::test_value_that_could_not_be_kept_is_told_to_be_lost_and_not_handed_on_as_text",
    ),
    Mutant(
        "who was cancelled while taking a run does not keep it", "runs/leg.py",
        "        lease.release()\n        raise\n", "        raise\n",
        _LIES + "test_a_run_that_was_taken_while_its_taker_was_cancelled_is_in_nobodys_hand",
    ),
    # -- lines of JSON ----------------------------------------------------------------------------------------------
    Mutant(
        "who writes is alone", "stores/jsonl_file.py",
        "fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)", "pass",
        _JSONL + "test_who_reads_does_not_wait_for_who_writes_and_a_writer_is_told",
    ),
    Mutant(
        "a lock that was removed is none", "stores/jsonl_file.py",
        "if _is_there(self._lock_fd, self._lock_path):", "if True:",
        _JSONL + "test_a_lock_that_was_removed_keeps_nobody_apart_and_is_made_anew",
    ),
    Mutant(
        "a forked child lets its parent's lock go", "stores/jsonl.py",
        "        self._file.close_all()\n        self._begin_process()", "        self._begin_process()",
        _JSONL + "test_a_forked_child_does_not_take_its_parents_lock_along",
    ),
    Mutant(
        "a line is on the disk before the verb returns", "stores/jsonl_file.py",
        "            _sync(fd)\n", "",
        _JSONL + "test_what_could_not_be_written_was_not",
    ),
    Mutant(
        "what could not be written is taken back", "stores/jsonl_file.py",
        "            with suppress(OSError):\n                os.ftruncate(fd, self._offset)\n            raise", "            raise",
        _JSONL + "test_what_could_not_be_written_was_not",
    ),
    Mutant(
        "what a crash left is cut off", "stores/jsonl_file.py",
        "os.ftruncate(fd, self._offset)\n                self._remnant = 0", "self._remnant = 0",
        _JSONL + "test_a_last_line_whose_beginning_was_lost_is_torn_as_well",
    ),
    Mutant(
        "a line that was altered is refused", "stores/jsonl_file.py",
        "if tail != _tail(link):", "if False:",
        _JSONL + "test_a_line_that_was_changed_moved_or_removed_is_refused_by_its_number",
    ),
    Mutant(
        "a link covers the line before", "stores/jsonl_file.py",
        'hashlib.sha256(before.encode("ascii") + body)', "hashlib.sha256(body)",
        _JSONL + "test_a_line_that_was_changed_moved_or_removed_is_refused_by_its_number",
    ),
    Mutant(
        "another program's file is left alone", "stores/jsonl_file.py",
        'if self.number == 0 and not _FIRST.startswith(text.rstrip(b"\\0")):', "if False:",
        _JSONL + "test_a_file_that_is_not_ours_is_refused_and_left_as_it_was",
    ),
    Mutant(
        "a newer format is refused", "stores/jsonl_file.py",
        "if version != _VERSION:", "if False:",
        _JSONL + "test_a_newer_line_is_refused_and_left_as_it_was",
    ),
    Mutant(
        "a file that was replaced is read anew", "stores/jsonl_file.py",
        "return self._fd is not None and not _is_there(self._fd, self._path, self._offset)", "return False",
        _JSONL + "test_a_file_that_was_replaced_or_removed_is_read_anew",
    ),
    Mutant(
        "a sealed step is bound to its place in lines, too", "stores/jsonl.py",
        'return f"step/{n}/{place}"', 'return "step"',
        _JSONL + "test_a_sealed_step_can_be_moved_nowhere_even_where_the_links_are_made_anew",
    ),
    # -- ReAct: what a saved pause may and may not do -----------------------------------------------------------------
    Mutant(
        "a pause that names another run uses nothing of it", "runs/react.py",
        "if request.run_id != course.run_id and self._is_own(waiting, request):", "if False:",
        _STATES + "test_state_with_another_run_uses_no_approval_of_that_run",
    ),
    Mutant(
        "a response counts for what was shown alone", "runs/react.py",
        "            check_shown(signal, request)\n", "",
        _STATES + "test_response_to_something_else_than_what_waits_decides_nothing",
    ),
    Mutant(
        "a run that goes on elsewhere acts for the same persons", "runs/react.py",
        "course.acts_for = request.acts_for", "course.acts_for = ()",
        _STATES + "test_person_for_whom_it_acts_is_barred_in_every_process",
    ),
    Mutant(
        "an answer beside a call that waits is not taken", "runs/react.py",
        "        if course.waiting:\n            why", "        if False:\n            why",
        _REACT + "test_finish_beside_a_call_that_waits_is_not_taken",
    ),
    Mutant(
        "an equal call of the same turn is asked for itself", "runs/react.py",
        "if not waiting.is_asked:", "if False:",
        _REACT + "test_two_identical_calls_in_one_turn_wait_twice",
    ),
    Mutant(
        "no model is told how to get around a fault of the gate", "runs/react.py",
        "        except errors.SaysoError:\n            raise  # not run", "        except ZeroDivisionError:\n            raise  # not run",
        _REACT + "test_rule_that_fails_ends_the_run_and_no_model_is_told_how_to_get_around_it",
    ),
    Mutant(
        "an approval of a nested call is not spent on the tool", "runs/react.py",
        "if not self._is_own(waiting, request):", "if False:",
        _STATES + "test_function_inside_of_a_tool_is_asked_for_and_then_found_again",
    ),
    Mutant(
        "labels that tell calls apart are made where the provider's do not", "runs/course.py",
        'if "" in ids or len(ids) < len(', 'if False and len(ids) < len(',
        _REACT + "test_calls_without_labels_of_their_own_are_told_apart",
    ),
    Mutant(
        "a context in which nothing waits is refused", "runs/course.py",
        "is_whole = bool(waiting) and course.turns > 0", "is_whole = True",
        _STATES + "test_what_react_did_not_save_is_refused",
    ),
    Mutant(
        "inputs are masked in a context", "runs/course.py",
        "inputs, messages = self._clean(_masked(self.inputs)), self._messages()", "inputs, messages = self.inputs, self._messages()",
        _STATES + "test_no_secret_stands_in_what_is_saved_and_the_call_gets_the_real_ones",
    ),
    # -- who may come in --------------------------------------------------------------------------------------------
    Mutant(
        "a login link is signed", "inbox/stamp.py",
        "if not hmac.compare_digest(self._mac(purpose, signed).encode(), mac.encode()):", "if False:",
        _LINKS + "test_another_servers_links_open_nothing",
    ),
    Mutant(
        "the whole signature is compared, as text", "inbox/stamp.py",
        "hmac.compare_digest(self._mac(purpose, signed).encode(), mac.encode())",
        "hmac.compare_digest(self._mac(purpose, signed.lower())[:32], mac.lower()[:32])",
        _LINKS + "test_every_flipped_bit_of_a_link_opens_nothing",
    ),
    Mutant(
        "a text that was signed for one thing is none for another", "inbox/stamp.py",
        'f"sayso {purpose} 1"', '"sayso 1"',
        _LINKS + "test_a_text_that_was_signed_for_something_else_is_no_link",
    ),
    Mutant(
        "a login link ends", "inbox/stamp.py",
        'return None if clock.now() >= _end(body) else body', "return body",
        _LINKS + "test_a_link_ends_after_its_time_and_what_was_used_is_forgotten_later",
    ),
    Mutant(
        "a login link is used once", "inbox/link.py",
        " or not self._stamps.spend(body)", "",
        _LINKS + "test_a_link_is_used_once_whichever_server_it_is_brought_to",
    ),
    Mutant(
        "of those who use a link at once, one comes in", "inbox/stamp.py",
        "only_new=True", "only_new=False",
        _LINKS + "test_of_fifty_who_use_a_link_at_once_one_comes_in",
    ),
    Mutant(
        "a used link is remembered longer than it lasts", "inbox/stamp.py",
        "due=_end(body) + _KEPT", "due=clock.now()",
        _LINKS + "test_a_link_is_used_once_whichever_server_it_is_brought_to",
    ),
    Mutant(
        "a secret that others can read is not used", "inbox/secret.py",
        " or stat.S_IMODE(found.st_mode) & 0o077", "",
        _LINKS + "test_a_secret_that_others_can_reach_is_not_used",
    ),
    Mutant(
        "of several who make the secret, the first one's counts", "inbox/secret.py",
        "os.link(draft, path)", "os.replace(draft, path); draft.touch()",
        _LINKS + "test_of_many_who_make_the_secret_at_once_all_have_the_same",
    ),
    Mutant(
        "a session that begins ends the one before", "inbox/login.py",
        "        settings.sessions.end(before)\n", "        pass\n",
        _LINKS + "test_a_session_begins_with_an_id_of_its_own_and_ends_the_one_before",
    ),
    Mutant(
        "a sign-in comes from a page of ours", "inbox/login.py",
        "    if not is_ours(http):\n", "    if False:\n",
        _LINKS + "test_a_link_of_an_attacker_is_not_used_by_a_page_elsewhere",
    ),
    Mutant(
        "who may not review gets no session", "inbox/login.py",
        "if not settings.sign_in.admits(person):", "if False:",
        _LINKS + "test_who_may_not_review_has_no_session_by_a_link_either",
    ),
    Mutant(
        "who may not review has none by a proxy either", "inbox/visit.py",
        "if not settings.sign_in.admits(person):", "if False:",
        _PROXY + "test_somebody_whom_the_proxy_knows_and_who_may_not_review_is_told_so",
    ),
    Mutant(
        "login links are refused where they are no way", "inbox/login.py",
        "if not settings.sign_in.has_links:", "if False:",
        _OPENID + "test_login_links_are_refused_where_they_are_not_a_way",
    ),
    Mutant(
        "failed attempts are held up", "inbox/sign_in.py",
        "return 0 if len(failed) < _MOST else", "return 0 if True else",
        _LINKS + "test_failed_attempts_are_held_up_and_a_good_link_is_not",
    ),
    Mutant(
        "a proxy's header counts from its addresses", "inbox/proxy.py",
        "if self.header is None or not self.is_peer(http):", "if self.header is None:",
        _PROXY + "test_the_header_of_anybody_else_signs_nobody_in",
    ),
    Mutant(
        "a proxy's header stands there once", "inbox/proxy.py",
        "if len(names) > 1 or len(roles) > 1:", "if False:",
        _PROXY + "test_a_header_that_is_not_one_plain_name_signs_nobody_in",
    ),
    Mutant(
        "where a request came from is the proxy's word only", "inbox/proxy.py",
        'told = http.headers.getlist("x-forwarded-for") if self.is_peer(http) else []',
        'told = http.headers.getlist("x-forwarded-for")',
        _PROXY + "test_where_an_attempt_came_from_is_the_proxys_word_only",
    ),
    Mutant(
        "a proxy is not everywhere", "inbox/proxy.py",
        "if any(network.prefixlen == 0 for network in found):", "if False:",
        _LISTENS + "test_what_cannot_be_used_is_told_before_anything_listens",
    ),
    Mutant(
        "it does not listen where it cannot know who decides", "cli/listen.py",
        "        if not is_known:\n", "        if False:\n",
        _LISTENS + "test_it_refuses_to_listen_where_it_cannot_know_who_decides",
    ),
    Mutant(
        "an address elsewhere opens it as well", "cli/listen.py",
        " or (self.base_url is not None and urlsplit(self.base_url).hostname not in _LOOPBACK_NAMES)", "",
        _LISTENS + "test_an_address_elsewhere_opens_it_as_listening_elsewhere_does",
    ),
    Mutant(
        "plain http to others is refused", "cli/listen.py",
        'if not self.base_url.startswith("https:") and not is_insecure:', "if False:",
        _LISTENS + "test_plain_http_to_others_is_refused_unless_it_is_asked_for_by_name",
    ),
    Mutant(
        "an OpenID token is signed by a key pair of the provider", "inbox/oidc.py",
        'registry = self._jws.JWSRegistry(algorithms=_SIGNATURES, strict_check_header=False)\n        try:\n            return',
        'registry = self._jws.JWSRegistry(algorithms=[*_SIGNATURES, "none"], strict_check_header=False)\n        try:\n            return',
        _OPENID + "test_a_token_that_the_provider_did_not_sign_signs_nobody_in",
    ),
    Mutant(
        "an OpenID token is for us alone", "inbox/oidc.py",
        'if claims.get("aud") not in (self.oidc.client_id, [self.oidc.client_id]):', "if False:",
        _OPENID + "test_a_token_that_is_not_for_this_sign_in_signs_nobody_in",
    ),
    Mutant(
        "an OpenID token is the issuer's", "inbox/oidc.py",
        '{"essential": True, "value": self.oidc.issuer}', "{}",
        _OPENID + "test_a_token_that_is_not_for_this_sign_in_signs_nobody_in",
    ),
    Mutant(
        "the claims of an OpenID token are validated", "inbox/oidc.py",
        "            claims.validate(now=int(clock.now().timestamp()), leeway=_LEEWAY)\n", "",
        _OPENID + "test_a_token_that_is_not_for_this_sign_in_signs_nobody_in",
    ),
    Mutant(
        "a provider calls itself as it was set", "inbox/oidc.py",
        'if found.get("issuer") != self.oidc.issuer:', "if False:",
        _OPENID + "test_a_provider_that_publishes_something_else_signs_nobody_in",
    ),
    Mutant(
        "an answer comes from the provider that was asked", "inbox/oidc.py",
        "if (is_told or sender is not None) and sender != self.oidc.issuer:", "if False:",
        _OPENID + "test_an_answer_of_another_provider_is_not_taken",
    ),
    Mutant(
        "a provider cannot be called as others are", "inbox/oidc.py",
        'if self.name.casefold() in _RESERVED or self.name.casefold().startswith("hook-"):', "if False:",
        _OPENID + "test_a_provider_that_could_be_mistaken_is_refused",
    ),
    Mutant(
        "a provider is reached by https", "inbox/oidc.py",
        "if not _is_safe(found.get(name)):", "if False:",
        _OPENID + "test_a_provider_that_publishes_something_else_signs_nobody_in",
    ),
    Mutant(
        "an answer counts in the browser that set out", "inbox/trip.py",
        ' or not hmac.compare_digest(trip["state"].encode(), state.encode())', "",
        _OPENID + "test_an_answer_counts_in_the_browser_that_set_out",
    ),
    Mutant(
        "an answer counts once", "inbox/trip.py",
        "return trip if settings.stamps.spend(trip) else None", "return trip",
        _OPENID + "test_an_answer_counts_once",
    ),
    Mutant(
        "a person goes on to a page of ours", "inbox/visit.py",
        'return wanted if is_plain and wanted.startswith(home) and not wanted.startswith("//") else home',
        "return wanted or home",
        _OPENID + "test_a_person_goes_on_to_a_page_of_ours_only",
    ),
    Mutant(
        "a page to go on to is written plainly", "inbox/visit.py",
        "return wanted if is_plain and", "return wanted if",
        _OPENID + "test_a_person_goes_on_to_a_page_of_ours_only",
    ),
    # -- messages that leave, and decisions that come in ------------------------------------------------------------
    Mutant(
        "a webhook's signature fits", "channels/webhook_key.py",
        "return any([hmac.compare_digest(one, other) for one in given for other in right])  # noqa: C419", "return True",
        _KEY + "test_every_flipped_bit_of_20_messages_is_refused",
    ),
    Mutant(
        "a webhook is signed within five minutes", "channels/webhook_key.py",
        "if abs(clock.instant(int(seconds) * 1_000_000) - now) > WINDOW:", "if False:",
        _KEY + "test_the_window_is_five_minutes_both_ways",
    ),
    Mutant(
        "a webhook's id cannot run into its instant", "channels/webhook_key.py",
        "if _IDS.fullmatch(message_id) is None or _INSTANTS.fullmatch(seconds) is None:",
        "if _INSTANTS.fullmatch(seconds) is None:",
        _KEY + "test_an_odd_id_is_refused",
    ),
    Mutant(
        "a webhook's instant has one spelling", "channels/webhook_key.py",
        "if _IDS.fullmatch(message_id) is None or _INSTANTS.fullmatch(seconds) is None:",
        "if _IDS.fullmatch(message_id) is None or not seconds.strip(' +').isdigit():",
        _KEY + "test_an_odd_instant_is_refused",
    ),
    Mutant(
        "a webhook's secret is long", "channels/webhook_key.py",
        " or not _SHORTEST <= len(key) <= _LONGEST:", ":",
        _KEY + "test_what_is_no_secret_is_refused_and_not_quoted",
    ),
    Mutant(
        "an address that is written is public", "channels/outbound_address.py",
        "if not _is_allowed(literal, allow_private=self.allow_private):", "if False:",
        _ADDRESS + "test_forbidden_addresses_and_odd_spellings_get_no_connection",
    ),
    Mutant(
        "an address that is resolved is public", "channels/outbound_address.py",
        "if known is None or not _is_allowed(known, allow_private=self.allow_private):", "if known is None:",
        _ADDRESS + "test_a_name_that_leads_to_a_forbidden_address_gets_no_connection",
    ),
    Mutant(
        "an address in an odd spelling is no name", "channels/outbound_address.py",
        "if _NUMBER.fullmatch(last) is not None:", "if False:",
        _ADDRESS + "test_forbidden_addresses_and_odd_spellings_get_no_connection",
    ),
    Mutant(
        "an IPv6 address that stands for another one is refused", "channels/outbound_address.py",
        "isinstance(address, ipaddress.IPv6Address) and address not in _GLOBAL_6", "False",
        _ADDRESS + "test_forbidden_addresses_and_odd_spellings_get_no_connection",
    ),
    Mutant(
        "a metadata address is never meant", "channels/outbound_address.py",
        "if address in _NEVER:", "if False:",
        _ADDRESS + "test_metadata_and_odd_spellings_are_refused_even_then",
    ),
    Mutant(
        "a webhook goes by http alone, and by https where it leaves", "channels/outbound_address.py",
        'if parts.scheme != "https" and not (parts.scheme == "http" and allow_private):', "if False:",
        _ADDRESS + "test_other_schemes_are_refused_even_then",
    ),
    Mutant(
        "a webhook's address names no user", "channels/outbound_address.py",
        'if "@" in parts.netloc or "#" in url', 'if "#" in url',
        _ADDRESS + "test_forbidden_addresses_and_odd_spellings_get_no_connection",
    ),
    Mutant(
        "a webhook goes to ports of the web", "channels/outbound_address.py",
        "if port == 0 or not (allow_private or port in _PORTS or port in ports):", "if port == 0:",
        _ADDRESS + "test_forbidden_addresses_and_odd_spellings_get_no_connection",
    ),
    Mutant(
        "a connection goes to the address that was looked at", "channels/post.py",
        "return socket.create_connection((last, self._where.port), self._left())",
        "return socket.create_connection((self._where.host, self._where.port), self._left())",
        _OUT + "test_https_is_by_name_at_the_address_that_was_resolved",
    ),
    Mutant(
        "a receiver that drips is cut off", "channels/post.py",
        "self._timer.start()", "pass",
        _OUT + "test_a_receiver_that_drips_is_cut_off_at_the_deadline",
    ),
    Mutant(
        "what is gone is not tried again", "channels/webhook.py",
        "if status == _GONE:", "if False:",
        _OUT + "test_gone_is_gone_for_good",
    ),
    Mutant(
        "only 2xx is delivered", "channels/webhook.py",
        "if not 200 <= status < 300:", "if status >= 400:",
        _OUT + "test_everything_else_is_tried_again_later_and_no_redirect_is_followed",
    ),
    Mutant(
        "a misspelt setting of a channel is refused", "channels/setting.py",
        "if unknown:", "if False:",
        _OUT + "test_a_wrong_setting_is_refused_and_no_secret_is_quoted",
    ),
    Mutant(
        "a decision by webhook is signed", "inbox/hook.py",
        "if hook.keys.has_signed(message_id, seconds, said, body, now=now):", "if True:",
        _IN + "test_every_flipped_bit_of_20_messages_decides_nothing",
    ),
    Mutant(
        "a header of a signature stands there once", "inbox/hook.py",
        "if len(said) == 1}", "if said}",
        _IN + "test_a_header_that_is_missing_or_there_twice_decides_nothing",
    ),
    Mutant(
        "a repeated message is answered as before", "inbox/hook.py",
        "if known is not None:", "if False:",
        _IN + "test_a_refusal_stays_one_when_it_is_repeated",
    ),
    Mutant(
        "a repeated message waits for the first", "inbox/hook.py",
        "with self._one_by_one:", "with threading.Lock():",
        _IN + "test_50_at_once_have_one_effect_and_one_answer",
    ),
    Mutant(
        "an id is of one message", "inbox/hook.py",
        'if slip.body["digest"] != digest:', "if False:",
        _IN + "test_an_id_that_is_used_for_another_message_decides_nothing",
    ),
    Mutant(
        "a hook speaks for its people only", "inbox/hook.py",
        "reviewer = hook.reviewers.get(subject)", "reviewer = hook.reviewers.get(subject) or Reviewer(subject)",
        _IN + "test_only_the_people_of_a_hook_are_taken",
    ),
    Mutant(
        "an approval by webhook says what was seen", "inbox/hook.py",
        'if self.verb == "approve" and self.fingerprint is None:', "if False:",
        _IN + "test_a_message_that_is_odd_decides_nothing_and_is_no_fault",
    ),
    Mutant(
        "only people of the settings decide in Slack", "channels/slack_desk.py",
        'self._people.get(str(user.get("id")))', 'self._people.get(str(user.get("id")), Reviewer("anybody"))',
        _SLACK + "test_somebody_who_is_not_known_is_told_so_and_decides_nothing",
    ),
    Mutant(
        "only members of the workspace decide in Slack", "channels/slack_desk.py",
        ' if team == self._team else None', "",
        _SLACK + "test_a_member_of_another_workspace_decides_nothing",
    ),
    Mutant(
        "a modal that is stale decides nothing", "channels/slack_desk.py",
        'changes=changes or None, comment=said.text("note"), seen=seen)',
        'changes=changes or None, comment=said.text("note"))',
        _SLACK + "test_a_call_that_was_changed_since_it_was_shown_is_not_decided",
    ),
    Mutant(
        "what is risky is not decided in Slack", "channels/slack_desk.py",
        "return is_high(request.risk) and not self._inline", "return False",
        _SLACK + "test_a_risky_call_is_refused_in_slack_whatever_the_message_said",
    ),
    Mutant(
        "what is risky has no Review", "channels/slack.py",
        "(self._inline or not is_high(notice.risk))", "True",
        _SLACK + "test_what_is_risky_has_a_link_only",
    ),
    Mutant(
        "a risk that nobody called small is high", "channels/slack_desk.py",
        "risk.strip().casefold() not in _NOT_HIGH", 'risk.strip().casefold() in {"high", "critical"}',
        _SLACK + "test_what_is_risky_has_a_link_only",
    ),
    Mutant(
        "a modal shows the whole call", "channels/slack_view.py",
        "if above is None or beside is None or len(above) + len(beside) > _MOST_TEXTS:",
        "if above is None or beside is None:",
        _SLACK + "test_what_is_too_long_for_a_modal_is_not_decided_there",
    ),
    Mutant(
        "Slack reads no markup in a text of a program", "channels/slack_view.py",
        'return {"type": "plain_text", "text": cut or " ", "emoji": False}',
        'return {"type": "mrkdwn", "text": cut or " ", "emoji": False}',
        _SLACK + "test_nothing_is_markup_but_our_own_words",
    ),
    Mutant(
        "an envelope that comes again has one answer", "channels/slack_desk.py",
        "if reply is None:", "if True:",
        _SLACK + "test_an_envelope_that_comes_again_has_one_effect_and_one_answer",
    ),
    Mutant(
        "Slack is answered in time", "channels/slack_desk.py",
        "return reply.result(self._in_time)", "return reply.result(20)",
        _SLACK + "test_a_store_that_takes_long_is_answered_in_time_and_told_later",
    ),
    Mutant(
        "what opens while Slack is left is closed", "channels/slack.py",
        "_end(client)  # it was ended while it connected", "pass  # it was ended while it connected",
        _SLACK + "test_what_it_opens_while_it_is_ended_is_closed",
    ),
    Mutant(
        "a service that has a message is not told again", "channels/apprise.py",
        "if at in taken:", "if False:",
        _APPRISE + "test_a_service_that_fails_is_tried_again_alone",
    ),
    Mutant(
        "what Apprise says of a URL is not heard", "channels/apprise.py",
        "log.addFilter(is_heard)", "pass",
        _APPRISE + "test_no_url_of_a_service_is_shown_or_logged",
    ),
    Mutant(
        "Apprise follows no redirect", "channels/apprise.py",
        "http_redirects=False", "http_redirects=True",
        _APPRISE + "test_no_redirect_is_followed",
    ),
    # -- slips, the outbox and escalations ---------------------------------------------------------------------------
    Mutant(
        "of several who keep a new slip one does", "stores/records.py",
        "if only_new and tx.find_slip(slip.kind, slip.key) is not None:", "if False:",
        _CONTRACT + "TestSqlite::test_of_eight_who_keep_a_new_slip_at_once_one_does",
    ),
    Mutant(
        "a slip that was changed meanwhile is not swapped", "stores/records.py",
        "if tx.find_slip(old.kind, old.key) != old:", "if tx.find_slip(old.kind, old.key) is None:",
        _CONTRACT + "TestSqlite::test_a_slip_that_was_changed_meanwhile_is_not_swapped",
    ),
    Mutant(
        "a slip's body is sealed for its own place", "stores/sqlite_transaction.py",
        "return row._replace(body=seal.open(row.body, row.key, slip_column(row.kind)))",
        "return row._replace(body=seal.open(row.body, row.key, slip_column(row.kind)) if row.body[0] != '{' else row.body)",
        "unit/test_slip.py::test_a_sealed_slip_can_be_moved_nowhere",
    ),
    Mutant(
        "a new request and what it owes are one transaction", "stores/outbox.py",
        """    for channel in tx.slip_keys(CHANNEL):
        tx.put_slip(""",
        """    for channel in ():
        tx.put_slip(""",
        _CONTRACT + "TestSqlite::test_what_is_owed_and_what_is_recorded_become_durable_together_or_not_at_all",
    ),
    Mutant(
        "a change makes what is owed due again", "stores/outbox.py",
        "    if transition.event in _SILENT:\n        return\n", "    return\n",
        _CONTRACT + "TestSqlite::test_what_people_are_to_hear_of_makes_the_delivery_due_again",
    ),
    Mutant(
        "what somebody is sending stays in one hand", "stores/outbox.py",
        'is_free = not slip.body.keys() & {"holder", "given_up"}', "is_free = True",
        _CONTRACT + "TestSqlite::test_what_is_in_hand_or_given_up_is_counted_and_stays_where_it_is",
    ),
    Mutant(
        "a change is counted while it is in hand", "stores/outbox.py",
        'slip.body["changes"] + 1}', 'slip.body["changes"]}',
        _OUTBOX + "test_what_changes_while_a_sent_message_is_recorded_is_told_next",
    ),
    Mutant(
        "who takes a message first sends it", "channels/outbox.py",
        "if not self._store.swap(slip, delivery.slip(self._outlet.name, clock.now() + LEASE)):",
        "if self._store.keep(delivery.slip(self._outlet.name, clock.now() + LEASE)) is None:",
        _OUTBOX + "test_eight_deliverers_at_once_send_each_message_once",
    ),
    Mutant(
        "a message in hand is left alone until its lease has ended", "channels/outbox.py",
        "delivery.slip(self._outlet.name, clock.now() + LEASE)", "delivery.slip(self._outlet.name, clock.now())",
        _OUTBOX + "test_of_two_deliverers_one_sends",
    ),
    Mutant(
        "what a dead deliverer had in hand is taken over", "channels/outbox.py",
        "if isinstance(holder, str) and worker.is_free(holder):", "if False:",
        _OUTBOX + "test_a_deliverer_that_is_killed_between_sending_and_recording_is_followed_by_one_that_sends_it_again",
    ),
    Mutant(
        "a failing channel ends nothing but its own message", "channels/outbox.py",
        "        except Exception as error:  # noqa: BLE001  a channel is", "        except ConnectionError as error:  # a channel is",
        _OUTBOX + "test_a_failing_channel_is_in_no_gates_and_no_other_channels_way",
    ),
    Mutant(
        "a message is told once", "channels/delivery.py",
        'if mark in delivery.told or (mark == "approved" and _ENDS.intersection(delivery.told)):', "if False:",
        "unit/test_delivery.py::test_each_state_after_the_wait_is_told_once",
    ),
    Mutant(
        "one message for what was decided before it was announced", "channels/delivery.py",
        "    if request.state is not State.PENDING:\n        return _outcome(delivery, request)\n", "",
        _OUTBOX + "test_what_is_decided_before_it_was_announced_is_one_message_that_says_it_all",
    ),
    Mutant(
        "what fails for a day is given up", "channels/delivery.py",
        "if for_good or now - since >= GIVES_UP_AFTER:", "if for_good:",
        _OUTBOX + "test_a_failing_channel_is_tried_again_ever_later_and_then_given_up",
    ),
    Mutant(
        "messages carry no arguments unless the gate opts in", "channels/message.py",
        "if is_call and request.notify_arguments else None", "if is_call else None",
        _OUTBOX + "test_a_message_carries_no_argument_prompt_context_or_comment",
    ),
    Mutant(
        "an escalation comes at its time", "model/lifecycle.py",
        "or not is_waiting or now < request.created_at + escalation.after:", "or not is_waiting:",
        _CONTRACT + "TestSqlite::test_until_an_escalation_has_come_it_lets_nobody_in",
    ),
    Mutant(
        "an escalation that has not come lets nobody in", "model/request.py",
        "return None if self.escalated_at is None else self.escalation", "return self.escalation",
        _CONTRACT + "TestSqlite::test_until_an_escalation_has_come_it_lets_nobody_in",
    ),
    Mutant(
        "an escalation takes nothing off the count", "model/lifecycle.py",
        "missing = request.quorum.missing(vote.by for vote in changes[\"votes\"])",
        "missing = 0 if request.open_to else request.quorum.missing(vote.by for vote in changes[\"votes\"])",
        _CONTRACT + "TestSqlite::test_an_escalation_takes_nothing_off_how_many_must_agree",
    ),
    Mutant(
        "an approval by whom the gate does not name any more is not taken", "gates/options.py",
        "if self.quorum.roles and self._is_too_open(request):", "if False:",
        _OUTBOX + "test_a_gate_that_names_nobody_else_any_more_does_not_take_an_escalated_approval",
    ),
    Mutant(
        "a rule that names who must agree is not opened to the gate's others", "gates/check.py",
        "(gate.escalation if verdict.quorum is None else None)", "gate.escalation",
        _OUTBOX + "test_a_hold_that_says_who_must_agree_is_not_opened_to_whom_the_gate_names",
    ),
    Mutant(
        "a channel that hangs is left", "channels/outbox.py",
        "thread.join(max(0.0, deadline - time.monotonic()))", "thread.join()",
        _OUTBOX + "test_a_channel_that_hangs_keeps_nobody_from_leaving_the_block",
    ),
    # -- a program's half of the server, and its store at the other end ----------------------------------------------
    Mutant(
        "what people are shown is the call", "inbox/api/sound.py", "if not agrees(shown, tree):", "if False:",
        _ATTACKS + "test_a_view_that_is_not_the_call_is_refused",
    ),
    Mutant(
        "the server masks what the program did not", "inbox/api/sound.py",
        "masked = Redaction(words.redact).mask(shown)", "masked = shown",
        _ATTACKS + "test_a_secret_that_the_program_does_not_mask_is_masked_by_the_server",
    ),
    Mutant(
        "the fingerprint is that of run and call", "inbox/api/sound.py",
        "if fingerprint(said.run_id, said.digest, words.place) != said.fingerprint:", "if False:",
        _ATTACKS + "test_a_name_or_digest_that_does_not_fit_is_refused",
    ),
    Mutant(
        "the digest is that of the arguments", "inbox/api/sound.py",
        "if call_digest(said.tool, said.shape_digest, canonical.digest_input(said.form)) != said.digest:", "if False:",
        _ATTACKS + "test_of_every_one_leaf_mutation_nothing_is_asked_that_lies",
    ),
    Mutant(
        "a form has one reading", "inbox/api/bound.py", "must_be_canonical(tree)\n    except", "pass\n    except",
        _ATTACKS + "test_a_tagged_value_that_no_gate_writes_is_refused",
    ),
    Mutant(
        "a name of a model stands for one value", "model/canonical/decode.py",
        "if len(set[str]().union(*parts)) < sum(map(len, parts)):", "if False:",
        _ATTACKS + "test_a_model_whose_name_stands_for_two_values_is_refused",
    ),
    Mutant(
        "a model with one name for two values is drawn as neither", "model/canonical/decode.py",
        "return named if is_whole else None", "return named",
        _CANONICAL + "test_a_model_with_one_name_for_two_values_has_no_parts_to_draw",
    ),
    Mutant(
        "a model with one name for two values is displayed as neither", "model/canonical/decode.py",
        "if fields_of({tag: payload}) is not None:", "if True:",
        _CANONICAL + "test_a_model_with_one_name_for_two_values_has_no_parts_to_draw",
    ),
    Mutant(
        "what runs with a default is shown", "inbox/api/bound.py",
        "if named.keys() != schema.properties.keys():", "if False:",
        _ATTACKS + "test_arguments_that_are_not_all_the_functions_are_refused",
    ),
    Mutant(
        "a text is no truth value on a server", "inbox/api/bound.py", "if other is not None:", "if False:",
        _ATTACKS + "test_a_text_in_the_place_of_a_number_or_of_true_is_refused",
    ),
    Mutant(
        "no large text holds up the lists of a server", "inbox/api/bound.py",
        'if len(text.encode(errors="replace")) > LARGEST:', "if False:",
        _ATTACKS + "test_a_call_that_would_hold_up_every_list_is_refused",
    ),
    Mutant(
        "no call of many values holds up the lists of a server", "inbox/api/bound.py", "if left < 0:", "if False:",
        _ATTACKS + "test_a_call_that_would_hold_up_every_list_is_refused",
    ),
    Mutant(
        "a program that masks all is told", "view/card.py", "found = [*_hidden(request), *(", "found = [*(",
        _ATTACKS + "test_a_program_that_masks_what_there_is_to_judge_is_told_to_the_reviewer",
    ),
    Mutant(
        "a redactor that failed shows nothing to approve", "inbox/api/sound.py",
        "if shown == dict(FAILED):", "if False:",
        _ATTACKS + "test_a_view_in_which_a_redactor_failed_is_refused",
    ),
    Mutant(
        "warnings come to an end", "view/summary.py", "if len(found) == _MOST:", "if False:",
        _SHOW + "test_a_tree_full_of_traps_is_not_looked_at_to_its_end",
    ),
    Mutant(
        "a schema is the one of its digest", "inbox/api/sound.py",
        "if Schema.from_text(said.shape).digest != said.shape_digest:", "if False:",
        _ATTACKS + "test_a_shape_cannot_be_swapped_for_that_of_another_function",
    ),
    Mutant(
        "a tool is shown by its own name", "inbox/api/sound.py",
        "if not name or name not in {tool, last} or not tool.isprintable() or tool != tool.strip():", "if False:",
        _ATTACKS + "test_a_name_or_digest_that_does_not_fit_is_refused",
    ),
    Mutant(
        "nothing waits for ever on a server", "inbox/api/sound.py",
        "return min(max(microseconds * _MICROSECOND, _SHORTEST), LONGEST)",
        "return max(microseconds * _MICROSECOND, _SHORTEST)",
        _ATTACKS + "test_nothing_waits_for_longer_than_the_server_lets_it",
    ),
    Mutant(
        "who asks is the token", "inbox/api/sound.py", "requester=me,", "requester=asked.requester,",
        _ATTACKS + "test_who_asks_is_the_token_whatever_the_program_says",
    ),
    Mutant(
        "who owns a token decides nothing that it asks", "inbox/api/sound.py",
        "if owner != behalf and owner not in also:", "if False:",
        "contract/test_http_store.py::TestHttp::test_what_is_asked_comes_back_equal_in_every_field",
    ),
    Mutant(
        "what cannot be drawn is not asked", "inbox/api/sound.py", "        _drawn(request)\n", "",
        _ATTACKS + "test_what_cannot_be_drawn_is_refused_when_it_is_asked",
    ),
    Mutant(
        "a foreign request is not there", "inbox/api/own.py",
        "if not self.is_mine(request):\n            raise errors.RequestNotFoundError(request_id)\n        return request",
        "return request",
        _ATTACKS + "test_every_verb_tells_a_foreign_request_and_none_in_the_same_words",
    ),
    Mutant(
        "a foreign run is not asked in", "inbox/api/own.py",
        "self.must_be_mine(run_id)  # another may have been faster", "pass",
        _ATTACKS + "test_of_every_foreign_run_and_request_none_is_met",
    ),
    Mutant(
        "a run that was claimed meanwhile is nobody else's", "inbox/api/own.py",
        "return self._claimed_by(run_id) or _SOMEBODY", "return _SOMEBODY",
        "integration/test_http_store.py::test_a_run_that_another_thread_of_the_program_begins_meanwhile_is_the_programs",
    ),
    Mutant(
        "a foreign run is not read", "inbox/api/own.py", "if not self.is_my_run(run_id):", "if False:",
        _ATTACKS + "test_a_run_that_another_began_is_neither_read_nor_written",
    ),
    Mutant(
        "no step waits for a foreign request", "inbox/api/own.py",
        "if not self.is_mine(request):\n                raise", "if False:\n                raise",
        _ATTACKS + "test_a_step_cannot_wait_for_anothers_request_to_learn_what_became_of_it",
    ),
    Mutant(
        "a run has its share of open requests", "inbox/api/ask.py",
        "    if own.store.count(waiting) >= limit:", "    if False:",
        _ATTACKS + "test_one_run_has_no_more_than_its_share_open_and_hinders_no_other",
    ),
    Mutant(
        "the share is counted by one at a time", "inbox/api/ask.py", "with _room(own):",
        "with threading.Lock():",
        _ATTACKS + "test_of_many_who_ask_at_once_no_more_find_room_than_there_is",
    ),
    Mutant(
        "only tokens that ask have the program's half", "inbox/api/ask.py",
        '_KINDS = ("ask",)', '_KINDS = ("ask", "review", "admin")',
        _ATTACKS + "test_no_other_kind_of_token_asks_starts_or_ends",
    ),
    Mutant(
        "a key is for one body", "inbox/api/once.py", 'if slip.body["digest"] != self._digest:', "if False:",
        _ATTACKS + "test_one_key_asks_once_and_another_body_with_it_is_refused",
    ),
    Mutant(
        "a token never goes in the clear to another machine", "stores/http_transport.py",
        'if parts.scheme == "http" and not _is_this_machine(host):', "if False:",
        _SERVED + "test_a_token_is_never_sent_in_the_clear_to_another_machine",
    ),
    Mutant(
        "a start is taken for one's own after a lost answer alone", "stores/http.py",
        "if not isinstance(refusal.__cause__, LostError):", "if False:",
        _ATTACKS + "test_a_start_that_is_sent_again_word_for_word_is_refused",
    ),
    Mutant(
        "a start whose answer was lost is found again", "stores/http_transport.py",
        "                lost = LostError(str(error))\n", "",
        _SERVED + "test_a_lost_answer_starts_nothing_twice_and_loses_no_outcome",
    ),
    Mutant(
        "an answer that is none is no yes", "stores/http_transport.py",
        "if response.status < 300 and not isinstance(content, dict):", "if False:",
        _SERVED + "test_what_answers_there_is_no_server_is_a_fault_and_no_yes",
    ),
    Mutant(
        "a folder names no server", "config.py", "    if address.startswith(_SERVERS):\n        raise",
        "    if False:\n        raise",
        _SERVED + "test_a_folder_cannot_name_the_server_that_decides",
    ),
    Mutant(
        "a clock that is ahead asks calmly", "wait.py", "_SOON = 0.05", "_SOON = 0.001",
        _SERVED + "test_a_program_whose_clock_is_ahead_asks_the_server_calmly",
    ),
    Mutant(
        "a worker is given up by who names it", "stores/base.py", "is_gone = execution.worker == gone or ",
        "is_gone = gone is not None or ",
        _SERVED + "test_a_dead_call_is_given_up_by_who_is_on_its_machine",
    ),
    # -- the HTTP API ------------------------------------------------------------------------------------------------
    Mutant(
        "a token ends at its instant", "inbox/token.py",
        "return self.revoked_at is None and now < self.expires_at", "return self.revoked_at is None",
        _API_TOKENS + "test_a_token_ends_at_its_instant",
    ),
    Mutant(
        "a revoked token opens nothing", "inbox/token.py",
        "return self.revoked_at is None and now < self.expires_at", "return now < self.expires_at",
        _API_TOKENS + "test_a_revoked_token_opens_nothing_from_then_on",
    ),
    Mutant(
        "a token is its whole secret", "inbox/token.py",
        "is_it = compare_digest(_digest(form[2]), _NOBODY if token is None else token.digest)", "is_it = True",
        _API_TOKENS + "test_every_changed_letter_of_a_token_opens_nothing",
    ),
    Mutant(
        "a token is kept as a digest", "inbox/token.py",
        "return hashlib.sha256(secret.encode()).hexdigest()", "return secret",
        _API_TOKENS + "test_the_store_keeps_no_text_of_a_token",
    ),
    Mutant(
        "a token's kind says what it may do", "inbox/api/operation.py",
        "if principal.kind not in self.kinds:", "if False:",
        _API_TOKENS + "test_each_kind_of_token_does_what_it_may_and_nothing_else",
    ),
    Mutant(
        "a session's change comes from a page of ours", "inbox/api/principal.py",
        "is_ours(http) and ", "",
        _API_TOKENS + "test_a_session_changes_something_only_from_a_page_of_ours",
    ),
    Mutant(
        "a session's change brings its own token", "inbox/api/principal.py",
        " and session.is_mine(http.headers.get(\"x-csrf-token\", \"\"))", "",
        _API_TOKENS + "test_a_session_changes_something_only_from_a_page_of_ours",
    ),
    Mutant(
        "a bad token is not made up for by a session", "inbox/api/principal.py",
        "    if given:\n        return _bearer(http, given)", "    if given and given[0] != \"Bearer no\":\n        return _bearer(http, given)",
        _API_TOKENS + "test_a_token_that_opens_nothing_is_not_made_up_for_by_a_session",
    ),
    Mutant(
        "a program around has the last word", "inbox/api/principal.py",
        "if session is None or settings.who is None:", "if True:",
        _API_TOKENS + "test_a_program_around_that_knows_its_people_has_the_last_word",
    ),
    Mutant(
        "an approval says what was seen", "inbox/api/review.py",
        "if seen is None or seen == \"*\":", "if False:",
        _API_REVIEW + "test_an_approval_says_what_was_seen",
    ),
    Mutant(
        "a header and a body that saw different things decide nothing", "inbox/api/review.py",
        "if said is not None and said != matched:", "if False:",
        _API_REVIEW + "test_an_approval_says_what_was_seen",
    ),
    Mutant(
        "a store's fault says nothing of the server", "inbox/api/problem.py",
        "if kind.status >= 500:", "if kind.status > 599:",
        _API_REVIEW + "test_a_store_that_does_not_answer_decides_nothing_and_says_nothing_of_itself",
    ),
    Mutant(
        "an id that is not there is told in the words for one that must not be known", "inbox/api/problem.py",
        "if kind.status == 404:", "if kind.status == 0:",
        _API_REVIEW + "test_an_id_is_taken_whole_or_not_at_all",
    ),
    Mutant(
        "an id is taken whole", "inbox/api/look.py",
        "if _ID.fullmatch(request_id) is None:", "if False:",
        _API_REVIEW + "test_an_id_is_taken_whole_or_not_at_all",
    ),
    Mutant(
        "a key stands once", "inbox/api/body.py",
        "if len(found) != len(pairs):", "if False:",
        _API_INPUT + "test_a_body_that_is_no_strict_json_is_refused",
    ),
    Mutant(
        "a number is finite", "inbox/api/body.py",
        "if math.isinf(number):", "if False:",
        _API_INPUT + "test_a_body_that_is_no_strict_json_is_refused",
    ),
    Mutant(
        "a text is Unicode", "inbox/api/body.py",
        "case str() if _SURROGATE.search(value):", "case str() if False:",
        _API_INPUT + "test_a_body_that_is_no_strict_json_is_refused",
    ),
    Mutant(
        "a body is not too deep", "inbox/api/body.py",
        "_DEEPEST = 64", "_DEEPEST = 150",
        _API_INPUT + "test_a_body_that_is_no_strict_json_is_refused",
    ),
    Mutant(
        "a body is not too long", "inbox/api/body.py",
        "if len(body) > LONGEST:", "if False:",
        _API_INPUT + "test_a_body_that_is_too_long_is_refused",
    ),
    Mutant(
        "a body is called JSON", "inbox/api/body.py",
        "if kind != \"application/json\":", "if False:",
        _API_INPUT + "test_a_body_that_is_not_called_json_is_refused",
    ),
    Mutant(
        "an unknown field is refused", "inbox/api/operation.py",
        "model_config = ConfigDict(extra=\"forbid\", strict=True, frozen=True)", "model_config = ConfigDict(strict=True, frozen=True)",
        _API_INPUT + "test_a_body_that_does_not_fit_is_refused",
    ),
    Mutant(
        "nobody asks too often", "inbox/api/rate.py",
        "if self._limit is not None and not self._windows.hit(self._limit, who):", "if False:",
        _API_INPUT + "test_one_who_asks_too_often_waits_and_slows_nobody_else_down",
    ),
    Mutant(
        "each is counted alone", "inbox/api/rate.py",
        "self._windows.hit(self._limit, who)", "self._windows.hit(self._limit, \"all\")",
        _API_INPUT + "test_one_who_asks_too_often_waits_and_slows_nobody_else_down",
    ),
    Mutant(
        "a token has so many requests under way", "inbox/api/rate.py",
        "CapacityLimiter(self._most)", "CapacityLimiter(1_000_000)",
        _API_INPUT + "test_a_token_has_so_many_requests_under_way_and_others_are_not_held_up",
    ),
    Mutant(
        "a request that may wait counts while it is worked on", "inbox/api/rate.py",
        "if not slot.take() and not (queues", "if not queues and not slot.take() and not (queues",
        _API_INPUT + "test_a_token_has_so_many_requests_under_way_and_others_are_not_held_up",
    ),
    Mutant(
        "a program that wakes counts while it looks", "inbox/api/rate.py",
        "        yield\n        await self.wait()", "        yield",
        _API_INPUT + "test_programs_that_sleep_take_no_room_and_those_that_wake_look_in_turn",
    ),
    Mutant(
        "a program that sleeps does not count", "inbox/api/rate.py",
        "        self.release()\n        yield", "        yield",
        _API_INPUT + "test_programs_that_sleep_take_no_room_and_those_that_wake_look_in_turn",
    ),
    Mutant(
        "a program that comes to wait is not refused at once", "inbox/api/operation.py",
        "queues=is_wait", "queues=False",
        _API_INPUT + "test_a_program_that_comes_to_wait_queues_for_a_slot",
    ),
    Mutant(
        "a limit is waited out", "stores/http_transport.py",
        "wait = max(wait, jittered(answer.wait, never_less=True))", "pass",
        _PATIENT + "test_a_server_that_says_later_is_asked_again_when_it_says_so",
    ),
    Mutant(
        "a server that is away ends no wait", "wait.py",
        "if terminal.can_decide(self._store) or is_due(self._request, clock.now()):", "if True:",
        _PATIENT + "test_a_wait_outlasts_the_patience_for_a_server_that_is_away",
    ),
    Mutant(
        "a stranger's form is short", "inbox/visit.py",
        "longest = _LONGEST_FORM if is_known else _LONGEST_OF_STRANGER", "longest = _LONGEST_FORM",
        _STRANGERS + "test_a_stranger_sends_a_short_form_or_none",
    ),
    Mutant(
        "a stranger's form comes soon", "inbox/visit.py",
        "patience = _PATIENCE if is_known else _PATIENCE_WITH_STRANGER", "patience = _PATIENCE",
        _STRANGERS + "test_a_stranger_sends_a_form_soon_or_none",
    ),
    Mutant(
        "strangers' forms are counted before they are read", "inbox/login.py",
        'rate.count(f"form {settings.sender(http)}")', "pass",
        _STRANGERS + "test_a_stranger_who_sends_many_forms_is_refused_before_one_is_read",
    ),
    Mutant(
        "a large body holds nobody else up", "inbox/api/body.py",
        "if len(body) <= _LARGE:", "if True:",
        _STRANGERS + "test_large_bodies_of_those_who_are_known_are_parsed_beside_the_loop",
    ),
    Mutant(
        "a header comes in time", "inbox/connections.py",
        "self._timer = self.loop.call_later(seconds, self.give_up)", "pass",
        _CONNECTIONS + "test_a_header_that_does_not_come_whole_ends_the_connection",
    ),
    Mutant(
        "who asks nothing makes room", "inbox/connections.py",
        "longest.give_up()", "pass",
        _CONNECTIONS + "test_where_all_places_are_taken_who_waited_longest_makes_room",
    ),
    Mutant(
        "a request that is answered makes room for nobody", "inbox/connections.py",
        "            self._stop_waiting()  # and not before: bytes that drip do not put the end off", "            pass",
        _CONNECTIONS + "test_a_request_that_is_answered_makes_room_for_nobody",
    ),
    Mutant(
        "an answered body ends", "inbox/connections.py",
        "self._limits.rest if self.cycle.more_body", "self._limits.header if self.cycle.more_body",
        _CONNECTIONS + "test_who_was_answered_before_the_body_was_whole_may_not_go_on_sending",
    ),
    Mutant(
        "who reads nothing keeps no place", "inbox/connections.py",
        "super().pause_writing()\n        self._must_be_read()", "super().pause_writing()",
        _CONNECTIONS + "test_who_pipelines_requests_and_reads_no_answer_loses_the_place",
    ),
    Mutant(
        "who reads not the last answer keeps no place", "inbox/connections.py",
        "            self._must_be_read()\n        if self._is_answering", "            pass\n        if self._is_answering",
        _CONNECTIONS + "test_who_reads_not_the_last_answer_of_a_connection_that_closes_loses_the_place",
    ),
    Mutant(
        "who sent no request and reads nothing keeps no place", "inbox/connections.py",
        "            self._must_be_read()\n\n    def connection_lost", "            pass\n\n    def connection_lost",
        _CONNECTIONS + "test_who_sent_no_request_and_reads_no_answer_to_that_is_given_up",
    ),
    Mutant(
        "who reads drop by drop keeps no place", "inbox/connections.py",
        "self.transport.get_write_buffer_size() < _READ:", "self.transport.get_write_buffer_size() <= 0:",
        _CONNECTIONS + "test_who_reads_slowly_is_let_read_and_who_drips_is_not",
    ),
    Mutant(
        "who has read the answer is not cut off", "inbox/connections.py",
        "which ends when all was read, and not before\n            self._is_read()",
        "which ends when all was read, and not before\n            pass",
        _CONNECTIONS + "test_who_has_read_or_gone_is_not_given_up",
    ),
    Mutant(
        "no page is shown under a shared name", "inbox/doorway.py",
        'if scope["type"] != "http" or not self._is_astray(scope):', "if True:",
        _DOORWAY + "test_no_session_begins_under_a_shared_name",
    ),
    Mutant(
        "the inbox's name is told to its own user alone", "inbox/doorway.py",
        'if scope["method"] in {"GET", "HEAD"} and self._is_neighbour(scope):', 'if scope["method"] in {"GET", "HEAD"}:',
        _DOORWAY + "test_another_user_of_the_machine_is_not_told_the_name",
    ),
    Mutant(
        "whose a connection is is looked at", "inbox/doorway.py",
        "return int(columns[_OWNER]) == os.geteuid()", "return True",
        _DOORWAY + "test_who_is_at_the_other_end_is_known_by_the_system",
    ),
    Mutant(
        "nobody else is where a browser looks", "cli/listen.py",
        "if not isinstance(fault.__cause__, OSError) or fault.__cause__.errno != errno.EADDRINUSE:", "if True:",
        _DOORWAY + "test_nothing_is_served_where_another_program_would_be_sent_the_link",
    ),
    Mutant(
        "no login link stands in a command line", "cli/login_page.py",
        "args=[self._file.as_uri()]", "args=[self._file.read_text().partition('href=\"')[2].partition('\"')[0]]",
        _DOORWAY + "test_the_link_stands_in_no_command_line_and_its_page_is_its_owners_alone",
    ),
    Mutant(
        "a page that leads to a link is its owner's alone", "cli/login_page.py",
        "os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)", "os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)",
        _DOORWAY + "test_the_link_stands_in_no_command_line_and_its_page_is_its_owners_alone",
    ),
    Mutant(
        "a line feed leads to no page", "inbox/api/routes.py",
        "re.DOTALL", "0",
        _API_INPUT + "test_every_address_below_api_answers_in_problems",
    ),
    Mutant(
        "a token hears of its own requests", "inbox/api/piece.py",
        "requester = who.requester if who.kind == \"ask\" else None", "requester = None",
        _API_EVENTS + "test_an_ask_token_hears_of_its_own_requests_only",
    ),
    Mutant(
        "a revoked token hears no more", "inbox/api/relay.py",
        "        return one.is_good()\n", "        return True\n",
        _API_EVENTS + "test_a_revoked_token_hears_no_more",
    ),
    Mutant(
        "tokens of two programs are handed two pieces", "inbox/api/piece.py",
        "place = seen, requester", "place = seen, None",
        _RELAY + "test_tokens_of_programs_at_one_place_hear_of_their_own",
    ),
    Mutant(
        "who is far behind is handed bounded pieces", "inbox/api/piece.py", "part = found[:_MOST]", "part = found",
        _RELAY + "test_who_is_far_behind_is_handed_bounded_pieces",
    ),
    Mutant(
        "what is left behind a piece is handed out though nothing happens", "inbox/api/relay.py",
        "                one.turn = -1  # when it comes back, the rest is looked up at once\n", "                pass\n",
        _RELAY + "test_who_is_far_behind_is_handed_bounded_pieces",
    ),
    Mutant(
        "what is left behind others' events is handed out though nothing happens", "inbox/api/relay.py",
        "                if not piece.is_all:\n                    self._rung.set()\n", "",
        _RELAY + "test_who_is_far_behind_is_handed_bounded_pieces",
    ),
    Mutant(
        "what a stream was handed is not replaced", "inbox/api/relay.py",
        "        del self._waiting[one]  # now and not when it wakes: what it was handed must not be replaced\n", "",
        _RELAY + "test_what_a_stream_was_handed_is_not_replaced_before_it_wakes",
    ),
    Mutant(
        "one token that is shut out leaves the others", "inbox/api/relay.py",
        "return self.who.token_id, id(self.who.session)", "return None, 0",
        _RELAY + "test_who_is_shut_out_hears_no_more_and_the_others_do",
    ),
    Mutant(
        "who was shut out while it sent is found out", "inbox/api/relay.py", "if one.turn != self._turn:", "if False:",
        _RELAY + "test_who_was_shut_out_while_it_sent_is_found_out_when_it_comes_back",
    ),
    Mutant(
        "while a token cannot be looked at nothing is handed to it", "inbox/api/relay.py",
        "if isinstance(is_open, errors.StoreError):", "if False:",
        _RELAY + "test_while_a_token_cannot_be_looked_at_its_own_streams_hear_nothing",
    ),
    Mutant(
        "a look that fails is no silence", "inbox/api/relay.py",
        "found, fault = [None] * len(asked), None", "found, fault, asked = [], None, []",
        _RELAY + "test_a_look_that_fails_ends_the_streams_and_is_no_silence",
    ),
    Mutant(
        "a store that did not answer is looked at again", "inbox/api/relay.py",
        "            self._loop.call_later(_AGAIN, self._rung.set)\n", "",
        _RELAY + "test_a_store_that_did_not_answer_is_looked_at_again_though_nothing_happens",
    ),
    Mutant(
        "what happens while a relay looks is heard", "inbox/api/relay.py",
        "            self._is_rung = False\n            self._turn += 1", "            self._turn += 1",
        _RELAY + "test_what_happens_while_it_looks_is_heard",
    ),
    Mutant(
        "many streams are woken once", "inbox/api/happenings.py",
        "for wake in set(self._listeners.values()):", "for wake in list(self._listeners.values()):",
        _RELAY + "test_a_change_wakes_many_streams_once",
    ),
    Mutant(
        "a burst wakes the loop once", "inbox/api/relay.py", "        if self._is_rung:\n            return", "        if False:\n            return",
        _RELAY + "test_a_burst_wakes_the_loop_once",
    ),
    Mutant(
        "an event id is of one server's life", "inbox/api/stream.py",
        "is_ours = life == self._happenings.life and ", "is_ours = ",
        _API_EVENTS + "test_what_cannot_be_taken_up_is_said",
    ),
    Mutant(
        "events that are kept no more are no silent loss", "inbox/api/happenings.py",
        "if not self._number - len(self._kept) <= number <= self._number:", "if number > self._number:",
        _API_EVENTS + "test_the_ring_forgets_the_oldest_and_says_so",
    ),
    Mutant(
        "what happened while nobody listened is caught up with", "inbox/api/happenings.py",
        "            followed.unwatch = self._watch(request_id)\n            self._rung.append(request_id)", "            followed.unwatch = self._watch(request_id)",
        _API_EVENTS + "test_what_happened_while_nobody_listened_is_caught_up_with",
    ),
    Mutant(
        "too many requests to follow are no silent loss", "inbox/api/happenings.py",
        "        if len(self._followed) > FOLLOWED:\n            self._lose()", "",
        _API_EVENTS + "test_more_open_requests_than_can_be_followed_are_no_silent_loss",
    ),
    Mutant(
        "a store that did not answer loses no event", "inbox/api/happenings.py",
        "            self._rung.extend(rung)\n", "",
        _API_EVENTS + "test_a_store_that_did_not_answer_loses_no_event",
    ),
    Mutant(
        "a page that is looked at writes nothing", "inbox/visit.py",
        "channel=\"web\", sweeps=False)", "channel=\"web\")",
        _LOOKING + "test_no_route_writes_anything_for_who_only_looks",
    ),
    Mutant(
        "looking by the API writes nothing", "inbox/api/operation.py",
        "channel=who.channel, sweeps=False)", "channel=who.channel)",
        _LOOKING + "test_no_route_writes_anything_for_who_only_looks",
    ),
    Mutant(
        "finding a token writes nothing", "inbox/token.py",
        "                self._uses[token.id] = day", "                self._change(token.id, lambda _: {\"used_on\": day})",
        _LOOKING + "test_no_route_writes_anything_for_who_only_looks",
    ),
    Mutant(
        "what is due is listed as expired, on disk", "stores/sqlite.py",
        "if State.EXPIRED in wanted.states:", "if False:",
        _LOOKING + "test_a_filter_at_an_instant_counts_what_is_due_as_expired",
    ),
    Mutant(
        "what is due does not wait any more, on disk", "stores/sqlite.py",
        "    if wanted.at is None:\n        return part, values", "    if wanted.at is None or State.EXPIRED not in wanted.states:\n        return part, values",
        _LOOKING + "test_a_filter_at_an_instant_counts_what_is_due_as_expired",
    ),
    Mutant(
        "what is due is expired, in memory", "stores/filter.py",
        "wanted.at is not None and is_due(request, wanted.at)", "False",
        _LOOKING + "test_a_filter_at_an_instant_counts_what_is_due_as_expired",
    ),
    Mutant(
        "what is due is expired, in a file of lines", "stores/jsonl.py",
        "is_due = wanted.at is not None and row.ends_at is not None and row.ends_at <= microseconds(wanted.at)", "is_due = False",
        _LOOKING + "test_a_filter_at_an_instant_counts_what_is_due_as_expired",
    ),
    # -- the Confirm protocol ----------------------------------------------------------------------------------------
    Mutant(
        "a plan is started by the store's right alone", "mplp/flow.py",
        "attempt = yield from execute(gate, where, request, Needs(request.quorum, request.acts_for))",
        "from sayso.effects import Try; attempt = yield Try(gate.function, (), arguments_of(group.plan))",
        _MPLP_START + "test_what_is_not_approved_is_not_started",
    ),
    Mutant(
        "what ran out is not approved", "mplp/view.py",
        "State.EXPIRED: ConfirmStatus.CANCELLED", "State.EXPIRED: ConfirmStatus.APPROVED",
        _MPLP_LIVES + "test_an_approval_that_was_taken_back_or_ran_out_starts_nothing",
    ),
    Mutant(
        "a plain no is a rejection", "mplp/view.py",
        "        return request.answer is False\n", "        return False\n",
        _MPLP_VIEWS + "test_a_question_is_a_confirm_and_a_plain_no_is_a_rejection",
    ),
    Mutant(
        "a rejection needs a reason", "mplp/round.py",
        "if decision.status is DecisionStatus.REJECTED and is_blank(decision.reason or \"\"):", "if False:",
        _MPLP_DECIDE + "test_a_rejection_of_a_submitted_plan_needs_a_reason",
    ),
    Mutant(
        "a Confirm is decided once", "mplp/round.py",
        "if confirm.status is not ConfirmStatus.PENDING:", "if False:",
        _MPLP_DOCUMENTS + "test_a_second_decision_is_refused",
    ),
    Mutant(
        "a locked Confirm is not decided", "mplp/round.py",
        "    if confirm.is_locked:\n", "    if False:\n",
        _MPLP_DECIDE + "test_a_locked_copy_decides_nothing",
    ),
    Mutant(
        "a locked Confirm does not change", "mplp/confirm.py",
        "if self.is_locked and name != \"governance\":", "if False:",
        _MPLP_DOCUMENTS + "test_a_locked_confirm_refuses_every_change",
    ),
    Mutant(
        "a Confirm's status is not assigned", "mplp/confirm.py",
        "if name == \"status\" and value != self.status:", "if False:",
        _MPLP_DOCUMENTS + "test_a_status_is_never_assigned",
    ),
    Mutant(
        "a plan's status is not assigned", "mplp/plan.py",
        "if name == \"status\" and value != self.status:", "if False:",
        _MPLP_DOCUMENTS + "test_a_status_is_never_assigned",
    ),
    Mutant(
        "a decision is not brought along", "mplp/flow.py",
        "if name in BROUGHT}", "}",
        _MPLP_SUBMIT + "test_what_a_document_says_was_decided_is_not_brought_along",
    ),
    Mutant(
        "an approval is not brought along", "mplp/round.py",
        "if confirm.status not in {ConfirmStatus.PENDING, ConfirmStatus.REJECTED}:", "if False:",
        _MPLP_SUBMIT + "test_what_a_document_says_was_decided_is_not_brought_along",
    ),
    Mutant(
        "Confirm and plan are about the same", "mplp/round.py",
        "        must_be_about(confirm, TargetType.PLAN, target.plan_id)\n", "        pass\n",
        _MPLP_SUBMIT + "test_confirm_and_plan_must_be_about_the_same",
    ),
    Mutant(
        "an id that is taken names its own target", "mplp/flow.py",
        "            must_be_about(named.confirm, target_type, target_id)\n", "            pass\n",
        _MPLP_SUBMIT + "test_an_id_that_is_taken_names_its_own_target_only",
    ),
    Mutant(
        "a copy decides its own target", "mplp/flow.py",
        "    must_be_about(confirm, view.target_type, view.target_id)\n", "",
        _MPLP_DECIDE + "test_a_copy_that_is_about_something_else_decides_nothing",
    ),
    Mutant(
        "a plan that waits is not changed", "mplp/flow.py",
        "        _must_be_same(gate, target, known.last)\n", "        pass\n",
        _MPLP_SUBMIT + "test_a_plan_that_was_changed_while_it_waits_is_refused",
    ),
    Mutant(
        "one round of a plan waits at a time", "mplp/flow.py",
        "    yield from _must_be_only(store, run_id, answer.request)\n", "",
        _MPLP_SUBMIT + "test_of_two_who_submit_at_one_time_one_waits",
    ),
    Mutant(
        "a plan is carried out as it was approved", "mplp/flow.py",
        "plan_with(group.plan, arguments)",
        "plan_with(group.plan, {**arguments, \"title\": group.last.call.arguments[\"title\"]})",
        _MPLP_START + "test_an_approved_plan_is_started_once_as_it_was_approved",
    ),
    Mutant(
        "an edit that makes no plan is not carried out", "mplp/flow.py",
        "    plan.export()\n    return do(plan)", "    return do(plan)",
        _MPLP_START + "test_an_edit_that_makes_no_plan_is_not_carried_out_where_it_came_into_the_store",
    ),
    Mutant(
        "an edit that makes no plan decides nothing", "model/edit.py",
        "        return wrong_steps(cast(\"dict[str, Any]\", canonical.display(after)))\n", "        return []\n",
        _MPLP_START + "test_an_edit_that_makes_no_plan_decides_nothing",
    ),
    Mutant(
        "a step's id is one", "model/edit.py",
        "if own is not None and _ID.fullmatch(str(own)) is None:", "if False:",
        _MPLP_START + "test_an_edit_that_makes_no_plan_decides_nothing",
    ),
    Mutant(
        "two steps have two ids", "model/edit.py",
        "if own is not None and own in known[:index]:", "if False:",
        _MPLP_START + "test_an_edit_that_makes_no_plan_decides_nothing",
    ),
    Mutant(
        "a step depends on steps that there are", "model/edit.py",
        "if needed not in known:", "if False:",
        _MPLP_START + "test_an_edit_that_makes_no_plan_decides_nothing",
    ),
    Mutant(
        "a plan says what is to be done", "model/edit.py",
        "if not any(str(step.get(\"description\", \"\")).strip() for step in steps):", "if False:",
        _MPLP_START + "test_an_edit_that_makes_no_plan_decides_nothing",
    ),
    Mutant(
        "what a program calls a plan breaks no check", "model/edit.py",
        "if isinstance(needs, list) else ()", "",
        _MPLP_START + "test_an_edit_of_what_a_program_calls_a_plan_never_breaks_a_check",
    ),
    Mutant(
        "a new step takes the id of no other", "mplp/call.py",
        "index, step[\"description\"], *known)}", "index, step[\"description\"])}",
        _MPLP_START + "test_a_step_that_was_named_in_an_earlier_round_does_not_lend_its_id",
    ),
    Mutant(
        "a new step's id follows from its plan", "mplp/call.py",
        "named.append(PlanStep.model_validate(own | step))", "named.append(PlanStep.model_validate(step))",
        _MPLP_START + "test_a_step_that_a_reviewer_adds_gets_an_id_which_everybody_reads_alike",
    ),
    Mutant(
        "a file without documents does not conform", "cli/confirm.py",
        "    if what is None:\n        problems.append(", "    if False:\n        problems.append(",
        _MPLP_CHANNELS + "test_validate_reads_lines_one_by_one",
    ),
    Mutant(
        "what a program asked for is not started from outside", "mplp/flow.py",
        "    if facts_of(request) is None:\n        raise", "    if False:\n        raise",
        _MPLP_START + "test_a_programs_own_request_is_not_started_from_here",
    ),
    Mutant(
        "a target is started as it was shown", "mplp/flow.py",
        "        if not is_about(arguments, confirm.target_type, confirm.target_id):\n", "        if False:\n",
        _MPLP_START + "test_the_approval_of_another_target_starts_neither",
    ),
    Mutant(
        "a target's reason is the approved one", "mplp/flow.py",
        "confirm.model_copy(update={\"reason\": arguments.get(\"reason\")})", "confirm",
        _MPLP_START + "test_a_target_is_started_with_the_reason_that_was_approved",
    ),
    Mutant(
        "the approval of another target is none", "mplp/view.py",
        "return facts is not None and not is_about(told_of(edited), facts.target_type, facts.target_id)", "return False",
        _MPLP_START + "test_the_approval_of_another_target_starts_neither",
    ),
    Mutant(
        "a Confirm is about what people are shown", "mplp/view.py",
        "request.purged_at is not None or is_about(told_of(request.call), target_type, target_id)", "True",
        _MPLP_START + "test_a_request_that_shows_another_target_than_its_run_names_is_of_neither",
    ),
    Mutant(
        "a plan is no other target", "mplp/view.py",
        "return target_type == TargetType.PLAN\n", "return True\n",
        _MPLP_START + "test_a_plan_that_waits_in_the_run_of_another_target_starts_nothing",
    ),
    Mutant(
        "a decision is about the round that was read", "mplp/flow.py",
        "    if asked != request.id:", "    if False:",
        _MPLP_DECIDE + "test_a_confirm_of_an_earlier_round_decides_nothing",
    ),
    Mutant(
        "a decision is about the plan that was read", "mplp/flow.py",
        "asked, seen = confirm.home.seen or (request.id, current)", "asked, seen = request.id, current",
        _MPLP_DECIDE + "test_a_confirm_that_was_read_before_an_edit_decides_nothing",
    ),
    Mutant(
        "the role that asked does not approve", "mplp/flow.py",
        "return around if own in around else (*around, own)", "return around",
        _MPLP_DECIDE + "test_the_role_that_asked_does_not_approve",
    ),
    Mutant(
        "a program forges no decision in a Confirm", "mplp/view.py",
        "for name, value in facts.confirm.items() if name in BROUGHT}", "for name, value in facts.confirm.items()}",
        _MPLP_VIEWS + "test_what_a_program_says_was_decided_is_in_no_confirm",
    ),
    Mutant(
        "words of a token are nobody else's", "view/card.py",
        "if request.requester.issuer == TOKENS else (\"prompt\",)", "if False else (\"prompt\",)",
        "integration/test_inbox_pages.py::test_all_words_of_a_program_with_a_token_stand_apart",
    ),
    Mutant(
        "a title has little room for names", "channels/message.py",
        "token(role, _ROOM)}\" for role in sorted(escalation", "escape(role)}\" for role in sorted(escalation",
        "integration/test_outbox.py::test_whom_an_escalation_names_has_little_room_in_a_title",
    ),
    Mutant(
        "a target that is named by hand is read with care", "mplp/call.py",
        "with suppress(ArgumentError):", "with suppress(KeyError):",
        _MPLP_START + "test_a_call_that_cannot_be_read_is_of_no_target",
    ),
    Mutant(
        "what is exported conforms", "mplp/document.py",
        "problems = problems_of(schema_of(type(self)), plain) or list(self.beyond_schema(plain))", "problems = list[str]()",
        _MPLP_DOCUMENTS + "test_what_cannot_be_conformant_is_refused_at_export_by_its_name",
    ),
    Mutant(
        "an id that points elsewhere is not replaced", "mplp/spelling.py",
        "if names and names[-1] in _OF_ITSELF else text", "",
        _MPLP_DOCUMENTS + "test_an_id_that_points_elsewhere_is_never_replaced",
    ),
    Mutant(
        "a large document is not read", "mplp/reading.py",
        "if len(given) > LIMIT_BYTES:", "if False:",
        _MPLP_DOCUMENTS + "test_a_large_document_is_refused_before_it_is_read",
    ),
    Mutant(
        "a key of a document stands once", "mplp/reading.py",
        "if len(found) != len(pairs):", "if False:",
        _MPLP_DOCUMENTS + "test_what_is_no_document_is_refused",
    ),
    Mutant(
        "a program gives no decision another role", "mplp/group.py",
        "case \"confirm.said\", {\"of\"", "case _, {\"of\"",
        _MPLP_SERVED + "test_a_program_cannot_give_a_persons_decision_another_role",
    ),
    Mutant(
        "what is submitted can leave as JSON", "mplp/flow.py",
        "asked.role, asked.reason).export()", "asked.role, asked.reason)",
        _MPLP_SUBMIT + "test_words_that_cannot_leave_as_json_are_not_submitted",
    ),
    Mutant(
        "what was taken back for another round is none", "mplp/group.py",
        "if other is None or _is_withdrawn(other) or not _is_withdrawn(request):", "if True:",
        _MPLP_SUBMIT + "test_of_two_who_submit_another_round_at_one_time_one_waits",
    ),
    Mutant(
        "a subscriber changes nothing", "mplp/subscriber.py",
        "        except Exception:", "        except KeyError:",
        _MPLP_EVENTS + "test_a_subscriber_that_fails_changes_nothing",
    ),
    Mutant(
        "an event is told once", "mplp/flow.py",
        "        if event.event_id in group.told:\n            continue\n", "",
        _MPLP_EVENTS + "test_subscribers_and_the_journal_are_told_what_happened",
    ),
    Mutant(
        "secrets are masked in samples", "mplp/sample.py",
        "masked: Any = Redaction().mask(brought)", "masked: Any = brought",
        _MPLP_VIEWS + "test_a_secret_in_a_plan_is_masked_in_its_sample",
    ),
    # -- the pages of the inbox ------------------------------------------------------------------------------------
    Mutant(
        "what nobody gave counts as not given after an edit", "model/edit.py",
        "with_unset(_wrapped(schema.fit(merged, kept=kept)), canonical.load(before.form))",
        "_wrapped(schema.fit(merged, kept=kept))",
        "integration/test_inbox_deeds.py::test_what_nobody_gave_counts_as_given_only_once_it_is_changed",
    ),
    Mutant(
        "no cell of a table is a formula", "model/text.py",
        "if shown.lstrip().startswith(_FORMULA)", "if False",
        "integration/test_inbox_history.py::test_no_cell_of_a_table_is_a_formula",
    ),
    Mutant(
        "a page of a list ends after a number that was looked at", "inbox/listing.py",
        " or self.looked >= LOOK", "",
        "integration/test_inbox_history.py::test_a_filter_that_keeps_few_ends_a_page_early_and_goes_on_from_there",
    ),
    Mutant(
        "a page goes on behind the last request that it shows", "inbox/listing.py",
        "return self._list(states, place, passing[-1] + 1).cursor", "return page.cursor",
        "integration/test_inbox_history.py::test_a_filter_that_keeps_few_ends_a_page_early_and_goes_on_from_there",
    ),
    Mutant(
        "figures are bounded", "insight.py",
        "        if whole.asked == most:", "        if False:",
        "unit/test_insight.py::test_more_than_the_bound_is_not_read_and_that_is_said",
    ),
    Mutant(
        "figures cost one look in a minute", "inbox/insights.py",
        "if kept is None or not kept.until <= now < kept.until + _FRESH:", "if True:",
        "integration/test_inbox_history.py::test_figures_are_looked_up_once_in_a_minute",
    ),
    Mutant(
        "no password of a store is shown", "inbox/settings.py",
        'if "@" not in parts.netloc:', "if True:",
        "integration/test_inbox_settings.py::test_no_password_of_a_store_is_shown",
    ),
    Mutant(
        "only a channel of the settings can be tried", "inbox/settings.py",
        "    if name not in tables:\n", "    if False:\n",
        "integration/test_inbox_settings.py::test_only_a_channel_of_the_settings_can_be_tried",
    ),
    Mutant(
        "a page that is left is watched no more", "inbox/live.py",
        "            self._unwatch.pop(one)()\n", "            self._unwatch.pop(one)\n",
        "integration/test_inbox_serve.py::test_a_page_that_is_left_is_watched_no_more",
    ),
    Mutant(
        "what changed before a fault of the store is looked at again", "inbox/live.py",
        "            for one in changed:\n                self._changed.put(one)\n", "",
        "integration/test_inbox_serve.py::test_a_stream_outlives_a_fault_of_the_store",
    ),
    # -- evidence ---------------------------------------------------------------------------------------------------
    Mutant(
        "a row that a checkpoint or an anchor knows is the one that stands there", "audit/walk.py",
        "if one.head.link != entry.link:", "if False:",
        _CHECKPOINTS + "test_a_chain_that_was_written_anew_with_its_requests_is_missed",
    ),
    Mutant(
        "a chain reaches to where a checkpoint or an anchor knows it", "audit/walk.py",
        "if self._here and run_id not in self.broken:", "if False:",
        _CHECKPOINTS + "test_an_end_or_chain_that_was_cut_off_with_its_requests_is_missed",
    ),
    Mutant(
        "a chain that a checkpoint or an anchor knows is there", "audit/walk.py",
        "for run_id, known in self._known.items():", "for run_id, known in ():",
        _CHECKPOINTS + "test_an_end_or_chain_that_was_cut_off_with_its_requests_is_missed",
    ),
    Mutant(
        "a purged request is as its purge left it", "model/journal.py",
        'if event == "purged" or not self.states else self.asked', "if not self.states else self.asked",
        _PURGE + "test_a_purged_journal_verifies_and_a_receipt_from_before_holds",
    ),
    Mutant(
        "a checkpoint counts only behind the one that it names", "audit/checkpoint.py",
        'elif made.before == ("" if self.newest is None else self.newest.link):', "else:",
        _CHECKPOINTS + "test_of_two_that_are_written_at_once_one_counts",
    ),
    Mutant(
        "a checkpoint's signature holds", "audit/checkpoint.py",
        "if made.key is not None and not _is_signed(made):", "if False:",
        _CHECKPOINTS + "test_a_checkpoint_that_was_forged_is_found",
    ),
    Mutant(
        "the newest checkpoint is signed by the key that is trusted", "audit/checkpoint.py",
        "if newest is not None and trusted is not None and newest.key != trusted:", "if False:",
        _CHECKPOINTS + "test_a_checkpoint_that_was_forged_is_found",
    ),
    Mutant(
        "the root of a checkpoint is that of its heads", "audit/checkpoint.py",
        "if newest is not None and newest.root != root_of(lines_of(reading.heads.values())):", "if False:",
        _CHECKPOINTS + "test_a_checkpoint_that_was_forged_is_found",
    ),
    Mutant(
        "a checkpoint that fails stops no later one", "audit/schedule.py",
        "except Exception as error:", "except ZeroDivisionError as error:",
        _CHECKPOINTS + "test_a_checkpoint_that_fails_stops_nothing",
    ),
    Mutant(
        "no checkpoint is written over a loss", "audit/checkpoint.py",
        "    if wrong:\n        raise errors.EvidenceError(\n", "    if False:\n        raise errors.EvidenceError(\n",
        _LOSSES + "test_no_checkpoint_is_written_over_a_loss",
    ),
    Mutant(
        "a row that a checkpoint knows is looked for", "audit/checkpoint.py",
        "        if head.seq not in links:\n", "        if False:\n",
        _LOSSES + "test_no_checkpoint_is_written_over_a_loss",
    ),
    Mutant(
        "a row that a checkpoint knows is still the same", "audit/checkpoint.py",
        "elif links[head.seq] != head.link:", "elif False:",
        _LOSSES + "test_no_checkpoint_is_written_over_a_loss",
    ),
    Mutant(
        "the journal is held to every checkpoint, not to the newest alone", "audit/checkpoint.py",
        "self.known += [Known(head, witness)", "self.known = [Known(head, witness)",
        _LOSSES + "test_one_that_was_written_over_a_loss_all_the_same_hides_nothing",
    ),
    Mutant(
        "a row that an older checkpoint knows is looked for once", "audit/checkpoint.py",
        "(*newest.values(), *past.known[past.held :])", "newest.values()",
        _LOSSES + "test_one_that_was_written_over_a_loss_all_the_same_hides_nothing",
    ),
    Mutant(
        "a checkpoint names one before it that is there", "audit/checkpoint.py",
        "if made.before not in self.links:", "if False:",
        _LOSSES + "test_checkpoints_whose_earlier_ones_were_removed_are_found",
    ),
    Mutant(
        "a checkpoint knows no less than one before it", "audit/checkpoint.py",
        "if (old.seq, old.link) != (head.seq, head.link) and old.seq >= head.seq:", "if False:",
        _LOSSES + "test_a_checkpoint_that_knows_less_than_one_before_it_is_found",
    ),
    Mutant(
        "a checkpoint is itself a row that is known", "audit/checkpoint.py",
        "(*new, Head(CHAIN, made.seq, made.link))]", "new]",
        _LOSSES + "test_an_older_copy_that_is_put_back_under_a_server_is_found_by_what_it_remembers",
    ),
    Mutant(
        "a place that no chain can have is not looked for", "audit/checkpoint.py",
        "if not 0 < int(seq) < _MOST:", "if False:",
        _LOSSES + "test_a_checkpoint_whose_place_no_chain_can_have_is_none",
    ),
    Mutant(
        "a server says each time that a checkpoint was refused", "audit/schedule.py",
        "except errors.EvidenceError as error:", "except ZeroDivisionError as error:",
        _LOSSES + "test_a_server_says_each_time_that_none_was_written_and_goes_on",
    ),
    Mutant(
        "there is no receipt of rows that a checkpoint knows otherwise", "audit/receipt.py",
        "if covered is not None and rows[-1].link != covered[2].link:", "if False:",
        _LOSSES + "test_there_is_no_receipt_of_rows_that_were_written_anew",
    ),
    Mutant(
        "nobody is asked to look and to write at once", "cli/log.py",
        "    if verify and checkpoint:\n", "    if False:\n",
        _EVIDENCE + "test_to_look_and_to_write_are_said_apart",
    ),
    Mutant(
        "a no keeps what a purge would remove", "cli/purge.py",
        "if not _is_sure(would, before):", "if _is_sure(would, before) is None:",
        _EVIDENCE + "test_a_purge_that_was_not_wanted_says_that_nothing_was_removed",
    ),
    Mutant(
        "the heads of an anchor are those of its root", "audit/anchor.py",
        "if root_of(lines_of(heads)) != made.root or len(heads) != made.chains:", "if False:",
        _CHECKPOINTS + "test_an_anchor_whose_heads_are_not_those_of_its_root_is_refused",
    ),
    Mutant(
        "the signature of an anchor's checkpoint holds", "audit/anchor.py",
        'if made.key is not None and not signed_by(made.key, made.signature, made.statement.encode("ascii", "replace")):',
        "if False:",
        _CHECKPOINTS + "test_an_anchor_whose_heads_are_not_those_of_its_root_is_refused",
    ),
    Mutant(
        "an anchor of another store is told apart", "audit/anchor.py",
        "if mine.isdisjoint(head.run_id for head in store.heads()):", "if False:",
        _CHECKPOINTS + "test_an_anchor_of_another_store_says_so",
    ),
    Mutant(
        "a document has one form to the byte", "audit/paper.py",
        'if _framed(kind, said, proof).encode("ascii", "replace") != content:', "if False:",
        _RECEIPTS + "test_a_receipt_with_a_byte_put_in_or_taken_away_is_refused",
    ),
    Mutant(
        "the digest of a document is that of its text", "audit/paper.py",
        'if proof["digest"] != _digest(said):', "if False:",
        _RECEIPTS + "test_an_unsigned_receipt_of_which_any_byte_was_changed_is_refused",
    ),
    Mutant(
        "the signature of a document is that of its text", "audit/paper.py",
        'if key is not None and not signed_by(key, proof["signature"], said.encode("ascii")):', "if False:",
        _RECEIPTS + "test_a_receipt_of_which_any_byte_was_changed_is_refused",
    ),
    Mutant(
        "a document is signed by the key that is trusted", "audit/paper.py",
        "if trusted is not None and key != trusted:", "if False:",
        _RECEIPTS + "test_a_receipt_must_be_signed_by_the_key_that_is_trusted",
    ),
    Mutant(
        "an unsigned document is not taken for a signed one", "audit/paper.py",
        "if key is None and trusted is not None:", "if False:",
        _RECEIPTS + "test_a_receipt_must_be_signed_by_the_key_that_is_trusted",
    ),
    Mutant(
        "a file is looked at before it is read whole", "audit/paper.py",
        "if content != _begin(kind):", "if False:",
        _RECEIPTS + "test_a_file_that_is_no_receipt_or_too_long_is_refused",
    ),
    Mutant(
        "a file is no longer than such a document can be", "audit/paper.py",
        "if len(content) > limit:", "if False:",
        _RECEIPTS + "test_a_file_that_is_no_receipt_or_too_long_is_refused",
    ),
    Mutant(
        "a private key that others can read signs nothing", "audit/key.py",
        'if os.name == "posix" and mode & 0o077:', "if False:",
        _EVIDENCE + "test_a_key_that_cannot_be_used_signs_nothing_and_nothing_is_written_unsigned",
    ),
    Mutant(
        "a key is never written over", "audit/key.py",
        "os.O_CREAT | os.O_EXCL | os.O_WRONLY", "os.O_CREAT | os.O_TRUNC | os.O_WRONLY",
        _EVIDENCE + "test_a_key_is_its_owners_alone_and_is_never_written_over",
    ),
    Mutant(
        "each row of a receipt follows from the one before", "audit/receipt.py",
        "or chained(before, *row[:-1]) != row:", "or False:",
        _RECEIPTS + "test_a_receipt_that_does_not_go_together_is_refused_whoever_signed_it",
    ),
    Mutant(
        "the first row of a chain follows from its run", "audit/receipt.py",
        "if seq == 1 and before != first_link(run_id):", "if False:",
        _RECEIPTS + "test_rows_that_begin_too_late_are_refused",
    ),
    Mutant(
        "a receipt begins where its request was asked", "audit/receipt.py",
        'if not own or own[0] != rows[0] or own[0].event != "asked":', "if not own:",
        _RECEIPTS + "test_rows_that_begin_too_late_are_refused",
    ),
    Mutant(
        "a receipt says what its rows say", "audit/receipt.py",
        "if json.dumps(found) != json.dumps(said):", "if False:",
        _RECEIPTS + "test_a_receipt_that_does_not_go_together_is_refused_whoever_signed_it",
    ),
    Mutant(
        "the rows of a receipt are under its checkpoint's root", "audit/receipt.py",
        "if climbed(line_of(Head(last.run_id, last.seq, last.link)), found[\"proof\"]) != made.root:", "if False:",
        _RECEIPTS + "test_rows_that_were_chained_anew_do_not_lead_to_the_checkpoint",
    ),
    Mutant(
        "the checkpoint of a receipt is signed by the key that is trusted", "audit/receipt.py",
        "if trusted is not None and made.key != trusted:", "if False:",
        _RECEIPTS + "test_a_receipt_must_be_signed_by_the_key_that_is_trusted",
    ),
    Mutant(
        "the signature of a receipt's checkpoint holds", "audit/receipt.py",
        'if made.key is not None and not signed_by(made.key, made.signature, made.statement.encode("ascii")):',
        "if False:",
        _RECEIPTS + "test_a_receipt_that_does_not_go_together_is_refused_whoever_signed_it",
    ),
    Mutant(
        "what a receipt shows has the digest that its rows carry", "audit/statement.py",
        "if shown_digest(text) != digest:", "if False:",
        _RECEIPTS + "test_a_receipt_that_does_not_go_together_is_refused_whoever_signed_it",
    ),
    Mutant(
        "a receipt draws what its text says", "audit/statement.py",
        'if json.dumps({**drawn, "text": text}) != json.dumps(found):', "if False:",
        _RECEIPTS + "test_a_receipt_that_does_not_go_together_is_refused_whoever_signed_it",
    ),
    Mutant(
        "the outcome of a receipt is one that its rows lead to", "audit/statement.py",
        'if body["outcome"]["state"] not in said.states:', "if False:",
        _RECEIPTS + "test_a_receipt_that_does_not_go_together_is_refused_whoever_signed_it",
    ),
    Mutant(
        "there is no receipt of what can still change", "audit/receipt.py",
        "if not request.is_final:", "if False:",
        _RECEIPTS + "test_a_receipt_of_a_request_that_still_waits_is_not_made",
    ),
    Mutant(
        "no character hides in a cell", "model/text.py",
        """_BEHIND.sub(";'", escape(text))""", """_BEHIND.sub(";'", text)""",
        _EXPORT + "test_no_character_hides_in_an_export",
    ),
    Mutant(
        "nothing that lives is purged", "model/journal.py",
        "if not request.is_final:", "if False:",
        _PURGE + "test_nothing_that_lives_is_purged",
    ),
    Mutant(
        "nothing that ended later is purged", "model/journal.py",
        "if ended_at(request) >= before:", "if False:",
        _PURGE + "test_what_ended_later_is_not_purged",
    ),
    Mutant(
        "what a run still needs is not purged", "stores/evidence_verbs.py",
        "if run is not None and run.state is not RunState.ENDED:", "if False:",
        _PURGE + "test_what_a_run_still_needs_is_not_purged",
    ),
    Mutant(
        "a run that goes on keeps its steps", "stores/evidence_verbs.py",
        "if run.state is not RunState.ENDED or run.updated_at >= before:", "if run.updated_at >= before:",
        _PURGE + "test_what_a_run_still_needs_is_not_purged",
    ),
    Mutant(
        "what is left of a purged request has its digest", "stores/codec.py",
        'detail["asked"] = asked_digest(values, seal)\n    return {name', 'return {name',
        _PURGE + "test_a_purged_journal_verifies_and_a_receipt_from_before_holds",
    ),
    Mutant(
        "a purged file is written anew", "stores/sqlite.py",
        'connection.execute("VACUUM")', "pass",
        _PURGE + "test_what_was_purged_is_in_no_file",
    ),
    Mutant(
        "messages about what was purged go too", "stores/evidence_verbs.py",
        "tx.drop_slip(outbox.delivery_kind(name), request_id)", "pass",
        _PURGE + "test_messages_about_it_that_were_not_sent_go_too",
    ),
    Mutant(
        "a purged run is not begun again", "runs/leg.py",
        "if not kept.steps:", "if False:",
        _PURGED + "test_a_run_that_ended_and_was_purged_is_not_begun_again",
    ),
    Mutant(
        "a purge wants a yes", "cli/purge.py",
        "if not dry_run and not is_sure:", "if False:",
        _EVIDENCE + "test_a_purge_says_how_much_goes_and_wants_a_yes",
    ),
    Mutant(
        "an anchor is not written over", "cli/evidence.py",
        "if not may_replace and path.exists():", "if False:",
        _EVIDENCE + "test_a_journal_is_held_to_an_anchor",
    ),
    Mutant(
        "what was purged teaches nothing", "learning/lesson.py",
        " and request.purged_at is None", "",
        _LEARNING + "test_what_nobody_decided_and_what_was_purged_is_left_out",
    ),
    Mutant(
        "a reason quotes no secret", "learning/lesson.py",
        "redaction.fit(words.strip(), secrets_of(request))", "words.strip()",
        _LEARNING + "test_no_secret_is_in_anything_that_is_learned",
    ),
    Mutant(
        "a sample quotes no secret", "mplp/sample.py",
        "return without(sample, _BROUGHT, secrets_of(request))", "return sample",
        _LEARNING + "test_no_secret_is_in_anything_that_is_learned",
    ),
    Mutant(
        "a reason does not tell what a gate's redactor hides", "mplp/quote.py",
        "redaction.secrets(tree) | {text for text in redaction.texts(tree) if not _stands_in(shown, text)}",
        "redaction.secrets(tree)",
        _LEARNING + "test_what_a_gates_own_redactor_hides_is_not_told_by_a_reviewers_words",
    ),
    Mutant(
        "what a program takes back teaches nothing", "learning/lesson.py",
        " and not request.decision.is_withdrawal", "",
        _LEARNING + "test_what_the_program_takes_back_is_nobodys_decision",
    ),
    Mutant(
        "a cancel through a channel of a program's name is a person's", "model/request.py",
        "self.channel == PROGRAM and self.by.issuer == PROGRAM", "self.channel == PROGRAM",
        _LEARNING + "test_a_cancel_of_a_person_is_a_decision",
    ),
    Mutant(
        "a round that was taken back hides no decision", "learning/sample.py",
        "if is_lesson(one)]", "if one.decision is not None and one.purged_at is None]",
        _LEARNING + "test_a_round_that_the_program_took_back_hides_no_decision_about_a_plan",
    ),
    Mutant(
        "figures count what a program takes back for nobody", "insight.py",
        "if request.decision is not None and request.decision.is_withdrawal:", "if False:",
        "unit/test_insight.py::test_what_the_program_takes_back_is_nobodys_decision",
    ),
    Mutant(
        "a program is no reviewer", "insight.py",
        "if request.decision is not None and not request.decision.is_withdrawal:", "if request.decision is not None:",
        "unit/test_insight.py::test_what_the_program_takes_back_is_nobodys_decision",
    ),
    Mutant(
        "an approval that ran out is no refusal", "mplp/sample.py",
        "if request.state is State.EXPIRED and request.decision is not None:", "if False:",
        _LEARNING + "test_an_approval_that_ran_out_unused_is_an_approval",
    ),
    Mutant(
        "a plan's sample quotes no secret", "mplp/sample.py",
        "return without(made, _BROUGHT_BY_PLAN, Redaction().secrets(brought))", "return made",
        "integration/test_mplp_views.py::test_a_secret_that_a_reviewer_quotes_is_masked_in_each_sample",
    ),
    Mutant(
        "no formula behind a semicolon", "model/text.py",
        """_BEHIND.sub(";'", escape(text))""", "escape(text)",
        _LEARNING + "test_no_cell_is_a_formula_where_semicolons_end_cells",
    ),
    Mutant(
        "a rule lets nothing through that it cannot look at", "learning/rule.py",
        "if field.is_always(calls) and _literal(field) is None:", "if False:",
        _LEARNING + "test_no_rule_lets_through_what_it_cannot_look_at",
    ),
    Mutant(
        "a value that is no literal is in no rule", "learning/rule.py",
        "if tag_in(named) is not None:", "if False:",
        _LEARNING + "test_no_rule_lets_through_what_it_cannot_look_at",
    ),
    Mutant(
        "hasty approvals propose no rule", "learning/finding.py",
        "rule=None if half < HASTE else rule_text(", "rule=rule_text(",
        _LEARNING + "test_hasty_approvals_propose_no_rule",
    ),
    Mutant(
        "what was refused once is no candidate for a rule", "learning/finding.py",
        "and tool.as_proposed == tool.decided:", "and tool.as_proposed:",
        _LEARNING + "test_one_refusal_or_change_and_it_is_no_candidate",
    ),
    Mutant(
        "few decisions propose no rule", "learning/finding.py",
        "tool.decided >= FEWEST and ", "",
        _LEARNING + "test_few_decisions_say_nothing",
    ),
    Mutant(
        "a plan is no candidate for a gate's rule", "learning/gathered.py",
        "self.is_gate and facts_of(request) is None", "self.is_gate",
        _LEARNING + "test_a_submitted_plan_is_no_candidate_for_a_gates_rule",
    ),
    Mutant(
        "a rule does not ask for an argument that may be missing", "learning/rule.py",
        "_test(argument, field) if field.seen == calls else None", "_test(argument, field)",
        _LEARNING + "test_a_rule_asks_for_no_argument_that_was_missing_once",
    ),
    Mutant(
        "an argument's name is no code in a rule", "learning/rule.py",
        "not argument.isidentifier() or ", "",
        _LEARNING + "test_hostile_values_stay_literals_in_a_rule",
    ),
    Mutant(
        "a value is no code in a rule", "learning/rule.py",
        "literal = ascii(_value(tree))", "literal = f\"'{_value(tree)}'\"",
        _LEARNING + "test_hostile_values_stay_literals_in_a_rule",
    ),
    Mutant(
        "masked values are not compared", "learning/field.py",
        "if self.is_masked or _MASKED in text:", "if self.is_masked:",
        _LEARNING + "test_what_is_always_approved_unchanged_is_a_candidate",
    ),
    Mutant(
        "a fault of telemetry reaches no gate", "telemetry.py",
        "with suppress(Exception):  # the same", "with suppress(ZeroDivisionError):",
        _TELEMETRY + "test_a_fault_of_telemetry_reaches_no_gate",
    ),
    Mutant(
        "a provider that fails reaches no gate", "telemetry.py",
        "with suppress(Exception):  # providers, processors and exporters", "with suppress(ZeroDivisionError):  #",
        _TELEMETRY + "test_a_fault_of_telemetry_reaches_no_gate",
    ),
    Mutant(
        "who records nothing loads nothing", "telemetry.py",
        "if _API not in sys.modules:", "if False:",
        _TELEMETRY + "test_nothing_of_it_is_loaded_by_a_program_that_does_not",
    ),
    Mutant(
        "an error is told by its kind", "telemetry.py",
        'said["error.type"] = type(raised).__qualname__', 'said["error.type"] = str(raised)',
        _TELEMETRY + "test_no_argument_is_in_what_is_recorded",
    ),
    Mutant(
        "behind a proxy nobody sits at this machine", "inbox/metrics.py",
        "settings.base_url is None", "True",
        _METRICS + "test_behind_a_proxy_nobody_sits_at_this_machine",
    ),
    Mutant(
        "only this machine reads metrics without a token", "inbox/metrics.py",
        "http.client.host in LOOPBACK", "http.client.host",
        _METRICS + "test_a_server_for_this_machine_alone_tells_this_machine_alone",
    ),
    Mutant(
        "a program's token does not read metrics", "inbox/metrics.py",
        'principal_of(http).kind == "ask"', 'principal_of(http).kind == ""',
        _METRICS + "test_a_session_and_tokens_of_people_may_read_and_a_programs_may_not",
    ),
    Mutant(
        "a scraper's token cannot be guessed", "inbox/metrics.py",
        "if len(text) < _SHORTEST:", "if False:",
        _METRICS + "test_a_scrapers_token_that_can_be_guessed_opens_nothing",
    ),
    Mutant(
        "events between two looks are counted once", "inbox/metrics.py",
        "self._number = one.number  # and", "pass  # and",
        _METRICS + "test_what_people_decide_is_counted_from_the_first_look_on",
    ),
    Mutant(
        "a server that ends watches no store for its scrapers", "inbox/metrics.py",
        ".add_done_callback(self._rest)", "",
        _NO_MORE + "test_a_server_that_ends_leaves_nothing_watched",
    ),
    Mutant(
        "a server that ends watches no store for programs that may come back", "inbox/api/wait.py",
        ".add_done_callback(rest)", "",
        _NO_MORE + "test_a_server_that_ends_leaves_nothing_watched",
    ),
    Mutant(
        "a quiet store is watched for longer than half an hour", "stores/watch.py",
        "quiet = min(quiet + 1, 2 * _LINGER)", "quiet += 1",
        "unit/test_watch.py::test_the_thread_slows_down_while_nothing_happens",
    ),
    Mutant(
        "a wake that fails keeps nobody else asleep", "stores/watch.py",
        "            except Exception:  # noqa: BLE001  whose wake", "            except ZeroDivisionError:  # whose wake",
        "unit/test_watch.py::test_a_wake_that_fails_keeps_nobody_else_asleep",
    ),
    Mutant(
        "what is open is followed whole or not at all", "inbox/api/happenings.py",
        "        found = dict[str, _Followed]()\n", "        found = self._followed = dict[str, _Followed]()\n",
        _RING + "test_a_first_look_that_fails_half_way_loses_nothing_afterwards",
    ),
    Mutant(
        "who could not begin to listen leaves nothing behind", "inbox/api/happenings.py",
        "                    self._pause()  # so that the next one who listens begins anew\n", "",
        _RING + "test_a_first_look_that_fails_half_way_loses_nothing_afterwards",
    ),
    Mutant(
        "a look that failed is made again", "inbox/api/happenings.py",
        "                    self._has_rung.set()  # the next one who asks looks again\n", "",
        _RING + "test_a_look_anew_that_fails_is_made_again_and_said",
    ),
    Mutant(
        "a damaged request does not silence the ring", "inbox/api/happenings.py",
        "        except errors.StoreCorruptError as fault:  # one damaged", "        except ZeroDivisionError as fault:  # one damaged",
        _RING + "test_a_request_that_cannot_be_read_keeps_nobody_from_hearing_of_the_others",
    ),
    Mutant(
        "a stream that closes does not wait for a look", "inbox/api/stream.py",
        "asyncio.get_running_loop().run_in_executor(None, end)", "end()",
        _RING + "test_a_stream_that_closes_while_the_store_is_slow_holds_up_no_loop",
    ),
    Mutant(
        "a look that takes long is followed by a rest", "stores/watch.py",
        "sleep(min(IDLE, _REST * (thread_time() - began)))", "sleep(0)",
        "unit/test_watch.py::test_a_look_is_followed_by_a_rest_of_its_length",
    ),
    Mutant(
        "a wake is taken back once", "stores/watch.py",
        "        mine = _Waiting(wake)\n        with self._lock:\n            self._waiting",
        "        mine = wake\n        with self._lock:\n            self._waiting",
        "unit/test_watch.py::test_a_wake_that_is_taken_back_twice_takes_nobody_elses",
    ),
    Mutant(
        "who leaves before it is asked for is not asked for", "stores/http.py",
        "self._news.is_set() or self._bell.is_idle:", "self._news.is_set():",
        _NO_MORE + "test_a_program_that_leaves_while_it_is_about_to_ask_asks_no_more",
    ),
    Mutant(
        "an answer that is not a sayso server's is a fault of the store", "stores/http_transport.py",
        "except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:",
        "except ZeroDivisionError as error:",
        _SERVED + "test_another_servers_answer_is_a_fault_of_the_store_in_every_verb",
    ),
    Mutant(
        "a token that the server does not know is told so", "stores/http_transport.py",
        "if status == _NOT_KNOWN:", "if False:",
        _SERVED + "test_a_token_that_ended_opens_nothing_and_the_program_is_told",
    ),
    Mutant(
        "a run name that is another's is told to who asks", "stores/http_transport.py",
        "refusal.args = (said,)", "pass",
        _SERVED + "test_who_asks_in_a_run_that_another_began_is_told_to_take_another_name",
    ),
    Mutant(
        "a foreign run answers as one that is not there", "inbox/api/ask.py",
        "own.must_be_mine(said.run_id)", "own.must_be_free(said.run_id)",
        _ATTACKS + "test_the_whole_answer_about_a_foreign_run_is_that_about_none",
    ),
    Mutant(
        "nobody is asked to decide with a token that only asks", "wait.py",
        "terminal.is_there() and terminal.can_decide(self._store)", "terminal.is_there()",
        _SERVED + "test_a_gate_names_the_servers_page_and_asks_nothing_that_the_token_cannot_do",
    ),
    Mutant(
        "a gate on a server names no command that is refused", "terminal.py",
        "if not can_decide(store):", "if False:",
        _SERVED + "test_a_gate_names_the_servers_page_and_asks_nothing_that_the_token_cannot_do",
    ),
    Mutant(
        "doctor tries to make each configured channel", "channels/checkup.py",
        "        outlet.make(name, table)\n", "        pass\n",
        "integration/test_notify.py::test_doctor_finds_a_channel_that_can_never_send",
    ),
    Mutant(
        "the inbox marks what nobody comes back for", "inbox/draw.py",
        "program_gone=review.program_is_gone(request)", "program_gone=False",
        _BEHIND + "test_program_that_is_gone_is_marked_in_the_browser",
    ),
    Mutant(
        "the API tells what nobody comes back for", "inbox/api/wire.py",
        "program_gone=review.program_is_gone(request)", "program_gone=False",
        _BEHIND + "test_program_that_is_gone_is_marked_in_json",
    ),
    Mutant(
        "what nobody can come back to is withdrawn when it is detached", "wait.py",
        "if after.state is State.PENDING and decided.was_left and is_random(after.run_id):", "if False:",
        "integration/test_terminal_talk.py::test_to_detach_from_a_run_without_a_name_withdraws_and_says_so",
    ),
    Mutant(
        "a declined edit says that nothing was decided", "terminal.py",
        'self._screen.say("  the changes were dropped, nothing was decided")', "pass",
        "integration/test_terminal_talk.py::test_an_edit_that_is_not_confirmed_or_does_not_fit_decides_nothing",
    ),
    Mutant(
        "a call that stopped to ask waits for an answer", "inbox/api/ask.py",
        "    stop.must_be_answered(own, request)\n", "",
        _STARTS + "test_a_start_that_stopped_to_ask_is_given_back_once_for_each_answer",
    ),
    Mutant(
        "the program answers nothing for itself", "inbox/api/stop.py", "decision.by != own.me", "True",
        _STARTS + "test_what_the_program_takes_back_is_no_answer",
    ),
    Mutant(
        "an answer pays for one start", "inbox/api/stop.py", "and decision.at >= since", "",
        _STARTS + "test_an_answer_from_before_a_start_pays_for_no_other",
    ),
    Mutant(
        "an idempotent call has its share of starts", "inbox/api/ask.py",
        "    stop.must_have_starts(request)\n", "",
        _STARTS + "test_an_idempotent_call_has_its_share_of_starts",
    ),
    Mutant(
        "a server retries a call a few times at most", "inbox/api/ask.py",
        "if request.retries > stop.MOST_RETRIES:", "if False:",
        _STARTS + "test_more_retries_than_a_server_gives_are_refused",
    ),
    Mutant(
        "a hook has no name of the program's choice", "inbox/api/ask.py",
        "happened=said.happened, comment=None", "happened=said.happened, comment=said.hook",
        _STARTS + "test_what_a_program_calls_its_hook_is_not_recorded",
    ),
    Mutant(
        "a run is claimed before it is asked in", "inbox/api/ask.py",
        "own.claim(request.run_id)", "own.must_be_free(request.run_id)",
        _STARTS + "test_of_two_programs_that_begin_a_run_at_once_one_is_refused",
    ),
    Mutant(
        "a program reads its own rows of a run", "inbox/api/ask.py",
        "found += filter(own.may_read, rows)", "found += rows",
        _STARTS + "test_rows_of_another_programs_request_are_not_read_with_ones_own_run",
    ),
    Mutant(
        "many runs of others hide nobody's", "inbox/api/kept.py",
        "        if len(runs) < most:\n            return", "        return",
        _STARTS + "test_runs_that_can_go_on_are_found_behind_many_of_others",
    ),
    Mutant(
        "a person's sessions make room for each other", "inbox/session.py",
        "((mine, _MOST_OF_ONE), (list", "((list",
        "integration/test_proxy_sign_in.py::test_a_person_without_cookies_ends_nobody_elses_session",
    ),
    Mutant(
        "a proxy's header names one person", "inbox/proxy.py", 'if "," in names[0]:', "if False:",
        "integration/test_proxy_sign_in.py::test_a_header_that_may_name_two_signs_nobody_in",
    ),
    Mutant(
        "a review token is one of those who may review", "inbox/api/principal.py",
        'token.kind == "review" and not settings', "False and not settings",
        "integration/test_api_tokens.py::test_a_review_token_reviews_as_whom_the_settings_let_in",
    ),
    Mutant(
        "programs are told apart by their names", "inbox/token.py", 'if kind == "ask" and issuer != LOCAL:', "if False:",
        "integration/test_cli_token.py::test_what_cannot_be_done_makes_no_token",
    ),
    Mutant(
        "a token that is made stands in the journal", "inbox/token.py",
        ', note=_note("token_made", token, by, channel))', ")",
        _TOKENS + "test_a_token_that_is_made_stands_in_the_journal",
    ),
    Mutant(
        "a token that is revoked stands in the journal", "inbox/token.py",
        "note=noted(token)", "note=None",
        _TOKENS + "test_a_token_that_is_revoked_stands_in_the_journal_once",
    ),
    Mutant(
        "a slip and what is noted of it are written together", "stores/records.py",
        "    if note is not None:\n        tx.note(*note)", "    pass",
        "contract/test_stores.py::TestSqlite::test_what_is_noted_of_a_slip_stands_in_the_journal_where_the_slip_was_written",
    ),
    Mutant(
        "no program stands first in sayso's own chains", "inbox/api/own.py",
        "if run_id.startswith(_OWN_CHAINS):", "if False:",
        _TOKENS + "test_no_program_stands_first_in_a_chain_that_sayso_writes",
    ),
    Mutant(
        "a hook does not send too often", "inbox/hook.py",
        'self._rate.count(f"hook {hook.name}")', "pass",
        _LIMITS + "test_a_hook_that_sends_too_often_waits_and_no_other_does",
    ),
    Mutant(
        "what nobody has signed is counted", "inbox/hook.py",
        "if fault.kind.code in _UNSIGNED:", "if False:",
        _LIMITS + "test_what_nobody_has_signed_is_soon_refused_by_address_alone",
    ),
    Mutant(
        "no signature is computed for who sent too much", "inbox/hook.py",
        "rate.must_have_room(stranger)", "pass",
        _LIMITS + "test_no_signature_is_computed_and_no_body_read_for_who_sent_too_much",
    ),
    Mutant(
        "behind a proxy senders are told apart", "inbox/hook.py",
        "{settings.sender(http)}", "{http.client}",
        _LIMITS + "test_behind_a_trusted_proxy_the_address_is_the_senders",
    ),
    Mutant(
        "a hook speaks for whom the server lets review", "inbox/hook.py",
        "if not self._admits(reviewer):", "if False:",
        _LIMITS + "test_a_hook_speaks_only_for_whom_the_server_lets_review",
    ),
    Mutant(
        "hooks are held to the rules of the server", "inbox/app.py",
        "admits=sign_in.admits,", "",
        _LIMITS + "test_a_hook_speaks_only_for_whom_the_server_lets_review",
    ),
    Mutant(
        "a person of a hook is named once", "inbox/hook.py",
        "if len(people) < len(found):", "if False:",
        _LIMITS + "test_people_who_cannot_be_used_open_no_hook",
    ),
    Mutant(
        "a person's own roles count in place of the hook's", "channels/setting.py",
        'one.texts("roles") if "roles" in given else roles', "roles",
        _LIMITS + "test_each_person_of_a_hook_has_roles_of_their_own",
    ),
    Mutant(
        "Slack decides for whom the server lets review", "channels/slack_desk.py",
        "person if self._admission.admits(person) else _NOT_ADMITTED", "person",
        _SLACK + "test_who_may_not_review_on_the_server_decides_nothing_in_slack",
    ),
    Mutant(
        "Slack is held to the rules of the server", "channels/slack.py",
        "admission=admission.configured(),", "",
        _SLACK + "test_who_may_not_review_on_the_server_decides_nothing_in_slack",
    ),
    Mutant(
        "the settings page looks at channels as doctor does", "inbox/settings.py",
        "check(health(store))", "check(())",
        "integration/test_inbox_settings.py::test_a_channel_that_can_never_send_is_told_as_doctor_tells_it",
    ),
    Mutant(
        "a program has its share of open requests", "inbox/api/ask.py",
        "    if len(own.store.slips(kind, limit=limit)) >= limit:", "    if False:",
        _ATTACKS + "test_one_program_has_no_more_than_its_share_open_over_all_runs_and_hinders_no_other",
    ),
    Mutant(
        "what ended by itself leaves its program room", "inbox/api/ask.py",
        "own.store.settle(slip.key)", "pass",
        _ATTACKS + "test_what_waits_no_more_leaves_its_program_room",
    ),
    Mutant(
        "what was decided leaves its program room", "stores/outbox.py",
        "TOKENS and request.state is not State.PENDING:", "TOKENS and False:",
        _ATTACKS + "test_what_waits_no_more_leaves_its_program_room",
    ),
    Mutant(
        "a vote leaves its program no room", "stores/outbox.py",
        "TOKENS and request.state is not State.PENDING:", "TOKENS:",
        _ATTACKS + "test_a_vote_or_a_longer_span_leaves_no_room",
    ),
    Mutant(
        "a slip of the finger names no request", "cli/deeds.py",
        'if 0 < len(request_id.removeprefix("rq_")) < _SHORTEST:', "if False:",
        _SLIPPED + "test_a_slip_of_the_finger_decides_nothing",
    ),
    Mutant(
        "a run that there is not is told", "cli/desk.py",
        "if not self.store.journal(run_id=run_id, limit=1):", "if False:",
        _SLIPPED + "test_a_run_that_there_is_not_is_told_and_is_not_whole",
    ),
    Mutant(
        "a run that there is not is not whole", "cli/proof.py",
        "if run_id is not None and not found.rows and not found.broken:", "if False:",
        _SLIPPED + "test_a_run_that_there_is_not_is_told_and_is_not_whole",
    ),
    Mutant(
        "a run that was removed is broken, and not mistyped", "cli/proof.py",
        "not found.rows and not found.broken:", "not found.rows:",
        _SLIPPED + "test_a_run_that_was_removed_is_broken_where_a_checkpoint_knows_it",
    ),
    Mutant(
        "a store of lines that there is not is told", "cli/desk.py",
        'if address.startswith("jsonl:") else file_of(address)', "if False else file_of(address)",
        _SLIPPED + "test_looking_makes_no_store_and_no_folder",
    ),
    Mutant(
        "who only reads makes no file", "stores/jsonl_file.py",
        "self._open(may_make=False)", "self._open()",
        _JSONL + "test_who_only_reads_makes_no_file_and_no_folder",
    ),
    Mutant(
        "a second try tells nothing of the first", "stores/sqlite.py",
        "            with suppress(Stale):\n                return self._once(work, is_fresh=False)\n"
        "            return self._once(work, is_fresh=True)",
        "            try:\n                return self._once(work, is_fresh=False)\n"
        "            except Stale:\n                return self._once(work, is_fresh=True)",
        _SQLITE + "test_a_refusal_after_a_second_try_tells_nothing_of_the_first",
    ),
    Mutant(
        "a file that stays locked is not waited for again", "stores/sqlite.py",
        "if len(batch) > 1 and not locked_out:", "if len(batch) > 1:",
        _SQLITE + "test_a_file_that_stays_locked_is_refused_once_for_all_who_wait",
    ),
    Mutant(
        "an editor that fails decides nothing in plain words", "cli/editor.py",
        "except (click.ClickException, ValueError) as error:", "except ZeroDivisionError as error:",
        _SLIPPED + "test_an_editor_that_fails_decides_nothing_and_the_way_out_is_told",
    ),
    Mutant(
        "rows of the journal stand in columns", "view/document.py",
        "max([usual, *(size for _, event in rows if (size := columns(event)) <= most)])", "usual",
        "unit/test_journal_rows.py::test_who_did_it_stands_in_one_column_however_long_the_word_before",
    ),
    Mutant(
        "the no to a Confirm has a reason", "model/lifecycle.py",
        "    must_have_reason(request, decision)\n", "",
        _REASONS + "test_a_no_without_a_reason_is_refused",
    ),
    Mutant(
        "blanks are no reason", "model/edit.py",
        'is_blank(decision.comment or "")', "not decision.comment",
        _REASONS + "test_a_no_without_a_reason_is_refused",
    ),
    Mutant(
        "an edit leaves what a Confirm is about", "model/edit.py",
        '_FIXED = ("target_type", "target_id")', "_FIXED = ()",
        _REASONS + "test_an_edit_of_an_id_is_refused_when_it_is_decided",
    ),
    Mutant(
        "an export at once takes nothing that the protocol does not", "mplp/sample.py",
        "    if not all(is_sound(", "    if False and not all(is_sound(",
        _LEARNING + "test_what_the_protocol_does_not_take_is_found_without_documents",
    ),
    Mutant(
        "a sample's own words are not taken for a secret", "mplp/sample.py",
        '    ("feedback", "details"),\n)  # fmt: skip\n_BROUGHT_BY_PLAN',
        '    ("feedback", "details"), ("meta", "human_feedback_label"),\n)  # fmt: skip\n_BROUGHT_BY_PLAN',
        _LEARNING + "test_a_secret_that_reads_like_a_label_or_a_year_leaves_both",
    ),
    Mutant(
        "texts that are cleaned together are taken apart rightly", "mplp/quote.py",
        "if len(pieces) != len(texts) or any(_BETWEEN in secret for secret in secrets):", "if False:",
        _LEARNING + "test_a_secret_is_taken_out_of_each_text_that_quotes_it",
    ),
    Mutant(
        "what everybody sees is no secret", "mplp/quote.py",
        "return text in form or json.dumps(text, ensure_ascii=False)[1:-1] in form", "return text in form",
        _LEARNING + "test_an_argument_that_everybody_sees_is_no_secret",
    ),
    # -- Confirms that programs write by hand --------------------------------------------------------------------------
    Mutant(
        "a reason is something to see", "mplp/round.py",
        'is_blank(decision.reason or "")', 'not (decision.reason or "").strip()',
        _MPLP_DOCUMENTS + "test_a_rejection_without_a_reason_is_refused",
    ),
    Mutant(
        "the role that asked decides no document", "mplp/round.py",
        "if _is_own(confirm, decision):", "if False:",
        _MPLP_DOCUMENTS + "test_the_role_that_asked_decides_no_document",
    ),
    Mutant(
        "a Confirm of a store is decided in no other", "mplp/flow.py",
        "if group is None and confirm.home.seen is not None:", "if False:",
        _MPLP_DECIDE + "test_a_confirm_that_was_read_of_a_request_is_decided_in_no_other_store",
    ),
    Mutant(
        "the Confirm of a request is decided on the request", "mplp/flow.py",
        "if confirm.home.seen is None:", "if confirm.home.store is None:",
        _MPLP_DECIDE + "test_the_confirm_of_a_request_is_decided_where_the_request_waits",
    ),
    Mutant(
        "a request does not wait under a Confirm that another program writes about", "mplp/flow.py",
        "raise (yield from _taken_back(store, group)) from error", "raise",
        _MPLP_SERVED + "test_the_id_of_a_confirm_that_another_program_uses_leaves_nothing_waiting",
    ),
    Mutant(
        "nothing is added to a Confirm in place", "mplp/series.py",
        "append = extend = insert", "extend = insert",
        _MPLP_DOCUMENTS + "test_the_lists_of_a_confirm_do_not_change_in_place",
    ),
    Mutant(
        "what was decided is not added to in place", "mplp/round.py",
        "Series([*confirm.decisions, decision])", "[*confirm.decisions, decision]",
        _MPLP_DOCUMENTS + "test_the_lists_of_a_confirm_do_not_change_in_place",
    ),
    Mutant(
        "what a program brings along fits", "mplp/document.py",
        "if rule is not None and not problems_of(", "if True or not problems_of(",
        _MPLP_HOSTILE + "test_a_field_that_does_not_fit_is_left_out_of_a_plan",
    ),
    Mutant(
        "a Confirm is made of what fits", "mplp/view.py",
        "Confirm.fitting({name: value for name, value in facts.confirm.items() if name in BROUGHT})",
        "{name: value for name, value in facts.confirm.items() if name in BROUGHT}",
        _MPLP_HOSTILE + "test_a_field_that_does_not_fit_is_left_out_of_a_confirm",
    ),
    Mutant(
        "a plan has a context, whatever a program says", "mplp/view.py",
        '"context_id": id_of("context", facts.target_id)', '"context_id": ""',
        _MPLP_HOSTILE + "test_a_field_that_does_not_fit_is_left_out_of_a_plan",
    ),
    Mutant(
        "a role leaves as whole characters", "mplp/view.py",
        "storable(role) if isinstance(role, str)", "role if isinstance(role, str)",
        _MPLP_HOSTILE + "test_words_with_half_of_a_character_are_written_out",
    ),
    Mutant(
        "a kind of run is a word", "mplp/view.py",
        'str(facts.get("runnable_type")) in _RUNS', 'facts.get("runnable_type") in _RUNS',
        _MPLP_HOSTILE + "test_a_kind_of_run_that_is_no_word_is_none",
    ),
    Mutant(
        "an altered fingerprint stops no document", "mplp/view.py",
        'return id_of("fingerprint", fingerprint) if found is None else shaped(found[0])',
        "return shaped(fingerprint[:32])",
        _MPLP_HOSTILE + "test_a_row_that_was_altered_is_a_confirm_all_the_same",
    ),
    Mutant(
        "what waits as a plan is one", "mplp/call.py",
        "except (KeyError, TypeError, ValueError):", "except ZeroDivisionError:",
        _MPLP_HOSTILE + "test_what_is_no_plan_is_refused_as_one_and_left_out_of_samples",
    ),
    Mutant(
        "one program's request does not end the export of all", "learning/sample.py",
        "except _UNREADABLE as error:", "except ZeroDivisionError as error:",
        _MPLP_HOSTILE + "test_what_is_no_plan_is_refused_as_one_and_left_out_of_samples",
    ),
    Mutant(
        "an export says what it left out", "cli/learn.py",
        "    if unread:\n", "    if False:\n",
        _MPLP_HOSTILE + "test_an_export_says_what_it_left_out",
    ),
    Mutant(
        "what is no document is not served", "inbox/api/confirm.py",
        "except mplp.NotConformantError:", "except ZeroDivisionError:",
        _MPLP_HOSTILE + "test_a_target_whose_id_is_none_is_not_found_over_http",
    ),
    Mutant(
        "an error that says nothing about its effect is unknown",
        "gates/execute.py",
        'state = "unknown" if attempt.is_ambiguous or not isinstance(attempt.raised, Exception) else "failed"',
        'state = "unknown" if not isinstance(attempt.raised, Exception) else "failed"',
        "integration/test_ambiguous.py::test_a_timeout_reaches_the_caller_with_a_note_and_is_recorded_as_unknown",
    ),
    Mutant(
        "an error whose reading fails is unknown",
        "gates/outcome.py",
        "        return True\n\n\ndef _judged(",
        "        return False\n\n\ndef _judged(",
        "unit/test_ambiguous.py::test_an_error_that_cannot_be_read_is_ambiguous",
    ),
    Mutant(
        "an error is judged with what it was raised while handling",
        "gates/outcome.py",
        "    elif _has_context(error, handled) and name not in _EITHER:  # these say themselves what they are about",
        "    elif False:",
        "unit/test_ambiguous.py::test_an_error_that_says_nothing_about_the_effect_is_ambiguous",
    ),
    Mutant(
        "not executed is believed before anything else",
        "gates/outcome.py",
        "if key in met or name == _NOT_EXECUTED:",
        "if key in met:",
        "unit/test_ambiguous.py::test_not_executed_says_no_whatever_it_was_raised_from",
    ),
    Mutant(
        "a second attempt that was refused does not undo the first",
        "gates/outcome.py",
        'is_wrapper = name.partition(".")[0] not in _STANDARD',
        "is_wrapper = True",
        "unit/test_ambiguous.py::test_a_first_attempt_that_is_open_is_not_undone_by_a_second_that_was_refused",
    ),
    Mutant(
        "an unknown outcome is no end of a step",
        "runs/step.py",
        "        if attempt.is_ambiguous:\n            return None  # it has no end yet: a person, or `verify=`, finds out\n",
        "",
        "integration/test_ambiguous.py::test_a_run_stops_at_an_unknown_outcome_until_somebody_finds_out",
    ),
    Mutant(
        "an unknown outcome stops the run",
        "runs/step.py",
        "    if attempt.is_ambiguous:\n        raise errors.OutcomeUnknownError(request.id) from attempt.raised\n",
        "",
        "integration/test_ambiguous.py::test_an_error_that_nobody_can_mark_stops_the_run_as_well",
    ),
    Mutant(
        "an unknown outcome inside of a tool stops the run",
        "runs/step.py",
        "            if request_id is not None:\n                raise errors.OutcomeUnknownError(request_id) from error\n",
        "",
        "integration/test_ambiguous.py::test_a_gated_function_inside_of_a_tool_stops_the_run_as_well",
    ),
    Mutant(
        "no model talks its way around an unknown outcome",
        "runs/react.py",
        "            if request_id := unknown_request(error):\n                raise errors.OutcomeUnknownError(request_id) from error\n",
        "",
        "integration/test_ambiguous.py::test_react_ends_with_the_unknown_outcome_and_its_model_is_not_asked_again",
    ),
    Mutant(
        "no secret is told to a model in a person's words",
        "view/for_model.py",
        "return scrub(text, secrets) if secrets else text",
        "return text",
        "integration/test_message_for_model.py::test_a_persons_words_are_quoted_bounded_and_hold_no_secret",
    ),
    Mutant(
        "a person's words are quoted to a model",
        "view/for_model.py",
        "return brief(words, _WORDS_ROOM)",
        "return words",
        "integration/test_message_for_model.py::test_a_persons_words_are_quoted_bounded_and_hold_no_secret",
    ),
    Mutant(
        "an agent's model reads what a person wrote when they approved",
        "runs/agent.py",
        'return call_message(call, approval_words(below.metadata.get("approval")) + text_of(value), is_error=False)',
        "return call_message(call, text_of(value), is_error=False)",
        "integration/test_message_for_model.py::test_an_agents_model_gets_this_text_before_the_result_or_in_its_place",
    ),
    Mutant(
        "a step that was altered is not believed",
        "stores/sqlite_transaction.py",
        "if not is_old and not _is_linked(link, newest, run_id, n, *step):",
        "if False:",
        "integration/test_altered_runs.py::test_nothing_more_runs_for_a_run_of_which_anything_was_altered",
    ),
    Mutant(
        "a run whose row was altered, or whose newest step was taken away, does not go on",
        "stores/sqlite_transaction.py",
        "if not is_old and not _is_linked(link, newest, *row):",
        "if False:",
        "integration/test_altered_runs.py::test_nothing_more_runs_for_a_run_of_which_anything_was_altered",
    ),
    Mutant(
        "a run whose row has another name is not begun anew",
        "stores/sqlite_transaction.py",
        "if found is None and self._execute(_ANY, (run_id,)).fetchone() is not None:",
        "if False:",
        "integration/test_altered_runs.py::test_nothing_more_runs_for_a_run_of_which_anything_was_altered",
    ),
]  # fmt: skip
