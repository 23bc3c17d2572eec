//! Messages and parts in the form in which they are kept: as the wire has them.
//!
//! The schema is the one definition of what they are, so nothing a client said is lost on the way to the disk
//! and back, whatever the server knows of it. What the rules act on is read out here, once, and the few
//! changes the server makes itself are made here.

mod copy;

pub use copy::{ApartPart, Copied, Whole};

use crate::model::ids::{MessageId, PartId};
use crate::model::permission::permission_of_tool;
use crate::model::usage::Usage;
use crate::wire::message_capnp::{self, message_body, part, tool};
use crate::wire::session_capnp::session_op;
use capnp::Word;
use capnp::message::{Builder, HeapAllocator, Reader, ReaderOptions, SegmentArray};
use capnp::traits::{Owned, SetterInput};
use serde::{Deserialize, Serialize};

/// Something stored that is not what it should be.
#[derive(Debug, thiserror::Error)]
#[error("stored content cannot be read: {0}")]
pub struct Unreadable(#[from] capnp::Error);

impl Unreadable {
    /// As the wire's own error, for what has just come from there.
    pub fn into_error(self) -> capnp::Error {
        self.0
    }
}

impl From<capnp::NotInSchema> for Unreadable {
    fn from(error: capnp::NotInSchema) -> Self {
        Self(error.into())
    }
}

impl From<std::str::Utf8Error> for Unreadable {
    fn from(error: std::str::Utf8Error) -> Self {
        Self(error.into())
    }
}

/// How far a tool is. Numbers are stored, one higher than on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ToolStatus {
    /// Asked for.
    Pending = 1,
    /// Begun.
    Running = 2,
    /// Done.
    Completed = 3,
    /// Failed, or interrupted.
    Failed = 4,
}

impl ToolStatus {
    /// The status behind a stored number.
    pub fn from_number(number: i64) -> Option<Self> {
        [Self::Pending, Self::Running, Self::Completed, Self::Failed]
            .into_iter()
            .find(|status| *status as i64 == number)
    }

    fn of(wire: message_capnp::ToolStatus) -> Self {
        match wire {
            message_capnp::ToolStatus::Pending => Self::Pending,
            message_capnp::ToolStatus::Running => Self::Running,
            message_capnp::ToolStatus::Completed => Self::Completed,
            message_capnp::ToolStatus::Error => Self::Failed,
        }
    }

    /// Whether nothing leads on from here.
    pub fn is_final(self) -> bool {
        self >= Self::Completed
    }

    /// Whether a tool may go from here to there. It only goes forward, and what ended has run before.
    pub fn leads_to(self, next: Self) -> bool {
        match self {
            Self::Pending => matches!(next, Self::Pending | Self::Running | Self::Failed),
            Self::Running => next != Self::Pending,
            Self::Completed | Self::Failed => false,
        }
    }
}

/// Something long that stands beside the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ContentRef {
    /// SHA-256 of all of it.
    pub hash: [u8; 32],
    /// How long it is.
    pub bytes: u64,
}

/// What the rules need to know of a part.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PartFacts {
    /// How far it is, if it is a tool.
    pub status: Option<ToolStatus>,
    /// What it cost, if it is the end of a step.
    pub usage: Option<Usage>,
    /// What it names beside the log.
    pub contents: Vec<ContentRef>,
    /// Whether it asks for what came before to be summed up.
    pub compaction: bool,
}

/// What the rules need to know of a message.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MessageFacts {
    /// Whether it is a finished summary.
    pub summing_up: bool,
    /// Whether one of its parts asks for one.
    pub compaction: bool,
    /// What its steps cost, together.
    pub usage: Usage,
    /// What its parts name beside the log.
    pub contents: Vec<ContentRef>,
}

impl MessageFacts {
    /// Counts a part in.
    pub fn add(&mut self, part: PartFacts) {
        self.compaction |= part.compaction;
        self.usage = self.usage.plus(part.usage.unwrap_or_default());
        self.contents.extend(part.contents);
    }

    /// Whether there is nothing to know.
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }
}

