//! Owns the formats of files and how one is known: by its name, as SOPS and Flux do, and by what SOPS writes into it.

/// How a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// YAML.
    Yaml,
    /// JSON.
    Json,
    /// `KEY=value` a line.
    Dotenv,
    /// Sections of `key = value`.
    Ini,
    /// Anything: the whole of it is one value.
    Binary,
}

impl Format {
    /// The format of a file of this name (`formats.FormatForPath`; Flux takes what is named after a kind of Secret as JSON).
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

    /// The format that bytes are encrypted in, by the marks that SOPS leaves (`detectFormatFromMarkerBytes` of kustomize-controller);
    /// nothing if they aren't. Encrypted JSON may be of [`Format::Binary`]: what is in it says so.
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

    /// The formats that a file is read and written in when it is decrypted; nothing if it isn't encrypted. Encrypted JSON that is called
    /// nothing is of [`Format::Binary`] here.
    #[must_use]
    pub fn of_file(name: &str, bytes: &[u8]) -> Option<Self> {
        let found = Self::of_encrypted(bytes)?;
        match (Self::of_name(name), found) {
            (Self::Yaml, Self::Json) => Some(Self::Yaml),
            (Self::Binary, Self::Json) => Some(Self::Binary),
            (Self::Binary, found) => Some(found),
            // What looks like another format is a part of a text in this one.
            (named, found) => (named == found).then_some(found),
        }
    }

    /// What people call it.
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
