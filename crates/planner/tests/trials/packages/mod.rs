//! Plays `tests/scenarios/package/*.yaml` and `tests/scenarios/package_source/*.yaml` against a small cluster and compares the plans, line by line, with the recorded
//! account beside it. Every plan on the way is checked against the invariants.

mod checks;
mod package_values;
mod player;
mod script;

use std::path::PathBuf;

use self::player::Player;
use self::script::Scenario;

/// The folder of the scenarios of a group.
fn find_folder(group: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/scenarios")
        .join(group)
}

/// The names of all scenarios of a group.
pub(crate) fn list_names(group: &str) -> Vec<String> {
    let entries = std::fs::read_dir(find_folder(group)).unwrap();
    let mut names: Vec<String> = entries
        .filter_map(|entry| {
            let name = entry.unwrap().file_name();
            name.to_str()?.strip_suffix(".yaml").map(str::to_owned)
        })
        .collect();
    names.sort();
    names
}

/// Plays one scenario; panics if it differs from the record.
pub(crate) fn check(group: &str, name: &str) {
    let folder = find_folder(group);
    let text = std::fs::read_to_string(folder.join(format!("{name}.yaml"))).unwrap();
    let scenario: Scenario = serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut player = Player::new(name, &scenario);
    for act in scenario.script {
        player.perform_act(act);
    }
    let account = player.end();
    insta::with_settings!({ snapshot_path => folder, prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!(name, account);
    });
}
