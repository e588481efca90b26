//! Single decisions about issues, and whole sequences against a host that loses answers, with a controller that dies.

use serde_json::{Value, json};

use super::*;

fn now() -> Timestamp {
    "2026-06-01T12:00:00Z".parse().unwrap()
}

fn make_request(name: &str, asked_in: Value) -> FluxAccessRequest {
    serde_json::from_value(json!({
        "apiVersion": "tenure.dev/v1alpha1", "kind": "FluxAccessRequest", "metadata": { "name": name, "namespace": "tenure-system" },
        "spec": {
            "provider": "work", "target": { "scope": "project", "id": 42, "path": "group-1/a" }, "role": "read_repository", "rotate": "90d",
            "secretName": "gitlab-flux-token", "namespaces": ["team-a"], "askedIn": asked_in, "requestedBy": "mallory", "clusterUid": "c0ffee00-0000",
            "specHash": "sha256:00"
        }
    }))
    .unwrap()
}

fn of_tenant(name: &str, tenant: &str) -> FluxAccessRequest {
    make_request(
        name,
        json!({ "kind": "FluxAccess", "namespace": "team-a", "name": "app", "tenant": tenant }),
    )
}

fn with_notice(mut request: FluxAccessRequest, notice: Value) -> FluxAccessRequest {
    let status = json!({ "notice": notice });
    request.status = Some(serde_json::from_value(status).unwrap());
    request
}

fn make_facts<'a>(request: &'a FluxAccessRequest, state: &'a str) -> NoticeFacts<'a> {
    NoticeFacts {
        request,
        state,
        provider_state: ProviderState::Active,
        host: Some(HostKind::Gitlab),
        is_wanted: true,
        reaches: Some(true),
        open_issues: OpenIssues::default(),
        answer: None,
    }
}

/// Only GitLab has such issues. A request for a group has none, and neither has a request that can reach no namespace.
#[test]
fn issue_exists_while_wanted_project_request_is_pending() {
    let waits = of_tenant("work-42-a", "orchard");
    let of_group = {
        let mut request = waits.clone();
        request.spec.target.scope = "group".to_owned();
        request
    };
    let going = {
        let mut request = waits.clone();
        request.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-06-01T11:00:00Z")).unwrap());
        request
    };
    let begins = |seen: NoticeFacts<'_>| plan(&seen, now()).notice.is_some();
    assert!(begins(make_facts(&waits, "Pending")));
    for seen in [
        make_facts(&waits, "Approved"),
        make_facts(&waits, "Denied"),
        // A revocation is an answer, too.
        make_facts(&waits, "Revoked"),
        make_facts(&of_group, "Pending"),
        make_facts(&going, "Pending"),
        NoticeFacts {
            is_wanted: false,
            ..make_facts(&waits, "Pending")
        },
        NoticeFacts {
            host: Some(HostKind::Gitea),
            ..make_facts(&waits, "Pending")
        },
        // No owner is notified if the asker may have the Secret nowhere, or if this is still unknown.
        NoticeFacts {
            reaches: Some(false),
            ..make_facts(&waits, "Pending")
        },
        NoticeFacts {
            reaches: None,
            ..make_facts(&waits, "Pending")
        },
        NoticeFacts {
            provider_state: ProviderState::Suspended,
            ..make_facts(&waits, "Pending")
        },
        NoticeFacts {
            provider_state: ProviderState::Gone,
            ..make_facts(&waits, "Pending")
        },
    ] {
        assert_eq!(plan(&seen, now()), Plan::keep_notice(None), "{seen:?}");
    }
}

#[test]
fn issue_stays_until_asker_is_known_to_reach_nothing() {
    let shown = with_notice(
        of_tenant("work-42-a", "orchard"),
        json!({ "title": "t", "number": 1, "url": "u" }),
    );
    let planned = |reaches: Option<bool>| {
        let seen = NoticeFacts {
            reaches,
            ..make_facts(&shown, "Pending")
        };
        plan(&seen, now())
    };
    for reaches in [Some(true), None] {
        let planned = planned(reaches);
        assert_eq!(
            (planned.step, planned.condition.unwrap().reason.as_str()),
            (None, "Opened")
        );
    }
    assert!(matches!(planned(Some(false)).step, Some(Step::Close(_))));
}

