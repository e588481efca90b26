//! The errors of a build, worded for the author of the tree: file, line, field, and the bases on the way to the error.

/// The reason why a build failed, for the author of the tree.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A path leads out of the tree, directly or through a link.
    #[error("{}", outside_tree(path, from, through.as_ref()))]
    OutsideTree {
        /// The path as written.
        path: String,
        /// The directory that it is relative to.
        from: String,
        /// The link that led out, and its target, when it was a link.
        through: Option<(String, String)>,
    },
    /// Links point at each other.
    #[error("{path}: too many links: they form a loop")]
    LinkLoop {
        /// The link that was one too many.
        path: String,
    },
    /// A file is outside the directory of the kustomization that names it.
    #[error(
        "security; file '{file}' is not in or below '{}' (named as '{path}'); copy it there, or lift the load restriction",
        show_directory(root)
    )]
    OutsideRoot {
        /// The file, links followed.
        file: String,
        /// The kustomization's directory.
        root: String,
        /// The path as written.
        path: String,
    },
    /// A reference to something that would have to be fetched.
    #[error(
        "'{path}' is remote: nothing is fetched during a build; put its content into the tree and refer to it by path"
    )]
    Remote {
        /// The reference.
        path: String,
    },
    /// A file is missing.
    #[error("{path}: {why}")]
    Missing {
        /// The path, relative to the tree.
        path: String,
        /// The reason, for example a directory at this path.
        why: String,
    },
    /// The directory to build isn't in the tree.
    #[error("{}: not a directory of this tree", show_directory(directory))]
    NotADirectory {
        /// The directory asked for.
        directory: String,
    },
    /// A directory has no kustomization file.
    #[error(
        "unable to find one of 'kustomization.yaml', 'kustomization.yml' or 'Kustomization' in directory '{}'",
        show_directory(directory)
    )]
    NoKustomization {
        /// The directory.
        directory: String,
    },
    /// A directory has more than one kustomization file.
    #[error("found multiple kustomization files under '{}': {}; keep one", show_directory(directory), files.join(", "))]
    SeveralKustomizations {
        /// The directory.
        directory: String,
        /// The files found.
        files: Vec<String>,
    },
    /// A file isn't YAML that can be read.
    #[error("{path}:{line}: malformed YAML: {message}")]
    Yaml {
        /// The file.
        path: String,
        /// The line, from 1.
        line: u32,
        /// The error of the reader.
        message: String,
    },
    /// A document isn't a Kubernetes object.
    #[error("{path}:{line}: {message}")]
    Object {
        /// The file.
        path: String,
        /// The line where the document starts, from 1.
        line: u32,
        /// The error in the object.
        message: String,
    },
    /// A field of a kustomization, or of a file that configures a transformer, can't be used as written.
    #[error("{path}:{line}: {field}: {message}")]
    Field {
        /// The file.
        path: String,
        /// The line of the field, from 1; 0 when the field was added by the caller.
        line: u32,
        /// The field, dotted, with list positions in brackets.
        field: String,
        /// The error in the field.
        message: String,
    },
    /// A field asks for a feature that this library refuses on purpose.
    #[error("{path}:{line}: {field}: {what} is not supported: {instead}")]
    Unsupported {
        /// The file.
        path: String,
        /// The line of the field, from 1.
        line: u32,
        /// The field.
        field: String,
        /// The feature.
        what: String,
        /// The reason for the refusal, and the alternative.
        instead: String,
    },
    /// A transformation of one resource failed.
    #[error("{}", format_transform_error(path, *line, resource, message, step))]
    Transform {
        /// The file that the resource comes from.
        path: String,
        /// The line where the resource starts, from 1.
        line: u32,
        /// The resource.
        resource: String,
        /// The error of the transformation.
        message: String,
        /// The field that asked for it, as `file:line: field`; empty when several did.
        step: String,
    },
    /// A limit of [`crate::Limits`] was passed.
    #[error("{path}: {what} is more than the limit of {limit}")]
    Limit {
        /// The file, or the directory of the build.
        path: String,
        /// The amount that is too large.
        what: String,
        /// The limit.
        limit: usize,
    },
    /// The build makes or does more than its [`crate::Budget`].
    #[error("{place}: {message}")]
    Budget {
        /// The file, line and field that the build had reached.
        place: String,
        /// The exceeded limit, and a remedy.
        message: String,
        /// The limit that was passed.
        limit: u64,
    },
    /// The caller ended the build with [`crate::Stop`].
    #[error("{place}: the build was stopped by its caller")]
    Stopped {
        /// The file, line and field that the build had reached.
        place: String,
    },
    /// Bases refer to each other in a circle, or a directory to itself or a parent that is being built.
    #[error(
        "{path}:{line}: cycle detected: '{}' contains '{}', which is already being built",
        show_directory(directory),
        show_directory(visited)
    )]
    Cycle {
        /// The kustomization with the reference.
        path: String,
        /// The line of the reference, from 1.
        line: u32,
        /// The directory that was referred to.
        directory: String,
        /// The directory being built.
        visited: String,
    },
    /// Something in a base failed.
    #[error("{source} (reached through {})", chain.join(" -> "))]
    InBase {
        /// The references that led there, outermost first, each as `file:line`.
        chain: Vec<String>,
        /// The error in the base.
        source: Box<Error>,
    },
    /// Several independent errors.
    #[error("{}", join_errors(.0))]
    Several(Vec<Error>),
}

