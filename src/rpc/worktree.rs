//! `Worktree`: the files of one directory.

use super::error::to_wire;
use super::object::Object;
use super::scope::Claim;
use super::watcher::Watched;
use super::{decode, encode, snapshot};
use crate::limits::PATHS_PAGE_MAX;
use crate::model::grant::Held;
use crate::model::infos::ObjectKind;
use crate::model::rights::Right;
use crate::model::worktree::{CallName, Occasion, WorktreeKey};
use crate::snapshot::ground::Wish;
use crate::wire::worktree_capnp::{watcher, worktree};
use crate::worktrees::{Ask, Report, Restore, Track, Trouble};
use std::rc::Rc;

struct Worktree {
    claim: Claim,
    key: WorktreeKey,
}

pub(super) fn client(claim: Claim, key: WorktreeKey) -> worktree::Client {
    capnp_rpc::new_client(Worktree { claim: claim.about(key.log), key })
}

impl Object for Worktree {
    fn claim(&self) -> &Claim {
        &self.claim
    }

    fn held(&self) -> Held {
        Held { kind: ObjectKind::Worktree, log: self.key.log }
    }

    fn id(&self) -> &str {
        self.key.id.as_str()
    }
}

/// Whoever looks on, if anybody does.
pub(super) fn watching(
    has: bool,
    watcher: capnp::Result<watcher::Client>,
) -> Option<watcher::Client> {
    watcher.ok().filter(|_| has)
}

/// A call on files, under the authority it comes with.
pub(super) fn ask(claim: &Claim, name: CallName, watched: &Watched) -> Ask {
    Ask { grant: Some(claim.grant()), name, progress: watched.progress() }
}

impl Worktree {
    /// Whether it may be used for these paths.
    fn allowed<'a>(&self, paths: impl IntoIterator<Item = &'a Vec<u8>>) -> capnp::Result<()> {
        let caveats = self.claim.caveats();
        match paths.into_iter().all(|path| caveats.allows_path(path)) {
            true => Ok(()),
            false => Err(to_wire(Trouble::FileNotFound)),
        }
    }

    /// Waits for files to be moved.
    async fn moved(
        &self,
        watched: Watched,
        watcher: Option<watcher::Client>,
        work: impl Future<Output = Result<Report, Trouble>>,
    ) -> capnp::Result<Report> {
        let report = watched.wait(watcher, &self.claim, work).await;
        self.claim.house()?;
        report.map_err(to_wire)
    }
}

impl worktree::Server for Worktree {
    async fn info(
        self: Rc<Self>,
        params: worktree::InfoParams,
        mut results: worktree::InfoResults,
    ) -> capnp::Result<()> {
        drop(params);
        let house = self.claim.require_read().await?;
        let info = self.claim.ask(house.readers.worktree_info(self.key.log)).await?;
        let (project, _) = self.claim.look_up(house.readers.project_key(self.key.project)).await?;
        let stored = house.worktrees.stored_bytes(self.key.project).await.map_err(to_wire)?;
        encode::worktree_info(&info, project.id.as_str(), stored, results.get().init_worktree());
        Ok(())
    }

    async fn track(
        self: Rc<Self>,
        params: worktree::TrackParams,
        mut results: worktree::TrackResults,
    ) -> capnp::Result<()> {
        let asked = params.get()?;
        let name = decode::call_name(asked.get_name()).map_err(to_wire)?;
        let wish = asked.get_wish()?;
        let wish = Wish { large: wish.get_large(), full: wish.get_full() };
        let watcher = watching(asked.has_watcher(), asked.get_watcher());
        drop(params);
        let house = self.claim.require(Right::Snapshot)?;
        let place = self.claim.derive().map_err(to_wire)?;
        let watched = Watched::new();
        let ask = ask(&self.claim, name, &watched);
        let track = Track { ask, occasion: Occasion::Asked, by: None, wish };
        let work = house.worktrees.at(&self.key, move |desk| desk.track(&track));
        let taken = watched.wait(watcher, &self.claim, work).await;
        self.claim.house()?;
        let taken = taken.map_err(to_wire)?;
        let mut results = results.get();
        let worktree = self.key.id.as_str();
        encode::snapshot_info(&taken, worktree, results.reborrow().init_info());
        results.set_snapshot(snapshot::client(place, taken.snapshot.key));
        Ok(())
    }

