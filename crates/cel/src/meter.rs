//! Counts the cost of an evaluation, and stops an evaluation that is too costly.
//!
//! Kubernetes' cost is counted as a kube-apiserver counts it. That cost omits some work: measuring the length of texts, copying lists,
//! compiling patterns. The meter counts such work separately as effort, in bytes, with its own limit. So no expression occupies a processor
//! or memory for long.

use std::collections::HashMap;

use regex::Regex;

use crate::failure::Failure;
use crate::pattern;

/// The default limit of bytes that an evaluation may read or create without a cost.
const MOST_EFFORT: usize = 256 << 20;

/// The effort for a pattern that is not yet cached, in addition to its length.
const PATTERN_EFFORT: usize = 128 << 10;

/// The limits of one evaluation, or of several evaluations together. Each evaluation reports the amounts that it has spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    /// The cost in Kubernetes' units.
    pub cost: u64,
    /// Bytes that are read or created without a cost.
    pub effort: usize,
}

impl Allowance {
    /// Creates an allowance with this cost and the default effort of one evaluation.
    pub fn of_cost(cost: u64) -> Self {
        Self {
            cost,
            effort: MOST_EFFORT,
        }
    }
}

/// The cost and effort that an evaluation has spent so far, its limits, and its compiled patterns.
#[derive(Debug)]
pub(crate) struct Meter {
    pub(crate) cost: u64,
    pub(crate) effort: usize,
    limits: Allowance,
    patterns: HashMap<String, Regex>,
}

impl Meter {
    pub(crate) fn new(limits: Allowance) -> Self {
        Self {
            cost: 0,
            effort: 0,
            limits,
            patterns: HashMap::new(),
        }
    }

    /// Adds to the cost in Kubernetes' units. Fails if the limit is exceeded.
    pub(crate) fn spend(&mut self, cost: u64) -> Result<(), Failure> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > self.limits.cost {
            return Err(Failure::too_costly());
        }
        Ok(())
    }

    /// Adds to the effort that no cost pays for.
    pub(crate) fn spend_effort(&mut self, bytes: usize) -> Result<(), Failure> {
        self.effort = self.effort.saturating_add(bytes);
        if self.effort > self.limits.effort {
            return Err(Failure::too_costly());
        }
        Ok(())
    }

    /// Returns a pattern, compiled once in an evaluation.
    pub(crate) fn compile_pattern(&mut self, text: &str) -> Result<Regex, Failure> {
        if let Some(known) = self.patterns.get(text) {
            return Ok(known.clone());
        }
        self.spend_effort(PATTERN_EFFORT.saturating_add(text.len().saturating_mul(64)))?;
        let compiled =
            pattern::compile(text).map_err(|problem| Failure::new(format!("error parsing regexp: {problem}")))?;
        if self.patterns.len() < 256 {
            self.patterns.insert(text.to_owned(), compiled.clone());
        }
        Ok(compiled)
    }
}
