//! Keeps the certificate that a listener shows, of the webhook or another listener of the controllers, in a Secret that all processes share. A write succeeds
//! only if the Secret is unchanged since it was read. Of two writers in a race one succeeds, and the other one uses that certificate.
//! `tenure_planner::certificate_renewal` decides when a certificate is made.
//!
//! A missing answer removes no certificate: while the API server is unreachable or the Secret is missing, the listener shows the last one. A missing Secret is
//! written again.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tenure_api::admission_webhooks::SECRET;
use tenure_api::metadata::{MANAGED_BY, MANAGED_BY_TENURE, PLATFORM_NAMESPACE};
use tenure_cluster::{Client, ClusterError};
use tenure_planner::certificate_renewal::{Step, plan};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::certificates::{CertificateError, StoredCertificate};
use super::shared_objects::write_if_unchanged;
use super::tls::{ClientVerifier, make_acceptor};

/// The pause between two reads of the Secret, since other processes renew the certificate, too.
const LOOK: Duration = Duration::from_secs(60);
/// The pause before the next attempt while no certificate is available.
const EAGER: Duration = Duration::from_secs(2);
/// The greatest number of steps and lost races in one check of the Secret.
const STEPS: usize = 16;

/// The reason why the Secret could not be checked, or its certificate not renewed.
#[derive(Debug, thiserror::Error)]
pub enum CertificateKeeperError {
    /// The API server refuses or doesn't answer.
    #[error("its Secret in {PLATFORM_NAMESPACE} can't be read or written: {0}")]
    Cluster(#[from] ClusterError),
    /// The stored or the new certificate is unusable.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// Other writers change the Secret in each attempt.
    #[error("other writers change its Secret in {PLATFORM_NAMESPACE} each time before it can be written")]
    Contested,
}

/// The Secret that stores a certificate, and the names that the certificate covers.
#[derive(Clone, Debug)]
pub struct CertificatePlace {
    /// The name of the Secret in the platform's namespace.
    pub secret: &'static str,
    /// The certificate's name, and the prefix of its authorities' names.
    pub name: &'static str,
    /// The purpose of the certificate, for messages.
    pub what: &'static str,
    /// The names and addresses that the certificate covers.
    pub names: Vec<String>,
}

impl CertificatePlace {
    /// Returns the place of the webhook's certificate, for these names.
    #[must_use]
    pub fn of_webhook(names: Vec<String>) -> Self {
        Self {
            secret: SECRET,
            name: "tenure-webhook",
            what: "the certificate of the admission webhook",
            names,
        }
    }
}

/// Returns the current time.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Keeps the certificate of one listener.
pub struct CertificateKeeper {
    client: Client,
    place: CertificatePlace,
    gate: Option<Arc<ClientVerifier>>,
    clock: Clock,
    state: Mutex<State>,
    /// The authorities that clients have to trust.
    bundle: watch::Sender<String>,
    /// The last problem, for messages.
    problem: watch::Sender<String>,
}

/// The stored certificate, its TLS acceptor, the authorities that all configurations trust, and the last logged problem.
#[derive(Default)]
struct State {
    kept: Option<StoredCertificate>,
    acceptor: Option<TlsAcceptor>,
    /// The authorities that all configurations trust.
    published: String,
    last_problem: String,
}

impl std::fmt::Debug for CertificateKeeper {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("CertificateKeeper")
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

impl CertificateKeeper {
    /// Returns a keeper of one certificate, with the identity of the client.
    #[must_use]
    pub fn new(client: Client, place: CertificatePlace, gate: Option<Arc<ClientVerifier>>) -> Self {
        Self::with_clock(client, place, gate, Arc::new(Timestamp::now))
    }

    /// Returns a keeper that reads the time from this clock.
    #[must_use]
    pub fn with_clock(
        client: Client,
        place: CertificatePlace,
        gate: Option<Arc<ClientVerifier>>,
        clock: Clock,
    ) -> Self {
        Self {
            client,
            place,
            gate,
            clock,
            state: Mutex::default(),
            bundle: watch::Sender::new(String::new()),
            problem: watch::Sender::new(String::new()),
        }
    }

    /// Returns the acceptor for new connections. Returns none before the first certificate exists.
    #[must_use]
    pub fn acceptor(&self) -> Option<TlsAcceptor> {
        self.state.lock().acceptor.clone()
    }

    /// Returns the authorities that clients have to trust, in PEM, as they change. The text is empty
    /// before the first authority exists.
    #[must_use]
    pub fn bundle(&self) -> watch::Receiver<String> {
        self.bundle.subscribe()
    }

