//! Rules on imports, checked on the source files: modules import downward only, and heavy packages have owners.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Modules from the top down. A module imports only from rows below its own. Modules of the lowest row are for all to
/// use, and may import each other.
const LAYERS: [&[&str]; 7] = [
    &["main", "fuzz"],
    &["app"],
    &["grpc"],
    &["engine"],
    &["model", "tool", "store"],
    &["extension"],
    &[
        "alarm",
        "audit",
        "auth",
        "bounded_file",
        "clock",
        "cluster",
        "config",
        "fair",
        "ids",
        "lifecycle",
        "mask",
        "memory",
        "pace",
        "schema",
        "secret",
        "telemetry",
    ],
];
/// Index of the lowest row, whose modules may import each other.
const BASE: usize = LAYERS.len() - 1;

/// Packages that only some files may name, by the paths that these begin with.
const OWNERS: [(&[&str], &[&str]); 11] = [
    (
        &[
            "tonic",
            "tonic_types",
            "tonic_health",
            "tonic_reflection",
            "prost",
            "prost_types",
            "prost_reflect",
            "agentloop_proto",
        ],
        &[
            "server/src/grpc/",
            "server/src/app/serving/health.rs",
            "server/src/app/serving/mod.rs",
            "server/src/app/serving/reflection.rs",
        ],
    ),
    (&["sqlx"], &["server/src/store/"]),
    (&["reqwest"], &["server/src/model/", "server/src/app/security/jwks.rs"]),
    (&["rustls"], &["server/src/model/", "server/src/grpc/edge/", "server/src/app/security/jwks.rs"]),
    (&["jsonwebtoken"], &["server/src/auth/jwt/"]),
    (&["ring"], &["server/src/auth/jwt/", "server/src/grpc/edge/tls.rs"]),
    (&["tokio_rustls"], &["server/src/grpc/edge/"]),
    (&["clap"], &["client/cli/"]),
    (&["axum"], &["server/src/app/serving/metrics.rs"]),
    (&["prometheus_client"], &["server/src/telemetry/"]),
    (&["opentelemetry", "opentelemetry_otlp", "opentelemetry_sdk"], &["server/src/telemetry/"]),
];

fn top() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().expect("the package is inside the workspace").to_owned()
}

/// Every source file below a folder, by its path from the top.
pub(crate) fn sources(folder: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![top().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the folder can be read") {
            let path = entry.expect("the folder can be read").path();
            if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let name = path.strip_prefix(top()).expect("below the top").to_string_lossy().into_owned();
                found.push((name, fs::read_to_string(&path).expect("a source file is text")));
            }
        }
    }
    assert!(found.len() > 3, "{folder} has sources");
    found
}

/// Lines without comments and string literals that tests of other languages may hold.
pub(crate) fn code(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.starts_with("//"))
}

/// Every identifier that begins a path, like `a` of `a::b`.
fn path_heads(line: &str) -> impl Iterator<Item = &str> {
    let ident = |c: char| c.is_ascii_alphanumeric() || c == '_';
    line.match_indices("::").filter_map(move |(at, _)| {
        let before = &line[..at];
        let begin = before.rfind(|c| !ident(c)).map_or(0, |at| at + 1);
        let head = &before[begin..];
        (!head.is_empty() && !before[..begin].ends_with("::")).then_some(head)
    })
}

/// The modules of this package that a file names: `a` of `crate::a` and of each in `crate::{a, b}`.
fn imports(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let joined: String = code(text).collect::<Vec<_>>().join(" ");
    for (at, _) in joined.match_indices("crate::") {
        let rest = &joined[at + "crate::".len()..];
        let ident = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        match rest.strip_prefix('{') {
            None => drop(found.insert(ident(rest))),
            Some(list) => found.extend(heads(list).map(ident)),
        }
    }
    found
}

/// The beginnings of the paths of a list in braces.
fn heads(list: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    let mut begins = vec![0];
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => begins.push(at + 1),
            _ => {}
        }
    }
    begins.into_iter().map(|at| list[at..].trim_start()).filter(|head| !head.starts_with('}'))
}

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|row| row.contains(&module))
}

/// `engine` of `server/src/engine/feed.rs` and of `server/src/engine.rs`.
fn module_of(file: &str) -> &str {
    let inside = file.strip_prefix("server/src/").expect("a file of the server");
    inside.split(['/', '.']).next().unwrap_or(inside)
}

