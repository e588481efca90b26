//! The issue that notifies the owner of a project of a request, so that the owner needs no knowledge of the cluster. The issue is opened while the request waits
//! for an answer, and closed after the answer.
//!
//! This module decides when an issue exists, its text, and how many issues one asker may have open and may open in a day. Text in an issue is never an answer to a
//! request. An issue is read only to find it again, by the title and text with which it was written. Text of users in a request stands in code spans, where a host
//! executes no commands and notifies no users. A request that is being deleted never waits for its issue; an issue that stays open is then reported.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use jiff::Timestamp;
use tenure_api::access::request::{AskedIn, LedgerTrouble, RequestNotice, RequestTarget};
use tenure_api::access::{FluxAccessRequest, FluxAccessRequestStatus, name_target};
use tenure_api::condition::{Condition, ConditionStatus};
use tenure_api::text;

use super::delivery::ProviderState;
use super::request::read_target;
use super::rotation::schedule::{self, add_duration};
use super::status::make_condition;
use tenure_remote_requests::git_host::{HostError, HostKind, HostQuery, Issue};

/// Condition of a waiting request: whether the project's owner has been notified in an issue.
pub const ANNOUNCED: &str = "Announced";
/// The maximum of open issues for one tenant, or for one namespace without a tenant.
pub const MOST_OPEN: usize = 5;
/// The maximum of new issues within [`DAY`]: each issue is a mail to users who never asked for one.
pub const MOST_A_DAY: usize = 20;
/// The maximum of open issues, and of new issues within a day, for an agent's configuration, whose source an administrator named: its maximum of entries.
pub const MOST_OF_AGENT: usize = 500;
/// The maximum of open issues at one project, for all askers together.
pub const MOST_AT_TARGET: usize = 10;
/// The time for which an opened issue counts.
pub const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The interval between checks whether the limits allow another issue.
const ROOM_LOOK: Duration = Duration::from_secs(600);
/// The delay before a new attempt at a host that refused.
const REFUSED_LOOK: Duration = DAY;
/// The maximum of attempts to close an issue before it is left open.
const MOST_FAILURES: u32 = 5;

/// Counts begun issues for the limits: those of each asker within a day, and those without a record in a status yet. Without it, requests that are reconciled concurrently
/// could together exceed a limit. Askers without an issue within a day are forgotten, which bounds the memory.
#[derive(Debug, Default)]
pub struct IssueLimiter {
    opened: BTreeMap<String, VecDeque<Timestamp>>,
    begun: BTreeSet<String>,
}

impl IssueLimiter {
    /// Counts the issues that were begun within a day for this asker.
    fn count_recent(&mut self, asker: &str, now: Timestamp) -> usize {
        self.opened.retain(|_, times| {
            times.retain(|at| add_duration(*at, DAY) > now);
            !times.is_empty()
        });
        self.opened.get(asker).map_or(0, VecDeque::len)
    }

    /// Adds an issue that is about to be recorded.
    pub fn add_issue(&mut self, request: &FluxAccessRequest, now: Timestamp) {
        let asker = name_asker(&request.spec.asked_in);
        self.opened.entry(asker).or_default().push_back(now);
        self.begun.extend(request.metadata.name.clone());
    }

    /// Notes that the issue was recorded. If it could not be recorded, it no longer counts.
    pub fn settle_issue(&mut self, request: &FluxAccessRequest, is_recorded: bool) {
        self.begun.remove(request.metadata.name.as_deref().unwrap_or_default());
        let times = self.opened.get_mut(&name_asker(&request.spec.asked_in));
        if let (Some(times), false) = (times, is_recorded) {
            times.pop_back();
        }
    }
}

/// Returns the name of the asker by which issues are counted for the limits.
#[must_use]
pub fn name_asker(asked_in: &AskedIn) -> String {
    match (&asked_in.tenant, asked_in.kind.as_str()) {
        (Some(tenant), _) => format!("tenant {tenant}"),
        (None, "Agent") => format!("agent {}", asked_in.name),
        (None, _) => format!("namespace {}", asked_in.namespace),
    }
}

