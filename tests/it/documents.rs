//! Rules on documents: links have targets, named files exist, lines are short, and ARCHITECTURE names every RPC and top
//! module.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use agentloop_proto::FILE_DESCRIPTOR_SET;
use prost::Message as _;
use prost_types::FileDescriptorSet;

/// Folders whose documents are not ours.
const NOT_OURS: [&str; 5] = ["target", "node_modules", ".work", ".git", ".venv"];
/// The longest line of a document's text.
const LINE_CHARACTERS_MAX: usize = 130;

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("inside the workspace").to_owned()
}

/// Every document of the repository.
fn documents() -> Vec<PathBuf> {
    let found = files(".md");
    assert!(found.len() > 10, "there are documents");
    found
}

/// Every file of the repository whose name ends so.
fn files(ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![top()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the folder can be read") {
            let path = entry.expect("the folder can be read").path();
            let name = path.file_name().expect("it has a name").to_string_lossy().into_owned();
            if path.is_dir() && !path.is_symlink() && !NOT_OURS.contains(&name.as_str()) {
                folders.push(path);
            } else if name.ends_with(ending) {
                found.push(path);
            }
        }
    }
    found
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The lines that are not within a fence of code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    })
}

/// The targets of a document's links.
fn links(text: &str) -> impl Iterator<Item = &str> {
    prose(text).flat_map(|line| {
        line.match_indices("](").map(|(at, begin)| {
            let rest = &line[at + begin.len()..];
            rest.split_once(')').map_or(rest, |(link, _)| link)
        })
    })
}

/// The anchors of a document's headings, as the usual hosts of repositories make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for heading in prose(text).filter_map(|line| line.strip_prefix('#')) {
        let mut anchor = String::new();
        for c in heading.trim_start_matches('#').trim().chars().flat_map(char::to_lowercase) {
            match c {
                ' ' => anchor.push('-'),
                c if c.is_alphanumeric() || c == '-' || c == '_' => anchor.push(c),
                _ => {}
            }
        }
        let mut unique = anchor.clone();
        for number in 1.. {
            if found.insert(unique) {
                break;
            }
            unique = format!("{anchor}-{number}");
        }
    }
    found
}

/// A path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

