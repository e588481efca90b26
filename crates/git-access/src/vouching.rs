//! A user of the host answers a request without an account in the cluster. The user proves an identity in a browser (RFC 8628). An account that may vouch for such
//! users then writes the grant.
//!
//! This module decides which users may answer, their name in a grant, and the times of polls. It also checks that the answered request is the request that the user
//! saw. Admission decides which accounts may vouch.

use std::time::Duration;

use jiff::Timestamp;
use tenure_api::access::{AccessProvider, FluxAccessRequest};
use tenure_tenancy::access::VOUCHED_PREFIX;

use super::request::hash_spec;
use super::rotation::schedule::add_duration;
use tenure_remote_requests::git_host::{AccessLevel, DevicePollResult, HostError, Membership, Scope};

/// The increase of the poll interval after a poll that came too early (RFC 8628, section 3.5).
const SLOWER: Duration = Duration::from_secs(5);

/// The next action of the command that waits until a user of the host has entered the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Poll again after this time.
    Ask(Duration),
    /// A user with the needed level has proved the identity. The text is the user's name in a grant.
    Answered(String),
    /// No user can answer with this code, for this reason.
    Over(String),
}

/// Returns the application for the device flow at the host of a provider.
///
/// # Errors
/// The provider has no application.
pub fn find_application(provider: &AccessProvider) -> Result<&str, String> {
    let name = provider.metadata.name.as_deref().unwrap_or_default();
    let Some(flow) = &provider.spec.device_flow else {
        return Err(format!(
            "AccessProvider {name} has no spec.deviceFlow: approvers can't prove their identity at the host"
        ));
    };
    match provider.spec.kind.as_str() {
        "gitlab" => Ok(&flow.client_id),
        kind => Err(format!(
            "AccessProvider {name} is of kind {kind}, and only the kind gitlab supports the device flow"
        )),
    }
}

/// Returns the action after the host's answer at `now`. `pace` is the minimum between two polls, and `end` is the end of the code.
#[must_use]
pub fn decide_next(
    answer: Result<DevicePollResult, HostError>,
    scope: Scope,
    pace: Duration,
    (now, end): (Timestamp, Timestamp),
) -> Next {
    let late = || Next::Over("the code was not entered in time".to_owned());
    let after = match answer {
        Ok(DevicePollResult::Pending) => pace,
        Ok(DevicePollResult::SlowDown) => pace.saturating_add(SLOWER),
        Ok(DevicePollResult::Denied) => return Next::Over("the user with the code declined".to_owned()),
        Ok(DevicePollResult::Expired) => return late(),
        Ok(DevicePollResult::Shown(member)) => return judge_member(member, scope),
        // The code stays valid while the host is unreachable, so the poll is repeated later.
        Err(HostError::Unreachable(_)) => pace.saturating_mul(2),
        Err(HostError::Limited { until }) => {
            Duration::try_from(until.duration_since(now)).map_or(pace, |left| left.max(pace))
        }
        Err(trouble) => return Next::Over(trouble.to_string()),
    };
    match add_duration(now, after) < end {
        true => Next::Ask(after),
        false => late(),
    }
}

/// Checks whether a user's level allows an answer: Maintainer for a project, Owner for a group.
fn judge_member(member: Membership, scope: Scope) -> Next {
    let (needed, name, what) = match scope {
        Scope::Project => (AccessLevel::MAINTAINER, "Maintainer", "project"),
        Scope::Group => (AccessLevel::OWNER, "Owner", "group"),
    };
    let person = name_person(member.user_id);
    match member.level {
        Some(level) if level >= needed => Next::Answered(person),
        Some(_) => Next::Over(format!("{person} is a member of the {what}, but not its {name}")),
        None => Next::Over(format!("{person} is no member of the {what}")),
    }
}

/// Returns the name of a GitLab user in a grant. It has the number, which GitLab never gives to another user.
#[must_use]
pub fn name_person(user_id: u64) -> String {
    format!("{VOUCHED_PREFIX}{user_id}")
}

