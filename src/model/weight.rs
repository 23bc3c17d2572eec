//! How much of a model's context a message takes up.

use crate::model::content::{InOrder, Stored, Unreadable, in_order};
use crate::model::ids::PartId;
use crate::model::infos::MessageInfo;
use crate::wire::message_capnp::{self, part};

/// How long what a message says is, in characters; and its tools, newest last.
#[derive(Debug, Default)]
pub struct Weight {
    /// Characters.
    pub chars: u64,
    /// What its tools gave.
    pub outputs: Vec<WeighedOutput>,
    /// Tokens its step told, if it did.
    pub told: u64,
}

/// What a tool gave.
#[derive(Debug)]
pub struct WeighedOutput {
    /// Which part it is.
    pub part: PartId,
    /// How long it is.
    pub chars: u64,
    /// Whether it is never left out.
    pub always: bool,
    /// Whether it was left out already.
    pub compacted: bool,
}

impl Weight {
    /// Counts what follows in.
    pub fn add(&mut self, more: Weight) {
        self.chars = self.chars.saturating_add(more.chars);
        self.outputs.extend(more.outputs);
        if more.told > 0 {
            self.told = more.told;
        }
    }
}

/// Weighs the parts of a message behind a position, as far as they are told.
pub fn weigh(message: &MessageInfo, after: u32) -> Result<Weight, Unreadable> {
    let last = if message.parts_after > 0 { message.parts_after } else { u32::MAX };
    let mut weight = Weight { chars: 0, outputs: Vec::new(), told: 0 };
    let mut add = |position: u32, part: part::Reader<'_>| {
        if position <= after || position > last || position >= message.parts_end {
            return Ok(());
        }
        let chars = |text: capnp::text::Reader<'_>| {
            text.to_str().map_or(0, |text| text.chars().count() as u64)
        };
        let beside = part.get_content()?.get_bytes();
        match part.which()? {
            part::Text(text) | part::Reasoning(text) => {
                weight.chars = weight.chars.saturating_add(chars(text?)).saturating_add(beside)
            }
            part::Tool(tool) => {
                let tool = tool?;
                weight.chars += chars(tool.get_input()?);
                let compacted = tool.get_compacted_at_ms() > 0;
                let output = chars(tool.get_output()?).saturating_add(beside);
                if !compacted {
                    weight.chars = weight.chars.saturating_add(output);
                }
                let done = tool.get_status()? == message_capnp::ToolStatus::Completed;
                if done {
                    let id = match part.get_id()?.to_str()? {
                        "" => PartId::made_in(&message.id, position - 1),
                        id => PartId::parse(id).unwrap_or_default(),
                    };
                    let always = tool.get_name()?.to_str()? == "skill";
                    weight.outputs.push(WeighedOutput {
                        part: id,
                        chars: output,
                        always,
                        compacted,
                    });
                }
            }
            part::StepFinish(step) => {
                let usage = step?.get_usage()?;
                let sum = [usage.get_output(), usage.get_cache_read(), usage.get_cache_write()]
                    .into_iter()
                    .fold(usage.get_input(), u64::saturating_add);
                weight.told = if usage.get_total() > 0 { usage.get_total() } else { sum };
            }
            _ => {}
        }
        Ok(())
    };
    Stored::new(&message.content).body(|body| {
        for (position, part) in in_order(body.get_parts()?, &message.parts) {
            match part {
                InOrder::Base(part) => add(position, part)?,
                InOrder::Put(bytes) => Stored::new(bytes).part(|part| add(position, part))?,
            }
        }
        Ok(())
    })?;
    Ok(weight)
}