/// What the rules need to know of a part that came in.
pub fn part_facts(part: part::Reader<'_>) -> Result<PartFacts, Unreadable> {
    let mut facts = PartFacts::default();
    match part.which()? {
        part::Tool(tool) => facts.status = Some(ToolStatus::of(tool?.get_status()?)),
        part::StepFinish(step) => facts.usage = Some(usage(step?.get_usage()?)),
        part::Compaction(_) => facts.compaction = true,
        _ => {}
    }
    for content in [part.get_content()?, part.get_rest_content()?] {
        facts.contents.extend(content_ref(content)?);
    }
    Ok(facts)
}

/// What a part names beside the log, if it does. A hash of another length names nothing.
pub fn content_ref(
    content: message_capnp::content::Reader<'_>,
) -> Result<Option<ContentRef>, Unreadable> {
    let hash = <[u8; 32]>::try_from(content.get_hash()?).ok();
    Ok(hash.map(|hash| ContentRef { hash, bytes: content.get_bytes() }))
}

/// Whether a message is a summary that counts: only one that came to its end, without an error.
pub fn is_finished_summary(body: message_body::Reader<'_>) -> Result<bool, Unreadable> {
    Ok(body.get_summary()
        && !body.get_finish()?.is_empty()
        && body.get_error()?.get_name()?.is_empty())
}

/// What a step cost, as it is summed up.
pub fn usage(usage: message_capnp::usage::Reader<'_>) -> Usage {
    Usage {
        cost_nano: Usage::nano(usage.get_cost()),
        input: usage.get_input(),
        output: usage.get_output(),
        reasoning: usage.get_reasoning(),
        cache_read: usage.get_cache_read(),
        cache_write: usage.get_cache_write(),
    }
}

/// Something stored, ready to be read. A database hands out bytes without alignment, so they are copied once.
pub struct Stored {
    words: Vec<Word>,
}

impl Stored {
    /// What stands in these bytes.
    pub fn new(bytes: &[u8]) -> Self {
        let mut words = Word::allocate_zeroed_vec(bytes.len().div_ceil(8));
        Word::words_to_bytes_mut(&mut words)[..bytes.len()].copy_from_slice(bytes);
        Self { words }
    }

