//! Tests of a node's effects, order by order.

use proptest::prelude::*;

use super::*;
use crate::id::JobId;

const ATTEMPT: Attempt = Attempt { job: JobId(42), restart: 0 };
const ZERO: StepId = StepId(0);

/// A node with a prolog and an epilog.
fn both() -> Compute {
    Compute::recover(Site { prolog: true, epilog: true }, Vec::new()).0
}

/// The launch of a job that has other nodes, too.
fn launch() -> Input {
    Input::Launch { attempt: ATTEMPT, alone: false }
}

fn prolog_done() -> Input {
    Input::PrologDone { attempt: ATTEMPT, error: None }
}

fn ended(step: StepId) -> Input {
    let end = StepEnd::Exited { end: ExitCode::exited(3).into() };
    Input::StepEnded { attempt: ATTEMPT, step, end }
}

/// The effects of several inputs, without those that only store records.
fn after(compute: &mut Compute, inputs: impl IntoIterator<Item = Input>) -> Vec<Effect> {
    let effects = inputs.into_iter().flat_map(|input| compute.handle(input));
    effects.filter(|effect| !matches!(effect, Effect::Remember { .. })).collect()
}

fn report(id: u64, report: Report) -> Effect {
    Effect::Report { id, attempt: ATTEMPT, report }
}

#[test]
fn a_batch_job_from_launch_to_forgetting() {
    let mut compute = both();
    let attempt = ATTEMPT;
    let batch_ended = Report::BatchEnded { end: ExitCode::exited(3).into(), lost: false, done: false };
    let done = Report::NodeDone { epilog_error: None };
    let steps = [
        (launch(), vec![Effect::RunProlog { attempt }]),
        (prolog_done(), vec![Effect::Spawn { attempt, step: StepId::BATCH }]),
        (ended(StepId::BATCH), vec![report(1, batch_ended)]),
        (
            Input::Acknowledge { reports: vec![1] },
            vec![Effect::StepAcknowledged { attempt, step: StepId::BATCH }],
        ),
        (Input::Terminate { attempt, kill: false }, vec![Effect::RunEpilog { attempt }]),
        (Input::EpilogDone { attempt, error: None }, vec![report(2, done)]),
        (Input::Acknowledge { reports: vec![2] }, vec![]),
        (Input::Forget { attempt }, vec![Effect::Forget { attempt, steps: vec![StepId::BATCH] }]),
        (Input::Forget { attempt }, vec![]),
    ];
    for (input, expected) in steps {
        let name = format!("{input:?}");
        assert_eq!(after(&mut compute, [input]), expected, "{name}");
    }
    assert_eq!((compute.held().count(), compute.outstanding().count()), (0, 0));
}

#[test]
fn what_cannot_be_launched_is_reported_and_cleared_up() {
    let (mut compute, attempt) = (both(), ATTEMPT);
    let cannot = || Input::CannotLaunch { attempt, message: "spool: full".to_owned() };
    let failed = Report::LaunchFailed {
        message: "spool: full".to_owned(),
        node_fault: true,
        exit: ExitCode::exited(1),
    };
    assert_eq!(after(&mut compute, [cannot(), cannot(), launch()]), [report(1, failed)]);
    let over = [
        Input::Acknowledge { reports: vec![1] },
        Input::Terminate { attempt, kill: false },
        Input::EpilogDone { attempt, error: None },
    ];
    let done = Report::NodeDone { epilog_error: None };
    assert_eq!(after(&mut compute, over), [Effect::RunEpilog { attempt }, report(2, done)]);
    assert_eq!(after(&mut compute, [cannot()]), []);
}

