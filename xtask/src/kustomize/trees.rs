//! Makes up whole trees: bases, overlays, components, and the references between them. The same seed and number give the same tree.

use std::collections::BTreeMap;

use super::objects::{self, Made};
use super::overlays;
use super::random::Random;
use super::writer::{self, Value};

/// A generated tree.
#[derive(Debug, Clone, Default)]
pub(super) struct Tree {
    /// Files by path.
    pub(super) files: BTreeMap<String, String>,
    /// The directory to build.
    pub(super) build: String,
}

/// A component, and the objects that it changes.
struct Part {
    path: String,
    /// The objects that it may patch, and the objects after its use.
    needs: Vec<Made>,
    gives: Vec<Made>,
    /// Whether it is used already. A second use in one build is mostly an error, because its objects would exist twice.
    used: bool,
}

/// A directory of a tree while it is generated, with its files so far.
#[derive(Debug, Default)]
pub(super) struct Folder {
    /// Its path.
    pub(super) path: String,
    files: Vec<(String, String)>,
    is_commented: bool,
}

impl Folder {
    fn new(path: String, is_commented: bool) -> Self {
        Self {
            path,
            files: Vec::new(),
            is_commented,
        }
    }

    /// Returns the part of its name that distinguishes it: `b0` for `base0`.
    pub(super) fn initials(&self) -> String {
        let number = self.path.trim_start_matches(char::is_alphabetic);
        format!("{}{number}", self.path.chars().next().unwrap_or_default())
    }

    /// Writes a document.
    pub(super) fn text(&self, random: &mut Random, value: &Value) -> String {
        writer::write_document(value, self.is_commented, random)
    }

    /// Writes a patch without comments and folded blocks. Go's YAML library writes these differently after a merge has moved them into a flow collection.
    pub(super) fn patch(&self, random: &mut Random, value: &Value) -> String {
        writer::write_document(&value.clone().unfold(), false, random)
    }

    /// Puts a file into the folder, or into a subfolder, and returns its name.
    pub(super) fn file(&mut self, random: &mut Random, stem: &str, text: &str) -> String {
        let number = self.files.len();
        let ending = if stem.contains('.') {
            ""
        } else {
            random.pick(&[".yaml", ".yaml", ".yml"])
        };
        let parts = if random.chance(15) { "parts/" } else { "" };
        let (front, back) = stem
            .split_once('.')
            .map_or((stem, String::new()), |(front, back)| (front, format!(".{back}")));
        let name = format!("{parts}{front}-{number}{back}{ending}");
        self.files.push((name.clone(), text.to_owned()));
        name
    }
}

/// A generated directory, with the objects that a kustomization gets if it names the directory as a resource.
struct Offer {
    path: String,
    made: Vec<Made>,
    used: bool,
}

/// Makes the tree of a seed and a number.
pub(super) fn make_tree(seed: u64, number: u64) -> Tree {
    let random = &mut Random::new(seed, number);
    let mut tree = Tree::default();
    let mut everything: Vec<Made> = Vec::new();
    let mut offers: Vec<Offer> = Vec::new();
    let mut components: Vec<Part> = Vec::new();
    let is_commented = random.chance(20);
    let directories = random.pick(&[1_usize, 1, 2, 2, 3, 4]);
    for index in 0..directories {
        let is_last = index + 1 == directories;
        let path = if is_last {
            "top".to_owned()
        } else {
            format!("base{index}")
        };
        let mut folder = Folder::new(path, is_commented);
        let (mut resources, mut visible) = (Vec::new(), Vec::new());
        for offer in &mut offers {
            let wanted = if offer.used {
                random.chance(4)
            } else {
                is_last || random.chance(60)
            };
            if wanted {
                offer.used = true;
                resources.push(format!("../{}", offer.path));
                visible.extend(offer.made.iter().cloned());
            }
        }
        let wanted = if resources.is_empty() {
            random.between(1, 5)
        } else {
            random.draw_below(3)
        };
        let mut documents = Vec::new();
        let mut own = Vec::new();
        for _ in 0..wanted {
            let made = objects::choose_identity(random, &everything);
            everything.push(made.clone());
            own.push(made);
        }
        visible.extend(own.iter().cloned());
        for made in &own {
            let object = objects::make_object(random, made, &everything);
            documents.push(folder.text(random, &object));
        }
        if random.chance(8) {
            let text = a_list(random, &folder, &own, &everything);
            resources.push(folder.file(random, "list", &text));
        } else {
            resources.extend(write_documents(random, &mut folder, &documents));
        }
        if random.chance(15) {
            resources.reverse();
        }
        let component = choose_usable(random, 60, &mut components, &mut visible);
        let kustomization =
            overlays::make_kustomization(random, &mut folder, resources, &component, &mut visible, is_last);
        close_folder(random, &mut tree, folder, &kustomization);
        if !is_last && random.chance(25) {
            let mut folder = Folder::new(format!("component{index}"), is_commented);
            let mut resources = Vec::new();
            let needs = visible.clone();
            let mut visible = visible.clone();
            if random.chance(25) {
                let made = objects::choose_identity(random, &everything);
                let object = objects::make_object(random, &made, &everything);
                let text = folder.text(random, &object);
                resources.push(folder.file(random, "part", &text));
                everything.push(made.clone());
                visible.push(made);
            }
            let inner = choose_usable(random, 30, &mut components, &mut visible);
            let component = overlays::make_component(random, &mut folder, resources, &inner, &mut visible);
            components.push(Part {
                path: folder.path.clone(),
                needs,
                gives: visible,
                used: false,
            });
            close_folder(random, &mut tree, folder, &component);
        }
        offers.push(Offer {
            path: if is_last {
                "top".to_owned()
            } else {
                format!("base{index}")
            },
            made: visible,
            used: false,
        });
    }
    tree.build = "top".to_owned();
    tree
}

