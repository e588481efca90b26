//! Supervision as data: reports about a process, and the next actions. These tests start no process.

use super::*;

const PATIENCE: Duration = Duration::from_secs(20);

fn time_at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Returns the record of a process that works since this moment.
fn make_working(since: u64) -> ProcessRecord {
    let mut record = ProcessRecord::new(PATIENCE);
    record.take_event(ProcessEvent::Started, time_at(since));
    record.take_event(ProcessEvent::Asked, time_at(since));
    record.take_event(ProcessEvent::Answered, time_at(since));
    record.take_event(ProcessEvent::Works, time_at(since));
    record
}

#[test]
fn lane_process_is_started_asked_and_stopped() {
    let mut record = ProcessRecord::new(PATIENCE);
    assert_eq!(record.decide_action(true, time_at(0)), ProcessAction::Start);
    record.take_event(ProcessEvent::Started, time_at(1));
    assert_eq!(record.decide_action(true, time_at(1)), ProcessAction::Ask);
    record.take_event(ProcessEvent::Asked, time_at(1));
    assert_eq!(
        record.decide_action(true, time_at(1)),
        ProcessAction::Wait(Some(time_at(21)))
    );
    record.take_event(ProcessEvent::Answered, time_at(2));
    assert_eq!(
        record.decide_action(true, time_at(2)),
        ProcessAction::Wait(Some(time_at(6)))
    );
    assert_eq!(record.decide_action(true, time_at(6)), ProcessAction::Ask);
    // The lane has nothing to reconcile any more.
    assert_eq!(record.decide_action(false, time_at(6)), ProcessAction::Stop);
    record.take_event(ProcessEvent::Stopped, time_at(6));
    assert_eq!(
        record.decide_action(false, time_at(6)),
        ProcessAction::Wait(Some(time_at(21)))
    );
    record.take_event(ProcessEvent::Ended(ExitCause::Exited(0)), time_at(7));
    assert_eq!(record.decide_action(false, time_at(7)), ProcessAction::Retire);
    assert_eq!(record.find_problem(time_at(7)), None);
    // The lane may have work again at once.
    assert_eq!(record.decide_action(true, time_at(7)), ProcessAction::Start);
}

#[test]
fn process_that_does_not_stop_is_killed() {
    let mut record = make_working(0);
    record.take_event(ProcessEvent::Stopped, time_at(5));
    let ProcessAction::Kill(cause) = record.decide_action(false, time_at(20)) else {
        panic!("it has had its time");
    };
    record.take_event(ProcessEvent::Killed(cause), time_at(20));
    assert_eq!(record.decide_action(false, time_at(20)), ProcessAction::Wait(None));
    record.take_event(ProcessEvent::Ended(ExitCause::Signalled(9)), time_at(20));
    assert_eq!(
        (
            record.decide_action(false, time_at(20)),
            record.find_problem(time_at(20))
        ),
        (ProcessAction::Retire, None)
    );
}

#[test]
fn silent_process_is_killed_and_restarted() {
    let mut record = make_working(0);
    assert_eq!(record.decide_action(true, time_at(5)), ProcessAction::Ask);
    record.take_event(ProcessEvent::Asked, time_at(5));
    assert_eq!(
        record.decide_action(true, time_at(24)),
        ProcessAction::Wait(Some(time_at(25)))
    );
    let silent = ExitCause::Silent(PATIENCE);
    assert_eq!(
        record.decide_action(true, time_at(25)),
        ProcessAction::Kill(silent.clone())
    );
    record.take_event(ProcessEvent::Killed(silent.clone()), time_at(25));
    assert_eq!(record.decide_action(true, time_at(25)), ProcessAction::Wait(None));
    // The kernel reports that a signal ended the process; the trouble names the reason for the signal.
    record.take_event(ProcessEvent::Ended(ExitCause::Signalled(9)), time_at(26));
    let trouble = record.find_problem(time_at(26)).expect("trouble");
    assert_eq!((trouble.cause, trouble.until), (silent, time_at(27)));
    assert_eq!(
        record.decide_action(true, time_at(26)),
        ProcessAction::Wait(Some(time_at(27)))
    );
    assert_eq!(record.decide_action(true, time_at(27)), ProcessAction::Start);
}

