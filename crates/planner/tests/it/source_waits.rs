//! The pauses of a source after its server requested one.

use serde_json::json;
use tenure_planner::Next;
use tenure_planner::source::{FetchFailure, Step};

use crate::git_repository::{carry_over, make_snapshot, plan_at, start};

#[test]
fn retry_after_delays_next_request() {
    for (retry_after, expected) in [(None, 1), (Some(0), 1), (Some(300), 300), (Some(u64::MAX), 3600)] {
        let mut snapshot = make_snapshot(json!({ "url": "https://example.com/r.git", "interval": "1m" }));
        let fetch = plan_at(&snapshot, start());
        carry_over(&mut snapshot, &fetch, start());
        snapshot.attempt.fetched = Some(Err(FetchFailure {
            message: "https://example.com answered HTTP 429".to_owned(),
            retry_after,
            ..FetchFailure::default()
        }));
        let failed = plan_at(&snapshot, start());
        let Next::Done(Some(at)) = failed.next else {
            panic!("{failed}")
        };
        assert_eq!(at.duration_since(start()).as_secs(), expected, "{retry_after:?}");
        carry_over(&mut snapshot, &failed, start());
        // Woken for any other reason, it waits all the same.
        let early = at.checked_sub(jiff::SignedDuration::from_millis(1)).unwrap();
        let woken = plan_at(&snapshot, early);
        assert!(woken.steps.is_empty(), "{woken}");
        let again = plan_at(&snapshot, at);
        assert!(matches!(again.steps.as_slice(), [Step::Fetch(_)]), "{again}");
    }
}
