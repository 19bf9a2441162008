//! A rule on imports: inside a package, no two files import each other, directly or over others, and no two folders of a folder
//! do. A file and the modules below it may. Names that a module only hands on count for the file that defines them.

use std::collections::{BTreeMap, BTreeSet};

use crate::tidy::{code, sources};

/// The sources of the packages that are free of circles.
const ROOTS: [&str; 7] = [
    "server/src",
    "server/core/src",
    "client/src",
    "client/cli/src",
    "tests/src",
    "tests/bench/src",
    "tests/sim/src",
];
/// Modules that may hand a name on to each other, at most.
const HANDED_ON_MAX: usize = 5;

/// A module by its path from the root of the package, which has none.
type Module = Vec<String>;

/// The source of each module, without comments and tests.
fn modules(root: &str) -> BTreeMap<Module, String> {
    let mut found = BTreeMap::new();
    for (file, text) in sources(root) {
        let inside = file.strip_prefix(root).expect("below the root").trim_start_matches('/');
        let mut module: Module = inside.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
        if module.last().is_some_and(|name| ["mod", "lib", "main"].contains(&name.as_str())) {
            module.pop();
        }
        if !module.iter().any(|name| name == "tests") {
            let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            // A program and a library of one package are one root.
            *found.entry(module).or_insert_with(String::new) += &code(text).collect::<Vec<_>>().join(" ");
        }
    }
    found
}

/// The paths that a text begins with: several if it has a list in braces.
fn paths(text: &str) -> Vec<Vec<&str>> {
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).unwrap_or(text.len());
    let (head, rest) = text.split_at(end);
    let names: Vec<&str> = head.split("::").filter(|name| !name.is_empty()).collect();
    let Some(list) = rest.strip_prefix('{').filter(|_| head.ends_with("::")) else { return vec![names] };
    let mut found = Vec::new();
    let (mut depth, mut begin) = (0_usize, 0);
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            '}' | ',' if depth == 0 => {
                let below = paths(list[begin..at].trim_start()).into_iter();
                found.extend(below.filter(|path| !path.is_empty()).map(|path| [&names[..], &path].concat()));
                begin = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    found
}

/// The module that a path leads to, and the name in it.
fn target(modules: &BTreeMap<Module, String>, from: &[String], path: &[&str]) -> (Module, Option<String>) {
    let mut module = if path[0] == "crate" { Vec::new() } else { from.to_vec() };
    let mut names = path;
    while let [first @ ("crate" | "self" | "super"), rest @ ..] = names {
        if *first == "super" {
            module.pop();
        }
        names = rest;
    }
    while let [first, rest @ ..] = names {
        module.push((*first).to_owned());
        if !modules.contains_key(&module) {
            module.pop();
            break;
        }
        names = rest;
    }
    (module, names.first().map(|name| (*name).to_owned()))
}

/// The paths of a module's source that begin with `crate`, `self` or `super`, or with a module below it after `use`.
fn named<'t>(modules: &BTreeMap<Module, String>, module: &[String], text: &'t str) -> Vec<Vec<&'t str>> {
    let ident = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for head in ["crate::", "self::", "super::"] {
        for (at, _) in text.match_indices(head) {
            if !text[..at].ends_with(|c| ident(c) || c == ':') {
                found.extend(paths(&text[at..]));
            }
        }
    }
    for (at, _) in text.match_indices("use ") {
        let path = &text[at + "use ".len()..];
        let first: String = path.chars().take_while(|c| ident(*c)).collect();
        if !text[..at].ends_with(ident) && modules.contains_key(&[module, &[first]].concat()) {
            found.extend(paths(path).into_iter().map(|path| [&["self"][..], &path].concat()));
        }
    }
    found
}

/// The modules that each module imports from, without those above and below it.
fn imports(modules: &BTreeMap<Module, String>) -> BTreeMap<Module, BTreeSet<Module>> {
    let mut handed_on: BTreeMap<(Module, String), Module> = BTreeMap::new();
    for (module, text) in modules {
        let public = text.split("pub").skip(1).map(|rest| rest.trim_start());
        let uses = public.filter_map(|rest| {
            let rest = rest.strip_prefix('(').map_or(Some(rest), |scope| Some(scope.split_once(')')?.1))?;
            rest.trim_start().strip_prefix("use ")
        });
        for path in uses.flat_map(paths) {
            let below = !["crate", "self", "super"].contains(&path[0]);
            let path = if below { [&["self"][..], &path].concat() } else { path };
            if let (from, Some(name)) = target(modules, module, &path)
                && from != *module
            {
                handed_on.insert((module.clone(), name), from);
            }
        }
    }
    let mut found = BTreeMap::new();
    for (module, text) in modules {
        let mut imported = BTreeSet::new();
        for path in named(modules, module, text) {
            let (mut from, name) = target(modules, module, &path);
            for _ in 0..HANDED_ON_MAX {
                let Some(next) = name.as_ref().and_then(|name| handed_on.get(&(from.clone(), name.clone())))
                else {
                    break;
                };
                from = next.clone();
            }
            if !from.starts_with(module) && !module.starts_with(&from) {
                imported.insert(from);
            }
        }
        found.insert(module.clone(), imported);
    }
    found
}