#[test]
fn open_issues_per_asker_and_project_are_bounded() {
    let open = |name: &str, tenant: &str| with_notice(of_tenant(name, tenant), json!({ "title": "t", "number": 1 }));
    let one_more = of_tenant("more", "orchard");
    let find_limit = |others: &[FluxAccessRequest], within_a_day: usize| {
        let mut limiter = IssueLimiter::default();
        for _ in 0..within_a_day {
            limiter.add_issue(&one_more, now());
        }
        limiter.settle_issue(&one_more, true);
        let open_issues = OpenIssues::count(&one_more, others.iter(), &mut limiter, now());
        let planned = plan(
            &NoticeFacts {
                open_issues,
                ..make_facts(&one_more, "Pending")
            },
            now(),
        );
        let condition = planned.condition.unwrap();
        assert_eq!(condition.reason == "TooMany", planned.notice.is_none());
        planned.notice.is_none().then_some(condition.message)
    };
    let of_one: Vec<_> = (0..MOST_OPEN).map(|nth| open(&format!("r{nth}"), "orchard")).collect();
    assert!(find_limit(&of_one, 0).is_some_and(|why| why.contains("tenant orchard")));
    assert_eq!(find_limit(of_one.get(1..).unwrap(), 0), None);
    let of_many: Vec<_> = (0..MOST_AT_TARGET)
        .map(|nth| open(&format!("r{nth}"), &format!("tenant-{nth}")))
        .collect();
    assert!(find_limit(&of_many, 0).is_some_and(|why| why.contains("this project")));
    assert_eq!(find_limit(of_many.get(1..).unwrap(), 0), None);
    // An asker that repeatedly withdraws and asks again can't open more than this.
    assert!(find_limit(&[], MOST_A_DAY).is_some_and(|why| why.contains("within a day")));
    // Requests without an issue don't count, and neither does the request itself.
    let none: Vec<_> = (0..20).map(|nth| of_tenant(&format!("r{nth}"), "orchard")).collect();
    assert_eq!(find_limit(&none, 0), None);
    assert_eq!(find_limit(&[open("more", "orchard")], 0), None);
    // An agent that an administrator named may have as many issues as entries.
    let agent = make_request("more", json!({ "kind": "Agent", "name": "prod" }));
    let open_issues = OpenIssues {
        of_asker: MOST_OF_AGENT - 1,
        ..OpenIssues::default()
    };
    assert_eq!(open_issues.find_exceeded_limit(&agent.spec.asked_in), None);
}

#[test]
fn limiter_forgets_issues_after_one_day() {
    let mut limiter = IssueLimiter::default();
    for minutes in 0..30 {
        let begun = of_tenant("work-42-a", "orchard");
        limiter.add_issue(&begun, add_duration(now(), Duration::from_secs(60 * minutes)));
        limiter.settle_issue(&begun, true);
    }
    assert_eq!(limiter.count_recent("tenant orchard", now()), 30);
    assert_eq!(limiter.count_recent("tenant other", now()), 0);
    let next_day = add_duration(now(), DAY);
    assert_eq!(limiter.count_recent("tenant orchard", next_day), 29);
    assert_eq!(limiter.count_recent("tenant orchard", add_duration(next_day, DAY)), 0);
    assert!(limiter.opened.is_empty() && limiter.begun.is_empty());
}

/// Concurrent requests see each other's issues before these are recorded.
#[test]
fn unrecorded_issues_count_against_limit() {
    let mut limiter = IssueLimiter::default();
    let all: Vec<_> = (0..MOST_OPEN + 1)
        .map(|nth| of_tenant(&format!("r{nth}"), "orchard"))
        .collect();
    let refused = |limiter: &mut IssueLimiter, request: &FluxAccessRequest| {
        let open_issues = OpenIssues::count(request, all.iter(), limiter, now());
        open_issues.find_exceeded_limit(&request.spec.asked_in).is_some()
    };
    let (last, others) = all.split_last().unwrap();
    for request in others {
        assert!(!refused(&mut limiter, request));
        limiter.add_issue(request, now());
    }
    assert!(refused(&mut limiter, last));
    // One of them could not be recorded.
    limiter.settle_issue(others.first().unwrap(), false);
    assert!(!refused(&mut limiter, last));
    assert_eq!(limiter.count_recent("tenant orchard", now()), MOST_OPEN - 1);
}

