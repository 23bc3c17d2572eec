//! The two-party network: frames, admission and the outbound buffer around one RPC system.

use super::admission::{Admission, Call, Verdict};
use super::frame::{Frame, FrameError, FrameReader};
use super::outbound::Outbound;
use crate::limits::{
    CAPS_PER_MESSAGE_MAX, FINISH_BYTES_MAX, Limits, NESTING_MAX, QUESTIONS_MAX,
    STRANGER_FRAME_BYTES_MAX, TRAVERSAL_FACTOR, TRAVERSAL_WORDS_MIN,
};
use crate::model::code::{Advice, Code};
use capnp::capability::Promise;
use capnp::message::{Builder, HeapAllocator, ReaderOptions};
use capnp::serialize::BufferSegments;
use capnp_rpc::rpc_capnp::{
    self, call, cap_descriptor, exception, message, message_target, payload, promised_answer,
    resolve,
};
use capnp_rpc::rpc_twoparty_capnp::Side;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout_at};
use tokio_util::task::AbortOnDropHandle;

/// What the parts of one connection share.
struct Shared {
    outbound: Outbound,
    admission: RefCell<Admission>,
    /// Messages that wait for the answer to a question, in the order they came.
    waiting: RefCell<HashMap<u32, Vec<Incoming>>>,
    /// Messages that let go of our capabilities, kept while a waiting call still names some of ours: it was
    /// sent first, and must find them.
    letting_go: RefCell<Vec<Incoming>>,
    /// Calls of ours the peer has not answered. capnp-rpc remembers each, also one nobody waits for.
    questions: Cell<usize>,
    /// Messages to be handed on, in this order: those that have waited, and the one just read.
    released: RefCell<VecDeque<Incoming>>,
    /// Something changed that the receiving side waits for.
    nudge: Notify,
    last_heard: Cell<Instant>,
    /// How long the peer may be silent, or be there at all while it holds nothing.
    idle: Cell<Duration>,
    /// Holds nothing: what it says does not prolong its stay, and it may not say much.
    stranger: Cell<bool>,
    frame_bytes_max: usize,
    frame_time: Duration,
    backlog_bytes_max: usize,
    /// Lets go of the stream's reading half.
    hang_up: Box<dyn Fn()>,
}

/// A connection, ready to carry an RPC system.
pub struct Link {
    network: Network,
    control: Control,
}

/// What the owner of a connection can ask of it from outside.
#[derive(Clone)]
pub struct Control {
    shared: Rc<Shared>,
}

impl Link {
    /// Takes the two halves of a stream. The writing half is driven by a task of its own, so this must
    /// be called on a local task set.
    pub fn new(
        reader: impl AsyncRead + Unpin + 'static,
        writer: impl AsyncWrite + Unpin + 'static,
        side: Side,
        limits: &Limits,
    ) -> Self {
        let tap = Tap(Rc::new(RefCell::new(Some(reader))));
        let source = tap.0.clone();
        let shared = Rc::new(Shared {
            outbound: Outbound::default(),
            admission: RefCell::new(Admission::new(limits)),
            waiting: RefCell::default(),
            letting_go: RefCell::default(),
            questions: Cell::new(0),
            released: RefCell::default(),
            nudge: Notify::new(),
            last_heard: Cell::new(Instant::now()),
            idle: Cell::new(Duration::from_millis(limits.idle_ms_max)),
            stranger: Cell::new(false),
            frame_bytes_max: limits.frame_bytes_max,
            frame_time: Duration::from_millis(limits.frame_ms_max),
            backlog_bytes_max: limits.backlog_bytes_max,
            hang_up: Box::new(move || drop(source.borrow_mut().take())),
        });
        let stall = Duration::from_millis(limits.stall_ms_max);
        let (written, all_written) = watch::channel(false);
        let writing = tokio::task::spawn_local({
            let shared = shared.clone();
            async move {
                if let Err(error) = shared.outbound.drive(writer, stall).await {
                    tracing::debug!(%error, "no more is written on this connection");
                }
                // A peer that cannot be answered is not listened to either.
                shared.nudge.notify_one();
                let _ = written.send(true);
            }
        });
        let reader = FrameReader::new(tap, limits.frame_bytes_max);
        let connection = Connection {
            shared: shared.clone(),
            reader: Rc::new(RefCell::new(Some(reader))),
            all_written: all_written.clone(),
        };
        let network = Network {
            connection: Some(Box::new(connection)),
            all_written,
            side,
            _writing: AbortOnDropHandle::new(writing),
        };
        Self { network, control: Control { shared } }
    }

