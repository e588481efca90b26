//! Checks the age of Secrets that users write by hand, as the account that writes credentials elsewhere. Nothing else is read of them.

use jiff::Timestamp;
use tenure_api::access::Period;
use tenure_git_access::credential_kind::find_made;
use tenure_git_access::delivery::{RequestFacts, decide_wanted};
use tenure_git_access::manual_secret::{ManualSecretState, plan, read_age};
use tenure_git_access::rotation::{NamespaceState, Plan};
use tenure_remote_requests::git_host::HostKind;

use super::secrets::{SECRET, explain_failure, find_secret, make_id, wipe_values};
use super::steps::Actor;

impl Actor {
    /// Checks whether users write the request's Secret by hand: the provider has no host API, and no earlier credential of the request is left to be
    /// revoked.
    pub(super) fn is_by_hand(&self) -> bool {
        self.provider.is_some() && self.host_kind == HostKind::Static && find_made(&self.request).is_none()
    }

    /// Returns the plan for the hand-written Secret in a namespace.
    pub(super) async fn watch(&self, case: RequestFacts<'_>, namespace: &str) -> Option<Plan> {
        let rotate: Period = self.request.spec.rotate.parse().ok()?;
        let now = Timestamp::now();
        let seen = self.look_by_hand(namespace, now).await;
        Some(plan(namespace, &seen, &decide_wanted(case, namespace), rotate, now))
    }

    async fn look_by_hand(&self, namespace: &str, now: Timestamp) -> ManualSecretState {
        if self.access_hub.find_namespace(namespace) != NamespaceState::Present {
            return ManualSecretState::Absent;
        }
        let client = match self.writer().await {
            Ok(client) => client,
            Err(why) => return ManualSecretState::Unknown(why),
        };
        let name = &self.request.spec.secret_name;
        match find_secret(&client, namespace, name).await {
            Ok(None) => ManualSecretState::Absent,
            Ok(Some(mut found)) => {
                wipe_values(&mut found);
                read_age(&found, now)
            }
            Err(error) => {
                ManualSecretState::Unknown(explain_failure(&client, &make_id(SECRET, namespace, name), &error))
            }
        }
    }
}
