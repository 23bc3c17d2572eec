//! Sandboxes: work trees of their own for agents, as git makes them.

use super::desk::Ask;
use super::tracking::Track;
use super::{Inner, Trouble, Worktrees};
use crate::engine::Refusal;
use crate::model::ids::{GrantKey, LogId};
use crate::model::worktree::{CallName, Occasion, WorktreeKey};
use crate::snapshot::ground::Wish;
use crate::snapshot::sandbox::{Sandbox, Sandboxes, State};
use std::path::Path;
use std::sync::Arc;

pub use crate::snapshot::sandbox::Kept;

impl Inner {
    /// The sandboxes of a project's repository.
    fn sandboxes(&self, project: LogId, directory: &str) -> Result<Sandboxes, Trouble> {
        let (real, _) = self.roots.check(Path::new(directory), false)?;
        let home = self.setting.data.join("sandboxes").join(project.0.to_string());
        std::fs::create_dir_all(&home)?;
        let all = Sandboxes::new(&real, &home)?;
        // A file named `.git` may lead anywhere, and what is written goes there.
        self.roots.check(all.repository(), false)?;
        Ok(all)
    }
}

impl Worktrees {
    /// Does something with the sandboxes of a project.
    async fn with_sandboxes<T: Send + 'static>(
        &self,
        project: LogId,
        job: impl FnOnce(&Sandboxes) -> Result<T, Trouble> + Send + 'static,
    ) -> Result<T, Trouble> {
        let (_, directory) = self.inner.readers.project_key(project).await?;
        let inner = self.inner.clone();
        let done = tokio::task::spawn_blocking(move || job(&inner.sandboxes(project, &directory)?));
        done.await.unwrap_or(Err(Trouble::Impossible))
    }

    /// Makes one.
    pub async fn create_sandbox(
        &self,
        grant: GrantKey,
        project: LogId,
        call: CallName,
        name: String,
        from: Option<String>,
    ) -> Result<(Sandbox, State, WorktreeKey), Trouble> {
        let op = data_encoding::HEXLOWER.encode(&call.0);
        let (made, state) = self
            .with_sandboxes(project, move |all| {
                let made = all.create(&name, from.as_deref(), &op)?;
                let state = all.state(&made.name)?;
                Ok((made, state))
            })
            .await?;
        let (key, _) = self.inner.readers.project_key(project).await?;
        let directory = made.directory.display().to_string();
        let tree = self.known(grant, key, directory, Some(made.name.clone())).await?;
        Ok((made, state, tree))
    }

    /// All of a project.
    pub async fn sandboxes(&self, project: LogId) -> Result<Vec<(Sandbox, State)>, Trouble> {
        self.with_sandboxes(project, |all| {
            let mut found = Vec::new();
            for sandbox in all.list()? {
                let state = all.state(&sandbox.name)?;
                found.push((sandbox, state));
            }
            Ok(found)
        })
        .await
    }

    /// Puts one back to a commit.
    pub async fn reset_sandbox(
        &self,
        grant: GrantKey,
        project: LogId,
        name: String,
        to: Option<String>,
        discard: bool,
    ) -> Result<Vec<Kept>, Trouble> {
        let tree = self.sandbox_tree(project, &name).await?;
        let job = move |all: &Sandboxes| Ok(all.reset(&name, to.as_deref(), discard)?);
        self.change_sandbox(grant, project, tree, discard, job).await
    }

    /// Takes one away; answers whether there was one.
    pub async fn remove_sandbox(
        &self,
        grant: GrantKey,
        project: LogId,
        name: String,
        discard: bool,
    ) -> Result<(bool, Vec<Kept>), Trouble> {
        let tree = self.sandbox_tree(project, &name).await?;
        let job = move |all: &Sandboxes| {
            let removed = all.remove(&name, discard)?;
            Ok((removed.existed, removed.kept))
        };
        self.change_sandbox(grant, project, tree, discard, job).await
    }

    async fn sandbox_tree(
        &self,
        project: LogId,
        name: &str,
    ) -> Result<Option<WorktreeKey>, Trouble> {
        let known = self.inner.readers.sandbox(project, name.to_owned()).await?;
        Ok(known.filter(|info| Path::new(&info.directory).is_dir()).map(|info| info.key))
    }

    /// Nothing else happens to its files meanwhile, and what is to be discarded is taken down first.
    async fn change_sandbox<T: Send + 'static>(
        &self,
        grant: GrantKey,
        project: LogId,
        tree: Option<WorktreeKey>,
        discard: bool,
        job: impl FnOnce(&Sandboxes) -> Result<T, Trouble> + Send + 'static,
    ) -> Result<T, Trouble> {
        let Some(tree) = tree else { return self.with_sandboxes(project, job).await };
        let (_, directory) = self.inner.readers.project_key(project).await?;
        let mut name = [0; 16];
        blake3::Hasher::new_derive_key("bowline discarded sandbox v1")
            .update(&tree.log.0.to_le_bytes())
            .update(&crate::clock::file_time_ns().to_le_bytes())
            .finalize_xof()
            .fill(&mut name);
        self.at(&tree, move |desk| {
            // It may have been taken back while this waited for its turn.
            let standing = desk.inner.wait(desk.inner.readers.in_force(grant))?;
            standing.map_err(Refusal::Fallen)?;
            if discard {
                let ask = Ask { grant: None, name: CallName(name), progress: Arc::default() };
                let (occasion, wish) = (Occasion::Asked, Wish { large: true, full: true });
                desk.track(&Track { ask, occasion, by: None, wish })?;
            }
            // The directory may be gone after this: it is taken into use again if it comes back.
            desk.stale = true;
            job(&desk.inner.sandboxes(project, &directory)?)
        })
        .await
    }
}
