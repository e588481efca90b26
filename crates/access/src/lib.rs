//! Who asks, and whether they may, by what is stored: [`identity`] has users and what ServiceAccounts' tokens claim,
//! [`authorization`] has RBAC and its reviews, and [`impersonation`] who may pass for whom. Pure: objects are looked up through [`identity::Lookup`], time is passed in.
//!
//! Refuses to read a credential: certificates, keys and the signatures of tokens are the API server's. Nothing here opens a connection or
//! knows a request beyond its headers and [`authorization::Attributes`].

pub mod authorization;
pub mod identity;
pub mod impersonation;