    /// Hands it to `read`.
    pub fn read<T>(
        &self,
        read: impl FnOnce(&Reader<SegmentArray<'_>>) -> Result<T, Unreadable>,
    ) -> Result<T, Unreadable> {
        let segments = [Word::words_to_bytes(&self.words)];
        let mut options = ReaderOptions::new();
        // It was looked at when it came in; what is stored may be long, and is read more than once.
        options.traversal_limit_in_words(None);
        read(&Reader::new(SegmentArray::new(&segments), options))
    }

    /// A part.
    pub fn part<T>(
        &self,
        read: impl FnOnce(part::Reader<'_>) -> Result<T, Unreadable>,
    ) -> Result<T, Unreadable> {
        self.read(|message| read(message.get_root()?))
    }

    /// What is said about a message, without its parts.
    pub fn info<T>(
        &self,
        read: impl FnOnce(message_body::Reader<'_>) -> Result<T, Unreadable>,
    ) -> Result<T, Unreadable> {
        self.read(|message| read(message.get_root()?))
    }

    /// A message as the op that put it, or began a turn with it.
    pub fn body<T>(
        &self,
        read: impl FnOnce(message_body::Reader<'_>) -> Result<T, Unreadable>,
    ) -> Result<T, Unreadable> {
        self.read(|message| match message.get_root::<session_op::Reader<'_>>()?.which()? {
            session_op::PutMessage(body) => read(body?),
            session_op::BeginTurn(turn) => read(turn?.get_message()?),
            _ => {
                Err(Unreadable(capnp::Error::failed("a stored message says something else".into())))
            }
        })
    }
}

/// A struct in Cap'n Proto's canonical form: the same bytes whenever the same is said, however the sender's
/// library happened to lay it out.
pub fn canonical<T: Owned>(
    reader: impl SetterInput<T>,
    words: u64,
) -> capnp::Result<Builder<HeapAllocator>> {
    let words = u32::try_from(words + 1).unwrap_or(u32::MAX);
    let mut message = Builder::new(HeapAllocator::new().first_segment_words(words));
    message.set_root_canonical(reader)?;
    Ok(message)
}

/// The bytes of a canonical message: it has one segment by definition.
pub fn only_segment(message: &Builder<HeapAllocator>) -> &[u8] {
    message.get_segments_for_output().first().copied().unwrap_or_default()
}

/// A part in the form in which it is kept.
pub fn part_bytes(part: part::Reader<'_>) -> Result<Vec<u8>, Unreadable> {
    let message = canonical::<part::Owned>(part, part.total_size()?.word_count)?;
    Ok(only_segment(&message).to_vec())
}

/// What is said about a message in the form in which it is kept.
pub fn info_bytes(body: message_body::Reader<'_>) -> Result<Vec<u8>, Unreadable> {
    let message = canonical::<message_body::Owned>(body, body.total_size()?.word_count)?;
    Ok(only_segment(&message).to_vec())
}

/// A part that is put in the place of another one.
pub struct Change<'a> {
    /// The part as it is kept.
    pub part: &'a [u8],
}

impl Change<'_> {
    fn apply(
        &self,
        change: impl FnOnce(part::Builder<'_>) -> Result<(), Unreadable>,
    ) -> Result<Vec<u8>, Unreadable> {
        Stored::new(self.part).part(|part| {
            let mut message = Builder::new_default();
            message.set_root(part)?;
            change(message.get_root()?)?;
            part_bytes(message.get_root_as_reader()?)
        })
    }

    /// With the id it was given.
    pub fn named(&self, id: &PartId) -> Result<Vec<u8>, Unreadable> {
        self.apply(|mut part| {
            part.set_id(id.as_str());
            Ok(())
        })
    }

    /// With the text that came for it: as a whole, or as the name of where it stands.
    pub fn with_text(&self, text: Text<'_>) -> Result<Vec<u8>, Unreadable> {
        self.apply(|part| set_text(part, text))
    }

    /// A tool that was cut short, with whatever it had come to. What it was given and said stays.
    pub fn interrupted(&self, why: &str, at_ms: u64) -> Result<Vec<u8>, Unreadable> {
        self.apply(|mut part| {
            let started = part.reborrow().get_started_at_ms();
            part.set_started_at_ms(if started == 0 { at_ms } else { started });
            part.set_ended_at_ms(at_ms);
            let beside = part.reborrow_as_reader().get_content()?.has_hash();
            let part::Tool(tool) = part.which()? else { return Ok(()) };
            let mut tool = tool?;
            tool.set_status(message_capnp::ToolStatus::Error);
            let said = tool.reborrow_as_reader();
            let silent = said.get_output()?.is_empty() && !beside;
            // What it gave so far was acknowledged, and stays; then the reason stands beside it.
            let reason = (!silent).then_some(why);
            let metadata = interrupted_metadata(said.get_metadata()?.to_str()?, reason);
            tool.set_metadata(metadata.as_str());
            if silent {
                tool.set_output(why);
            }
            Ok(())
        })
    }

    /// A tool whose output the model is not shown any more.
    pub fn compacted(&self, at_ms: u64) -> Result<Vec<u8>, Unreadable> {
        self.apply(|part| {
            if let part::Tool(tool) = part.which()? {
                tool?.set_compacted_at_ms(at_ms);
            }
            Ok(())
        })
    }

    /// A tool that goes on: where the new part does not say when it began or what it was given, the one before
    /// it did.
    pub fn following(&self, before: &[u8]) -> Result<Vec<u8>, Unreadable> {
        Stored::new(before).part(|before| {
            self.apply(|mut part| {
                if part.reborrow().get_started_at_ms() == 0 {
                    part.set_started_at_ms(before.get_started_at_ms());
                }
                let (part::Tool(_), part::Tool(former)) =
                    (part.reborrow_as_reader().which()?, before.which()?)
                else {
                    return Ok(());
                };
                let former = former?;
                if !brings_text(part.reborrow_as_reader())? {
                    let mut text = part.reborrow();
                    if before.get_content()?.has_hash() {
                        text.set_content(before.get_content()?)?;
                    } else if let part::Tool(tool) = text.which()? {
                        tool?.set_output(former.get_output()?);
                    }
                }
                let part::Tool(tool) = part.which()? else { return Ok(()) };
                keep_unsaid(&mut tool?, former)
            })
        })
    }
}

fn keep_unsaid(tool: &mut tool::Builder<'_>, former: tool::Reader<'_>) -> Result<(), Unreadable> {
    let said = tool.reborrow_as_reader();
    let (no_input, no_metadata) = (said.get_input()?.is_empty(), said.get_metadata()?.is_empty());
    let (no_name, no_call) = (said.get_name()?.is_empty(), said.get_call_id()?.is_empty());
    if no_name {
        tool.set_name(former.get_name()?);
    }
    if no_call {
        tool.set_call_id(former.get_call_id()?);
    }
    if no_input {
        tool.set_input(former.get_input()?);
    }
    if no_metadata {
        tool.set_metadata(former.get_metadata()?);
    }
    Ok(())
}

/// A tool's metadata with the mark that it was interrupted, and why if that stands nowhere else; what is no object
/// any more is left as it is.
fn interrupted_metadata(metadata: &str, reason: Option<&str>) -> String {
    let parsed = match metadata {
        "" => Ok(serde_json::Map::new()),
        text => serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(text),
    };
    match parsed {
        Ok(mut fields) => {
            fields.insert("interrupted".to_owned(), true.into());
            if let Some(reason) = reason {
                fields.insert("reason".to_owned(), reason.into());
            }
            serde_json::Value::Object(fields).to_string()
        }
        Err(_) => metadata.to_owned(),
    }
}

/// The text of a part.
#[derive(Debug, Clone, Copy)]
pub enum Text<'a> {
    /// In full.
    Whole(&'a str),
    /// Where it stands.
    Beside(ContentRef),
}

fn set_text(mut part: part::Builder<'_>, text: Text<'_>) -> Result<(), Unreadable> {
    let whole = match text {
        Text::Whole(text) => text,
        Text::Beside(content) => {
            let mut to = part.reborrow().init_content();
            to.set_hash(&content.hash);
            to.set_bytes(content.bytes);
            ""
        }
    };
    match part.reborrow().which()? {
        part::Text(_) => part.set_text(whole),
        part::Reasoning(_) => part.set_reasoning(whole),
        part::Tool(tool) => tool?.set_output(whole),
        part::File(file) => file?.set_url(whole),
        _ => {}
    }
    Ok(())
}

/// Whether the text of such a part can be streamed.
pub fn has_text(part: part::Reader<'_>) -> Result<bool, Unreadable> {
    Ok(matches!(part.which()?, part::Text(_) | part::Reasoning(_) | part::Tool(_) | part::File(_)))
}

/// Whether a part brings a text of its own.
pub fn brings_text(part: part::Reader<'_>) -> Result<bool, Unreadable> {
    let text = match part.which()? {
        part::Text(text) | part::Reasoning(text) => text?,
        part::Tool(tool) => tool?.get_output()?,
        part::File(file) => file?.get_url()?,
        _ => return Ok(true),
    };
    Ok(!text.is_empty() || content_ref(part.get_content()?)?.is_some())
}

/// Whether a part says something itself: text, or a tool.
pub fn says_something(part: part::Reader<'_>) -> Result<bool, Unreadable> {
    Ok(matches!(part.which()?, part::Text(_) | part::Tool(_)))
}

/// How a turn leaves its last message.
#[derive(Debug, Clone, Copy)]
pub struct Leaving<'a> {
    /// What is said of it, if something is.
    pub said: Option<&'a [u8]>,
    /// Whether it came to its end.
    pub completed: bool,
    /// Whether it was cut short, rather than failed.
    pub aborted: bool,
    /// Why it did not come to its end.
    pub why: &'a str,
    /// When.
    pub at_ms: u64,
}

impl Leaving<'_> {
    /// What is said of a message then, and whether it is a finished summary.
    pub fn apply(&self, before: message_body::Reader<'_>) -> Result<(Vec<u8>, bool), Unreadable> {
        let Leaving { said, completed, aborted, why, at_ms } = *self;
        let Some(said) = said else {
            return match completed {
                true => {
                    let mut nothing = Builder::new_default();
                    nothing.init_root::<message_body::Builder<'_>>();
                    message_end(before, nothing.get_root_as_reader()?, at_ms)
                }
                false => Ok((message_aborted(before, why, at_ms)?, false)),
            };
        };
        let ended = Stored::new(said).info(|said| message_end(before, said, at_ms))?;
        let silent =
            Stored::new(&ended.0).info(|info| Ok(info.get_error()?.get_name()?.is_empty()))?;
        // It may have been cut short without a word about it.
        match aborted && silent {
            true => {
                let info = Stored::new(&ended.0).info(|it| message_aborted(it, why, at_ms))?;
                Ok((info, false))
            }
            false => Ok(ended),
        }
    }
}

