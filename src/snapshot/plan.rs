//! What is to be put back, written down before the first step.

use super::diff::Change;
use super::tree::Held;
use super::vault::{self, write_whole};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

/// One path that is to change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Where.
    pub path: Vec<u8>,
    /// What is expected to stand there.
    pub from: Option<Held>,
    /// What is to stand there.
    pub to: Option<Held>,
}

impl From<Change> for Step {
    fn from(change: Change) -> Self {
        Step { path: change.path, from: change.old, to: change.new }
    }
}

impl Step {
    fn reversed(self) -> Self {
        Self { from: self.to, to: self.from, ..self }
    }
}

/// Why a path was left as it is. Numbers are stored; a retired one stays taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Why {
    /// Something else stands there than what was expected: somebody has changed it.
    Changed,
    /// What stands there cannot be read, so it cannot be kept safe either.
    Unreadable,
    /// A directory holds things no snapshot does.
    NotEmpty,
    /// The directory it is to stand in is not there, or leads elsewhere.
    NoDirectory,
    /// The system does not let us.
    Forbidden,
    /// Another session has changed it, too.
    Shared,
    /// Something stood there that was not taken down, so nobody knows what it was like.
    NotTaken,
}

impl Why {
    /// The reason behind a stored number.
    pub fn from_number(number: u8) -> Option<Self> {
        let all = [
            Why::Changed,
            Why::Unreadable,
            Why::NotEmpty,
            Why::NoDirectory,
            Why::Forbidden,
            Why::Shared,
            Why::NotTaken,
        ];
        all.into_iter().find(|why| *why as u8 == number)
    }
}

/// A path that was left as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conflict {
    /// Which.
    pub path: Vec<u8>,
    /// Why.
    pub why: Why,
}

/// A plan that was written down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Whose it is: the name of the call it was made for.
    pub name: [u8; 16],
    /// When it was made. Plans are finished in the order they were made.
    pub at_ns: i64,
    /// What is to be done.
    pub steps: Vec<Step>,
}

const MAGIC: &[u8; 8] = b"bowlpl1\n";
const PLAN: &str = "plan-";

impl Plan {
    fn file(&self, home: &Path) -> PathBuf {
        let name = data_encoding::HEXLOWER.encode(&self.name);
        home.join(format!("{PLAN}{:020}-{name}", self.at_ns))
    }

    /// Writes it down: when this returns, it is on disk.
    pub fn write(&self, home: &Path) -> Result<(), vault::Error> {
        let body = postcard::to_stdvec(self)
            .map_err(|error| vault::Error::Damaged(format!("a plan: {error}")))?;
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(blake3::hash(&body).as_bytes());
        bytes.extend_from_slice(&body);
        Ok(write_whole(&self.file(home), &bytes)?)
    }

    /// It is over.
    pub fn forget(&self, home: &Path) -> Result<(), vault::Error> {
        match std::fs::remove_file(self.file(home)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Those a crash has left behind, in their order.
    pub fn left_behind(home: &Path) -> Result<Vec<Plan>, vault::Error> {
        let mut plans = Vec::new();
        for entry in std::fs::read_dir(home)? {
            let entry = entry?;
            if !entry.file_name().as_encoded_bytes().starts_with(PLAN.as_bytes()) {
                continue;
            }
            let bytes = std::fs::read(entry.path())?;
            let parts = bytes.strip_prefix(MAGIC.as_slice()).and_then(|it| it.split_at_checked(32));
            match parts.filter(|(hash, body)| blake3::hash(body).as_bytes() == hash) {
                Some((_, body)) => plans.push(
                    postcard::from_bytes(body)
                        .map_err(|error| vault::Error::Damaged(format!("a plan: {error}")))?,
                ),
                None => return Err(vault::Error::Damaged(format!("{:?}", entry.path()))),
            }
        }
        plans.sort_by_key(|plan: &Plan| plan.at_ns);
        Ok(plans)
    }

    /// The way back.
    pub fn reversed(self) -> Self {
        Self { steps: self.steps.into_iter().map(Step::reversed).collect(), ..self }
    }
}
