//! Keeps the certificate that a listener shows, the webhook's or another one of the controllers, in a Secret that all processes share. Owns that whoever writes it has read what he overwrites:
//! of two that race one is first, and the other takes what that one made. When what is made is `tenure_planner::certificate_renewal`.
//!
//! Refuses to give up what it has for want of an answer: while the API server can't be reached, or the Secret is gone, the last one is shown
//! on, and written again.

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

use super::certificates::{CertificateError, Kept};
use super::shown::{ClientGate, make_acceptor};
use super::written_over::write_over;

/// How often it is looked at: others renew it, too.
const LOOK: Duration = Duration::from_secs(60);
/// How soon it is tried again when nothing can be shown yet.
const EAGER: Duration = Duration::from_secs(2);
/// How many steps, and lost races, one look may have.
const STEPS: usize = 16;

/// Why a look came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The API server said no, or nothing.
    #[error("its Secret in {PLATFORM_NAMESPACE} can't be read or written: {0}")]
    Cluster(#[from] ClusterError),
    /// What is kept, or was made, is no use.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// Others change it all the time.
    #[error("its Secret in {PLATFORM_NAMESPACE} is changed by others each time before it can be written")]
    Contested,
}

/// A certificate that is kept.
#[derive(Clone, Debug)]
pub struct CertificatePlace {
    /// The Secret in the platform's namespace that it is in.
    pub secret: &'static str,
    /// What it is called, and what its authorities' names begin with.
    pub name: &'static str,
    /// What it is, for people.
    pub what: &'static str,
    /// The names and addresses that it is for.
    pub names: Vec<String>,
}

impl CertificatePlace {
    /// The webhook's, for these names.
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

/// What time it is.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Keeps the certificate.
pub struct TrustKeeper {
    client: Client,
    place: CertificatePlace,
    gate: Option<Arc<ClientGate>>,
    clock: Clock,
    state: Mutex<State>,
    /// The authorities that have to be trusted.
    bundle: watch::Sender<String>,
    /// What was wrong last, for people.
    problem: watch::Sender<String>,
}

#[derive(Default)]
struct State {
    kept: Option<Kept>,
    acceptor: Option<TlsAcceptor>,
    /// The authorities that all configurations trust.
    published: String,
    said: String,
}

impl std::fmt::Debug for TrustKeeper {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("TrustKeeper")
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

impl TrustKeeper {
    /// Keeps one, as whoever the client is.
    #[must_use]
    pub fn new(client: Client, place: CertificatePlace, gate: Option<Arc<ClientGate>>) -> Self {
        Self::with_clock(client, place, gate, Arc::new(Timestamp::now))
    }

    /// The same, by another clock.
    #[must_use]
    pub fn with_clock(client: Client, place: CertificatePlace, gate: Option<Arc<ClientGate>>, clock: Clock) -> Self {
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

    /// What takes connections now; nothing as long as there has been no certificate.
    #[must_use]
    pub fn acceptor(&self) -> Option<TlsAcceptor> {
        self.state.lock().acceptor.clone()
    }

    /// The authorities that have to be trusted, in PEM, as they change; empty as long as there are none.
    #[must_use]
    pub fn bundle(&self) -> watch::Receiver<String> {
        self.bundle.subscribe()
    }

    /// What was wrong last with what is kept, as it comes; it may be mended by then.
    #[must_use]
    pub fn problem(&self) -> watch::Receiver<String> {
        self.problem.subscribe()
    }

    /// Says that all configurations trust these authorities.
    pub fn note_published(&self, bundle: String) {
        self.state.lock().published = bundle;
    }

    /// Keeps it until it is dropped.
    pub async fn keep(&self) {
        loop {
            let looked = self.look().await;
            match &looked {
                Ok(()) => self.state.lock().said.clear(),
                Err(error) => self.say(&error.to_string()),
            }
            let has_one = self.state.lock().acceptor.is_some();
            tokio::time::sleep(if has_one { LOOK } else { EAGER }).await;
        }
    }

    /// Says what is wrong, once.
    fn say(&self, problem: &str) {
        let mut state = self.state.lock();
        if state.said != problem {
            problem.clone_into(&mut state.said);
            tracing::warn!(problem, "{}", self.place.what);
            self.problem.send_replace(problem.to_owned());
        }
    }

    /// Looks once, and makes what is to be made.
    ///
    /// # Errors
    /// [`TrustError`]; what was shown is shown on.
    pub async fn look(&self) -> Result<(), TrustError> {
        let resource = self.client.resource("v1", "Secret").await?;
        for _ in 0..STEPS {
            let found = self
                .client
                .find(&resource, PLATFORM_NAMESPACE, self.place.secret)
                .await?;
            let (mut kept, unread) = match &found {
                Some(secret) => match Kept::read(secret) {
                    Ok(kept) => (kept, None),
                    Err(error) => (self.remembered(), Some(error)),
                },
                None => (self.remembered(), None),
            };
            if let Some(error) = &unread {
                self.say(&format!(
                    "Secret {PLATFORM_NAMESPACE}/{SECRET}: {error}; it is written anew"
                ));
            }
            let is_published = self.state.lock().published == kept.bundle();
            let now = (self.clock)();
            let next = plan(&kept.describe(&self.place.names, is_published), now);
            if let Some(problem) = &next.problem {
                self.say(problem);
            }
            match next.step {
                Step::Rest if found.is_some() && unread.is_none() => return self.take(kept),
                // Written again as it was.
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
                self.take(kept)?;
            }
        }
        Err(TrustError::Contested)
    }

    fn remembered(&self) -> Kept {
        self.state.lock().kept.clone().unwrap_or_default()
    }

    /// Whether it was written, and nobody was faster.
    async fn write(
        &self,
        resource: &tenure_cluster::Resource,
        found: Option<&Value>,
        kept: &Kept,
    ) -> Result<bool, ClusterError> {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": kept.write(),
            "metadata": {"name": self.place.secret, "namespace": PLATFORM_NAMESPACE, "labels": {MANAGED_BY: MANAGED_BY_TENURE}}
        });
        let patch = json!({ "data": kept.write() });
        write_over(&self.client, resource, found, &secret, patch).await
    }

    /// From now on this is shown.
    fn take(&self, kept: Kept) -> Result<(), TrustError> {
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
