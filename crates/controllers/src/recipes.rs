//! What ArtifactGenerators of a namespace tell of what they make, for the ExternalArtifacts that are made.
//! Lost with the process, and told anew by the next one. Judges nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tenure_planner::artifact_generator::Told;
use tenure_planner::maxima::TENANT_RECIPES;

/// What was told, by the generator's name.
#[derive(Debug, Default)]
pub(crate) struct RecipeBoard {
    told: Mutex<HashMap<String, Arc<Told>>>,
}

impl RecipeBoard {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Told>>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that are left for what a generator tells, where those of the tenant's other namespaces told so many.
    pub(crate) fn find_room(&self, generator: &str, elsewhere: usize) -> usize {
        let all = self.lock();
        let others = all.iter().filter(|(name, _)| *name != generator);
        let others: usize = others.map(|(_, told)| told.bytes).sum();
        TENANT_RECIPES.saturating_sub(others).saturating_sub(elsewhere)
    }

    /// Bytes that all generators told.
    pub(crate) fn count_bytes(&self) -> usize {
        self.lock().values().map(|told| told.bytes).sum()
    }

    /// Takes what a generator tells; if that is news, the names of what is, or was, made.
    pub(crate) fn tell(&self, generator: &str, told: Arc<Told>) -> Vec<String> {
        let mut all = self.lock();
        let before = all.get(generator);
        if before.is_some_and(|before| *before == told) {
            return Vec::new();
        }
        let before = before.map(|before| before.recipes.keys().cloned().collect::<Vec<_>>());
        let mut names = before.unwrap_or_default();
        names.extend(told.recipes.keys().cloned());
        names.sort_unstable();
        names.dedup();
        all.insert(generator.to_owned(), told);
        names
    }

    /// What a generator told last.
    pub(crate) fn of(&self, generator: &str) -> Option<Arc<Told>> {
        self.lock().get(generator).cloned()
    }

    /// The generators that make an artifact of this name.
    pub(crate) fn list_makers(&self, artifact: &str) -> Vec<String> {
        let all = self.lock();
        let makers = all.iter().filter(|(_, told)| told.recipes.contains_key(artifact));
        makers.map(|(generator, _)| generator.clone()).collect()
    }

    /// A generator is gone: it tells nothing any more.
    pub(crate) fn forget(&self, generator: &str) {
        self.lock().remove(generator);
    }
}