    /// Returns the last problem of the stored certificate, as it changes. The problem may be solved
    /// by then.
    #[must_use]
    pub fn problem(&self) -> watch::Receiver<String> {
        self.problem.subscribe()
    }

    /// Records that all configurations trust these authorities.
    pub fn record_published_bundle(&self, bundle: String) {
        self.state.lock().published = bundle;
    }

    /// Keeps the certificate until the future is dropped.
    pub async fn keep_certificate(&self) {
        loop {
            let checked = self.check_secret().await;
            match &checked {
                Ok(()) => self.state.lock().last_problem.clear(),
                Err(error) => self.log_problem(&error.to_string()),
            }
            let has_one = self.state.lock().acceptor.is_some();
            tokio::time::sleep(if has_one { LOOK } else { EAGER }).await;
        }
    }

    /// Reports a problem, once.
    fn log_problem(&self, problem: &str) {
        let mut state = self.state.lock();
        if state.last_problem != problem {
            problem.clone_into(&mut state.last_problem);
            tracing::warn!(problem, "{}", self.place.what);
            self.problem.send_replace(problem.to_owned());
        }
    }

    /// Looks at the Secret once, and makes a new authority or certificate if one is due.
    ///
    /// # Errors
    /// [`CertificateKeeperError`]. The listener then continues with the last certificate.
    pub async fn check_secret(&self) -> Result<(), CertificateKeeperError> {
        let resource = self.client.resource("v1", "Secret").await?;
        for _ in 0..STEPS {
            let found = self
                .client
                .find(&resource, PLATFORM_NAMESPACE, self.place.secret)
                .await?;
            let (mut kept, unread) = match &found {
                Some(secret) => match StoredCertificate::read(secret) {
                    Ok(kept) => (kept, None),
                    Err(error) => (self.copy_certificate(), Some(error)),
                },
                None => (self.copy_certificate(), None),
            };
            if let Some(error) = &unread {
                self.log_problem(&format!(
                    "Secret {PLATFORM_NAMESPACE}/{SECRET}: {error}; it is written again"
                ));
            }
            let is_published = self.state.lock().published == kept.bundle();
            let now = (self.clock)();
            let next = plan(&kept.describe(&self.place.names, is_published), now);
            if let Some(problem) = &next.problem {
                self.log_problem(problem);
            }
            match next.step {
                Step::Rest if found.is_some() && unread.is_none() => return self.use_certificate(kept),
                // The Secret is written again without changes.
                Step::Rest => {}
                Step::MakeAuthority { and_certificate } => {
                    kept.make_authority(self.place.name, now)?;
                    if and_certificate {
                        kept.make_certificate((self.place.name, &self.place.names), now)?;
                    }
                }
                Step::MakeCertificate => kept.make_certificate((self.place.name, &self.place.names), now)?,
                Step::Forget(count) => kept.forget(count),
            }
            if self.write(&resource, found.as_ref(), &kept).await? {
                tracing::info!(step = ?next.step, "{} was renewed", self.place.what);
                self.use_certificate(kept)?;
            }
        }
        Err(CertificateKeeperError::Contested)
    }

    fn copy_certificate(&self) -> StoredCertificate {
        self.state.lock().kept.clone().unwrap_or_default()
    }

    /// Writes the Secret. Returns true if the write succeeded and no other writer was faster.
    async fn write(
        &self,
        resource: &tenure_cluster::Resource,
        found: Option<&Value>,
        kept: &StoredCertificate,
    ) -> Result<bool, ClusterError> {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": kept.write(),
            "metadata": {"name": self.place.secret, "namespace": PLATFORM_NAMESPACE, "labels": {MANAGED_BY: MANAGED_BY_TENURE}}
        });
        let patch = json!({ "data": kept.write() });
        write_if_unchanged(&self.client, resource, found, &secret, patch).await
    }

    /// Shows this certificate from now on.
    fn use_certificate(&self, kept: StoredCertificate) -> Result<(), CertificateKeeperError> {
        let shown = kept.shown();
        let acceptor = shown.map(|(certificate, key)| make_acceptor(vec![certificate], key, self.gate.as_deref()));
        let acceptor = acceptor.transpose().map_err(CertificateError::from)?;
        let bundle = kept.bundle();
        {
            let mut state = self.state.lock();
            state.acceptor = acceptor;
            state.kept = Some(kept);
        }
        self.bundle.send_if_modified(|known| {
            let is_new = *known != bundle;
            if is_new {
                *known = bundle;
            }
            is_new
        });
        Ok(())
    }
}
