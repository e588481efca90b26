//! `tenure create receiver` and `tenure create alert`.

use clap::Args;
use tenure_api::alert::{AlertSpec, EventSource};
use tenure_api::duration::DurationText;
use tenure_api::receiver::{ReceiverResource, ReceiverSpec};
use tenure_api::reference::LocalObjectReference;
use tenure_api::{Alert, Receiver};

use super::references::{parse_duration, parse_event_source, parse_resource};
use super::{Common, InNamespace, NewObject};
use crate::failure::Failure;

/// The types of senders that a Receiver verifies.
const TYPES: [&str; 9] = [
    "generic",
    "generic-hmac",
    "github",
    "gitlab",
    "bitbucket",
    "harbor",
    "dockerhub",
    "quay",
    "nexus",
];

/// Create a Receiver, or change it.
#[derive(Debug, Args)]
pub(super) struct ReceiverFlags {
    #[command(flatten)]
    pub(super) common: Common,
    #[command(flatten)]
    pub(super) place: InNamespace,
    /// Type of the sender.
    #[arg(long = "type", value_name = "TYPE", value_parser = TYPES)]
    type_: String,
    /// Event that the Receiver accepts, such as push. Can be repeated, and separated by commas [default: all].
    #[arg(long = "event", value_name = "NAME", value_delimiter = ',')]
    events: Vec<String>,
    /// Secret with the key `token`, which the sender must know.
    #[arg(long, value_name = "NAME")]
    secret_ref: String,
    /// Object that a request reconciles, as KIND/NAME[.NAMESPACE]. Can be repeated, and separated by commas.
    #[arg(long = "resource", value_name = "OBJECT", required = true, value_delimiter = ',', value_parser = parse_resource)]
    resources: Vec<ReceiverResource>,
    /// Time between two checks of the Secret.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    interval: Option<DurationText>,
}

impl ReceiverFlags {
    pub(super) fn write(&self) -> Result<NewObject, Failure> {
        let spec = ReceiverSpec {
            type_: self.type_.clone(),
            events: self.events.clone(),
            secret_ref: Some(LocalObjectReference {
                name: self.secret_ref.clone(),
            }),
            resources: self.resources.clone(),
            interval: self.interval.clone(),
            ..ReceiverSpec::default()
        };
        NewObject::write::<Receiver>(&self.common, Some(&self.place), &spec)
    }
}

/// Create an Alert, or change it.
#[derive(Debug, Args)]
pub(super) struct AlertFlags {
    #[command(flatten)]
    pub(super) common: Common,
    #[command(flatten)]
    pub(super) place: InNamespace,
    /// Provider that receives the events, in the same namespace.
    #[arg(long, value_name = "NAME")]
    provider_ref: String,
    /// Lowest severity of the events to send.
    #[arg(long, value_name = "SEVERITY", value_parser = ["info", "error"])]
    event_severity: Option<String>,
    /// Object whose events are sent, as KIND/NAME[.NAMESPACE]; the name `*` stands for all. Can be repeated, and separated by commas.
    #[arg(long = "event-source", value_name = "OBJECT", required = true, value_delimiter = ',', value_parser = parse_event_source)]
    event_sources: Vec<EventSource>,
}

impl AlertFlags {
    pub(super) fn write(&self) -> Result<NewObject, Failure> {
        let spec = AlertSpec {
            provider_ref: LocalObjectReference {
                name: self.provider_ref.clone(),
            },
            event_severity: self.event_severity.clone(),
            event_sources: self.event_sources.clone(),
            ..AlertSpec::default()
        };
        NewObject::write::<Alert>(&self.common, Some(&self.place), &spec)
    }
}
