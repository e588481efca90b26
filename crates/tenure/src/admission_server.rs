//! The admission webhook of `tenure run`: its flags and its listener. The listener goes on for a while after the end signal. `tenure_admission::webhook` makes the
//! answers.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tenure_admission::webhook::{ClientVerifier, WebhookInstance, WebhookSettings};
use tenure_api::admission_webhooks::WebhookPlace;
use tenure_apiserver::authentication::ClientCertificates;
use tenure_cluster::ClientPool;
use tenure_controllers::Config;
use tokio::task::JoinHandle;

use crate::failure::{Failure, write_chain};
use crate::plain_http::{open_listener, parse_address};

/// The time for which the webhook answers after everything else has ended. During this time, an API server may not know that the Pod is ending.
const LINGERING: Duration = Duration::from_secs(5);

/// Flags of the admission webhook, which checks writes for the API server before they are stored.
#[derive(Clone, Debug, Args)]
#[group(id = "admission-webhooks")]
pub(crate) struct Flags {
    /// Address at which the API server asks this process about writes, over HTTPS. A port alone means every address. Unset: no admission webhooks.
    ///
    /// The controllers write the webhook configurations once the process can answer, and restore them after changes. `tenure install --admission` grants the
    /// rights for this. The flag is refused if --controllers switches `tenant` off.
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = parse_address)]
    admission_address: Option<SocketAddr>,
    /// URL at which the API server reaches the webhook [default: the Service tenure-webhook in tenure-system].
    #[arg(long, value_name = "https://HOST:PORT", requires = "admission_address", value_parser = parse_url)]
    admission_url: Option<String>,
    /// CA certificates in PEM: only clients with a certificate of this authority get an answer. Use the flag if the API server shows a certificate to
    /// webhooks.
    #[arg(long, value_name = "FILE", requires = "admission_address")]
    admission_client_ca: Option<PathBuf>,
    /// Common name that a client's certificate must have, with --admission-client-ca. Can be repeated for several names. Unset: any name.
    #[arg(
        long = "admission-client-name",
        value_name = "NAME",
        requires = "admission_client_ca"
    )]
    admission_client_names: Vec<String>,
    /// Reconcile Tenants as in a cluster where all writes are checked, because another instance answers the API server. Not with --admission-address.
    #[arg(long, conflicts_with = "admission_address")]
    admission_elsewhere: bool,
}

/// The values of the flags.
#[derive(Debug)]
pub(crate) struct AdmissionSettings {
    address: SocketAddr,
    place: WebhookPlace,
    gate: Option<ClientVerifier>,
}

/// Reads an address in the form of webhooks: `https://HOST:PORT`.
fn parse_url(text: &str) -> Result<String, String> {
    let refuse = || "it must be https://HOST:PORT, without a path".to_owned();
    let uri: http::Uri = text.parse().map_err(|_| refuse())?;
    let is_whole = uri.scheme_str() == Some("https")
        && uri.port().is_some()
        && uri
            .authority()
            .is_some_and(|authority| !authority.as_str().contains('@'))
        && matches!(uri.path(), "" | "/")
        && uri.query().is_none();
    match is_whole {
        true => Ok(text.trim_end_matches('/').to_owned()),
        false => Err(refuse()),
    }
}

impl Flags {
    /// Whether admission checks writes, in this instance or in another one.
    pub(crate) fn is_on(&self) -> bool {
        self.admission_elsewhere || self.admission_address.is_some()
    }

    /// Reads the flags; `None` without a webhook in this process.
    pub(crate) fn read_settings(&self) -> Result<Option<AdmissionSettings>, Failure> {
        let Some(address) = self.admission_address else {
            return Ok(None);
        };
        let gate = self.admission_client_ca.as_deref().map(read_authorities).transpose()?;
        Ok(Some(AdmissionSettings {
            address,
            place: self
                .admission_url
                .clone()
                .map_or(WebhookPlace::Service, WebhookPlace::Address),
            gate: gate.map(|authorities| ClientVerifier {
                authorities,
                names: self.admission_client_names.clone(),
            }),
        }))
    }
}

fn read_authorities(path: &Path) -> Result<ClientCertificates, Failure> {
    let refuse = |problem: &str| {
        Failure::usage(format!("{}: {problem}", path.display()))
            .hint("--admission-client-ca names a file with certificates in PEM")
    };
    let text = std::fs::read(path).map_err(|error| refuse(&error.to_string()))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.map_err(|error| refuse(&error.to_string()))?;
    if found.is_empty() {
        return Err(refuse("there is no certificate in it"));
    }
    ClientCertificates::new(&found).map_err(|error| refuse(&write_chain(&error)))
}

/// A running webhook.
pub(crate) struct RunningWebhook {
    door: Arc<WebhookInstance>,
    serving: JoinHandle<()>,
    is_in_a_cluster: bool,
}

/// Starts the listener, which answers until the process ends.
pub(crate) async fn open_webhook(settings: AdmissionSettings, config: &Config) -> Result<RunningWebhook, Failure> {
    if !config.enabled_kinds.is_on("Tenant") {
        return Err(Failure::usage(
            "--admission-address: its rules follow from Tenants, and the controller tenant is off",
        )
        .hint("add tenant to --controllers, or leave out --admission-address"));
    }
    let listener = open_listener(settings.address, "--admission-address").await?;
    let is_in_a_cluster = settings.place == WebhookPlace::Service;
    let client = ClientPool::new(config.connection.clone()).controller();
    let settings = WebhookSettings {
        tenancy: config.settings.clone(),
        place: settings.place,
        gate: settings.gate,
    };
    let door = Arc::new(WebhookInstance::new(client, settings));
    let opened = Arc::clone(&door);
    // The task continues while everything else ends.
    let serving = tokio::spawn(async move { opened.open(listener).await });
    Ok(RunningWebhook {
        door,
        serving,
        is_in_a_cluster,
    })
}

impl RunningWebhook {
    /// Returns the webhook, to check whether it can answer.
    pub(crate) fn watch(&self) -> Arc<WebhookInstance> {
        Arc::clone(&self.door)
    }

    /// Continues to answer until no more requests should arrive.
    pub(crate) async fn linger(self) {
        if self.is_in_a_cluster {
            tokio::time::sleep(LINGERING).await;
        }
        self.serving.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_a_webhook_is_whole_and_safe() {
        assert_eq!(
            parse_url("https://127.0.0.1:9443/").as_deref(),
            Ok("https://127.0.0.1:9443")
        );
        assert_eq!(parse_url("https://[::1]:9443").as_deref(), Ok("https://[::1]:9443"));
        for text in [
            "http://a:1",
            "https://a",
            "https://a:1/path",
            "https://a:1?x",
            "https://u@a:1",
            "",
            "a:1",
        ] {
            assert!(parse_url(text).is_err(), "{text}");
        }
    }
}
