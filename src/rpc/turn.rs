//! `Turn`: a run of an agent, while it runs.

use super::error::to_wire;
use super::scope::Claim;
use super::watcher::Watched;
use super::worktree::{ask, watching};
use super::{decode, encode, made, part_writer, snapshot, submit};
use crate::engine::StreamKey;
use crate::model::ids::{Cursor, LogId, TurnId};
use crate::model::ledger::Made;
use crate::model::rights::Right;
use crate::model::worktree::{Actor, Occasion};
use crate::snapshot::ground::Wish;
use crate::wire::session_capnp::turn;
use crate::worktrees::{Track, Trouble};
use std::rc::Rc;

struct Turn {
    claim: Claim,
    session: LogId,
    id: TurnId,
    cursor: Cursor,
}

pub(super) fn client(claim: Claim, session: LogId, id: TurnId, cursor: Cursor) -> turn::Client {
    capnp_rpc::new_client(Turn { claim: claim.about(session), session, id, cursor })
}

impl turn::Server for Turn {
    async fn info(
        self: Rc<Self>,
        params: turn::InfoParams,
        mut results: turn::InfoResults,
    ) -> capnp::Result<()> {
        drop(params);
        let house = self.claim.require_read().await?;
        let asked = house.readers.turn_at(self.session, self.cursor);
        let found = self.claim.ask(asked).await?;
        encode::turn_info(&found, results.get().init_turn());
        Ok(())
    }

    fn add_message(
        self: Rc<Self>,
        params: turn::AddMessageParams,
        mut results: turn::AddMessageResults,
    ) -> impl Future<Output = capnp::Result<()>> + 'static {
        let permit = self.claim.permit();
        let sent = decode::add_message(params.get(), &self.id, &permit).map_err(to_wire);
        let submitted = sent.and_then(|(header, op, id)| {
            Ok((submit(&self.claim, Right::Turn, self.session, header, vec![op])?, id))
        });
        drop(params);
        async move {
            let (submitted, id) = submitted?;
            made(submitted.answer().await)?;
            results.get().set_id(id.as_str());
            Ok(())
        }
    }

    fn put_part(
        self: Rc<Self>,
        params: turn::PutPartParams,
        mut results: turn::PutPartResults,
    ) -> impl Future<Output = capnp::Result<()>> + 'static {
        let permit = self.claim.permit();
        let sent = decode::put_part_call(params.get(), &self.id, &permit).map_err(to_wire);
        let submitted = sent.and_then(|(header, op, id)| {
            // The writer's place first: one who holds too many objects is told before anything is done.
            let place = self.claim.derive().map_err(to_wire)?;
            let submitted = submit(&self.claim, Right::Turn, self.session, header, vec![op])?;
            Ok((submitted, id, place))
        });
        drop(params);
        async move {
            let (submitted, id, place) = submitted?;
            let (Made::Part { message, position }, _) = made(submitted.answer().await)? else {
                return Err(super::impossible());
            };
            let key = StreamKey { session: self.session, message, position };
            let mut results = results.get();
            results.set_id(id.as_str());
            results.set_writer(part_writer::client(place, key));
            Ok(())
        }
    }

    async fn part_writer(
        self: Rc<Self>,
        params: turn::PartWriterParams,
        mut results: turn::PartWriterResults,
    ) -> capnp::Result<()> {
        let (message, part) = decode::part_writer(params.get()).map_err(to_wire)?;
        drop(params);
        self.claim.order().settled().await;
        let house = self.claim.require(Right::Turn)?;
        let asked = house.readers.open_part(self.session, self.cursor, message, part);
        let (key, offset, tool) = self.claim.look_up(asked).await?;
        if let Some(forbidden) = tool.and_then(|tool| self.claim.caveats().forbids_tool(&tool)) {
            return Err(to_wire(forbidden));
        }
        let claim = self.claim.derive().map_err(to_wire)?;
        // Whoever asks is there.
        let heard = house.engine.turn_heartbeat(self.claim.grant(), self.session, self.cursor);
        heard.answer().await.map_err(to_wire)?;
        let mut results = results.get();
        results.set_offset(offset);
        results.set_writer(part_writer::client(claim, key));
        Ok(())
    }

    fn heartbeat(
        self: Rc<Self>,
        params: turn::HeartbeatParams,
        mut results: turn::HeartbeatResults,
    ) -> impl Future<Output = capnp::Result<()>> + 'static {
        drop(params);
        let submitted = self.claim.require(Right::Turn).map(|house| {
            house.engine.turn_heartbeat(self.claim.grant(), self.session, self.cursor)
        });
        async move {
            results.get().set_until_ms(submitted?.answer().await.map_err(to_wire)?);
            Ok(())
        }
    }

    fn finish(
        self: Rc<Self>,
        params: turn::FinishParams,
        results: turn::FinishResults,
    ) -> impl Future<Output = capnp::Result<()>> + 'static {
        let permit = self.claim.permit();
        let submitted = decode::finish(params.get(), &self.id, &permit).map_err(to_wire).and_then(
            |(header, op)| submit(&self.claim, Right::Turn, self.session, header, vec![op]),
        );
        drop((params, results));
        async move {
            made(submitted?.answer().await)?;
            // What it did to files is taken down next; nobody waits for that here.
            let house = self.claim.house()?;
            let (worktrees, session) = (house.worktrees.clone(), self.session);
            tokio::spawn(async move { worktrees.close_turns_of(session).await });
            Ok(())
        }
    }

    async fn snapshot(
        self: Rc<Self>,
        params: turn::SnapshotParams,
        mut results: turn::SnapshotResults,
    ) -> capnp::Result<()> {
        let asked = params.get()?;
        let name = decode::call_name(asked.get_name()).map_err(to_wire)?;
        let watcher = watching(asked.has_watcher(), asked.get_watcher());
        drop(params);
        self.claim.order().settled().await;
        self.claim.require(Right::Turn)?;
        let house = self.claim.require(Right::Snapshot)?;
        let place = self.claim.derive().map_err(to_wire)?;
        let watched = Watched::new();
        let ask = ask(&self.claim, name, &watched);
        let by = Some(Actor { session: self.session, turn: self.cursor });
        let (occasion, wish) = (Occasion::Step, Wish::default());
        let track = Track { ask, occasion, by, wish };
        let grant = self.claim.grant();
        let work = async {
            let key = house.worktrees.of_session(grant, self.session).await?;
            // A repeat finds what was, also when the turn is over.
            if let Some(known) = house.readers.snapshot_named(key.log, name).await? {
                return Ok((key, known));
            }
            // It takes its time, and is a sign of life.
            house.engine.turn_heartbeat(grant, self.session, self.cursor).answer().await?;
            let taken = house.worktrees.at(&key, move |desk| desk.track(&track)).await?;
            Ok::<_, Trouble>((key, taken))
        };
        let taken = watched.wait(watcher, &self.claim, work).await;
        self.claim.house()?;
        let (key, taken) = taken.map_err(to_wire)?;
        let mut results = results.get();
        encode::snapshot_info(&taken, key.id.as_str(), results.reborrow().init_info());
        results.set_snapshot(snapshot::client(place, taken.snapshot.key));
        Ok(())
    }
}
