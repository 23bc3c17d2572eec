//! What a step cost: `cost` and `tokens`.

use super::Untold;
use super::object::Object;
use super::out::Out;
use crate::wire::message_capnp::usage;

/// Takes what a step cost, if that is said with both words; otherwise it all stays where it is. Zeros are
/// usual here, so tokens that are complete leave nothing behind, and the way out writes zeros again. Where
/// anything is odd or missing, `tokens` stays in `rest` and tells which zeros were said.
pub(super) fn take<'b>(object: &mut Object<'_>, init: impl FnOnce() -> usage::Builder<'b>) {
    let is_number = |raw: &str| raw.starts_with(|c: char| c == '-' || c.is_ascii_digit());
    let has_both = object.get("cost").is_some_and(is_number)
        && object.get("tokens").is_some_and(super::object::is_object);
    if !has_both {
        return;
    }
    let mut usage = init();
    if let Some(cost) = object.amount("cost") {
        usage.set_cost(cost);
    }
    let complete = object.get("tokens").is_some_and(is_complete);
    object.within_marked("tokens", |tokens| {
        // Zeros of complete tokens are taken as well; otherwise they stay to be told from nothing.
        let number = |tokens: &mut Object<'_>, name| {
            let taken = if complete { tokens.whole_or_none(name) } else { tokens.whole(name) };
            taken.unwrap_or(0)
        };
        usage.set_total(number(tokens, "total"));
        usage.set_input(number(tokens, "input"));
        usage.set_output(number(tokens, "output"));
        usage.set_reasoning(number(tokens, "reasoning"));
        tokens.within("cache", |cache| {
            usage.set_cache_read(number(cache, "read"));
            usage.set_cache_write(number(cache, "write"));
        });
        !complete
    });
}

/// Whether tokens say everything there is, and nothing else.
fn is_complete(raw: &str) -> bool {
    let Some(mut tokens) = Object::parse(raw) else { return false };
    let said = ["input", "output", "reasoning"].map(|name| tokens.whole_or_none(name).is_some());
    let mut cached = [false; 2];
    tokens.within("cache", |cache| {
        cached = ["read", "write"].map(|name| cache.whole_or_none(name).is_some());
    });
    tokens.whole("total");
    said == [true; 3] && cached == [true; 2] && tokens.rest().is_none()
}

/// Says what a step cost.
pub(super) fn say(usage: usage::Reader<'_>, out: &mut Out<'_>) -> Result<(), Untold> {
    out.amount_always("cost", usage.get_cost());
    out.within("tokens", |tokens| {
        let zeros = !tokens.is_kept();
        let number = |out: &mut Out<'_>, name, number| {
            if zeros { out.whole_always(name, number) } else { out.whole(name, number) }
        };
        tokens.whole("total", usage.get_total());
        number(tokens, "input", usage.get_input());
        number(tokens, "output", usage.get_output());
        number(tokens, "reasoning", usage.get_reasoning());
        tokens.within("cache", |cache| {
            number(cache, "read", usage.get_cache_read());
            number(cache, "write", usage.get_cache_write());
            Ok(())
        })
    })
}