/// The message a message answers, as it is said last; empty if it answers none.
pub fn parent_of(body: message_body::Reader<'_>) -> Result<String, Unreadable> {
    Ok(body.get_parent_id()?.to_str()?.to_owned())
}

/// Where the tail begins that a message which asks for a summary keeps; none if it keeps none.
pub fn tail_of(body: message_body::Reader<'_>) -> Result<Option<MessageId>, Unreadable> {
    for part in body.get_parts()? {
        if let part::Compaction(_) = part.which()? {
            return tail_of_part(part);
        }
    }
    Ok(None)
}

/// The same, of a part.
pub fn tail_of_part(part: part::Reader<'_>) -> Result<Option<MessageId>, Unreadable> {
    let part::Compaction(compaction) = part.which()? else { return Ok(None) };
    Ok(MessageId::parse(compaction?.get_tail_start_id()?.to_str()?).ok())
}

/// Which tool a part is of, if it is.
pub fn tool_name(part: part::Reader<'_>) -> Result<Option<String>, Unreadable> {
    match part.which()? {
        part::Tool(tool) => Ok(Some(tool?.get_name()?.to_str()?.to_owned())),
        _ => Ok(None),
    }
}

/// Every text in what a tool was given that changes files, if a part is of one: its files are among them.
pub fn tool_texts(part: part::Reader<'_>) -> Result<Vec<String>, Unreadable> {
    fn gather(value: serde_json::Value, texts: &mut Vec<String>) {
        match value {
            serde_json::Value::String(text) => texts.push(text),
            serde_json::Value::Array(values) => {
                values.into_iter().for_each(|value| gather(value, texts));
            }
            serde_json::Value::Object(members) => {
                members.into_iter().for_each(|(_, value)| gather(value, texts));
            }
            _ => {}
        }
    }
    let part::Tool(tool) = part.which()? else { return Ok(Vec::new()) };
    let (tool, mut texts) = (tool?, Vec::new());
    // Whoever only reads a file has not changed it.
    if permission_of_tool(tool.get_name()?.to_str()?) != "edit" {
        return Ok(texts);
    }
    if let Ok(input) = serde_json::from_str(tool.get_input()?.to_str()?) {
        gather(input, &mut texts);
    }
    Ok(texts)
}

