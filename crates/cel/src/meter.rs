//! What an evaluation has cost, and its end when that is too much.
//!
//! Kubernetes' cost is counted as a kube-apiserver counts it. What that cost leaves out (the length of texts that are
//! only measured, copies of lists, patterns that are compiled) is counted beside it as effort, in bytes, with a bound of
//! its own: no expression holds a processor or memory for long.

use std::collections::HashMap;

use regex::Regex;

use crate::failure::Failure;
use crate::pattern;

/// Bytes that one evaluation may look at or make beyond what its cost pays for, if its caller says nothing else.
const MOST_EFFORT: usize = 256 << 20;

/// What a pattern that is not known before takes, beside its length.
const PATTERN_EFFORT: usize = 128 << 10;

/// What an evaluation may spend, or what several may spend together: each says what it has spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    /// In Kubernetes' units.
    pub cost: u64,
    /// Bytes that are looked at or made, and that no cost pays for.
    pub effort: usize,
}

impl Allowance {
    /// So much cost, and the effort that one evaluation of a kube-apiserver's may take here.
    pub fn of_cost(cost: u64) -> Self {
        Self {
            cost,
            effort: MOST_EFFORT,
        }
    }
}

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

    /// Adds to Kubernetes' cost.
    pub(crate) fn spend(&mut self, cost: u64) -> Result<(), Failure> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > self.limits.cost {
            return Err(Failure::too_costly());
        }
        Ok(())
    }

    /// Adds to the effort that no cost pays for.
    pub(crate) fn effort(&mut self, bytes: usize) -> Result<(), Failure> {
        self.effort = self.effort.saturating_add(bytes);
        if self.effort > self.limits.effort {
            return Err(Failure::too_costly());
        }
        Ok(())
    }

    /// A pattern, compiled once in an evaluation.
    pub(crate) fn pattern(&mut self, text: &str) -> Result<Regex, Failure> {
        if let Some(known) = self.patterns.get(text) {
            return Ok(known.clone());
        }
        self.effort(PATTERN_EFFORT.saturating_add(text.len().saturating_mul(64)))?;
        let compiled =
            pattern::compile(text).map_err(|problem| Failure::new(format!("error parsing regexp: {problem}")))?;
        if self.patterns.len() < 256 {
            self.patterns.insert(text.to_owned(), compiled.clone());
        }
        Ok(compiled)
    }
}
