//! Questions about what was said in a session: pages of it, and what a model is to be shown.

use super::{QueryError, Readers, Sight};
use crate::limits::{PAGE_BYTES_MAX, PARTS_MAX};
use crate::model::content::{self, Change, Stored, Text, TextKind};
use crate::model::context::{self, Limits, Output, Weighed};
use crate::model::ids::{Cursor, LogId, MessageId, OpId, PartId};
use crate::model::infos::{MessageInfo, PutParts, Role};
use crate::model::page::{Page, Paged};
use crate::model::timeline::{Segment, Timeline, shown_of};
use crate::model::weight;
use crate::ops::MessagePut;
use crate::store::grants::Authors;
use crate::store::messages::StoredMessage;
use crate::store::streams::{Stream, StreamKey};
use crate::store::{self, Read, StoreError};
use std::collections::HashMap;

/// More text of an open part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrownText {
    /// Which.
    pub key: StreamKey,
    /// Its message.
    pub message: MessageId,
    /// Its id there.
    pub part: PartId,
    /// From which byte on.
    pub offset: u64,
    /// The text.
    pub text: String,
    /// What kind of text it is.
    pub of: TextKind,
}

/// What the rules say about the size of a context.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// Tokens that can be used.
    pub usable: u64,
    /// Tokens that are.
    pub used: u64,
    /// Whether it is to be summed up.
    pub overflow: bool,
    /// Where the kept tail would begin.
    pub tail_start: Option<MessageId>,
    /// Outputs that can be left out.
    pub prunable: Vec<(MessageId, PartId)>,
    /// And how many tokens that would free.
    pub prunable_tokens: u64,
}

fn timeline(read: &Read<'_>, session: LogId) -> Result<Timeline, QueryError> {
    store::sessions::timeline(read, session)?.ok_or(QueryError::SessionGone)
}

pub(super) fn messages(
    read: &Read<'_>,
    session: LogId,
    page: Page,
    reverted: bool,
    sight: Sight,
) -> Result<Paged<MessageInfo>, QueryError> {
    let page = page.through(sight.view.map_or(Cursor(0), |view| view.up_to));
    let timeline = timeline(read, session)?;
    let segments = if reverted { timeline.segments.clone() } else { timeline.shown() };
    let found = store::messages::page(read, session, &segments, page)?;
    told(read, session, &segments, found, page, sight, 0)
}

/// Messages as they are told, as far as they are. The first few may stand out of order, ahead of the others; they
/// are always told, and the next page does not begin behind them.
fn told(
    read: &Read<'_>,
    session: LogId,
    segments: &[Segment],
    found: Paged<StoredMessage>,
    page: Page,
    sight: Sight,
    ahead: usize,
) -> Result<Paged<MessageInfo>, QueryError> {
    let mut teller = Teller::new(read, session)?;
    let mut items = Vec::with_capacity(found.items.len());
    let mut last = page.after();
    let (mut more, mut next, mut bytes) = (found.more, found.next, 0);
    for (at, message) in found.items.into_iter().enumerate() {
        // What was put into it since, and who wrote it, may take up more than what was written first.
        if bytes >= PAGE_BYTES_MAX && at > ahead {
            (next, more) = (last, true);
            break;
        }
        if at >= ahead {
            last = message.cursor;
        }
        let beyond = sight.view.is_some_and(|view| !view.shows(message.cursor));
        // In order, everything behind it is beyond, too.
        more &= page.newest_first() || !beyond;
        let foreign = match sight.own {
            Some(own) => !store::grants::stems_from(read, message.granted, own)?,
            None => false,
        };
        if beyond || foreign {
            continue;
        }
        let parts_end = shown_of(segments, message.cursor).unwrap_or(u32::MAX);
        let told = teller.tell(message, parts_end)?;
        bytes += told.1;
        items.push(told.0);
    }
    Ok(Paged { items, next, more })
}

/// Puts messages together from where their pieces stand.
struct Teller<'a, 'c> {
    read: &'a Read<'c>,
    session: LogId,
    authors: Authors,
    /// Texts that are still coming.
    streams: Vec<Stream>,
}

impl<'a, 'c> Teller<'a, 'c> {
    fn new(read: &'a Read<'c>, session: LogId) -> Result<Self, StoreError> {
        let streams = store::streams::of_session(read, session, None)?;
        Ok(Self { read, session, authors: Authors::default(), streams })
    }