/// Checks that a request has not changed since the user read it, before the code.
///
/// # Errors
/// The change of the request.
pub fn check_same(shown: &FluxAccessRequest, now: &FluxAccessRequest) -> Result<(), String> {
    let name = shown.metadata.name.as_deref().unwrap_or_default();
    if shown.metadata.uid != now.metadata.uid || hash_spec(&shown.spec) != hash_spec(&now.spec) {
        return Err(format!(
            "FluxAccessRequest {name} is another one than was shown: nothing is answered"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PACE: Duration = Duration::from_secs(5);

    fn parse_times(now: &str) -> (Timestamp, Timestamp) {
        (now.parse().unwrap(), "2026-06-01T12:05:00Z".parse().unwrap())
    }

    fn decide_after_shown(level: Option<u8>, scope: Scope) -> Next {
        let member = Membership {
            user_id: 7,
            level: level.map(AccessLevel),
        };
        decide_next(
            Ok(DevicePollResult::Shown(member)),
            scope,
            PACE,
            parse_times("2026-06-01T12:00:00Z"),
        )
    }

    #[test]
    fn only_project_maintainer_and_group_owner_may_answer() {
        let answered = Next::Answered("gitlab:7".to_owned());
        for (level, scope, may) in [
            (None, Scope::Project, false),
            (Some(10), Scope::Project, false),
            (Some(30), Scope::Project, false),
            (Some(40), Scope::Project, true),
            (Some(50), Scope::Project, true),
            (None, Scope::Group, false),
            (Some(40), Scope::Group, false),
            (Some(50), Scope::Group, true),
        ] {
            let next = decide_after_shown(level, scope);
            assert_eq!(next == answered, may, "{level:?} {scope:?}: {next:?}");
            assert!(may || matches!(next, Next::Over(_)));
        }
    }

    #[test]
    fn device_poll_respects_host_pace_and_code_lifetime() {
        let next = |answer| decide_next(answer, Scope::Project, PACE, parse_times("2026-06-01T12:00:00Z"));
        assert_eq!(next(Ok(DevicePollResult::Pending)), Next::Ask(PACE));
        assert_eq!(next(Ok(DevicePollResult::SlowDown)), Next::Ask(PACE * 2));
        assert_eq!(
            next(Err(HostError::Unreachable("down".to_owned()))),
            Next::Ask(PACE * 2)
        );
        let limited = |until: &str| {
            Err(HostError::Limited {
                until: until.parse().unwrap(),
            })
        };
        assert_eq!(next(limited("2026-06-01T12:00:40Z")), Next::Ask(PACE * 8));
        assert_eq!(next(limited("2026-06-01T11:00:00Z")), Next::Ask(PACE));
        // A poll that would come after the end is not sent.
        assert!(matches!(next(limited("2026-06-01T12:05:00Z")), Next::Over(_)));
        let last = |now| decide_next(Ok(DevicePollResult::Pending), Scope::Project, PACE, parse_times(now));
        assert_eq!(last("2026-06-01T12:04:54Z"), Next::Ask(PACE));
        assert!(matches!(last("2026-06-01T12:04:55Z"), Next::Over(_)));
        for answer in [
            Ok(DevicePollResult::Denied),
            Ok(DevicePollResult::Expired),
            // The code is used up, even if it proved an identity.
            Err(HostError::Unknown("cut off".to_owned())),
            Err(HostError::Unauthenticated),
        ] {
            assert!(matches!(next(answer), Next::Over(_)));
        }
    }

    #[test]
    fn device_flow_is_off_without_application() {
        let provider = |kind: &str, flow: serde_json::Value| -> AccessProvider {
            serde_json::from_value(json!({
                "apiVersion": "tenure.dev/v1alpha1", "kind": "AccessProvider", "metadata": { "name": "work" },
                "spec": { "kind": kind, "address": "https://gitlab.example.org", "topLevelGroup": "group-1", "deviceFlow": flow }
            }))
            .unwrap()
        };
        let flow = json!({ "clientId": "an-application" });
        assert_eq!(
            find_application(&provider("gitlab", flow.clone())),
            Ok("an-application")
        );
        assert!(
            find_application(&provider("gitlab", json!(null)))
                .unwrap_err()
                .contains("spec.deviceFlow")
        );
        assert!(
            find_application(&provider("gitea", flow))
                .unwrap_err()
                .contains("kind gitea")
        );
    }

    #[test]
    fn changed_or_recreated_request_is_not_answered() {
        let mut request = FluxAccessRequest::new("work-42-a", Default::default());
        request.metadata.uid = Some("one".to_owned());
        assert_eq!(check_same(&request, &request), Ok(()));
        let mut wider = request.clone();
        wider.spec.namespaces.push("more".to_owned());
        let mut recreated = request.clone();
        recreated.metadata.uid = Some("two".to_owned());
        for other in [wider, recreated] {
            assert!(check_same(&request, &other).is_err());
        }
    }
}
