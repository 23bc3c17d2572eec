//! Feeds: history in pages, then what happens as it happens, to one sink each.
//!
//! A feed is a task of its own. It sends a few calls ahead and waits for the first to return, and for the
//! connection to have room, so a slow sink costs a page or two and holds up nobody. It ends with its
//! `Subscription`, with its connection, with the first call that fails, or with a reason that is told.

use super::error::to_wire;
use super::scope::{Claim, FeedTurn, Feeding};
use super::{House, encode};
use crate::clock::Clock;
use crate::engine::{
    Acknowledgement, Fallen, Refusal, StreamKey, Submitted, Subscribing, Taken, TakingIn, Watched,
};
use crate::limits::{FEED_CALLS_IN_FLIGHT_MAX, FEED_HEARTBEAT_MS_MAX, FEED_RETRY_MS};
use crate::model::code::{Code, Coded};
use crate::model::content::TextKind;
use crate::model::feed::{self, FeedPage, LoggedOp, Stretch, TakeIn, Wish, lost_something};
use crate::model::ids::{GrantKey, ShareId};
use crate::model::rights::Right;
use crate::model::share::{ShareEnded, View};
use crate::ops::{Kind, Said};
use crate::queries::QueryError;
use crate::wire::feed_capnp::{sink, subscription};
use capnp::capability::Promise;
use futures::future::{LocalBoxFuture, OptionFuture};
use futures::stream::{FuturesOrdered, StreamExt};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

