//! Identity and rights of a request's sender, by the stored objects. [`identity`] has users and the claims of
//! ServiceAccounts' tokens. [`authorization`] has RBAC and its reviews. [`impersonation`] checks the right to act as
//! another user. This crate is pure: objects are read through [`identity::ObjectLookup`], and the caller passes the time.
//!
//! Invariant: this crate reads no credential. Certificates, keys and the signatures of tokens belong to the API
//! server. Nothing here opens a connection or knows more of a request than its headers and
//! [`authorization::Attributes`].

pub mod authorization;
pub mod identity;
pub mod impersonation;
