//! The admission point for clusters with an API server of their own: webhooks that this API server calls over TLS.
//!
//! - Reviews and their answers: [`review`].
//! - The known Tenants and namespaces: [`KnownFacts`].
//! - Questions to the cluster during a review: `cluster_queries`.
//! - The server: [`WebhookServer`].
//! - The certificate ([`CertificateKeeper`]) and the configurations ([`ConfigurationKeeper`]), by which the API server continues to call the webhooks.
//!
//! No decision uses unknown facts. While Tenants and namespaces are unseen, or their watches are broken for long, the webhook answers that it
//! can't decide. The webhook's `failurePolicy` then decides about the write. From a review, only a reservation for a namespace is stored
//! (`ledgers`), and only for a short time. A sender that reaches the port with an invented review learns no more than the user whose name it uses,
//! and only if this user may do what the review says.
//!
//! ```text
//! POST /mutate    ──[server]──▶ bytes ──[review]──▶ Request ──[decider]──▶ decide ──▶ patch, warnings or refusal
//! POST /validate                                                │  ▲
//!                                                     questions ▼  │ answers
//!                                                     SubjectAccessReview, reads (as the controller)
//! ```

mod certificate_keeper;
mod certificates;
mod cluster_queries;
mod configurations;
mod decider;
mod facts;
mod ledgers;
mod mentions;
mod patch;
pub mod review;
mod server;
mod shared_objects;
mod tls;
mod webhook_instance;

pub use certificate_keeper::{CertificateKeeper, CertificateKeeperError, CertificatePlace, Clock};
pub use certificates::{CertificateError, find_end};
pub use configurations::ConfigurationKeeper;
pub use decider::{ReviewDecider, Unanswered, WorkAmount};
pub use facts::{KnownFacts, Unknown};
pub use review::Phase;
pub use server::WebhookServer;
pub use tls::{ClientVerifier, make_acceptor};
pub use webhook_instance::{WebhookInstance, WebhookSettings};