#[test]
fn restart_pause_grows_until_process_ran_long() {
    let mut record = ProcessRecord::new(PATIENCE);
    let mut now = time_at(0);
    let mut pauses = Vec::new();
    for _ in 0..11 {
        record.take_event(ProcessEvent::Started, now);
        record.take_event(ProcessEvent::Works, now);
        assert_eq!(record.find_problem(now), None);
        record.take_event(ProcessEvent::Ended(ExitCause::Exited(1)), now);
        let until = record.find_problem(now).expect("trouble").until;
        pauses.push((until - now).as_secs());
        now = until;
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
    record.take_event(ProcessEvent::Started, now);
    record.take_event(ProcessEvent::Ended(ExitCause::Exited(1)), now + LONG_UP);
    let trouble = record.find_problem(now + LONG_UP).expect("trouble");
    assert_eq!((trouble.ends, trouble.until), (1, now + LONG_UP + time_at(1)));
    assert_eq!(find_pause(u32::MAX), LONGEST_PAUSE);
}

#[test]
fn problem_ends_when_process_works_again() {
    let mut record = make_working(0);
    record.take_event(ProcessEvent::Ended(ExitCause::Signalled(6)), time_at(9));
    record.take_event(ProcessEvent::Started, time_at(10));
    assert_eq!(
        record.find_problem(time_at(10)).map(|trouble| trouble.until),
        Some(time_at(10))
    );
    record.take_event(ProcessEvent::Works, time_at(11));
    assert_eq!(record.find_problem(time_at(11)), None);
}

#[test]
fn late_process_event_changes_nothing() {
    let mut record = make_working(0);
    record.take_event(ProcessEvent::Ended(ExitCause::Exited(1)), time_at(9));
    let before = record.clone();
    for fact in [
        ProcessEvent::Asked,
        ProcessEvent::Answered,
        ProcessEvent::Works,
        ProcessEvent::Stopped,
        ProcessEvent::Killed(ExitCause::HeldOn),
    ] {
        record.take_event(fact, time_at(9));
    }
    assert_eq!(record, before);
}

#[test]
fn problem_message_names_lane_cause_and_end() {
    let until: Timestamp = "2026-01-01T00:00:04.5Z".parse().unwrap();
    let describe = |ends, cause| {
        let trouble = LaneProblem {
            ends,
            cause,
            until: time_at(4),
        };
        trouble.describe("tenant/evil", until)
    };
    let messages = [
        describe(1, ExitCause::Signalled(9)),
        describe(2, ExitCause::Signalled(6)),
        describe(3, ExitCause::Silent(PATIENCE)),
        describe(1, ExitCause::Misspoke("a frame of 4294967295 bytes".to_owned())),
        describe(1, ExitCause::NotStarted("No such file or directory".to_owned())),
        describe(1, ExitCause::Exited(74)),
        describe(1, ExitCause::Signalled(11)),
        describe(1, ExitCause::HeldOn),
        describe(1, ExitCause::HeldRoom("fetches in memory")),
    ];
    let expected = [
        ("it was killed (signal 9)", ""),
        ("it gave up (signal 6), as it does without memory", ", twice in a row"),
        ("it gave no answer for 20 s and was ended", ", 3 times in a row"),
        (
            "it was ended because of a message that no lane sends: a frame of 4294967295 bytes",
            "",
        ),
        ("it could not be started: No such file or directory", ""),
        ("it ended with exit code 74", ""),
        ("signal 11 ended it", ""),
        ("it was ended because it kept a namespace that it no longer has", ""),
        (
            "it was ended since it held more than its share of the budget for 120 s while others waited: fetches in memory",
            "",
        ),
    ];
    let expected = expected.map(|(cause, times)| {
        format!(
            "Waiting for lane tenant/evil: the last report about its process is that {cause}{times}; it is started again at 2026-01-01T00:00:04Z. The applied objects stay"
        )
    });
    assert_eq!(messages, expected);
}

/// Returns the record of a lane whose process is in a Pod.
fn make_expected(since: u64) -> ProcessRecord {
    let mut record = ProcessRecord::new(PATIENCE);
    assert_eq!(record.decide_action(true, time_at(since)), ProcessAction::Start);
    record.take_event(ProcessEvent::Expected, time_at(since));
    record
}

#[test]
fn pod_without_connection_is_reported_and_replaced() {
    let mut record = make_expected(0);
    assert_eq!(
        record.decide_action(true, time_at(0)),
        ProcessAction::Wait(Some(time_at(60)))
    );
    // A Pod takes its time, and no trouble is reported.
    assert_eq!(record.find_problem(time_at(59)), None);
    let absent = ExitCause::Absent(CONNECTING);
    assert_eq!(
        record.decide_action(true, time_at(60)),
        ProcessAction::Kill(absent.clone())
    );
    record.take_event(ProcessEvent::Killed(absent.clone()), time_at(60));
    record.take_event(ProcessEvent::Ended(ExitCause::HungUp), time_at(60));
    let trouble = record.find_problem(time_at(60)).expect("trouble");
    assert_eq!((&trouble.cause, trouble.until), (&absent, time_at(61)));
    let words = trouble.describe("tenant/blue", Timestamp::UNIX_EPOCH);
    assert!(words.contains("its Pod has not connected for 60 s"), "{words}");
    // The Pod is looked for later and later, and one that connects meanwhile begins at once.
    assert_eq!(
        record.decide_action(true, time_at(60)),
        ProcessAction::Wait(Some(time_at(61)))
    );
    record.take_event(ProcessEvent::Arrived, time_at(60));
    assert_eq!(record.decide_action(true, time_at(60)), ProcessAction::Start);
    record.take_event(ProcessEvent::Expected, time_at(60));
    record.take_event(ProcessEvent::Started, time_at(60));
    assert!(record.find_problem(time_at(60)).is_some(), "it doesn't work yet");
    record.take_event(ProcessEvent::Works, time_at(61));
    assert_eq!(record.find_problem(time_at(61)), None);
}

/// The pause applies however soon the Pod is back.
#[test]
fn pod_pauses_after_lost_connection() {
    let mut record = make_expected(0);
    record.take_event(ProcessEvent::Started, time_at(5));
    record.take_event(ProcessEvent::Works, time_at(6));
    record.take_event(ProcessEvent::Ended(ExitCause::HungUp), time_at(7));
    record.take_event(ProcessEvent::Arrived, time_at(7));
    assert_eq!(
        record.decide_action(true, time_at(7)),
        ProcessAction::Wait(Some(time_at(8)))
    );
    assert_eq!(record.decide_action(true, time_at(8)), ProcessAction::Start);
    // The reported trouble stays until the process works again.
    record.take_event(ProcessEvent::Expected, time_at(8));
    let trouble = record.find_problem(time_at(30)).expect("trouble");
    assert_eq!((trouble.cause, trouble.ends), (ExitCause::HungUp, 1));
}

#[test]
fn unwanted_pod_is_not_waited_for() {
    let mut record = make_expected(0);
    assert_eq!(record.decide_action(false, time_at(1)), ProcessAction::GiveUp);
    record.take_event(ProcessEvent::GaveUp, time_at(1));
    assert_eq!(record.decide_action(false, time_at(1)), ProcessAction::Wait(None));
    // The process connected at the same moment.
    record.take_event(ProcessEvent::Started, time_at(1));
    assert_eq!(record.decide_action(false, time_at(1)), ProcessAction::Wait(None));
    record.take_event(ProcessEvent::Ended(ExitCause::HungUp), time_at(1));
    assert_eq!(
        (record.decide_action(false, time_at(1)), record.find_problem(time_at(1))),
        (ProcessAction::Retire, None)
    );
}
