//! `spec.include`: files of other GitRepositories of the same namespace.
//!
//! The module checks which repositories must exist first, and finds cycles: two repositories that include each other would make new artifacts of each other without
//! end. Names have no namespace, so other namespaces can't be named.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tenure_api::git_repository::GitRepositoryInclude;
use tenure_api::names::ObjectName;
use tenure_api::{GitRepository, reason};

use tenure_remote_requests::git::IncludeRequest;

use super::paths::read_path;
use crate::cycle;
use crate::list_limits::INCLUDES;
use crate::source::{Obstacle, SourceRefusal};
use tenure_remote_requests::artifact::{IncludedArtifact, StoredArtifact};

/// The repositories that a GitRepository includes, as far as they exist, and a cycle of includes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IncludedRepositories {
    /// The existing repositories, by name.
    pub repositories: BTreeMap<String, IncludedRepository>,
    /// The cycle of repositories that include each other, if this repository is part of one.
    pub cycle: Option<Vec<String>>,
}

/// An existing GitRepository that another one includes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IncludedRepository {
    /// The uid of the repository.
    pub uid: String,
    /// The stored artifact of the repository. The status is no evidence of it.
    pub artifact: Option<IncludedArtifact>,
}

/// Finds the repositories that a GitRepository includes. `get` finds a repository of the same namespace by name, and `stored` returns its stored artifact.
pub fn find_included(
    own: &GitRepository,
    get: impl Fn(&str) -> Option<Arc<GitRepository>>,
    stored: impl Fn(&GitRepository) -> Option<StoredArtifact>,
) -> IncludedRepositories {
    let names = |repository: &GitRepository| {
        let named = repository.spec.include.iter().take(INCLUDES);
        named.map(|include| include.repository.name.clone()).collect::<Vec<_>>()
    };
    let own_names = names(own);
    let mut repositories = BTreeMap::new();
    for name in &own_names {
        if let Some(found) = get(name) {
            let included = IncludedRepository {
                uid: found.metadata.uid.clone().unwrap_or_default(),
                artifact: stored(&found).as_ref().map(IncludedArtifact::from),
            };
            repositories.insert(name.clone(), included);
        }
    }
    let start = own.metadata.name.as_deref().unwrap_or_default();
    let cycle = cycle::find_cycle(start, own_names, |name| get(name).map(|found| names(&found)));
    IncludedRepositories { repositories, cycle }
}

/// Checks the fields of `spec.include`: the number of entries, the names, and the paths.
pub(super) fn check_includes(includes: &[GitRepositoryInclude]) -> Result<(), SourceRefusal> {
    if includes.len() > INCLUDES {
        return Err(SourceRefusal::invalid(format!(
            "spec.include has {} entries, and may have {INCLUDES}",
            includes.len()
        )));
    }
    for (index, include) in includes.iter().enumerate() {
        let name = include.repository.name.clone();
        ObjectName::new(name)
            .map_err(|error| SourceRefusal::invalid(format!("spec.include[{index}].repository.name: {error}")))?;
        read_paths(index, include)?;
    }
    Ok(())
}

/// Reads the source path and the target path.
fn read_paths(index: usize, include: &GitRepositoryInclude) -> Result<(String, String), SourceRefusal> {
    let from = include.from_path.as_deref().unwrap_or_default();
    let from = read_path(&format!("spec.include[{index}].fromPath"), from)?;
    let to = match include.to_path.as_deref() {
        None | Some("") => include.repository.name.as_str(),
        Some(path) => path,
    };
    Ok((from, read_path(&format!("spec.include[{index}].toPath"), to)?))
}

/// Checks whether all included repositories have an artifact.
pub(super) fn check_beside(includes: &[GitRepositoryInclude], beside: &IncludedRepositories) -> Result<(), Obstacle> {
    if let Some(cycle) = &beside.cycle {
        return Err(Obstacle::Refused(SourceRefusal::invalid(format!(
            "spec.include: includes form a cycle: {}; remove one of them",
            cycle::describe_cycle(cycle)
        ))));
    }
    for include in includes {
        let name = &include.repository.name;
        match beside.repositories.get(name) {
            None => {
                return Err(Obstacle::Unavailable {
                    reason: reason::NOT_FOUND,
                    message: format!(
                        "could not get resource for include '{name}': there is no GitRepository of that name here"
                    ),
                });
            }
            Some(IncludedRepository { artifact: None, .. }) => {
                return Err(Obstacle::Unavailable {
                    reason: reason::NO_ARTIFACT,
                    message: format!("no artifact available for include '{name}'"),
                });
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// Writes a text that changes when an included repository or its artifact changes. Then the next fetch is due.
pub(super) fn write_mark(beside: &IncludedRepositories) -> String {
    let mut mark = String::new();
    for (name, repository) in &beside.repositories {
        let facts = repository.artifact.as_ref().map(|artifact| &artifact.facts);
        let (revision, digest) = facts.map_or(("", ""), |facts| (facts.revision.as_str(), facts.digest.as_str()));
        let _ = writeln!(mark, "{name} {} {revision} {digest}", repository.uid);
    }
    if let Some(cycle) = &beside.cycle {
        let _ = writeln!(mark, "{}", cycle.join(" "));
    }
    mark
}

/// Lists the artifacts to include. Leaves out missing artifacts, which [`check_beside`] has reported before.
pub(super) fn write_requests(includes: &[GitRepositoryInclude], beside: &IncludedRepositories) -> Vec<IncludeRequest> {
    let written = includes.iter().enumerate().filter_map(|(index, include)| {
        let repository = beside.repositories.get(&include.repository.name)?;
        let (from, to) = read_paths(index, include).ok()?;
        Some(IncludeRequest {
            name: include.repository.name.clone(),
            uid: repository.uid.clone(),
            artifact: repository.artifact.clone()?,
            from,
            to,
        })
    });
    written.collect()
}
