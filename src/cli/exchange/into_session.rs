//! Bringing a session on a server to what a document says, and no further.
//!
//! What is there already and says the same is left alone, so an import that was interrupted goes on where it
//! was, and one that is run again changes nothing.

use super::{Door, Trouble, code, whole};
use crate::clock::{Clock, SystemClock};
use crate::exchange::json::{Place, Reverted, message_to_json};
use crate::exchange::{Kept, Untaken};
use crate::limits::{BATCH_OPS_MAX, OP_PAYLOAD_BYTES_MAX, PARTS_MAX, UPLOAD_BYTES_MAX};
use crate::model::content::without_parts;
use crate::wire::bowline_capnp::{op_header, outcome, registration};
use crate::wire::message_capnp::{message_body, part, session_change, summary, todo};
use crate::wire::root_capnp::project;
use crate::wire::session_capnp::{session, session_draft, session_op};
use capnp::message::{Builder, HeapAllocator};
use std::collections::HashMap;

/// Bytes of ops that are sent in one batch.
const BATCH_BYTES: usize = 1 << 20;

/// What an import came to.
#[derive(Debug, Clone, Default)]
pub(super) struct Done {
    pub(super) sessions_created: u64,
    pub(super) sessions_found: u64,
    pub(super) messages_added: u64,
    pub(super) messages_changed: u64,
    pub(super) messages_same: u64,
    /// What could not be taken, by reason; and the first few of them.
    pub(super) untaken: HashMap<&'static str, u64>,
    pub(super) shown: Vec<String>,
}

/// Things that could not be taken which are told one by one.
const SHOWN_MAX: usize = 20;

impl Done {
    pub(super) fn untaken(&mut self, untaken: &Untaken) {
        *self.untaken.entry(untaken.reason.name()).or_default() += 1;
        if self.shown.len() < SHOWN_MAX {
            self.shown.push(untaken.to_string());
        }
    }

    pub(super) fn refused(&mut self, what: String) {
        *self.untaken.entry("refused").or_default() += 1;
        if self.shown.len() < SHOWN_MAX {
            self.shown.push(what);
        }
    }
}

/// Numbers ops in one log, under a producer that is the same for every run.
pub(super) struct Numbers {
    producer: [u8; 16],
    epoch: u32,
    next: u64,
    /// Results up to here are known.
    known: u64,
}

impl Numbers {
    /// Fills a registration in, to be answered with [`Numbers::registered`].
    pub(super) fn register(name: &str, mut to: registration::Builder<'_>) -> [u8; 16] {
        let producer = half("bowline import producer v1", &[name.as_bytes()]);
        let now = SystemClock.now_ms().to_le_bytes();
        let instance = [&now[..], &std::process::id().to_le_bytes()].concat();
        to.set_producer(&producer);
        to.set_instance(&half("bowline import run v1", &[&producer, &instance]));
        producer
    }

    pub(super) fn registered(producer: [u8; 16], epoch: u32, next: u64) -> Self {
        Self { producer, epoch, next, known: next - 1 }
    }

    fn op_id(&self, seq: u64) -> [u8; 16] {
        let mut id = half(
            "bowline import op v1",
            &[&self.producer, &self.epoch.to_le_bytes(), &seq.to_le_bytes()],
        );
        // Ids that begin with the time are cheap to keep in order.
        id[..6].copy_from_slice(&SystemClock.now_ms().to_be_bytes()[2..]);
        id
    }

    pub(super) fn header(&mut self, mut to: op_header::Builder<'_>) {
        to.set_producer(&self.producer);
        to.set_producer_epoch(self.epoch);
        to.set_seq(self.next);
        to.set_op_id(&self.op_id(self.next));
        to.set_acked_through(self.known);
        self.known = self.next;
        self.next += 1;
    }
}

fn half(context: &'static str, parts: &[&[u8]]) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new_derive_key(context);
    for part in parts {
        hasher.update(part);
    }
    let mut id = [0; 16];
    hasher.finalize_xof().fill(&mut id);
    id
}

/// A message that is there already.
struct There {
    print: u64,
    /// The ids of its parts.
    parts: Vec<String>,
}

/// A session that is brought to what a document says.
pub(super) struct IntoSession<'a> {
    door: &'a Door,
    id: String,
    session: session::Client,
    numbers: Numbers,
    /// What is there already, by message: as it would stand in a document.
    there: HashMap<String, There>,
    pending: Vec<Builder<HeapAllocator>>,
    pending_bytes: usize,
    /// Messages that are there and not in the conversation.
    left_behind: Vec<String>,
}

