//! Scenarios as data, and the invariants of every plan.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::allow_attributes,
    reason = "tests may panic"
)]

mod alert;
mod alert_releases;
mod artifact_generator;
mod bucket;
mod chart_values;
mod deploy_keys;
mod external_artifact;
mod git_repository;
mod health;
mod helm_chart;
mod maxima;
mod oci_repository;
mod package;
mod provider;
mod provider_payloads;
mod provider_status;
mod receiver;
mod receiver_requests;
mod siblings;
mod source_waits;
mod surface;
mod surface_killed;
mod tenant;
mod tenant_account;
mod tenant_bindings;
mod tenant_contents;
mod tenant_killed;
mod tenant_lingering;
mod tenant_namespaces;
mod tenant_record;
mod tenant_shares;
#[allow(dead_code, reason = "the scenarios use the rest")]
mod world;
