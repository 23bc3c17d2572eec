//! `Snapshot`: one state of a work tree.

use super::error::to_wire;
use super::object::Object;
use super::scope::Claim;
use super::{House, decode, encode};
use crate::model::grant::Held;
use crate::model::ids::{LogId, ObjectId, SnapshotId};
use crate::model::infos::ObjectKind;
use crate::model::worktree::{SnapshotInfo, SnapshotKey};
use crate::snapshot::diff;
use crate::wire::worktree_capnp::snapshot;
use crate::worktrees::{Difference, Listed, Told};
use std::rc::Rc;

struct Snapshot {
    claim: Claim,
    key: SnapshotKey,
}

pub(super) fn client(claim: Claim, key: SnapshotKey) -> snapshot::Client {
    capnp_rpc::new_client(Snapshot { claim: claim.about(key.log), key })
}

impl Object for Snapshot {
    fn claim(&self) -> &Claim {
        &self.claim
    }

    fn held(&self) -> Held {
        Held { kind: ObjectKind::Snapshot, log: self.key.log }
    }

    fn id(&self) -> &str {
        self.key.id.as_str()
    }
}

impl Snapshot {
    /// What is recorded of it, and the project it belongs to.
    async fn recorded(&self, house: &House) -> capnp::Result<(SnapshotInfo, LogId)> {
        let info = self.claim.look_up(house.readers.snapshot_info(self.key.log)).await?;
        let of = self.claim.look_up(house.readers.worktree_key(self.key.worktree)).await?;
        Ok((info, of.project))
    }

    /// What is different from another snapshot, or from the one before.
    async fn different(
        &self,
        since: Option<SnapshotId>,
        context: Option<u32>,
        after: Vec<u8>,
        limit: u32,
    ) -> capnp::Result<Listed<Told>> {
        let _turn = self.claim.turn().await;
        let house = self.claim.require_read().await?;
        let (info, project) = self.recorded(&house).await?;
        let old: Option<ObjectId> = match since {
            None => info.snapshot.base,
            Some(id) => {
                let asked = house.readers.snapshot(self.key.worktree, id);
                Some(self.claim.look_up(asked).await?.snapshot.tree)
            }
        };
        let caveats = self.claim.caveats().clone();
        let wanted = Difference { old, new: info.snapshot.tree, after, limit, context, caveats };
        let found = house.worktrees.difference(project, wanted).await;
        self.claim.house()?;
        self.claim.standing().count_read();
        found.map_err(to_wire)
    }
}

impl snapshot::Server for Snapshot {
    async fn info(
        self: Rc<Self>,
        params: snapshot::InfoParams,
        mut results: snapshot::InfoResults,
    ) -> capnp::Result<()> {
        drop(params);
        let house = self.claim.require_read().await?;
        let info = self.claim.ask(house.readers.snapshot_info(self.key.log)).await?;
        let of = self.claim.look_up(house.readers.worktree_key(self.key.worktree)).await?;
        encode::snapshot_info(&info, of.id.as_str(), results.get().init_snapshot());
        Ok(())
    }

    async fn patch(
        self: Rc<Self>,
        params: snapshot::PatchParams,
        mut results: snapshot::PatchResults,
    ) -> capnp::Result<()> {
        let asked = params.get()?;
        let since = decode::since(asked.get_since()).map_err(to_wire)?;
        let after = decode::after(asked.get_after()).map_err(to_wire)?;
        let limit = asked.get_limit();
        drop(params);
        let found = self.different(since, None, after, limit).await?;
        let mut results = results.get();
        results.set_more(found.next.is_some());
        results.set_next(found.next.as_deref().unwrap_or_default());
        encode::changes(&found.items, results.init_changes(found.items.len() as u32));
        Ok(())
    }

    async fn diff(
        self: Rc<Self>,
        params: snapshot::DiffParams,
        mut results: snapshot::DiffResults,
    ) -> capnp::Result<()> {
        let asked = params.get()?;
        let since = decode::since(asked.get_since()).map_err(to_wire)?;
        let after = decode::after(asked.get_after()).map_err(to_wire)?;
        let (limit, context) = (asked.get_limit(), asked.get_context());
        drop(params);
        let found = self.different(since, Some(context), after, limit).await?;
        let mut text = Vec::new();
        for told in found.items.iter().filter(|told| told.change.is_about_content()) {
            text.extend(diff::unified(&told.change, &told.lines));
        }
        let mut results = results.get();
        results.set_more(found.next.is_some());
        results.set_next(found.next.as_deref().unwrap_or_default());
        results.set_text(&text);
        Ok(())
    }

    async fn diff_full(
        self: Rc<Self>,
        params: snapshot::DiffFullParams,
        mut results: snapshot::DiffFullResults,
    ) -> capnp::Result<()> {
        let asked = params.get()?;
        let since = decode::since(asked.get_since()).map_err(to_wire)?;
        let after = decode::after(asked.get_after()).map_err(to_wire)?;
        let (limit, context) = (asked.get_limit(), asked.get_context());
        drop(params);
        let found = self.different(since, Some(context), after, limit).await?;
        let mut results = results.get();
        results.set_more(found.next.is_some());
        results.set_next(found.next.as_deref().unwrap_or_default());
        encode::changes(&found.items, results.init_changes(found.items.len() as u32));
        Ok(())
    }

    async fn files(
        self: Rc<Self>,
        params: snapshot::FilesParams,
        mut results: snapshot::FilesResults,
    ) -> capnp::Result<()> {
        let (after, limit) = decode::files(params.get()).map_err(to_wire)?;
        drop(params);
        let _turn = self.claim.turn().await;
        let house = self.claim.require_read().await?;
        let (info, project) = self.recorded(&house).await?;
        let (tree, caveats) = (info.snapshot.tree, self.claim.caveats().clone());
        let found = house.worktrees.files(project, tree, after, limit, caveats).await;
        self.claim.house()?;
        self.claim.standing().count_read();
        let found = found.map_err(to_wire)?;
        let mut results = results.get();
        results.set_more(found.next.is_some());
        results.set_next(found.next.as_deref().unwrap_or_default());
        let mut list = results.init_files(found.items.len() as u32);
        for (at, entry) in (0..).zip(&found.items) {
            encode::file_entry(entry, list.reborrow().get(at));
        }
        Ok(())
    }

    async fn read(
        self: Rc<Self>,
        params: snapshot::ReadParams,
        mut results: snapshot::ReadResults,
    ) -> capnp::Result<()> {
        let asked = params.get()?;
        let path = decode::path(asked.get_path()).map_err(to_wire)?;
        let (offset, bytes_max) = (asked.get_offset(), asked.get_bytes_max());
        drop(params);
        let _turn = self.claim.turn().await;
        let house = self.claim.require_read().await?;
        if !self.claim.caveats().allows_path(&path) {
            return Err(to_wire(crate::worktrees::Trouble::FileNotFound));
        }
        let (info, project) = self.recorded(&house).await?;
        let asked =
            house.worktrees.file_piece(project, info.snapshot.tree, path, offset, bytes_max);
        let found = asked.await;
        self.claim.house()?;
        self.claim.standing().count_read();
        let (data, bytes, held) = found.map_err(to_wire)?;
        let mut results = results.get();
        results.set_data(&data);
        results.set_bytes(bytes);
        results.set_mode(held.mode.number());
        Ok(())
    }
}