impl<'a> IntoSession<'a> {
    /// Finds the session, or makes it in a project.
    pub(super) fn open(
        door: &'a Door,
        project: &project::Client,
        project_numbers: &mut Numbers,
        draft: session_draft::Reader<'_>,
        done: &mut Done,
    ) -> Result<Self, Trouble> {
        let id = draft.get_id()?.to_string().unwrap_or_default();
        let mut request = door.root().session_request();
        request.get().set_id(id.as_str());
        let found = door.wait(async { Ok::<_, Trouble>(request.send().promise.await) })?;
        let (session, existed) = match found {
            Ok(answer) => (answer.get()?.get_session()?, true),
            Err(error) if code(&error) == "session-not-found" => {
                let mut request = project.create_session_request();
                project_numbers.header(request.get().init_op());
                request.get().set_session(draft)?;
                (door.wait(request.send().promise)?.get()?.get_session()?, false)
            }
            Err(error) => return Err(error.into()),
        };
        let mut request = session.register_request();
        let producer = Numbers::register(&id, request.get().init_registration());
        let answer = door.wait(request.send().promise)?;
        let registered = answer.get()?.get_registered()?;
        let numbers = Numbers::registered(
            producer,
            registered.get_epoch(),
            registered.get_next_expected_seq(),
        );
        let (there, pending) = (HashMap::new(), Vec::new());
        let (pending_bytes, left_behind) = (0, Vec::new());
        let mut into =
            Self { door, id, session, numbers, there, pending, pending_bytes, left_behind };
        match existed {
            true => {
                done.sessions_found += 1;
                into.look()?;
                into.update(draft)?;
            }
            false => done.sessions_created += 1,
        }
        Ok(into)
    }

    /// What is there already.
    fn look(&mut self) -> Result<(), Trouble> {
        let mut after = 0;
        loop {
            let mut request = self.session.messages_request();
            request.get().set_reverted(true);
            request.get().init_page().set_after(after);
            let answer = self.door.wait(request.send().promise)?;
            let answer = answer.get()?;
            for message in answer.get_messages()? {
                let id = message.get_id()?.to_string().unwrap_or_default();
                let taken = whole(self.door, &self.session, message)?;
                let body = taken.body.get_root_as_reader()?;
                let mut parts = Vec::new();
                for part in message_body::Reader::get_parts(body)? {
                    parts.push(part.get_id()?.to_string().unwrap_or_default());
                }
                let print = fingerprint(&self.id, &id, body)?;
                self.there.insert(id, There { print, parts });
            }
            after = answer.get_end()?.get_next();
            if !answer.get_end()?.get_more() {
                return Ok(());
            }
        }
    }

