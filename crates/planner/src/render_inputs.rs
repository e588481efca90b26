//! The inputs of a rendering besides files: values that were read in the cluster, as the ServiceAccount that applies. These values appear in no text. Printed or
//! serialised inputs show only their number. Only a digest is kept, and the digest isn't printed either, since short values could be guessed with it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use sha2::{Digest, Sha256};
use tenure_api::kustomization::PostBuild;
use tenure_api::text::count_of;
use zeroize::Zeroizing;

/// The value of `spec.postBuild.substituteStrategy` that substitutes even without variables.
pub(crate) const ALWAYS: &str = "Always";

/// A variable of `spec.postBuild`.
#[derive(Clone, PartialEq, Eq)]
pub struct Variable {
    /// The value that replaces the variable. The type is bytes, since a Secret can hold any.
    pub value: Vec<u8>,
    /// Whether the value is a Secret's: an object with this value is confidential.
    pub is_secret: bool,
}

impl Variable {
    /// Creates a variable with this value, without its line breaks, as Flux takes it.
    #[must_use]
    pub fn new(mut value: Vec<u8>, is_secret: bool) -> Self {
        value.retain(|byte| *byte != b'\n');
        Self { value, is_secret }
    }
}

/// The key entries of the Secret that `spec.decryption` names. The name of an entry gives the kind of the key. The keys are wiped when the last reference is dropped.
#[derive(Default)]
pub struct DecryptionKeys {
    entries: BTreeMap<String, Zeroizing<Vec<u8>>>,
}

impl DecryptionKeys {
    /// Creates the keys from the Secret's entries, by name.
    #[must_use]
    pub fn new(entries: BTreeMap<String, Zeroizing<Vec<u8>>>) -> Self {
        Self { entries }
    }

    /// Lists each entry's name and content.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.entries.iter().map(|(name, key)| (name.as_str(), key.as_slice()))
    }
}

impl fmt::Display for DecryptionKeys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.entries.len() {
            1 => formatter.write_str("the keys of one entry"),
            count => write!(formatter, "the keys of {count} entries"),
        }
    }
}

impl fmt::Debug for DecryptionKeys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "DecryptionKeys({} entries, hidden)", self.entries.len())
    }
}

/// The inputs of a rendering besides files: variables and decryption keys. Their printed and serialised forms contain no value. Two are equal if their digests are
/// equal.
#[derive(Clone, Default)]
pub struct RenderInputs {
    variables: Option<Arc<BTreeMap<String, Variable>>>,
    keys: Option<Arc<DecryptionKeys>>,
    digest: InputsDigest,
}

/// The digest of the inputs of a rendering. It is never printed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct InputsDigest(Option<[u8; 32]>);

impl RenderInputs {
    /// Creates the inputs from the variables of the spec itself. The result is empty if the spec has none and doesn't ask for a substitution without any.
    #[must_use]
    pub fn inline(post_build: &PostBuild) -> Self {
        let inline = post_build.substitute.iter().flatten();
        let variables = inline.map(|(name, value)| (name.clone(), Variable::new(value.clone().into_bytes(), false)));
        Self::from_variables(post_build, variables.collect())
    }

    /// Creates the inputs from these variables, which include those of the spec itself.
    pub(crate) fn from_variables(post_build: &PostBuild, variables: BTreeMap<String, Variable>) -> Self {
        if variables.is_empty() && post_build.substitute_strategy.as_deref() != Some(ALWAYS) {
            return Self::default();
        }
        Self::with_variables(variables)
    }

    /// Creates the inputs from variables to substitute, even if there are none.
    #[must_use]
    pub fn with_variables(variables: BTreeMap<String, Variable>) -> Self {
        let mut hash = Sha256::new();
        for (name, variable) in &variables {
            add(&mut hash, name.as_bytes());
            add(&mut hash, &variable.value);
            add(&mut hash, &[u8::from(variable.is_secret)]);
        }
        Self {
            digest: InputsDigest(Some(hash.finalize().into())),
            variables: Some(Arc::new(variables)),
            keys: None,
        }
    }

