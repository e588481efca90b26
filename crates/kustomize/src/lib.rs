//! `kustomize build` over an in-memory file tree, as a pure library.
//!
//! The output is byte for byte that of kustomize 5.8.1. The library reads no filesystem, fetches nothing and runs nothing. Its input is a
//! [`FileTree`]; a reference to anything outside it is an error.
//!
//! ```
//! use kustomize::{MapTree, Options, build};
//!
//! let mut tree = MapTree::new();
//! tree.insert("kustomization.yaml", "namePrefix: demo-\nresources: [config.yaml]\n");
//! tree.insert("config.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\ndata:\n  colour: teal\n");
//! let built = build(&tree, ".", &Options::default())?;
//! assert_eq!(
//!     built.to_yaml(),
//!     "apiVersion: v1\ndata:\n  colour: teal\nkind: ConfigMap\nmetadata:\n  name: demo-settings\n",
//! );
//! let colour = built.resources[0].locate("/data/colour").unwrap();
//! assert_eq!(colour.to_string(), "config.yaml:6");
//! # Ok::<(), kustomize::Error>(())
//! ```

mod accumulate;
mod build;
mod collection;
mod config;
mod crds;
mod decode;
mod error;
mod fields;
mod fieldspec;
mod generate;
mod generated;
mod growth;
mod id;
mod jsonpatch;
mod kustomization;
mod load;
mod manifests;
mod merge;
mod merge_list;
mod meter;
mod options;
mod origin;
mod output;
mod patch;
mod pattern;
mod plugin_steps;
mod plugins;
mod resource;
mod schema;
mod selector;
mod settings;
mod steps;
mod substitution;
mod touched;
mod transform;
mod tree;

pub use build::{build, build_each};
pub use error::Error;
pub use generated::generate;
pub use load::is_remote;
pub use manifests::{read_manifests, to_yaml};
pub use options::{
    Budget, ImageOverride, Limits, LoadRestrictor, Options, Overrides, PatchOverride, PatchTarget, Reorder, Stop,
};
pub use output::{Build, BuiltResource, FileName, Location, Provenance};
pub use selector::ObjectSelector;
pub use substitution::{Substitution, Variable};
pub use tree::{Entry, FileTree, MapTree};

/// The README's example is run with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
