//! Targets on the command line: kinds (`ks`, `ks,gitrepo`), objects of one kind (`ks web`), objects of several (`ks/web surface/shop`). The forms are kubectl's, and
//! can't be mixed.

use crate::failure::Failure;

/// The kinds or objects that the arguments of a command name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Targets {
    /// Nothing.
    Nothing,
    /// Kinds, and all objects of each.
    Kinds(Vec<String>),
    /// Objects: kind and name.
    Objects(Vec<(String, String)>),
}

/// The forms, for hints.
const FORMS: &str = "KIND, KIND,KIND, KIND NAME, or KIND/NAME, such as ks, ks,gitrepo, ks web, ks/web";

impl Targets {
    /// Reads the arguments.
    pub(crate) fn read(arguments: &[String]) -> Result<Self, Failure> {
        let Some((first, names)) = arguments.split_first() else {
            return Ok(Self::Nothing);
        };
        if arguments.iter().any(|argument| argument.contains('/')) {
            return arguments
                .iter()
                .map(|argument| read_object(argument))
                .collect::<Result<_, _>>()
                .map(Self::Objects);
        }
        let kinds: Vec<String> = first
            .split(',')
            .filter(|kind| !kind.is_empty())
            .map(str::to_owned)
            .collect();
        match (kinds.as_slice(), names) {
            ([], _) => Err(Failure::usage(format!("{first:?} names no kind")).hint(FORMS)),
            (_, []) => Ok(Self::Kinds(kinds)),
            ([kind], names) => Ok(Self::Objects(
                names.iter().map(|name| (kind.clone(), name.clone())).collect(),
            )),
            (_, names) => Err(Failure::usage(format!(
                "{}: a name belongs to one kind, and {first:?} names {}",
                names.join(" "),
                kinds.len()
            ))
            .hint(FORMS)),
        }
    }

    /// Reads one object, for commands that take only one.
    pub(crate) fn read_one(arguments: &[String]) -> Result<(String, String), Failure> {
        match Self::read(arguments)? {
            Self::Objects(objects) => match <[_; 1]>::try_from(objects) {
                Ok([object]) => Ok(object),
                Err(objects) => Err(Failure::usage(format!("name one object; {} are named", objects.len()))
                    .hint("KIND NAME or KIND/NAME, such as ks web or ks/web")),
            },
            Self::Nothing | Self::Kinds(_) => Err(Failure::usage(format!("{:?} names no object", arguments.join(" ")))
                .hint("KIND NAME or KIND/NAME, such as ks web or ks/web")),
        }
    }
}

/// Reads `KIND/NAME`.
pub(crate) fn read_object(text: &str) -> Result<(String, String), Failure> {
    match text.split_once('/') {
        Some((kind, name)) if !kind.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok((kind.to_owned(), name.to_owned()))
        }
        _ => Err(Failure::usage(format!("{text:?}: write KIND/NAME")).hint("such as ks/web or deployment/web")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Targets, String> {
        let arguments: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        Targets::read(&arguments).map_err(|failure| failure.message)
    }

    fn objects(all: &[(&str, &str)]) -> Result<Targets, String> {
        Ok(Targets::Objects(
            all.iter()
                .map(|(kind, name)| ((*kind).to_owned(), (*name).to_owned()))
                .collect(),
        ))
    }

    #[test]
    fn targets_are_read_in_every_form_of_kubectl() {
        assert_eq!(read(""), Ok(Targets::Nothing));
        assert_eq!(read("ks"), Ok(Targets::Kinds(vec!["ks".into()])));
        assert_eq!(
            read("ks,gitrepo"),
            Ok(Targets::Kinds(vec!["ks".into(), "gitrepo".into()]))
        );
        assert_eq!(read("ks web shop"), objects(&[("ks", "web"), ("ks", "shop")]));
        assert_eq!(
            read("ks/web surface/shop"),
            objects(&[("ks", "web"), ("surface", "shop")])
        );
    }

    #[test]
    fn malformed_targets_are_refused() {
        for text in ["ks,gitrepo web", "ks/web shop", "ks/", "/web", "ks/a/b", ","] {
            assert!(read(text).is_err(), "{text}");
        }
        for text in ["", "ks", "ks/a ks/b"] {
            let arguments: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            assert!(Targets::read_one(&arguments).is_err(), "{text}");
        }
    }
}
