//! `PartWriter`: the text of an open part, as it comes.
//!
//! Pieces that come while one is on its way to the disk are joined, so a flood of tokens costs as many rows as
//! there are commits, and a lone token waits for nothing.

use super::decode;
use super::error::to_wire;
use super::scope::{Claim, Streamed};
use crate::engine::{Growing, StreamKey, Submitted};
use crate::limits::WRITER_BATCH_BYTES;
use crate::model::code::{Code, Coded};
use crate::model::rights::Right;
use crate::wire::session_capnp::part_writer;
use std::cell::RefCell;
use std::rc::Rc;
use tokio::sync::Notify;

struct PartWriter {
    text: Rc<Text>,
}

pub(super) fn client(claim: Claim, key: StreamKey) -> part_writer::Client {
    let claim = claim.about(key.session);
    let text = Text { claim, key, state: RefCell::default(), moved: Notify::new() };
    capnp_rpc::new_client(PartWriter { text: Rc::new(text) })
}

/// What the object and its pieces under way share.
struct Text {
    claim: Claim,
    key: StreamKey,
    state: RefCell<State>,
    /// A piece is on disk.
    moved: Notify,
}

/// A piece that is longer than anybody says at a time.
#[derive(Debug, thiserror::Error)]
#[error("a piece of text is {0} bytes long; the most accepted is {WRITER_BATCH_BYTES}")]
struct TooLong(usize);

impl Coded for TooLong {
    fn code(&self) -> Code {
        Code::OpTooLarge
    }
}

#[derive(Default)]
struct State {
    /// What waits to be handed over: from which byte on, the text, and its place among what is streamed.
    pending: Option<(u64, String, Streamed)>,
    /// Pieces handed over, and those of them that are answered.
    begun: u64,
    answered: u64,
    /// How long the text was when a piece was last answered.
    length: u64,
    failed: Option<capnp::Error>,
}

impl Text {
    /// Takes a piece. One that follows right on what waits is joined with it.
    fn take(self: &Rc<Self>, offset: u64, text: &str) -> capnp::Result<()> {
        self.claim.require(Right::Turn)?;
        if text.len() > WRITER_BATCH_BYTES {
            return Err(to_wire(TooLong(text.len())));
        }
        let mut state = self.state.borrow_mut();
        state.failed.clone().map_or(Ok(()), Err)?;
        let joined = match &mut state.pending {
            Some((from, waiting, streamed)) if *from + waiting.len() as u64 == offset => {
                waiting.push_str(text);
                streamed.add(text.len());
                true
            }
            _ => false,
        };
        drop(state);
        if !joined {
            // What waits does not go with it, and was sent before.
            self.hand_over()?;
            let streamed = self.claim.stream(text.len());
            self.state.borrow_mut().pending = Some((offset, text.to_owned(), streamed));
        }
        let state = self.state.borrow();
        let large = state.pending.as_ref().is_some_and(|it| it.1.len() >= WRITER_BATCH_BYTES);
        let ready = state.begun == state.answered || large;
        drop(state);
        if ready { self.hand_over() } else { Ok(()) }
    }

    /// Hands what waits to the engine.
    fn hand_over(self: &Rc<Self>) -> capnp::Result<()> {
        let Some((offset, text, streamed)) = self.state.borrow_mut().pending.take() else {
            return Ok(());
        };
        let house = self.claim.require(Right::Turn)?;
        let growing = Growing { grant: self.claim.grant(), key: self.key, offset, text };
        let submitted = house.engine.grow(growing);
        let number = self.state.borrow().begun;
        self.state.borrow_mut().begun += 1;
        // It is on its way whoever still waits; what becomes of it is noted for the next flush.
        tokio::task::spawn_local(self.clone().note(number, submitted, streamed));
        Ok(())
    }

    async fn note(self: Rc<Self>, number: u64, submitted: Submitted<u64>, streamed: Streamed) {
        let answer = submitted.answer().await;
        drop(streamed);
        // The engine answers in order, but who is polled first is not said.
        self.until(|state| state.answered == number).await;
        let go_on = {
            let mut state = self.state.borrow_mut();
            state.answered += 1;
            match answer {
                Ok(length) => state.length = length,
                Err(refusal) => {
                    state.failed.get_or_insert(to_wire(refusal));
                    state.pending = None;
                }
            }
            state.begun == state.answered
        };
        if go_on && let Err(error) = self.hand_over() {
            self.state.borrow_mut().failed.get_or_insert(error);
        }
        self.moved.notify_waiters();
    }

    async fn until(&self, reached: impl Fn(&State) -> bool) {
        loop {
            let moved = self.moved.notified();
            if reached(&self.state.borrow()) {
                return;
            }
            moved.await;
        }
    }
}

impl part_writer::Server for PartWriter {
    fn delta(
        self: Rc<Self>,
        params: part_writer::DeltaParams,
    ) -> impl Future<Output = capnp::Result<()>> + 'static {
        let taken = params
            .get()
            .map_err(decode::Malformed::from)
            .and_then(|params| Ok((params.get_offset(), params.get_text()?.to_str()?)))
            .map_err(to_wire)
            .and_then(|(offset, text)| self.text.take(offset, text));
        drop(params);
        async move {
            taken?;
            self.text.claim.stream_room().await;
            self.text.state.borrow().failed.clone().map_or(Ok(()), Err)
        }
    }

    fn flush(
        self: Rc<Self>,
        params: part_writer::FlushParams,
        mut results: part_writer::FlushResults,
    ) -> impl Future<Output = capnp::Result<()>> + 'static {
        drop(params);
        let text = self.text.clone();
        let begun = text.claim.require(Right::Turn).and_then(|house| {
            text.hand_over()?;
            // With nothing on its way, an empty piece asks how long the text is.
            let idle = {
                let state = text.state.borrow();
                state.failed.is_none() && state.begun == state.answered
            };
            let asked = idle.then(|| {
                let (grant, key) = (text.claim.grant(), text.key);
                house.engine.grow(Growing { grant, key, offset: 0, text: String::new() })
            });
            Ok((text.state.borrow().begun, asked))
        });
        async move {
            let (begun, asked) = begun?;
            if let Some(asked) = asked {
                let length = asked.answer().await.map_err(to_wire)?;
                text.state.borrow_mut().length = length;
            }
            text.until(|state| state.answered >= begun || state.failed.is_some()).await;
            let state = text.state.borrow();
            state.failed.clone().map_or(Ok(()), Err)?;
            results.get().set_offset(state.length);
            Ok(())
        }
    }
}