impl Error {
    /// Notes that this error was reached through a reference.
    pub(crate) fn with_reference(self, reference: String) -> Self {
        match self {
            Error::InBase { mut chain, source } => {
                chain.insert(0, reference);
                Error::InBase { chain, source }
            }
            other => Error::InBase {
                chain: vec![reference],
                source: Box::new(other),
            },
        }
    }

    /// Returns the place of the error as text; `None` if it is unknown.
    pub(crate) fn describe_place(&self) -> Option<String> {
        match self {
            Error::Field { path, line, field, .. } | Error::Unsupported { path, line, field, .. } => {
                Some(format!("{path}:{line}: {field}"))
            }
            Error::Yaml { path, line, .. } | Error::Object { path, line, .. } | Error::Cycle { path, line, .. } => {
                Some(format!("{path}:{line}"))
            }
            Error::Transform {
                path,
                line,
                resource,
                step,
                ..
            } if step.is_empty() => Some(format!("{path}:{line}: {resource}")),
            Error::Transform {
                path,
                line,
                resource,
                step,
                ..
            } => Some(format!("{step}, in {resource} ({path}:{line})")),
            Error::Missing { path, .. } | Error::Limit { path, .. } => Some(path.clone()),
            Error::InBase { chain, source } => source
                .describe_place()
                .map(|place| format!("{place} (reached through {})", chain.join(" -> "))),
            Error::Several(errors) => errors.iter().find_map(Error::describe_place),
            _ => None,
        }
    }

    /// Combines several errors into one; `None` if the list is empty.
    pub(crate) fn combine(mut errors: Vec<Error>) -> Option<Self> {
        match errors.len() {
            0 => None,
            1 => errors.pop(),
            _ => Some(Error::Several(errors)),
        }
    }
}

/// Returns a directory of the tree as authors write it.
pub(crate) fn show_directory(directory: &str) -> &str {
    if directory.is_empty() { "." } else { directory }
}

fn outside_tree(path: &str, from: &str, through: Option<&(String, String)>) -> String {
    match through {
        Some((link, target)) => {
            format!("{link}: the link to '{target}' leaves the tree; only links inside it are followed")
        }
        None => format!(
            "'{path}', seen from '{}', leaves the tree; nothing outside it is read",
            show_directory(from)
        ),
    }
}

fn format_transform_error(path: &str, line: u32, resource: &str, message: &str, step: &str) -> String {
    if step.is_empty() {
        format!("{path}:{line}: {resource}: {message}")
    } else {
        format!("{step}: {message}, in {resource} ({path}:{line})")
    }
}

fn join_errors(errors: &[Error]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