/// Why the server ends a feed.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error(transparent)]
    Query(#[from] QueryError),
    #[error("another client has taken this subscription up, or it was forgotten")]
    Taken,
    #[error("something in the history cannot be told; the server's log says more")]
    Unreadable,
    #[error("a call on the sink failed: {0}")]
    Sink(String),
    #[error(transparent)]
    Fallen(#[from] Fallen),
    #[error(transparent)]
    Share(#[from] ShareEnded),
    /// There is nobody to be told.
    #[error("the connection is over")]
    Over,
}

impl Ended {
    fn code(&self) -> Option<Code> {
        match self {
            Ended::Query(error) => Some(error.code()),
            Ended::Taken => Some(Code::SubscriptionTaken),
            Ended::Unreadable => Some(Code::Internal),
            Ended::Sink(_) => Some(Code::SinkFailed),
            Ended::Fallen(fallen) => Some(fallen.code()),
            Ended::Share(ended) => Some(ended.code()),
            Ended::Over => None,
        }
    }
}

/// How far a feed is.
#[derive(Default)]
struct Progress {
    place: Cell<u64>,
    acknowledged: Cell<u64>,
    caught_up: Cell<bool>,
    ended: RefCell<Option<(Code, String)>>,
}

struct Subscription {
    claim: Rc<Claim>,
    progress: Rc<Progress>,
}

/// Begins a feed. What is checked here is heard by the caller, what comes later by the sink.
pub(super) async fn begin(
    claim: &Claim,
    stretch: Stretch,
    (wish, sink): (Wish, sink::Client),
    share: Option<(View, ShareId)>,
) -> capnp::Result<subscription::Client> {
    let house = claim.require_read().await?;
    let place = claim.feed().map_err(to_wire)?;
    let claim = Rc::new(claim.derive().map_err(to_wire)?);
    let watched = house.engine.watch(stretch);
    // From here on nothing is missed.
    let changes = watched.changes();
    let durable = match wish.name.clone() {
        None => {
            let head = house.readers.head(stretch).await.map_err(to_wire)?;
            feed::exists(wish.after, head).map_err(to_wire)?;
            None
        }
        Some(name) => {
            let idle_ms_max = house.limits.subscription_idle_ms_max;
            let (grant, after) = (claim.grant(), wish.after);
            let subscribing = Subscribing { grant, stretch, name, after, idle_ms_max };
            let taken = house.engine.subscribe(subscribing).answer().await.map_err(to_wire)?;
            Some(Durable::new(house.clone(), &watched, taken))
        }
    };
    let after = durable.as_ref().map_or(wish.after, |durable| durable.saved);
    // The wait may have been long enough for the connection to end.
    claim.require(Right::Read)?;

    let progress = Rc::new(Progress::default());
    progress.place.set(after);
    progress.acknowledged.set(after);
    let heartbeat = Duration::from_millis(FEED_HEARTBEAT_MS_MAX.min(house.limits.idle_ms_max / 3));
    let feed = Feed {
        claim: claim.clone(),
        stretch,
        own: claim.own_only(),
        share,
        wish,
        sink: sink.clone(),
        watched,
        changes,
        progress: progress.clone(),
        durable,
        calls: FuturesOrdered::new(),
        taking_in: None,
        texts: HashMap::new(),
        heartbeat,
        clock: house.clock.clone(),
    };
    let task = tokio::task::spawn_local(feed.run());
    claim.keep_feed(Feeding { _task: AbortOnDropHandle::new(task), sink, _place: place });
    Ok(capnp_rpc::new_client(Subscription { claim, progress }))
}

/// Tells a sink that its feed ends. Nobody waits for the answer.
pub(super) fn end(sink: &sink::Client, code: Code, text: &str) {
    let mut request = sink.ended_request();
    encode::refusal(code.name(), text, request.get().init_reason());
    let told = request.send().promise;
    tokio::task::spawn_local(async move {
        let _ = told.await;
    });
}

impl subscription::Server for Subscription {
    async fn status(
        self: Rc<Self>,
        params: subscription::StatusParams,
        mut results: subscription::StatusResults,
    ) -> capnp::Result<()> {
        drop(params);
        self.claim.require(Right::Read)?;
        let mut results = results.get();
        results.set_place(self.progress.place.get());
        results.set_acknowledged(self.progress.acknowledged.get());
        results.set_caught_up(self.progress.caught_up.get());
        if let Some((code, text)) = &*self.progress.ended.borrow() {
            encode::refusal(code.name(), text, results.init_ended());
        }
        Ok(())
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.claim.end_feed();
    }
}

struct Feed {
    claim: Rc<Claim>,
    stretch: Stretch,
    /// Only what was written under this grant, if it is so.
    own: Option<GrantKey>,
    /// Only what a share shows, if it is one's.
    share: Option<(View, ShareId)>,
    wish: Wish,
    sink: sink::Client,
    watched: Arc<Watched>,
    changes: watch::Receiver<u64>,
    progress: Rc<Progress>,
    durable: Option<Durable>,
    /// Calls on the sink that have not returned, in order, each with the place it brings the sink to.
    calls: FuturesOrdered<LocalBoxFuture<'static, capnp::Result<u64>>>,
    /// What is kept below a floor is being taken in, after a gap.
    taking_in: Option<(TakeIn, TakingIn)>,
    /// How far the texts of open parts were told.
    texts: HashMap<StreamKey, u64>,
    heartbeat: Duration,
    clock: Arc<dyn Clock>,
}

impl Feed {
    async fn run(mut self) {
        let Err(ended) = self.deliver().await;
        tracing::debug!(%ended, "a feed has ended");
        if let Some(code) = ended.code() {
            end(&self.sink, code, &ended.to_string());
            self.progress.ended.replace(Some((code, ended.to_string())));
        }
        // What has returned by now still counts, and the sink is let go.
        self.claim.end_feed();
    }

    /// Goes on until something ends it.
    async fn deliver(&mut self) -> Result<std::convert::Infallible, Ended> {
        loop {
            let turn = self.room().await?;
            self.changes.borrow_and_update();
            let after = self.progress.place.get();
            self.claim.standing().check(|| self.clock.now_ms())?;
            if let Some(Durable { taken, .. }) = &self.durable
                && !self.watched.is_held_by(taken.key, taken.holder)
            {
                return Err(Ended::Taken);
            }
            let page = self.page(after).await?;
            let shown = self.shown(&page).await?;
            // It may have been read after the authority was gone.
            self.claim.standing().check(|| self.clock.now_ms())?;
            if lost_something(&page, self.taking_in.as_ref().map(|(begun, _)| *begun)) {
                let begun = TakeIn { floor: page.floor, cuts: page.cuts };
                self.taking_in = Some((begun, self.watched.taking_in()));
                self.progress.caught_up.set(false);
                let mut request = self.sink.gap_request();
                request.get().set_after(after);
                request.get().set_floor(page.floor);
                self.call(request.send().promise, None);
                self.progress.place.set(0);
            } else if page.ops.is_empty() && page.through == after {
                if self.tell_texts().await? {
                    continue;
                }
                drop(turn);
                self.idle(after).await?;
            } else {
                self.tell(&page, &shown)?;
            }
        }
    }

    /// Tells how the texts of open parts have grown; whether there was something to tell.
    async fn tell_texts(&mut self) -> Result<bool, Ended> {
        let Stretch::Log(session) = self.stretch else { return Ok(false) };
        if !self.wish.texts || self.own.is_some() {
            return Ok(false);
        }
        let known = self.texts.clone();
        let asked = async |house: Rc<House>| house.readers.grown(session, known.clone()).await;
        let (mut grown, open) = self.ask(asked).await?;
        self.texts.retain(|key, _| open.contains(key));
        for text in &grown {
            self.texts.insert(text.key, text.offset + text.text.len() as u64);
        }
        if let Some((view, _)) = &self.share {
            grown.retain(|text| view.shows(text.key.message) && is_shown(*view, text.of));
        }
        // It may have been read after the authority was gone.
        self.claim.standing().check(|| self.clock.now_ms())?;
        if grown.is_empty() {
            return Ok(false);
        }
        let mut request = self.sink.grown_request();
        let mut texts = request.get().init_texts(grown.len() as u32);
        for (at, text) in (0..).zip(&grown) {
            let mut to = texts.reborrow().get(at);
            to.set_message_id(text.message.as_str());
            to.set_part_id(text.part.as_str());
            to.set_offset(text.offset);
            to.set_text(text.text.as_str());
        }
        self.claim.standing().count_read();
        self.call(request.send().promise, None);
        Ok(true)
    }

    /// Which ops of a page this follower may hear of at all.
    async fn shown(&self, page: &Arc<FeedPage>) -> Result<Vec<bool>, Ended> {
        let mut shown = match self.own {
            None => vec![true; page.ops.len()],
            Some(own) => {
                let own =
                    self.ask(async |house| house.readers.own(own, page.clone()).await).await?;
                let title = |op: &LoggedOp| op.kind == Kind::SetTitle as u16;
                own.into_iter().zip(&page.ops).map(|(own, op)| own || title(op)).collect()
            }
        };
        let about_grants = self.claim.carries(Right::Delegate);
        for (shown, op) in shown.iter_mut().zip(&page.ops) {
            *shown &= match &self.share {
                None => about_grants || !Kind::is_about_grants(op.kind),
                Some((view, id)) => is_in(*view, id, op)?,
            };
        }
        Ok(shown)
    }

    /// Asks the readers. Those that have no room now will have some.
    async fn ask<T>(
        &self,
        question: impl AsyncFn(Rc<House>) -> Result<T, QueryError>,
    ) -> Result<T, Ended> {
        loop {
            self.claim.standing().check(|| self.clock.now_ms())?;
            let house = self.claim.require(Right::Read).map_err(|_| Ended::Over)?;
            match question(house).await {
                Err(QueryError::Overloaded) => {
                    tokio::time::sleep(Duration::from_millis(FEED_RETRY_MS)).await;
                }
                found => return Ok(found?),
            }
        }
    }

    /// Waits until the sink and the connection may be sent more. Of one connection only a few feeds are sent
    /// something at a time, so that many of them together do not outrun it.
    async fn room(&mut self) -> Result<FeedTurn, Ended> {
        let claim = self.claim.clone();
        let mut fell = std::pin::pin!(claim.standing().fell());
        while self.calls.len() >= FEED_CALLS_IN_FLIGHT_MAX {
            tokio::select! {
                biased;
                why = &mut fell => return Err(why.into()),
                stepped = self.step(None) => { stepped?; }
            }
        }
        let mut turn = std::pin::pin!(claim.turn_to_feed());
        loop {
            tokio::select! {
                biased;
                why = &mut fell => return Err(why.into()),
                turn = &mut turn => return Ok(turn),
                stepped = self.step(None), if !self.calls.is_empty() => { stepped?; }
            }
        }
    }

    /// The page behind a place.
    async fn page(&self, after: u64) -> Result<Arc<FeedPage>, Ended> {
        self.ask(async |house| {
            self.watched.page(after, house.readers.feed(self.stretch, after)).await
        })
        .await
    }

    /// Sends what the sink wished for of a page.
    fn tell(&mut self, page: &FeedPage, shown: &[bool]) -> Result<(), Ended> {
        let wanted: Vec<_> = page
            .ops
            .iter()
            .zip(shown)
            .filter_map(|(op, shown)| (*shown && self.wish.wants(op)).then_some(op))
            .collect();
        self.progress.place.set(page.through);
        self.progress.caught_up.set(false);
        if self.taking_in.as_ref().is_some_and(|(begun, _)| page.through >= begun.floor) {
            self.taking_in = None;
        }
        if wanted.is_empty() {
            if self.calls.is_empty() {
                self.acknowledged(page.through);
            }
            return Ok(());
        }
        let mut request = self.sink.events_request();
        let mut to = request.get().init_page();
        to.set_through(page.through);
        let mut events = to.init_events(wanted.len() as u32);
        for (at, op) in (0..).zip(wanted) {
            let to = events.reborrow().get(at);
            let view = self.share.as_ref().map(|(view, _)| *view);
            encode::event(op, self.stretch, view, to).map_err(|error| {
                tracing::error!(%error, log = op.log.0, cursor = op.cursor.0, "an op cannot be told");
                Ended::Unreadable
            })?;
        }
        self.claim.standing().count_read();
        self.call(request.send().promise, Some(page.through));
        Ok(())
    }

    /// There is nothing to tell: says so, and waits for something to happen, or for time to pass.
    async fn idle(&mut self, place: u64) -> Result<(), Ended> {
        if !self.progress.caught_up.replace(true) && self.calls.len() < FEED_CALLS_IN_FLIGHT_MAX {
            let mut request = self.sink.caught_up_request();
            request.get().set_place(place);
            self.call(request.send().promise, Some(place));
        }
        let mut changes = self.changes.clone();
        let standing = self.claim.standing().clone();
        let until_expiry = standing
            .expires_at_ms()
            .map(|at_ms| Duration::from_millis(at_ms.saturating_sub(self.clock.now_ms())));
        let longest = until_expiry.map_or(self.heartbeat, |left| left.min(self.heartbeat));
        loop {
            tokio::select! {
                biased;
                why = standing.fell() => return Err(why.into()),
                // An error means that the engine is gone: the connection will be, too.
                changed = changes.changed() => return changed.map_err(|_| Ended::Over),
                beat = self.step(Some(longest)) => {
                    if beat? {
                        // Looks once more, says so again, and shows that the subscription is in use.
                        self.progress.caught_up.set(false);
                        if let Some(durable) = &mut self.durable {
                            durable.touch();
                        }
                        return Ok(());
                    }
                }
            }
        }
    }

    fn call<T: 'static>(&mut self, sent: Promise<T, capnp::Error>, through: Option<u64>) {
        let through = through.unwrap_or(0);
        self.calls.push_back(Box::pin(async move {
            sent.await?;
            Ok(through)
        }));
    }

    /// Waits for the next thing to happen on this side: a call returns, a place is saved, or, if it takes
    /// longer than that, time has passed.
    async fn step(&mut self, longest: Option<Duration>) -> Result<bool, Ended> {
        let saving = OptionFuture::from(self.durable.as_mut().and_then(|it| it.saving.as_mut()));
        let pause = longest.map(tokio::time::sleep);
        tokio::select! {
            biased;
            Some(returned) = self.calls.next(), if !self.calls.is_empty() => {
                let through = returned.map_err(|error| Ended::Sink(error.extra))?;
                self.acknowledged(through);
                Ok(false)
            }
            Some(saved) = saving => {
                let Some(durable) = &mut self.durable else { return Ok(false) };
                let held = self.watched.is_held_by(durable.taken.key, durable.taken.holder);
                durable.saving = None;
                match saved {
                    Ok(true) => durable.save(),
                    // Nobody took it: the share has ended with all its names, and the history says so next.
                    Ok(false) if self.share.is_some() && held => {}
                    Ok(false) => return Err(Ended::Taken),
                    // The next return tries again.
                    Err(error) => {
                        tracing::debug!(%error, "a place could not be saved yet");
                        durable.saved = durable.taken.place;
                    }
                }
                Ok(false)
            }
            Some(()) = OptionFuture::from(pause) => Ok(true),
            else => std::future::pending().await,
        }
    }

    /// The sink has everything up to here.
    fn acknowledged(&mut self, through: u64) {
        if through <= self.progress.acknowledged.get() {
            return; // below the floor, after a gap
        }
        self.progress.acknowledged.set(through);
        if let Some(durable) = &mut self.durable {
            durable.wanted = through;
            durable.save();
        }
    }
}

/// Whether a share shows such a text.
fn is_shown(view: View, of: TextKind) -> bool {
    match of {
        TextKind::Said => true,
        TextKind::Thought => view.reasoning,
        TextKind::Output => view.tool_outputs,
    }
}

/// Whether a share shows an op. Its own end is the end of its feeds.
fn is_in(view: View, share: &ShareId, op: &LoggedOp) -> Result<bool, Ended> {
    let said = Said::read(op.op_id, op.kind, op.version, &op.payload).map_err(|error| {
        tracing::error!(%error, log = op.log.0, cursor = op.cursor.0, "an op cannot be read");
        Ended::Unreadable
    })?;
    match &said {
        Said::ShareEnded(ended) if ended.id == *share => Err(ShareEnded.into()),
        said => Ok(said.is_shown(view, op.cursor)),
    }
}

/// The place of a named subscription, and how far it is saved. One save at a time: whatever returns
/// meanwhile goes with the next.
struct Durable {
    house: Rc<House>,
    /// Weak, so that it does not count as one more who watches.
    watched: Weak<Watched>,
    taken: Taken,
    wanted: u64,
    saved: u64,
    saving: Option<LocalBoxFuture<'static, Result<bool, Refusal>>>,
}

impl Durable {
    fn new(house: Rc<House>, watched: &Arc<Watched>, taken: Taken) -> Self {
        let watched = Arc::downgrade(watched);
        Self { house, watched, taken, wanted: taken.place, saved: taken.place, saving: None }
    }

    fn save(&mut self) {
        if self.saving.is_none() && self.wanted > self.saved {
            self.saved = self.wanted;
            self.saving = Some(Box::pin(self.submit().answer()));
        }
    }

    /// Shows that the subscription is in use, though its place does not move.
    fn touch(&mut self) {
        if self.saving.is_none() {
            self.saving = Some(Box::pin(self.submit().answer()));
        }
    }

    fn submit(&self) -> Submitted<bool> {
        let Taken { key, holder, .. } = self.taken;
        self.house.engine.acknowledge(Acknowledgement { key, holder, place: self.wanted })
    }
}

impl Drop for Durable {
    fn drop(&mut self) {
        if let Some(watched) = self.watched.upgrade() {
            watched.let_go(self.taken.key, self.taken.holder);
        }
        // Nobody waits for it, and if it is lost some events come twice.
        if self.wanted > self.saved {
            drop(self.submit());
        }
    }
}
