//! The reasons for which a folder can't be built, a finding for each problem.

use kustomize::Error;

use super::{Category, Finding, Level};
use tenure_planner::object::Origin;

/// Lists the problems of a build that failed.
#[must_use]
pub fn list_rendering_problems(error: &Error) -> Vec<Finding> {
    let mut findings = Vec::new();
    collect_problems(error, None, &mut findings);
    findings
}

fn collect_problems(error: &Error, chain: Option<&str>, findings: &mut Vec<Finding>) {
    let (path, line) = match error {
        Error::Several(errors) => {
            for error in errors {
                collect_problems(error, chain, findings);
            }
            return;
        }
        Error::InBase { chain, source } => return collect_problems(source, Some(&chain.join(" -> ")), findings),
        Error::Yaml { path, line, .. }
        | Error::Object { path, line, .. }
        | Error::Field { path, line, .. }
        | Error::Unsupported { path, line, .. }
        | Error::Transform { path, line, .. }
        | Error::Cycle { path, line, .. } => (path.as_str(), *line),
        Error::Missing { path, .. } | Error::Limit { path, .. } | Error::LinkLoop { path } => (path.as_str(), 0),
        _ => ("", 0),
    };
    let mut message = error.to_string();
    if let Some(chain) = chain {
        message.push_str(&format!(" (reached through {chain})"));
    }
    let remedy = match error {
        Error::Budget { .. } => "make it smaller, or set the budget with --rendering-bytes and --rendering-steps",
        _ => "`tenure build` says the same; correct it, and check again",
    };
    let origin = Origin {
        path: path.to_owned(),
        line,
    };
    findings.push(Finding::new(Level::Error, Category::Rendering, &message, remedy).with_origin(Some(origin)));
}

#[cfg(test)]
mod tests {
    use kustomize::{MapTree, Options, build};

    use super::*;

    #[test]
    fn a_problem_is_reported_with_file_and_line() {
        let mut tree = MapTree::new();
        tree.insert("kustomization.yaml", "resources:\n- base\n");
        tree.insert("base/kustomization.yaml", "resources:\n- map.yaml\n");
        tree.insert("base/map.yaml", "apiVersion: v1\nkind: ConfigMap\n");
        let error = build(&tree, "", &Options::default()).unwrap_err();
        let findings = list_rendering_problems(&error);
        let [only] = findings.as_slice() else {
            panic!("{findings:?}");
        };
        let origin = only.origin.clone().unwrap();
        assert_eq!((origin.path.as_str(), origin.line), ("base/map.yaml", 1), "{only}");
        assert!(only.message.contains("reached through kustomization.yaml:2"), "{only}");
    }
}