/// The numbers of open and recent issues of other requests, which are compared with the limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenIssues {
    /// Issues of the same asker.
    pub of_asker: usize,
    /// Issues at the same project.
    pub at_target: usize,
    /// Issues that were begun for the same asker within a day.
    pub within_a_day: usize,
}

impl OpenIssues {
    /// Counts the issues of other requests. `all`: the requests of the same provider.
    #[must_use]
    pub fn count<'a>(
        request: &FluxAccessRequest,
        all: impl Iterator<Item = &'a FluxAccessRequest>,
        limiter: &mut IssueLimiter,
        now: Timestamp,
    ) -> Self {
        let asker = name_asker(&request.spec.asked_in);
        let mut open_issues = Self {
            within_a_day: limiter.count_recent(&asker, now),
            ..Self::default()
        };
        for other in all {
            let is_recorded = other.status.as_ref().is_some_and(|status| status.notice.is_some());
            let is_begun = |name: &String| limiter.begun.contains(name);
            let has_one = is_recorded || other.metadata.name.as_ref().is_some_and(is_begun);
            if !has_one || other.metadata.name == request.metadata.name {
                continue;
            }
            open_issues.of_asker += usize::from(name_asker(&other.spec.asked_in) == asker);
            open_issues.at_target += usize::from(is_same(&other.spec.target, &request.spec.target));
        }
        open_issues
    }

    /// Returns the limit that forbids one more issue, if any.
    fn find_exceeded_limit(self, asked_in: &AskedIn) -> Option<String> {
        let (open, a_day) = match asked_in.kind.as_str() {
            "Agent" => (MOST_OF_AGENT, MOST_OF_AGENT),
            _ => (MOST_OPEN, MOST_A_DAY),
        };
        let asker = name_asker(asked_in);
        if self.of_asker >= open {
            return Some(format!(
                "{open} requests of {asker} are shown at projects already: this one is once one of them has its answer"
            ));
        }
        if self.at_target >= MOST_AT_TARGET {
            return Some(format!(
                "{MOST_AT_TARGET} requests are shown at this project already: this one is once one of them has its answer"
            ));
        }
        (self.within_a_day >= a_day)
            .then(|| format!("{a_day} issues were opened for {asker} within a day: this one is opened later"))
    }
}

fn is_same(one: &RequestTarget, other: &RequestTarget) -> bool {
    one.scope == other.scope && one.id == other.id
}

/// The facts by which the next step for the issue of a request is decided.
#[derive(Clone, Copy, Debug)]
pub struct NoticeFacts<'a> {
    /// The request, with the record of its issue.
    pub request: &'a FluxAccessRequest,
    /// The state of the request in one word.
    pub state: &'a str,
    /// The state of its AccessProvider.
    pub provider_state: ProviderState,
    /// The kind of its host.
    pub host: Option<HostKind>,
    /// True if the AccessProvider enables notices to owners.
    pub is_wanted: bool,
    /// True if the asker may have the Secret in at least one namespace after an approval. Unset until the controllers have determined it. If false, no owner is
    /// notified.
    pub reaches: Option<bool>,
    /// The open issues of other requests.
    pub open_issues: OpenIssues,
    /// The result of the last step.
    pub answer: Option<&'a StepResult>,
}

/// The result of the last [`Step`] for the issue of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepResult {
    /// The notice was recorded in the status of the request.
    Recorded,
    /// The search for the issue has ended.
    Found(Result<Option<Issue>, HostError>),
    /// The order for the issue has ended.
    Opened(Result<Issue, HostError>),
    /// The order to close the issue has ended.
    Closed(Result<(), HostError>),
}

/// The next step for the issue of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Record the intent to open an issue, which counts from now on.
    Begin,
    /// Record the decision, and report the occurrence, if any.
    Record(Option<NoticeEvent>),
    /// Check whether the issue was opened.
    Find(HostQuery),
    /// Open the issue.
    Open(HostQuery),
    /// Close the issue.
    Close(HostQuery),
}

/// An event about the issue of a request, for its history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoticeEvent {
    /// The action.
    pub action: &'static str,
    /// The subject of the action.
    pub cause: String,
    /// True if a user should look at the occurrence.
    pub is_bad: bool,
}

