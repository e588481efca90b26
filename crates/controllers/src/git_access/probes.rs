//! Probes of credentials: the controllers present a credential to its server as the credential's own client would.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tenure_api::access::request::CredentialLedger;
use tenure_git_access::delivery::Form;
use tenure_git_access::rotation::{Answer, Probe};
use tenure_remote_requests::git_host::{HostError, ProbeResult, Scope};
use tenure_sources::{SecretData, probe_git, probe_registry};

use super::secret_parts::find_host_name;
use super::secrets;
use super::steps::Actor;

/// The time limit of a probe.
const PROBE: Duration = Duration::from_secs(30);
/// The pause of a server that asks for one without naming its end. The API of a host gets the same pause.
const UNNAMED_PAUSE: SignedDuration = SignedDuration::from_mins(1);

impl Actor {
    /// Tries the staged value as its client would.
    pub(super) async fn probe_staged(&self, namespace: &str, ledger: &CredentialLedger) -> Answer {
        let data = async {
            let staged = self.read_staged(namespace).await.map_err(Probe::Unreachable)?;
            let found = self.find_surroundings(ledger).await.map_err(explain_trouble)?;
            secrets::make_client_data(&staged, found.borrow()).map_err(Probe::Unreachable)
        };
        Answer::Probed(self.probe(data.await, ledger).await)
    }

    /// Tries the value in the Secret of a namespace as its client would.
    pub(super) async fn probe_delivered(&self, namespace: &str, ledger: &CredentialLedger) -> Answer {
        let data = async {
            let client = self.writer().await?;
            secrets::read_data(&client, namespace, &self.request.spec.secret_name).await
        };
        let data = data.await.map_err(Probe::Unreachable);
        Answer::Probed(self.probe(data, ledger).await)
    }

    async fn probe(&self, data: Result<SecretData, Probe>, ledger: &CredentialLedger) -> Probe {
        let tried = async { self.present(&data?, ledger).await };
        match tried.await {
            Ok(None | Some(ProbeResult::Accepted)) => Probe::Works,
            Ok(Some(ProbeResult::Refused(why))) => {
                self.host.record_refused_probe(Timestamp::now());
                Probe::Refused(why)
            }
            Ok(Some(ProbeResult::Limited { url, wait, .. })) => Probe::Banned(self.record_pause(&url, wait)),
            Ok(Some(ProbeResult::Unclear(why))) => Probe::Unreachable(why),
            Err(probe) => probe,
        }
    }

    /// Presents a credential to the server of its repository or of its images. None if the host reports no address for them.
    async fn present(&self, data: &SecretData, ledger: &CredentialLedger) -> Result<Option<ProbeResult>, Probe> {
        let target = self.current_target(ledger);
        let found = self.find(&target).await.map_err(explain_trouble)?;
        let found = found.ok_or_else(|| Probe::Unreachable("the host doesn't show its purpose".to_owned()))?;
        let found = match target.scope {
            Scope::Project => found,
            // A group has no repository of its own. The probe uses a project in it.
            Scope::Group => match self.find_member(found.target).await.map_err(explain_trouble)? {
                Some(member) => member,
                None => return Ok(None),
            },
        };
        let reach = self.access_hub.hub.context.reach(true);
        let probing = async {
            match (self.form(), found.http_url, found.ssh_url, found.registry_prefix) {
                (Form::Basic, Some(url), ..) => Some(probe_git(&url, data, reach).await),
                (Form::Ssh, _, Some(url), _) => Some(probe_git(&url, data, reach).await),
                (Form::Docker, _, _, Some(prefix)) => {
                    // If the host is reached without TLS, so is its registry. This occurs only in tests.
                    let is_plain = self
                        .provider
                        .as_ref()
                        .is_some_and(|provider| provider.spec.address.starts_with("http://"));
                    Some(probe_registry(&format!("oci://{prefix}"), is_plain, data, reach).await)
                }
                // The host reports no address for these. Their sources prove the credential.
                _ => None,
            }
        };
        let probed = tokio::time::timeout(PROBE, probing).await;
        probed.map_err(|_| Probe::Unreachable("there was no answer in time".to_owned()))
    }

    /// Records the pause of a server, and returns its end. If the server has the name of the host, the host's API gets no requests either.
    fn record_pause(&self, url: &str, wait: Option<Duration>) -> Timestamp {
        let wait = match wait {
            Some(wait) => SignedDuration::try_from(wait).unwrap_or(SignedDuration::MAX),
            None => UNNAMED_PAUSE,
        };
        let now = Timestamp::now();
        let until = now.checked_add(wait).unwrap_or(Timestamp::MAX);
        let provider = self.provider.as_ref();
        let own = provider.and_then(|provider| find_host_name(&provider.spec.address));
        if own.is_some() && find_host_name(url) == own {
            self.host.record_block(&HostError::Limited { until });
        } else {
            self.host.record_probe_pause(until, now);
        }
        until
    }
}

/// Returns the result of a probe before which the host could not be asked. A pause of the host has a known end.
fn explain_trouble(trouble: HostError) -> Probe {
    match trouble {
        HostError::Banned { until } | HostError::Limited { until } => Probe::Banned(until),
        trouble => Probe::Unreachable(trouble.to_string()),
    }
}
