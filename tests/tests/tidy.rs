//! What holds for every file of the repository and no compiler checks.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A file above it has more than one subject. Files of tests alone, named `tests.rs`, may be longer.
const LINES_MAX: usize = 800;

/// What no file may contain. Put together here, so that this file is none that does.
const FORBIDDEN: &[(&str, &str)] = &[
    (concat!("TO", "DO"), "unfinished work is not left in the tree"),
    (concat!("FIX", "ME"), "unfinished work is not left in the tree"),
    (concat!("unimplemented", "!"), "a stub is not an answer"),
    (concat!("to", "do!"), "a stub is not an answer"),
    (concat!("../", "shared"), "a path outside of the repository"),
    (concat!("/wo", "rk/"), "a path of one machine"),
    (concat!("/tm", "p/w"), "a path of one machine"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the workspace").to_owned()
}

/// Paths, from the root, of all files that are in the repository and on the disk.
fn files() -> Vec<String> {
    let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(root()).output().expect("git runs");
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
    let listed = String::from_utf8(listed.stdout).expect("paths are UTF-8");
    let files: Vec<String> = listed.split_terminator('\0').map(str::to_owned).collect();
    assert!(!files.is_empty());
    files.into_iter().filter(|file| root().join(file).is_file()).collect()
}

/// `None` for what is not text.
fn text(file: &str) -> Option<String> {
    String::from_utf8(std::fs::read(root().join(file)).expect("a listed file can be read")).ok()
}

#[test]
fn files_have_one_subject() {
    // Rule: no source file has more than 800 lines, tests aside.
    let sources = files().into_iter().filter(|file| file.ends_with(".rs") && !file.ends_with("/tests.rs"));
    let mut long = Vec::new();
    for file in sources {
        let lines = text(&file).expect("source is UTF-8").lines().count();
        if lines > LINES_MAX {
            long.push(format!("{file}: {lines} lines"));
        }
    }
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn nothing_is_left_unfinished_or_tied_to_a_machine() {
    // Rule: the tree holds no marks of unfinished work, no stubs, and no paths that exist on one machine only.
    let mut found = Vec::new();
    for file in files() {
        let Some(text) = text(&file) else { continue };
        for (number, line) in (1..).zip(text.lines()) {
            let hits = FORBIDDEN.iter().filter(|(word, _)| line.contains(word));
            found.extend(hits.map(|(word, why)| format!("{file}:{number}: {word}: {why}")));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn every_dependency_has_its_reason() {
    // Rule: each foreign crate in the workspace's manifest has a comment right above it that says what it is for.
    let manifest = text("Cargo.toml").expect("the manifest is UTF-8");
    let section = manifest.split("[workspace.dependencies]\n").nth(1).expect("the workspace has dependencies");
    let section = section.split("\n[").next().expect("a split has a first part");
    let lines: Vec<&str> = section.lines().collect();
    let is_foreign = |line: &str| !line.is_empty() && !line.starts_with('#') && !line.starts_with("walser-");
    let crates = lines.iter().enumerate().filter(|(_, line)| is_foreign(line));
    let bare: Vec<&str> =
        crates.filter(|(at, _)| *at == 0 || !lines[at - 1].starts_with("# ")).map(|(_, line)| *line).collect();
    assert!(bare.is_empty(), "{bare:#?}");
}

#[test]
fn planted_bugs_fit_the_sources() {
    // Rule: a bug that cannot be planted any more is looked for by nobody, so its patch follows the sources.
    for file in files().into_iter().filter(|file| file.ends_with(".patch")) {
        let checked = Command::new("git").args(["apply", "--check", &file]).current_dir(root()).output();
        let checked = checked.expect("git runs");
        assert!(checked.status.success(), "{file}: {}", String::from_utf8_lossy(&checked.stderr));
    }
}