/// The decision about the issue of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The notice to record.
    pub notice: Option<RequestNotice>,
    /// The next step.
    pub step: Option<Step>,
    /// The time of the next plan, if there is no step.
    pub again: Option<Timestamp>,
    /// The condition to set meanwhile.
    pub condition: Option<Condition>,
}

impl Plan {
    /// Returns a plan without a step, which leaves the recorded notice unchanged.
    fn keep_notice(notice: Option<&RequestNotice>) -> Self {
        Self {
            notice: notice.cloned(),
            step: None,
            again: None,
            condition: None,
        }
    }

    /// Returns a plan that records a changed notice, and an event if there is one.
    fn record_notice(notice: Option<RequestNotice>, event: Option<NoticeEvent>) -> Self {
        Self {
            notice,
            step: Some(Step::Record(event)),
            again: None,
            condition: None,
        }
    }

    /// Returns a plan that runs a step for the recorded notice.
    fn run_step(notice: &RequestNotice, step: Step) -> Self {
        Self {
            step: Some(step),
            ..Self::keep_notice(Some(notice))
        }
    }
}

/// Records a plan in the status of a request: its notice, and the event about the issue.
pub fn record_plan(status: &mut FluxAccessRequestStatus, plan: &Plan, now: Timestamp) {
    status.notice.clone_from(&plan.notice);
    if let Some(Step::Record(Some(event))) = &plan.step {
        super::status::record_notice(status, event, now);
    }
}

/// Decides the next step for a request's issue.
#[must_use]
pub fn plan(seen: &NoticeFacts<'_>, now: Timestamp) -> Plan {
    let request = seen.request;
    let recorded = request.status.as_ref().and_then(|status| status.notice.as_ref());
    let can_be = seen.host == Some(HostKind::Gitlab) && request.spec.target.scope == "project";
    let is_going = request.metadata.deletion_timestamp.is_some();
    let is_wanted = can_be && seen.is_wanted && !is_going && seen.state == "Pending" && seen.reaches != Some(false);
    match (recorded, seen.provider_state) {
        (None, ProviderState::Active) if is_wanted && seen.reaches == Some(true) => begin_issue(seen, now),
        (None, _) => Plan::keep_notice(None),
        (Some(notice), ProviderState::Gone) => abandon_issue(notice, "its AccessProvider is gone"),
        (Some(notice), provider_state) => {
            let stays = is_wanted && matches!(provider_state, ProviderState::Active | ProviderState::Suspended);
            Plan {
                condition: stays.then(|| describe_progress(notice, now)),
                ..continue_issue(seen, notice, stays, now)
            }
        }
    }
}

/// Plans a new issue if the limits allow one: nothing is recorded yet.
fn begin_issue(seen: &NoticeFacts<'_>, now: Timestamp) -> Plan {
    if let Some(why) = seen.open_issues.find_exceeded_limit(&seen.request.spec.asked_in) {
        return Plan {
            again: Some(add_duration(now, ROOM_LOOK)),
            condition: Some(make_condition(ANNOUNCED, ConditionStatus::False, ("TooMany", why), now)),
            ..Plan::keep_notice(None)
        };
    }
    let notice = RequestNotice {
        title: write_title(seen.request),
        ..RequestNotice::default()
    };
    Plan {
        condition: Some(describe_progress(&notice, now)),
        ..Plan::run_step(&notice, Step::Begin)
    }
}