#[test]
fn what_is_stopped_stays_so_until_it_goes_on_or_ends() {
    let (mut compute, attempt) = (both(), ATTEMPT);
    let suspend = |stop| Input::Suspend { attempt, stop };
    let suspended = |step, stop| Effect::SuspendStep { attempt, step, stop };
    let spawned = |step| Effect::Spawn { attempt, step };
    // The order comes before anything is here, and while the prolog runs.
    assert_eq!(after(&mut compute, [suspend(true)]), []);
    assert_eq!(compute.held().count(), 0, "an attempt of which nothing is here is not held");
    assert_eq!(after(&mut compute, [launch()]), [Effect::RunProlog { attempt }]);
    assert_eq!(after(&mut compute, [prolog_done(), Input::LaunchStep { attempt, step: ZERO }]), []);
    assert_eq!(after(&mut compute, [suspend(false)]), [spawned(ZERO), spawned(StepId::BATCH)]);
    for stop in [true, true, false, false] {
        let both = [suspended(ZERO, stop), suspended(StepId::BATCH, stop)];
        assert_eq!(after(&mut compute, [suspend(stop)]), both);
    }
    let next = after(&mut compute, [Input::LaunchStep { attempt, step: StepId(1) }]);
    assert_eq!(next, [spawned(StepId(1))]);
    // Ending an attempt also ends its suspension.
    after(&mut compute, [suspend(true), Input::Terminate { attempt, kill: true }]);
    assert_eq!(after(&mut compute, [suspend(true)]), []);
}

#[test]
fn nothing_is_spawned_before_all_have_stopped() {
    let (mut compute, attempt) = (Compute::default(), ATTEMPT);
    let other = Attempt { job: JobId(43), restart: 0 };
    let launch = |attempt| Input::Launch { attempt, alone: false };
    let stopped = |step| Input::StepStopped { attempt, step };
    let spawned = [Effect::Spawn { attempt: other, step: StepId::BATCH }];
    after(&mut compute, [launch(attempt), Input::LaunchStep { attempt, step: ZERO }]);
    let orders = [Input::Suspend { attempt, stop: true }, launch(other)];
    assert_eq!(after(&mut compute, orders.clone()).len(), 2, "it stops two steps and spawns none");
    assert!(compute.knows(other, StepId::BATCH));
    assert_eq!(after(&mut compute, [stopped(ZERO), stopped(ZERO)]), []);
    assert_eq!(after(&mut compute, [stopped(StepId::BATCH)]), spawned);
    // A step that ends, or resumes after all, does not hold up others.
    for last in [ended(StepId::BATCH), Input::Suspend { attempt, stop: false }] {
        let (mut compute, _) = (Compute::default(), ());
        after(&mut compute, [launch(attempt)]);
        after(&mut compute, orders.clone());
        let then = after(&mut compute, [last]);
        assert!(then.ends_with(&spawned), "{then:?}");
    }
    // A waiting step whose attempt is ended is not spawned.
    let mut compute = Compute::default();
    after(&mut compute, [launch(attempt)]);
    after(&mut compute, orders);
    let refused = after(&mut compute, [Input::Terminate { attempt: other, kill: true }]);
    assert!(matches!(refused[..], [Effect::Refuse { .. }, Effect::Report { .. }]), "{refused:?}");
    assert_eq!(after(&mut compute, [stopped(StepId::BATCH)]), []);
}

#[test]
fn a_job_that_has_the_node_alone_is_over_with_its_script() {
    let attempt = ATTEMPT;
    let batch_ended =
        |done| report(1, Report::BatchEnded { end: ExitCode::exited(3).into(), lost: false, done });
    let forgotten = Effect::Forget { attempt, steps: vec![StepId::BATCH] };

    // Without programs of the site: one order down, one report up, one answer.
    let mut compute = Compute::default();
    let launched = compute.handle(Input::Launch { attempt, alone: true });
    assert_eq!(launched, [Effect::Spawn { attempt, step: StepId::BATCH }], "not even a record");
    assert_eq!(compute.handle(ended(StepId::BATCH)), [batch_ended(true)]);
    let late = compute.handle(Input::LaunchStep { attempt, step: ZERO });
    assert!(matches!(late[..], [Effect::Refuse { .. }]), "{late:?}");
    assert_eq!(compute.handle(Input::Terminate { attempt, kill: true }), [], "that was said");
    assert_eq!(compute.handle(Input::Forget { attempt }), [forgotten]);
    assert_eq!((compute.held().count(), compute.outstanding().count()), (0, 0));

    // With an epilog, the end of the script is reported before the epilog runs.
    let mut compute = both();
    after(&mut compute, [Input::Launch { attempt, alone: true }, prolog_done()]);
    let effects = after(&mut compute, [ended(StepId::BATCH)]);
    assert_eq!(effects, [batch_ended(false), Effect::RunEpilog { attempt }]);

    // While a step runs, the controller decides.
    let mut compute = Compute::default();
    after(&mut compute, [Input::Launch { attempt, alone: true }, Input::LaunchStep { attempt, step: ZERO }]);
    assert_eq!(after(&mut compute, [ended(StepId::BATCH)]), [batch_ended(false)]);
    let effects = after(&mut compute, [Input::Terminate { attempt, kill: false }, ended(ZERO)]);
    let last = report(3, Report::NodeDone { epilog_error: None });
    assert_eq!(
        (effects.first(), effects.last()),
        (Some(&Effect::TerminateStep { attempt, step: ZERO, kill: false }), Some(&last))
    );
}

