//! The complete webhook: the facts, the certificate, the server and the configurations. The configurations are written after the server
//! can answer, since the API server treats a webhook without a server as failed.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure_api::admission_webhooks::{SERVICE, WebhookPlace};
use tenure_api::metadata::PLATFORM_NAMESPACE;
use tenure_apiserver::side_listeners::PresentedCertificate;
use tenure_cluster::Client;
use tenure_tenancy::Settings;
use tokio::net::TcpListener;

use super::certificate_keeper::{CertificateKeeper, CertificatePlace};
use super::configurations::ConfigurationKeeper;
use super::decider::ReviewDecider;
use super::facts::KnownFacts;
use super::server::WebhookServer;
use super::tls::ClientVerifier;

/// The pause between two checks whether all facts are known.
const LOOK: Duration = Duration::from_millis(100);

/// The settings of a webhook.
#[derive(Debug)]
pub struct WebhookSettings {
    /// The administrator's settings for tenants.
    pub tenancy: Settings,
    /// The address at which the API server finds the webhook.
    pub place: WebhookPlace,
    /// The clients that get an answer. Without a gate, every client gets one.
    pub gate: Option<ClientVerifier>,
}

/// The webhook as a whole.
#[derive(Debug)]
pub struct WebhookInstance {
    client: Client,
    known: KnownFacts,
    /// True after every watch has reported once, and never false again: a watch that opens later must not close the
    /// whole webhook.
    has_started: AtomicBool,
    trust: Arc<CertificateKeeper>,
    server: Arc<WebhookServer>,
    configurations: ConfigurationKeeper,
}

impl WebhookInstance {
    /// Returns a webhook that reads, asks and writes with this client.
    #[must_use]
    pub fn new(client: Client, settings: WebhookSettings) -> Self {
        let gate = settings.gate.map(Arc::new);
        let known = KnownFacts::new(settings.tenancy.clone());
        let names = list_names(&settings.place);
        let trust = Arc::new(CertificateKeeper::new(
            client.clone(),
            CertificatePlace::of_webhook(names),
            gate.clone(),
        ));
        let judge = ReviewDecider::new(known.clone(), client.clone());
        Self {
            server: Arc::new(WebhookServer::new(judge, gate)),
            configurations: ConfigurationKeeper::new(
                client.clone(),
                settings.place,
                Arc::clone(&trust),
                settings.tenancy,
            ),
            client,
            known,
            has_started: AtomicBool::new(false),
            trust,
        }
    }

    /// Checks whether the webhook can answer reviews.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.has_started() && self.known.known().is_ok() && self.trust.acceptor().is_some()
    }

    fn has_started(&self) -> bool {
        if self.has_started.load(Ordering::Relaxed) {
            return true;
        }
        let has_started = self.known.check_start().is_ok();
        self.has_started.fetch_or(has_started, Ordering::Relaxed) || has_started
    }

    /// Answers reviews on this listener, and keeps the certificate and the configurations, until
    /// the future is dropped.
    pub async fn open(&self, listener: TcpListener) {
        let trust = Arc::clone(&self.trust);
        let shown = PresentedCertificate::Certificate(Arc::new(move || trust.acceptor()));
        let letting_ask = async {
            while !self.is_ready() {
                tokio::time::sleep(LOOK).await;
            }
            self.configurations.keep_configurations().await;
        };
        futures::future::join4(
            self.known.follow(self.client.clone()),
            self.trust.keep_certificate(),
            Arc::clone(&self.server).serve(listener, shown),
            letting_ask,
        )
        .await;
    }
}

/// Returns the names by which the API server calls the webhook, and which the certificate must
/// cover.
fn list_names(place: &WebhookPlace) -> Vec<String> {
    match place {
        WebhookPlace::Service => ["", ".cluster.local"]
            .map(|zone| format!("{SERVICE}.{PLATFORM_NAMESPACE}.svc{zone}"))
            .to_vec(),
        WebhookPlace::Address(address) => {
            let authority = address.split_once("://").map_or(address.as_str(), |(_, rest)| rest);
            let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
            let host = host.trim_start_matches('[').trim_end_matches(']');
            let host = host
                .parse::<IpAddr>()
                .map_or_else(|_| host.to_owned(), |address| address.to_string());
            vec![host]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_for_what_the_api_server_calls() {
        let names = |text: &str| list_names(&WebhookPlace::Address(text.to_owned()));
        assert_eq!(names("https://127.0.0.1:9443"), ["127.0.0.1"]);
        assert_eq!(names("https://[::1]:9443"), ["::1"]);
        assert_eq!(names("https://tenure.example.org:9443"), ["tenure.example.org"]);
        assert_eq!(
            list_names(&WebhookPlace::Service).first().map(String::as_str),
            Some("tenure-webhook.tenure-system.svc")
        );
    }
}
