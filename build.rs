//! Turns the checked-in compiled schema into Rust, so that building needs no Cap'n Proto tool.

use sha2::{Digest, Sha256};
use std::{env, error::Error, fs};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=schema");

    // In the order of their names, as `schema/regen.sh` hashes them.
    let mut files = Vec::new();
    for entry in fs::read_dir("schema")? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "capnp") {
            files.push(path);
        }
    }
    files.sort();
    let mut texts = Sha256::new();
    for file in files {
        texts.update(fs::read(file)?);
    }
    let stamp = fs::read_to_string("schema/bowline.cgr.stamp")?;
    let found: String = texts.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    if stamp.lines().next() != Some(found.as_str()) {
        return Err("schema/*.capnp changed since schema/bowline.cgr was compiled: \
                    run schema/regen.sh and commit what it writes"
            .into());
    }

    capnpc::codegen::CodeGenerationCommand::new()
        .output_directory(env::var("OUT_DIR")?)
        .default_parent_module(vec!["wire".into()])
        .run(fs::File::open("schema/bowline.cgr")?)?;
    Ok(())
}