#[test]
fn an_attempt_that_was_never_spawned_is_ordered_again() {
    let nothing =
        Recovered { attempt: ATTEMPT, record: Record::default(), steps: vec![], acknowledged: vec![] };
    let (mut compute, effects) = Compute::recover(Site::default(), vec![nothing]);
    assert_eq!(effects, [Effect::Forget { attempt: ATTEMPT, steps: vec![] }]);
    assert_eq!(compute.held().count(), 0, "or the controller would take it for running");
    let launched = after(&mut compute, [launch()]);
    assert_eq!(launched, [Effect::Spawn { attempt: ATTEMPT, step: StepId::BATCH }]);
}

#[test]
fn an_order_given_twice_is_carried_out_once() {
    let mut compute = both();
    after(&mut compute, [launch(), prolog_done()]);
    assert_eq!(after(&mut compute, [launch(), prolog_done()]), []);
    after(&mut compute, [ended(StepId::BATCH)]);
    assert_eq!(after(&mut compute, [launch(), ended(StepId::BATCH)]), []);
}

#[test]
fn nothing_starts_once_an_attempt_is_terminated() {
    let attempt = ATTEMPT;
    let mut compute = both();
    let effects = after(&mut compute, [launch(), Input::Terminate { attempt, kill: true }]);
    assert!(matches!(effects[..], [Effect::RunProlog { .. }, Effect::Refuse { .. }]), "{effects:?}");
    // The prolog is not interrupted; the epilog follows it.
    assert_eq!(after(&mut compute, [prolog_done()]), [Effect::RunEpilog { attempt }]);
    let effects = after(&mut compute, [Input::LaunchStep { attempt, step: ZERO }]);
    assert!(matches!(effects[..], [Effect::Refuse { .. }]), "{effects:?}");
}

#[test]
fn a_node_that_had_nothing_of_an_attempt_is_done_with_it() {
    let attempt = ATTEMPT;
    let mut compute = both();
    let effects = after(&mut compute, [Input::Terminate { attempt, kill: false }]);
    assert_eq!(effects, [Effect::RunEpilog { attempt }]);
    let effects = after(&mut compute, [Input::EpilogDone { attempt, error: None }]);
    assert_eq!(effects, [report(1, Report::NodeDone { epilog_error: None })]);
}

#[test]
fn a_failed_prolog_is_the_nodes_fault() {
    let mut compute = both();
    let failed = Input::PrologDone { attempt: ATTEMPT, error: Some("exit 1".to_owned()) };
    let effects = after(&mut compute, [launch(), failed]);
    let report = report(
        1,
        Report::LaunchFailed { message: "exit 1".to_owned(), node_fault: true, exit: ExitCode::exited(1) },
    );
    assert_eq!(effects.last(), Some(&report));
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Spawn { .. })));
}

#[test]
fn signals_reach_whom_they_are_meant_for() {
    let attempt = ATTEMPT;
    let mut compute = both();
    after(&mut compute, [launch(), prolog_done(), Input::LaunchStep { attempt, step: ZERO }]);
    let signal = Signal::new(10).unwrap();
    // Columns: step, batch and steps of the order; then the steps that get the signal, and if only tasks get
    // it.
    let cases = [
        ((None, true, false), vec![(StepId::BATCH, true)]),
        ((None, false, true), vec![(ZERO, false)]),
        ((None, true, true), vec![(ZERO, false), (StepId::BATCH, false)]),
        ((Some(ZERO), false, false), vec![(ZERO, false)]),
        ((Some(StepId(9)), true, true), vec![]),
    ];
    for ((step, batch, steps), reached) in cases {
        let effects = after(&mut compute, [Input::Signal { attempt, step, signal, batch, steps }]);
        let sent = |(step, tasks_only)| Effect::SignalStep { attempt, step, signal, tasks_only };
        assert_eq!(effects, reached.into_iter().map(sent).collect::<Vec<_>>(), "{step:?} {batch} {steps}");
    }
}

