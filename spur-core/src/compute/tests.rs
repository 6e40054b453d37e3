//! What a node does, order by order.

use proptest::prelude::*;

use super::*;
use crate::id::JobId;

const ATTEMPT: Attempt = Attempt { job: JobId(42), restart: 0 };
const ZERO: StepId = StepId(0);
const EXIT: StepEnd = StepEnd::Exited { exit: ExitCode { code: 3, signal: 0 }, out_of_memory: false };

fn launch() -> Input {
    Input::Launch { attempt: ATTEMPT }
}

fn prolog_done() -> Input {
    Input::PrologDone { attempt: ATTEMPT, error: None }
}

fn ended(step: StepId) -> Input {
    Input::StepEnded { attempt: ATTEMPT, step, end: EXIT }
}

/// What is done about several inputs, without what is only remembered.
fn after(compute: &mut Compute, inputs: impl IntoIterator<Item = Input>) -> Vec<Effect> {
    let effects = inputs.into_iter().flat_map(|input| compute.handle(input));
    effects.filter(|effect| !matches!(effect, Effect::Remember { .. })).collect()
}

fn report(id: u64, report: Report) -> Effect {
    Effect::Report { id, attempt: ATTEMPT, report }
}

#[test]
fn a_batch_job_from_launch_to_forgetting() {
    let mut compute = Compute::default();
    let attempt = ATTEMPT;
    let batch_ended = Report::BatchEnded { exit: ExitCode::exited(3), out_of_memory: false, lost: false };
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
fn an_order_given_twice_is_carried_out_once() {
    let mut compute = Compute::default();
    after(&mut compute, [launch(), prolog_done()]);
    assert_eq!(after(&mut compute, [launch(), prolog_done()]), []);
    after(&mut compute, [ended(StepId::BATCH)]);
    assert_eq!(after(&mut compute, [launch(), ended(StepId::BATCH)]), []);
}

#[test]
fn nothing_starts_once_an_attempt_is_terminated() {
    let attempt = ATTEMPT;
    let mut compute = Compute::default();
    let effects = after(&mut compute, [launch(), Input::Terminate { attempt, kill: true }]);
    assert!(matches!(effects[..], [Effect::RunProlog { .. }, Effect::Refuse { .. }]), "{effects:?}");
    // The prolog is not cut off; the epilog follows it.
    assert_eq!(after(&mut compute, [prolog_done()]), [Effect::RunEpilog { attempt }]);
    let effects = after(&mut compute, [Input::LaunchStep { attempt, step: ZERO }]);
    assert!(matches!(effects[..], [Effect::Refuse { .. }]), "{effects:?}");
}

#[test]
fn a_node_that_had_nothing_of_an_attempt_is_done_with_it() {
    let attempt = ATTEMPT;
    let mut compute = Compute::default();
    let effects = after(&mut compute, [Input::Terminate { attempt, kill: false }]);
    assert_eq!(effects, [Effect::RunEpilog { attempt }]);
    let effects = after(&mut compute, [Input::EpilogDone { attempt, error: None }]);
    assert_eq!(effects, [report(1, Report::NodeDone { epilog_error: None })]);
}

#[test]
fn a_failed_prolog_is_the_nodes_fault() {
    let mut compute = Compute::default();
    let failed = Input::PrologDone { attempt: ATTEMPT, error: Some("exit 1".to_owned()) };
    let effects = after(&mut compute, [launch(), failed]);
    let report = report(1, Report::LaunchFailed { message: "exit 1".to_owned(), node_fault: true });
    assert_eq!(effects.last(), Some(&report));
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Spawn { .. })));
}

#[test]
fn signals_reach_whom_they_are_meant_for() {
    let attempt = ATTEMPT;
    let mut compute = Compute::default();
    after(&mut compute, [launch(), prolog_done(), Input::LaunchStep { attempt, step: ZERO }]);
    let signal = Signal::new(10).unwrap();
    // (step, batch, steps) and who gets it: the step and whether only what was started as a task.
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
        record: Record { prolog_done: true, terminated: true, epilog: None },
        steps: vec![(StepId::BATCH, Some(StepEnd::Lost)), (ZERO, None)],
        acknowledged: vec![StepId(1)],
    };
    let (mut compute, effects) = Compute::recover(vec![found]);
    let lost = Report::BatchEnded { exit: ExitCode::SUCCESS, out_of_memory: false, lost: true };
    assert_eq!(effects, [report(1, lost)]);
    let effects = after(&mut compute, [ended(ZERO)]);
    assert_eq!(effects[1..], [Effect::RunEpilog { attempt: ATTEMPT }]);
    assert_eq!(after(&mut compute, [ended(StepId(1))]), [], "known before, and acknowledged");
}

#[test]
fn what_lives_is_not_forgotten() {
    let mut compute = Compute::default();
    after(&mut compute, [launch(), prolog_done()]);
    assert_eq!(after(&mut compute, [Input::Forget { attempt: ATTEMPT }]), []);
    assert_eq!(compute.held().collect::<Vec<_>>(), [HeldAttempt { attempt: ATTEMPT, done: false }]);
}

fn any_input() -> impl Strategy<Value = Input> {
    let step = prop_oneof![Just(StepId::BATCH), (0..2_u32).prop_map(StepId)];
    prop_oneof![
        Just(launch()),
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
    /// Whatever happens in whatever order: a step is spawned once, after the prolog, and never once terminated.
    #[test]
    fn promises_hold_in_every_order(inputs in prop::collection::vec(any_input(), 0..40)) {
        let mut compute = Compute::default();
        let (mut spawned, mut prologs, mut epilogs, mut terminated) = (Vec::new(), 0, 0, false);
        for input in inputs {
            terminated |= matches!(input, Input::Terminate { .. });
            for effect in compute.handle(input) {
                match effect {
                    Effect::Spawn { step, .. } => {
                        prop_assert!(!spawned.contains(&step) && !terminated && prologs == 1);
                        spawned.push(step);
                    }
                    Effect::RunProlog { .. } => prologs += 1,
                    Effect::RunEpilog { .. } => epilogs += 1,
                    Effect::Report { report: Report::NodeDone { .. }, .. } => prop_assert!(epilogs == 1),
                    _ => {}
                }
            }
            prop_assert!(prologs <= 1 && epilogs <= 1);
        }
    }
}