/// Plans the next step for a recorded issue: finds or opens it if `stays` is true, else closes it.
fn continue_issue(seen: &NoticeFacts<'_>, notice: &RequestNotice, stays: bool, now: Timestamp) -> Plan {
    let target = read_target(&seen.request.spec.target);
    let is_answered = seen.answer.is_some_and(|answer| *answer != StepResult::Recorded);
    let waits = notice.retry_at.as_ref().filter(|at| at.0 > now && !is_answered);
    if let (Some(until), false) = (waits, seen.request.metadata.deletion_timestamp.is_some()) {
        return Plan {
            again: Some(until.0),
            ..Plan::keep_notice(Some(notice))
        };
    }
    let find = |notice: &RequestNotice| {
        let find = HostQuery::FindIssue {
            target: target.clone(),
            title: notice.title.clone(),
            body: write_body(seen.request),
        };
        Plan::run_step(notice, Step::Find(find))
    };
    match (notice.number, stays, seen.answer) {
        (Some(_), true, _) => Plan::keep_notice(Some(notice)),
        (None, _, Some(StepResult::Found(Ok(Some(issue))) | StepResult::Opened(Ok(issue)))) => {
            let opened = RequestNotice {
                number: Some(issue.number),
                url: Some(issue.url.clone()),
                ..clear_failure(notice)
            };
            let event = NoticeEvent {
                action: "Announced",
                cause: format!("issue {} of the project", issue.url),
                is_bad: false,
            };
            Plan::record_notice(Some(opened), Some(event))
        }
        (None, true, Some(StepResult::Found(Ok(None)))) => {
            let open = HostQuery::OpenIssue {
                target,
                title: notice.title.clone(),
                body: write_body(seen.request),
            };
            Plan::run_step(notice, Step::Open(open))
        }
        // The issue was never opened.
        (None, false, Some(StepResult::Found(Ok(None)))) => Plan::record_notice(None, None),
        (_, true, Some(StepResult::Found(Err(trouble)) | StepResult::Opened(Err(trouble)))) => {
            let failed = record_failure(notice, trouble, now);
            Plan::record_notice(Some(failed), None)
        }
        (_, false, Some(StepResult::Closed(Ok(())))) => {
            let event = NoticeEvent {
                action: "Unannounced",
                cause: format!(
                    "issue {} of the project is closed",
                    notice.url.as_deref().unwrap_or_default()
                ),
                is_bad: false,
            };
            Plan::record_notice(None, Some(event))
        }
        (
            _,
            false,
            Some(StepResult::Closed(Err(trouble)) | StepResult::Found(Err(trouble)) | StepResult::Opened(Err(trouble))),
        ) => {
            let failed = record_failure(notice, trouble, now);
            if seen.request.metadata.deletion_timestamp.is_some() || failed.failures >= MOST_FAILURES {
                return abandon_issue(notice, &trouble.to_string());
            }
            Plan::record_notice(Some(failed), None)
        }
        (Some(number), false, _) => Plan::run_step(notice, Step::Close(HostQuery::CloseIssue { target, number })),
        (None, ..) => find(notice),
    }
}

/// Leaves an issue that is or may be open. The controllers no longer look at it.
fn abandon_issue(notice: &RequestNotice, why: &str) -> Plan {
    let cause = match &notice.url {
        Some(url) => format!("issue {url} of the project is left open, as it can't be closed: {why}"),
        None => format!(
            "whether an issue of the project is open that is called {:?} isn't known, and it is left: {why}",
            notice.title
        ),
    };
    let event = NoticeEvent {
        action: "NoticeLeft",
        cause,
        is_bad: true,
    };
    Plan::record_notice(None, Some(event))
}

/// Returns the notice without its failure.
fn clear_failure(notice: &RequestNotice) -> RequestNotice {
    RequestNotice {
        title: notice.title.clone(),
        number: notice.number,
        url: notice.url.clone(),
        ..RequestNotice::default()
    }
}

fn record_failure(notice: &RequestNotice, trouble: &HostError, now: Timestamp) -> RequestNotice {
    let failures = notice.failures.saturating_add(1);
    let (reason, retry_at) = match trouble {
        HostError::Banned { until } => ("BannedByHost", schedule::wait_for(now, *until)),
        HostError::Limited { until } => ("LimitedByHost", schedule::wait_for(now, *until)),
        HostError::Unauthenticated => ("AuthoriserRefused", schedule::find_retry_time(now, failures)),
        HostError::Forbidden(_) | HostError::Refused { .. } | HostError::Moved => {
            ("RefusedByHost", add_duration(now, REFUSED_LOOK))
        }
        HostError::Unknown(_) | HostError::Unreachable(_) | HostError::NotUnderstood(_) => {
            ("HostUnreachable", schedule::find_retry_time(now, failures))
        }
    };
    RequestNotice {
        trouble: Some(LedgerTrouble {
            reason: reason.to_owned(),
            message: trouble.to_string(),
        }),
        failures,
        retry_at: Some(schedule::record_time(retry_at)),
        ..notice.clone()
    }
}