#[test]
fn a_returning_node_reports_what_it_found() {
    let found = Recovered {
        attempt: ATTEMPT,
        record: Record { terminated: true, epilog: None },
        steps: vec![(StepId::BATCH, Some(StepEnd::Lost)), (ZERO, None)],
        acknowledged: vec![StepId(1)],
    };
    let (mut compute, effects) = Compute::recover(Site { prolog: true, epilog: true }, vec![found]);
    let lost = Report::BatchEnded { end: ExitCode::SUCCESS.into(), lost: true, done: false };
    assert_eq!(effects, [report(1, lost)]);
    let effects = after(&mut compute, [ended(ZERO)]);
    assert_eq!(effects[1..], [Effect::RunEpilog { attempt: ATTEMPT }]);
    assert_eq!(after(&mut compute, [ended(StepId(1))]), [], "known before, and acknowledged");
}

#[test]
fn what_lives_is_not_forgotten() {
    let mut compute = both();
    after(&mut compute, [launch(), prolog_done()]);
    assert_eq!(after(&mut compute, [Input::Forget { attempt: ATTEMPT }]), []);
    assert_eq!(compute.held().collect::<Vec<_>>(), [HeldAttempt { attempt: ATTEMPT, done: false }]);
}

fn any_input() -> impl Strategy<Value = Input> {
    let step = prop_oneof![Just(StepId::BATCH), (0..2_u32).prop_map(StepId)];
    prop_oneof![
        any::<bool>().prop_map(|alone| Input::Launch { attempt: ATTEMPT, alone }),
        step.clone().prop_map(|step| Input::LaunchStep { attempt: ATTEMPT, step }),
        any::<bool>().prop_map(|kill| Input::Terminate { attempt: ATTEMPT, kill }),
        any::<bool>().prop_map(|failed| Input::PrologDone {
            attempt: ATTEMPT,
            error: failed.then(|| "failed".to_owned())
        }),
        Just(Input::EpilogDone { attempt: ATTEMPT, error: None }),
        step.prop_map(ended),
        (1..6_u64).prop_map(|id| Input::Acknowledge { reports: vec![id] }),
    ]
}

proptest! {
    /// In every order of inputs, a step is spawned once, after the prolog, and never once terminated. That
    /// nothing is left is reported when nothing runs, after the epilog.
    #[test]
    fn promises_hold_in_every_order(
        inputs in prop::collection::vec(any_input(), 0..40),
        (prolog, epilog) in any::<(bool, bool)>(),
    ) {
        let (mut compute, _) = Compute::recover(Site { prolog, epilog }, Vec::new());
        let (mut spawned, mut live) = (Vec::new(), Vec::new());
        let (mut prologs, mut epilogs, mut terminated) = (0, 0, false);
        for input in inputs {
            terminated |= matches!(input, Input::Terminate { .. });
            if let Input::StepEnded { step, .. } = &input {
                live.retain(|running| running != step);
            }
            for effect in compute.handle(input) {
                match effect {
                    Effect::Spawn { step, .. } => {
                        prop_assert!(!spawned.contains(&step) && !terminated);
                        prop_assert_eq!(prologs, usize::from(prolog));
                        spawned.push(step);
                        live.push(step);
                    }
                    Effect::RunProlog { .. } => prologs += 1,
                    Effect::RunEpilog { .. } => epilogs += 1,
                    Effect::Report { report, .. } if report.is_last() => {
                        prop_assert!(live.is_empty());
                        prop_assert_eq!(epilogs, usize::from(epilog));
                        terminated = true;
                    }
                    _ => {}
                }
            }
            prop_assert!(prologs <= 1 && epilogs <= 1);
        }
    }
}
