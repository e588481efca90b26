//! Reads files of the tree into documents and resources, within the load restriction and the limits.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use go_yaml::node::{Data, Node};
use go_yaml::read::{Lines, ReadError, Source, first_document, split_documents};
use go_yaml::scalar::Dialect;
use go_yaml::{json, merge_keys, utf16};

use crate::collection::HIDDEN_REASON;
use crate::error::{Error, show_directory};
use crate::meter;
use crate::options::{Limits, LoadRestrictor};
use crate::resource::Resource;
use crate::schema::Schema;
use crate::tree::{FileTree, Found, is_within, resolve};

/// The treatment of repeated keys in a configuration file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Repeats {
    LastCounts,
    Refused,
}

/// The files read so far, and the number of each.
#[derive(Debug, Default)]
struct Sources {
    paths: Vec<String>,
    numbers: HashMap<String, u32>,
}

/// Reads files for one build.
pub(crate) struct Loader<'tree> {
    pub(crate) tree: &'tree dyn FileTree,
    pub(crate) restrictor: LoadRestrictor,
    pub(crate) limits: Limits,
    /// Files read so far; a node's source is the position here, plus one.
    sources: RefCell<Sources>,
    /// The confidential files among the files that were read. Their content must not appear in any message.
    confidential: RefCell<BTreeSet<String>>,
    nodes_left: Cell<usize>,
    documents_left: Cell<usize>,
    /// The build's knowledge of kinds.
    pub(crate) schema: Arc<Schema>,
    bytes_left: Cell<usize>,
}

impl<'tree> Loader<'tree> {
    pub(crate) fn new(tree: &'tree dyn FileTree, restrictor: LoadRestrictor, limits: Limits) -> Self {
        Loader {
            tree,
            restrictor,
            limits,
            sources: RefCell::default(),
            confidential: RefCell::default(),
            schema: Arc::default(),
            nodes_left: Cell::new(limits.nodes),
            documents_left: Cell::new(limits.documents),
            bytes_left: Cell::new(limits.bytes),
        }
    }

    /// Creates a resource of this build.
    pub(crate) fn make_resource(&self, node: Node) -> Resource {
        let mut resource = Resource::new(node, &self.schema);
        self.mark_confidential(&mut resource, &self.confidential_sources(), &mut BTreeSet::new());
        resource
    }

    /// Marks all resources that contain a part of a confidential file. Returns whether a part of every such file was seen.
    pub(crate) fn mark_all(&self, list: &mut [Resource]) -> bool {
        let sources = self.confidential_sources();
        let mut met = BTreeSet::new();
        for resource in list {
            self.mark_confidential(resource, &sources, &mut met);
        }
        met.len() == sources.len()
    }

    /// Returns the numbers of the confidential files.
    fn confidential_sources(&self) -> BTreeSet<u32> {
        self.confidential
            .borrow()
            .iter()
            .map(|path| self.source_number(path))
            .collect()
    }

    /// Marks a resource that contains a part of a confidential file, and records which of these files were seen.
    fn mark_confidential(&self, resource: &mut Resource, sources: &BTreeSet<u32>, met: &mut BTreeSet<u32>) {
        if !sources.is_empty() && note_sources(&resource.node, sources, met) {
            resource.notes.holds_secret = true;
        }
    }

    /// Returns the number of a file.
    pub(crate) fn source_number(&self, path: &str) -> u32 {
        let mut sources = self.sources.borrow_mut();
        if let Some(number) = sources.numbers.get(path) {
            return *number;
        }
        meter::count_text(2 * path.len() + 64);
        sources.paths.push(path.to_owned());
        let number = u32::try_from(sources.paths.len()).unwrap_or(0);
        sources.numbers.insert(path.to_owned(), number);
        number
    }

    /// Returns the paths of all files by number.
    pub(crate) fn into_sources(self) -> Vec<String> {
        self.sources.into_inner().paths
    }

