//! A person of a host answers a request: one who has no account in the cluster shows in a browser who they are (RFC 8628), and an account that may vouch for
//! that writes the grant.
//!
//! Owns who is let answer, how such a person is called in a grant, when the host is asked again, and that what is answered is what was shown. Refuses to
//! say who may vouch, which is admission's.

use std::time::Duration;

use jiff::Timestamp;
use tenure_api::access::{AccessProvider, FluxAccessRequest};
use tenure_tenancy::admission::VOUCHED_PREFIX;

use super::host::{AccessLevel, DeviceTold, Membership, Scope, Trouble};
use super::request::hash_spec;
use super::rotation::schedule::later;

/// By how much longer the host is left alone once it was asked too soon (RFC 8628, section 3.5).
const SLOWER: Duration = Duration::from_secs(5);

/// What comes next while a code lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Ask again after this time.
    Ask(Duration),
    /// Somebody who may has shown it: what they are called in a grant.
    Answered(String),
    /// Nobody has who may, and why.
    Over(String),
}

/// The application by which people show at the host of a provider who they are.
///
/// # Errors
/// Why there is none.
pub fn find_application(provider: &AccessProvider) -> Result<&str, String> {
    let name = provider.metadata.name.as_deref().unwrap_or_default();
    let Some(flow) = &provider.spec.device_flow else {
        return Err(format!(
            "AccessProvider {name} has no spec.deviceFlow: nobody answers there by what they show at the host"
        ));
    };
    match provider.spec.kind.as_str() {
        "gitlab" => Ok(&flow.client_id),
        kind => Err(format!(
            "AccessProvider {name} is of kind {kind}, and only of gitlab it is known how people show who they are"
        )),
    }
}

/// What follows from what the host said at `now`, where it is asked at most once in `pace`, about a code that lives until `end`.
#[must_use]
pub fn go_on(
    told: Result<DeviceTold, Trouble>,
    scope: Scope,
    pace: Duration,
    (now, end): (Timestamp, Timestamp),
) -> Next {
    let late = || Next::Over("nobody has entered the code in time".to_owned());
    let after = match told {
        Ok(DeviceTold::Pending) => pace,
        Ok(DeviceTold::SlowDown) => pace.saturating_add(SLOWER),
        Ok(DeviceTold::Denied) => return Next::Over("whoever entered the code would not".to_owned()),
        Ok(DeviceTold::Expired) => return late(),
        Ok(DeviceTold::Shown(member)) => return judge(member, scope),
        // The code lives on.
        Err(Trouble::Unreachable(_)) => pace.saturating_mul(2),
        Err(Trouble::Limited { until }) => {
            Duration::try_from(until.duration_since(now)).map_or(pace, |left| left.max(pace))
        }
        Err(trouble) => return Next::Over(trouble.to_string()),
    };
    match later(now, after) < end {
        true => Next::Ask(after),
        false => late(),
    }
}

/// Whether somebody may answer for a project or a group: its Maintainer, its Owner.
fn judge(member: Membership, scope: Scope) -> Next {
    let (needed, name, what) = match scope {
        Scope::Project => (AccessLevel::MAINTAINER, "Maintainer", "project"),
        Scope::Group => (AccessLevel::OWNER, "Owner", "group"),
    };
    let person = name_person(member.user_id);
    match member.level {
        Some(level) if level >= needed => Next::Answered(person),
        Some(_) => Next::Over(format!("{person} is a member of the {what}, and not its {name}")),
        None => Next::Over(format!("{person} is no member of the {what}")),
    }
}

/// What a person of GitLab is called in a grant: by the number, which never comes to mean another one.
#[must_use]
pub fn name_person(user_id: u64) -> String {
    format!("{VOUCHED_PREFIX}{user_id}")
}

/// Whether a request is still what was shown before the code.
///
/// # Errors
/// What has become of it.
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

    fn times(now: &str) -> (Timestamp, Timestamp) {
        (now.parse().unwrap(), "2026-06-01T12:05:00Z".parse().unwrap())
    }

    fn shown(level: Option<u8>, scope: Scope) -> Next {
        let member = Membership {
            user_id: 7,
            level: level.map(AccessLevel),
        };
        go_on(
            Ok(DeviceTold::Shown(member)),
            scope,
            PACE,
            times("2026-06-01T12:00:00Z"),
        )
    }

    #[test]
    fn a_projects_maintainer_and_a_groups_owner_answer_and_nobody_else() {
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
            let next = shown(level, scope);
            assert_eq!(next == answered, may, "{level:?} {scope:?}: {next:?}");
            assert!(may || matches!(next, Next::Over(_)));
        }
    }

    #[test]
    fn a_host_is_asked_no_faster_than_it_says_and_no_longer_than_a_code_lives() {
        let next = |told| go_on(told, Scope::Project, PACE, times("2026-06-01T12:00:00Z"));
        assert_eq!(next(Ok(DeviceTold::Pending)), Next::Ask(PACE));
        assert_eq!(next(Ok(DeviceTold::SlowDown)), Next::Ask(PACE * 2));
        assert_eq!(next(Err(Trouble::Unreachable("down".to_owned()))), Next::Ask(PACE * 2));
        let limited = |until: &str| {
            Err(Trouble::Limited {
                until: until.parse().unwrap(),
            })
        };
        assert_eq!(next(limited("2026-06-01T12:00:40Z")), Next::Ask(PACE * 8));
        assert_eq!(next(limited("2026-06-01T11:00:00Z")), Next::Ask(PACE));
        // Who would be asked after its end is not asked.
        assert!(matches!(next(limited("2026-06-01T12:05:00Z")), Next::Over(_)));
        let last = |now| go_on(Ok(DeviceTold::Pending), Scope::Project, PACE, times(now));
        assert_eq!(last("2026-06-01T12:04:54Z"), Next::Ask(PACE));
        assert!(matches!(last("2026-06-01T12:04:55Z"), Next::Over(_)));
        for told in [
            Ok(DeviceTold::Denied),
            Ok(DeviceTold::Expired),
            // The code is used up, whatever was shown with it.
            Err(Trouble::Unknown("cut off".to_owned())),
            Err(Trouble::Unauthenticated),
        ] {
            assert!(matches!(next(told), Next::Over(_)));
        }
    }

    #[test]
    fn it_is_off_until_an_administrator_names_an_application() {
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
    fn what_has_become_another_request_is_not_answered() {
        let mut request = FluxAccessRequest::new("work-42-a", Default::default());
        request.metadata.uid = Some("one".to_owned());
        assert_eq!(check_same(&request, &request), Ok(()));
        let mut wider = request.clone();
        wider.spec.namespaces.push("more".to_owned());
        let mut anew = request.clone();
        anew.metadata.uid = Some("two".to_owned());
        for other in [wider, anew] {
            assert!(check_same(&request, &other).is_err());
        }
    }
}
