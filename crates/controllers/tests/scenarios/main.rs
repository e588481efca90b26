//! The controllers against an API server and a Git server, as a user meets them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::allow_attributes,
    reason = "tests may panic"
)]

mod access;
mod alerts;
mod applying;
mod artifacts;
mod attacks;
mod buckets;
mod charts;
mod clusters;
mod customizer;
mod decryption;
mod deleting;
mod deploy_keys;
mod elsewhere;
mod elsewhere_by_token;
mod expressions;
mod failing;
mod faults;
mod guards;
mod interrupted;
mod large_files;
mod lifecycle;
mod losing_nothing;
mod modes;
mod owners;
mod ownership;
mod package_values;
mod packages;
mod policies;
mod post_build;
mod program;
mod quota_shares;
mod receivers;
mod recreation;
mod references;
mod registries;
mod removal_order;
mod requests;
mod rights;
mod secrets;
mod silence;
mod sources;
mod stage;
mod stored_form;
mod stories;
mod switching;
mod tenant_contents;
mod tenants;
