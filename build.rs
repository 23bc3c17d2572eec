//! Turns the checked-in compiled schema into Rust, so that building needs no Cap'n Proto tool.

use sha2::{Digest, Sha256};
use std::{env, error::Error, fs, path::Path};

/// The files behind `schema/bowline.cgr`, in the order `schema/regen.sh` hashes them.
const SCHEMA_FILES: [&str; 3] = ["bowline.capnp", "root.capnp", "session.capnp"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=schema");

    let mut texts = Sha256::new();
    for file in SCHEMA_FILES {
        texts.update(fs::read(Path::new("schema").join(file))?);
    }
    let stamp = fs::read_to_string("schema/bowline.cgr.stamp")?;
    let found: String = texts.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    if stamp.trim() != found {
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
