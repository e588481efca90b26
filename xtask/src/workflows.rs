//! Checks the workflows of a public host, which run nowhere else: each is YAML, runs tasks that exist, has the fewest rights, and uses actions by their commit.

use std::fs;

use anyhow::{Context, Result};
use clap::CommandFactory as _;
use serde_json::Value;

use crate::{Arguments, tidy};

/// Reads all workflows, by their file.
fn read_all() -> Result<Vec<(String, Value)>> {
    let mut workflows = Vec::new();
    for entry in fs::read_dir(tidy::find_root().join(".github/workflows"))? {
        let path = entry?.path();
        let text = fs::read_to_string(&path)?;
        let workflow = serde_saphyr::from_str(&text).with_context(|| path.display().to_string())?;
        workflows.push((path.display().to_string(), workflow));
    }
    Ok(workflows)
}

/// Lists the steps of all jobs.
fn list_steps(workflow: &Value) -> Vec<&Value> {
    let jobs = workflow.get("jobs").and_then(Value::as_object);
    let steps = jobs
        .into_iter()
        .flat_map(|jobs| jobs.values().filter_map(|job| job.get("steps")?.as_array()));
    steps.flatten().collect()
}

/// Lists the findings in a workflow.
fn lint_workflow(workflow: &Value) -> Vec<String> {
    let mut findings = Vec::new();
    if workflow.pointer("/permissions/contents").and_then(Value::as_str) != Some("read") {
        findings.push("a workflow begins with the right to read alone: permissions".to_owned());
    }
    for (name, job) in workflow.get("jobs").and_then(Value::as_object).into_iter().flatten() {
        if job.get("timeout-minutes").is_none() {
            findings.push(format!("job {name} has no timeout-minutes"));
        }
    }
    for step in list_steps(workflow) {
        if let Some(action) = step.get("uses").and_then(Value::as_str) {
            let commit = action.split_once('@').map(|(_, commit)| commit).unwrap_or_default();
            if commit.len() != 40 || !commit.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                findings.push(format!("{action} is not named by its commit"));
            }
        }
        let Some(script) = step.get("run").and_then(Value::as_str) else {
            continue;
        };
        // The host would put the value into the script before a shell reads it. Variables are data.
        if script.contains("${{") {
            findings.push(format!("a script holds an expression: {script}"));
        }
        findings.extend(find_bad_tasks(script));
    }
    findings
}

/// Lists the calls of tasks that the automation would refuse.
fn find_bad_tasks(script: &str) -> Vec<String> {
    let joined = script.replace("\\\n", " ");
    let calls = joined
        .lines()
        .filter_map(|line| line.trim().strip_prefix("cargo xtask "));
    let refused = calls.filter_map(|call| {
        let words: Vec<String> = call
            .split_whitespace()
            .map(|word| word.replace("$GITHUB_REF_NAME", "v1").replace('"', ""))
            .collect();
        let line = ["cargo xtask".to_owned()].into_iter().chain(words);
        let problem = Arguments::command().try_get_matches_from(line).err()?;
        Some(format!("cargo xtask {call}: {problem}"))
    });
    refused.collect()
}

#[test]
fn workflows_keep_the_rules() -> Result<()> {
    let workflows = read_all()?;
    assert_eq!(workflows.len(), 2, "{workflows:?}");
    for (file, workflow) in &workflows {
        assert_eq!(lint_workflow(workflow), Vec::<String>::new(), "{file}");
    }
    let scripts = |file: &str| {
        let found = workflows.iter().find(|(name, _)| name.ends_with(file));
        let steps = found.into_iter().flat_map(|(_, workflow)| list_steps(workflow));
        steps
            .filter_map(|step| step.get("run")?.as_str())
            .collect::<Vec<_>>()
            .join("\n")
    };
    assert!(scripts("ci.yml").lines().any(|line| line == ".ci/run"));
    for task in ["release --check", "dist", "release --push"] {
        assert!(
            scripts("release.yml").contains(&format!("cargo xtask {task}")),
            "{task}"
        );
    }
    Ok(())
}

#[test]
fn the_rules_find_what_is_wrong() -> Result<()> {
    let good =
        "permissions: {contents: read}\njobs: {a: {timeout-minutes: 1, steps: [{uses: STEP}, {run: 'SCRIPT'}]}}\n";
    let check = |from: &str, to: &str, count: usize| -> Result<()> {
        let text = good.replace(from, to);
        let text = text
            .replace("STEP", &format!("actions/checkout@{}", "a".repeat(40)))
            .replace("SCRIPT", "cargo xtask tidy");
        assert_eq!(lint_workflow(&serde_saphyr::from_str(&text)?).len(), count, "{text}");
        Ok(())
    };
    check("", "", 0)?;
    check("contents: read", "contents: write", 1)?;
    check("timeout-minutes: 1, ", "", 1)?;
    check("STEP", "actions/checkout@v7", 1)?;
    check("SCRIPT", "echo ${{ github.head_ref }}", 1)?;
    check("SCRIPT", "cargo xtask tidyy", 1)?;
    check("SCRIPT", "cargo xtask release --chekc", 1)?;
    Ok(())
}
