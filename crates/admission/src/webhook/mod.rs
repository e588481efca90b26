//! The admission point for clusters with an API server of their own: webhooks that this API server calls over TLS.
//!
//! - Reviews and their answers: [`review`].
//! - The known Tenants and namespaces: [`KnownFacts`].
//! - Questions to the cluster during a review: `questions`.
//! - The server: [`WebhookServer`].
//! - The certificate ([`TrustKeeper`]) and the configurations ([`ConfigurationKeeper`]), by which the API server continues to call the webhooks.
//!
//! No decision uses unknown facts. While Tenants and namespaces are unseen, or their watches are broken for long, the webhook answers that it
//! can't decide. The webhook's `failurePolicy` then decides about the write. From a review, only a reservation for a namespace is stored
//! (`ledgers`), and only for a short time. A sender that reaches the port with an invented review learns no more than the user whose name it uses,
//! and only if this user may do what the review says.
//!
//! ```text
//! POST /mutate    ──[server]──▶ bytes ──[review]──▶ Request ──[judge]──▶ decide ──▶ patch, warnings or refusal
//! POST /validate                                                │  ▲
//!                                                     questions ▼  │ answers
//!                                                     SubjectAccessReview, reads (as the controller)
//! ```

mod certificates;
mod configurations;
mod door;
mod facts;
mod judge;
mod ledgers;
mod mentions;
mod patch;
mod questions;
pub mod review;
mod server;
mod shown;
mod trust;
mod written_over;

pub use certificates::{CertificateError, find_end};
pub use configurations::ConfigurationKeeper;
pub use door::{WebhookDoor, WebhookSettings};
pub use facts::{KnownFacts, Unknown};
pub use judge::{Effort, Judge, Unanswered};
pub use review::Phase;
pub use server::WebhookServer;
pub use shown::{ClientGate, make_acceptor};
pub use trust::{CertificatePlace, Clock, TrustError, TrustKeeper};