    fn tell(
        &mut self,
        message: StoredMessage,
        parts_end: u32,
    ) -> Result<(MessageInfo, usize), StoreError> {
        let author = self.authors.of(self.read, message.granted)?;
        // The id is the row's; the op would only say how it was made.
        let put = MessagePut::of(OpId([0; 16]), message.version, &message.payload)?;
        let (parts, cut) = self.parts(message.cursor, 0)?;
        let parts_after = match cut {
            true => parts.last().map_or(0, |(position, _)| *position),
            false => 0,
        };
        let put_bytes: usize =
            parts.iter().map(|(_, part)| part.as_ref().map_or(16, Vec::len)).sum();
        let bytes = message.payload.len() + author.bytes() + put_bytes;
        let told = MessageInfo {
            id: message.id,
            cursor: message.cursor,
            created_at_ms: message.at_ms,
            granted: message.granted,
            author,
            role: put.role,
            content: put.content.into_owned(),
            info: message.info,
            parts,
            parts_end,
            parts_after,
        };
        Ok((told, bytes))
    }

    /// Parts that were put into a message behind a position, with the text that came for them so far.
    fn parts(&self, message: Cursor, after: u32) -> Result<(PutParts, bool), StoreError> {
        let (put, cut) =
            store::parts::of_message(self.read, self.session, message, after, PAGE_BYTES_MAX)?;
        let mut parts = Vec::with_capacity(put.len());
        for part in put {
            let key = StreamKey { session: self.session, message, position: part.position };
            let coming = self.streams.iter().find(|stream| stream.key == key);
            let content = match (part.content, coming) {
                (Some(content), Some(_)) => Some(self.with_text_so_far(key, &content)?),
                (content, _) => content,
            };
            parts.push((part.position, content));
        }
        Ok((parts, cut))
    }

    fn with_text_so_far(&self, key: StreamKey, part: &[u8]) -> Result<Vec<u8>, StoreError> {
        let (_, text) =
            store::streams::read(self.read, key, 0, crate::limits::INLINE_TEXT_BYTES_MAX)?;
        Change { part }
            .with_text(Text::Whole(&text))
            .map_err(|error| StoreError::Corrupt(error.to_string()))
    }
}

/// Where a context begins, if the conversation was summed up.
struct Summed {
    /// The message that asked for it, and the summary.
    asked: Cursor,
    summary: Cursor,
    /// The first message of the kept tail.
    tail: Cursor,
}

fn summed(
    read: &Read<'_>,
    session: LogId,
    segments: &[Segment],
) -> Result<Option<Summed>, QueryError> {
    let odd = |error: content::Unreadable| StoreError::Corrupt(error.to_string());
    for segment in segments.iter().rev() {
        let Some(summary) = store::messages::newest_summary(read, session, *segment)? else {
            continue;
        };
        let Some(stored) = store::messages::at(read, session, summary)? else { return Ok(None) };
        let parent = match &stored.info {
            Some(info) => Stored::new(info).info(content::parent_of),
            None => {
                let put = MessagePut::of_payload(stored.version, &stored.payload)?;
                Stored::new(put).body(content::parent_of)
            }
        }
        .map_err(odd)?;
        // A summary nobody asked for stands for itself: everything before it is summed up.
        let asked = match MessageId::parse(&parent) {
            Ok(parent) => store::messages::cursor_of(read, session, &parent)?.unwrap_or(summary),
            Err(_) => summary,
        };
        let tail = match store::messages::at(read, session, asked)? {
            Some(asked) => {
                let body = Stored::new(MessagePut::of_payload(asked.version, &asked.payload)?);
                let mut tail = body.body(content::tail_of).map_err(odd)?;
                // The part that says so may have been put later.
                store::parts::each(read, session, asked.cursor, |part| {
                    if let Some(part) = &part.content {
                        let said = Stored::new(part).part(content::tail_of_part).map_err(odd)?;
                        tail = said.or(tail.take());
                    }
                    Ok(())
                })?;
                tail
            }
            None => None,
        };
        let tail = match tail {
            Some(tail) => store::messages::cursor_of(read, session, &tail)?.unwrap_or(asked),
            None => asked,
        };
        return Ok(Some(Summed { asked, summary, tail: tail.min(asked) }));
    }
    Ok(None)
}

