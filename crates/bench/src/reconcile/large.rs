//! One Kustomization of thousands of objects with its rollout, and its cost for another tenant's commit meanwhile.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::report::{Report, find_percentile, format_time};
use crate::stage::{HOSTILE, Stage};
use crate::turns::{Side, settle, take_turn};

/// The number of objects. A fifth of them are Deployments with a rollout.
const OBJECTS: usize = 5_000;

/// Objects per file.
const A_FILE: usize = 100;

/// Commits of the neighbour, at rest and during the rollout.
const SAMPLES: usize = 20;

/// Measures the large Kustomization beside its neighbour; both belong to different tenants.
pub(crate) async fn measure(program: &Path, report: &mut Report) -> anyhow::Result<()> {
    let stage = Stage::set(program, &[]).await?;
    let repository = stage.git.create("large").await?;
    repository.commit(make_files(), "the beginning").await?;
    settle(&stage).await;
    let (mut rest, mut meanwhile) = (Side::default(), Side::default());
    take_turn(&stage, SAMPLES, &mut rest).await;

    stage.apply_source(HOSTILE, "large").await?;
    let started = Instant::now();
    let spec =
        json!({"path": "./", "wait": true, "timeout": "10m", "sourceRef": {"kind": "GitRepository", "name": "large"}});
    stage.apply_kustomization(HOSTILE, "large", &spec).await?;
    let ready = async {
        stage.until_ready(HOSTILE, "large", super::PATIENCE).await?;
        anyhow::Ok(started.elapsed())
    };
    let (took, ()) = tokio::join!(ready, take_turn(&stage, SAMPLES, &mut meanwhile));
    report.add(
        format!("one Kustomization of {OBJECTS} objects, rolled out and Ready, beside a neighbour's commits"),
        format_time(took?),
        None,
        "30 s",
    );
    let part = |side: &mut Side, share: f64| -> Duration { find_percentile(&mut side.commits, share) };
    report.add(
        format!("the neighbour's commit to applied, at rest → meanwhile (p50, p99 of {SAMPLES})"),
        format!(
            "{} → {}, {} → {}",
            format_time(part(&mut rest, 0.5)),
            format_time(part(&mut meanwhile, 0.5)),
            format_time(part(&mut rest, 0.99)),
            format_time(part(&mut meanwhile, 0.99))
        ),
        None,
        "nobody slower",
    );
    Ok(())
}

fn make_files() -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    for file in 0..OBJECTS / A_FILE {
        let mut text = String::new();
        for index in 0..A_FILE {
            let name = format!("large-{file}-{index}");
            if index % 5 == 0 {
                text.push_str(&format!(
                    "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {name}\nspec:\n  replicas: 1\n  selector:\n    matchLabels:\n      \
                     app: {name}\n  template:\n    metadata:\n      labels:\n        app: {name}\n    spec:\n      containers:\n        - name: app\n          \
                     image: registry.example/app:v0\n---\n"
                ));
            } else {
                text.push_str(&format!(
                    "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  greeting: hello\n---\n"
                ));
            }
        }
        files.insert(format!("all-{file}.yaml"), text);
    }
    files
}