    async fn snapshots(
        self: Rc<Self>,
        params: worktree::SnapshotsParams,
        mut results: worktree::SnapshotsResults,
    ) -> capnp::Result<()> {
        let page = decode::page(params.get().and_then(|p| p.get_page())).map_err(to_wire)?;
        drop(params);
        let _turn = self.claim.turn().await;
        let house = self.claim.require_read().await?;
        let found = self.claim.ask(house.readers.snapshots(self.key.log, page)).await?;
        let mut results = results.get();
        encode::page_end(&found, results.reborrow().init_end());
        let mut list = results.init_snapshots(found.items.len() as u32);
        for (at, info) in (0..).zip(&found.items) {
            encode::snapshot_info(info, self.key.id.as_str(), list.reborrow().get(at));
        }
        Ok(())
    }

    async fn snapshot(
        self: Rc<Self>,
        params: worktree::SnapshotParams,
        mut results: worktree::SnapshotResults,
    ) -> capnp::Result<()> {
        let id = decode::snapshot_id(params.get().and_then(|p| p.get_id())).map_err(to_wire)?;
        drop(params);
        self.claim.order().settled().await;
        let house = self.claim.require(Right::Snapshot)?;
        let found = self.claim.ask(house.readers.snapshot(self.key.log, id)).await?;
        let place = self.claim.derive().map_err(to_wire)?;
        results.get().set_snapshot(snapshot::client(place, found.snapshot.key));
        Ok(())
    }

    async fn skipped(
        self: Rc<Self>,
        params: worktree::SkippedParams,
        mut results: worktree::SkippedResults,
    ) -> capnp::Result<()> {
        let asked = params.get()?;
        let after = decode::after(asked.get_after()).map_err(to_wire)?;
        let limit = match asked.get_limit() as usize {
            0 => PATHS_PAGE_MAX,
            limit => limit.min(PATHS_PAGE_MAX),
        };
        drop(params);
        let house = self.claim.require(Right::Snapshot)?;
        let work = move |desk: &mut crate::worktrees::Desk| Ok(desk.skipped(&after, limit + 1));
        let found = house.worktrees.at(&self.key, work).await;
        self.claim.house()?;
        let mut found = found.map_err(to_wire)?;
        let more = found.len() > limit;
        found.truncate(limit);
        let mut results = results.get();
        results.set_more(more);
        if let Some((last, ..)) = found.last() {
            results.set_next(last);
        }
        found.retain(|(path, ..)| self.claim.caveats().allows_path(path));
        let mut list = results.init_files(found.len() as u32);
        for (at, skipped) in (0..).zip(&found) {
            encode::skipped(skipped, list.reborrow().get(at));
        }
        Ok(())
    }

    async fn restore(
        self: Rc<Self>,
        params: worktree::RestoreParams,
        mut results: worktree::RestoreResults,
    ) -> capnp::Result<()> {
        let (name, snapshot, paths, keep_new) = decode::restore(params.get()).map_err(to_wire)?;
        let asked = params.get()?;
        let watcher = watching(asked.has_watcher(), asked.get_watcher());
        drop(params);
        let house = self.claim.require(Right::Restore)?;
        let watched = Watched::new();
        let (ask, caveats) = (ask(&self.claim, name, &watched), self.claim.caveats().clone());
        let restore = Restore { ask, snapshot, paths, keep_new, caveats };
        let work = house.worktrees.at(&self.key, move |desk| desk.restore(&restore));
        let report = self.moved(watched, watcher, work).await?;
        encode::report(&report, self.claim.caveats(), results.get().init_report());
        Ok(())
    }

    async fn revert(
        self: Rc<Self>,
        params: worktree::RevertParams,
        mut results: worktree::RevertResults,
    ) -> capnp::Result<()> {
        let (name, patches, force) = decode::revert(params.get()).map_err(to_wire)?;
        let asked = params.get()?;
        let watcher = watching(asked.has_watcher(), asked.get_watcher());
        drop(params);
        let house = self.claim.require(Right::Restore)?;
        let watched = Watched::new();
        let (ask, caveats) = (ask(&self.claim, name, &watched), self.claim.caveats().clone());
        let work = house
            .worktrees
            .at(&self.key, move |desk| desk.revert(&ask, &patches, &force, &caveats));
        let report = self.moved(watched, watcher, work).await?;
        encode::report(&report, self.claim.caveats(), results.get().init_report());
        Ok(())
    }

