//! A message in another session, under other ids.

use super::{
    InOrder, MessageFacts, PartFacts, Stored, Unreadable, canonical, in_order, message_facts,
    only_segment, part_bytes, part_facts, without_parts,
};
use crate::limits::{OP_PAYLOAD_BYTES_MAX, PARTS_MAX};
use crate::model::ids::{MessageId, PartId};
use crate::wire::message_capnp::part;
use crate::wire::session_capnp::session_op;
use capnp::message::Builder;

/// A message as it stands: what was said of it last, and its parts in order.
pub struct Whole<'a> {
    /// The op's content that put it.
    pub base: &'a [u8],
    /// What was said of it since, if something was.
    pub info: Option<&'a [u8]>,
    /// Parts that were put since, by their position; none where one was taken away.
    pub parts: &'a [(u32, Option<Vec<u8>>)],
    /// How many parts of it were copied before these.
    pub first: u32,
}

impl Whole<'_> {
    /// Copies it under other ids, as the op that puts it. `rename` gives the new id of a message; a part's is
    /// made from it.
    pub fn copied(
        &self,
        id: &MessageId,
        rename: impl Fn(&str) -> Option<String>,
    ) -> Result<Copied, Unreadable> {
        let base = Stored::new(self.base);
        let info = self.info.map(Stored::new);
        let mut message = Builder::new_default();
        let mut to = message.init_root::<session_op::Builder<'_>>().init_put_message();
        base.body(|body| {
            match &info {
                Some(info) => info.info(|info| without_parts(info, to.reborrow()).map(drop))?,
                None => without_parts(body, to.reborrow()).map(drop)?,
            }
            to.set_id(id.as_str());
            to.set_turn_id("");
            let parent = to.reborrow_as_reader().get_parent_id()?.to_str()?.to_owned();
            to.set_parent_id(rename(&parent).unwrap_or_default().as_str());
            let kept = in_order(body.get_parts()?, self.parts);
            let mut parts = to.reborrow().init_parts(kept.len() as u32);
            for (at, (_, part)) in (0..).zip(kept) {
                match part {
                    InOrder::Base(part) => parts.set_with_caveats(at, part)?,
                    InOrder::Put(bytes) => {
                        Stored::new(bytes).part(|part| Ok(parts.set_with_caveats(at, part)?))?;
                    }
                }
                let mut part = parts.reborrow().get(at);
                part.set_id(PartId::made_in(id, self.first + at).as_str());
                if let part::Compaction(compaction) = part.which()? {
                    let mut compaction = compaction?;
                    let tail = compaction.reborrow_as_reader().get_tail_start_id()?.to_str()?;
                    let tail = rename(tail).unwrap_or_default();
                    compaction.set_tail_start_id(tail.as_str());
                }
            }
            Ok(())
        })?;
        let op = message.get_root_as_reader::<session_op::Reader<'_>>()?;
        let sent = canonical::<session_op::Owned>(op, op.total_size()?.word_count)?;
        let session_op::PutMessage(body) = op.which()? else { return Ok(Copied::default()) };
        let body = body?;
        let (content, parts) = (only_segment(&sent).to_vec(), body.get_parts()?.len());
        Ok(Copied { content, facts: message_facts(body)?, parts })
    }
}

/// A part by itself: its id, what the rules need to know of it, and what it says.
pub type ApartPart = (PartId, PartFacts, Vec<u8>);

/// A copy of a message.
#[derive(Debug, Default)]
pub struct Copied {
    /// The op that puts it.
    pub content: Vec<u8>,
    /// What the rules need to know of it.
    pub facts: MessageFacts,
    parts: u32,
}

impl Copied {
    /// Whether it is more than one op can be.
    pub fn is_large(&self) -> bool {
        self.parts > PARTS_MAX || self.content.len() > OP_PAYLOAD_BYTES_MAX
    }

    /// The op that puts it without its parts; and those, each with its id and what the rules need to know.
    pub fn apart(&self) -> Result<(Vec<u8>, Vec<ApartPart>), Unreadable> {
        Stored::new(&self.content).body(|body| {
            let mut message = Builder::new_default();
            let to = message.init_root::<session_op::Builder<'_>>().init_put_message();
            without_parts(body, to)?;
            let op = message.get_root_as_reader::<session_op::Reader<'_>>()?;
            let sent = canonical::<session_op::Owned>(op, op.total_size()?.word_count)?;
            let mut parts = Vec::new();
            for part in body.get_parts()? {
                let id = PartId::parse(part.get_id()?.to_str()?).unwrap_or_default();
                parts.push((id, part_facts(part)?, part_bytes(part)?));
            }
            Ok((only_segment(&sent).to_vec(), parts))
        })
    }
}