/// A page of what a model is to be shown.
fn context(
    read: &Read<'_>,
    session: LogId,
    page: Page,
    sight: Sight,
) -> Result<Paged<MessageInfo>, QueryError> {
    let segments = timeline(read, session)?.shown();
    let page = Page::new(page.after().0, page.limit(), false);
    let Some(Summed { asked, summary, tail }) = summed(read, session, &segments)? else {
        let found = store::messages::page(read, session, &segments, page)?;
        return told(read, session, &segments, found, page, sight, 0);
    };
    // Behind the summary come the kept tail and everything since; the first two are not told again.
    let rest = |segment: &Segment| Segment { from: segment.from.max(tail), ..*segment };
    let kept: Vec<Segment> = segments.iter().map(rest).collect();
    let mut found = store::messages::page(read, session, &kept, page)?;
    found.items.retain(|message| message.cursor != asked && message.cursor != summary);
    let mut ahead = 0;
    if page.after().0 == 0 {
        let mut first = Vec::new();
        for cursor in [asked, summary] {
            first.extend(store::messages::at(read, session, cursor)?);
        }
        first.dedup_by_key(|message| message.cursor);
        ahead = first.len();
        first.append(&mut found.items);
        found.items = first;
    }
    told(read, session, &segments, found, page, sight, ahead)
}

fn plan(read: &Read<'_>, session: LogId, limits: &Limits) -> Result<Plan, QueryError> {
    let odd = |error: content::Unreadable| StoreError::Corrupt(error.to_string());
    let mut weighed = Vec::new();
    let mut ids = Vec::new();
    let mut outputs: Vec<(MessageId, PartId, Output)> = Vec::new();
    let (mut told, mut after, mut turns) = (0, 0, 0u32);
    // Steps up to a summary, and its own, read what the model is not shown any more.
    let shown = timeline(read, session)?.shown();
    let summed = summed(read, session, &shown)?.map_or(Cursor(0), |summed| summed.summary);
    loop {
        let mut page = context(read, session, Page::new(after, 0, false), Sight::default())?;
        for message in &mut page.items {
            // All of its parts, however many there are, a page of them at a time.
            let mut weight = weight::weigh(message, 0).map_err(odd)?;
            while message.parts_after > 0 {
                let after = message.parts_after;
                let teller = Teller::new(read, session)?;
                let (more, cut) = teller.parts(message.cursor, after)?;
                message.parts_after = if cut { more.last().map_or(0, |it| it.0) } else { 0 };
                message.parts = more;
                weight.add(weight::weigh(message, after).map_err(odd)?);
            }
            let is_user = message.role == Role::User;
            turns += u32::from(is_user);
            if weight.told > 0 && message.cursor > summed {
                told = weight.told;
            }
            for found in weight.outputs {
                let output = Output {
                    // How many turns have begun by then; turned around below.
                    turn_from_end: turns,
                    tokens: context::estimate(found.chars),
                    tool_is_kept_always: found.always,
                    compacted: found.compacted,
                    after_summary: false,
                };
                outputs.push((message.id.clone(), found.part, output));
            }
            let tokens = context::estimate(weight.chars);
            weighed.push(Weighed { cursor: message.cursor.0, is_user, tokens });
            ids.push((message.cursor, message.id.clone()));
        }
        match page.more {
            true => after = page.next.0,
            false => break,
        }
    }
    outputs.reverse();
    for (_, _, output) in &mut outputs {
        output.turn_from_end = turns.saturating_sub(output.turn_from_end);
    }
    let list: Vec<Output> = outputs.iter().map(|(_, _, output)| *output).collect();
    let (prunable, prunable_tokens) = context::prunable(&list);
    let used = match told {
        0 => weighed.iter().fold(0, |sum: u64, message| sum.saturating_add(message.tokens)),
        told => told,
    };
    let tail = context::tail_start(limits, &weighed).map(Cursor);
    Ok(Plan {
        usable: context::usable(limits),
        used,
        overflow: context::overflows(limits, used),
        tail_start: ids.into_iter().find(|(at, _)| Some(*at) == tail).map(|(_, id)| id),
        // As many as one op takes; the next plan has the rest.
        prunable: prunable
            .into_iter()
            .take(PARTS_MAX as usize)
            .map(|at| (outputs[at].0.clone(), outputs[at].1.clone()))
            .collect(),
        prunable_tokens,
    })
}

