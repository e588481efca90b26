//! What a rendering takes besides files: values that were read in the cluster, as the ServiceAccount that applies. Owns that they stand in
//! no text: what is printed or serialised says how many there are, and what is kept of them is a digest, which isn't printed either (who
//! knows it could try out short values).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use sha2::{Digest, Sha256};
use tenure_api::kustomization::PostBuild;

/// The strategy that substitutes without any variable, too.
pub(crate) const ALWAYS: &str = "Always";

/// A variable of `spec.postBuild`.
#[derive(Clone, PartialEq, Eq)]
pub struct Variable {
    /// What takes its place. Bytes, since a Secret can hold any.
    pub value: Vec<u8>,
    /// Whether it is a Secret's: what it was used in is confidential.
    pub is_secret: bool,
}

impl Variable {
    /// One with this value, without its line breaks, as Flux takes it.
    #[must_use]
    pub fn new(mut value: Vec<u8>, is_secret: bool) -> Self {
        value.retain(|byte| *byte != b'\n');
        Self { value, is_secret }
    }
}

/// What is rendered with. Printed and serialised without any value; two are equal when their digests are.
#[derive(Clone, Default)]
pub struct RenderInputs {
    variables: Option<Arc<BTreeMap<String, Variable>>>,
    digest: InputsDigest,
}

/// Which inputs something was rendered with. Never printed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct InputsDigest(Option<[u8; 32]>);

impl RenderInputs {
    /// With the variables that a spec itself has; nothing when it has none and doesn't ask for a substitution without any.
    #[must_use]
    pub fn inline(post_build: &PostBuild) -> Self {
        let inline = post_build.substitute.iter().flatten();
        let variables = inline.map(|(name, value)| (name.clone(), Variable::new(value.clone().into_bytes(), false)));
        Self::of(post_build, variables.collect())
    }

    /// With these variables, which those that the spec itself has are among.
    pub(crate) fn of(post_build: &PostBuild, variables: BTreeMap<String, Variable>) -> Self {
        if variables.is_empty() && post_build.substitute_strategy.as_deref() != Some(ALWAYS) {
            return Self::default();
        }
        Self::with_variables(variables)
    }

    /// With variables to substitute, even if there are none.
    #[must_use]
    pub fn with_variables(variables: BTreeMap<String, Variable>) -> Self {
        let mut hash = Sha256::new();
        let mut add = |bytes: &[u8]| {
            // What follows can't be taken for a part of it.
            hash.update((bytes.len() as u64).to_be_bytes());
            hash.update(bytes);
        };
        for (name, variable) in &variables {
            add(name.as_bytes());
            add(&variable.value);
            add(&[u8::from(variable.is_secret)]);
        }
        Self {
            digest: InputsDigest(Some(hash.finalize().into())),
            variables: Some(Arc::new(variables)),
        }
    }

    /// The variables to substitute; nothing when nothing is to be substituted.
    #[must_use]
    pub fn variables(&self) -> Option<&BTreeMap<String, Variable>> {
        self.variables.as_deref()
    }

    /// Which these are: what was rendered with the same is the same.
    #[must_use]
    pub fn digest(&self) -> &InputsDigest {
        &self.digest
    }

    /// Whether there are any.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.variables.is_none()
    }
}

impl PartialEq for RenderInputs {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Eq for RenderInputs {}

impl fmt::Display for RenderInputs {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(variables) = &self.variables else {
            return formatter.write_str("no variables");
        };
        let secret = variables.values().filter(|variable| variable.is_secret).count();
        write!(formatter, "{} variables, {secret} of Secrets", variables.len())
    }
}

impl fmt::Debug for RenderInputs {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "RenderInputs({self})")
    }
}

impl Serialize for RenderInputs {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Debug for Variable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Variable(hidden)")
    }
}

impl fmt::Debug for InputsDigest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("InputsDigest(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs(variables: &[(&str, &str, bool)]) -> RenderInputs {
        let variable = |value: &str, is_secret| Variable {
            value: value.as_bytes().to_vec(),
            is_secret,
        };
        let variables = variables
            .iter()
            .map(|(name, value, is_secret)| ((*name).to_owned(), variable(value, *is_secret)));
        RenderInputs::with_variables(variables.collect())
    }

    #[test]
    fn the_digest_tells_names_values_and_whose_they_are_apart() {
        let all = [
            RenderInputs::default(),
            inputs(&[]),
            inputs(&[("a", "bc", false)]),
            inputs(&[("ab", "c", false)]),
            inputs(&[("a", "bc", true)]),
            inputs(&[("a", "b", false), ("c", "", false)]),
        ];
        for (at, one) in all.iter().enumerate() {
            for (other_at, other) in all.iter().enumerate() {
                assert_eq!(one == other, at == other_at, "{one} {other}");
                assert_eq!(one.digest() == other.digest(), at == other_at);
            }
        }
    }

    #[test]
    fn no_value_and_no_digest_is_in_any_text() {
        let inputs = inputs(&[("password", "hunter2", true), ("colour", "teal", false)]);
        let texts = [
            format!("{inputs:?} {:?}", inputs.digest()),
            format!("{:?}", inputs.variables()),
            inputs.to_string(),
            serde_json::to_string(&inputs).unwrap(),
        ];
        for text in &texts {
            assert!(!text.contains("hunter2") && !text.contains("teal"), "{text}");
        }
        assert_eq!(texts[2], "2 variables, 1 of Secrets");
        assert_eq!(texts[0], "RenderInputs(2 variables, 1 of Secrets) InputsDigest(hidden)");
    }
}