/// What kind of text streams into a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextKind {
    /// Something that is said.
    Said,
    /// Something that is thought.
    Thought,
    /// What a tool gives.
    Output,
}

/// What kind of text streams into a part.
pub fn text_kind(part: part::Reader<'_>) -> Result<TextKind, Unreadable> {
    Ok(match part.which()? {
        part::Reasoning(_) => TextKind::Thought,
        part::Tool(_) => TextKind::Output,
        _ => TextKind::Said,
    })
}

/// What is said about a message once more: what the second says counts, where it says something.
pub fn message_end(
    before: message_body::Reader<'_>,
    end: message_body::Reader<'_>,
    completed_at_ms: u64,
) -> Result<(Vec<u8>, bool), Unreadable> {
    let mut message = Builder::new_default();
    let mut to = without_parts(before, message.init_root())?;
    if !end.get_finish()?.is_empty() {
        to.set_finish(end.get_finish()?);
    }
    if !end.get_error()?.get_name()?.is_empty() {
        to.set_error(end.get_error()?)?;
    }
    if end.has_usage() {
        to.set_usage(end.get_usage()?)?;
    }
    if !end.get_rest()?.is_empty() {
        to.set_rest(end.get_rest()?);
    }
    if !end.get_metadata()?.is_empty() {
        to.set_metadata(end.get_metadata()?);
    }
    let said = [end.get_completed_at_ms(), to.reborrow().get_completed_at_ms(), completed_at_ms];
    to.set_completed_at_ms(said.into_iter().find(|at_ms| *at_ms > 0).unwrap_or(0));
    let info = message.get_root_as_reader()?;
    Ok((info_bytes(info)?, is_finished_summary(info)?))
}