/// A host with issues, and with a given result for each order.
#[derive(Default)]
struct Host {
    issues: Vec<(String, String, bool)>,
    asked: usize,
}

/// The result of one question or order.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Fine,
    /// Done, and the answer is lost.
    Lost,
    /// Not done.
    Unreachable,
    /// Done, and the controller died before the record.
    Died,
}

impl Host {
    fn list_open(&self) -> usize {
        self.issues.iter().filter(|issue| issue.2).count()
    }

    fn carry_out(&mut self, ask: &HostQuery) -> Result<Option<Issue>, HostError> {
        let make_issue = |nth: usize| Issue {
            number: nth as u64 + 1,
            url: format!("https://gitlab.example.org/-/issues/{}", nth + 1),
        };
        match ask {
            HostQuery::FindIssue { title, body, .. } => {
                let mut all = self.issues.iter();
                Ok(all
                    .position(|issue| issue.2 && issue.0 == *title && issue.1 == *body)
                    .map(make_issue))
            }
            HostQuery::OpenIssue { title, body, .. } => {
                self.issues.push((title.clone(), body.clone(), true));
                Ok(Some(make_issue(self.issues.len() - 1)))
            }
            HostQuery::CloseIssue { number, .. } => {
                self.issues[usize::try_from(*number).unwrap() - 1].2 = false;
                Ok(None)
            }
            other => panic!("{other:?}"),
        }
    }

    fn answer_query(
        &mut self,
        ask: &HostQuery,
        fate: impl Fn(usize) -> Fate,
    ) -> Option<Result<Option<Issue>, HostError>> {
        let fate = fate(self.asked);
        self.asked += 1;
        if fate == Fate::Unreachable {
            return Some(Err(HostError::Unreachable("down".to_owned())));
        }
        let answer = self.carry_out(ask);
        match fate {
            Fate::Lost => Some(Err(HostError::Unknown("cut off".to_owned()))),
            Fate::Died => None,
            _ => Some(answer),
        }
    }
}

/// Continues until no step is due.
fn run_until_settled(
    host: &mut Host,
    request: &mut FluxAccessRequest,
    state: &str,
    fate: impl Fn(usize) -> Fate + Copy,
) -> Plan {
    let mut time = now();
    let mut answer = None;
    for _ in 0..100 {
        let planned = plan(
            &NoticeFacts {
                answer: answer.as_ref(),
                ..make_facts(request, state)
            },
            time,
        );
        answer = None;
        match &planned.step {
            Some(Step::Begin | Step::Record(_)) => {
                record_plan(request.status.get_or_insert_default(), &planned, time);
                answer = Some(StepResult::Recorded);
            }
            Some(Step::Find(ask)) => answer = host.answer_query(ask, fate).map(StepResult::Found),
            Some(Step::Open(ask)) => {
                let answered = host.answer_query(ask, fate);
                answer = answered.map(|issue| StepResult::Opened(issue.map(|issue| issue.unwrap())));
            }
            Some(Step::Close(ask)) => {
                answer = host
                    .answer_query(ask, fate)
                    .map(|closed| StepResult::Closed(closed.map(|_| ())))
            }
            None => match planned.again {
                Some(again) => {
                    assert!(again > time);
                    time = again;
                }
                None => return planned,
            },
        }
    }
    panic!("it comes to no end: {:?}", request.status)
}

/// After any result of any single question or order, one issue exists while the request waits, and none after the answer.
#[test]
fn failure_leaves_one_issue_until_request_is_answered() {
    for fate in [Fate::Fine, Fate::Lost, Fate::Unreachable, Fate::Died] {
        for nth in 0..8 {
            let fates = |asked: usize| if asked == nth { fate } else { Fate::Fine };
            let (mut host, mut request) = (Host::default(), of_tenant("work-42-a", "orchard"));
            let planned = run_until_settled(&mut host, &mut request, "Pending", fates);
            assert_eq!(host.list_open(), 1, "{fate:?} {nth}");
            assert_eq!(planned.condition.unwrap().reason, "Opened");
            let planned = run_until_settled(&mut host, &mut request, "Approved", fates);
            assert_eq!(host.list_open(), 0, "{fate:?} {nth}");
            assert_eq!((host.issues.len(), planned.notice, planned.condition), (1, None, None));
        }
    }
}

