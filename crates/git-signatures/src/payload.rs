//! Splits a commit or a tag into its signed bytes and its signature.
//!
//! The split is byte for byte that of git: everything in an object is signed, except the signature itself. Objects with more than one signature are refused, because two
//! readers could each take another one.

/// The headers of signatures, for objects of SHA-1 and of SHA-256: git signs neither.
const HEADERS: [&[u8]; 2] = [b"gpgsig", b"gpgsig-sha256"];
/// The first lines of signatures at the end of a tag.
const BEGINNINGS: [&[u8]; 4] = [
    b"-----BEGIN PGP SIGNATURE-----",
    b"-----BEGIN PGP MESSAGE-----",
    b"-----BEGIN SSH SIGNATURE-----",
    b"-----BEGIN SIGNED MESSAGE-----",
];
/// The longest signature that is accepted, in bytes.
const LONGEST_SIGNATURE: usize = 64 << 10;

/// The hash that names an object; each hash has its own header for signatures of commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectFormat {
    /// Objects with ids of 20 bytes.
    Sha1,
    /// Objects with ids of 32 bytes.
    Sha256,
}

/// A commit or tag, split into the signed bytes and the signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    /// The signed bytes.
    pub payload: Vec<u8>,
    /// The armored signature; empty if the object has no signature.
    pub signature: String,
}

/// Splits the content of a commit; `None` if its headers are malformed, it has two signatures, or its signature is too long.
#[must_use]
pub fn split_commit(content: &[u8], format: ObjectFormat) -> Option<Signed> {
    let own = match format {
        ObjectFormat::Sha1 => HEADERS[0],
        ObjectFormat::Sha256 => HEADERS[1],
    };
    let mut payload = Vec::with_capacity(content.len());
    let mut signature: Option<Vec<u8>> = None;
    // Properties of the header to which the following lines with a leading space belong.
    let (mut is_left_out, mut is_taken) = (false, false);
    let mut rest = content;
    loop {
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        let (line, after) = rest.split_at_checked(end + 1)?;
        if line == b"\n" {
            // The message is signed unchanged.
            payload.extend_from_slice(rest);
            break;
        }
        rest = after;
        let value = if let Some(more) = line.strip_prefix(b" ") {
            more
        } else {
            let space = line.iter().position(|byte| *byte == b' ').unwrap_or(end);
            let name = line.get(..space)?;
            is_left_out = HEADERS.contains(&name);
            is_taken = name == own;
            if is_taken {
                if signature.is_some() {
                    return None;
                }
                signature = Some(Vec::new());
            }
            line.get(space + 1..).unwrap_or_default()
        };
        match &mut signature {
            Some(signature) if is_taken => signature.extend_from_slice(value),
            _ => {}
        }
        if !is_left_out {
            payload.extend_from_slice(line);
        }
    }
    Some(Signed {
        payload,
        signature: read_signature(&signature.unwrap_or_default())?,
    })
}

/// Splits the content of a tag: its signature begins at the last line that begins one, and ends at the end. `None` if the signature is too long.
#[must_use]
pub fn split_tag(content: &[u8]) -> Option<Signed> {
    let mut at = 0;
    let mut begin = None;
    for line in content.split_inclusive(|byte| *byte == b'\n') {
        if BEGINNINGS.iter().any(|beginning| line.starts_with(beginning)) {
            begin = Some(at);
        }
        at += line.len();
    }
    let (payload, signature) = content.split_at_checked(begin.unwrap_or(content.len()))?;
    Some(Signed {
        payload: payload.to_vec(),
        signature: read_signature(signature)?,
    })
}

/// Reads the name in a tag, which is signed with it; `None` if its headers are malformed.
#[must_use]
pub fn read_tag_name(content: &[u8]) -> Option<&str> {
    let headers = content.split(|byte| *byte == b'\n').take_while(|line| !line.is_empty());
    let mut names = headers.filter_map(|line| line.strip_prefix(b"tag "));
    let name = names.next()?;
    // Another reader could take the second name.
    if names.next().is_some() {
        return None;
    }
    std::str::from_utf8(name).ok()
}

fn read_signature(bytes: &[u8]) -> Option<String> {
    if bytes.len() > LONGEST_SIGNATURE {
        return None;
    }
    std::str::from_utf8(bytes).ok().map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_but_the_signature_is_signed() {
        let commit = b"tree 1\nauthor a\ngpgsig -----BEGIN\n more\n \n end\nmergetag object\n inner\ngpgsig-sha256 other\n lines\n\nsubject\n\ngpgsig no\n";
        let signed = split_commit(commit, ObjectFormat::Sha1).unwrap();
        assert_eq!(signed.signature, "-----BEGIN\nmore\n\nend");
        let payload = "tree 1\nauthor a\nmergetag object\n inner\n\nsubject\n\ngpgsig no\n";
        assert_eq!(String::from_utf8(signed.payload).unwrap(), payload);
        let other = split_commit(commit, ObjectFormat::Sha256).unwrap();
        assert_eq!(other.signature, "other\nlines");

        let none = split_commit(b"tree 1\n\nsubject", ObjectFormat::Sha1).unwrap();
        assert_eq!(
            (none.signature.as_str(), none.payload.as_slice()),
            ("", b"tree 1\n\nsubject".as_slice())
        );
        for malformed in [
            b"".as_slice(),
            b"tree 1\n",
            b"tree 1\ngpgsig a\nx b\ngpgsig c\n\nmessage\n",
        ] {
            assert_eq!(split_commit(malformed, ObjectFormat::Sha1), None);
        }
        let long = format!("gpgsig {}\n\n", "x".repeat(LONGEST_SIGNATURE + 1));
        assert_eq!(split_commit(long.as_bytes(), ObjectFormat::Sha1), None);
    }

    #[test]
    fn a_tags_signature_is_at_its_end() {
        let tag = b"object 1\ntype commit\ntag v1\n\nwords\n-----BEGIN PGP SIGNATURE-----\nquoted\n-----BEGIN SSH SIGNATURE-----\nreal\n";
        let signed = split_tag(tag).unwrap();
        assert_eq!(signed.signature, "-----BEGIN SSH SIGNATURE-----\nreal");
        assert!(signed.payload.ends_with(b"quoted\n"));
        assert_eq!(read_tag_name(tag), Some("v1"));
        assert_eq!(read_tag_name(b"object 1\ntag a\ntag b\n\n"), None);
        assert_eq!(read_tag_name(b"object 1\n\ntag a\n"), None);
    }
}