    /// Changes what is known about a session that was there, where it is something else.
    fn update(&mut self, draft: session_draft::Reader<'_>) -> Result<(), Trouble> {
        let answer = self.door.wait(self.session.info_request().send().promise)?;
        let info = answer.get()?.get_session()?;
        let mut wanted = Vec::new();
        let mut archived = false;
        for change in draft.get_changes()? {
            let differs = match change.which()? {
                session_change::Title(title) => title? != info.get_title()?,
                session_change::Metadata(json) => json? != info.get_metadata()?,
                session_change::ArchivedAtMs(at) => {
                    archived = true;
                    !info.get_archived() || at != info.get_archived_at_ms()
                }
                session_change::Agent(agent) => agent? != info.get_agent()?,
                session_change::Directory(directory) => directory? != info.get_directory()?,
                session_change::Path(path) => path? != info.get_path()?,
                session_change::Version(version) => version? != info.get_version()?,
                session_change::Rest(json) => json? != info.get_rest()?,
                session_change::Model(model) => {
                    let (wanted, there) = (model?, info.get_model()?);
                    wanted.get_provider_id()? != there.get_provider_id()?
                        || wanted.get_model_id()? != there.get_model_id()?
                        || wanted.get_variant()? != there.get_variant()?
                }
                session_change::SetRules(rules) => {
                    let (wanted, there) = (rules?, info.get_rules()?);
                    let mut same = wanted.len() == there.len();
                    for (wanted, there) in wanted.iter().zip(there) {
                        same &= wanted.get_permission()? == there.get_permission()?
                            && wanted.get_pattern()? == there.get_pattern()?
                            && wanted.get_action()? == there.get_action()?;
                    }
                    !same
                }
                session_change::Summary(summary) => {
                    let of = |summary: summary::Reader<'_>| {
                        [summary.get_additions(), summary.get_deletions(), summary.get_files()]
                    };
                    of(summary?) != of(info.get_summary()?)
                }
                _ => false,
            };
            if differs {
                wanted.push(change);
            }
        }
        let title = draft.get_title()?;
        let retitled = !title.is_empty() && title != info.get_title()?;
        let unarchived = info.get_archived() && !archived;
        let count = wanted.len() as u32 + u32::from(retitled) + u32::from(unarchived);
        if count == 0 {
            return Ok(());
        }
        let mut op = Builder::new_default();
        let to = op.init_root::<session_op::Builder<'_>>();
        let mut list = to.init_update(count);
        for (at, change) in (0..).zip(&wanted) {
            list.set_with_caveats(at, *change)?;
        }
        if retitled {
            list.reborrow().get(wanted.len() as u32).set_title(title);
        }
        if unarchived {
            list.get(count - 1).set_unarchive(());
        }
        self.send_later(op)
    }

    /// Takes a message, and the long content its parts name.
    pub(super) fn message(
        &mut self,
        body: message_body::Reader<'_>,
        contents: &[(Kept, Vec<u8>)],
        done: &mut Done,
    ) -> Result<(), Trouble> {
        let id = body.get_id()?.to_string().unwrap_or_default();
        let print = fingerprint(&self.id, &id, body)?;
        let there = self.there.remove(&id);
        if there.as_ref().is_some_and(|there| there.print == print) {
            done.messages_same += 1;
            return Ok(());
        }
        for (kept, data) in contents {
            self.upload(&kept.hash, data)?;
        }
        let parts = body.get_parts()?;
        let large = parts.len() > PARTS_MAX
            || body.total_size()?.word_count * 8 > OP_PAYLOAD_BYTES_MAX as u64 / 2;
        match there {
            None => {
                done.messages_added += 1;
                let mut op = Builder::new_default();
                let mut to = op.init_root::<session_op::Builder<'_>>().init_put_message();
                match large {
                    false => { op.init_root::<session_op::Builder<'_>>() }.set_put_message(body)?,
                    true => {
                        without_parts(body, to.reborrow()).map_err(|error| error.into_error())?;
                    }
                }
                self.send_later(op)?;
                if large {
                    self.put_parts(&id, parts)?;
                }
            }
            Some(there) => {
                done.messages_changed += 1;
                for part in there.parts {
                    let mut kept = false;
                    for wanted in parts {
                        kept |= wanted.get_id()? == part.as_str();
                    }
                    if !kept {
                        let mut op = Builder::new_default();
                        let mut gone = op.init_root::<session_op::Builder<'_>>().init_remove_part();
                        gone.set_message_id(id.as_str());
                        gone.set_part_id(part.as_str());
                        self.send_later(op)?;
                    }
                }
                let mut op = Builder::new_default();
                let to = op.init_root::<session_op::Builder<'_>>().init_set_message();
                without_parts(body, to).map_err(|error| error.into_error())?;
                self.send_later(op)?;
                self.put_parts(&id, parts)?;
            }
        }
        Ok(())
    }

    fn put_parts(
        &mut self,
        message: &str,
        parts: capnp::struct_list::Reader<'_, part::Owned>,
    ) -> Result<(), Trouble> {
        for part in parts {
            let mut op = Builder::new_default();
            let mut put = op.init_root::<session_op::Builder<'_>>().init_put_part();
            put.set_message_id(message);
            put.set_part(part)?;
            self.send_later(op)?;
        }
        Ok(())
    }

    /// Sets the list of things to do, if it is another one.
    pub(super) fn todos(&mut self, wanted: &[todo::Reader<'_>]) -> Result<(), Trouble> {
        self.flush()?;
        let answer = self.door.wait(self.session.todos_request().send().promise)?;
        let there = answer.get()?.get_todos()?;
        let mut same = there.len() as usize == wanted.len();
        for (there, wanted) in there.iter().zip(wanted) {
            same &= there.get_content()? == wanted.get_content()?
                && there.get_status()? == wanted.get_status()?
                && there.get_priority()? == wanted.get_priority()?
                && there.get_rest()? == wanted.get_rest()?;
        }
        if same {
            return Ok(());
        }
        let mut op = Builder::new_default();
        let mut list =
            op.init_root::<session_op::Builder<'_>>().init_set_todos(wanted.len() as u32);
        for (at, todo) in (0..).zip(wanted) {
            list.set_with_caveats(at, *todo)?;
        }
        self.send_later(op)
    }

    /// Ends the conversation where the document does.
    pub(super) fn revert(&mut self, wanted: &Reverted) -> Result<(), Trouble> {
        self.flush()?;
        let answer = self.door.wait(self.session.info_request().send().promise)?;
        let there = answer.get()?.get_session()?.get_revert()?;
        if there.get_message_id()? == wanted.message_id.as_str() {
            return Ok(());
        }
        let mut op = Builder::new_default();
        let head = op.init_root::<session_op::Builder<'_>>().init_set_head();
        let mut before = head.init_before();
        before.set_message_id(wanted.message_id.as_str());
        before.set_part_id(wanted.part_id.as_deref().unwrap_or_default());
        self.send_later(op)
    }

    /// Sends what still waits, and says what could not be brought back.
    pub(super) fn end(mut self, done: &mut Done) -> Result<(), Trouble> {
        self.flush()?;
        for what in self.left_behind {
            done.messages_added -= 1;
            done.refused(what);
        }
        Ok(())
    }

    /// Hands long content over, as far as it is not there.
    pub(super) fn upload(&self, hash: &[u8; 32], data: &[u8]) -> Result<(), Trouble> {
        let mut request = self.session.upload_request();
        let mut content = request.get().init_content();
        content.set_hash(hash);
        content.set_bytes(data.len() as u64);
        let answer = self.door.wait(request.send().promise)?;
        let (upload, offset) = (answer.get()?.get_upload()?, answer.get()?.get_offset());
        self.door.wait(async {
            let mut at = usize::try_from(offset).unwrap_or(usize::MAX);
            while let Some(rest) = data.get(at..).filter(|rest| !rest.is_empty()) {
                let piece = &rest[..rest.len().min(UPLOAD_BYTES_MAX)];
                let mut request = upload.write_request();
                request.get().set_offset(at as u64);
                request.get().set_data(piece);
                request.send().await?;
                at += piece.len();
            }
            upload.finish_request().send().promise.await.map(drop)
        })
    }

    fn send_later(&mut self, op: Builder<HeapAllocator>) -> Result<(), Trouble> {
        let size = op.get_root_as_reader::<session_op::Reader<'_>>()?.total_size()?;
        self.pending_bytes += usize::try_from(size.word_count * 8).unwrap_or(usize::MAX);
        self.pending.push(op);
        match self.pending.len() >= BATCH_OPS_MAX as usize / 4 || self.pending_bytes >= BATCH_BYTES
        {
            true => self.flush(),
            false => Ok(()),
        }
    }

    /// Sends what waits; on return it is on the server's disk.
    pub(super) fn flush(&mut self) -> Result<(), Trouble> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let ops = std::mem::take(&mut self.pending);
        self.pending_bytes = 0;
        let mut request = self.session.append_request();
        let mut batch = request.get().init_batch();
        batch.set_producer(&self.numbers.producer);
        batch.set_producer_epoch(self.numbers.epoch);
        batch.set_first_seq(self.numbers.next);
        batch.set_acked_through(self.numbers.known);
        let mut list = request.get().init_ops(ops.len() as u32);
        for (at, op) in (0..).zip(&ops) {
            list.set_with_caveats(at, op.get_root_as_reader()?)?;
            let seq = self.numbers.next + u64::from(at);
            list.reborrow().get(at).set_op_id(&self.numbers.op_id(seq));
        }
        let answer = self.door.wait(request.send().promise)?;
        let ack = answer.get()?.get_ack()?;
        if ack.has_stopped() {
            let text = ack.get_stopped()?.get_text()?.to_string().unwrap_or_default();
            return Err(Trouble::Other(format!("another import of this session runs: {text}")));
        }
        self.numbers.next += ops.len() as u64;
        self.numbers.known = self.numbers.next - 1;
        for outcome in ack.get_outcomes()? {
            if let outcome::Rejected(refusal) = outcome.which()? {
                let refusal = refusal?;
                let code = refusal.get_code()?.to_string().unwrap_or_default();
                let text = refusal.get_text()?.to_string().unwrap_or_default();
                if code == "message-exists" {
                    // It was left behind when the conversation went on elsewhere, and stays there.
                    self.left_behind.push(format!("session {}: {code}: {text}", self.id));
                // A tool that has ended stays as it ended.
                } else if code != "tool-ended" {
                    return Err(Trouble::Other(format!("session {}: {code}: {text}", self.id)));
                }
            }
        }
        Ok(())
    }
}

/// What a message says, as a number: by what it would be in a document.
fn fingerprint(
    session: &str,
    message: &str,
    body: message_body::Reader<'_>,
) -> Result<u64, Trouble> {
    // Long content is compared by its hash.
    let mut fetch = |hash: &[u8], _: u64| {
        // An object, because it may stand in the place of one.
        Ok(format!("{{\"sha256\":\"{}\"}}", data_encoding::HEXLOWER.encode(hash)).into_bytes())
    };
    let place = Place { session_id: session, message_id: message, created_at_ms: 0 };
    let told = message_to_json(place, body, body.get_parts()?, &mut fetch);
    // In which order fields stand says nothing. What has no form in a document differs from everything.
    let Ok(value) = told.map(|json| serde_json::from_str::<serde_json::Value>(&json)) else {
        return Ok(0);
    };
    let Ok(value) = value else { return Ok(0) };
    let hash = blake3::hash(value.to_string().as_bytes());
    let first: [u8; 8] = hash.as_bytes()[..8].try_into().unwrap_or_default();
    Ok(u64::from_le_bytes(first).max(1))
}