    /// The network for an RPC system, and the handle that stays outside.
    pub fn into_parts(self) -> (Box<dyn capnp_rpc::VatNetwork<Side>>, Control) {
        (Box::new(self.network), self.control)
    }
}

impl Control {
    /// Takes no more calls; ends the connection once those that were taken are answered.
    pub fn drain(&self) {
        self.shared.admission.borrow_mut().drain();
        self.shared.nudge.notify_one();
    }

    /// Waits until the peer has taken enough of what it was sent that it may be sent more.
    pub async fn room(&self) {
        self.shared.outbound.room(self.shared.backlog_bytes_max).await;
    }

    /// Ends the connection here and now: whoever still refers to a part of it finds it empty. Objects
    /// can outlive their connection, after a panic for instance, but its socket must not.
    pub fn hang_up(&self) {
        self.shared.outbound.close();
        (self.shared.hang_up)();
        let waiting = self.shared.waiting.take();
        let released = self.shared.released.take();
        let letting_go = self.shared.letting_go.take();
        drop((waiting, released, letting_go));
    }

    /// Begins to treat the peer as one that holds nothing, or that does.
    pub fn set_stranger(&self, stranger: bool, idle: Duration) {
        self.shared.stranger.set(stranger);
        self.shared.idle.set(idle);
        self.shared.last_heard.set(Instant::now());
        self.shared.nudge.notify_one();
    }
}

/// The reading half of a stream, which can be let go from outside; from then on it is at its end.
struct Tap<R>(Rc<RefCell<Option<R>>>);

impl<R: AsyncRead + Unpin> AsyncRead for Tap<R> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut *self.0.borrow_mut() {
            Some(reader) => Pin::new(reader).poll_read(cx, buffer),
            None => Poll::Ready(Ok(())),
        }
    }
}

struct Network {
    connection: Option<Box<dyn capnp_rpc::Connection<Side>>>,
    all_written: watch::Receiver<bool>,
    side: Side,
    /// However the RPC system ends, by a panic for instance, the socket is let go with it.
    _writing: AbortOnDropHandle<()>,
}

impl capnp_rpc::VatNetwork<Side> for Network {
    fn connect(&mut self, host: Side) -> Option<Box<dyn capnp_rpc::Connection<Side>>> {
        // A second bootstrap finds the connection in the RPC system and does not come here.
        if host == self.side { None } else { self.connection.take() }
    }

    fn accept(&mut self) -> Promise<Box<dyn capnp_rpc::Connection<Side>>, capnp::Error> {
        match (self.side, self.connection.take()) {
            (Side::Server, Some(connection)) => Promise::ok(connection),
            (_, connection) => {
                self.connection = connection;
                Promise::from_future(futures::future::pending())
            }
        }
    }

    fn drive_until_shutdown(&mut self) -> Promise<(), capnp::Error> {
        Promise::from_future(until_written(self.all_written.clone()))
    }
}

async fn until_written(mut all_written: watch::Receiver<bool>) -> capnp::Result<()> {
    // An error means the writer is gone, which is as good as done.
    let _ = all_written.wait_for(|done| *done).await;
    Ok(())
}

struct Connection<R> {
    shared: Rc<Shared>,
    reader: Rc<RefCell<Option<FrameReader<R>>>>,
    all_written: watch::Receiver<bool>,
}

impl<R: AsyncRead + Unpin + 'static> capnp_rpc::Connection<Side> for Connection<R> {
    fn get_peer_vat_id(&self) -> Side {
        Side::Client
    }

    fn new_outgoing_message(&mut self, words: u32) -> Box<dyn capnp_rpc::OutgoingMessage> {
        let message = Builder::new(HeapAllocator::new().first_segment_words(words));
        Box::new(Outgoing { message, shared: self.shared.clone() })
    }

    fn receive_incoming_message(
        &mut self,
    ) -> Promise<Option<Box<dyn capnp_rpc::IncomingMessage>>, capnp::Error> {
        let (shared, home) = (self.shared.clone(), self.reader.clone());
        Promise::from_future(async move {
            let Some(mut reader) = home.borrow_mut().take() else {
                return Err(capnp::Error::failed("two receivers on one connection".into()));
            };
            let received = shared.receive(&mut reader).await;
            *home.borrow_mut() = Some(reader);
            received
        })
    }

    fn shutdown(&mut self, _: capnp::Result<()>) -> Promise<(), capnp::Error> {
        self.shared.outbound.close();
        Promise::from_future(until_written(self.all_written.clone()))
    }
}

