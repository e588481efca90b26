//! Reports of a namespace's ArtifactGenerators about their output, for the ExternalArtifacts. They are lost with the process, and the next process
//! collects them again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tenure_planner::artifact_generator::StoredRecipes;
use tenure_planner::list_limits::TENANT_RECIPES;

/// The last report of each ArtifactGenerator of a namespace, by the generator's name: the recipes of its ExternalArtifacts.
#[derive(Debug, Default)]
pub(crate) struct GeneratorReports {
    reports: Mutex<HashMap<String, Arc<StoredRecipes>>>,
}

impl GeneratorReports {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<StoredRecipes>>> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the bytes left for a generator's report, if the tenant's other namespaces use `elsewhere` bytes.
    pub(crate) fn find_room(&self, generator: &str, elsewhere: usize) -> usize {
        let all = self.lock();
        let others = all.iter().filter(|(name, _)| *name != generator);
        let others: usize = others.map(|(_, recipes)| recipes.bytes).sum();
        TENANT_RECIPES.saturating_sub(others).saturating_sub(elsewhere)
    }

    /// Returns the bytes of all reports.
    pub(crate) fn count_bytes(&self) -> usize {
        self.lock().values().map(|recipes| recipes.bytes).sum()
    }

    /// Stores a generator's report. If it changed, returns the names of the previous and the current artifacts.
    pub(crate) fn store(&self, generator: &str, recipes: Arc<StoredRecipes>) -> Vec<String> {
        let mut all = self.lock();
        let before = all.get(generator);
        if before.is_some_and(|before| *before == recipes) {
            return Vec::new();
        }
        let before = before.map(|before| before.recipes.keys().cloned().collect::<Vec<_>>());
        let mut names = before.unwrap_or_default();
        names.extend(recipes.recipes.keys().cloned());
        names.sort_unstable();
        names.dedup();
        all.insert(generator.to_owned(), recipes);
        names
    }

    /// Returns the last report of a generator.
    pub(crate) fn find_report(&self, generator: &str) -> Option<Arc<StoredRecipes>> {
        self.lock().get(generator).cloned()
    }

    /// Returns the generators that make an artifact of this name.
    pub(crate) fn list_makers(&self, artifact: &str) -> Vec<String> {
        let all = self.lock();
        let makers = all.iter().filter(|(_, recipes)| recipes.recipes.contains_key(artifact));
        makers.map(|(generator, _)| generator.clone()).collect()
    }

    /// Removes the report of a deleted generator.
    pub(crate) fn forget(&self, generator: &str) {
        self.lock().remove(generator);
    }
}