    pub(crate) fn source_path(&self, source: u32) -> String {
        let index = usize::try_from(source).unwrap_or(0).wrapping_sub(1);
        self.sources.borrow().paths.get(index).cloned().unwrap_or_default()
    }

    /// Finds a file that a kustomization in `root` names; `Ok(None)` if the path is missing or a directory.
    pub(crate) fn find(&self, root: &str, path: &str) -> Result<Option<(String, &'tree [u8])>, Error> {
        match resolve(self.tree, root, path)? {
            Found::File { path: found, bytes } => {
                if self.restrictor == LoadRestrictor::RootOnly && !is_within(&found, root) {
                    return Err(Error::OutsideRoot {
                        file: found,
                        root: root.to_owned(),
                        path: path.to_owned(),
                    });
                }
                let Some(left) = self.bytes_left.get().checked_sub(bytes.len()) else {
                    return Err(Error::Limit {
                        path: found,
                        what: "the total size of the files read, in bytes,".to_owned(),
                        limit: self.limits.bytes,
                    });
                };
                self.bytes_left.set(left);
                meter::count_steps(bytes.len() / 16);
                if self.tree.is_confidential(&found) {
                    self.confidential.borrow_mut().insert(found.clone());
                }
                Ok(Some((found, bytes)))
            }
            Found::Directory(_) | Found::Nothing => Ok(None),
        }
    }

    /// Reads a file that must be there.
    pub(crate) fn read(&self, root: &str, path: &str) -> Result<(String, &'tree [u8]), Error> {
        if is_remote(path) {
            return Err(Error::Remote { path: path.to_owned() });
        }
        self.find(root, path)?
            .ok_or_else(|| match resolve(self.tree, root, path) {
                Ok(Found::Directory(directory)) => Error::Missing {
                    path: directory,
                    why: "it is a directory, not a file".to_owned(),
                },
                _ => Error::Missing {
                    path: join_path(root, path),
                    why: "no such file".to_owned(),
                },
            })
    }

    /// Returns the text of a file.
    pub(crate) fn decode_text(path: &str, bytes: &'tree [u8]) -> Result<Cow<'tree, str>, Error> {
        utf16::decode(bytes).ok_or_else(|| {
            let valid = bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid());
            let line = u32::try_from(valid.matches('\n').count()).unwrap_or(0) + 1;
            Error::Yaml {
                path: path.to_owned(),
                line,
                message: "the text is not UTF-8, and no UTF-16 with a byte order mark".to_owned(),
            }
        })
    }

    fn yaml_error(path: &str, error: ReadError) -> Error {
        Error::Yaml {
            path: path.to_owned(),
            line: error.line,
            message: error.message,
        }
    }

    fn spend_nodes(&self, node: &Node, path: &str) -> Result<(), Error> {
        match self.nodes_left.get().checked_sub(count_nodes(node)) {
            Some(left) => {
                self.nodes_left.set(left);
                Ok(())
            }
            None => Err(Error::Limit {
                path: path.to_owned(),
                what: "the number of nodes read".to_owned(),
                limit: self.limits.nodes,
            }),
        }
    }

    /// Reads the only document of a configuration file, as written; `None` if the file is empty.
    pub(crate) fn read_configuration(&self, path: &str, text: &str, lines: Lines) -> Result<Option<Node>, Error> {
        self.one_document(path, text, lines, Repeats::LastCounts)
    }

    /// Reads the only document of a configuration file in which repeated keys are an error.
    pub(crate) fn strict_configuration(&self, path: &str, text: &str) -> Result<Option<Node>, Error> {
        self.one_document(path, text, Lines::After(0), Repeats::Refused)
    }