#[test]
fn planned_issue_is_dropped_once_request_is_answered() {
    let (mut host, mut request) = (Host::default(), of_tenant("work-42-a", "orchard"));
    let begun = plan(&make_facts(&request, "Pending"), now());
    record_plan(request.status.get_or_insert_default(), &begun, now());
    run_until_settled(&mut host, &mut request, "Approved", |_| Fate::Fine);
    assert!(host.issues.is_empty() && request.status.unwrap().notice.is_none());
}

/// An issue that can't be closed blocks nothing: a request in deletion tries once, and another request tries several times.
#[test]
fn unclosed_issue_blocks_no_request_and_is_reported() {
    let dead = |_| Fate::Unreachable;
    for is_going in [true, false] {
        let (mut host, mut request) = (Host::default(), of_tenant("work-42-a", "orchard"));
        run_until_settled(&mut host, &mut request, "Pending", |_| Fate::Fine);
        if is_going {
            request.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-06-01T11:00:00Z")).unwrap());
        }
        let before = host.asked;
        run_until_settled(&mut host, &mut request, "Revoked", dead);
        let tries = if is_going { 1 } else { MOST_FAILURES as usize };
        assert_eq!(host.asked - before, tries);
        let status = request.status.unwrap();
        assert_eq!(status.notice, None);
        let last = status.history.last().unwrap();
        assert_eq!(last.action, "NoticeLeft");
        assert!(last.cause.contains("https://gitlab.example.org/-/issues/1"), "{last:?}");
    }
    // An issue that may be open, and can't be looked up, is reported by its title.
    let mut request = with_notice(of_tenant("work-42-a", "orchard"), json!({ "title": "of this request" }));
    request.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-06-01T11:00:00Z")).unwrap());
    run_until_settled(&mut Host::default(), &mut request, "Pending", dead);
    let status = request.status.unwrap();
    assert!(status.notice.is_none() && status.history[0].cause.contains("\"of this request\" isn't known"));
}

#[test]
fn project_with_issues_disabled_is_retried_daily_and_reported() {
    let request = with_notice(of_tenant("work-42-a", "orchard"), json!({ "title": "t" }));
    let refused = HostError::Refused {
        status: 403,
        message: "issues are turned off".to_owned(),
    };
    let answer = StepResult::Opened(Err(refused));
    let planned = plan(
        &NoticeFacts {
            answer: Some(&answer),
            ..make_facts(&request, "Pending")
        },
        now(),
    );
    let failed = with_notice(request, serde_json::to_value(planned.notice.unwrap()).unwrap());
    let planned = plan(&make_facts(&failed, "Pending"), now());
    assert_eq!((planned.step, planned.again), (None, Some(add_duration(now(), DAY))));
    let condition = planned.condition.unwrap();
    assert_eq!(
        (condition.reason.as_str(), condition.status),
        ("RefusedByHost", ConditionStatus::False)
    );
    assert!(condition.message.contains("issues are turned off"));
}

#[test]
fn requester_text_is_quoted_as_code() {
    assert_eq!(quote_as_code("a"), "`a`");
    assert_eq!(quote_as_code("a``b`c"), "```a``b`c```");
    assert_eq!(quote_as_code("`a`"), "`` `a` ``");
    assert_eq!(quote_as_code("a\n/close\r@all"), "`a\\n/close\\r@all`");
    assert_eq!(quote_as_code(""), "`  `");
    let mut request = of_tenant("work-42-a", "orchard");
    request.spec.requested_by = "x`\n\n/assign @root\n\n<img src=x> `".to_owned();
    let body = write_body(&request);
    // The text begins no line, and is completely inside one code span.
    assert!(
        body.lines()
            .all(|line| !line.starts_with('/') && !line.contains("@root") || line.starts_with("- Requester: ``"))
    );
    assert!(
        body.contains("- Requester: `` x`\\n\\n/assign @root\\n\\n<img src=x> ` ``, in"),
        "{body}"
    );
    assert!(
        body.contains("tenure access approve work-42-a\n")
            && body.contains("`sha256:00`")
            && body.contains("`work-42`")
    );
    assert!(!write_title(&request).contains("mallory"));
}