/// More text of a session's open parts than is known; and which are open at all.
fn grown(
    read: &Read<'_>,
    session: LogId,
    known: &HashMap<StreamKey, u64>,
) -> Result<(Vec<GrownText>, Vec<StreamKey>), QueryError> {
    let (mut found, mut open) = (Vec::new(), Vec::new());
    let mut bytes = 0;
    for stream in store::streams::of_session(read, session, None)? {
        open.push(stream.key);
        // One that is shorter than what is known was begun anew.
        let from = known.get(&stream.key).copied().filter(|at| *at <= stream.bytes).unwrap_or(0);
        if stream.bytes <= from || bytes >= PAGE_BYTES_MAX {
            continue;
        }
        let StreamKey { message, position, .. } = stream.key;
        let Some(part) = store::parts::at(read, session, message, position)? else { continue };
        let Some(message) = store::messages::id_at(read, session, message)? else { continue };
        let standing = store::messages::standing(read, session, &message)?;
        let of_tool = standing.is_some_and(|standing| standing.role == Role::Tool);
        let (begins, text) = store::streams::read(read, stream.key, from, PAGE_BYTES_MAX)?;
        let skipped = usize::try_from(from - begins).unwrap_or(usize::MAX);
        let (offset, text) = match text.get(skipped..) {
            Some(rest) => (from, rest.to_owned()),
            None => (begins, text),
        };
        let content = part.content.unwrap_or_default();
        let of = Stored::new(&content)
            .part(content::text_kind)
            .map_err(|error| StoreError::Corrupt(error.to_string()))?;
        // Whatever a message of a tool says is what the tool gave.
        let of = if of_tool { TextKind::Output } else { of };
        bytes += text.len();
        found.push(GrownText { key: stream.key, message, part: part.id, offset, text, of });
    }
    Ok((found, open))
}

impl Readers {
    /// A page of what a model is to be shown.
    pub async fn context(
        &self,
        session: LogId,
        page: Page,
        sight: Sight,
    ) -> Result<Paged<MessageInfo>, QueryError> {
        self.ask(move |read| context(read, session, page, sight)).await
    }

    /// What the rules say about the size of a context.
    pub async fn plan(&self, session: LogId, limits: Limits) -> Result<Plan, QueryError> {
        self.ask(move |read| plan(read, session, &limits)).await
    }

    /// The parts of a message behind a position.
    pub async fn parts(
        &self,
        session: LogId,
        id: MessageId,
        after: u32,
        sight: Sight,
    ) -> Result<MessageInfo, QueryError> {
        self.ask(move |read| {
            let not_found = || QueryError::MessageNotFound(id.clone());
            let cursor = store::messages::cursor_of(read, session, &id)?.ok_or_else(not_found)?;
            let segments = timeline(read, session)?.segments;
            let parts_end = shown_of(&segments, cursor).ok_or_else(not_found)?;
            let message = store::messages::at(read, session, cursor)?.ok_or_else(not_found)?;
            if let Some(own) = sight.own
                && !store::grants::stems_from(read, message.granted, own)?
            {
                return Err(not_found());
            }
            let mut teller = Teller::new(read, session)?;
            let (mut told, _) = teller.tell(message, parts_end)?;
            let (parts, cut) = teller.parts(cursor, after)?;
            told.parts_after = if cut { parts.last().map_or(0, |(at, _)| *at) } else { 0 };
            told.parts = parts;
            Ok(told)
        })
        .await
    }

    /// An open part, how long its text is, and which tool it is of, if it is.
    pub async fn open_part(
        &self,
        session: LogId,
        turn: Cursor,
        message: MessageId,
        part: PartId,
    ) -> Result<(StreamKey, u64, Option<String>), QueryError> {
        self.ask(move |read| {
            if let Some(turn) = store::turns::at(read, session, turn)? {
                turn.running()?;
            }
            let cursor = store::messages::cursor_of(read, session, &message)?
                .ok_or_else(|| QueryError::MessageNotFound(message.clone()))?;
            let found = store::parts::get(read, session, cursor, &part)?
                .ok_or_else(|| QueryError::PartNotFound(message.clone(), part.clone()))?;
            let key = StreamKey { session, message: cursor, position: found.position };
            let stream = store::streams::get(read, key)?.filter(|stream| stream.turn == turn);
            let stream = stream.ok_or(QueryError::PartClosed)?;
            let tool = Stored::new(&found.content.unwrap_or_default())
                .part(content::tool_name)
                .map_err(|error| StoreError::Corrupt(error.to_string()))?;
            Ok((key, stream.bytes, tool))
        })
        .await
    }

    /// More text of a session's open parts than is known.
    pub async fn grown(
        &self,
        session: LogId,
        known: HashMap<StreamKey, u64>,
    ) -> Result<(Vec<GrownText>, Vec<StreamKey>), QueryError> {
        self.ask(move |read| grown(read, session, &known)).await
    }
}