    fn one_document(&self, path: &str, text: &str, lines: Lines, repeats: Repeats) -> Result<Option<Node>, Error> {
        let file = self.source_number(path);
        let source = Source {
            file,
            lines,
            maximum_nodes: self.nodes_left.get(),
            scanner: Dialect::V2,
        };
        let mut node = first_document(text, source).map_err(|error| Self::yaml_error(path, error))?;
        if let Some(node) = &mut node {
            if repeats == Repeats::Refused
                && let Some(key) = merge_keys::find_duplicate_key(node)
            {
                return Err(Error::Yaml {
                    path: path.to_owned(),
                    line: key.line,
                    message: format!("the key \"{}\" is already set in its mapping", key.text()),
                });
            }
            self.spend_nodes(node, path)?;
            merge_keys::fold(node, false).map_err(|(line, message)| Error::Yaml {
                path: path.to_owned(),
                line,
                message,
            })?;
        }
        Ok(node)
    }

    /// Reads all documents of a text with merge keys folded, as kyaml reads a file of resources.
    pub(crate) fn read_documents(&self, path: &str, text: &str, lines: Lines) -> Result<Vec<Node>, Error> {
        let file = self.source_number(path);
        let unix;
        let text = if text.contains("\r\n") {
            unix = text.replace("\r\n", "\n");
            unix.as_str()
        } else {
            text
        };
        let chunks = split_documents(text).map_err(|mut error| {
            error.line = lines.number_in_file(error.line);
            Self::yaml_error(path, error)
        })?;
        let only = chunks.len() == 1;
        let mut nodes = Vec::new();
        for chunk in chunks {
            meter::count_steps(1 + chunk.text.len() / 16);
            let source = Source {
                file,
                lines: lines.skip(chunk.lines_before as usize),
                maximum_nodes: self.nodes_left.get(),
                scanner: Dialect::V3,
            };
            let Some(mut node) = first_document(chunk.text, source).map_err(|error| Self::yaml_error(path, error))?
            else {
                continue;
            };
            self.spend_nodes(&node, path)?;
            let Some(left) = self.documents_left.get().checked_sub(1) else {
                return Err(Error::Limit {
                    path: path.to_owned(),
                    what: "the number of documents".to_owned(),
                    limit: self.limits.documents,
                });
            };
            self.documents_left.set(left);
            merge_keys::fold(&mut node, true).map_err(|(line, message)| Error::Yaml {
                path: path.to_owned(),
                line,
                message,
            })?;
            if only
                && matches!(node.get("kind").map(Node::text), Some("List" | "ResourceList"))
                && (node.get("items").is_some() || node.get("functionConfig").is_some())
            {
                if let Some(Data::Seq(items)) = node.remove("items").map(|items| items.data) {
                    nodes.extend(*items);
                }
                continue;
            }
            nodes.push(node);
        }
        Ok(nodes)
    }

    /// Reads all resources of a text: documents with a kind and a name, with lists split into their items.
    pub(crate) fn read_resources(&self, path: &str, text: &str, lines: Lines) -> Result<Vec<Resource>, Error> {
        let mut queue: std::collections::VecDeque<Node> = std::collections::VecDeque::new();
        for node in self.read_documents(path, text, lines)? {
            check(path, &node).map(|good| {
                if good {
                    queue.push_back(node)
                }
            })?;
        }
        let mut resources = Vec::new();
        while let Some(mut node) = queue.pop_front() {
            let kind = node.get("kind").map_or("", Node::text).to_owned();
            if !kind.ends_with("List") || node.get("items").is_none() {
                resources.push(self.make_resource(node));
                continue;
            }
            let Some(items) = node.remove("items") else {
                continue;
            };
            if items.is_null() {
                continue;
            }
            let line = items.line;
            let Data::Seq(items) = items.data else {
                return Err(Error::Object {
                    path: path.to_owned(),
                    line,
                    message: format!("expected array in {kind}/items"),
                });
            };
            for mut item in *items {
                json::through_json_text(&mut item).map_err(|problem| Error::Object {
                    path: path.to_owned(),
                    line: problem.line,
                    message: if item.get("kind").map_or("", Node::text) == "Secret" {
                        HIDDEN_REASON.to_owned()
                    } else {
                        problem.message
                    },
                })?;
                if check(path, &item)? {
                    queue.push_back(item);
                }
            }
        }
        Ok(resources)
    }
}