/// Removes modules that import nothing which is left, or that nothing left imports. What remains is circles, and what is
/// between them.
fn circles(mut imports: BTreeMap<Module, BTreeSet<Module>>) -> BTreeMap<Module, BTreeSet<Module>> {
    loop {
        let imported: BTreeSet<Module> = imports.values().flatten().cloned().collect();
        let before = imports.len();
        imports.retain(|module, from| !from.is_empty() && imported.contains(module));
        if imports.len() == before {
            return imports;
        }
        let left: BTreeSet<Module> = imports.keys().cloned().collect();
        imports.values_mut().for_each(|from| from.retain(|module| left.contains(module)));
    }
}

/// The imports between the files and folders of each folder: those of a folder are those of all files in it.
fn between_neighbours(
    imports: &BTreeMap<Module, BTreeSet<Module>>,
) -> BTreeMap<Module, BTreeMap<Module, BTreeSet<Module>>> {
    let mut found: BTreeMap<Module, BTreeMap<Module, BTreeSet<Module>>> = BTreeMap::new();
    for (module, from) in imports {
        for from in from {
            let shared = module.iter().zip(from).take_while(|(one, other)| one == other).count();
            let neighbours = found.entry(module[..shared].to_vec()).or_default();
            neighbours.entry(module[..=shared].to_vec()).or_default().insert(from[..=shared].to_vec());
        }
    }
    found
}

/// One line for each module that is left.
fn lines(left: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<String> {
    let shown = |module: &Module| module.join("/");
    let line = |(module, from): (&Module, &BTreeSet<Module>)| {
        format!("{} imports {}", shown(module), from.iter().map(shown).collect::<Vec<_>>().join(", "))
    };
    left.iter().map(line).collect()
}

#[test]
fn files_do_not_import_each_other() {
    for root in ROOTS {
        let found = imports(&modules(root));
        assert!(found.values().filter(|from| !from.is_empty()).count() > 5, "{root}: imports are read");
        let left = circles(found);
        assert!(left.is_empty(), "{root}: {:#?}", lines(&left));
    }
}

#[test]
fn neighbours_do_not_import_each_other() {
    for root in ROOTS {
        let found = between_neighbours(&imports(&modules(root)));
        let left: Vec<_> = found.into_values().flat_map(|found| lines(&circles(found))).collect();
        assert!(left.is_empty(), "{root}: {left:#?}");
    }
}

#[test]
fn circles_of_folders_are_found() {
    let found = imports(&package(&[
        ("a/x", "use crate::b::z::Z;"),
        ("a/y", ""),
        ("a", "mod x; mod y;"),
        ("b/z", ""),
        ("b/w", "use crate::a::y::Y;"),
        ("b", "mod z; mod w;"),
        ("c", "use crate::a::y::Y;"),
    ]));
    assert!(circles(found.clone()).is_empty(), "no file is in one");
    let left: Vec<_> =
        between_neighbours(&found).into_values().flat_map(|found| lines(&circles(found))).collect();
    assert_eq!(left, ["a imports b", "b imports a"]);
}

/// A package of these files.
fn package(files: &[(&str, &str)]) -> BTreeMap<Module, String> {
    let module = |path: &str| path.split('/').filter(|name| !name.is_empty()).map(str::to_owned).collect();
    files.iter().map(|(path, text)| (module(path), (*text).to_owned())).collect()
}

#[test]
fn circles_are_found_also_over_names_that_are_handed_on() {
    let left =
        |files| circles(imports(&package(files))).keys().map(|module| module.join("/")).collect::<Vec<_>>();
    let direct = [
        ("", "mod a; mod b; mod c;"),
        ("a", "use crate::{b::{B, C}, c};"),
        ("b", "fn f() { super::a::g() }"),
        ("c", ""),
    ];
    assert_eq!(left(&direct), ["a", "b"]);
    let handed = [
        ("a", "mod x; pub(crate) use x::X;"),
        ("a/x", "use crate::b::Y;"),
        ("b", "mod y; pub use self::y::{Y, Z};"),
        ("b/y", "use crate::a::X;"),
    ];
    assert_eq!(left(&handed), ["a/x", "b/y"]);
    let parent = [("a", "mod x; use x::X;"), ("a/x", "use super::A; use crate::b::B;"), ("b", "")];
    assert!(left(&parent).is_empty());
}
