//! Turns `schema/**/*.kmsg` into Rust under `OUT_DIR`; `src/messages.rs` and `src/api.rs` include what comes out.
#![expect(clippy::disallowed_methods, reason = "a build script has no Disk to go through")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

use walser_codegen::{Module, Schema, generate_api_table, generate_message_list, generate_module, parse};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=schema");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let apis = load(Path::new("schema"))?;
    let records = load(Path::new("schema/records"))?;
    write_modules(&out, "messages", &apis)?;
    write_modules(&out, "records", &records)?;
    let (apis, records) = (modules(&apis), modules(&records));
    fs::write(out.join("api_table.rs"), generate_api_table(&apis)?)?;
    fs::write(out.join("message_list.rs"), generate_message_list(&apis, &records))?;
    Ok(())
}

/// Every `.kmsg` file directly in `folder`, by name, as (module name, schema).
fn load(folder: &Path) -> Result<Vec<(String, Schema)>, Box<dyn Error>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "kmsg") {
            paths.push(path);
        }
    }
    paths.sort();
    let mut schemas = Vec::new();
    for path in paths {
        let stem = path.file_stem().and_then(|stem| stem.to_str()).ok_or("a schema file without a name")?;
        let name = stem.trim_start_matches(|c: char| c.is_ascii_digit() || c == '_').to_owned();
        let schema = parse(&fs::read_to_string(&path)?).map_err(|error| format!("{}: {error}", path.display()))?;
        schemas.push((name, schema));
    }
    Ok(schemas)
}

/// One file per module, and one that declares them all.
fn write_modules(out: &Path, group: &str, schemas: &[(String, Schema)]) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(out.join(group))?;
    let mut list = String::new();
    for (name, schema) in schemas {
        fs::write(out.join(group).join(format!("{name}.rs")), generate_module(schema))?;
        list += &format!("pub mod {name} {{\n    include!(concat!(env!(\"OUT_DIR\"), \"/{group}/{name}.rs\"));\n}}\n");
    }
    fs::write(out.join(format!("{group}.rs")), list)?;
    Ok(())
}

fn modules(schemas: &[(String, Schema)]) -> Vec<Module<'_>> {
    schemas.iter().map(|(name, schema)| Module { name, schema }).collect()
}
