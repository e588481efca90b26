//! The subcommands, one file each.

pub(crate) mod backup;
pub(crate) mod budgets;
pub(crate) mod build;
pub(crate) mod completion;
pub(crate) mod controllers;
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
pub(crate) mod lane_place;
pub(crate) mod man;
pub(crate) mod reconcile;
pub(crate) mod run;
pub(crate) mod trace;
pub(crate) mod tree;
pub(crate) mod uninstall;
pub(crate) mod up;
pub(crate) mod version;
pub(crate) mod who;
pub(crate) mod workload;
