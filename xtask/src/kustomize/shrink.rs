//! Makes a tree with a bug smaller while it shows the same bug. The search is greedy: it removes whole files, then blocks of lines from large to small.

use super::trees::Tree;

/// Returns the smallest tree found in at most `tries` tries; `shows` checks whether a tree still shows the bug.
pub(super) fn shrink_tree(tree: &Tree, mut tries: usize, mut shows: impl FnMut(&Tree) -> bool) -> Tree {
    let mut best = tree.clone();
    loop {
        let before = measure_size(&best);
        let files: Vec<String> = best.files.keys().cloned().collect();
        for file in &files {
            let mut smaller = best.clone();
            smaller.files.remove(file);
            if tries == 0 {
                return best;
            }
            tries -= 1;
            if shows(&smaller) {
                best = smaller;
            }
        }
        for file in &files {
            let mut at = 0;
            while let Some(without) = best.files.get(file).and_then(|text| without_block(text, at)) {
                if tries == 0 {
                    return best;
                }
                tries -= 1;
                let mut smaller = best.clone();
                smaller.files.insert(file.clone(), without);
                if shows(&smaller) {
                    best = smaller;
                } else {
                    at += 1;
                }
            }
        }
        if measure_size(&best) == before {
            return best;
        }
    }
}

fn measure_size(tree: &Tree) -> usize {
    tree.files.values().map(String::len).sum()
}

/// Returns the text without the line at a place and its subordinate lines; `None` past the end.
fn without_block(text: &str, at: usize) -> Option<String> {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let first = lines.get(at)?;
    let depth = count_indent(first);
    let is_key = first.trim_end().ends_with(':');
    let belongs = |line: &&&str| {
        let trimmed = line.trim();
        trimmed.is_empty()
            || count_indent(line) > depth
            || (is_key && count_indent(line) == depth && trimmed.starts_with('-') && trimmed != "---")
    };
    let count = 1 + lines.iter().skip(at + 1).take_while(belongs).count();
    let kept = lines.iter().take(at).chain(lines.iter().skip(at + count));
    Some(kept.copied().collect())
}

fn count_indent(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_shows_the_trouble_stays() {
        let mut tree = Tree::default();
        tree.files
            .insert("a".to_owned(), "x:\n  y: 1\n  bad: 2\nz:\n- 1\n- 2\n".to_owned());
        tree.files.insert("b".to_owned(), "more: text\n".to_owned());
        let small = shrink_tree(&tree, 1000, |tree| {
            tree.files.get("a").is_some_and(|text| text.contains("bad"))
        });
        assert_eq!(small.files.len(), 1);
        assert_eq!(small.files.get("a").map(String::as_str), Some("x:\n  bad: 2\n"));
    }
}
