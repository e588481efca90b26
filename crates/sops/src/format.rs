//! The formats of files, and their detection: by name, as in SOPS and Flux, and by the marks that SOPS writes.

/// The format of a file that SOPS encrypts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// YAML.
    Yaml,
    /// JSON.
    Json,
    /// `KEY=value` pairs, one per line.
    Dotenv,
    /// Sections of `key = value`.
    Ini,
    /// Any bytes; the whole file is one value.
    Binary,
}

impl Format {
    /// Returns the format of a file by its name (`formats.FormatForPath`; Flux reads files that are named after a kind of Secret as JSON).
    #[must_use]
    pub fn of_name(name: &str) -> Self {
        let ends = |end: &str| name.ends_with(end);
        if ends(".yaml") || ends(".yml") {
            Self::Yaml
        } else if ends(".json") || ends(".dockerconfigjson") {
            Self::Json
        } else if ends(".env") {
            Self::Dotenv
        } else if ends(".ini") {
            Self::Ini
        } else {
            Self::Binary
        }
    }

    /// Returns the format of encrypted bytes, by the marks that SOPS leaves (`detectFormatFromMarkerBytes` of kustomize-controller); `None` if they aren't encrypted.
    /// Encrypted JSON may be of [`Format::Binary`], depending on its content.
    #[must_use]
    pub fn of_encrypted(bytes: &[u8]) -> Option<Self> {
        let has = |mark: &str| contains(bytes, mark.as_bytes());
        if has("\"mac\": \"ENC[") {
            Some(Self::Json)
        } else if has("sops_mac=ENC[") {
            Some(Self::Dotenv)
        } else if has("mac: ENC[") {
            Some(Self::Yaml)
        } else if has("[sops]") && has("ENC[AES256_GCM,") {
            Some(Self::Ini)
        } else {
            None
        }
    }

    /// Returns the format in which a file is read and written for decryption; `None` if it isn't encrypted. Encrypted JSON whose name has no known format counts as
    /// [`Format::Binary`].
    #[must_use]
    pub fn of_file(name: &str, bytes: &[u8]) -> Option<Self> {
        let found = Self::of_encrypted(bytes)?;
        match (Self::of_name(name), found) {
            (Self::Yaml, Self::Json) => Some(Self::Yaml),
            (Self::Binary, Self::Json) => Some(Self::Binary),
            (Self::Binary, found) => Some(found),
            // A mark of another format is part of a text in this file.
            (named, found) => (named == found).then_some(found),
        }
    }

    /// Returns the common name of the format, for messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Yaml => "YAML",
            Self::Json => "JSON",
            Self::Dotenv => "dotenv",
            Self::Ini => "INI",
            Self::Binary => "binary",
        }
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    let Some(first) = part.first() else { return true };
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|byte| byte == first) {
        rest = rest.get(at..).unwrap_or_default();
        if rest.starts_with(part) {
            return true;
        }
        rest = rest.get(1..).unwrap_or_default();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_is_known_by_name_and_marks() {
        let yaml = b"a: 1\nsops:\n    mac: ENC[AES256_GCM,data:x]\n";
        let json = b"{\"sops\": {\"mac\": \"ENC[AES256_GCM,data:x]\"}}";
        assert_eq!(Format::of_file("secret.yaml", yaml), Some(Format::Yaml));
        assert_eq!(Format::of_file("secret", yaml), Some(Format::Yaml));
        assert_eq!(Format::of_file("secret.yaml", json), Some(Format::Yaml));
        assert_eq!(Format::of_file("secret.json", json), Some(Format::Json));
        assert_eq!(Format::of_file("a.dockerconfigjson", json), Some(Format::Json));
        assert_eq!(Format::of_file("key.pem", json), Some(Format::Binary));
        assert_eq!(Format::of_file("secret.yaml", b"a: 1\n"), None);
        assert_eq!(Format::of_file("secret.yaml", b"a: |\n  sops_mac=ENC[x]\n"), None);
        assert_eq!(
            Format::of_file("a.env", b"A=ENC[x]\nsops_mac=ENC[x]\n"),
            Some(Format::Dotenv)
        );
    }
}