impl Shared {
    /// The next message the RPC system may see.
    async fn receive<R: AsyncRead + Unpin>(
        &self,
        reader: &mut FrameReader<R>,
    ) -> capnp::Result<Option<Box<dyn capnp_rpc::IncomingMessage>>> {
        loop {
            let released = self.released.borrow_mut().pop_front();
            if let Some(message) = released {
                return Ok(Some(Box::new(message)));
            }
            if self.outbound.is_over() || self.admission.borrow().is_drained() {
                return Ok(None);
            }
            if self.questions.get() > QUESTIONS_MAX {
                return Err(gone("the peer leaves too many calls of ours unanswered"));
            }
            if self.outbound.backlog_bytes() > self.backlog_bytes_max {
                self.outbound.room(self.backlog_bytes_max).await;
                continue;
            }

            reader.set_bytes_max(match self.stranger.get() {
                true => STRANGER_FRAME_BYTES_MAX.min(self.frame_bytes_max),
                false => self.frame_bytes_max,
            });
            // Silence between messages is one thing, a message that never ends another.
            let frame = match reader.begun() {
                None => {
                    let deadline = self.last_heard.get() + self.idle.get();
                    tokio::select! {
                        biased;
                        begun = timeout_at(deadline, reader.begin()) => match begun {
                            Err(_) => return Err(gone("the peer was silent too long")),
                            Ok(Err(error)) => return Err(lost(error)),
                            Ok(Ok(())) if reader.begun().is_none() => return Ok(None),
                            Ok(Ok(())) => continue,
                        },
                        () = self.nudge.notified() => continue,
                    }
                }
                Some(begun) => tokio::select! {
                    biased;
                    next = timeout_at(begun + self.frame_time, reader.next()) => match next {
                        Err(_) => return Err(gone("a message took too long to arrive")),
                        // The calls before it may yet turn the stranger into a holder.
                        Ok(Err(FrameError::TooLarge { .. })) if self.may_become_holder() => {
                            self.nudge.notified().await;
                            continue;
                        }
                        Ok(Err(error)) => return Err(lost(error)),
                        Ok(Ok(None)) => return Ok(None),
                        Ok(Ok(Some(frame))) => frame,
                    },
                    () = self.nudge.notified() => continue,
                },
            };
            if !self.stranger.get() {
                self.last_heard.set(Instant::now());
            }
            // Behind whatever was released meanwhile.
            let admitted = self.admit(frame)?;
            self.released.borrow_mut().extend(admitted);
        }
    }

    fn may_become_holder(&self) -> bool {
        self.stranger.get() && self.admission.borrow().is_busy() && !self.outbound.is_over()
    }

    /// Asks the books about a message, and answers it here if it is not to be handed on.
    fn admit(&self, frame: Frame) -> capnp::Result<Option<Incoming>> {
        let bytes = frame.len();
        let words = bytes / 8 * TRAVERSAL_FACTOR + TRAVERSAL_WORDS_MIN;
        let options =
            ReaderOptions { traversal_limit_in_words: Some(words), nesting_limit: NESTING_MAX };
        let segments = BufferSegments::new(frame, options).map_err(gone)?;
        let message = capnp::message::Reader::new(segments, options);
        let verdict = message.get_root().and_then(|root| self.judge(root, bytes)).map_err(gone)?;
        match verdict {
            (Verdict::Pass, _) => Ok(Some(Incoming(message))),
            (Verdict::HoldBack, _) => {
                self.letting_go.borrow_mut().push(Incoming(message));
                Ok(None)
            }
            (Verdict::Hold(on), _) => {
                self.waiting.borrow_mut().entry(on).or_default().push(Incoming(message));
                Ok(None)
            }
            (Verdict::Refuse(code), question) => {
                self.outbound.put(&refusal(question, code));
                Ok(None)
            }
            (Verdict::Abort(why), _) => Err(gone(why)),
        }
    }

