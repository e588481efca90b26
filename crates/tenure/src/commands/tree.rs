//! `tenure tree`: the objects of a Kustomization, Surface, Package or HelmRelease, down to the last one, with their states. The module prints the tree, and the planner builds it. Objects
//! that the user may not read are shown as unreadable.

use std::process::ExitCode;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;
use tenure_inspection::tree::{self, DEEPEST, Extent};
use tenure_inspection::tree_lines::write_tree;

use crate::connect::{Connect, Scope};
use crate::failure::Failure;
use crate::inspection::{Form, InspectionClient, print_data};
use crate::output;

/// Show the objects that a Kustomization applied, or that a Surface, Package or HelmRelease made, as a tree, with the state of each object.
///
/// The command follows nested Kustomizations. It reads objects with your rights, and shows objects that you may not read as Forbidden. It names objects in
/// another cluster, and does not read them.
#[derive(Debug, Args)]
pub(crate) struct Tree {
    /// Kustomization, Surface, Package or HelmRelease, as KIND NAME or KIND/NAME, such as ks/web.
    #[arg(required = true, num_args = 1..=2, value_name = "KIND/NAME", add = ArgValueCompleter::new(super::completion::complete_target))]
    object: Vec<String>,
    /// Show only sources, Kustomizations, Surfaces and HelmReleases.
    #[arg(long)]
    compact: bool,
    /// Number of levels to show, 32 at most.
    #[arg(long, value_name = "NUMBER", default_value_t = 10, value_parser = parse_depth)]
    depth: usize,
    /// Maximum number of objects to show.
    #[arg(long, value_name = "NUMBER", default_value_t = 5_000)]
    limit: usize,
    /// Print the tree as data, for programs.
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<Form>,
    #[command(flatten)]
    scope: Scope,
    #[command(flatten)]
    connect: Connect,
}

fn parse_depth(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(depth) if depth <= DEEPEST => Ok(depth),
        _ => Err(format!("write a number up to {DEEPEST}")),
    }
}

impl Tree {
    pub(crate) async fn run(&self) -> Result<ExitCode, Failure> {
        let (mut lookout, id) = InspectionClient::connect(&self.object, &self.connect, &self.scope).await?;
        if !tree::has_children(&id) {
            return Err(
                Failure::usage(format!("a {} has no results to show", id.kind)).hint(format!(
                    "a tree begins with a Kustomization, Surface, Package or HelmRelease; tenure trace {}/{}{} goes the other way",
                    id.kind.to_lowercase(),
                    id.name,
                    match id.namespace.as_str() {
                        "" => String::new(),
                        namespace => format!(" -n {namespace}"),
                    }
                )),
            );
        }
        let extent = Extent {
            depth: self.depth,
            objects: self.limit.max(1),
            compact: self.compact,
        };
        let root = loop {
            match tree::build_tree(&id, &lookout.found, &extent) {
                Ok(root) => break root,
                Err(wanted) => lookout.read_objects(wanted).await,
            }
        };
        match self.output {
            Some(form) => print_data(serde_json::to_value(&root), form)?,
            None => {
                let lines = write_tree(&root, output::width(), &output::paint_tone);
                lines.iter().for_each(output::print_line);
            }
        }
        match root.count_forbidden() {
            0 => {}
            1 => output::print_note("you may not read one object: only the parts that you may read are shown"),
            many => output::print_note(format!(
                "you may not read {many} objects: only the parts that you may read are shown"
            )),
        }
        Ok(ExitCode::SUCCESS)
    }
}
