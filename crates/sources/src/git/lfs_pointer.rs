//! Pointers of Git LFS: small text files that stand in a repository in place of the content. Reads them as the `git-lfs` program does.

use std::fmt;

/// The versions of the specification that have this form, the older names of the first one included.
const VERSIONS: [&str; 3] = [
    "https://git-lfs.github.com/spec/v1",
    "https://hawser.github.com/spec/v1",
    "http://git-media.io/v/2",
];
/// A pointer is shorter than this, by the specification.
pub(crate) const LONGEST: usize = 1024;

/// The id of an object in LFS: the SHA-256 of its content.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ObjectId(pub(crate) [u8; 32]);

/// A pointer of Git LFS: names the object that has the content of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pointer {
    pub(crate) id: ObjectId,
    /// The size of the content in bytes.
    pub(crate) size: u64,
}

/// Whether a file's content is a pointer of Git LFS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// The content itself.
    Content,
    Pointer(Pointer),
    /// A pointer that leads to no object, and why.
    Unusable(&'static str),
}

/// Describes a pointer that stands in place of a file's content: `None` for any other content. The description completes the sentence "the file is …".
#[must_use]
pub fn describe_pointer(content: &[u8]) -> Option<String> {
    match read(content) {
        Reading::Content => None,
        Reading::Pointer(_) => Some("a pointer of Git LFS and not the file itself".to_owned()),
        Reading::Unusable(problem) => Some(format!("a pointer of Git LFS that can't be followed: {problem}")),
    }
}

/// Checks whether the content of a file is a pointer, and reads it.
pub(crate) fn read(content: &[u8]) -> Reading {
    if content.len() >= LONGEST || !content.starts_with(b"version ") {
        return Reading::Content;
    }
    let Ok(text) = std::str::from_utf8(content) else {
        return Reading::Content;
    };
    let lines = text.trim().lines().filter(|line| !line.is_empty());
    let mut entries = lines.map(|line| line.split_once(' ').unwrap_or((line, "")));
    let is_version = entries.next().is_some_and(|(_, version)| VERSIONS.contains(&version));
    let entries: Vec<(&str, &str)> = entries.collect();
    let has = |key: &str| entries.iter().any(|(known, _)| *known == key);
    if !is_version || !has("oid") || !has("size") {
        return Reading::Content;
    }
    if entries.iter().any(|(key, _)| is_extension(key)) {
        return Reading::Unusable(
            "an extension of Git LFS has changed the content, and only that program can restore it",
        );
    }
    let [("oid", id), ("size", size)] = entries.as_slice() else {
        return Reading::Unusable("after its version it must have the lines oid and size, in this order, and no other");
    };
    let Some(id) = id.strip_prefix("sha256:").and_then(ObjectId::read) else {
        return Reading::Unusable("its oid must be sha256: and 64 lower-case hex digits");
    };
    let is_number = !size.is_empty() && size.bytes().all(|byte| byte.is_ascii_digit());
    match size.parse::<u64>() {
        // Sizes are signed numbers in every implementation.
        Ok(size) if is_number && i64::try_from(size).is_ok() => Reading::Pointer(Pointer { id, size }),
        _ => Reading::Unusable("its size must be a number of bytes"),
    }
}

/// Checks for the key of an extension: `ext-0-name`.
fn is_extension(key: &str) -> bool {
    let rest = key.strip_prefix("ext-").and_then(|rest| rest.split_once('-'));
    rest.is_some_and(|(number, _)| number.bytes().all(|byte| byte.is_ascii_digit()))
}

impl ObjectId {
    /// The id of an empty content.
    pub(crate) const EMPTY: Self = Self([
        0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9, 0x24, 0x27, 0xae,
        0x41, 0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52, 0xb8, 0x55,
    ]);

    /// Reads 64 lower-case hex digits.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let is_lower = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let mut id = [0; 32];
        hex::decode_to_slice(text, &mut id).ok().filter(|()| is_lower)?;
        Some(Self(id))
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectId({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393";

    fn write(lines: &[&str]) -> String {
        lines.iter().map(|line| format!("{line}\n")).collect()
    }

    #[test]
    fn pointers_are_read_as_git_lfs_reads_them() {
        let (oid, version) = (format!("oid sha256:{ID}"), "version https://git-lfs.github.com/spec/v1");
        let pointer = Reading::Pointer(Pointer {
            id: ObjectId::read(ID).unwrap(),
            size: 12345,
        });
        let whole = write(&[version, &oid, "size 12345"]);
        for text in [
            whole.clone(),
            whole.trim_end().to_owned(),
            whole.replace('\n', "\r\n"),
            format!("{whole}\n\n"),
            whole.replace("git-lfs.github.com", "hawser.github.com"),
            whole.replace("https://git-lfs.github.com/spec/v1", "http://git-media.io/v/2"),
        ] {
            assert_eq!(read(text.as_bytes()), pointer, "{text:?}");
        }
        let long = format!("{whole}{}", "\n".repeat(LONGEST));
        for text in [
            "",
            "version: 1\n",
            "version 1\n",
            &write(&[version]),
            &write(&[version, &oid]),
            &write(&["version https://git-lfs.github.com/spec/v2", &oid, "size 1"]),
            &format!(" {whole}"),
            &format!("# about pointers\n{whole}"),
            &long,
        ] {
            assert_eq!(read(text.as_bytes()), Reading::Content, "{text:?}");
        }
        assert_eq!(read(&[whole.as_bytes(), b"\xff"].concat()), Reading::Content);
    }

    #[test]
    fn a_pointer_that_leads_nowhere_is_no_content() {
        let version = "version https://git-lfs.github.com/spec/v1";
        let oid = format!("oid sha256:{ID}");
        for (lines, expected) in [
            (
                vec![version, "ext-0-case sha256:00", oid.as_str(), "size 1"],
                "an extension",
            ),
            (vec![version, "size 1", &oid], "in this order"),
            (vec![version, &oid, "size 1", "x-mode 1"], "no other"),
            (vec![version, &oid, &oid, "size 1"], "no other"),
            (vec![version, "oid sha1:00", "size 1"], "hex digits"),
            (
                vec![
                    version,
                    &oid.to_uppercase().replace("OID SHA256", "oid sha256"),
                    "size 1",
                ],
                "hex digits",
            ),
            (vec![version, &oid[..60], "size 1"], "hex digits"),
            (vec![version, &oid, "size -1"], "a number of bytes"),
            (vec![version, &oid, "size +1"], "a number of bytes"),
            (vec![version, &oid, "size 9223372036854775808"], "a number of bytes"),
            (vec![version, &oid, "size"], "a number of bytes"),
        ] {
            let text = write(&lines);
            let Reading::Unusable(problem) = read(text.as_bytes()) else {
                panic!("{text:?}: {:?}", read(text.as_bytes()));
            };
            assert!(problem.contains(expected), "{text:?}: {problem}");
            let described = describe_pointer(text.as_bytes()).unwrap();
            assert!(described.ends_with(problem), "{described}");
        }
        assert_eq!(describe_pointer(b"content"), None);
    }
}
