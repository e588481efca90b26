//! Prints the answer of `tenure reach`, for people and as data.

use std::fmt::Write as _;

use kubernetes_reach::{Access, Node, Reach, Reached};
use serde_json::json;
use tenure_api::text::visible_line;

use crate::failure::Failure;
use crate::output;

/// The largest number of stopped edges in a table.
const MOST_STOPPED: usize = 20;

pub(super) fn print_json(subject: &str, reach: &Reach<'_>, reached: &[Reached]) -> Result<(), Failure> {
    output::print_json(&json!({
        "subject": subject, "reached": reached, "rights": reach.list_rights(), "stopped": reach.list_stopped(),
        "unknown": reach.list_unknown(),
    }))
}

pub(super) fn print_admin(subject: &str, admin: Option<&Reached>, as_json: bool) -> Result<(), Failure> {
    if as_json {
        return output::print_json(&json!({ "subject": subject, "reached": admin }));
    }
    match admin {
        Some(admin) => output::print_line(describe_path(admin)),
        None => output::print_line(format!("{} does not reach cluster-admin", visible_line(subject))),
    }
    Ok(())
}

pub(super) fn print_access(access: &[Access], as_json: bool) -> Result<(), Failure> {
    if as_json {
        return output::print_json(&json!(access));
    }
    if access.is_empty() {
        output::print_line("out of reach");
    }
    for access in access {
        output::print_line(format!(
            "{}: {}\n{}",
            output::bold(access.access),
            visible_line(&access.by),
            describe_path(&access.reached)
        ));
    }
    Ok(())
}

pub(super) fn print_table(reach: &Reach<'_>, reached: &[Reached], with_paths: bool, is_addition: bool) {
    if reached.is_empty() {
        output::print_line(if is_addition {
            "the manifests add nothing"
        } else {
            "nothing"
        });
    }
    let all = reached.len();
    let reached = without_administrators(reached);
    if reached.len() < all {
        output::print_note(format!(
            "cluster-admin reaches {} more; -o json lists all",
            all - reached.len()
        ));
    }
    let worst = reached.iter().filter(|reached| is_worst(&reached.node));
    for reached in reached.iter().filter(|reached| with_paths || is_worst(&reached.node)) {
        output::print_line(describe_path(reached));
    }
    let is_worst_shown = worst.count() > 0;
    if !with_paths && !reached.is_empty() {
        if is_worst_shown {
            output::print_line("");
        }
        let headers = ["reaches", "steps", "by"].map(str::to_owned);
        let rows = reached.iter().map(|reached| {
            let edges: Vec<&str> = reached.path.iter().map(|step| step.edge.as_str()).collect();
            let mut by = edges.join(" > ");
            if !reached.is_certain {
                by.push_str(" (unless admission denies it)");
            }
            vec![
                visible_line(&reached.node.to_string()).into_owned(),
                reached.path.len().to_string(),
                by,
            ]
        });
        output::print_line(output::table(&headers, rows.collect()));
    }
    let stopped = reach.list_stopped();
    for stopped in stopped.iter().take(MOST_STOPPED) {
        output::print_note(format!(
            "stopped: {} to {} from {}, by {}; while Tenure is dead it {}",
            stopped.edge,
            visible_line(&stopped.to),
            visible_line(&stopped.from),
            visible_line(&stopped.by.name),
            stopped.by.when_dead.as_str()
        ));
    }
    if stopped.len() > MOST_STOPPED {
        output::print_note(format!(
            "stopped: {} more; -o json lists all",
            stopped.len() - MOST_STOPPED
        ));
    }
}

/// Leaves out the rights that an administrator reaches, if the subject is one.
fn without_administrators(reached: &[Reached]) -> Vec<&Reached> {
    let admin = reached.iter().find(|reached| reached.node.is_cluster_admin());
    let Some(last) = admin.and_then(|admin| admin.path.last()) else {
        return reached.iter().collect();
    };
    let is_through = |reached: &&Reached| {
        let mut steps = reached.path.iter();
        reached.node.is_cluster_admin() || !steps.any(|step| step.from == last.to || step.from == last.from)
    };
    reached.iter().filter(is_through).collect()
}

fn is_worst(node: &Node) -> bool {
    node.is_cluster_admin() || *node == Node::Nodes || matches!(node, Node::Credential(_))
}

/// Describes a path, with one step for each line.
fn describe_path(reached: &Reached) -> String {
    let node = visible_line(&reached.node.to_string()).into_owned();
    let mut text = if is_worst(&reached.node) {
        output::bad(&node)
    } else {
        output::bold(&node)
    };
    for step in &reached.path {
        let _written = write!(text, "\n  {} ", visible_line(&step.from));
        let _written = write!(text, "--{}--> {}", step.edge, visible_line(&step.to));
        let reasons: Vec<&str> = [step.right.as_str(), step.by.as_str()]
            .into_iter()
            .filter(|reason| !reason.is_empty())
            .collect();
        if !reasons.is_empty() {
            let _written = write!(text, "  ({})", visible_line(&reasons.join("; ")));
        }
        if let Some(with) = &step.with {
            let _written = write!(text, "\n      with {}", visible_line(with));
        }
        for judge in &step.judged_by {
            let _written = write!(
                text,
                "\n      unless {} denies it; while Tenure is dead it {}",
                visible_line(&judge.name),
                judge.when_dead.as_str()
            );
        }
        if let Some(judge) = &step.taken_away {
            let _written = write!(text, "\n      after {} is taken away", visible_line(&judge.name));
        }
    }
    text
}