#[test]
fn imports_go_downward_only() {
    let mut wrong = Vec::new();
    for (file, text) in sources("server/src") {
        let module = module_of(&file);
        if module == "lib" {
            continue;
        }
        let own = layer(module).unwrap_or_else(|| panic!("{file} is in no layer"));
        for import in imports(&text) {
            let Some(other) = layer(&import) else { continue };
            let allowed = import == module || other > own || (own == BASE && other == BASE);
            if !allowed {
                wrong.push(format!("{file} imports {import}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn heavy_packages_have_owners() {
    let mut wrong = Vec::new();
    for (file, text) in ["server/src", "server/core", "client/cli"].into_iter().flat_map(sources) {
        for (packages, owners) in OWNERS {
            if owners.iter().any(|owner| file.starts_with(owner)) {
                continue;
            }
            // The commands talk to a server; they are no part of it.
            if file.starts_with("client/") && !packages.contains(&"sqlx") && !packages.contains(&"reqwest") {
                continue;
            }
            let named = code(&text).flat_map(path_heads).find(|head| packages.contains(head));
            wrong.extend(named.map(|head| format!("{file} names {head}")));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The core has no I/O, clock, randomness or async.
#[test]
fn the_core_is_pure() {
    const FORBIDDEN: [&str; 6] = ["tokio", "futures_util", "rand", "reqwest", "sqlx", "tracing"];
    const FORBIDDEN_TEXTS: [&str; 6] =
        ["std::fs", "std::net", "std::thread", "SystemTime", "Instant::now", "async fn"];
    for (file, text) in sources("server/core/src") {
        for line in code(&text) {
            assert!(!path_heads(line).any(|head| FORBIDDEN.contains(&head)), "{file}: {line}");
            assert!(!FORBIDDEN_TEXTS.iter().any(|text| line.contains(text)), "{file}: {line}");
        }
    }
}

/// Runs and hosts know nothing of each other.
#[test]
fn the_cores_machines_do_not_import_each_other() {
    for (file, text) in sources("server/core/src") {
        let imports = imports(&text);
        for (one, other) in [("run", "host"), ("host", "run")] {
            let inside = file.starts_with(&format!("server/core/src/{one}/"));
            assert!(!(inside && imports.contains(other)), "{file} imports {other}");
        }
    }
}

/// The first file makes the statuses that have a reason of the contract. Those of the others have none.
#[test]
fn few_files_make_error_statuses() {
    const MAKERS: [&str; 5] = [
        "server/src/grpc/status.rs",
        "server/src/grpc/edge/deadline.rs",
        "server/src/grpc/edge/forward/outcome/refusals.rs",
        "server/src/grpc/edge/forward/request/replayable.rs",
        "server/src/grpc/edge/run_changes/mod.rs",
    ];
    const CONSTRUCTORS: [&str; 24] = [
        "aborted",
        "already_exists",
        "cancelled",
        "data_loss",
        "deadline_exceeded",
        "failed_precondition",
        "from_error",
        "from_error_generic",
        "internal",
        "invalid_argument",
        "new",
        "not_found",
        "out_of_range",
        "permission_denied",
        "resource_exhausted",
        "try_from_error",
        "unauthenticated",
        "unavailable",
        "unimplemented",
        "unknown",
        "with_details",
        "with_details_and_metadata",
        "with_error_details",
        "with_metadata",
    ];
    let making = CONSTRUCTORS.map(|constructor| format!("Status::{constructor}("));
    let made = |text: &str| code(text).any(|line| making.iter().any(|making| line.contains(making)));
    let is_server = |file: &str| !file.contains("/tests/");
    let found: BTreeSet<String> = sources("server/src")
        .into_iter()
        .filter(|(file, text)| is_server(file) && made(text))
        .map(|(file, _)| file)
        .collect();
    assert_eq!(found, BTreeSet::from(MAKERS.map(str::to_owned)));
}

/// An `async` block holds what it names alone: a guard in a parameter that it does not name ends before its first `await`.
#[test]
fn async_blocks_name_the_guards_that_they_hold() {
    for folder in ["server", "client", "tests"] {
        for (file, text) in sources(folder) {
            let wrong = code(&text).find(|line| unnamed_parameter(line).is_some());
            assert!(wrong.is_none(), "{file}: {wrong:?}");
        }
    }
}

/// A named parameter that begins with `_`, of a closure whose body is an `async` block.
fn unnamed_parameter(line: &str) -> Option<&str> {
    let (parameters, _body) = line.split_once("| async")?;
    let (_before, parameters) = parameters.rsplit_once('|')?;
    let is_in_name = |c: char| c.is_alphanumeric() || c == '_';
    parameters.split(|c| !is_in_name(c)).find(|name| name.len() > 1 && name.starts_with('_'))
}

#[test]
fn finds_parameters_that_no_async_block_names() {
    // Not one literal: this file is read, too.
    let closure = |parameters: &str| format!("    .for_each(|{parameters}| {} {{", "async move");
    assert_eq!(unnamed_parameter(&closure("(key, _place)")), Some("_place"));
    for right in [&closure("(key, _)"), &closure("key"), "a |_b| c(async {})"] {
        assert_eq!(unnamed_parameter(right), None, "{right}");
    }
}

#[test]
fn reads_imports_as_they_are_written() {
    let text = "use crate::engine::{Engine, error::E};\nuse crate::{\n  model::M,\n  store::{A, B},\n};\n\
                fn f() { crate::tool::x() }\n// use crate::app;\n";
    let found: Vec<String> = imports(text).into_iter().collect();
    assert_eq!(found, ["engine", "model", "store", "tool"]);
    let heads: Vec<&str> = path_heads("let x: tonic::Status = a::b::c(crate::d::e)").collect();
    assert_eq!(heads, ["tonic", "a", "crate"]);
}

/// Every link of the table of behaviours leads somewhere, and every test that it names is there.
#[test]
fn behaviours_are_proved_by_tests_that_exist() {
    let table = top().join("server/docs/internals/behaviour.md");
    let text = fs::read_to_string(&table).expect("the table can be read");
    let mut named = 0;
    for line in text.lines().filter(|line| line.starts_with("| ")) {
        for (at, _) in line.match_indices("](") {
            let target = line[at + 2..].split(')').next().expect("a split has a first part");
            let file = table.with_file_name(target);
            assert!(file.is_file(), "{target} leads nowhere: {line}");
            let begin = line[..at].rfind('[').expect("a link has a text");
            let Some((path, test)) = line[begin + 1..at].trim_matches('`').split_once("::") else { continue };
            let named_file = fs::canonicalize(top().join(path)).ok();
            assert_eq!(fs::canonicalize(&file).ok(), named_file, "{target} is not {path}");
            let code = fs::read_to_string(&file).expect("a source file is text");
            assert!(code.contains(&format!("fn {test}(")), "{path} has no {test}");
            named += 1;
        }
    }
    assert!(named > 50, "{named} tests are named");
}

/// Names of several types, beside those that are parallel in a family. `Inner` is what a handle shares. `OpenError` is the
/// error of each store, and of the one that the configuration names. Each of the others means one thing in its folder.
const SHARED_NAMES: [&str; 9] =
    ["Changes", "CloseOnDrop", "Inner", "OpenError", "Replica", "Role", "Seen", "Signals", "Unfinished"];

/// Folders whose subfolders do the same in different ways, so that their types have the same names.
const FAMILIES: [(&str, &[&str]); 2] = [
    ("server/src/model/provider/", &["anthropic", "gemini", "openai", "responses", "scripted"]),
    ("server/src/store/", &["postgres", "sqlite"]),
];

/// The family that a file belongs to, and the member of it.
fn family(file: &str) -> Option<(&str, &str)> {
    FAMILIES.into_iter().find_map(|(family, members)| {
        let (member, _) = file.strip_prefix(family)?.split_once('/')?;
        members.contains(&member).then_some((family, member))
    })
}

/// The names of the types that a text defines, but for those of its tests.
fn types(text: &str) -> impl Iterator<Item = &str> {
    let before_tests = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    code(before_tests).filter_map(|line| {
        let line = match line.strip_prefix("pub") {
            Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
            Some(rest) => rest.trim_start(),
            None => line,
        };
        let name =
            ["struct ", "enum ", "trait ", "union "].iter().find_map(|kind| line.strip_prefix(kind))?;
        let end = name.find(|c: char| !c.is_alphanumeric()).unwrap_or(name.len());
        Some(&name[..end]).filter(|name| name.starts_with(|c: char| c.is_uppercase()))
    })
}

/// True if the files are of different members of one family.
fn are_parallel(files: &[String]) -> bool {
    let families: Vec<_> = files.iter().map(|file| family(file)).collect();
    let members: BTreeSet<_> = families.iter().flatten().collect();
    members.len() == files.len()
        && families.windows(2).all(|two| two[0].map(|it| it.0) == two[1].map(|it| it.0))
}

/// A reader who meets a name knows the type.
#[test]
fn types_have_names_of_their_own() {
    let mut defined: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (file, text) in ["server/src", "server/core/src"].into_iter().flat_map(sources) {
        let is_for_tests = ["/tests/", "/tests.rs", "/testing/", "/testing.rs", "/conformance/"];
        if is_for_tests.iter().any(|part| file.contains(part)) {
            continue;
        }
        for name in types(&text) {
            defined.entry(name.to_owned()).or_default().push(file.clone());
        }
    }
    assert!(defined.len() > 500, "the types are read");
    let twice: BTreeMap<_, _> =
        defined.into_iter().filter(|(_, files)| files.len() > 1 && !are_parallel(files)).collect();
    let (shared, wrong): (Vec<_>, Vec<_>) =
        twice.iter().partition(|(name, _)| SHARED_NAMES.contains(&name.as_str()));
    assert!(wrong.is_empty(), "give one of each a name of its own: {wrong:#?}");
    assert_eq!(shared.len(), SHARED_NAMES.len(), "take names that one type has off the list: {shared:#?}");
}

#[test]
fn reads_the_names_of_types() {
    let text = "pub(in crate::a) struct A<T>(T);\n    enum B {\npub trait C: D {}\n// struct E;\nlet structure = 1;\n\
                struct F;\n\n#[cfg(test)]\nmod tests {\n    struct G;\n}\n";
    assert_eq!(types(text).collect::<Vec<_>>(), ["A", "B", "C", "F"]);
    let file = |path: &str| format!("server/src/{path}.rs");
    let [one, other] = ["model/provider/gemini/x", "model/provider/openai/y"].map(file);
    assert!(are_parallel(&[one.clone(), other.clone()]));
    for two in
        [[one.clone(), file("model/provider/gemini/z")], [one, file("store/sqlite/x")], [other, file("fair")]]
    {
        assert!(!are_parallel(&two), "{two:?}");
    }
}