    fn judge(&self, message: message::Reader<'_>, bytes: usize) -> capnp::Result<(Verdict, u32)> {
        let mut books = self.admission.borrow_mut();
        let mut question = 0;
        let verdict = match message.which() {
            Ok(message::Bootstrap(bootstrap)) => {
                question = bootstrap?.get_question_id();
                books.call(&Call { question, bytes, to_caller: true, ..Call::default() })
            }
            Ok(message::Call(call)) => {
                let call = call?;
                question = call.get_question_id();
                let to_caller = matches!(
                    call.get_send_results_to().which()?,
                    call::send_results_to::Caller(())
                );
                let params = call.get_params()?;
                let mut named = Named::default();
                let target = match call.get_target()?.which()? {
                    message_target::PromisedAnswer(answer) => Some(named.answer(answer?)?),
                    message_target::ImportedCap(_) => None,
                };
                let caps = params.get_cap_table()?.len();
                if caps <= CAPS_PER_MESSAGE_MAX {
                    named.caps(params)?;
                }
                books.call(&Call {
                    question,
                    bytes,
                    to_caller,
                    target,
                    hangs_on: &named.answers,
                    promises: &named.promises,
                    names_ours: named.ours,
                    caps,
                    path_steps: named.path_steps,
                })
            }
            Ok(message::Finish(_) | message::Release(_)) if bytes > FINISH_BYTES_MAX => {
                Verdict::Abort("a message that lets go of something was too large")
            }
            Ok(message::Release(_)) => books.release(),
            Ok(message::Finish(finish)) => books.finish(finish?.get_question_id()),
            Ok(message::Return(ret)) => {
                self.questions.set(self.questions.get().saturating_sub(1));
                match ret?.which()? {
                    rpc_capnp::return_::Results(results) => {
                        let results = results?;
                        if results.get_cap_table()?.len() > CAPS_PER_MESSAGE_MAX {
                            Verdict::Abort("an answer carried too many capabilities")
                        } else {
                            let mut named = Named::default();
                            named.caps(results)?;
                            named.promises.iter().for_each(|promise| books.promise(*promise));
                            Verdict::Pass
                        }
                    }
                    _ => Verdict::Pass,
                }
            }
            Ok(message::Resolve(resolved)) => {
                let resolved = resolved?;
                match resolved.which()? {
                    resolve::Cap(cap) => match cap?.which()? {
                        cap_descriptor::SenderPromise(by) => {
                            books.promise_replaced(resolved.get_promise_id(), by)
                        }
                        cap_descriptor::ReceiverAnswer(answer) => {
                            books.promise_answered(answer?.get_question_id())
                        }
                        _ => Verdict::Pass,
                    },
                    resolve::Exception(_) => Verdict::Pass,
                }
            }
            // capnp-rpc would send these back as unimplemented, whole; no two-party peer has use for them.
            Ok(
                message::Provide(_)
                | message::Accept(_)
                | message::Join(_)
                | message::ObsoleteSave(_)
                | message::ObsoleteDelete(_),
            )
            | Err(_) => Verdict::Abort("a kind of message that has no place between two parties"),
            Ok(message::Unimplemented(_) | message::Abort(_) | message::Disembargo(_)) => {
                Verdict::Pass
            }
        };
        Ok((verdict, question))
    }

    /// Keeps the books about a message on its way out.
    fn note_outgoing(&self, message: message::Reader<'_>) -> capnp::Result<()> {
        match message.which() {
            Ok(message::Return(ret)) => {
                let ret = ret?;
                let mut books = self.admission.borrow_mut();
                books.returned(ret.get_answer_id(), ret.get_no_finish_needed());
                let waited = self.waiting.borrow_mut().remove(&ret.get_answer_id());
                let mut waited = waited.unwrap_or_default();
                if books.may_let_go() {
                    waited.append(&mut self.letting_go.borrow_mut());
                }
                if !waited.is_empty() || books.is_drained() || self.stranger.get() {
                    self.released.borrow_mut().extend(waited);
                    self.nudge.notify_one();
                }
            }
            Ok(message::Call(_)) => {
                self.questions.set(self.questions.get() + 1);
                if self.questions.get() > QUESTIONS_MAX {
                    self.nudge.notify_one();
                }
            }
            Ok(message::Release(release)) => {
                self.admission.borrow_mut().released(release?.get_id());
            }
            _ => {}
        }
        Ok(())
    }
}

