//! Every build ends within its budget, whatever it reads: these small trees would make gigabytes or run for hours. The allocator measures
//! their memory. This test is a separate program, because the allocator counts everything in its process.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::allow_attributes,
    clippy::disallowed_methods,
    reason = "tests may panic"
)]

mod loads;

use kustomize::{Budget, Error, MapTree, Options, Stop, build};
use loads::{LOADS, Load, ORDINARY};
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// The byte limit for a load that must exceed its bytes.
const BYTES: u64 = 4 << 20;

/// The step limit for a load that must exceed its steps.
const STEPS: u64 = 4_000_000;

/// The limit for an ordinary tree.
const ORDINARY_USE: Budget = Budget {
    bytes: 4 << 20,
    steps: 1_000_000,
};

/// The memory that a build may hold beside its budget: the files that were read, and the copy during which the budget was exceeded.
const BESIDE: usize = 24 << 20;

fn make_tree(files: &[(String, String)]) -> MapTree {
    let mut tree = MapTree::new();
    for (path, text) in files {
        tree.insert(path, text.as_str());
    }
    tree
}

fn check(load: &Load) -> Result<(), String> {
    let tree = make_tree(&(load.files)());
    let budget = if load.spends_steps {
        Budget {
            bytes: 16 * BYTES,
            steps: STEPS,
        }
    } else {
        Budget {
            bytes: BYTES,
            steps: 100 * STEPS,
        }
    };
    let options = Options {
        budget,
        ..Options::default()
    };
    ALLOCATOR.reset_peak_usage();
    let before = ALLOCATOR.current_usage();
    let outcome = build(&tree, load.directory, &options);
    let made = ALLOCATOR.peak_usage() - before;
    let allowed = usize::try_from(budget.bytes).unwrap() + BESIDE;
    if made > allowed {
        return Err(format!("holds {made} bytes, more than {allowed}"));
    }
    match outcome {
        Err(Error::Budget { place, message, limit }) => {
            let wanted = if load.spends_steps { budget.steps } else { budget.bytes };
            if limit != wanted {
                return Err(format!("is ended by another limit: {place}: {message}"));
            }
            if !place.contains(load.place) {
                return Err(format!("says '{place}', not '{}'", load.place));
            }
            if !message.contains("raise its budget") {
                return Err(format!("doesn't say what to do: {message}"));
            }
            Ok(())
        }
        Err(other) => Err(format!("is refused otherwise: {other}")),
        Ok(built) => Err(format!("is built, with {:?}", built.used)),
    }
}

/// A single test, because the allocator would also count the memory of other tests.
#[test]
fn every_load_ends_at_its_budget() {
    let wrong: Vec<String> = LOADS
        .iter()
        .filter_map(|load| check(load).err().map(|why| format!("{} {why}", load.name)))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for (name, files) in ORDINARY {
        let options = Options {
            budget: ORDINARY_USE,
            ..Options::default()
        };
        let built = build(&make_tree(&files()), "", &options).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(built.used.bytes > 0 && built.used.steps > 0, "{name} counts nothing");
    }
    stopped_builds_end();
}

/// A build without a budget ends soon after a stop, whatever it is doing.
fn stopped_builds_end() {
    for load in LOADS.iter().filter(|load| load.spends_steps) {
        let stop = Stop::new();
        let options = Options {
            budget: Budget::UNLIMITED,
            stop: stop.clone(),
            ..Options::default()
        };
        let files = (load.files)();
        let outcome = std::thread::scope(|scope| {
            let building = scope.spawn(|| build(&make_tree(&files), load.directory, &options));
            stop.stop();
            building.join().unwrap()
        });
        assert!(matches!(outcome, Err(Error::Stopped { .. })), "{}", load.name);
    }
}