/// Returns the components that a folder uses: those whose objects it sees, and sometimes others.
fn choose_usable(random: &mut Random, percent: usize, components: &mut [Part], visible: &mut Vec<Made>) -> Vec<String> {
    if !random.chance(percent) {
        return Vec::new();
    }
    let careless = random.chance(8);
    let mut used = Vec::new();
    for part in components {
        let is_fit = !part.used && part.needs.iter().all(|made| visible.contains(made));
        if careless || is_fit {
            part.used = true;
            used.push(part.path.clone());
            for made in &part.gives {
                if !visible.contains(made) {
                    visible.push(made.clone());
                }
            }
        }
    }
    used
}

/// Distributes documents over files.
fn write_documents(random: &mut Random, folder: &mut Folder, documents: &[String]) -> Vec<String> {
    let mut names = Vec::new();
    let mut text = String::new();
    for (index, document) in documents.iter().enumerate() {
        let separator = random.pick(&["---\n", "---\n", "--- # next\n", "---  \n", "---\n# a comment\n---\n"]);
        if !text.is_empty() || random.chance(10) {
            text.push_str(separator);
        }
        text.push_str(document);
        if random.chance(60) || index + 1 == documents.len() {
            if random.chance(5) {
                text.push_str("---\n");
            }
            if random.chance(5) {
                text = text.trim_end().to_owned();
            }
            add_oddities(random, &mut text);
            names.push(folder.file(random, "objects", &text));
            text.clear();
        }
    }
    names
}

/// Writes all objects as the items of one list.
fn a_list(random: &mut Random, folder: &Folder, own: &[Made], everything: &[Made]) -> String {
    let items: Vec<Value> = own
        .iter()
        .map(|made| objects::make_object(random, made, everything))
        .collect();
    let (api, kind) = random.pick(&[
        ("v1", "List"),
        ("v1", "List"),
        ("v1", "ConfigMapList"),
        ("example.com/v1", "WidgetList"),
    ]);
    let mut list = writer::map([("apiVersion", api.into()), ("kind", kind.into())]);
    if random.chance(30) {
        list.put("metadata", writer::map([("resourceVersion", "".into())]));
    }
    list.put("items", Value::List(items));
    folder.text(random, &list)
}

/// Adds the traces that editors and other tools leave in files.
fn add_oddities(random: &mut Random, text: &mut String) {
    match random.draw_below(60) {
        0 | 1 => *text = text.replace('\n', "\r\n"),
        2 => text.insert(0, '\u{feff}'),
        3 => text.insert_str(0, "# a licence\n# of two lines\n\n"),
        4 => text.insert_str(0, "---\n---\n"),
        5 => text.insert_str(0, "\n\n---\n"),
        6 => text.push_str("---\n# nothing but a comment\n"),
        7 => text.push_str("---\n\n---\nnull\n"),
        8 => text.push_str("\n   \n \n"),
        9 => text.push_str("...\n"),
        10 if random.chance(10) => text.insert_str(0, "%YAML 1.1\n---\n"),
        11 => *text = text.replace('\n', "\n\n"),
        12 => text.push_str("# the end, without a line break"),
        13 => text.push_str("---"),
        14 => text.push_str("--- \t# and no more\n"),
        _ => {}
    }
}

fn close_folder(random: &mut Random, tree: &mut Tree, folder: Folder, kustomization: &Value) {
    let text = folder.text(random, kustomization);
    let name = random.pick(&[
        "kustomization.yaml",
        "kustomization.yaml",
        "kustomization.yaml",
        "kustomization.yml",
        "Kustomization",
    ]);
    tree.files.insert(format!("{}/{name}", folder.path), text);
    for (name, text) in folder.files {
        tree.files.insert(format!("{}/{name}", folder.path), text);
    }
}