/// Returns the condition of a waiting request.
fn describe_progress(notice: &RequestNotice, now: Timestamp) -> Condition {
    let (status, reason, message) = match (&notice.url, &notice.trouble) {
        (Some(url), _) => (
            ConditionStatus::True,
            "Opened",
            format!("the project's owner reads it in {url}; text that is written there is not an answer"),
        ),
        (None, Some(trouble)) => (
            ConditionStatus::False,
            trouble.reason.as_str(),
            format!("no issue of the project shows it: {}", trouble.message),
        ),
        (None, None) => (
            ConditionStatus::Unknown,
            "Opening",
            "an issue of the project is to show it".to_owned(),
        ),
    };
    make_condition(ANNOUNCED, status, (reason, message), now)
}

/// Returns a title that no other request has, in this or another cluster. The title contains no text of free choice.
fn write_title(request: &FluxAccessRequest) -> String {
    let name = request.metadata.name.as_deref().unwrap_or_default();
    format!(
        "Access for Flux is asked for: {name} (cluster {})",
        request.spec.cluster_uid
    )
}

/// Returns the text of the issue: the request, and how to answer it.
fn write_body(request: &FluxAccessRequest) -> String {
    let spec = &request.spec;
    let name = request.metadata.name.as_deref().unwrap_or_default();
    let target = name_target(&spec.provider, spec.target.id);
    let list = |names: &[String]| {
        names
            .iter()
            .map(|name| quote_as_code(name))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let may = match spec.role.as_str() {
        "read_repository" => "clone and fetch it",
        _ => "pull images from its container registry",
    };
    let readers = match spec.service_accounts.is_empty() {
        true => "all accounts that may read Secrets in these namespaces".to_owned(),
        false => format!(
            "the ServiceAccounts {} of these namespaces",
            list(&spec.service_accounts)
        ),
    };
    let asked_in = match &spec.asked_in.tenant {
        Some(tenant) => format!(
            "{} of the tenant {}",
            quote_as_code(&spec.asked_in.name),
            quote_as_code(tenant)
        ),
        None => quote_as_code(&spec.asked_in.name),
    };
    format!(
        "An account of a Kubernetes cluster requests that Flux may read this project. Comments in this issue are no answer. The issue is closed after \
         the answer, or when the request ends.\n\
         \n\
         - Requester: {who}, in {asked_in}\n\
         - Role: {role}, to {may}\n\
         - Secret with the credential: {secret} in each namespace that is called {namespaces}\n\
         - Readers: {readers}\n\
         - Period between replacements: {rotate}\n\
         - Cluster: {cluster}, by the uid of its namespace `kube-system`\n\
         \n\
         An account with the verb `approve` on `fluxaccesstargets` of the name {target} in that cluster answers, after a look at the request:\n\
         \n\
         ```\n\
         tenure access show {name}\n\
         tenure access approve {name}\n\
         tenure access deny {name} --reason \"...\"\n\
         ```\n\
         \n\
         The request is {request}, and the hash of its spec is {hash}. Without this right, ask an administrator of the cluster.\n",
        who = quote_as_code(&spec.requested_by),
        role = quote_as_code(&spec.role),
        secret = quote_as_code(&spec.secret_name),
        namespaces = list(&spec.namespaces),
        rotate = quote_as_code(&spec.rotate),
        cluster = quote_as_code(&spec.cluster_uid),
        target = quote_as_code(&target),
        request = quote_as_code(name),
        hash = quote_as_code(&spec.spec_hash),
    )
}

/// Returns a user's text as a code span of Markdown, in one line. The host shows the text, and neither executes nor links it.
fn quote_as_code(text: &str) -> String {
    let line = text::visible_line(text);
    let longest = line
        .split(|character| character != '`')
        .map(str::len)
        .max()
        .unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    match line.starts_with('`') || line.ends_with('`') || line.trim().is_empty() {
        true => format!("{fence} {line} {fence}"),
        false => format!("{fence}{line}{fence}"),
    }
}

#[cfg(test)]
mod tests;
