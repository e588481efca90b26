//! The admission webhook of `tenure run`: its flags, and its listener. Owns where it listens and how long it goes on after it was told to end;
//! what is answered is `tenure_admission::webhook`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tenure_admission::webhook::{ClientGate, WebhookDoor, WebhookSettings};
use tenure_api::admission_webhooks::WebhookPlace;
use tenure_apiserver::authentication::ClientCertificates;
use tenure_cluster::ClientPool;
use tenure_controllers::Config;
use tokio::task::JoinHandle;

use crate::failure::{Failure, chain};
use crate::plain_http::{listen, parse_address};

/// How long it answers after the end of everything else: until then an API server may not have heard that this Pod is going.
const LINGERING: Duration = Duration::from_secs(5);

/// Whether the API server asks here about what is written.
#[derive(Clone, Debug, Args)]
#[group(id = "admission-webhooks")]
pub(crate) struct Flags {
    /// Answer the API server here, over HTTPS, about what is written, a port alone on every address; its webhooks are written once it can be
    /// answered, and kept. `tenure install --admission` gives the rights for that. Without it, nobody is asked.
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = parse_address)]
    admission_address: Option<SocketAddr>,
    /// Where the API server finds it [default: the Service tenure-webhook in tenure-system].
    #[arg(long, value_name = "https://HOST:PORT", requires = "admission_address", value_parser = parse_url)]
    admission_url: Option<String>,
    /// Answer only who shows a certificate of this authority, in PEM: where the API server has one to show to webhooks.
    #[arg(long, value_name = "FILE", requires = "admission_address")]
    admission_client_ca: Option<PathBuf>,
    /// And only this common name; may be given again.
    #[arg(
        long = "admission-client-name",
        value_name = "NAME",
        requires = "admission_client_ca"
    )]
    admission_client_names: Vec<String>,
    /// Another instance answers the API server: Tenants are reconciled as those of which all is judged that is written.
    #[arg(long, conflicts_with = "admission_address")]
    admission_elsewhere: bool,
}

/// What the flags say.
#[derive(Debug)]
pub(crate) struct AdmissionSettings {
    address: SocketAddr,
    place: WebhookPlace,
    gate: Option<ClientGate>,
}

/// An address as webhooks have it: `https://HOST:PORT`.
fn parse_url(text: &str) -> Result<String, String> {
    let refuse = || "https://HOST:PORT is wanted, and no path".to_owned();
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
    /// Whether what is written is judged, here or by another instance.
    pub(crate) fn is_on(&self) -> bool {
        self.admission_elsewhere || self.admission_address.is_some()
    }

    /// Reads what is written in them; nothing where nobody is to be asked.
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
            gate: gate.map(|authorities| ClientGate {
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
    ClientCertificates::new(&found).map_err(|error| refuse(&chain(&error)))
}

/// A webhook that is asked.
pub(crate) struct OpenDoor {
    door: Arc<WebhookDoor>,
    serving: JoinHandle<()>,
    is_in_a_cluster: bool,
}

/// Listens, and answers until the process ends.
pub(crate) async fn open(settings: AdmissionSettings, config: &Config) -> Result<OpenDoor, Failure> {
    if !config.switches.is_on("Tenant") {
        return Err(
            Failure::usage("--admission-address: what may be written follows from Tenants, and they are off")
                .hint("let --controllers have tenant, or leave --admission-address away"),
        );
    }
    let listener = listen(settings.address, "--admission-address").await?;
    let is_in_a_cluster = settings.place == WebhookPlace::Service;
    let client = ClientPool::new(config.connection.clone()).controller();
    let settings = WebhookSettings {
        tenancy: config.settings.clone(),
        place: settings.place,
        gate: settings.gate,
    };
    let door = Arc::new(WebhookDoor::new(client, settings));
    let opened = Arc::clone(&door);
    // A task of its own: it goes on while everything else ends.
    let serving = tokio::spawn(async move { opened.open(listener).await });
    Ok(OpenDoor {
        door,
        serving,
        is_in_a_cluster,
    })
}

impl OpenDoor {
    /// The webhook, to see whether it can answer.
    pub(crate) fn watch(&self) -> Arc<WebhookDoor> {
        Arc::clone(&self.door)
    }

    /// Answers on until nobody should come any more.
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