    async fn unrevert(
        self: Rc<Self>,
        params: worktree::UnrevertParams,
        mut results: worktree::UnrevertResults,
    ) -> capnp::Result<()> {
        let asked = params.get()?;
        let name = decode::call_name(asked.get_name()).map_err(to_wire)?;
        let of = decode::call_name(asked.get_of()).map_err(to_wire)?;
        let watcher = watching(asked.has_watcher(), asked.get_watcher());
        drop(params);
        let house = self.claim.require(Right::Restore)?;
        let watched = Watched::new();
        let (ask, caveats) = (ask(&self.claim, name, &watched), self.claim.caveats().clone());
        let work = house.worktrees.at(&self.key, move |desk| desk.unrevert(&ask, of, &caveats));
        let report = self.moved(watched, watcher, work).await?;
        encode::report(&report, self.claim.caveats(), results.get().init_report());
        Ok(())
    }

    async fn remove_snapshot(
        self: Rc<Self>,
        params: worktree::RemoveSnapshotParams,
        mut results: worktree::RemoveSnapshotResults,
    ) -> capnp::Result<()> {
        let id = decode::snapshot_id(params.get().and_then(|p| p.get_id())).map_err(to_wire)?;
        drop(params);
        let house = self.claim.require(Right::Snapshot)?;
        let grant = self.claim.grant();
        let removed = house.worktrees.remove_snapshot(grant, self.key.log, id).await;
        results.get().set_existed(removed.map_err(to_wire)?);
        Ok(())
    }

    async fn lease(
        self: Rc<Self>,
        params: worktree::LeaseParams,
        mut results: worktree::LeaseResults,
    ) -> capnp::Result<()> {
        let asked = params.get()?;
        let path = decode::path(asked.get_path()).map_err(to_wire)?;
        let house = self.claim.require(Right::Snapshot)?;
        self.allowed([&path])?;
        let (holder, lease_ms) = (asked.get_holder()?.to_str()?, asked.get_lease_ms());
        let until_ms = house.worktrees.lease(self.key.log, path, holder, lease_ms);
        results.get().set_until_ms(until_ms.map_err(to_wire)?);
        Ok(())
    }

    async fn release(
        self: Rc<Self>,
        params: worktree::ReleaseParams,
        mut results: worktree::ReleaseResults,
    ) -> capnp::Result<()> {
        let asked = params.get()?;
        let path = decode::path(asked.get_path()).map_err(to_wire)?;
        let house = self.claim.require(Right::Snapshot)?;
        self.allowed([&path])?;
        let holder = asked.get_holder()?.to_str()?;
        results.get().set_existed(house.worktrees.release(self.key.log, &path, holder));
        Ok(())
    }

    async fn leases(
        self: Rc<Self>,
        params: worktree::LeasesParams,
        mut results: worktree::LeasesResults,
    ) -> capnp::Result<()> {
        drop(params);
        let house = self.claim.require_read().await?;
        let mut found = house.worktrees.leases(self.key.log);
        found.retain(|(path, ..)| self.claim.caveats().allows_path(path));
        let mut list = results.get().init_leases(found.len() as u32);
        for (at, (path, holder, until_ms)) in (0..).zip(&found) {
            let mut to = list.reborrow().get(at);
            to.set_path(path);
            to.set_holder(holder.as_str());
            to.set_until_ms(*until_ms);
        }
        Ok(())
    }

    async fn stamp(
        self: Rc<Self>,
        params: worktree::StampParams,
        mut results: worktree::StampResults,
    ) -> capnp::Result<()> {
        let paths = decode::stamp(params.get()).map_err(to_wire)?;
        drop(params);
        let house = self.claim.require(Right::Snapshot)?;
        self.allowed(&paths)?;
        let work = move |desk: &mut crate::worktrees::Desk| {
            let stamps = desk.stamp(&paths)?;
            Ok(paths.into_iter().zip(stamps).collect::<Vec<_>>())
        };
        let stamps = house.worktrees.at(&self.key, work).await;
        self.claim.house()?;
        let stamps = stamps.map_err(to_wire)?;
        let mut list = results.get().init_stamps(stamps.len() as u32);
        for (at, (path, held)) in (0..).zip(&stamps) {
            encode::stamp(path, *held, list.reborrow().get(at));
        }
        Ok(())
    }

    async fn assert_unchanged(
        self: Rc<Self>,
        params: worktree::AssertUnchangedParams,
        results: worktree::AssertUnchangedResults,
    ) -> capnp::Result<()> {
        let stamps = decode::stamps(params.get()).map_err(to_wire)?;
        drop((params, results));
        let house = self.claim.require(Right::Snapshot)?;
        self.allowed(stamps.iter().map(|(path, _)| path))?;
        let work = move |desk: &mut crate::worktrees::Desk| desk.assert_unchanged(&stamps);
        let unchanged = house.worktrees.at(&self.key, work).await;
        self.claim.house()?;
        unchanged.map_err(to_wire)
    }
}
