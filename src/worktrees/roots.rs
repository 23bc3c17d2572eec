//! Where work trees may lie.

use super::{Setting, Trouble};
use crate::snapshot::beneath::Root;
use std::path::{Path, PathBuf};

/// The directories the operator allows, and the server's own.
#[derive(Debug)]
pub(super) struct Roots {
    allowed: Vec<PathBuf>,
    data: PathBuf,
    sandboxes: PathBuf,
}

/// As the file system has it, or as it was said where there is nothing.
fn resolved(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

impl Roots {
    pub(super) fn new(setting: &Setting) -> Self {
        let data = resolved(&setting.data);
        Self {
            allowed: setting.roots.iter().map(|root| resolved(root)).collect(),
            sandboxes: data.join("sandboxes"),
            data,
        }
    }

    /// Where a directory really lies, if a work tree may be there, and the root it lies beneath.
    pub(super) fn check(
        &self,
        directory: &Path,
        sandbox: bool,
    ) -> Result<(PathBuf, PathBuf), Trouble> {
        let real = match directory.canonicalize() {
            // Whether something stands there is nobody's business who may not go there.
            Err(_) if !self.is_said_to_be_within(directory, sandbox) => directory.to_owned(),
            found => found
                .map_err(|error| Trouble::Unreadable { directory: directory.to_owned(), error })?,
        };
        let root = match sandbox {
            true => Some(&self.sandboxes).filter(|root| real.starts_with(root)),
            false if real.starts_with(&self.data) => None,
            false => self.allowed.iter().find(|root| real.starts_with(root)),
        };
        match root {
            Some(root) => Ok((real.clone(), root.clone())),
            None => Err(Trouble::NotAllowed { directory: directory.to_owned() }),
        }
    }

    /// Whether it is, by its name alone.
    fn is_said_to_be_within(&self, directory: &Path, sandbox: bool) -> bool {
        let within = |root: &PathBuf| directory.starts_with(root);
        if sandbox { within(&self.sandboxes) } else { self.allowed.iter().any(within) }
    }

    /// Opens it, without following a link that was put in the way since.
    pub(super) fn open(&self, directory: &Path, sandbox: bool) -> Result<Root, Trouble> {
        let (real, root) = self.check(directory, sandbox)?;
        let opened = Root::open(&root).and_then(|root| root.beneath(&real));
        opened.map_err(|error| Trouble::Unreadable {
            directory: directory.to_owned(),
            error: error.into(),
        })
    }
}