/// Checks whether a document is a resource; `false` for a document without content.
fn check(path: &str, node: &Node) -> Result<bool, Error> {
    if node.is_empty() {
        return Ok(false);
    }
    let fail = |message: &str| {
        Err(Error::Object {
            path: path.to_owned(),
            line: node.line,
            message: message.to_owned(),
        })
    };
    let text = |field: &str| node.get(field).filter(|value| !value.is_empty()).map_or("", Node::text);
    let metadata = node.get("metadata").filter(|metadata| !metadata.is_empty());
    if text("kind").is_empty() {
        return if text("apiVersion").is_empty() && metadata.is_none() {
            fail("missing Resource metadata: this is not a Kubernetes object (no apiVersion, kind or metadata)")
        } else {
            fail("missing kind in object")
        };
    }
    if node
        .get("metadata")
        .is_some_and(|metadata| !metadata.is_null() && !metadata.is_map())
    {
        return fail("metadata must be a mapping");
    }
    if text("kind").ends_with("List") {
        return Ok(true);
    }
    if metadata
        .and_then(|metadata| metadata.get("name"))
        .is_none_or(|name| name.is_empty() || name.text().is_empty())
    {
        return fail("missing metadata.name in object");
    }
    let annotations = metadata.and_then(|metadata| metadata.get("annotations"));
    // kustomize makes pairs of the elements, or crashes over them.
    if annotations.is_some_and(|annotations| !annotations.items().is_empty()) {
        return fail("metadata.annotations must be a mapping, not a list");
    }
    // kustomize fails here too, unless a JSON patch removes all annotations.
    if annotations.is_some_and(|annotations| annotations.entries().iter().any(|(key, _)| key.text().is_empty())) {
        return fail("metadata.annotations has a key without text");
    }
    Ok(true)
}

/// Returns whether a node, or one in it, comes from one of these files. The function also records which.
fn note_sources(node: &Node, sources: &BTreeSet<u32>, met: &mut BTreeSet<u32>) -> bool {
    meter::count_steps(1);
    let mut is_met = sources.contains(&node.source);
    if is_met {
        met.insert(node.source);
    }
    for (key, value) in node.entries() {
        is_met |= note_sources(key, sources, met) | note_sources(value, sources, met);
    }
    for item in node.items() {
        is_met |= note_sources(item, sources, met);
    }
    is_met
}

fn count_nodes(node: &Node) -> usize {
    match &node.data {
        Data::Scalar(_) => 1,
        Data::Seq(items) => 1 + items.iter().map(count_nodes).sum::<usize>(),
        Data::Map(entries) => {
            1 + entries
                .iter()
                .map(|(key, value)| count_nodes(key) + count_nodes(value))
                .sum::<usize>()
        }
    }
}

/// Returns a path relative to a directory, as authors write it.
pub(crate) fn join_path(root: &str, path: &str) -> String {
    if root.is_empty() {
        crate::tree::clean_path(path)
    } else {
        crate::tree::clean_path(&format!("{}/{path}", show_directory(root)))
    }
}

/// Checks whether a reference names a target that would have to be fetched.
#[must_use]
pub fn is_remote(path: &str) -> bool {
    let lower = path.to_ascii_lowercase();
    [
        "http://",
        "https://",
        "ssh://",
        "git://",
        "git@",
        "git::",
        "github.com/",
        "github.com:",
        "gh:",
        "file://",
    ]
    .iter()
    .any(|prefix| lower.starts_with(prefix))
        || lower.contains("?ref=")
        || lower.contains(".git/")
        || lower.ends_with(".git")
        || lower.contains("/_git/")
}