#[test]
fn links_lead_somewhere() {
    let mut dead = Vec::new();
    let mut followed = 0;
    for document in documents() {
        let whole = text(&document);
        for link in links(&whole).filter(|link| !link.contains("://") && !link.starts_with("mailto:")) {
            followed += 1;
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() {
                document.clone()
            } else {
                plain(&document.parent().expect("in a folder").join(path))
            };
            let leads = target.starts_with(top())
                && target.exists()
                && (anchor.is_empty() || target.is_dir() || anchors(&text(&target)).contains(anchor));
            if !leads {
                dead.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(followed > 50, "only {followed} links");
    assert!(dead.is_empty(), "{dead:#?}");
}

/// A paragraph is read in an editor, and its changes line by line. Rows of tables are as long as they have to be.
#[test]
fn lines_are_short() {
    let mut long = Vec::new();
    for document in documents() {
        let text = text(&document);
        let lines = prose(&text).filter(|line| !line.starts_with('|'));
        let lines = lines.filter(|line| line.chars().count() > LINE_CHARACTERS_MAX);
        long.extend(lines.map(|line| format!("{}: {line}", document.display())));
    }
    assert!(long.is_empty(), "{long:#?}");
}

/// Source files are named by as much of their path as tells them apart.
#[test]
fn named_source_files_exist() {
    let sources = files(".rs");
    let (mut named, mut missing) = (0, Vec::new());
    for document in documents() {
        let text = text(&document);
        let code = prose(&text).flat_map(|line| line.split('`').skip(1).step_by(2));
        for file in
            code.filter(|code| code.ends_with(".rs") && code.contains('/') && !code.contains(['*', ' ']))
        {
            named += 1;
            if !sources.iter().any(|source| source.ends_with(file.trim_start_matches("../"))) {
                missing.push(format!("{}: {file}", document.display()));
            }
        }
    }
    assert!(named > 50, "only {named} files are named");
    assert!(missing.is_empty(), "{missing:#?}");
}

/// The texts in backticks of a cell.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// The table of names leads to files that exist, and types and functions of today are in them.
#[test]
fn names_lead_to_what_they_name() {
    let (mut found, mut wrong) = (0, Vec::new());
    for row in
        text(&top().join("server/docs/internals/names.md")).lines().filter(|row| row.starts_with("| `"))
    {
        let cells: Vec<&str> = row.split('|').collect();
        // Rows of modules have no cell between the name and the reason: their names are files.
        let (names, files) = if cells.len() == 6 { (cells[2], cells[3]) } else { ("", cells[2]) };
        let mut code = String::new();
        for file in quoted(files).map(|file| top().join(file)) {
            found += 1;
            if file.is_file() {
                code.push_str(&text(&file));
            } else if !file.is_dir() {
                wrong.push(format!("{}: {row}", file.display()));
            }
        }
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let words: BTreeSet<&str> = code.split(|c| !is_word(c)).collect();
        let is_missing = |name: &&str| !name.rsplit("::").next().is_some_and(|name| words.contains(name));
        wrong.extend(quoted(names).find(is_missing).map(|name| format!("{name}: {row}")));
    }
    assert!(found > 500, "only {found} files are named");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_architecture_names_every_rpc() {
    let architecture = text(&top().join("server/ARCHITECTURE.md"));
    let files = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).expect("the descriptors are whole");
    let mut missing = Vec::new();
    for service in
        files.file.iter().filter(|file| file.package() == "agentloop.v1").flat_map(|file| &file.service)
    {
        for method in &service.method {
            let (of, name) = (service.name(), method.name());
            if !architecture.contains(&format!("{of}/{name}")) && !architecture.contains(&format!("`{name}`"))
            {
                missing.push(format!("{of}/{name}"));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// The text of a document below a heading, up to the next heading of the same level.
fn section<'a>(text: &'a str, heading: &str) -> &'a str {
    let (_, below) = text.split_once(&format!("\n### {heading}\n")).expect("there is such a heading");
    below.split_once("\n### ").map_or(below, |(section, _)| section)
}

#[test]
fn the_architecture_names_every_top_module() {
    let architecture = text(&top().join("server/ARCHITECTURE.md"));
    let mut missing = Vec::new();
    for (root, heading) in
        [("server/src", "`src/` (agentloop-server)"), ("server/core/src", "`core/` (agentloop-core)")]
    {
        let section = section(&architecture, heading);
        let lib = text(&top().join(root).join("lib.rs"));
        let modules = lib.lines().filter_map(|line| {
            let line = line.strip_prefix("pub ").unwrap_or(line);
            line.strip_prefix("mod ").and_then(|rest| rest.strip_suffix(';'))
        });
        missing.extend(
            modules
                .filter(|module| {
                    !section.contains(&format!("`{module}`")) && !section.contains(&format!("`{module}/`"))
                })
                .map(|module| format!("{root}: {module}")),
        );
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// A row names folders, then modules somewhere below them.
#[test]
fn the_folder_tables_of_the_architecture_name_modules_that_exist() {
    let architecture = text(&top().join("server/ARCHITECTURE.md"));
    let sources: Vec<_> = files(".rs").iter().map(|path| path.with_extension("")).collect();
    let (mut root, mut named, mut missing) = (String::new(), 0, Vec::new());
    for line in section(&architecture, "`src/` (agentloop-server)").lines() {
        if let Some((module, _)) = line.strip_prefix("**`").and_then(|rest| rest.split_once("`**")) {
            root = format!("server/src/{}", module.trim_end_matches('/'));
        }
        let Some((folders, content)) = line.strip_prefix("| `").and_then(|row| row.split_once(" | ")) else {
            continue;
        };
        let folders: Vec<_> = folders.split('`').filter(|folder| folder.ends_with('/')).collect();
        if folders.is_empty() {
            continue;
        }
        let is_module = |code: &&str| code.chars().all(|c| c.is_ascii_lowercase() || "_/".contains(c));
        for module in content.split('`').skip(1).step_by(2).filter(is_module) {
            named += 1;
            let exists = folders.iter().any(|folder| {
                let folder = top().join(&root).join(folder);
                let mut below = sources.iter().filter_map(|source| source.strip_prefix(&folder).ok());
                below.any(|below| below.iter().any(|part| part == module.trim_end_matches('/')))
            });
            if !exists {
                missing.push(format!("{root}/{}: {module}", folders.join(", ")));
            }
        }
    }
    assert!(named > 40, "only {named} modules are named");
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn anchors_are_those_of_the_usual_hosts() {
    let text = "# A `b`, C!\n## Two  words\n```\n# not this\n```\n# A b c\n";
    let expected = ["a-b-c", "two--words", "a-b-c-1"].map(str::to_owned);
    assert_eq!(anchors(text), BTreeSet::from(expected));
    assert_eq!(links("see [a](b.md#c) and [d](e)").collect::<Vec<_>>(), ["b.md#c", "e"]);
}

/// The blocks of code of a document.
fn code_blocks(text: &str) -> impl Iterator<Item = &str> {
    text.split("```").skip(1).step_by(2)
}

/// The example is compiled, so a sample that is quoted from it compiles too.
#[test]
fn samples_of_embedding_are_quoted_from_the_example() {
    let example = text(&top().join("server/examples/embed.rs"));
    let example: Vec<_> = example.lines().map(str::trim).collect();
    let page = text(&top().join("server/docs/guide/embedding.md"));
    let mut samples = 0;
    for sample in code_blocks(&page).filter_map(|block| block.strip_prefix("rust\n")) {
        samples += 1;
        let lines: Vec<_> = sample.lines().map(str::trim).collect();
        let is_quoted = example.windows(lines.len()).any(|part| part == lines);
        assert!(is_quoted, "not in server/examples/embed.rs:\n{sample}");
    }
    assert_eq!(samples, 2);
}

/// A host that a reader writes from one page may run beside a host from another: the server compares declarations.
#[test]
fn hosts_in_documents_declare_the_weather_alike() {
    let pages = [
        "README.md",
        "server/docs/guide/tool-hosts.md",
        "client/python/README.md",
        "client/typescript/README.md",
        "client/go/README.md",
    ];
    let mut hosts = 0;
    for page in pages {
        let text = text(&top().join(page));
        let declares = |block: &&str| block.contains("get_weather") && block.contains("current weather");
        for host in code_blocks(&text).filter(declares) {
            hosts += 1;
            let is_rust = host.starts_with("rust");
            let schema = if is_rust { r#"schema(&[("city", "string")])"# } else { "additionalProperties" };
            for part in [
                "Tells the current weather in a city.",
                "Weather in {city}",
                schema,
                "celsius",
                "8.5",
                "clear",
            ] {
                assert!(host.contains(part), "{page}: {part:?} is not in\n{host}");
            }
        }
    }
    assert_eq!(hosts, 8);
}