/// A message that was cut short.
pub fn message_aborted(
    before: message_body::Reader<'_>,
    why: &str,
    at_ms: u64,
) -> Result<Vec<u8>, Unreadable> {
    let mut message = Builder::new_default();
    let mut to = without_parts(before, message.init_root())?;
    let mut error = to.reborrow().init_error();
    error.set_name("MessageAbortedError");
    let data = serde_json::json!({ "message": why }).to_string();
    error.set_data(data.as_str());
    if before.get_completed_at_ms() == 0 {
        to.set_completed_at_ms(at_ms);
    }
    info_bytes(message.get_root_as_reader()?)
}

/// What is said about a message whose turn was cut short: how it ended stays as it was said then. And whether it is
/// a finished summary.
pub fn message_again(
    before: message_body::Reader<'_>,
    info: message_body::Reader<'_>,
) -> Result<(Vec<u8>, bool), Unreadable> {
    let mut message = Builder::new_default();
    let mut to = without_parts(info, message.init_root())?;
    to.set_finish(before.get_finish()?);
    to.set_error(before.get_error()?)?;
    let info = message.get_root_as_reader()?;
    Ok((info_bytes(info)?, is_finished_summary(info)?))
}

/// Everything about a message but its parts. A copy and not `set_root`, which would take them along.
pub fn without_parts<'a>(
    from: message_body::Reader<'_>,
    mut to: message_body::Builder<'a>,
) -> Result<message_body::Builder<'a>, Unreadable> {
    to.set_id(from.get_id()?);
    to.set_role(from.get_role()?);
    to.set_metadata(from.get_metadata()?);
    to.set_agent(from.get_agent()?);
    if from.has_model() {
        to.set_model(from.get_model()?)?;
    }
    to.set_parent_id(from.get_parent_id()?);
    to.set_turn_id(from.get_turn_id()?);
    to.set_created_at_ms(from.get_created_at_ms());
    to.set_completed_at_ms(from.get_completed_at_ms());
    to.set_finish(from.get_finish()?);
    if from.has_error() {
        to.set_error(from.get_error()?)?;
    }
    if from.has_usage() {
        to.set_usage(from.get_usage()?)?;
    }
    to.set_summary(from.get_summary());
    to.set_rest(from.get_rest()?);
    Ok(to)
}

/// A part of a message, from where it stands.
pub enum InOrder<'a, 'b> {
    /// It came with the message.
    Base(part::Reader<'a>),
    /// It was put since.
    Put(&'b [u8]),
}

/// The parts of a message in order, with their positions: those it came with, unless something else stands in
/// their place, and those that were put since.
pub fn in_order<'a, 'b>(
    base: capnp::struct_list::Reader<'a, part::Owned>,
    put: &'b [(u32, Option<Vec<u8>>)],
) -> Vec<(u32, InOrder<'a, 'b>)> {
    let of = |position: u32| put.binary_search_by_key(&position, |(at, _)| *at).ok();
    let mut parts = Vec::with_capacity(base.len() as usize + put.len());
    for (position, part) in (1..).zip(base) {
        match of(position).map(|at| &put[at].1) {
            None => parts.push((position, InOrder::Base(part))),
            Some(Some(bytes)) => parts.push((position, InOrder::Put(bytes))),
            Some(None) => {}
        }
    }
    let added = put.iter().filter(|(position, _)| *position > base.len());
    let there = |(position, bytes): &'b (u32, Option<Vec<u8>>)| {
        bytes.as_deref().map(|bytes| (*position, InOrder::Put(bytes)))
    };
    parts.extend(added.filter_map(there));
    parts
}

/// What the rules need to know of a message that came in.
pub fn message_facts(body: message_body::Reader<'_>) -> Result<MessageFacts, Unreadable> {
    let mut facts =
        MessageFacts { summing_up: is_finished_summary(body)?, ..MessageFacts::default() };
    for part in body.get_parts()? {
        facts.add(part_facts(part)?);
    }
    Ok(facts)
}