/// The connection is given up; the peer is told why, as far as it listens.
fn gone(why: impl std::fmt::Display) -> capnp::Error {
    tracing::warn!(%why, "the connection was given up");
    capnp::Error::disconnected(Code::ConnectionEnded.text(why))
}

/// A stream that broke is no news; one that says nonsense is.
fn lost(error: FrameError) -> capnp::Error {
    match error {
        FrameError::Io(_) | FrameError::Truncated => {
            capnp::Error::disconnected(Code::ConnectionEnded.text(error))
        }
        _ => gone(error),
    }
}

/// What a message names by number.
#[derive(Default)]
struct Named {
    answers: Vec<u32>,
    promises: Vec<u32>,
    /// Whether it names capabilities of ours.
    ours: bool,
    path_steps: u32,
}

impl Named {
    fn answer(&mut self, answer: promised_answer::Reader<'_>) -> capnp::Result<u32> {
        self.path_steps = self.path_steps.max(answer.get_transform()?.len());
        Ok(answer.get_question_id())
    }

    fn caps(&mut self, payload: payload::Reader<'_>) -> capnp::Result<()> {
        for cap in payload.get_cap_table()? {
            match cap.which() {
                Ok(cap_descriptor::SenderPromise(promise)) => self.promises.push(promise),
                Ok(cap_descriptor::ReceiverHosted(_)) => self.ours = true,
                Ok(cap_descriptor::ReceiverAnswer(answer)) => {
                    let question = self.answer(answer?)?;
                    self.answers.push(question);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// The answer to a call the RPC system never sees.
fn refusal(question: u32, code: Code) -> Builder<HeapAllocator> {
    let mut message = Builder::new(HeapAllocator::new().first_segment_words(64));
    let mut ret = message.init_root::<message::Builder<'_>>().init_return();
    ret.set_answer_id(question);
    ret.set_no_finish_needed(true);
    describe(code, ret.init_exception());
    message
}

/// The last message to a peer that is not served at all.
pub fn turned_away(code: Code) -> Vec<u8> {
    let mut message = Builder::new_default();
    describe(code, message.init_root::<message::Builder<'_>>().init_abort());
    capnp::serialize::write_message_to_words(&message)
}

fn describe(code: Code, mut exception: exception::Builder<'_>) {
    exception.set_reason(code.text(code.meaning()));
    exception.set_type(match code.advice() {
        Advice::No => exception::Type::Failed,
        Advice::Later => exception::Type::Overloaded,
        Advice::Reconnect => exception::Type::Disconnected,
    });
}

struct Incoming(capnp::message::Reader<BufferSegments<Frame>>);

impl capnp_rpc::IncomingMessage for Incoming {
    fn get_body(&self) -> capnp::Result<capnp::any_pointer::Reader<'_>> {
        self.0.get_root()
    }
}

struct Outgoing {
    message: Builder<HeapAllocator>,
    shared: Rc<Shared>,
}

impl capnp_rpc::OutgoingMessage for Outgoing {
    fn get_body(&mut self) -> capnp::Result<capnp::any_pointer::Builder<'_>> {
        self.message.get_root()
    }

    fn get_body_as_reader(&self) -> capnp::Result<capnp::any_pointer::Reader<'_>> {
        self.message.get_root_as_reader()
    }

    fn send(self: Box<Self>) -> (Promise<(), capnp::Error>, Rc<Builder<HeapAllocator>>) {
        let Self { message, shared } = *self;
        let noted = message
            .get_root_as_reader::<message::Reader<'_>>()
            .and_then(|root| shared.note_outgoing(root));
        shared.outbound.put(&message);
        (noted.map_or_else(Promise::err, Promise::ok), Rc::new(message))
    }

    fn take(self: Box<Self>) -> Builder<HeapAllocator> {
        self.message
    }

    fn size_in_words(&self) -> usize {
        self.message.size_in_words()
    }
}
