//! The subcommands, one file for each.

pub(crate) mod access;
pub(crate) mod address_flags;
pub(crate) mod adopt;
pub(crate) mod attest;
pub(crate) mod audit;
pub(crate) mod backup;
pub(crate) mod bootstrap;
pub(crate) mod budgets;
pub(crate) mod build;
pub(crate) mod check;
pub(crate) mod completion;
#[cfg(target_os = "linux")]
pub(crate) mod confined;
pub(crate) mod controllers;
pub(crate) mod create;
pub(crate) mod customizer;
pub(crate) mod delete;
pub(crate) mod demo;
pub(crate) mod diff;
pub(crate) mod etcd;
pub(crate) mod events;
pub(crate) mod export;
pub(crate) mod get;
pub(crate) mod install;
pub(crate) mod kube_apiserver;
#[cfg(target_os = "linux")]
pub(crate) mod lane;
pub(crate) mod lane_location;
#[cfg(target_os = "linux")]
pub(crate) mod lane_pod;
pub(crate) mod logs;
pub(crate) mod man;
mod namespace_flags;
mod package_flags;
pub(crate) mod reach;
pub(crate) mod reconcile;
pub(crate) mod recover;
pub(crate) mod run;
pub(crate) mod trace;
pub(crate) mod tree;
pub(crate) mod uninstall;
pub(crate) mod up;
pub(crate) mod values;
pub(crate) mod version;
pub(crate) mod who;
pub(crate) mod workload;
