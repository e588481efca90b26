//! The door of clusters that have an API server of their own: webhooks that it asks over TLS.
//!
//! Owns how a review comes in and how it is answered: what is read of it ([`review`]), what is known of Tenants and namespaces
//! ([`KnownFacts`]), what has to be asked of the cluster meanwhile (`questions`), and the server ([`WebhookServer`]); and that the API server goes
//! on asking: the certificate ([`TrustKeeper`]), and the configurations ([`ConfigurationKeeper`]).
//!
//! It refuses to judge by what it doesn't know: while Tenants and namespaces haven't been seen, or not for long, there is no answer but that
//! there is none, and what then becomes of the write is said by the webhook's `failurePolicy`. Of a review it keeps nothing but a place for a
//! namespace (`ledgers`), and that not for long: whoever reaches the port and makes one up is told no more than the one would be whom he pretends
//! to ask for, and that only if this one may do what the review says.
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