    /// Adds keys: content that SOPS encrypted is decrypted, even if the keys are empty.
    #[must_use]
    pub fn with_keys(self, keys: DecryptionKeys) -> Self {
        let mut hash = Sha256::new();
        // Variables alone never produce this separator, so equal digests mean equal inputs.
        add(&mut hash, b"decryption");
        add(&mut hash, self.digest.0.as_ref().map_or(&[], <[u8; 32]>::as_slice));
        for (name, key) in keys.entries() {
            add(&mut hash, name.as_bytes());
            add(&mut hash, key);
        }
        Self {
            digest: InputsDigest(Some(hash.finalize().into())),
            keys: Some(Arc::new(keys)),
            ..self
        }
    }

    /// Returns the keys to decrypt with; nothing when nothing is to be decrypted.
    #[must_use]
    pub fn keys(&self) -> Option<&DecryptionKeys> {
        self.keys.as_deref()
    }

    /// Returns the variables to substitute; nothing when nothing is to be substituted.
    #[must_use]
    pub fn variables(&self) -> Option<&BTreeMap<String, Variable>> {
        self.variables.as_deref()
    }

    /// Returns the digest of the inputs: equal inputs give equal results.
    #[must_use]
    pub fn digest(&self) -> &InputsDigest {
        &self.digest
    }

    /// Checks whether there are neither variables nor keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.variables.is_none() && self.keys.is_none()
    }
}

/// Adds bytes so that the following ones can't be taken for a part of them.
fn add(hash: &mut Sha256, bytes: &[u8]) {
    hash.update((bytes.len() as u64).to_be_bytes());
    hash.update(bytes);
}

impl PartialEq for RenderInputs {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Eq for RenderInputs {}

impl fmt::Display for RenderInputs {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.variables, &self.keys) {
            (None, None) => formatter.write_str("no variables"),
            (None, Some(keys)) => write!(formatter, "{keys}"),
            (Some(variables), keys) => {
                let secret = variables.values().filter(|variable| variable.is_secret).count();
                write!(
                    formatter,
                    "{}, {secret} of Secrets",
                    count_of(variables.len(), "variable")
                )?;
                match keys {
                    Some(keys) => write!(formatter, ", and {keys}"),
                    None => Ok(()),
                }
            }
        }
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
    fn digest_distinguishes_names_values_and_their_origin() {
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
    fn decryption_keys_change_digest_and_appear_in_no_text() {
        let keys = |entries: &[(&str, &str)]| {
            let entries = entries
                .iter()
                .map(|(name, key)| ((*name).to_owned(), Zeroizing::new(key.as_bytes().to_vec())));
            DecryptionKeys::new(entries.collect())
        };
        let none = RenderInputs::default().with_keys(keys(&[]));
        let one = RenderInputs::default().with_keys(keys(&[("a.agekey", "hunter2")]));
        let other = RenderInputs::default().with_keys(keys(&[("a.agekey", "hunter3")]));
        let both = inputs(&[("a", "b", false)]).with_keys(keys(&[("a.agekey", "hunter2")]));
        let all = [RenderInputs::default(), none, one, other, both];
        for (at, one) in all.iter().enumerate() {
            for (other_at, other) in all.iter().enumerate() {
                assert_eq!(one.digest() == other.digest(), at == other_at);
            }
        }
        assert!(!all[1].is_empty());
        let texts = format!(
            "{:?} {:?} {}",
            all[4],
            all[4].keys(),
            serde_json::to_string(&all[4]).unwrap()
        );
        assert!(!texts.contains("hunter"), "{texts}");
        assert_eq!(
            all[4].to_string(),
            "1 variable, 0 of Secrets, and the keys of one entry"
        );
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
